// The typed face of the kernels: see src/driftree/learn/_kernels.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <tuple>
#include <utility>

#include "archive.hpp"
#include "engine.hpp"
#include "row_reader.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace driftree;

namespace {

using Matrix = nb::ndarray<nb::numpy, const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<nb::numpy, const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Codes = nb::ndarray<nb::numpy, const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

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

template <class Result, class... Arguments>
auto writing(Result (Engine::*method)(Arguments...)) {
    return [method](Engine& engine, Arguments... arguments) -> Result {
        const Writing lock(engine);
        return (engine.*method)(std::move(arguments)...);
    };
}

int checked_node(const Engine& engine, int node) {
    if (node < 0 || node >= engine.settings.max_nodes || !engine.nodes.alive[node])
        throw nb::index_error("there is no such node");
    return node;
}

int checked_model(const Engine& engine, int model) {
    if (model < 0 || model >= static_cast<int>(engine.models.size()) || engine.models[model].empty())
        throw nb::index_error("there is no such model");
    return model;
}

void check_rows(const Engine& engine, const Matrix& X) {
    if (static_cast<int>(X.shape(1)) != engine.schema.n_features)
        throw nb::value_error("the rows must have one value per feature");
}

void learn(Engine& engine, Matrix X, Codes y, Doubles weights) {
    if (y.shape(0) != X.shape(0) || weights.shape(0) != X.shape(0))
        throw nb::value_error("rows, labels and weights must have the same length");
    nb::gil_scoped_release release;
    const std::unique_lock lock(engine.mutex);
    check_rows(engine, X);
    for (std::size_t i = 0; i < y.shape(0); i++)
        if (y.data()[i] < 0 || y.data()[i] >= engine.n_classes) throw nb::value_error("a label code is out of range");
    engine.learn(X.data(), y.data(), weights.data(), static_cast<int>(X.shape(0)));
}

bool has_due(const Engine& engine) {
    return !engine.due().empty() || (engine.challenger >= 0 && engine.challenger_gain() >= engine.challenger_level);
}

int learn_row(Engine& engine, RowReader& reader, nb::handle x, nb::handle label) {
    const Writing lock(engine);
    const std::int32_t code = reader.code_of(label);
    if (code < 0) return kUnknown;
    const double* row = reader.read(x, engine.schema.n_features, true);
    if (!row) return kUnknown;
    for (int j = 0; j < engine.schema.n_features; j++)
        if (engine.schema.lacks_column(j, row[j])) return kUnknown;
    engine.learn(row, &code, nullptr, 1);
    return has_due(engine) ? kDue : kLearned;
}

// Class probabilities of a dict, or nullptr when Python must read it.
const std::vector<double>* read_probabilities(const Engine& engine, RowReader& reader, nb::handle x) {
    thread_local std::vector<double> logits, probabilities;
    const Reading lock(engine);
    const double* row = reader.read(x, engine.schema.n_features, false);
    if (!row) return nullptr;
    logits.resize(engine.shape.outputs);
    probabilities.resize(engine.n_classes);
    engine.probabilities_of(engine.logits_of(row, logits.data()), logits.data(), probabilities.data());
    return &probabilities;
}

// The most probable class of a dict, or -1 when Python must read it.
int predict_row(const Engine& engine, RowReader& reader, nb::handle x) {
    const std::vector<double>* found = read_probabilities(engine, reader, x);
    if (!found) return -1;
    const std::vector<double>& probabilities = *found;
    return static_cast<int>(std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin());
}

// {label: probability} of a dict, or None when Python must read it.
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

// Calls each(row, place) for all rows while nobody learns, without the GIL; [rows, width()] values of type T.
template <class T, class Width, class Each>
nb::object for_rows(const Engine& engine, const Matrix& X, Width&& width, Each&& each) {
    std::vector<T> out;
    std::size_t columns = 0;
    {
        nb::gil_scoped_release release;
        const std::shared_lock lock(engine.mutex);
        check_rows(engine, X);
        columns = static_cast<std::size_t>(width());
        out.resize(X.shape(0) * columns);
        for (std::size_t i = 0; i < X.shape(0); i++) each(X.data() + i * X.shape(1), out.data() + i * columns);
    }
    return new_array(std::move(out), {X.shape(0), columns});
}

nb::object probabilities(const Engine& engine, Matrix X) {
    std::vector<double> logits;
    return for_rows<double>(engine, X, [&] { logits.resize(engine.shape.outputs); return engine.n_classes; },
                            [&](const double* row, double* out) {
                                const int leaf = engine.logits_of(row, logits.data());
                                engine.probabilities_of(leaf, logits.data(), out);
                            });
}

nb::object logits(const Engine& engine, Matrix X) {
    return for_rows<double>(engine, X, [&] { return engine.shape.outputs; },
                            [&](const double* row, double* out) { engine.logits_of(row, out); });
}

nb::object leaves(const Engine& engine, Matrix X) {
    const nb::object column = for_rows<std::int32_t>(engine, X, [] { return 1; },
                                                     [&](const double* row, std::int32_t* out) { *out = engine.leaf_of(row); });
    return column.attr("reshape")(-1);
}

nb::object weights(const Engine& engine, int node) {
    const Reading lock(engine);
    std::vector<double> all(static_cast<std::size_t>(engine.shape.outputs) * engine.shape.stride);
    engine.weights_of(checked_node(engine, node), all.data());
    const std::size_t outputs = engine.shape.outputs, columns = engine.shape.columns;
    std::vector<double> out;
    for (std::size_t k = 0; k < outputs; k++)
        out.insert(out.end(), all.begin() + k * engine.shape.stride, all.begin() + k * engine.shape.stride + columns);
    return new_array(std::move(out), {outputs, columns});
}

nb::list proposals(const Engine& engine, int node) {
    const Reading lock(engine);
    nb::list out;
    for (const Proposal& p : engine.proposals(checked_node(engine, node)))
        out.append(nb::make_tuple(p.score, p.condition.feature, p.condition.threshold, p.condition.equality,
                                  p.condition.missing_left, p.slot, p.n_left));
    return out;
}

void start_trial(Engine& engine, int trial, int feature, double threshold, bool equality, bool missing_left, int slot,
                 double left_share) {
    Proposal proposal;
    proposal.condition = {feature, threshold, equality, missing_left};
    proposal.slot = slot;
    proposal.n_left = left_share;
    proposal.n_right = 1.0 - left_share;
    const Writing lock(engine);
    engine.start_trial(trial, proposal);
}

nb::object first_rows(const Engine& engine, int node) {
    const Reading lock(engine);
    std::vector<double> rows = engine.grids[checked_node(engine, node)].first_rows;
    const std::size_t n = engine.grids[node].n_first_rows, m = engine.schema.n_features;
    return new_array(std::move(rows), {n, m});
}

nb::object curvature_inverse(Engine& engine, int model) {
    const Reading lock(engine);
    if (engine.settings.by_gradient) throw nb::value_error("models of the paper's setting have no such matrix");
    checked_model(engine, model);
    const Shape& shape = engine.shape;
    const std::size_t columns = shape.columns;
    std::vector<double> out;
    const double* matrix = newton_matrix(shape, engine.models[model].data());
    for (std::size_t r = 0; r < columns; r++)
        for (std::size_t c = 0; c < columns; c++) out.push_back(engine.head(model).scale * matrix[r * shape.stride + c]);
    return new_array(std::move(out), {columns, columns});
}

nb::tuple grid_sums(const Engine& engine, int node) {
    const Reading lock(engine);
    const Grid& grid = engine.grids[checked_node(engine, node)];
    const std::size_t slots = grid.n_slots(), outputs = engine.shape.outputs, columns = engine.shape.columns;
    std::vector<double> counts, gradients;
    for (std::size_t s = 0; s < slots; s++) {
        counts.push_back(grid.scale * grid.counts[s]);
        for (std::size_t k = 0; k < outputs; k++)
            for (std::size_t c = 0; c < columns; c++)
                gradients.push_back(grid.scale * grid.gradients[(s * outputs + k) * engine.shape.stride + c]);
    }
    return nb::make_tuple(grid.first_slot, new_array(std::move(counts), {slots}),
                          new_array(std::move(gradients), {slots, outputs, columns}));
}

nb::list stored_candidates(const Engine& engine, int node) {
    const Reading lock(engine);
    nb::list out;
    const Candidates& store = engine.candidates[checked_node(engine, node)];
    for (int k = 0; k < store.n(); k++) {
        double rows = engine.nodes.rows[node] - store.n_before[k];
        if (rows - store.n_left[k] < 1e-9 * rows) rows = store.n_left[k];  // only rounding is left of the right side
        out.append(nb::make_tuple(store.gain[k], store.feature[k], store.value[k], store.n_left[k],
                                  rows - store.n_left[k], engine.nodes.own_loss[node] - store.loss_before[k]));
    }
    return out;
}

template <auto Group, auto Field>
nb::object view(nb::handle_t<Engine> self) {
    auto& values = (nb::inst_ptr<Engine>(self)->*Group).*Field;
    using T = typename std::remove_reference_t<decltype(values)>::value_type;
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(values.data(), {values.size()}, self));
}

#define NODE_VIEW(name) .def_prop_ro(#name, &view<&Engine::nodes, &Nodes::name>)
#define TRIAL_VIEW(name) .def_prop_ro("trial_" #name, &view<&Engine::trials, &Trials::name>)
#define SCHEMA_VIEW(name) .def_prop_ro(#name, &view<&Engine::schema, &Schema::name>)
#define SCALER_VIEW(name) .def_prop_ro("scale_" #name, &view<&Engine::scaler, &Scaler::name>)

}  // namespace

NB_MODULE(_kernels, m) {
    nb::set_leak_warnings(false);
    m.attr("LEARNED") = static_cast<int>(kLearned);
    m.attr("DUE") = static_cast<int>(kDue);
    m.attr("UNKNOWN") = static_cast<int>(kUnknown);
    m.attr("MAX_LEVELS") = kLevels - 1;
    m.def("instruction_set", [] { return std::string(choose_functions().name); });

    nb::class_<RowReader>(m, "RowReader").def(nb::init<nb::dict, nb::list, nb::dict>(), "names"_a, "levels"_a, "labels"_a);

    nb::class_<Engine>(m, "Engine")
        .def(
            "__init__",
            [](Engine* self, int n_classes, bool by_gradient, double evidence_window, double learning_rate, double memory,
               int passes, int first_rows, double gain_step, int candidates_per_feature, double replacement_rate,
               std::uint64_t seed, int max_nodes, int trials) {
                Settings s{by_gradient, evidence_window, learning_rate, memory, passes, first_rows, gain_step,
                           candidates_per_feature, replacement_rate, seed, max_nodes, trials};
                new (self) Engine(s, n_classes);
            },
            "n_classes"_a, nb::kw_only(), "by_gradient"_a, "evidence_window"_a, "learning_rate"_a, "memory"_a, "passes"_a,
            "first_rows"_a, "gain_step"_a, "candidates_per_feature"_a, "replacement_rate"_a, "seed"_a, "max_nodes"_a,
            "trials"_a)
        .def("add_feature", writing(&Engine::add_feature), "categorical"_a, "has_value"_a)
        .def("add_level", writing(&Engine::add_level), "feature"_a, "code"_a)
        .def("add_missing", writing(&Engine::add_missing), "feature"_a)
        .def("make_categorical", writing(&Engine::make_categorical), "feature"_a, "has_value"_a)
        .def("set_classes", writing(&Engine::set_classes), "n_classes"_a)
        .def("learn", &learn, "X"_a, "y"_a, "weights"_a)
        .def("learn_row", &learn_row, "reader"_a, "x"_a.none(), "label"_a.none())
        .def("predict_row", &predict_row, "reader"_a, "x"_a.none())
        .def("probabilities_row", &probabilities_row, "reader"_a, "x"_a.none())
        .def("probabilities", &probabilities, "X"_a)
        .def("logits", &logits, "X"_a)
        .def("leaves", &leaves, "X"_a)
        .def("weights", &weights, "node"_a)
        .def_prop_ro("due", [](const Engine& e) { const Reading lock(e); return e.due(); })
        .def_prop_ro("has_due", &has_due)
        .def("split_by_trial", writing(&Engine::split_by_trial), "node"_a, "trial"_a)
        .def("split_by_candidate", writing(&Engine::split_by_candidate), "node"_a, "candidate"_a)
        .def("prune", writing(&Engine::prune), "node"_a)
        .def("first_rows", &first_rows, "node"_a)
        .def("grid_is_ready", [](const Engine& e, int node) { const Reading lock(e); return e.grids[checked_node(e, node)].is_ready(); }, "node"_a)
        .def("choose_grid", writing(&Engine::choose_grid), "node"_a, "slots"_a, "edges"_a)
        .def("grid_sums", &grid_sums, "node"_a)
        .def("proposals", &proposals, "node"_a)
        .def("start_trial", &start_trial, "trial"_a, "feature"_a, "threshold"_a, "equality"_a, "missing_left"_a, "slot"_a,
             "left_share"_a)
        .def("drop_trial", writing(&Engine::drop_trial), "trial"_a, "barred_until"_a)
        .def("stored_candidates", &stored_candidates, "node"_a)
        .def("adopt_challenger", writing(&Engine::adopt_challenger))
        .def("curvature_inverse", &curvature_inverse, "model"_a)
        .def("floor",
             [](Engine& e, int model) {
                 const Reading lock(e);
                 const Head& head = e.head(checked_model(e, model));
                 return std::make_tuple(head.has_floor != 0.0 ? head.floor[0] : 0.0, head.has_floor != 0.0 ? head.floor[1] : 0.0);
             }, "model"_a)
        .def("arrays", [](Engine& e) { const Reading lock(e); Saver saver; e.visit(saver); return saver.arrays; })
        .def("restore", [](Engine& e, nb::dict arrays) { Loader loader(arrays); const Writing lock(e); e.visit(loader); }, "arrays"_a)
        .def("memory_usage", [](Engine& e) { const Reading lock(e); Sizer sizer; e.visit(sizer); return sizer.bytes + sizeof(Engine); })
        .def_prop_ro("n_classes", [](const Engine& e) { return e.n_classes; })
        .def_prop_ro("n_features", [](const Engine& e) { return e.schema.n_features; })
        .def_prop_ro("n_columns", [](const Engine& e) { return e.shape.columns; })
        .def_prop_ro("n_outputs", [](const Engine& e) { return e.shape.outputs; })
        .def_prop_ro("stride", [](const Engine& e) { return e.shape.stride; })
        .def_prop_ro("n_steps", [](const Engine& e) { return e.n_steps; })
        .def_prop_ro("n_rows", [](const Engine& e) { return e.n_rows; })
        .def_prop_ro("clock", [](const Engine& e) { return e.clock; })
        .def_prop_ro("challenger", [](const Engine& e) { return e.challenger; })
        .def_prop_ro("challenger_rows", [](const Engine& e) { return e.challenger_rows; })
        .def_prop_ro("challenger_loss", [](const Engine& e) { return e.challenger_loss; })
        .def_prop_ro("rival_loss", [](const Engine& e) { return e.rival_loss; })
        .def_prop_ro("challenger_gain", [](const Engine& e) { return e.challenger_gain(); })
        .def_rw("challenger_level", &Engine::challenger_level)
        // clang-format off
        SCHEMA_VIEW(is_categorical) SCHEMA_VIEW(value_column) SCHEMA_VIEW(missing_column) SCHEMA_VIEW(level_column)
        SCALER_VIEW(weight) SCALER_VIEW(shift) SCALER_VIEW(factor)
        NODE_VIEW(parent) NODE_VIEW(left) NODE_VIEW(right) NODE_VIEW(feature) NODE_VIEW(depth) NODE_VIEW(model)
        NODE_VIEW(equality) NODE_VIEW(missing_left) NODE_VIEW(alive) NODE_VIEW(threshold) NODE_VIEW(rows)
        NODE_VIEW(own_loss) NODE_VIEW(subtree_loss) NODE_VIEW(born) NODE_VIEW(refresh_at) NODE_VIEW(evidence)
        NODE_VIEW(split_level) NODE_VIEW(prune_level) NODE_VIEW(replace_level)
        TRIAL_VIEW(feature) TRIAL_VIEW(threshold) TRIAL_VIEW(equality) TRIAL_VIEW(missing_left) TRIAL_VIEW(slot)
        TRIAL_VIEW(node_loss) TRIAL_VIEW(subtree_loss) TRIAL_VIEW(trial_loss) TRIAL_VIEW(n_left) TRIAL_VIEW(n_right)
        TRIAL_VIEW(born) TRIAL_VIEW(evidence) TRIAL_VIEW(left_model) TRIAL_VIEW(right_model);
        // clang-format on
}
