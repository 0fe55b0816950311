// The engine's structure: making, copying and freeing models and nodes, and letting columns and classes grow.
//
// Memory may run out at any allocation. So each function that Python calls first makes all that it needs, and only then
// changes anything: after an exception the engine is what it was.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "engine.hpp"
#include "layout.hpp"

namespace driftree {

Engine::Engine(const Settings& given, int classes)
    : settings(given), shape{1, 8, classes > 2 ? classes : 1}, nodes(given.max_nodes),
      trials(given.max_nodes * given.trials), n_classes(classes), f_(&choose_functions()),
      learning_{given.learning_rate, given.memory, given.passes, false} {
    make_places(1);
    make_model_places(2);
    new_node(-1, place_model(new_model()), new_sums());
    if (!settings.by_gradient && n_classes <= 2) {
        challenger = place_model(new_model());
        head(challenger).has_floor = 1.0;
    }
}

// ---------------------------------------------------------------- models
std::size_t Engine::model_size(const Shape& of) const {
    const std::size_t weights = static_cast<std::size_t>(of.outputs) * of.stride;
    return settings.by_gradient ? kHead + weights : kHead + 3 * weights + static_cast<std::size_t>(of.stride) * of.stride;
}

Lines<double> Engine::new_model() const {
    Lines<double> memory(model_size());
    restart_model(memory);
    return memory;
}

void Engine::restart_model(Lines<double>& memory) const {
    std::fill(memory.begin(), memory.end(), 0.0);
    Head& head = *reinterpret_cast<Head*>(memory.data());
    head.scale = 1.0;
    head.floor[0] = head.floor[1] = kInitialFloor;
    if (settings.by_gradient) return;
    double* matrix = newton_matrix(shape, memory.data());
    for (int c = 0; c < shape.columns; c++) matrix[static_cast<long>(c) * shape.stride + c] = kInitialCurvatureInverse;
    head.trace = kInitialCurvatureInverse * shape.columns;
}

void Engine::make_model_places(int n) {
    make_room(models, n, static_cast<std::size_t>(settings.max_nodes) * (1 + 2 * settings.trials) + 1);
}

// Into the first free place, of which there is one: make_model_places().
int Engine::place_model(Lines<double>&& memory) {
    auto place = std::find_if(models.begin(), models.end(), [](const auto& model) { return model.empty(); });
    if (place == models.end()) place = models.insert(models.end(), Lines<double>());
    place->swap(memory);
    return static_cast<int>(place - models.begin());
}

void Engine::free_model(int& model) {
    if (model >= 0) Lines<double>().swap(models[model]);
    model = -1;
}

// ---------------------------------------------------------------- schema
// Makes all that so many more features and columns, and so many classes in all, will need. Moving the models comes last:
// it works or changes nothing.
void Engine::prepare(int n_features, int n_columns, int classes) {
    schema.reserve(n_features);
    scaler.reserve(n_features);
    for (auto& counts : class_rows)
        if (!counts.empty()) make_capacity(counts, classes);
    int stride = shape.stride;
    while (shape.columns + n_columns > stride) stride = padded(stride + stride / 4 + 1);
    const int outputs = classes > 2 ? std::max(classes, shape.outputs) : shape.outputs;
    if (stride != shape.stride || outputs != shape.outputs) restride(stride, outputs);
}

int Engine::add_feature(bool categorical, bool has_value) {
    prepare(1, has_value, n_classes);
    n_growths++;
    const int feature = schema.add_feature(categorical, has_value);
    scaler.add_feature(settings.by_gradient, has_value);
    if (has_value) add_column();
    restart_grids();
    return feature;
}

void Engine::restart_grids() {
    for (Grid& grid : grids) grid.restart();
    std::fill(trials.slot.begin(), trials.slot.end(), -1);  // slots of grids that are gone
}

// A numeric feature that was always missing turns out to hold levels; its unused column becomes the first level's.
void Engine::make_categorical(int feature, bool has_value) {
    n_growths++;
    schema.make_categorical(feature, has_value);
    scaler.has_value[feature] = has_value;
    restart_grids();
}

int Engine::add_level(int feature, int code) {
    prepare(0, 1, n_classes);
    schema.level_column[feature * kLevels + code] = schema.n_columns++;
    add_column();
    return schema.n_columns - 1;
}

int Engine::add_missing(int feature) {
    prepare(0, 1, n_classes);
    schema.missing_column[feature] = schema.n_columns++;
    add_column();
    return schema.n_columns - 1;
}

void Engine::add_column() {  // there is room for it: prepare()
    n_growths++;
    const int column = shape.columns++;
    if (settings.by_gradient) return;
    for (auto& memory : models) {
        if (memory.empty()) continue;
        Head& head = *reinterpret_cast<Head*>(memory.data());
        newton_matrix(shape, memory.data())[static_cast<long>(column) * shape.stride + column] =
            kInitialCurvatureInverse / head.scale;
        head.trace += kInitialCurvatureInverse;
    }
}

void Engine::set_classes(int classes) {
    if (classes <= n_classes) return;
    const int known = n_classes;
    prepare(0, 0, classes);
    n_growths++;
    n_classes = classes;
    for (auto& counts : class_rows)
        if (!counts.empty()) counts.resize(classes, 0.0);
    if (classes <= 2) return;
    free_model(challenger);
    for (auto& memory : models)
        if (!memory.empty()) reinterpret_cast<Head*>(memory.data())->has_floor = 0.0;
    for (auto& memory : models) {  // a class that was not seen in all these rows is rare
        for (int k = known; k < classes && !memory.empty(); k++) {
            adagrad_weights(shape, memory.data())[k * shape.stride] = -std::log1p(clock);
            if (!settings.by_gradient) newton_weights(shape, memory.data())[k * shape.stride] = -std::log1p(clock);
        }
    }
}

// A model in a wider stride or with more outputs.
Lines<double> Engine::moved_model(const Lines<double>& memory, const Shape& to) const {
    Lines<double> fresh(model_size(to), 0.0);
    double* old = const_cast<double*>(memory.data());
    std::copy_n(old, kHead, fresh.data());
    move_weights(shape, adagrad_weights(shape, old), to, adagrad_weights(to, fresh.data()), false);
    if (settings.by_gradient) return fresh;
    move_weights(shape, adagrad_squares(shape, old), to, adagrad_squares(to, fresh.data()), true);
    move_weights(shape, newton_weights(shape, old), to, newton_weights(to, fresh.data()), false);
    for (int c = 0; c < shape.columns; c++)
        std::copy_n(newton_matrix(shape, old) + static_cast<long>(c) * shape.stride, shape.columns,
                    newton_matrix(to, fresh.data()) + static_cast<long>(c) * to.stride);
    return fresh;
}

// Moves all models to a wider stride or more outputs; sums of gradients of fewer outputs start afresh.
void Engine::restride(int stride, int outputs) {
    settle();
    const Shape to = {shape.columns, stride, outputs};
    const bool keeps_sums = outputs == shape.outputs;
    auto moved_models = models;
    auto moved_candidates = candidates;
    auto moved_gradient = node_gradient;
    auto moved_grids = grids;
    for (auto& memory : moved_models)
        if (!memory.empty()) memory = moved_model(memory, to);
    for (Candidates& store : moved_candidates) {
        if (!keeps_sums) store.clear();
        store.gradient_left = widened(store.gradient_left, shape.stride, stride);
        store.gradient_before = widened(store.gradient_before, shape.stride, stride);
    }
    for (auto& gradient : moved_gradient) {
        if (gradient.empty()) continue;
        if (keeps_sums) {
            gradient = widened(gradient, shape.stride, stride);
        } else {
            gradient.assign(static_cast<std::size_t>(outputs) * stride, 0.0);
        }
    }
    for (Grid& grid : moved_grids) {
        if (!grid.is_ready()) continue;
        if (keeps_sums) {
            grid.gradients = widened(grid.gradients, shape.stride, stride);
            grid.total = widened(grid.total, shape.stride, stride);
        } else {
            grid.clear_gradients(to);
        }
    }
    shape = to;
    models.swap(moved_models);
    candidates.swap(moved_candidates);
    node_gradient.swap(moved_gradient);
    grids.swap(moved_grids);
}

// ---------------------------------------------------------------- structure
Condition Engine::condition(int node) const {
    return {nodes.feature[node], nodes.threshold[node], static_cast<bool>(nodes.equality[node]),
            static_cast<bool>(nodes.missing_left[node])};
}

// Nodes that may come some day have a place in the arrays that Python sees, but no sums yet.
void Engine::make_places(int n_nodes) {
    const auto fit = [&](auto& places) {
        if (std::ssize(places) < n_nodes) make_room(places, n_nodes - places.size(), settings.max_nodes), places.resize(n_nodes);
    };
    fit(class_rows);
    if (settings.by_gradient) {
        fit(candidates), fit(node_gradient);
    } else {
        fit(grids);
    }
}

// In files every node that may be has a place, in either setting.
void Engine::make_all_places() {
    const auto fit = [&](auto& places) { places.resize(settings.max_nodes); };
    fit(class_rows), fit(candidates), fit(node_gradient), fit(grids);
}

void Engine::drop_places() {
    const auto last = std::find(nodes.alive.rbegin(), nodes.alive.rend(), 1);
    const auto n_nodes = static_cast<std::size_t>(nodes.alive.rend() - last);
    const auto fit = [](auto& places, std::size_t n) { places.resize(n), places.shrink_to_fit(); };
    fit(class_rows, n_nodes);
    fit(candidates, settings.by_gradient ? n_nodes : 0), fit(node_gradient, settings.by_gradient ? n_nodes : 0);
    fit(grids, settings.by_gradient ? 0 : n_nodes);
}

Engine::NodeMemory Engine::new_sums() const {
    const std::size_t size = settings.by_gradient ? static_cast<std::size_t>(shape.outputs) * shape.stride : 0;
    return {std::vector<double>(n_classes, 0.0), Lines<double>(size, 0.0)};
}

// Into the first free place, which make_places() has made.
int Engine::new_node(int parent, int model, NodeMemory&& memory) {
    const auto place = std::find(nodes.alive.begin(), nodes.alive.end(), 0);
    const int node = static_cast<int>(place - nodes.alive.begin());
    nodes.alive[node] = 1;
    nodes.parent[node] = parent;
    nodes.left[node] = nodes.right[node] = nodes.feature[node] = -1;
    nodes.depth[node] = parent < 0 ? 0 : nodes.depth[parent] + 1;
    nodes.model[node] = model;
    nodes.rows[node] = nodes.own_loss[node] = nodes.subtree_loss[node] = nodes.refresh_at[node] = 0.0;
    nodes.evidence[node] = nodes.recent[node] = 0.0;
    nodes.rest_level[node] = std::numeric_limits<double>::infinity();
    nodes.clock[node] = nodes.born[node] = clock;
    class_rows[node].swap(memory.class_rows);
    if (settings.by_gradient) node_gradient[node].swap(memory.gradient);
    return node;
}

void Engine::release(int node) {
    for (int t = node * settings.trials; t < (node + 1) * settings.trials; t++)
        if (trials.feature[t] >= 0) drop_trial(t, 0.0);
    free_model(nodes.model[node]);
    std::vector<double>().swap(class_rows[node]);
    if (settings.by_gradient) {
        candidates[node].clear();
        Lines<double>().swap(node_gradient[node]);
    } else {
        grids[node].restart();
    }
    nodes.alive[node] = 0;
}

// All that two children of a node need. They take the place of what is below it, if anything is.
Engine::Children Engine::new_children(int node) {
    Children made = {new_sums(), new_sums(), nodes_below(node)};
    if (!made.below.empty()) return made;
    int n_free = 0, n_places = 0;
    for (; n_free < 2 && n_places < settings.max_nodes; n_places++) n_free += !nodes.alive[n_places];
    if (n_free < 2) throw std::length_error("the tree has no room for two more nodes");
    make_places(n_places);
    return made;
}

void Engine::add_children(int node, const Condition& condition, int left_model, int right_model, Children&& made) {
    nodes.feature[node] = condition.feature;
    nodes.threshold[node] = condition.threshold;
    nodes.equality[node] = condition.equality;
    nodes.missing_left[node] = condition.missing_left;
    nodes.left[node] = new_node(node, left_model, std::move(made.left));
    nodes.right[node] = new_node(node, right_model, std::move(made.right));
    n_changes++;
}

void Engine::split_by_trial(int node, int trial) {
    Children made = new_children(node);
    remove(node, made.below);
    const Condition condition = trials.condition(trial);
    const int left = std::exchange(trials.left_model[trial], -1), right = std::exchange(trials.right_model[trial], -1);
    nodes.own_loss[node] = trials.node_loss[trial];
    nodes.subtree_loss[node] = trials.trial_loss[trial];
    nodes.evidence[node] = trials.evidence[trial];
    nodes.recent[node] = 0.0;
    for (int t = node * settings.trials; t < (node + 1) * settings.trials; t++)
        if (trials.feature[t] >= 0) drop_trial(t, 0.0);
    add_children(node, condition, left, right, std::move(made));
}

// Children by (6) and (7): theta - lambda / n * gradient, and the loss share minus their part of the gain.
void Engine::split_by_candidate(int node, int k) {
    settle(node);
    Children made = new_children(node);
    make_model_places(2);
    Lines<double> children[2] = {models[nodes.model[node]], models[nodes.model[node]]};
    remove(node, made.below);
    const Candidates& store = candidates[node];
    const int size = shape.outputs * shape.stride;
    const double* left_gradient = store.gradient_left.data() + static_cast<long>(k) * size;
    const double* before = store.gradient_before.data() + static_cast<long>(k) * size;
    const double n_left = store.n_left[k], n_right = nodes.rows[node] - store.n_before[k] - n_left;
    const double window_loss = nodes.own_loss[node] - store.loss_before[k];
    const double left_share = window_loss > 0.0 ? store.loss_left[k] / window_loss : 0.5;
    double losses[2] = {nodes.own_loss[node] * left_share, nodes.own_loss[node] * (1.0 - left_share)};
    for (int i = 0; i < size; i++) {
        const double g[2] = {left_gradient[i], node_gradient[node][i] - before[i] - left_gradient[i]};
        const double n[2] = {n_left, n_right};
        for (int side = 0; side < 2; side++) {
            children[side][kHead + i] -= settings.gain_step / n[side] * g[side];
            losses[side] -= settings.gain_step / n[side] * g[side] * g[side];
        }
    }
    const int feature = store.feature[k];
    const int left = place_model(std::move(children[0])), right = place_model(std::move(children[1]));
    add_children(node, {feature, store.value[k], static_cast<bool>(schema.is_categorical[feature]), false}, left, right,
                 std::move(made));
    nodes.own_loss[nodes.left[node]] = nodes.subtree_loss[nodes.left[node]] = losses[0];
    nodes.own_loss[nodes.right[node]] = nodes.subtree_loss[nodes.right[node]] = losses[1];
    nodes.evidence[nodes.left[node]] = nodes.evidence[node] * n_left / (n_left + n_right);
    nodes.evidence[nodes.right[node]] = nodes.evidence[node] * n_right / (n_left + n_right);
    set_subtree_loss(node, losses[0] + losses[1]);
}

// Paper's setting: what a subtree loses is the sum over its leaves, so the nodes above change with it.
void Engine::set_subtree_loss(int node, double loss) {
    const double change = loss - nodes.subtree_loss[node];
    for (int above = nodes.parent[node]; settings.by_gradient && above >= 0; above = nodes.parent[above])
        nodes.subtree_loss[above] += change;
    nodes.subtree_loss[node] = loss;
}

std::vector<int> Engine::nodes_below(int node) const {
    std::vector<int> found;
    const auto add_children_of = [&](int above) {
        if (nodes.left[above] >= 0) found.insert(found.end(), {nodes.left[above], nodes.right[above]});
    };
    add_children_of(node);
    for (std::size_t i = 0; i < found.size(); i++) add_children_of(found[i]);
    return found;
}

void Engine::remove(int node, const std::vector<int>& below) {
    if (below.empty()) return;
    for (const int one : below) release(one);
    nodes.left[node] = nodes.right[node] = nodes.feature[node] = -1;
    set_subtree_loss(node, nodes.own_loss[node]);
    n_changes++;
}

void Engine::prune(int node) { remove(node, nodes_below(node)); }

void Engine::choose_grid(int node, const std::vector<std::int32_t>& slots, std::vector<double> edges) {
    grids[node] = grids[node].chosen(slots, std::move(edges), *f_, shape, schema);
}

std::vector<Proposal> Engine::proposals(int node) const {
    std::vector<Proposal> found;
    if (!grids[node].is_ready()) return found;
    for (int j = 0; j < schema.n_features; j++) {
        const Proposal best = grids[node].best(*f_, shape, j, schema.is_categorical[j], nodes.rows[node]);
        if (best.slot >= 0) found.push_back(best);
    }
    return found;
}

void Engine::start_trial(int t, const Proposal& proposal) {
    const int node = t / settings.trials;
    make_model_places(2);
    Lines<double> left = models[nodes.model[node]], right = left;
    const Condition& condition = proposal.condition;
    trials.feature[t] = condition.feature;
    trials.threshold[t] = condition.threshold;
    trials.equality[t] = condition.equality;
    trials.missing_left[t] = condition.missing_left;
    trials.slot[t] = proposal.slot;
    for (auto* sum : {&trials.node_loss, &trials.subtree_loss, &trials.trial_loss, &trials.n_left, &trials.n_right,
                      &trials.evidence})
        (*sum)[t] = 0.0;
    trials.born[t] = nodes.rows[node];
    trials.left_model[t] = place_model(std::move(left));
    trials.right_model[t] = place_model(std::move(right));
    const std::pair<int, double> sides[2] = {{trials.left_model[t], proposal.n_left}, {trials.right_model[t], proposal.n_right}};
    for (const auto& [model, share] : sides) {  // fewer rows: less is known
        head(model).scale /= share;
        head(model).trace /= share;
    }
}

void Engine::drop_trial(int t, double barred_until) {
    Grid& grid = grids[t / settings.trials];
    if (barred_until > 0.0 && trials.slot[t] >= 0) grid.barred_until[trials.slot[t]] = barred_until;
    free_model(trials.left_model[t]);
    free_model(trials.right_model[t]);
    trials.feature[t] = -1;
}

// The challenger's model and link become the tree; the other link challenges it from now on. Without the floor that is the
// root's model until now: a model with a floor has not learnt what it took for noise, and a copy of it would start far behind.
void Engine::adopt_challenger() {
    const bool has_floor = head(challenger).has_floor != 0.0;
    NodeMemory sums = new_sums();
    const std::vector<int> below = nodes_below(0);
    Lines<double> twin;
    if (!has_floor) twin = models[challenger];
    make_model_places(1);
    remove(0, below);
    int plain = -1;
    if (has_floor) std::swap(plain, nodes.model[0]);
    release(0);
    new_node(-1, challenger, std::move(sums));
    n_changes++;
    if (has_floor) {
        challenger = plain;
    } else {
        challenger = place_model(std::move(twin));
        head(challenger).has_floor = 1.0;
        head(challenger).floor[0] = head(challenger).floor[1] = kInitialFloor;
        head(challenger).floor_rows = 0.0;
    }
    challenger_loss = rival_loss = challenger_rows = 0.0;
}

}  // namespace driftree
