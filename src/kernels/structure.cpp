// The engine's structure: making, copying and freeing models and nodes, and letting columns and classes grow.
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
    new_node(-1, new_model());
    if (!settings.by_gradient && n_classes <= 2) {
        challenger = new_model();
        head(challenger).has_floor = 1.0;
    }
}

// ---------------------------------------------------------------- models
std::size_t Engine::model_size() const {
    const std::size_t weights = static_cast<std::size_t>(shape.outputs) * shape.stride;
    return settings.by_gradient ? kHead + weights
                                : kHead + 3 * weights + static_cast<std::size_t>(shape.stride) * shape.stride;
}

int Engine::new_model() {
    auto place = std::find_if(models.begin(), models.end(), [](const auto& memory) { return memory.empty(); });
    if (place == models.end()) place = models.insert(models.end(), Lines<double>());
    place->assign(model_size(), 0.0);
    Head& head = *reinterpret_cast<Head*>(place->data());
    head.scale = 1.0;
    head.floor[0] = head.floor[1] = kInitialFloor;
    if (!settings.by_gradient) {
        double* matrix = newton_matrix(shape, place->data());
        for (int c = 0; c < shape.columns; c++)
            matrix[static_cast<long>(c) * shape.stride + c] = kInitialCurvatureInverse;
        head.trace = kInitialCurvatureInverse * shape.columns;
    }
    return static_cast<int>(place - models.begin());
}

void Engine::free_model(int& model) {
    if (model >= 0) Lines<double>().swap(models[model]);
    model = -1;
}

int Engine::copy_model(int from) {
    const int to = new_model();
    models[to] = models[from];
    return to;
}

// ---------------------------------------------------------------- schema
int Engine::add_feature(bool categorical, bool has_value) {
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
    schema.make_categorical(feature, has_value);
    scaler.has_value[feature] = has_value;
    restart_grids();
}

int Engine::add_level(int feature, int code) {
    schema.level_column[feature * kLevels + code] = schema.n_columns++;
    add_column();
    return schema.n_columns - 1;
}

int Engine::add_missing(int feature) {
    schema.missing_column[feature] = schema.n_columns++;
    add_column();
    return schema.n_columns - 1;
}

void Engine::add_column() {
    if (shape.columns == shape.stride) restride(padded(shape.stride + shape.stride / 4 + 1), shape.outputs);
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
    n_classes = classes;
    for (int node = 0; node < settings.max_nodes; node++)
        if (nodes.alive[node]) class_rows[node].resize(classes, 0.0);
    if (classes <= 2) return;
    free_model(challenger);
    for (auto& memory : models)
        if (!memory.empty()) reinterpret_cast<Head*>(memory.data())->has_floor = 0.0;
    restride(shape.stride, classes);
    for (auto& memory : models) {  // a class that was not seen in all these rows is rare
        for (int k = known; k < classes && !memory.empty(); k++) {
            adagrad_weights(shape, memory.data())[k * shape.stride] = -std::log1p(clock);
            if (!settings.by_gradient) newton_weights(shape, memory.data())[k * shape.stride] = -std::log1p(clock);
        }
    }
}

// Moves all models to a wider stride or more outputs; sums of gradients of fewer outputs start afresh.
void Engine::restride(int stride, int outputs) {
    settle();
    const Shape old = shape;
    shape.stride = stride;
    shape.outputs = outputs;
    for (auto& memory : models) {
        if (memory.empty()) continue;
        Lines<double> fresh(model_size(), 0.0);
        std::copy_n(memory.data(), kHead, fresh.data());
        move_weights(old, adagrad_weights(old, memory.data()), shape, adagrad_weights(shape, fresh.data()), false);
        if (!settings.by_gradient) {
            move_weights(old, adagrad_squares(old, memory.data()), shape, adagrad_squares(shape, fresh.data()), true);
            move_weights(old, newton_weights(old, memory.data()), shape, newton_weights(shape, fresh.data()), false);
            for (int c = 0; c < old.columns; c++)
                std::copy_n(newton_matrix(old, memory.data()) + static_cast<long>(c) * old.stride, old.columns,
                            newton_matrix(shape, fresh.data()) + static_cast<long>(c) * stride);
        }
        memory.swap(fresh);
    }
    for (int node = 0; node < settings.max_nodes; node++) {
        if (!nodes.alive[node]) continue;
        if (settings.by_gradient) {
            Candidates& store = candidates[node];
            if (outputs == old.outputs) {
                widen(store.gradient_left, old.stride, stride);
                widen(store.gradient_before, old.stride, stride);
                widen(node_gradient[node], old.stride, stride);
            } else {
                store.clear();
                node_gradient[node].assign(static_cast<std::size_t>(outputs) * stride, 0.0);
            }
        } else if (outputs == old.outputs) {
            widen(grids[node].gradients, old.stride, stride);
            widen(grids[node].total, old.stride, stride);
        } else if (grids[node].is_ready()) {
            grids[node].clear_gradients(shape);
        }
    }
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

int Engine::new_node(int parent, int model) {
    const auto place = std::find(nodes.alive.begin(), nodes.alive.end(), 0);
    if (place == nodes.alive.end()) throw std::length_error("the tree has max_nodes nodes already");
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
    make_places(node + 1);
    class_rows[node].assign(n_classes, 0.0);
    if (settings.by_gradient) node_gradient[node].assign(static_cast<std::size_t>(shape.outputs) * shape.stride, 0.0);
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

void Engine::need_room() const {  // before anything is changed
    if (std::count(nodes.alive.begin(), nodes.alive.end(), 0) < 2)
        throw std::length_error("the tree has no room for two more nodes");
}

void Engine::add_children(int node, const Condition& condition, int left_model, int right_model) {
    nodes.feature[node] = condition.feature;
    nodes.threshold[node] = condition.threshold;
    nodes.equality[node] = condition.equality;
    nodes.missing_left[node] = condition.missing_left;
    nodes.left[node] = new_node(node, left_model);
    nodes.right[node] = new_node(node, right_model);
}

void Engine::split_by_trial(int node, int trial) {
    need_room();
    const Condition condition = trials.condition(trial);
    const int left = std::exchange(trials.left_model[trial], -1), right = std::exchange(trials.right_model[trial], -1);
    nodes.own_loss[node] = trials.node_loss[trial];
    nodes.subtree_loss[node] = trials.trial_loss[trial];
    nodes.evidence[node] = trials.evidence[trial];
    nodes.recent[node] = 0.0;
    for (int t = node * settings.trials; t < (node + 1) * settings.trials; t++)
        if (trials.feature[t] >= 0) drop_trial(t, 0.0);
    add_children(node, condition, left, right);
}

// Children by (6) and (7): theta - lambda / n * gradient, and the loss share minus their part of the gain.
void Engine::split_by_candidate(int node, int k) {
    need_room();
    settle(node);
    const Candidates& store = candidates[node];
    const int size = shape.outputs * shape.stride;
    const double* left_gradient = store.gradient_left.data() + static_cast<long>(k) * size;
    const double* before = store.gradient_before.data() + static_cast<long>(k) * size;
    const double n_left = store.n_left[k], n_right = nodes.rows[node] - store.n_before[k] - n_left;
    const double window_loss = nodes.own_loss[node] - store.loss_before[k];
    const double left_share = window_loss > 0.0 ? store.loss_left[k] / window_loss : 0.5;
    const int models_of[2] = {copy_model(nodes.model[node]), copy_model(nodes.model[node])};
    double losses[2] = {nodes.own_loss[node] * left_share, nodes.own_loss[node] * (1.0 - left_share)};
    for (int i = 0; i < size; i++) {
        const double g[2] = {left_gradient[i], node_gradient[node][i] - before[i] - left_gradient[i]};
        const double n[2] = {n_left, n_right};
        for (int side = 0; side < 2; side++) {
            models[models_of[side]][kHead + i] -= settings.gain_step / n[side] * g[side];
            losses[side] -= settings.gain_step / n[side] * g[side] * g[side];
        }
    }
    const int feature = store.feature[k];
    add_children(node, {feature, store.value[k], static_cast<bool>(schema.is_categorical[feature]), false},
                 models_of[0], models_of[1]);
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

void Engine::prune(int node) {
    std::vector<int> rest = {nodes.left[node], nodes.right[node]};
    while (!rest.empty()) {
        const int below = rest.back();
        rest.pop_back();
        if (nodes.left[below] >= 0) rest.insert(rest.end(), {nodes.left[below], nodes.right[below]});
        release(below);
    }
    nodes.left[node] = nodes.right[node] = nodes.feature[node] = -1;
    set_subtree_loss(node, nodes.own_loss[node]);
}

void Engine::choose_grid(int node, const std::vector<std::int32_t>& slots, std::vector<double> edges) {
    grids[node].choose(slots, std::move(edges), *f_, shape, schema);
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
    trials.left_model[t] = copy_model(nodes.model[node]);
    trials.right_model[t] = copy_model(nodes.model[node]);
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

// The challenger's model and link become the tree; a copy with the other link challenges it from now on.
void Engine::adopt_challenger() {
    if (nodes.left[0] >= 0) prune(0);
    release(0);
    new_node(-1, challenger);
    const double had_floor = head(challenger).has_floor;
    challenger = copy_model(challenger);
    head(challenger).has_floor = 1.0 - had_floor;
    if (had_floor == 0.0) {
        head(challenger).floor[0] = head(challenger).floor[1] = kInitialFloor;
        head(challenger).floor_rows = 0.0;
    }
    challenger_loss = rival_loss = challenger_rows = 0.0;
}


}  // namespace driftree
