// Python bindings of the kernels: see src/driftree/learn/_kernels.pyi.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <tuple>

#include "binding_rows.hpp"
#include "effects.hpp"
#include "model_tree.hpp"
#include "python_loss.hpp"

using namespace driftree;

namespace driftree {
void bind_fimtdd(nb::module_& m);  // fimtdd_bindings.cpp
void bind_forest(nb::module_& m);  // forest_bindings.cpp
}  // namespace driftree

namespace {

nb::tuple tuple_of(const Condition& c) {
    return nb::make_tuple(c.feature, c.threshold, c.equality != 0, c.missing_left != 0);
}

// ---------------------------------------------------------------- common to both settings
template <class Engine>
nb::object inputs(const Engine& engine, Matrix X, const SparseBatch* sparse) {
    return for_rows<double>(
        engine, {X, sparse}, [&] { return engine.table->n_columns(); },
        [&](const double* rows, const SparseRows&, int n, double* out) {
            engine.table->fill_inputs(engine.f, rows, n, engine.table->n_columns(), out);
        });
}

// Inputs of rows for the model of one node, with its bends.
template <class Engine>
nb::object inputs_at(const Engine& engine, int node, Matrix X, const SparseBatch* sparse) {
    checked_node(engine, node);
    return for_rows<double>(
        engine, {X, sparse}, [&] { return engine.shape_of(checked_node(engine, node)).columns; },
        [&](const double* rows, const SparseRows&, int n, double* out) {
            const int m = engine.table->n_features(), plain = engine.table->n_columns(),
                      columns = engine.shape_of(node).columns;
            Room inputs(static_cast<std::size_t>(n) * plain);
            engine.table->fill_inputs(engine.f, rows, n, plain, inputs.data());
            for (int i = 0; i < n; i++)
                engine.table->fill_bends(engine.f, rows + static_cast<long>(i) * m,
                                         inputs.data() + static_cast<long>(i) * plain, engine.bends_of(node), columns,
                                         out + static_cast<long>(i) * columns);
        });
}

template <class Engine>
nb::object effects(const Engine& engine, int node) {
    const Reading lock(engine);
    std::vector<double> found = effects_of(engine, checked_node(engine, node));
    const std::size_t outputs = engine.n_outputs(), columns = engine.table->n_columns();
    return new_array(std::move(found), {outputs, columns});
}

// The same as single precision, multiplied by a factor and within the range of floats: for samples of the history.
template <class Engine>
nb::object sampled_effects(const Engine& engine, int node, double factor) {
    const Reading lock(engine);
    constexpr double most = std::numeric_limits<float>::max();
    std::vector<float> out;
    for (const double effect : effects_of(engine, checked_node(engine, node)))
        out.push_back(static_cast<float>(std::clamp(effect * factor, -most, most)));
    const std::size_t outputs = engine.n_outputs(), columns = engine.table->n_columns();
    return new_array(std::move(out), {outputs, columns});
}

template <class Engine>
nb::object class_rows(const Engine& engine, int node) {
    const Reading lock(engine);
    std::vector<double> counts = engine.records[checked_node(engine, node)].class_rows;
    const std::size_t n = counts.size();
    return new_array(std::move(counts), {n});
}

template <class Engine>
std::tuple<double, double> noise_floor(const Engine& engine, int model) {
    const Reading lock(engine);
    const LossState& loss = engine.models[checked_model(engine, model)].loss;
    return {loss.has_floor != 0.0 ? loss.floor[0] : 0.0, loss.has_floor != 0.0 ? loss.floor[1] : 0.0};
}

// In the squared unit of the target; its meaning depends on the loss.
template <class Engine>
double spread(const Engine& engine, int model) {
    const Reading lock(engine);
    const double scale = engine.target.told_scale();
    return engine.models[checked_model(engine, model)].loss.spread * scale * scale;
}

LossKind loss_named(const std::string& name) {
    if (name == "labels") return kLogit;
    for (int kind = 0; kind < kLosses; kind++)
        if (name == rules(static_cast<LossKind>(kind)).name && !rules(static_cast<LossKind>(kind)).has_labels)
            return static_cast<LossKind>(kind);
    throw std::invalid_argument("there is no loss '" + name + "' of numbers");
}

// Creates the custom loss for each engine that uses it.
auto maker_of(const nb::object& loss) -> decltype(MeasuredTree::Settings::asked) {
    return [loss](const NumberTarget& target) { return std::make_shared<PythonLoss>(loss, target); };
}

// A copy of a node's, or a trial's, state, from which Python decides.
struct NodeState {
    int parent, depth, model;
    bool is_leaf;
    Condition condition;
    double rows, own_loss, subtree_loss, evidence, clock, refresh_at, split_level, prune_level, replace_level, rest_level;
    bool trials_rest;
    Due due;
};
struct BorderState {
    Shift best;
    double level;
};
struct TrialState {
    int place;
    Trial trial;
};

template <class Engine>
NodeState node_state(const Engine& engine, int node) {
    const Reading lock(engine);
    const Node& links = engine.nodes[checked_node(engine, node)];
    const NodeRecord& record = engine.records[node];
    return {links.parent,       links.depth,          links.model,       links.is_leaf(),
            links.condition,    links.rows,           record.own_loss,   record.subtree_loss,
            record.evidence,    record.clock,         record.refresh_at, record.split_level,
            record.prune_level, record.replace_level, record.rest_level, engine.evidence.trials_rest(node),
            engine.due_at(node)};
}

void bind_states(nb::module_& m) {
    nb::class_<NodeState>(m, "NodeState")
        .def_ro("parent", &NodeState::parent)
        .def_ro("depth", &NodeState::depth)
        .def_ro("model", &NodeState::model)
        .def_ro("is_leaf", &NodeState::is_leaf)
        .def_prop_ro("condition", [](const NodeState& s) { return tuple_of(s.condition); })
        .def_ro("rows", &NodeState::rows)
        .def_ro("own_loss", &NodeState::own_loss)
        .def_ro("subtree_loss", &NodeState::subtree_loss)
        .def_ro("evidence", &NodeState::evidence)
        .def_ro("clock", &NodeState::clock)
        .def_ro("refresh_at", &NodeState::refresh_at)
        .def_ro("split_level", &NodeState::split_level)
        .def_ro("prune_level", &NodeState::prune_level)
        .def_ro("replace_level", &NodeState::replace_level)
        .def_ro("rest_level", &NodeState::rest_level)
        .def_ro("trials_rest", &NodeState::trials_rest)
        .def_prop_ro("change_is_due", [](const NodeState& s) { return s.due.change; })
        .def_prop_ro("model_is_due", [](const NodeState& s) { return s.due.model; })
        .def_prop_ro("search_is_due", [](const NodeState& s) { return s.due.search; });
    nb::class_<Renewed>(m, "Renewed")
        .def_ro("model", &Renewed::model)
        .def_ro("lead", &Renewed::lead)
        .def_ro("born", &Renewed::born)
        .def_ro("harm", &Renewed::harm);
    nb::class_<BorderState>(m, "BorderState")
        .def_prop_ro("threshold", [](const BorderState& s) { return s.best.threshold; })
        .def_prop_ro("gain", [](const BorderState& s) { return s.best.gain; })
        .def_prop_ro("loss", [](const BorderState& s) { return s.best.loss; })
        .def_prop_ro("rows", [](const BorderState& s) { return s.best.rows; })
        .def_ro("level", &BorderState::level);
    nb::class_<BendTrial>(m, "BendTrial")
        .def_ro("model", &BendTrial::model)
        .def_ro("node_loss", &BendTrial::node_loss)
        .def_ro("trial_loss", &BendTrial::loss)
        .def_ro("evidence", &BendTrial::evidence)
        .def_ro("born", &BendTrial::born)
        .def_ro("level", &BendTrial::level)
        .def_ro("price", &BendTrial::price)
        .def_prop_ro("is_due", &BendTrial::is_due)
        .def_ro("next_at", &BendTrial::next_at)
        .def_ro("n_failed", &BendTrial::n_failed);
    nb::class_<TrialState>(m, "TrialState")
        .def_ro("place", &TrialState::place)
        .def_prop_ro("condition", [](const TrialState& s) { return tuple_of(s.trial.condition); })
        .def_prop_ro("node_loss", [](const TrialState& s) { return s.trial.node_loss; })
        .def_prop_ro("subtree_loss", [](const TrialState& s) { return s.trial.subtree_loss; })
        .def_prop_ro("trial_loss", [](const TrialState& s) { return s.trial.trial_loss; })
        .def_prop_ro("evidence", [](const TrialState& s) { return s.trial.evidence; })
        .def_prop_ro("n_left", [](const TrialState& s) { return s.trial.n_left; })
        .def_prop_ro("n_right", [](const TrialState& s) { return s.trial.n_right; })
        .def_prop_ro("born", [](const TrialState& s) { return s.trial.born; })
        .def_prop_ro("left_model", [](const TrialState& s) { return s.trial.left_model; })
        .def_prop_ro("right_model", [](const TrialState& s) { return s.trial.right_model; });
}

template <class Engine>
typename Engine::Sums accumulate(const Engine& engine, Matrix X, Doubles targets, Doubles weights,
                                 const SparseBatch* sparse) {
    const Reading turn(engine);
    nb::gil_scoped_release release;
    const RowsGiven given = {X, sparse};
    check_step(engine, given, targets, weights);
    return engine.accumulate({X.data(), static_cast<int>(X.shape(1)), given.held(), targets.data(), weights.data()},
                             static_cast<int>(X.shape(0)));
}

template <class Engine>
void bind_sums(nb::module_& m, const char* name) {
    using Sums = typename Engine::Sums;
    nb::class_<Sums>(m, name)
        .def(nb::init<>())
        .def("__add__",
             [](const Sums& a, const Sums& b) {
                 Sums sum = a;
                 return sum += b;
             })
        .def("arrays",
             [](Sums& sums) {
                 Saver saver;
                 sums.visit(saver);
                 return saver.arrays;
             })
        .def(
            "restore",
            [](Sums& sums, nb::dict arrays) {
                Loader loader(arrays);
                Sums loaded;
                loaded.visit(loader);
                loader.finish();
                std::swap(sums, loaded);
            },
            "arrays"_a)
        .def_ro("n_rows", &Sums::n_rows)
        .def_ro("weight", &Sums::weight);
}

// ---------------------------------------------------------------- drift detection
template <class Engine>
void set_watch(Engine& engine, int keep_one_in, int check_rows, int checks_later, int most_earlier, double least_excess,
               double most_excess, std::int64_t most_values, double level) {
    const Writing lock(engine);
    engine.watch.rates = {keep_one_in,  check_rows,  checks_later, most_earlier,
                          least_excess, most_excess, most_values,  level};
}

// The kept rows, their targets, their losses when they came, and the rows of the stream.
template <class Engine>
nb::tuple watched_rows(const Engine& engine) {
    const Reading lock(engine);
    const Watch& watch = engine.watch;
    const std::size_t n = watch.n_kept(), m = engine.table->n_features();
    std::vector<double> rows = watch.rows;
    return nb::make_tuple(new_array(std::move(rows), {n, m}), copied_array(watch.targets.data(), n),
                          copied_array(watch.losses.data(), n), copied_array(watch.came.data(), n));
}

template <class Engine>
nb::object losses(const Engine& engine, Matrix X, Doubles targets) {
    const Reading lock(engine);
    const std::size_t n = X.shape(0);
    if (X.shape(1) != static_cast<std::size_t>(engine.table->n_features()) || targets.size() != n)
        throw nb::value_error("every row must have all features and a target");
    for (std::size_t i = 0; i < n && engine.has_labels(); i++)
        if (!(targets.data()[i] >= 0.0 && targets.data()[i] < engine.n_classes))
            throw nb::value_error("there is no such label");
    std::vector<double> out(n);
    engine.losses_of(X.data(), targets.data(), static_cast<int>(n), out.data());
    return new_array(std::move(out), {n});
}

template <class Engine>
void bind_model_tree(nb::class_<Engine>& bound) {
    bound.def("split", writing<Engine>(&Engine::split), "node"_a, "place"_a)
        .def("prune", writing<Engine>(&Engine::prune), "node"_a)
        .def("set_levels", writing<Engine>(&Engine::set_levels), "node"_a, nb::kw_only(), "split"_a, "prune"_a, "replace"_a,
             "rest"_a, "n_splits"_a)
        .def("node", &node_state<Engine>, "node"_a)
        .def_prop_ro("task_work", reading<Engine>([](const Engine& e) { return e.task_work(); }))
        .def_prop_ro("link_is_due", reading<Engine>([](const Engine& e) { return e.is_link_due(); }))
        .def("accumulate", &accumulate<Engine>, "X"_a, "targets"_a, "weights"_a, "sparse"_a = nullptr)
        .def(
            "absorb",
            [](Engine& e, const typename Engine::Sums& sums) {
                const Writing lock(e);
                e.absorb(sums);
            },
            "sums"_a)
        .def("inputs", &inputs<Engine>, "X"_a, "sparse"_a = nullptr)
        .def("inputs_at", &inputs_at<Engine>, "node"_a, "X"_a, "sparse"_a = nullptr)
        .def("effects", &effects<Engine>, "node"_a)
        .def("sampled_effects", &sampled_effects<Engine>, "node"_a, "factor"_a)
        .def("class_rows", &class_rows<Engine>, "node"_a)
        .def("numbers", &numbers<Engine>, "X"_a, "sparse"_a = nullptr)
        .def_prop_ro("has_intervals", [](const Engine& e) { return e.has_intervals(); })
        .def("intervals", &intervals<Engine>, "X"_a, "reach"_a, "sparse"_a = nullptr)
        .def_prop_ro("reaches", reading<Engine>([](const Engine& e) {
                         const auto& reach = e.has_labels() ? e.label_reach : e.target.reach;
                         return copied_array(reach.data(), reach.size());
                     }))
        .def_prop_ro("offsets", values<Engine>([](const Engine& e) -> auto& { return e.target.offset; }))
        .def("show_level", writing<Engine>(&Engine::show_level))
        .def_prop_ro("level", reading<Engine>([](const Engine& e) {
                         double level[kLevelInputs];
                         e.fill_level(level);
                         return copied_array(level, e.target.has_level ? kLevelInputs : 0);
                     }))
        .def("spread", &spread<Engine>, "model"_a)
        .def_prop_ro("has_labels", reading<Engine>([](const Engine& e) { return e.has_labels(); }))
        .def_prop_ro("input_limit",
                     reading<Engine>([](const Engine& e) { return e.table->by_range() ? 1e6 : e.table->scaler.most; }))
        .def_prop_ro("has_log_link", reading<Engine>([](const Engine& e) { return e.target.has_log_link; }))
        .def_prop_ro("variance_power", reading<Engine>([](const Engine& e) { return e.target.power; }))
        .def_prop_ro("target_shift", reading<Engine>([](const Engine& e) { return e.target.shift; }))
        .def_prop_ro("target_scale", reading<Engine>([](const Engine& e) { return e.target.told_scale(); }))
        .def_prop_rw("has_level", reading<Engine>([](const Engine& e) { return e.target.has_level != 0; }),
                     [](Engine& e, bool value) {
                         const Writing lock(e);
                         e.target.has_level = value;
                     })
        .def("floor", &noise_floor<Engine>, "model"_a)
        .def_prop_ro("n_steps", reading<Engine>([](const Engine& e) { return e.n_steps; }))
        .def_prop_ro("n_changes", reading<Engine>([](const Engine& e) { return e.n_changes; }))
        .def_prop_ro("n_growths", reading<Engine>([](const Engine& e) { return e.n_growths; }))
        .def_rw("n_told", &Engine::n_told)
        .def("watch", &set_watch<Engine>, nb::kw_only(), "keep_one_in"_a, "check_rows"_a, "checks_later"_a, "most_earlier"_a,
             "least_excess"_a, "most_excess"_a, "most_values"_a, "level"_a)
        .def("watched_rows", &watched_rows<Engine>)
        .def("losses", &losses<Engine>, "X"_a, "targets"_a)
        .def("restart_watch",
             [](Engine& e) {
                 const Writing lock(e);
                 e.watch.restart(e.n_rows);
             })
        .def_prop_ro("has_alarm", reading<Engine>([](const Engine& e) { return e.watch.has_alarm(); }))
        .def_prop_ro("watched_since", reading<Engine>([](const Engine& e) { return e.watch.since; }))
        .def_rw("wake_at", &Engine::wake_at)
        // clang-format off
        RECORD_COLUMN("own_loss", own_loss) RECORD_COLUMN("subtree_loss", subtree_loss) RECORD_COLUMN("born", born)
        RECORD_COLUMN("node_clock", clock) RECORD_COLUMN("evidence", evidence) RECORD_COLUMN("recent", recent);
    // clang-format on
    bind_common(bound);
}

// ---------------------------------------------------------------- the measured setting
const Grid& checked_grid(const MeasuredTree& engine, int node) { return engine.evidence.grids[checked_node(engine, node)]; }

template <class Find>
auto found_without_gil(Find&& find) {
    nb::gil_scoped_release release;
    return find();
}

nb::list proposals(const MeasuredTree& engine, int node) {
    const Reading lock(engine);
    nb::list out;
    checked_grid(engine, node);
    const auto found = found_without_gil([&] { return engine.evidence.proposals(node); });
    for (const Proposal& p : found)
        out.append(nb::make_tuple(p.score, p.condition.feature, p.condition.threshold, p.condition.equality != 0,
                                  p.condition.missing_left != 0, p.slot, p.n_left));
    return out;
}

// The trials of a node.
nb::list trials(const MeasuredTree& engine, int node) {
    const Reading lock(engine);
    nb::list out;
    const int n = engine.evidence.rates.per_node, first = checked_node(engine, node) * n;
    for (int t = first; t < first + n; t++) {
        const Trial& trial = engine.evidence.trials[t];
        if (trial.is_free()) continue;
        out.append(TrialState{t, trial});
    }
    return out;
}

void start_trial(MeasuredTree& engine, int trial, int feature, double threshold, bool equality, bool missing_left, int slot,
                 double left_share) {
    Proposal proposal;
    proposal.condition = {feature, threshold, equality, missing_left};
    proposal.slot = slot;
    proposal.n_left = left_share;
    proposal.n_right = 1.0 - left_share;
    const Writing lock(engine);
    engine.evidence.start_trial(trial, proposal);
}

void choose_grid(MeasuredTree& engine, int node, Codes slots, Doubles edges) {
    const Writing lock(engine);
    checked_grid(engine, node);
    engine.evidence.choose_grid(node, {slots.data(), slots.data() + slots.size()},
                                {edges.data(), edges.data() + edges.size()});
}

nb::object first_rows(const MeasuredTree& engine, int node) {
    const Reading lock(engine);
    const Grid& grid = checked_grid(engine, node);
    std::vector<double> rows = grid.first_rows;
    const std::size_t n = grid.n_first_rows, m = engine.table->n_features();
    return new_array(std::move(rows), {n, m});
}

// Second-order estimate of the nats that a model would lose without each of its bends.
nb::list bend_worth(const MeasuredTree& engine, int model) {
    const Reading lock(engine);
    nb::list out;
    const Model& own = engine.models[checked_model(engine, model)];
    for (int i = 0; i < own.bends.n(); i++) out.append(Blend::worth(own.shape(engine.shape), own, engine.shape.columns + i));
    return out;
}

nb::tuple bend_scores(const MeasuredTree& engine, int node) {
    const Reading lock(engine);
    checked_grid(engine, node);
    const auto found = found_without_gil([&] { return engine.evidence.bend_proposals(node); });
    std::vector<double> scores;
    std::vector<std::int32_t> features;
    for (const BendProposal& p : found) scores.push_back(p.score), features.push_back(p.feature);
    return nb::make_tuple(new_array(std::move(scores), {found.size()}), new_array(std::move(features), {found.size()}));
}

double memory(const MeasuredTree& engine, int model) {
    const Reading lock(engine);
    return engine.models[checked_model(engine, model)].blend.memory;
}

Renewed renewed(const MeasuredTree& engine, int node) {
    const Reading lock(engine);
    return engine.models[engine.nodes[checked_node(engine, node)].model].renewed;
}

BendTrial bend_trial(const MeasuredTree& engine, int node) {
    const Reading lock(engine);
    return engine.evidence.bend_trials[checked_node(engine, node)];
}

void start_bend_trial(MeasuredTree& engine, int node, Codes features, Doubles low, Doubles high, double memory, double level,
                      double price) {
    const Writing lock(engine);
    if (features.size() != low.size() || features.size() != high.size())
        throw nb::value_error("every bend must have two ends");
    const Schema& schema = engine.schema();
    Bends bends;
    for (std::size_t i = 0; i < features.size(); i++) {
        const int j = features.data()[i];
        if (j < 0 || j >= schema.n_features || schema.value_column[j] < 0 || !(low.data()[i] < high.data()[i]) ||
            !std::isfinite(high.data()[i] - low.data()[i]))
            throw nb::value_error("a bend needs a feature that is a number, and two finite ends in order");
        bends.feature.push_back(j);
        bends.low.push_back(low.data()[i]);
        bends.high.push_back(high.data()[i]);
    }
    engine.evidence.start_bend_trial(checked_node(engine, node), bends, memory, level, price);
}

nb::object curvature_inverse(const MeasuredTree& engine, int model) {
    const Reading lock(engine);
    const Model& own = engine.models[checked_model(engine, model)];
    const Shape shape = own.shape(engine.shape);
    const BlendParts parts(shape, own.memory());
    const std::size_t columns = shape.columns;
    std::vector<double> out;
    for (std::size_t r = 0; r < columns; r++)
        for (std::size_t c = 0; c < columns; c++)
            out.push_back(parts.state->scale * parts.cell(shape, static_cast<int>(r), static_cast<int>(c)));
    return new_array(std::move(out), {columns, columns});
}

double sureness_variance(const MeasuredTree& engine, int model) {
    const Reading lock(engine);
    const bool learns = engine.models.rates.sureness_window > 0.0;
    return learns ? 1.0 / (engine.models[checked_model(engine, model)].blend.sureness_rows + kFirstSurenessRows) : 0.0;
}

nb::tuple grid_sums(const MeasuredTree& engine, int node) {
    const Reading lock(engine);
    const Grid& grid = checked_grid(engine, node);
    const std::size_t slots = grid.n_slots(), outputs = engine.shape.outputs, columns = engine.shape.columns;
    std::vector<double> counts, gradients;
    const std::size_t stride = engine.grid_shape().stride, size = outputs * stride;
    for (std::size_t j = 0; j + 1 < grid.first_slot.size(); j++) {
        const std::vector<double> rest = grid.implied_gradient(engine.f, static_cast<int>(size), static_cast<int>(j));
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

// ---- sparse features
// The sparse weights of a node's model: ids, and [ids, outputs].
nb::tuple sparse_weights(const MeasuredTree& engine, int node) {
    const Reading lock(engine);
    const Model& model = engine.models[engine.nodes[checked_node(engine, node)].model];
    const SparseWeights& own = model.sparse;
    const int outputs = engine.shape.outputs, width = SparseCell::width(outputs);
    const double share = 1.0 / (1.0 + std::exp(-model.blend.preference));
    std::vector<double> out;
    for (int i = 0; i < own.n(); i++)
        for (int k = 0; k < outputs; k++)
            out.push_back(model.blend.sureness * ((1.0 - share) * own.true_number(i, 3 * k + SparseCell::kAdagrad, width) +
                                                  share * own.true_number(i, 3 * k + SparseCell::kNewton, width)));
    std::vector<std::int32_t> ids = own.ids;
    const std::size_t n = ids.size();
    return nb::make_tuple(new_array(std::move(ids), {n}), new_array(std::move(out), {n, static_cast<std::size_t>(outputs)}));
}

// The features without a column in some rows: begin, ids, inputs.
nb::tuple sparse_inputs(const MeasuredTree& engine, const SparseBatch& batch) {
    const Reading lock(engine);
    const SparseTable& table = engine.table->sparse;
    SparseBatch out;
    for (std::size_t i = 0; i + 1 < batch.begin.size(); i++) {
        for (std::int64_t c = batch.begin[i]; c < batch.begin[i + 1]; c++) {
            const int id = batch.ids[c];
            if (id < 0 || id >= table.n() || !engine.table->is_sparse(id)) continue;
            out.ids.push_back(id);
            out.values.push_back(table.input(id, batch.values[c]));
        }
        out.end_row();
    }
    const std::size_t n = out.ids.size(), n_rows = out.begin.size();
    return nb::make_tuple(new_array(std::move(out.begin), {n_rows}), new_array(std::move(out.ids), {n}),
                          new_array(std::move(out.values), {n}));
}

#define SPARSE_COLUMN(name, field) \
    .def_prop_ro(name, values<MeasuredTree>([](const MeasuredTree& e) -> auto& { return e.table->sparse.field; }))

void bind_sparse(nb::class_<MeasuredTree>& engine) {
    using Engine = MeasuredTree;
    engine.def("sparse_weights", &sparse_weights, "node"_a)
        .def("sparse_inputs", &sparse_inputs, "sparse"_a)
        .def("make_sparse", writing<Engine>(&Engine::make_sparse), "n"_a)
        .def(
            "fade_sparse",
            [](Engine& e, double keep) {
                const Writing lock(e);
                e.table->sparse.fade(keep);
            },
            "keep"_a)
        .def(
            "fade_energy",
            [](Engine& e, double keep) {
                const Writing lock(e);
                e.table->sparse.fade_energy(keep);
            },
            "keep"_a)
        .def_prop_rw("absent_is_zero", reading<Engine>([](const Engine& e) { return e.table->absent_is_zero; }),
                     [](Engine& e, bool value) {
                         const Writing lock(e);
                         e.table->absent_is_zero = value;
                     })
        .def_rw("most_sparse", &Engine::most_sparse)
        .def_rw("look_at", &Engine::look_at)
        .def_prop_ro("energy_of_all", reading<Engine>([](const Engine& e) { return e.table->sparse.energy_of_all; }))
        .def_prop_ro("n_given_up", reading<Engine>([](const Engine& e) { return e.table->sparse.n_given_up; }))
        // clang-format off
        SPARSE_COLUMN("sparse_weight", weight) SPARSE_COLUMN("sparse_mean", mean) SPARSE_COLUMN("sparse_squares", squares)
        SPARSE_COLUMN("sparse_energy", energy) SPARSE_COLUMN("sparse_feature", feature)
        SPARSE_COLUMN("sparse_is_centred", is_centred);
    // clang-format on
}

void bind_measured(nb::module_& m) {
    using Engine = MeasuredTree;
    auto engine = nb::class_<Engine>(m, "MeasuredEngine");
    const auto challenger = [](auto get) {
        return reading<Engine>([get](const Engine& e) { return get(e.evidence.challenger); });
    };
    engine
        .def(
            "__init__",
            [](Engine* self, int n_classes, int max_nodes, std::uint64_t seed, double evidence_window, int trials,
               int first_rows, int rest_share, double rest_least, int recent_speed, double alarm_factor,
               double restless_rows, double split_price, double model_window, double rows_per_input, int passes,
               double clear_lead, double most_sure, double variance, double sureness_window, double sparse_step,
               bool mean_curvature, double floor_first, double floor_first_rows, double floor_rows, double floor_least,
               double floor_most, const std::string& loss, double step, double alarm_nats, double renewed_doubt,
               double renewed_rest, double renewed_harm, double spread_rows, double spread_first_rows, double spread_least,
               double input_limit, nb::object quantiles, nb::object asked, double trial_rest_rows, double model_rest_rows,
               double grid_rest_rows, bool trials_rest, bool nodes_always_rest, int costly_columns, int single_columns,
               int block_rows, double wait_bytes, double border_deviations, double side_variance) {
                const FloorRates floor = {floor_first, floor_first_rows, floor_rows, floor_least, floor_most};
                const SpreadRates spread = {spread_rows, spread_first_rows, spread_least};
                new (self) Engine(
                    {{model_window,
                      rows_per_input,
                      passes,
                      clear_lead,
                      most_sure,
                      variance,
                      sureness_window,
                      step,
                      sparse_step,
                      mean_curvature,
                      {floor, spread},
                      costly_columns,
                      single_columns},
                     {evidence_window, trials,        first_rows,        rest_share,   rest_least,      recent_speed,
                      alarm_factor,    restless_rows, split_price,       alarm_nats,   trial_rest_rows, model_rest_rows,
                      grid_rest_rows,  renewed_doubt, renewed_rest,      renewed_harm, trials_rest,     nodes_always_rest,
                      block_rows,      wait_bytes,    border_deviations, side_variance},
                     seed,
                     max_nodes,
                     loss_named(loss),
                     items_of<double>(nb::list(quantiles)),
                     maker_of(asked)},
                    n_classes);
                self->table->scaler.most = input_limit;
            },
            "n_classes"_a, nb::kw_only(), "max_nodes"_a, "seed"_a, "evidence_window"_a, "trials"_a, "first_rows"_a,
            "rest_share"_a, "rest_least"_a, "recent_speed"_a, "alarm_factor"_a, "restless_rows"_a, "split_price"_a,
            "model_window"_a, "rows_per_input"_a, "passes"_a, "clear_lead"_a, "most_sure"_a, "variance"_a,
            "sureness_window"_a, "sparse_step"_a, "mean_curvature"_a, "floor_first"_a, "floor_first_rows"_a, "floor_rows"_a,
            "floor_least"_a, "floor_most"_a, "loss"_a = "labels", "step"_a = 1.0, "alarm_nats"_a = 0.0,
            "renewed_doubt"_a = 0.0, "renewed_rest"_a = std::numeric_limits<double>::infinity(),
            "renewed_harm"_a = std::numeric_limits<double>::infinity(), "spread_rows"_a = 500.0, "spread_first_rows"_a = 5.0,
            "spread_least"_a = 1e-8, "input_limit"_a = 1.5, "quantiles"_a = nb::make_tuple(), "asked"_a = nb::none(),
            "trial_rest_rows"_a = std::numeric_limits<double>::infinity(),
            "model_rest_rows"_a = std::numeric_limits<double>::infinity(),
            "grid_rest_rows"_a = std::numeric_limits<double>::infinity(), "trials_rest"_a = false,
            "nodes_always_rest"_a = false, "costly_columns"_a = std::numeric_limits<int>::max(),
            "single_columns"_a = std::numeric_limits<int>::max(), "block_rows"_a = 1, "wait_bytes"_a = 0.0,
            "border_deviations"_a = 0.0, "side_variance"_a = 0.0)
        .def("trials", &trials, "node"_a)
        .def(
            "border",
            [](const Engine& e, int node) {
                const Reading lock(e);
                if (e.nodes[checked_node(e, node)].is_leaf()) throw std::invalid_argument("a leaf has no threshold");
                return BorderState{e.best_shift(node), e.borders[node].level};
            },
            "node"_a)
        .def(
            "set_border",
            [](Engine& e, int node, double level, double low, double high) {
                const Writing lock(e);
                e.set_border(checked_node(e, node), level, low, high);
            },
            "node"_a, nb::kw_only(), "level"_a, "low"_a, "high"_a)
        .def(
            "shift",
            [](Engine& e, int node) {
                const Writing lock(e);
                e.shift(checked_node(e, node));
            },
            "node"_a)
        .def(
            "refresh_at",
            [](Engine& e, int node, double rows) {
                const Writing lock(e);
                e.records[checked_node(e, node)].refresh_at = rows;
            },
            "node"_a, "rows"_a)
        .def("first_rows", &first_rows, "node"_a)
        .def(
            "grid_is_ready",
            [](const Engine& e, int node) {
                const Reading lock(e);
                return checked_grid(e, node).is_ready();
            },
            "node"_a)
        .def("choose_grid", &choose_grid, "node"_a, "slots"_a, "edges"_a)
        .def("grid_sums", &grid_sums, "node"_a)
        .def("proposals", &proposals, "node"_a)
        .def("start_trial", &start_trial, "trial"_a, "feature"_a, "threshold"_a, "equality"_a, "missing_left"_a, "slot"_a,
             "left_share"_a)
        .def(
            "drop_trial",
            [](Engine& e, int trial, double barred_until) {
                const Writing lock(e);
                e.evidence.drop_trial(trial, barred_until);
            },
            "trial"_a, "barred_until"_a)
        .def("adopt_challenger",
             [](Engine& e) {
                 const Writing lock(e);
                 e.adopt_challenger();
             })
        .def("drop_challenger",
             [](Engine& e) {
                 const Writing lock(e);
                 e.evidence.drop_challenger();
             })
        .def("curvature_inverse", &curvature_inverse, "model"_a)
        .def("sureness_variance", &sureness_variance, "model"_a)
        .def("bend_worth", &bend_worth, "model"_a)
        .def("bend_scores", &bend_scores, "node"_a)
        .def("renewed", &renewed, "node"_a)
        .def(
            "renew",
            [](Engine& e, int node) {
                const Writing lock(e);
                e.evidence.renew(checked_node(e, node));
            },
            "node"_a)
        .def(
            "restart",
            [](Engine& e, int node) {
                const Writing lock(e);
                e.evidence.restart(checked_node(e, node));
            },
            "node"_a)
        .def("bend_trial", &bend_trial, "node"_a)
        .def("start_bend_trial", &start_bend_trial, "node"_a, "features"_a, "low"_a, "high"_a, "memory"_a, "level"_a,
             "price"_a)
        .def("memory", &memory, "model"_a)
        .def(
            "drop_bend_trial",
            [](Engine& e, int node) {
                const Writing lock(e);
                e.evidence.drop_bend_trial(checked_node(e, node));
            },
            "node"_a)
        .def(
            "next_bend",
            [](Engine& e, int node, double rows, int n_failed) {
                const Writing lock(e);
                e.evidence.set_next_bend(checked_node(e, node), rows, n_failed);
            },
            "node"_a, "rows"_a, "n_failed"_a)
        .def(
            "span",
            [](const Engine& e, int node, int feature) {
                const Reading lock(e);
                const Grid& grid = checked_grid(e, node);
                if (feature < 0 || feature + 1 >= static_cast<int>(grid.first_slot.size())) return 0.0;
                const auto begin = grid.edges.begin() + grid.first_slot[feature];
                const auto end = std::find_if(begin, grid.edges.begin() + grid.first_slot[feature + 1],
                                              [](double edge) { return std::isnan(edge); });
                return begin == end ? 0.0 : *(end - 1) - *begin;
            },
            "node"_a, "feature"_a)
        .def(
            "edges",
            [](const Engine& e, int node) {
                const Reading lock(e);
                std::vector<std::vector<double>> out;
                const Grid& grid = checked_grid(e, node);
                for (std::size_t j = 0; j + 1 < grid.first_slot.size(); j++) {
                    const auto begin = grid.edges.begin() + grid.first_slot[j];
                    const auto end = grid.edges.begin() + grid.first_slot[j + 1];
                    out.emplace_back(begin, std::find_if(begin, end, [](double edge) { return std::isnan(edge); }));
                }
                return out;
            },
            "node"_a)
        .def(
            "bend_level",
            [](Engine& e, int node, double level, double price) {
                const Writing lock(e);
                BendTrial& trial = e.evidence.bend_trials[checked_node(e, node)];
                trial.level = level, trial.price = price;
            },
            "node"_a, "level"_a, "price"_a)
        .def(
            "bend",
            [](Engine& e, int node) {
                const Writing lock(e);
                if (e.evidence.bend_trials[checked_node(e, node)].is_free())
                    throw nb::index_error("the node has no trial of bends");
                e.bend(node);
            },
            "node"_a)
        .def_prop_ro("challenger", challenger([](const auto& c) { return c.model; }))
        .def_prop_ro("challenger_rows", challenger([](const auto& c) { return c.rows; }))
        .def_prop_ro("challenger_loss", challenger([](const auto& c) { return c.loss; }))
        .def_prop_ro("rival_loss", challenger([](const auto& c) { return c.rival_loss; }))
        .def_prop_ro("challenger_gain", challenger([](const auto& c) { return c.gain(); }))
        .def_prop_rw("challenger_level", challenger([](const auto& c) { return c.level; }),
                     [](Engine& e, double level) {
                         const Writing lock(e);
                         e.evidence.challenger.level = level;
                     })
        .def_prop_ro("recent_loss", reading<Engine>([](const Engine& e) {
                         return e.evidence.recent_rows > 0.0 ? e.evidence.recent_loss / e.evidence.recent_rows
                                                             : std::numeric_limits<double>::quiet_NaN();
                     }))
        .def_prop_ro("n_waiting", [](const Engine& e) { return e.n_waiting(); })
        .def_prop_ro("has_sparse", reading<Engine>([](const Engine& e) { return e.table->has_sparse(); }))
        .def_prop_ro("is_costly", reading<Engine>([](const Engine& e) { return e.evidence.is_costly(); }))
        .def_prop_ro("is_calm", reading<Engine>([](const Engine& e) { return e.evidence.is_calm(); }))
        .def_prop_ro("restless_until", reading<Engine>([](const Engine& e) { return e.evidence.restless_until; }));
    bind_sparse(engine);
    bind_model_tree(engine);
    bind_sums<Engine>(m, "MeasuredSums");
    bind_row_face<Engine>(m, "MeasuredRowFace")
        .def(
            "give_up", [](RowFace<Engine>& face, Codes ids) { face.give_up({ids.data(), ids.data() + ids.size()}); },
            "ids"_a)
        .def("promote", &RowFace<Engine>::promote, "known"_a, "id"_a, "has_column"_a);
}

// ---------------------------------------------------------------- the paper's setting
const Candidates& settled(PaperTree& engine, int node) {
    checked_node(engine, node);
    engine.evidence.settle(node);
    return engine.evidence.stores[node];
}

nb::list stored_candidates(PaperTree& engine, int node) {
    const Writing lock(engine);
    nb::list out;
    const Candidates& store = settled(engine, node);
    for (int k = 0; k < store.n(); k++) {
        double rows = engine.nodes[node].rows - store.n_before[k];
        if (rows - store.n_left[k] < 1e-9 * rows) rows = store.n_left[k];  // the rest is rounding
        out.append(nb::make_tuple(store.gain[k], store.feature[k], store.value[k], store.n_left[k], rows - store.n_left[k],
                                  engine.records[node].own_loss - store.loss_before[k]));
    }
    return out;
}

void bind_paper(nb::module_& m) {
    using Engine = PaperTree;
    auto engine = nb::class_<Engine>(m, "PaperEngine");
    engine
        .def(
            "__init__",
            [](Engine* self, int n_classes, int max_nodes, std::uint64_t seed, double learning_rate, double gain_step,
               int candidates, double replacement_rate, const std::string& loss) {
                new (self) Engine(
                    {{learning_rate}, {gain_step, candidates, replacement_rate}, seed, max_nodes, loss_named(loss), {}, {}},
                    n_classes);
            },
            "n_classes"_a, nb::kw_only(), "max_nodes"_a, "seed"_a, "learning_rate"_a, "gain_step"_a, "candidates"_a,
            "replacement_rate"_a, "loss"_a = "labels")
        .def("stored_candidates", &stored_candidates, "node"_a);
    bind_model_tree(engine);
    bind_sums<Engine>(m, "PaperSums");
    bind_row_face<Engine>(m, "PaperRowFace");
}

// Sparse features of rows, an argument of `learn` and of predictions next to the matrix.
void bind_sparse_batch(nb::module_& m) {
    nb::class_<SparseBatch>(m, "SparseRows")
        .def(
            "__init__",
            [](SparseBatch* self, Labels begin, Codes ids, Doubles values) {
                const std::size_t n = ids.size();
                const std::int64_t* first = begin.data();
                if (values.size() != n || begin.size() == 0 || first[0] != 0 ||
                    first[begin.size() - 1] != static_cast<std::int64_t>(n) || !std::is_sorted(first, first + begin.size()))
                    throw nb::value_error("rows must begin where those before them end");
                if (!std::all_of(values.data(), values.data() + n, [](double x) { return std::isfinite(x); }))
                    throw nb::value_error("values must be finite");
                new (self) SparseBatch{
                    {first, first + begin.size()}, {ids.data(), ids.data() + n}, {values.data(), values.data() + n}};
            },
            "begin"_a, "ids"_a, "values"_a)
        .def("__len__", [](const SparseBatch& rows) { return rows.begin.size() - 1; })
        .def(
            "__getitem__",
            [](const SparseBatch& rows, nb::slice slice) {
                const auto [start, stop, step, length] = slice.compute(rows.begin.size() - 1);
                SparseBatch out;
                for (std::size_t n = 0, i = start; n < length; n++, i += step) {
                    out.ids.insert(out.ids.end(), rows.ids.begin() + rows.begin[i], rows.ids.begin() + rows.begin[i + 1]);
                    out.values.insert(out.values.end(), rows.values.begin() + rows.begin[i],
                                      rows.values.begin() + rows.begin[i + 1]);
                    out.end_row();
                }
                return out;
            },
            "rows"_a)
        .def(
            "take",
            [](const SparseBatch& rows, Labels places) {
                SparseBatch out;
                for (std::size_t n = 0; n < places.size(); n++) {
                    const std::int64_t i = places.data()[n];
                    if (i < 0 || i >= std::ssize(rows.begin) - 1) throw nb::index_error("there is no such row");
                    out.ids.insert(out.ids.end(), rows.ids.begin() + rows.begin[i], rows.ids.begin() + rows.begin[i + 1]);
                    out.values.insert(out.values.end(), rows.values.begin() + rows.begin[i],
                                      rows.values.begin() + rows.begin[i + 1]);
                    out.end_row();
                }
                return out;
            },
            "rows"_a)
        .def_prop_ro("begin", [](const SparseBatch& rows) { return copied_array(rows.begin.data(), rows.begin.size()); })
        .def_prop_ro("ids", [](const SparseBatch& rows) { return copied_array(rows.ids.data(), rows.ids.size()); })
        .def_prop_ro("values", [](const SparseBatch& rows) { return copied_array(rows.values.data(), rows.values.size()); });
}

// Whether all numbers are finite.
bool all_finite(Matrix X, int n_threads) {
    std::atomic<bool> are_finite = true;
    Threads::all().run_ranges(n_threads, X.size(), 8, 0.5, [&](std::size_t begin, std::size_t end, int) {
        double sum[8] = {};  // 0, or NaN if any number is not finite
        const double* x = X.data() + begin;
        const std::size_t n = end - begin;
        for (std::size_t i = 0; i + 8 <= n; i += 8)
            for (int lane = 0; lane < 8; lane++) sum[lane] += 0.0 * x[i + lane];
        for (std::size_t i = n - n % 8; i < n; i++) sum[0] += 0.0 * x[i];
        if (!std::all_of(sum, sum + 8, [](double lane) { return lane == 0.0; })) are_finite = false;
    });
    return are_finite;
}

}  // namespace

NB_MODULE(_kernels, m) {
    nb::set_leak_warnings(false);
    Turn::survive_forks();
    Threads::survive_forks();
    m.attr("MAX_LEVELS") = kLevels - 1;
    m.attr("LANES") = kLanes;
    m.attr("SKETCH") = kSketch;
    m.attr("BORDER_SUMS") = BorderSums::size();
    m.attr("MOST_LEAD") = kMostLead;
    m.attr("KEPT_PREFERENCE") = kKeptPreference;
    m.attr("KEPT_WRONG") = kKeptWrong;
    m.attr("MOST_TRACE") = kMostTrace;
    m.attr("LARGEST_NUMBER") = kLargestNumber;
    m.attr("REACH_LEVELS") = std::vector<double>(kReachLevels, kReachLevels + kReaches);
    m.def("instruction_set", [] { return std::string(choose_functions().name); });
    m.def("instruction_sets", [] {
        std::vector<std::string> names;
        for (const Functions* functions : all_functions()) names.emplace_back(functions->name);
        return names;
    });
    m.def("all_finite", &all_finite, "X"_a, "n_threads"_a = 1);
    nb::class_<Held>(m, "Turn")
        .def("__enter__", &Held::begin)
        .def(
            "__exit__", [](Held& held, nb::handle, nb::handle, nb::handle) { held.end(); }, "kind"_a.none(),
            "error"_a.none(), "traceback"_a.none());
    nb::class_<Lock>(m, "Lock")
        .def(nb::init<>())
        .def("hold", &hold<Lock, true>, nb::rv_policy::take_ownership)
        .def("share", &hold<Lock, false>, nb::rv_policy::take_ownership);
    bind_sparse_batch(m);
    bind_stored_arrays(m);
    bind_states(m);
    bind_measured(m);
    bind_paper(m);
    bind_fimtdd(m);
    bind_forest(m);
}
