// RowFace: reads dicts for `learn_one` and `predict_one` of an engine, and returns labels. Whatever is new or wrong in a row
// is left to Python.
#pragma once
#include <nanobind/nanobind.h>

#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

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

    // Lets the engine and the vocabulary grow: both, or neither. `known` is the encoder's record of the vocabulary.
    void commit(nb::object known, const Growth& growth) {
        Vocabulary words = vocabulary_of(known);
        const Writing lock(engine_);
        grow(engine_, growth);
        reader_.learn_words(words);
        std::swap(known_, known);
    }
    // Adopts the vocabulary of another model, whose state the engine has already adopted.
    void restore(nb::object known, const nb::list& sparse_names, const std::vector<std::int32_t>& free_places) {
        Vocabulary words = vocabulary_of(known);
        const Writing lock(engine_);
        if (static_cast<int>(nb::len(sparse_names)) != engine_.table->sparse.n())
            throw nb::value_error("there must be a name for each sparse feature");
        reader_.sparse.restore(sparse_names, free_places);
        reader_.learn_words(words);
        std::swap(known_, known);
    }
    const nb::object& known() const { return known_; }

    // Takes one step with one dict and its weight. Returns None; NotImplemented if Python must read the row; or, if
    // something is due, the lock, under which Python decides before any other thread can read: `with turn: ...`.
    nb::object learn(nb::handle x, nb::handle label, double weight) {
        Learning lock(engine_);
        lock.close();
        double target;
        if (!read_target(label, target)) return nb::borrow(Py_NotImplemented);
        const int n_features = engine_.table->n_features();
        RowSpace space;
        SparseBatch& batch = space.batch;
        if (engine_.table->absent_is_zero) {
            if (!read_sparse(x, true, space) || !add_names_of_dicts(batch, space.fresh))
                return nb::borrow(Py_NotImplemented);
            lock.open();
            engine_.learn({nullptr, 0, batch.rows(), &target, &weight}, 1);
        } else {
            Room room(n_features);
            if (!read_to_learn(x, room.data(), batch)) return nb::borrow(Py_NotImplemented);
            lock.open();
            engine_.learn({room.data(), n_features, batch.held(), &target, &weight}, 1);
        }
        if constexpr (requires { engine_.show_level(); }) engine_.show_level();
        if (!engine_.has_due()) return nb::none();
        return nb::cast(new Held(owner_, engine_, lock), nb::rv_policy::take_ownership);
    }
    // Whether `learn` would learn the row: nothing in it is new or wrong, besides new sparse features. Learns nothing.
    bool takes(nb::handle x, nb::handle label) {
        const Predicting lock(engine_);
        double target;
        if (!read_target(label, target)) return false;
        RowSpace space;
        if (engine_.table->absent_is_zero) return read_sparse(x, true, space) && has_room(space.batch, space.fresh);
        Room room(engine_.table->n_features());
        return read_to_learn(x, room.data(), space.batch);
    }
    int n_features() const { return engine_.table->n_features(); }
    // Reads a dict as a row of numbers [features], for other ways to learn or predict; returns false if Python must read it.
    bool read(nb::handle x, bool is_learning, double* row) {
        const Predicting lock(engine_);
        const Table& table = *engine_.table;
        RowSpace space;
        if (table.has_sparse()) return false;
        return is_learning ? read_to_learn(x, row, space.batch)
                           : reader_.read(x, table.absent, n_own(), false, row, space.batch);
    }
    // Reads the code of a known label, or a number; returns false if Python must read it.
    bool read(nb::handle label, double& target) {
        const Predicting lock(engine_);
        return read_target(label, target);
    }
    // The most probable label or the number; NotImplemented if Python must read the row.
    nb::object predict(nb::handle x) {
        const Predicting lock(engine_);
        Room predictors(engine_.n_outputs());
        const int leaf = predict_row(x, predictors.data());
        if (leaf < 0) return nb::borrow(Py_NotImplemented);
        if constexpr (requires { engine_.target; }) {
            if (!engine_.has_labels()) return nb::float_(engine_.number_of(leaf, predictors.data()));
        }
        return reader_.label_of(engine_.class_of(leaf, predictors.data()));
    }
    // {label: probability}, or None if Python must read the row.
    nb::object probabilities(nb::handle x) {
        const Predicting lock(engine_);
        Room predictors(engine_.n_outputs()), found(engine_.n_classes);
        const int leaf = predict_row(x, predictors.data());
        if (leaf < 0) return nb::none();
        engine_.probabilities_of(leaf, predictors.data(), found.data());
        nb::dict out;
        for (int code = 0; code < engine_.n_classes; code++) out[reader_.label_of(code)] = found.data()[code];
        return out;
    }
    RowReader& reader() { return reader_; }

    // ---- sparse features
    // Sparse features of dicts; None if Python must read them: something is wrong, or there is no room for new ones.
    nb::object read_dicts(nb::list rows, bool is_learning) {
        Turn lock(engine_.turns, is_learning, without_gil);  // there may be new names
        lock.close();
        SparseBatch batch;
        std::vector<RowReader::NewFeature> fresh;
        for (const nb::handle row : rows)
            if (!reader_.read_sparse(row, is_learning, engine_.table->sparse, batch, fresh)) return nb::none();
        if (!add_names_of_dicts(batch, fresh)) return nb::none();
        return nb::cast(std::move(batch));
    }
    // Lets Python read rows in which one of these features has a value that is no text.
    void declare(nb::object names) { reader_.declared = std::move(names); }
    // Ids of names, -1 for unknown ones; None if there is no room for new ones.
    nb::object sparse_ids(nb::list names, bool is_learning, bool is_centred) {
        Turn lock(engine_.turns, is_learning, without_gil);
        lock.close();
        SparseBatch batch;
        std::vector<RowReader::NewFeature> fresh;
        for (const nb::handle name : names) {
            const int id = reader_.sparse.find(name.ptr());
            if (id < 0 && is_learning) fresh.push_back({nb::borrow(name), batch.ids.size()});
            batch.ids.push_back(id);
        }
        if (!add_names(batch, fresh)) return nb::none();
        for (const auto& one : fresh) engine_.table->sparse.is_centred[batch.ids[one.place]] = is_centred;
        return nb::cast(std::move(batch.ids));
    }
    nb::list sparse_names() const {
        const Reading lock(engine_);
        const nb::list& own = reader_.sparse.names;
        auto names = nb::steal<nb::list>(PyList_GetSlice(own.ptr(), 0, PyList_GET_SIZE(own.ptr())));
        if (!names.is_valid()) nb::raise_python_error();
        while (static_cast<int>(nb::len(names)) < engine_.table->sparse.n()) names.append(nb::none());
        return names;
    }
    nb::list names_of(const std::vector<std::int32_t>& ids) const {
        const Reading lock(engine_);
        nb::list found;
        for (const int id : ids) {
            if (id < 0 || id >= reader_.sparse.n_places()) throw std::out_of_range("there is no such sparse feature");
            found.append(reader_.sparse.names[id]);
        }
        return found;
    }
    // Ids without a name, the next one to get one last.
    std::vector<std::int32_t> free_places() const {
        const Reading lock(engine_);
        return reader_.sparse.free_of(engine_.table->sparse.n());
    }
    int n_sparse() const { return reader_.sparse.n(); }
    void give_up(const std::vector<std::int32_t>& ids)
        requires requires(Engine& e) { e.give_up(ids); }
    {
        Writing lock(engine_);
        lock.close();
        engine_.give_up(ids);
        for (const int id : ids) reader_.sparse.remove(id);
    }
    // Turns a sparse feature into an ordinary one of the same name: both the engine and the vocabulary, or neither.
    int promote(nb::object known, int id, bool has_column)
        requires requires(Engine& e) { e.promote(id, has_column); }
    {
        Vocabulary words = vocabulary_of(known);
        const Writing lock(engine_);
        const int feature = engine_.promote(id, has_column);
        reader_.learn_words(words);
        std::swap(known_, known);
        return feature;
    }

private:
    // Number of the model's own features: the level of the target.
    int n_own() const {
        if constexpr (requires { engine_.target; }) return engine_.target.has_level ? kLevelInputs : 0;
        return 0;
    }
    // The sparse features of the row being read, and the new ones among them. Reused between rows, for the memory; a row
    // that is read meanwhile, by code of a name or value, has its own.
    struct RowParts {
        SparseBatch batch;
        std::vector<RowReader::NewFeature> fresh;
        bool is_taken = false;
    };
    class RowSpace {
    public:
        RowSpace() : RowSpace(kept()) {}
        RowSpace(const RowSpace&) = delete;
        RowSpace& operator=(const RowSpace&) = delete;
        ~RowSpace() {
            parts_.is_taken = false;
            if (!fresh.empty()) fresh.clear();
        }

    private:
        explicit RowSpace(RowParts& kept)
            : parts_(kept.is_taken ? own_.emplace() : kept), batch(parts_.batch), fresh(parts_.fresh) {
            parts_.is_taken = true;
            batch.clear();
        }
        static RowParts& kept() {
            thread_local RowParts parts;
            return parts;
        }
        std::optional<RowParts> own_;
        RowParts& parts_;

    public:
        SparseBatch& batch;
        std::vector<RowReader::NewFeature>& fresh;
    };
    bool read_target(nb::handle y, double& target) {
        if constexpr (requires { engine_.target; }) {
            if (!engine_.has_labels())
                return RowReader::read_target(y, target) && (target >= 0.0 || !engine_.target.has_log_link);
        }
        const std::int32_t code = reader_.code_of(y);
        target = code;
        return code >= 0 && code < engine_.n_classes;
    }
    bool read_to_learn(nb::handle x, double* row, SparseBatch& held) {
        const Table& table = *engine_.table;
        if (!reader_.read(x, table.absent, n_own(), true, row, held)) return false;
        if constexpr (requires { engine_.fill_level(row); }) engine_.fill_level(row);
        for (int j = 0; j < table.n_features(); j++)
            if (table.schema.lacks_column(j, row[j])) return false;
        return true;
    }
    bool read_sparse(nb::handle x, bool is_learning, RowSpace& space) {
        return reader_.read_sparse(x, is_learning, engine_.table->sparse, space.batch, space.fresh);
    }
    // A single row has each name once.
    static int n_different(const SparseBatch& batch, const std::vector<RowReader::NewFeature>& fresh) {
        constexpr std::size_t kOneRow = 2;  // its begin and its end
        if (batch.begin.size() <= kOneRow) return static_cast<int>(fresh.size());
        nb::set names;
        for (const auto& one : fresh) names.add(one.name);
        return static_cast<int>(nb::len(names));
    }
    // Whether new features can get an id.
    bool has_room(const SparseBatch& batch, const std::vector<RowReader::NewFeature>& fresh) {
        if (fresh.empty()) return true;
        if constexpr (requires(Engine& e) { e.make_sparse(1); }) {
            for (const auto& one : fresh)
                if (n_own() > 0 && reader_.names.contains(one.name)) return false;  // the model's own
            return reader_.sparse.n() + n_different(batch, fresh) <= engine_.most_sparse;
        }
        return false;
    }
    // Gives new features an id; returns false if there is no room. The same name may occur in several rows.
    bool add_names(SparseBatch& batch, const std::vector<RowReader::NewFeature>& fresh) {
        if (fresh.empty()) return true;
        if (!has_room(batch, fresh)) return false;
        if constexpr (requires(Engine& e) { e.make_sparse(1); }) {
            SparseNames& known = reader_.sparse;
            engine_.make_sparse(known.n_places_with(n_different(batch, fresh)));
            for (const auto& one : fresh) {
                const int id = known.find(one.name.ptr());
                batch.ids[one.place] = id >= 0 ? id : known.add(one.name.ptr());
            }
        }
        return true;
    }
    // The same for those of dicts; returns false, too, if Python must do that.
    bool add_names_of_dicts(SparseBatch& batch, const std::vector<RowReader::NewFeature>& fresh) {
        return (fresh.empty() || !reader_.sparse.leaves_new()) && add_names(batch, fresh);
    }
    // The leaf, or -1 if Python must read the row.
    int predict_row(nb::handle x, double* predictors) {
        const Table& table = *engine_.table;
        Room room(table.n_features());
        std::int32_t leaf;
        RowSpace space;
        const SparseBatch& batch = space.batch;
        if (!table.absent_is_zero) {
            if (!reader_.read(x, table.absent, n_own(), false, room.data(), space.batch)) return -1;
            engine_.predictors_of(room.data(), batch.held(), 1, &leaf, predictors);
            return leaf;
        }
        if (!read_sparse(x, false, space)) return -1;
        table.fill_raw(nullptr, 0, batch.rows(), room.data());
        engine_.predictors_of(room.data(), batch.rows(), 1, &leaf, predictors);
        return leaf;
    }

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
