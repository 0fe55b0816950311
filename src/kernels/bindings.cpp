// The typed face of the kernels: see src/driftree/learn/_kernels.pyi.
#include <algorithm>
#include <tuple>

#include "binding_rows.hpp"
#include "engine.hpp"

using namespace driftree;

namespace driftree {
void bind_fimtdd(nb::module_& m);  // fimtdd_bindings.cpp
}

namespace {

int checked_model(const Engine& engine, int model) {
    if (model < 0 || model >= static_cast<int>(engine.models.size()) || engine.models[model].empty())
        throw nb::index_error("there is no such model");
    return model;
}

const Grid& checked_grid(const Engine& engine, int node) {
    checked_node(engine, node);
    if (engine.settings.by_gradient) throw nb::value_error("nodes of the paper's setting have no grid");
    return engine.grids[node];
}

const Candidates& settled_candidates(Engine& engine, int node) {
    checked_node(engine, node);
    if (!engine.settings.by_gradient) throw nb::value_error("only nodes of the paper's setting store candidates");
    engine.settle(node);
    return engine.candidates[node];
}

nb::list proposals(const Engine& engine, int node) {
    const Reading lock(engine);
    nb::list out;
    checked_grid(engine, node);
    for (const Proposal& p : engine.proposals(node))
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

void choose_grid(Engine& engine, int node, Codes slots, Doubles edges) {
    const Writing lock(engine);
    engine.choose_grid(node, {slots.data(), slots.data() + slots.size()}, {edges.data(), edges.data() + edges.size()});
}

nb::object first_rows(const Engine& engine, int node) {
    const Reading lock(engine);
    const Grid& grid = checked_grid(engine, node);
    std::vector<double> rows = grid.first_rows;
    const std::size_t n = grid.n_first_rows, m = engine.schema.n_features;
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
    const Grid& grid = checked_grid(engine, node);
    const std::size_t slots = grid.n_slots(), outputs = engine.shape.outputs, columns = engine.shape.columns;
    std::vector<double> counts, gradients;
    const std::size_t stride = engine.shape.stride, size = outputs * stride;
    for (std::size_t j = 0; j + 1 < grid.first_slot.size(); j++) {
        const std::vector<double> rest = grid.implied_gradient(choose_functions(), static_cast<int>(size), static_cast<int>(j));
        for (int slot = grid.first_slot[j]; slot < grid.first_slot[j + 1]; slot++) {
            counts.push_back(grid.scale * grid.counts[slot]);
            for (std::size_t k = 0; k < outputs; k++)
                for (std::size_t i = k * stride; i < k * stride + columns; i++)
                    gradients.push_back(grid.scale * (slot == grid.implied[j] ? rest[i] : grid.gradients[slot * size + i]));
        }
    }
    return nb::make_tuple(grid.first_slot, new_array(std::move(counts), {slots}),
                          new_array(std::move(gradients), {slots, outputs, columns}));
}

nb::list stored_candidates(Engine& engine, int node) {
    const Writing lock(engine);
    nb::list out;
    const Candidates& store = settled_candidates(engine, node);
    for (int k = 0; k < store.n(); k++) {
        double rows = engine.nodes.rows[node] - store.n_before[k];
        if (rows - store.n_left[k] < 1e-9 * rows) rows = store.n_left[k];  // only rounding is left of the right side
        out.append(nb::make_tuple(store.gain[k], store.feature[k], store.value[k], store.n_left[k],
                                  rows - store.n_left[k], engine.nodes.own_loss[node] - store.loss_before[k]));
    }
    return out;
}

nb::list leading_candidates(Engine& engine, int node, int most) {
    const Writing lock(engine);
    const Candidates& store = settled_candidates(engine, node);
    std::vector<int> order;
    for (int k = 0; k < store.n(); k++)
        if (store.n_left[k] > 0.0 && engine.nodes.rows[node] - store.n_before[k] - store.n_left[k] > 0.0) order.push_back(k);
    const auto end = order.begin() + std::clamp<std::ptrdiff_t>(most, 0, std::ssize(order));
    std::partial_sort(order.begin(), end, order.end(), [&](int a, int b) { return store.gain[a] > store.gain[b]; });
    nb::list out;
    for (auto k = order.begin(); k != end; ++k) out.append(nb::make_tuple(store.gain[*k], store.feature[*k], store.value[*k]));
    return out;
}

nb::object inputs(const Engine& engine, Matrix X) {
    const Schema& schema = engine.schema;
    return for_rows<double>(engine, X, [&] { return schema.n_columns; }, [&](const double* rows, int n, double* out) {
        Chunk::fill_inputs(choose_functions(), schema, engine.scaler, rows, n, schema.n_columns, out);
    });
}

nb::object class_rows(const Engine& engine, int node) {
    const Reading lock(engine);
    std::vector<double> counts = engine.class_rows[checked_node(engine, node)];
    const std::size_t n = counts.size();
    return new_array(std::move(counts), {n});
}

// Codes of the labels, or None when Python must read them.
bool all_finite(Matrix X) {
    double sum[8] = {};  // of zeros, or of what is not a number
    const std::size_t n = X.size();
    for (std::size_t i = 0; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; lane++) sum[lane] += 0.0 * X.data()[i + lane];
    for (std::size_t i = n - n % 8; i < n; i++) sum[0] += 0.0 * X.data()[i];
    return std::all_of(sum, sum + 8, [](double lane) { return lane == 0.0; });
}

#define TRIAL_VIEW(name) NAMED_VIEW("trial_" #name, trials, name)

}  // namespace

NB_MODULE(_kernels, m) {
    nb::set_leak_warnings(false);
    Turn::survive_forks();
    m.attr("LEARNED") = static_cast<int>(kLearned);
    m.attr("UNKNOWN") = static_cast<int>(kUnknown);
    m.attr("MAX_LEVELS") = kLevels - 1;
    m.def("instruction_set", [] { return std::string(choose_functions().name); });
    m.def("instruction_sets", [] {
        std::vector<std::string> names;
        for (const Functions* functions : all_functions()) names.emplace_back(functions->name);
        return names;
    });

    m.def("all_finite", &all_finite, "X"_a);

    nb::class_<Held>(m, "Turn")
        .def("__enter__", &Held::begin)
        .def("__exit__", [](Held& held, nb::handle, nb::handle, nb::handle) { held.end(); }, "kind"_a.none(), "error"_a.none(),
             "traceback"_a.none());

    nb::class_<Lock>(m, "Lock").def(nb::init<>()).def("hold", &hold<Lock, true>, nb::rv_policy::take_ownership);

    auto engine = nb::class_<Engine>(m, "Engine");
    engine
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
        .def("split_by_trial", writing(&Engine::split_by_trial), "node"_a, "trial"_a)
        .def("split_by_candidate", writing(&Engine::split_by_candidate), "node"_a, "candidate"_a)
        .def("prune", writing(&Engine::prune), "node"_a)
        .def("first_rows", &first_rows, "node"_a)
        .def("grid_is_ready", [](const Engine& e, int node) { const Reading lock(e); return !e.settings.by_gradient && checked_grid(e, node).is_ready(); }, "node"_a)
        .def("choose_grid", &choose_grid, "node"_a, "slots"_a, "edges"_a)
        .def("grid_sums", &grid_sums, "node"_a)
        .def("proposals", &proposals, "node"_a)
        .def("start_trial", &start_trial, "trial"_a, "feature"_a, "threshold"_a, "equality"_a, "missing_left"_a, "slot"_a,
             "left_share"_a)
        .def("drop_trial", writing(&Engine::drop_trial), "trial"_a, "barred_until"_a)
        .def("stored_candidates", &stored_candidates, "node"_a)
        .def("leading_candidates", &leading_candidates, "node"_a, "most"_a)
        .def("adopt_challenger", writing(&Engine::adopt_challenger))
        .def("inputs", &inputs, "X"_a)
        .def("class_rows", &class_rows, "node"_a)
        .def("curvature_inverse", &curvature_inverse, "model"_a)
        .def("floor",
             [](Engine& e, int model) {
                 const Reading lock(e);
                 const Head& head = e.head(checked_model(e, model));
                 return std::make_tuple(head.has_floor != 0.0 ? head.floor[0] : 0.0, head.has_floor != 0.0 ? head.floor[1] : 0.0);
             }, "model"_a)
        .def_prop_ro("n_steps", reading<Engine>([](const Engine& e) { return e.n_steps; }))
        .def_prop_ro("challenger", reading<Engine>([](const Engine& e) { return e.challenger; }))
        .def_prop_ro("challenger_rows", reading<Engine>([](const Engine& e) { return e.challenger_rows; }))
        .def_prop_ro("challenger_loss", reading<Engine>([](const Engine& e) { return e.challenger_loss; }))
        .def_prop_ro("rival_loss", reading<Engine>([](const Engine& e) { return e.rival_loss; }))
        .def_prop_ro("challenger_gain", reading<Engine>([](const Engine& e) { return e.challenger_gain(); }))
        .def_prop_ro("is_calm", reading<Engine>([](const Engine& e) { return e.is_calm(); }))
        .def_rw("restless_until", &Engine::restless_until)
        .def_rw("restless_rows", &Engine::restless_rows)
        .def_rw("alarm_level", &Engine::alarm_level)
        .def_rw("challenger_level", &Engine::challenger_level)
        .def_rw("wake_at", &Engine::wake_at)
        .def_prop_ro("n_changes", reading<Engine>([](const Engine& e) { return e.n_changes; }))
        .def_prop_ro("n_growths", reading<Engine>([](const Engine& e) { return e.n_growths; }))
        .def_rw("n_told", &Engine::n_told)
        // clang-format off
        VIEW(model, nodes) VIEW(own_loss, nodes) VIEW(subtree_loss, nodes) VIEW(born, nodes) VIEW(refresh_at, nodes)
        NAMED_VIEW("node_clock", nodes, clock) NAMED_VIEW("scale_is_indicator", scaler, is_indicator)
        VIEW(evidence, nodes) VIEW(split_level, nodes) VIEW(prune_level, nodes) VIEW(replace_level, nodes)
        VIEW(rest_level, nodes) VIEW(recent, nodes)
        TRIAL_VIEW(feature) TRIAL_VIEW(threshold) TRIAL_VIEW(equality) TRIAL_VIEW(missing_left) TRIAL_VIEW(slot)
        TRIAL_VIEW(node_loss) TRIAL_VIEW(subtree_loss) TRIAL_VIEW(trial_loss) TRIAL_VIEW(n_left) TRIAL_VIEW(n_right)
        TRIAL_VIEW(born) TRIAL_VIEW(evidence) TRIAL_VIEW(left_model) TRIAL_VIEW(right_model);
        // clang-format on
    bind_common(engine);
    bind_row_face<Engine>(m, "RowFace");
    bind_fimtdd(m);
}
