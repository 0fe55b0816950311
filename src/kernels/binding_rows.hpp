// Common parts of the bindings of both engines: locks, rows as input, predictions as output, arrays.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "archive.hpp"
#include "locks.hpp"
#include "row_face.hpp"
#include "threads.hpp"

namespace driftree {

namespace nb = nanobind;
using namespace nb::literals;

using Matrix = nb::ndarray<nb::numpy, const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<nb::numpy, const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Codes = nb::ndarray<nb::numpy, const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Labels = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
nb::object new_array(std::vector<T>&& values, std::initializer_list<std::size_t> shape) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), shape.size(), shape.begin(), owner));
}
template <class T>
nb::object new_array(std::unique_ptr<T[]> values, std::initializer_list<std::size_t> shape) {
    T* const kept = values.get();
    nb::capsule owner(kept, [](void* memory) noexcept { delete[] static_cast<T*>(memory); });
    values.release();
    return nb::cast(nb::ndarray<nb::numpy, T>(kept, shape.size(), shape.begin(), owner));
}

template <class Engine, class Base, class Result, class... Arguments>
auto writing(Result (Base::*method)(Arguments...)) {
    return [method](Engine& engine, Arguments... arguments) -> Result {
        const Writing lock(engine);
        return (engine.*method)(std::move(arguments)...);
    };
}

// A number of the engine, read under the readers' lock.
template <class Engine, class Get>
auto reading(Get get) {
    return [get](const Engine& engine) {
        const Reading turn(engine);
        return get(engine);
    };
}

template <class Engine>
int checked_node(const Engine& engine, int node) {
    if (!engine.nodes.has(node)) throw nb::index_error("there is no such node");
    return node;
}

template <class Engine>
int checked_model(const Engine& engine, int model) {
    if (!engine.models.has(model)) throw nb::index_error("there is no such model");
    return model;
}

// Rows from Python: values of all or only the first features, and sparse features.
struct RowsGiven {
    const Matrix& X;
    const SparseBatch* sparse;
    SparseRows held() const { return sparse ? sparse->held() : SparseRows{}; }
};

template <class Engine>
void check_rows(const Engine& engine, const RowsGiven& given) {
    const std::size_t n = given.X.shape(0), n_features = engine.table->n_features();
    const int n_sparse = engine.table->sparse.n();
    if (given.X.shape(1) > n_features) throw nb::value_error("the rows have more values than there are features");
    if (!given.sparse) return;
    if (given.sparse->begin.size() != n + 1) throw nb::value_error("the rows must have one sparse part each");
    for (const int id : given.sparse->ids)
        if (id < 0 || id >= n_sparse) throw nb::value_error("a sparse feature is not known");
}

// Codes of levels are used as indices.
template <class Engine>
void check_levels(const Engine& engine, const Matrix& X) {
    const std::size_t m = X.shape(1);
    for (std::size_t j = 0; j < m; j++) {
        if (!engine.schema().has_levels(static_cast<int>(j))) continue;
        for (std::size_t i = 0; i < X.shape(0); i++) {
            const double code = X.data()[i * m + j];
            if (!(std::isnan(code) || (code >= 0.0 && code < kLevels)))
                throw nb::value_error("a level's code is out of range");
        }
    }
}

// Targets may be codes of labels, which are used as indices.
template <class Engine>
void check_step(const Engine& engine, const RowsGiven& given, const Doubles& targets, const Doubles& weights,
                const std::optional<Doubles>& wholes = {}) {
    const Matrix& X = given.X;
    if (targets.shape(0) != X.shape(0) || weights.shape(0) != X.shape(0) || (wholes && wholes->shape(0) != X.shape(0)))
        throw nb::value_error("rows, targets and weights must have the same length");
    check_rows(engine, given);
    if (X.shape(1) != static_cast<std::size_t>(engine.table->n_features()) && !engine.table->has_sparse())
        throw nb::value_error("the rows must have one value per feature");
    for (std::size_t i = 0; i < targets.shape(0); i++) {
        const double code = targets.data()[i];
        if (!engine.has_labels() && !(std::abs(code) <= kLargestNumber))
            throw nb::value_error("a target is infinite, missing or too large");
        if (engine.has_labels() && !(code >= 0.0 && code < engine.n_classes && code == std::floor(code)))
            throw nb::value_error("a label code is out of range");
    }
    check_levels(engine, X);
}

template <class Engine>
auto learn(Engine& engine, Matrix X, Doubles targets, Doubles weights, const SparseBatch* sparse,
           const std::optional<Doubles>& wholes) {
    const Learning turn(engine);
    nb::gil_scoped_release release;
    const RowsGiven given = {X, sparse};
    check_step(engine, given, targets, weights, wholes);
    return engine.learn({X.data(), static_cast<int>(X.shape(1)), given.held(), targets.data(), weights.data(),
                         wholes ? wholes->data() : nullptr},
                        static_cast<int>(X.shape(0)));
}

// Calls each(rows, sparse, n, places) for a few rows at a time, on any thread, under the readers' lock and without the GIL;
// returns [rows, width()] values of type T. Features newer than the rows are missing in them.
template <class T, class Engine, class Width, class Each>
nb::object for_rows(const Engine& engine, const RowsGiven& all, Width&& width, Each&& each) {
    const Matrix& X = all.X;
    std::unique_ptr<T[]> out;
    std::size_t columns = 0;
    {
        Predicting turn(engine);
        nb::gil_scoped_release release;
        const std::size_t n_features = engine.table->n_features(), given = X.shape(1), n_rows = X.shape(0);
        check_rows(engine, all);
        check_levels(engine, X);
        columns = static_cast<std::size_t>(width());
        out.reset(new T[n_rows * columns]);  // not initialised: the thread that fills a part also touches its memory first
        const auto predict = [&](std::size_t begin, std::size_t end, int) {
            std::vector<double> wide(given < n_features ? kRowsTogether * n_features : 0);
            for (std::size_t i = begin; i < end; i += kRowsTogether) {
                const std::size_t n = std::min<std::size_t>(kRowsTogether, end - i);
                const double* rows = X.data() + i * given;
                for (std::size_t r = 0; r < n && given < n_features; r++)
                    engine.table->fill_raw(rows + r * given, static_cast<int>(given), all.held().from(i + r),
                                           wide.data() + r * n_features);
                each(given < n_features ? wide.data() : rows, all.held().from(i), static_cast<int>(n),
                     out.get() + i * columns);
            }
        };
        Threads::all().run_ranges(engine.n_threads, n_rows, kRowsTogether, engine.predicting_work(), predict);
        turn.end();  // before waiting for the GIL
    }
    return new_array(std::move(out), {X.shape(0), columns});
}

// The same, calling each(leaf, predictors, place) for every row.
template <class T, class Engine, class Width, class Each>
nb::object for_predictors(const Engine& engine, const RowsGiven& X, Width&& width, Each&& each) {
    const auto each_block = [&](const double* rows, const SparseRows& held, int n, T* out) {
        const int outputs = engine.n_outputs();
        std::int32_t leaves[kRowsTogether];
        Room predictors(static_cast<std::size_t>(n) * outputs);
        engine.predictors_of(rows, held, n, leaves, predictors.data());
        for (int i = 0; i < n; i++) each(leaves[i], predictors.data() + i * outputs, out + static_cast<long>(i) * width());
    };
    return for_rows<T>(engine, X, width, each_block);
}

template <class Engine>
nb::object probabilities(const Engine& engine, Matrix X, const SparseBatch* sparse) {
    return for_predictors<double>(
        engine, {X, sparse}, [&] { return engine.n_classes; },
        [&](int leaf, const double* logits, double* out) { engine.probabilities_of(leaf, logits, out); });
}

// Predicted numbers [rows, outputs].
template <class Engine>
nb::object numbers(const Engine& engine, Matrix X, const SparseBatch* sparse) {
    const auto answer = [&](int leaf, const double* predictors, double* out) { engine.numbers_of(leaf, predictors, out); };
    return for_predictors<double>(engine, {X, sparse}, [&] { return engine.n_outputs(); }, answer);
}

// Lower and upper ends of intervals [rows, 2].
template <class Engine>
nb::object intervals(const Engine& engine, Matrix X, double reach, const SparseBatch* sparse) {
    if (!engine.has_intervals()) throw std::invalid_argument("this loss has no intervals");
    const auto answer = [&](int leaf, const double* predictors, double* out) {
        engine.interval_of(leaf, predictors, reach, out);
    };
    return for_predictors<double>(engine, {X, sparse}, [] { return 2; }, answer);
}

// Codes of the most probable classes.
template <class Engine>
nb::object most_probable(const Engine& engine, Matrix X, const SparseBatch* sparse) {
    const auto answer = [&](int leaf, const double* logits, std::int64_t* out) { *out = engine.class_of(leaf, logits); };
    return for_predictors<std::int64_t>(engine, {X, sparse}, [] { return 1; }, answer).attr("reshape")(-1);
}

template <class Engine>
nb::object logits(const Engine& engine, Matrix X, const SparseBatch* sparse) {
    return for_rows<double>(
        engine, {X, sparse}, [&] { return engine.n_outputs(); },
        [&](const double* rows, const SparseRows& held, int n, double* out) {
            std::int32_t leaves[kRowsTogether];
            engine.predictors_of(rows, held, n, leaves, out);
        });
}

template <class Engine>
nb::object leaves(const Engine& engine, Matrix X, const SparseBatch* sparse) {
    const auto each = [&](const double* rows, const SparseRows&, int n, std::int32_t* out) {
        for (int i = 0; i < n; i++) out[i] = engine.nodes.leaf_of(rows + static_cast<long>(i) * engine.table->n_features());
    };
    return for_rows<std::int32_t>(engine, {X, sparse}, [] { return 1; }, each).attr("reshape")(-1);
}

template <class Engine>
nb::object weights(const Engine& engine, int node) {
    const Reading lock(engine);
    if (!engine.has_model(checked_node(engine, node))) throw nb::index_error("the node has no model");
    const Shape shape = engine.shape_of(node);
    const std::size_t outputs = engine.n_outputs(), columns = shape.columns, stride = shape.stride;
    std::vector<double> all(outputs * stride), out;
    engine.weights_of(node, all.data());
    for (std::size_t k = 0; k < outputs; k++)
        out.insert(out.end(), all.begin() + k * stride, all.begin() + k * stride + columns);
    return new_array(std::move(out), {outputs, columns});
}

template <class Engine>
nb::dict arrays(Engine& engine) {
    engine.heal();
    Saver saver;
    engine.visit(saver);
    return saver.arrays;
}

template <class Engine>
void check(Engine& engine) {
    const Writing lock(engine);
    engine.check();
}

template <class Engine, class Arrays>
void load(Engine& engine, const Arrays& arrays) {
    Loader loader(arrays);
    engine.visit(loader);
    loader.finish();
    engine.derive();
    engine.check();
}

// Adopts a state from outside if it is sound; otherwise the engine is unchanged.
template <class Engine, class Arrays>
void restore(Engine& engine, const Arrays& arrays) {
    const Writing lock(engine);
    Engine fresh(engine.settings, engine.n_classes);
    fresh.table->scaler.most = engine.table->scaler.most;
    load(fresh, arrays);
    Collector fields;
    fresh.visit(fields);
    Exchanger exchanger(std::move(fields));
    engine.visit(exchanger);
    engine.derive();
}

// A copy of one field of all items of a list.
template <class Engine, class Items, class Get>
auto column(Items&& items_of, Get&& get) {
    return [items_of, get](const Engine& engine) {
        const Reading turn(engine);
        const auto& items = items_of(engine);
        std::vector<std::decay_t<decltype(get(items[0]))>> out;
        out.reserve(items.size());
        for (const auto& item : items) out.push_back(get(item));
        const std::size_t n = out.size();
        return new_array(std::move(out), {n});
    };
}
template <class Engine, class Values>
auto values(Values&& values_of) {
    return column<Engine>(values_of, [](const auto& value) { return value; });
}

#define NODE_COLUMN(name, field) \
    .def_prop_ro(                \
        name, column<Engine>([](const Engine& e) -> auto& { return e.nodes.all; }, [](const auto& n) { return n.field; }))
#define RECORD_COLUMN(name, field) \
    .def_prop_ro(name,             \
                 column<Engine>([](const Engine& e) -> auto& { return e.records; }, [](const auto& r) { return r.field; }))
#define TABLE_COLUMN(name, field) .def_prop_ro(name, values<Engine>([](const Engine& e) -> auto& { return e.table->field; }))

// Codes of integer labels, or None if Python must read them.
template <class Engine>
nb::object label_codes(RowFace<Engine>& face, Labels y) {
    std::vector<std::int32_t> codes(y.shape(0));
    if (!face.reader().codes_of(y.data(), codes.size(), codes.data())) return nb::none();
    return new_array(std::move(codes), {y.shape(0)});
}

// Like nanobind's own conversion, which aborts the process when memory runs out.
template <class T>
std::vector<T> items_of(const nb::list& list) {
    std::vector<T> items;
    items.reserve(nb::len(list));
    for (const nb::handle item : list) items.push_back(nb::cast<T>(item));
    return items;
}

template <class Engine>
auto bind_row_face(nb::module_& m, const char* name) {
    using Face = RowFace<Engine>;
    return nb::class_<Face>(m, name)
        .def("learn", &Face::learn, nb::arg().none(), nb::arg().none(), nb::arg() = 1.0)  // Python rejects None
        .def("takes", &Face::takes, nb::arg().none(), nb::arg().none())
        .def("predict", &Face::predict, nb::arg().none())
        .def("probabilities", &Face::probabilities, nb::arg().none())
        .def(
            "read_row",
            [](Face& face, nb::handle x, bool is_learning) -> nb::object {
                const std::size_t n = face.n_features();
                std::vector<double> row(n);
                if (!face.read(x, is_learning, row.data())) return nb::none();
                return new_array(std::move(row), {1, n});
            },
            nb::arg().none(), nb::kw_only(), "learning"_a)
        .def(
            "read_target",
            [](Face& face, nb::handle y) -> nb::object {
                double target;
                return face.read(y, target) ? nb::object(nb::float_(target)) : nb::none();
            },
            nb::arg().none())
        .def(
            "commit",
            [](Face& face, nb::object known, nb::list features, nb::list categorical, nb::list levels, nb::list missing,
               int n_classes) {
                face.commit(std::move(known),
                            {items_of<std::pair<bool, bool>>(features), items_of<std::pair<int, bool>>(categorical),
                             items_of<std::pair<int, int>>(levels), items_of<int>(missing), n_classes});
            },
            "known"_a, nb::kw_only(), "features"_a, "categorical"_a, "levels"_a, "missing"_a, "n_classes"_a)
        .def("restore", &Face::restore, "known"_a, "sparse_names"_a, "free_places"_a)
        .def_prop_ro("known", [](const Face& face) { return face.known(); })
        .def("codes", &label_codes<Engine>, "labels"_a)
        .def("sparse_names", &Face::sparse_names)
        .def("names_of", &Face::names_of, "ids"_a)
        .def("declare", &Face::declare, "names"_a)
        .def_prop_rw(
            "leaves_names", [](Face& face) { return face.reader().sparse.leaves_new(); },
            [](Face& face, bool leaves) { face.reader().sparse.leave_new(leaves); })
        .def("free_places", &Face::free_places)
        .def_prop_ro("n_sparse", &Face::n_sparse)
        .def("read_dicts", &Face::read_dicts, "rows"_a, nb::kw_only(), "learning"_a)
        .def("sparse_ids", &Face::sparse_ids, "names"_a, nb::kw_only(), "learning"_a, "centred"_a);
}

// The methods that all engines offer: schema, rows, predictions, state.
template <class Engine>
void bind_common(nb::class_<Engine>& bound) {
    bound.def("add_feature", writing<Engine>(&Engine::add_feature), "categorical"_a, "has_value"_a)
        .def("add_level", writing<Engine>(&Engine::add_level), "feature"_a, "code"_a)
        .def("add_missing", writing<Engine>(&Engine::add_missing), "feature"_a)
        .def("make_categorical", writing<Engine>(&Engine::make_categorical), "feature"_a, "has_value"_a)
        .def("set_classes", writing<Engine>(&Engine::set_classes), "n_classes"_a)
        .def("reading", &hold<Engine, false>, nb::rv_policy::take_ownership)
        .def("writing", &hold<Engine, true>, nb::rv_policy::take_ownership)
        .def("learn", &learn<Engine>, "X"_a, "targets"_a, "weights"_a, "sparse"_a = nullptr, "wholes"_a = nb::none())
        .def(
            "row_face",
            [](nb::handle_t<Engine> self, nb::object known) {
                return new RowFace<Engine>(nb::borrow(self), std::move(known));
            },
            nb::rv_policy::take_ownership, "known"_a)
        .def("most_probable", &most_probable<Engine>, "X"_a, "sparse"_a = nullptr)
        .def("probabilities", &probabilities<Engine>, "X"_a, "sparse"_a = nullptr)
        .def("logits", &logits<Engine>, "X"_a, "sparse"_a = nullptr)
        .def("leaves", &leaves<Engine>, "X"_a, "sparse"_a = nullptr)
        .def("weights", &weights<Engine>, "node"_a)
        .def(
            "bends",
            [](const Engine& e, int model) {
                const Reading lock(e);
                nb::list out;
                const Bends& own = e.models[checked_model(e, model)].bends;
                for (int i = 0; i < own.n(); i++) out.append(nb::make_tuple(own.feature[i], own.low[i], own.high[i]));
                return out;
            },
            "model"_a)
        .def_prop_ro("due", reading<Engine>([](const Engine& e) { return e.due(); }))
        .def_prop_ro("has_due", reading<Engine>([](const Engine& e) { return e.has_due(); }))
        .def("arrays",
             [](Engine& e) {
                 const Writing lock(e);
                 return arrays(e);
             })
        .def("restore", &restore<Engine, StoredArrays>, "arrays"_a)
        .def("restore", &restore<Engine, nb::dict>, "arrays"_a)
        .def("check", &check<Engine>)
        .def("memory_usage",
             [](Engine& e) {
                 const Reading lock(e);
                 Sizer sizer;
                 e.visit(sizer);
                 return sizer.bytes + sizeof(Engine);
             })
        .def_prop_rw(
            "n_threads", [](const Engine& e) { return e.n_threads.load(); }, [](Engine& e, int n) { e.n_threads = n; })
        .def_prop_ro("n_classes", reading<Engine>([](const Engine& e) { return e.n_classes; }))
        .def_prop_ro("n_features", reading<Engine>([](const Engine& e) { return e.table->n_features(); }))
        .def(
            "has_node",
            [](const Engine& e, int node) {
                const Reading lock(e);
                return e.nodes.has(node);
            },
            "node"_a)
        .def_prop_ro("n_nodes", reading<Engine>([](const Engine& e) { return e.nodes.n_alive(); }))
        .def_prop_ro("n_categorical", reading<Engine>([](const Engine& e) {
                         const auto& flags = e.table->schema.is_categorical;
                         return static_cast<int>(flags.size() - std::count(flags.begin(), flags.end(), 0));
                     }))
        .def_prop_ro("n_columns", reading<Engine>([](const Engine& e) { return e.shape.columns; }))
        .def_prop_ro("n_outputs", reading<Engine>([](const Engine& e) { return e.n_outputs(); }))
        .def_prop_ro("stride", reading<Engine>([](const Engine& e) { return e.shape.stride; }))
        .def_prop_ro("n_rows", reading<Engine>([](const Engine& e) { return e.n_rows; }))
        .def_prop_ro("clock", reading<Engine>([](const Engine& e) { return e.clock; }))
        // clang-format off
        TABLE_COLUMN("is_categorical", schema.is_categorical) TABLE_COLUMN("value_column", schema.value_column)
        TABLE_COLUMN("missing_column", schema.missing_column) TABLE_COLUMN("level_column", schema.level_column)
        TABLE_COLUMN("scale_weight", scaler.weight) TABLE_COLUMN("scale_shift", scaler.shift)
        TABLE_COLUMN("scale_mean", scaler.mean) TABLE_COLUMN("scale_factor", scaler.factor)
        TABLE_COLUMN("scale_is_indicator", scaler.is_indicator) TABLE_COLUMN("scale_limit", scaler.limit)
        TABLE_COLUMN("scale_low", scaler.low) TABLE_COLUMN("scale_high", scaler.high) TABLE_COLUMN("absent", absent)
        NODE_COLUMN("parent", parent) NODE_COLUMN("left", left) NODE_COLUMN("right", right) NODE_COLUMN("depth", depth)
        NODE_COLUMN("model", model) NODE_COLUMN("alive", is_alive) NODE_COLUMN("feature", condition.feature)
        NODE_COLUMN("threshold", condition.threshold) NODE_COLUMN("equality", condition.equality)
        NODE_COLUMN("missing_left", condition.missing_left) NODE_COLUMN("rows", rows);
    // clang-format on
}

}  // namespace driftree
