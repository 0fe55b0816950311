// What the bindings of both engines share: locks, rows in, predictions out, views.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "archive.hpp"
#include "row_reader.hpp"

namespace driftree {

namespace nb = nanobind;
using namespace nb::literals;

using Matrix = nb::ndarray<nb::numpy, const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<nb::numpy, const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Codes = nb::ndarray<nb::numpy, const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Labels = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

enum RowStatus { kLearned = 0, kDue = 1, kUnknown = 2 };

template <class T>
nb::object new_array(std::vector<T>&& values, std::initializer_list<std::size_t> shape) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), shape.size(), shape.begin(), owner));
}

// A call that has the interpreter's lock (GIL) also takes the engine's. It never waits for it with the GIL in its hands,
// and whoever has released the GIL lets go of the engine before it asks for the GIL again: no deadlock.
template <class Lock>
class Holding {
public:
    template <class Engine>
    explicit Holding(const Engine& engine) : lock_(engine.mutex, std::try_to_lock) {
        if (lock_.owns_lock()) return;
        nb::gil_scoped_release release;
        lock_.lock();
    }

private:
    Lock lock_;
};
using Writing = Holding<std::unique_lock<std::shared_mutex>>;
using Reading = Holding<std::shared_lock<std::shared_mutex>>;

template <class Engine, class Result, class... Arguments>
auto writing(Result (Engine::*method)(Arguments...)) {
    return [method](Engine& engine, Arguments... arguments) -> Result {
        const Writing lock(engine);
        return (engine.*method)(std::move(arguments)...);
    };
}

template <class Engine>
int checked_node(const Engine& engine, int node) {
    if (node < 0 || node >= engine.settings.max_nodes || !engine.nodes.alive[node])
        throw nb::index_error("there is no such node");
    return node;
}

template <class Engine>
void check_rows(const Engine& engine, const Matrix& X) {
    if (static_cast<int>(X.shape(1)) != engine.schema.n_features)
        throw nb::value_error("the rows must have one value per feature");
}

template <class Engine>
auto learn(Engine& engine, Matrix X, Codes y, Doubles weights) {
    if (y.shape(0) != X.shape(0) || weights.shape(0) != X.shape(0))
        throw nb::value_error("rows, labels and weights must have the same length");
    nb::gil_scoped_release release;
    const std::unique_lock lock(engine.mutex);
    check_rows(engine, X);
    for (std::size_t i = 0; i < y.shape(0); i++)
        if (y.data()[i] < 0 || y.data()[i] >= engine.n_classes) throw nb::value_error("a label code is out of range");
    return engine.learn(X.data(), y.data(), weights.data(), static_cast<int>(X.shape(0)));
}

template <class Engine>
int learn_row(Engine& engine, RowReader& reader, nb::handle x, nb::handle label) {
    const Writing lock(engine);
    const std::int32_t code = reader.code_of(label);
    if (code < 0) return kUnknown;
    const double* row = reader.read(x, engine.schema.n_features, true);
    if (!row) return kUnknown;
    for (int j = 0; j < engine.schema.n_features; j++)
        if (engine.schema.lacks_column(j, row[j])) return kUnknown;
    engine.learn(row, &code, nullptr, 1);
    return engine.has_due() ? kDue : kLearned;
}

// Class probabilities of a dict, or nullptr when Python must read it.
template <class Engine>
const std::vector<double>* read_probabilities(const Engine& engine, RowReader& reader, nb::handle x) {
    thread_local std::vector<double> logits, probabilities;
    const Reading lock(engine);
    const double* row = reader.read(x, engine.schema.n_features, false);
    if (!row) return nullptr;
    logits.resize(engine.n_outputs());
    probabilities.resize(engine.n_classes);
    engine.probabilities_of(engine.logits_of(row, logits.data()), logits.data(), probabilities.data());
    return &probabilities;
}

// The most probable class of a dict, or -1 when Python must read it.
template <class Engine>
int predict_row(const Engine& engine, RowReader& reader, nb::handle x) {
    thread_local std::vector<double> logits;
    const Reading lock(engine);
    const double* row = reader.read(x, engine.schema.n_features, false);
    if (!row) return -1;
    logits.resize(engine.n_outputs());
    return engine.class_of(engine.logits_of(row, logits.data()), logits.data());
}

// {label: probability} of a dict, or None when Python must read it.
template <class Engine>
nb::object probabilities_row(const Engine& engine, RowReader& reader, nb::handle x) {
    const std::vector<double>* found = read_probabilities(engine, reader, x);
    if (!found) return nb::none();
    nb::dict out;
    PyObject *label, *code;
    Py_ssize_t position = 0;
    while (PyDict_Next(reader.labels.ptr(), &position, &label, &code))
        if (const auto k = PyLong_AsSsize_t(code); k < static_cast<Py_ssize_t>(found->size()))  // a label may just have come
            out[nb::handle(label)] = (*found)[k];
    return out;
}

// Calls each(row, place) for all rows while nobody learns, without the GIL; [rows, width()] values of type T. Features
// that have come since the rows were read are missing in them.
template <class T, class Engine, class Width, class Each>
nb::object for_rows(const Engine& engine, const Matrix& X, Width&& width, Each&& each) {
    std::vector<T> out;
    std::size_t columns = 0;
    {
        nb::gil_scoped_release release;
        const std::shared_lock lock(engine.mutex);
        const std::size_t n_features = engine.schema.n_features;
        if (X.shape(1) > n_features) throw nb::value_error("the rows have more values than there are features");
        columns = static_cast<std::size_t>(width());
        out.resize(X.shape(0) * columns);
        std::vector<double> wide(n_features, std::numeric_limits<double>::quiet_NaN());
        for (std::size_t i = 0; i < X.shape(0); i++) {
            const double* row = X.data() + i * X.shape(1);
            if (X.shape(1) < n_features) row = (std::copy_n(row, X.shape(1), wide.data()), wide.data());
            each(row, out.data() + i * columns);
        }
    }
    return new_array(std::move(out), {X.shape(0), columns});
}

template <class Engine>
nb::object probabilities(const Engine& engine, Matrix X) {
    std::vector<double> logits;
    return for_rows<double>(engine, X, [&] { logits.resize(engine.n_outputs()); return engine.n_classes; },
                            [&](const double* row, double* out) {
                                const int leaf = engine.logits_of(row, logits.data());
                                engine.probabilities_of(leaf, logits.data(), out);
                            });
}

// Codes of the most probable classes.
template <class Engine>
nb::object most_probable(const Engine& engine, Matrix X) {
    std::vector<double> logits;
    const auto width = [&] { logits.resize(engine.n_outputs()); return 1; };
    const nb::object column = for_rows<std::int64_t>(engine, X, width, [&](const double* row, std::int64_t* out) {
        const int leaf = engine.logits_of(row, logits.data());
        *out = engine.class_of(leaf, logits.data());
    });
    return column.attr("reshape")(-1);
}

template <class Engine>
nb::object logits(const Engine& engine, Matrix X) {
    return for_rows<double>(engine, X, [&] { return engine.n_outputs(); },
                            [&](const double* row, double* out) { engine.logits_of(row, out); });
}

template <class Engine>
nb::object leaves(const Engine& engine, Matrix X) {
    const nb::object column = for_rows<std::int32_t>(engine, X, [] { return 1; },
                                                     [&](const double* row, std::int32_t* out) { *out = engine.leaf_of(row); });
    return column.attr("reshape")(-1);
}

template <class Engine>
nb::object weights(const Engine& engine, int node) {
    const Reading lock(engine);
    if (!engine.has_model(checked_node(engine, node))) throw nb::index_error("the node has no model");
    const std::size_t outputs = engine.n_outputs(), columns = engine.shape.columns, stride = engine.shape.stride;
    std::vector<double> all(outputs * stride), out;
    engine.weights_of(node, all.data());
    for (std::size_t k = 0; k < outputs; k++)
        out.insert(out.end(), all.begin() + k * stride, all.begin() + k * stride + columns);
    return new_array(std::move(out), {outputs, columns});
}

template <class Engine, auto Group, auto Field>
nb::object view(nb::handle_t<Engine> self) {
    auto& values = (nb::inst_ptr<Engine>(self)->*Group).*Field;
    using T = typename std::remove_reference_t<decltype(values)>::value_type;
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(values.data(), {values.size()}, self));
}

// A NumPy view of a vector in one of the engine's groups of arrays.
#define NAMED_VIEW(name, group, field) \
    .def_prop_ro(name, &view<Engine, &Engine::group, &std::decay_t<decltype(std::declval<Engine>().group)>::field>)
#define VIEW(field, group) NAMED_VIEW(#field, group, field)

// What every engine offers to the faces: columns, rows, predictions, and its state.
template <class Engine>
void bind_common(nb::class_<Engine>& bound) {
    bound.def("add_feature", writing(&Engine::add_feature), "categorical"_a, "has_value"_a)
        .def("add_level", writing(&Engine::add_level), "feature"_a, "code"_a)
        .def("add_missing", writing(&Engine::add_missing), "feature"_a)
        .def("make_categorical", writing(&Engine::make_categorical), "feature"_a, "has_value"_a)
        .def("set_classes", writing(&Engine::set_classes), "n_classes"_a)
        .def("learn", &learn<Engine>, "X"_a, "y"_a, "weights"_a)
        .def("learn_row", &learn_row<Engine>, "reader"_a, "x"_a.none(), "label"_a.none())
        .def("predict_row", &predict_row<Engine>, "reader"_a, "x"_a.none())
        .def("probabilities_row", &probabilities_row<Engine>, "reader"_a, "x"_a.none())
        .def("most_probable", &most_probable<Engine>, "X"_a)
        .def("probabilities", &probabilities<Engine>, "X"_a)
        .def("logits", &logits<Engine>, "X"_a)
        .def("leaves", &leaves<Engine>, "X"_a)
        .def("weights", &weights<Engine>, "node"_a)
        .def_prop_ro("due", [](const Engine& e) { const Reading lock(e); return e.due(); })
        .def_prop_ro("has_due", &Engine::has_due)
        .def("arrays", [](Engine& e) { const Writing lock(e); Saver saver; e.visit(saver); return saver.arrays; })
        .def("restore", [](Engine& e, nb::dict arrays) { Loader loader(arrays); const Writing lock(e); e.visit(loader); }, "arrays"_a)
        .def("memory_usage", [](Engine& e) { const Writing lock(e); Sizer sizer; e.visit(sizer); return sizer.bytes + sizeof(Engine); })
        .def_prop_ro("n_classes", [](const Engine& e) { return e.n_classes; })
        .def_prop_ro("n_features", [](const Engine& e) { return e.schema.n_features; })
        .def_prop_ro("n_columns", [](const Engine& e) { return e.shape.columns; })
        .def_prop_ro("n_outputs", [](const Engine& e) { return e.n_outputs(); })
        .def_prop_ro("stride", [](const Engine& e) { return e.shape.stride; })
        .def_prop_ro("n_rows", [](const Engine& e) { return e.n_rows; })
        .def_prop_ro("clock", [](const Engine& e) { return e.clock; })
        // clang-format off
        VIEW(is_categorical, schema) VIEW(value_column, schema) VIEW(missing_column, schema) VIEW(level_column, schema)
        NAMED_VIEW("scale_weight", scaler, weight) NAMED_VIEW("scale_shift", scaler, shift)
        NAMED_VIEW("scale_mean", scaler, mean) NAMED_VIEW("scale_factor", scaler, factor)
        VIEW(parent, nodes) VIEW(left, nodes) VIEW(right, nodes) VIEW(feature, nodes) VIEW(depth, nodes)
        VIEW(equality, nodes) VIEW(missing_left, nodes) VIEW(alive, nodes) VIEW(threshold, nodes) VIEW(rows, nodes);
        // clang-format on
}

}  // namespace driftree
