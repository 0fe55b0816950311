// RowFace: what `learn_one` and `predict_one` talk to. It reads dicts for an engine and answers with labels; whatever in
// a row is new or wrong it leaves to Python.
#pragma once
#include <nanobind/nanobind.h>

#include <utility>

#include "growth.hpp"
#include "locks.hpp"
#include "row_reader.hpp"

namespace driftree {

namespace nb = nanobind;

template <class Engine>
class RowFace {
public:
    RowFace(nb::object owner, nb::object known)
        : owner_(std::move(owner)), engine_(*nb::inst_ptr<Engine>(owner_)), known_(std::move(known)),
          reader_(vocabulary_of(known_)) {}

    // Lets the engine grow and takes over the words for it: both, or neither. `known` is the encoder's record of them.
    void commit(nb::object known, const Growth& growth) {
        Vocabulary words = vocabulary_of(known);
        const Writing lock(engine_);
        grow(engine_, growth);
        reader_.learn_words(words);
        std::swap(known_, known);
    }
    const nb::object& known() const { return known_; }

    // Takes one step with one dict, and returns None; or NotImplemented when Python must read the row; or, if something is
    // due then, the turn, in which Python decides before anybody else may look: `with turn: ...`.
    nb::object learn(nb::handle x, nb::handle label) {
        Writing lock(engine_);
        const std::int32_t code = reader_.code_of(label);
        if (code < 0 || code >= engine_.n_classes) return nb::borrow(Py_NotImplemented);
        const int n_features = engine_.table->n_features();
        Room room(n_features);
        double* row = room.data();
        if (!reader_.read(x, n_features, true, row)) return nb::borrow(Py_NotImplemented);
        for (int j = 0; j < n_features; j++)
            if (engine_.schema().lacks_column(j, row[j])) return nb::borrow(Py_NotImplemented);
        const double target = code;
        engine_.learn(row, &target, nullptr, 1);
        if (!engine_.has_due()) return nb::none();
        return nb::cast(new Held(owner_, engine_.turns, lock), nb::rv_policy::take_ownership);
    }
    // The most probable label, or NotImplemented when Python must read the row.
    nb::object predict(nb::handle x) {
        const Reading lock(engine_);
        Room room(engine_.table->n_features()), predictors(engine_.n_outputs());
        if (!reader_.read(x, engine_.table->n_features(), false, room.data())) return nb::borrow(Py_NotImplemented);
        std::int32_t leaf;
        engine_.predictors_of(room.data(), 1, &leaf, predictors.data());
        return reader_.label_of(engine_.class_of(leaf, predictors.data()));
    }
    // {label: probability}, or None when Python must read the row.
    nb::object probabilities(nb::handle x) {
        const Reading lock(engine_);
        Room room(engine_.table->n_features()), predictors(engine_.n_outputs()), found(engine_.n_classes);
        if (!reader_.read(x, engine_.table->n_features(), false, room.data())) return nb::none();
        std::int32_t leaf;
        engine_.predictors_of(room.data(), 1, &leaf, predictors.data());
        engine_.probabilities_of(leaf, predictors.data(), found.data());
        nb::dict out;
        for (int code = 0; code < engine_.n_classes; code++) out[reader_.label_of(code)] = found.data()[code];
        return out;
    }
    RowReader& reader() { return reader_; }

private:
    static Vocabulary vocabulary_of(const nb::object& known) {
        return {nb::cast<nb::dict>(known.attr("names")), nb::cast<nb::list>(known.attr("levels")),
                nb::cast<nb::dict>(known.attr("labels"))};
    }
    nb::object owner_;
    Engine& engine_;
    nb::object known_;
    RowReader reader_;
};

}  // namespace driftree
