// Soundness: is a state that came from outside one that an engine can have made?
//
// The kernels follow what is in the state without looking: links from node to node, ids of models, slots of grids,
// input columns, keys of search trees. Here each of them is looked at once, with every length, before any kernel runs.
// The same for what they rely on: NaN where a feature has no more edges, zeros behind the columns in use. What is only a
// number is added and compared, and cannot lead a kernel astray; it must be finite and not so large that sums overflow
// (Bounds in archive.hpp). tests/learn/test_soundness.py has a row for each array.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "archive.hpp"
#include "engine.hpp"
#include "fimtdd.hpp"

namespace driftree {
namespace {

void need(bool is_so, const char* array, const char* what) {
    if (!is_so) throw std::invalid_argument("'" + std::string(array) + "' " + what);
}

template <class Values>
void need_length(const Values& values, std::size_t n, const char* array) {
    need(values.size() == n, array, "has a wrong length");
}

template <class Values>
void need_flags(const Values& flags, const char* array) {
    need(std::all_of(flags.begin(), flags.end(), [](int flag) { return flag == 0 || flag == 1; }), array,
         "must hold only 0 and 1");
}

bool is_weight(double value) { return std::abs(value) <= kLargestWeight; }

// Rows of `stride` numbers, of which those from `columns` on are padding: kernels add them up with the rest.
template <class Values>
void need_zero_padding(const Values& lines, const Shape& shape, const char* array) {
    for (std::size_t begin = 0; begin < lines.size(); begin += shape.stride)
        for (int c = shape.columns; c < shape.stride; c++) need(lines[begin + c] == 0, array, "must be 0 behind the columns");
}

bool is_finite(double value) { return std::abs(value) <= std::numeric_limits<double>::max(); }

// ---------------------------------------------------------------- what both engines have
// Every input column but the intercept belongs to one feature: to its value, to one of its levels, or to its gaps.
void check_schema(const Schema& schema) {
    const std::size_t n = schema.is_categorical.size();
    need_flags(schema.is_categorical, "is_categorical");
    need_length(schema.value_column, n, "value_column");
    need_length(schema.missing_column, n, "missing_column");
    need_length(schema.level_column, n * kLevels, "level_column");
    std::vector<bool> is_used(schema.n_columns, false);
    const auto use = [&](const std::vector<std::int32_t>& columns, const char* array) {
        for (const int column : columns) {
            if (column == -1) continue;
            need(column > 0 && column < schema.n_columns, array, "names a column that is not there");
            need(!is_used[column], array, "names a column that is another's");
            is_used[column] = true;
        }
    };
    use(schema.value_column, "value_column");
    use(schema.missing_column, "missing_column");
    use(schema.level_column, "level_column");
    for (std::size_t j = 0; j < n; j++) {
        need(schema.is_categorical[j] || schema.value_column[j] >= 0, "value_column", "must have every number");
        const auto first = schema.level_column.begin() + static_cast<std::ptrdiff_t>(j * kLevels);
        need(schema.value_column[j] < 0 || std::all_of(first, first + kLevels, [](int c) { return c < 0; }),
             "level_column", "must be -1 where a feature is a number");
    }
}

// Values as large as float64 allows may leave no finite mean; the kernels know what to do with that.
void check_scaler(const Scaler& scaler, std::size_t n) {
    need_length(scaler.weight, n, "scale_weight");
    need_length(scaler.mean, n, "scale_mean");
    need_length(scaler.squares, n, "scale_squares");
    need_length(scaler.low, n, "scale_low");
    need_length(scaler.high, n, "scale_high");
    need_length(scaler.shift, n, "scale_shift");
    need_length(scaler.factor, n, "scale_factor");
    need_length(scaler.is_indicator, n, "scale_is_indicator");
    need_flags(scaler.is_indicator, "scale_is_indicator");
}

void check_shape(const Shape& shape) {
    need(shape.stride % kLanes == 0 && shape.stride >= shape.columns, "stride", "does not fit the columns");
}

// A test that rows can be put to, and that has words: a number's threshold, a level, or "is missing" (-inf).
void check_condition(const Condition& condition, const Schema& schema, const char* array) {
    need(condition.feature >= 0 && condition.feature < schema.n_features, array, "names a feature that is not there");
    const double value = condition.threshold;
    if (value == -std::numeric_limits<double>::infinity()) {
        need(!condition.equality && condition.missing_left, array, "has a split that is none");
        return;
    }
    need(is_finite(value), array, "has a split at no number");
    need(condition.equality == static_cast<bool>(schema.is_categorical[condition.feature]), array,
         "has a split that does not fit its feature");
    const bool is_code = schema.value_column[condition.feature] < 0;
    need(!is_code || (value >= 0.0 && value < kLevels && value == std::floor(value)), array, "has a split at no level");
}

// A parent's depth is one less than its children's, and only the root has none: so every node hangs on the root, and on
// no other node twice.
template <class Nodes>
void check_links(const Nodes& nodes, const Schema& schema) {
    const int n = static_cast<int>(nodes.parent.size());
    need_flags(nodes.alive, "alive");
    need_flags(nodes.equality, "equality");
    need_flags(nodes.missing_left, "missing_left");
    need(nodes.alive[0] && nodes.parent[0] == -1 && nodes.depth[0] == 0, "parent", "must begin with the root");
    const auto is_child = [&](int child, int node) {
        return child > 0 && child < n && nodes.alive[child] && nodes.parent[child] == node &&
               nodes.depth[child] == std::int64_t{nodes.depth[node]} + 1;
    };
    for (int node = 0; node < n; node++) {
        if (!nodes.alive[node]) continue;
        const int left = nodes.left[node], right = nodes.right[node], parent = nodes.parent[node];
        if (node > 0) {
            need(parent >= 0 && parent < n && nodes.alive[parent], "parent", "names a node that is not there");
            need(nodes.left[parent] == node || nodes.right[parent] == node, "parent", "names a node with other children");
        }
        if (left == -1) {
            need(right == -1, "right", "must be -1 at a leaf");
            need(nodes.feature[node] == -1, "feature", "must be -1 at a leaf");
            continue;
        }
        need(is_child(left, node), "left", "names a node that is no child");
        need(is_child(right, node) && right != left, "right", "names a node that is no child");
        check_condition({nodes.feature[node], nodes.threshold[node], static_cast<bool>(nodes.equality[node]),
                         static_cast<bool>(nodes.missing_left[node])},
                        schema, "feature");
    }
}

void check_clock(double clock, std::int64_t n_rows) {
    need(clock >= 0.0, "clock", "must not be negative");
    need(n_rows >= 0 && n_rows <= kMostRows, "n_rows", "is out of range");
}

// ---------------------------------------------------------------- parts of the Dynamic Model Tree
void check_head(const Head& head, bool may_have_floor) {
    need(std::abs(head.preference) <= 8.0 && head.scale > 0.0 && head.floor_rows >= 0.0 &&
             head.wrong >= 0.0 && head.wrong <= 1.0,
         "model.memory", "has a head that is none");
    need(head.floor[0] >= 0.0 && head.floor[1] >= 0.0 && head.floor[0] + head.floor[1] <= 1.0, "model.memory",
         "has a noise floor that is none");
    // A label's number is a place among the two floors.
    need(head.has_floor == 0.0 || (head.has_floor == 1.0 && may_have_floor), "model.memory",
         "has a noise floor out of place");
}

// The rows that are to choose a grid; a level's code becomes a slot.
void check_first_rows(const Grid& grid, const Schema& schema) {
    const std::size_t n = grid.n_first_rows, m = schema.n_features;
    need(grid.n_first_rows >= 0, "grid.n_first_rows", "must not be negative");
    need_length(grid.first_rows, n * m, "grid.first_rows");
    for (std::size_t i = 0; i < grid.first_rows.size(); i++) {
        const double value = grid.first_rows[i];
        if (std::isnan(value)) continue;
        need(is_finite(value), "grid.first_rows", "must hold finite numbers, or NaN");
        need(!schema.is_categorical[i % m] || (value >= 0.0 && value < kLevels), "grid.first_rows",
             "has an unknown level");
    }
}

void check_grid(const Grid& grid, const Schema& schema, const Shape& shape) {
    const std::size_t size = static_cast<std::size_t>(shape.outputs) * shape.stride;
    need(grid.scale > 0.0 && grid.scale <= 1.0, "grid.scale", "must be above 0 and at most 1");
    check_first_rows(grid, schema);
    if (!grid.is_ready()) {
        need(grid.edges.empty() && grid.counts.empty() && grid.barred_until.empty() && grid.implied.empty(),
             "grid.first_slot", "lacks the slots of a grid");
        need(grid.gradients.empty() && grid.total.empty(), "grid.gradients", "has gradients of no grid");
        return;
    }
    need(grid.n_first_rows == 0, "grid.n_first_rows", "must be 0 once the grid is chosen");
    need_length(grid.first_slot, static_cast<std::size_t>(schema.n_features) + 1, "grid.first_slot");
    need_length(grid.implied, schema.n_features, "grid.implied");
    need(grid.first_slot[0] == 0, "grid.first_slot", "must begin with 0");
    for (int j = 0; j < schema.n_features; j++) {
        const std::int64_t begin = grid.first_slot[j], end = grid.first_slot[j + 1];
        need(schema.is_categorical[j] ? end - begin == kLevels + 1 : end - begin >= 2, "grid.first_slot",
             "gives a feature a wrong number of slots");
        need(grid.implied[j] == -1 || (grid.implied[j] >= begin && grid.implied[j] < end), "grid.implied",
             "names a slot of another feature");
    }
    const std::size_t n_slots = grid.n_slots();
    need_zero_padding(grid.gradients, shape, "grid.gradients");
    need_zero_padding(grid.total, shape, "grid.total");
    need_length(grid.edges, n_slots, "grid.edges");
    need_length(grid.counts, n_slots, "grid.counts");
    need_length(grid.barred_until, n_slots, "grid.barred_until");
    need_length(grid.gradients, n_slots * size, "grid.gradients");
    need_length(grid.total, size, "grid.total");
    for (int j = 0; j < schema.n_features; j++) {
        const auto begin = grid.edges.begin() + grid.first_slot[j], last = grid.edges.begin() + grid.first_slot[j + 1];
        const auto end = schema.is_categorical[j] ? begin : last - 2;  // the top and the missing have none
        need(std::all_of(begin, end, is_finite) && std::is_sorted(begin, end), "grid.edges", "must ascend");
        need(std::all_of(end, last, [](double edge) { return std::isnan(edge); }), "grid.edges",
             "must be NaN where a slot has no edge");
    }
}

void check_candidates(const Candidates& store, const Schema& schema, const Shape& shape) {
    const std::size_t size = static_cast<std::size_t>(shape.outputs) * shape.stride;
    const std::size_t n = store.feature.size();
    for (const int feature : store.feature)
        need(feature >= 0 && feature < schema.n_features, "candidates.feature", "names a feature that is not there");
    need_length(store.value, n, "candidates.value");
    need(std::all_of(store.value.begin(), store.value.end(), is_finite), "candidates.value",
         "must hold finite numbers");  // they are sorted
    need_length(store.n_left, n, "candidates.n_left");
    need_length(store.loss_left, n, "candidates.loss_left");
    need_length(store.n_before, n, "candidates.n_before");
    need_length(store.loss_before, n, "candidates.loss_before");
    need_length(store.gain, n, "candidates.gain");
    need_length(store.gradient_left, n * size, "candidates.gradient_left");
    need_length(store.gradient_before, n * size, "candidates.gradient_before");
    need_zero_padding(store.gradient_left, shape, "candidates.gradient_left");
    need_zero_padding(store.gradient_before, shape, "candidates.gradient_before");
}

}  // namespace

// ---------------------------------------------------------------- the Dynamic Model Tree
void Engine::derive() {
    schema.derive();
    scaler.derive(schema, settings.by_gradient);
    shape.columns = schema.n_columns;
    shape.outputs = n_classes > 2 ? n_classes : 1;
    due_.clear();
}

void Engine::check() {
    need(n_classes >= 1, "n_classes", "must be at least 1");
    check_schema(schema);
    check_scaler(scaler, schema.n_features);
    check_shape(shape);
    check_links(nodes, schema);
    check_clock(clock, n_rows);
    need(n_steps >= 0 && n_steps <= n_rows, "n_steps", "is out of range");
    for (const int column : schema.value_column)  // numbers are inputs here even if they are levels
        need(!settings.by_gradient || column >= 0, "value_column", "must have every feature in the paper's setting");
    for (int j = 0; j < schema.n_features; j++)  // a level's code is a slot of a grid here
        need(settings.by_gradient || schema.is_categorical[j] == (schema.value_column[j] < 0), "value_column",
             "must be -1 where a feature has levels");
    check_models();
    for (int node = 0; node < settings.max_nodes; node++) check_node(node);
    Bounds<false> bounds(kLargest);
    visit(bounds);
}

// Puts right what only a strange file can have led to, so that whatever was loaded can be saved.
void Engine::heal() {
    Bounds<true> bounds(kLargest);
    visit(bounds);
    for (auto& memory : models) {
        const bool is_sound = std::all_of(memory.begin(), memory.end(), is_weight);
        if (!is_sound || (!memory.empty() && !(reinterpret_cast<const Head*>(memory.data())->scale > 0.0)))
            restart_model(memory);
    }
}

// Every model belongs to one node, to one side of one trial, or is the challenger.
void Engine::check_models() const {
    std::vector<bool> is_used(models.size(), false);
    const auto use = [&](int model, const char* array) {
        need(model >= 0 && model < static_cast<int>(models.size()), array, "names a model that is not there");
        need(!is_used[model], array, "names a model that is another's");
        is_used[model] = true;
    };
    for (int node = 0; node < settings.max_nodes; node++) {
        if (nodes.alive[node]) use(nodes.model[node], "model");
        need(nodes.alive[node] || nodes.model[node] == -1, "model", "must be -1 where there is no node");
    }
    for (int t = 0; t < settings.max_nodes * settings.trials; t++) {
        if (trials.feature[t] == -1) continue;
        use(trials.left_model[t], "trial_left_model");
        use(trials.right_model[t], "trial_right_model");
    }
    const bool has_challenger = !settings.by_gradient && n_classes <= 2;
    need(has_challenger || challenger == -1, "challenger", "must be -1 but in measured trees of two classes");
    if (has_challenger) use(challenger, "challenger");
    for (std::size_t model = 0; model < models.size(); model++) {
        need_length(models[model], is_used[model] ? model_size() : 0, "model.memory");
        if (is_used[model]) check_model(model);
    }
}

void Engine::check_model(int model) const {
    const Lines<double>& memory = models[model];
    need(std::all_of(memory.begin(), memory.end(), is_weight), "model.memory", "has a number out of range");
    check_head(*reinterpret_cast<const Head*>(memory.data()), !settings.by_gradient && n_classes <= 2);
    const double* const end = memory.data() + memory.size();
    need_zero_padding(std::span(memory.data() + kHead, end), shape, "model.memory");
    if (settings.by_gradient) return;
    const double* squares = adagrad_squares(shape, const_cast<double*>(memory.data()));
    need(std::all_of(squares, squares + shape.outputs * shape.stride, [](double sum) { return sum >= 0.0; }),
         "model.memory", "has a negative sum of squares");
    const double* matrix = newton_matrix(shape, const_cast<double*>(memory.data()));
    need(std::all_of(matrix + static_cast<long>(shape.columns) * shape.stride, end, [](double x) { return x == 0.0; }),
         "model.memory", "must be 0 behind the columns");
}

void Engine::check_node(int node) const {
    const bool alive = nodes.alive[node];
    const std::size_t size = static_cast<std::size_t>(shape.outputs) * shape.stride;
    need_length(class_rows[node], alive ? n_classes : 0, "class_rows.count");
    need_length(node_gradient[node], alive && settings.by_gradient ? size : 0, "node_gradient.sum");
    const Grid& grid = grids[node];
    const Candidates& store = candidates[node];
    check_grid(grid, schema, shape);
    check_candidates(store, schema, shape);
    need_zero_padding(node_gradient[node], shape, "node_gradient.sum");
    need(store.n() == 0 || (alive && settings.by_gradient), "candidates.feature", "has candidates out of place");
    need((!grid.is_ready() && grid.n_first_rows == 0) || (alive && !settings.by_gradient), "grid.first_slot",
         "has a grid out of place");
    for (int t = node * settings.trials; t < (node + 1) * settings.trials; t++) {
        if (trials.feature[t] == -1) continue;
        need(alive && !settings.by_gradient, "trial_feature", "has a trial out of place");
        check_condition(trials.condition(t), schema, "trial_feature");
        need(trials.slot[t] >= -1 && trials.slot[t] < grid.n_slots(), "trial_slot", "names a slot that is not there");
    }
    if (!alive) return;
    need(!(nodes.clock[node] > clock), "node_clock", "must not be ahead of the clock");
}

// ---------------------------------------------------------------- FIMT-DD
// The trees of all features: every key hangs on one key or root, and so comes in one walk.
void SplitPoints::check(int n_features, int classes) const {
    need(n_classes == classes, "split_points.n_classes", "is wrong");
    need_length(counts, classes, "split_points.counts");
    need_length(present, static_cast<std::size_t>(n_features) * classes, "split_points.present");
    need_length(root, n_features, "split_points.root");
    need_length(n_keys, n_features, "split_points.n_keys");
    const std::size_t width = kHeadOfKey + static_cast<std::size_t>(classes), n = keys.size() / width;
    need(std::all_of(n_keys.begin(), n_keys.end(), [&](int own) { return own <= max_keys(); }), "split_points.n_keys",
         "has too many keys of a feature");
    need(keys.size() == n * width && n <= std::numeric_limits<std::int32_t>::max(), "split_points.keys",
         "has a wrong length");
    std::vector<bool> is_met(n, false);
    std::vector<std::int32_t> rest;
    std::size_t n_met = 0;
    for (int j = 0; j < n_features; j++) {
        const std::size_t n_before = n_met;
        rest.assign(1, root[j]);
        while (!rest.empty()) {
            const int key = rest.back();
            rest.pop_back();
            if (key == -1) continue;
            need(key >= 0 && static_cast<std::size_t>(key) < n && !is_met[key], "split_points.keys",
                 "has a key that is not there, or that two others have");
            need(is_finite(*place(key)), "split_points.keys", "has a key that is no number");
            need(std::all_of(place(key) + kHeadOfKey, place(key) + width, [](double sum) { return std::abs(sum) <= kLargest; }),
                 "split_points.keys", "has a number out of range");
            is_met[key] = true;
            n_met++;
            rest.insert(rest.end(), {children(key).below, children(key).above});
        }
        const auto n_own = static_cast<std::int64_t>(n_met - n_before);
        need(n_keys[j] == n_own, "split_points.n_keys", "is wrong");
    }
    need(n_met == n, "split_points.keys", "has keys of no feature");
}

void FimtddEngine::derive() {
    schema.derive();
    scaler.derive(schema, false);
    shape.columns = schema.n_columns;
    shape.outputs = n_seen > 2 ? n_seen : 1;
    due_.clear();
}

void FimtddEngine::heal() {
    Bounds<true> bounds(kLargest);
    visit(bounds);
    for (auto& model : models)
        if (!std::all_of(model.begin(), model.end(), is_weight)) std::fill(model.begin(), model.end(), 0.0);
    for (SplitPoints& points : split_points) points.heal();
}

// Puts right the class weights of the keys; their values and links cannot have changed.
void SplitPoints::heal() {
    const std::size_t width = kHeadOfKey + static_cast<std::size_t>(n_classes);
    for (std::size_t i = 0; i < keys.size(); i++)
        if (i % width >= kHeadOfKey && !(std::abs(keys[i]) <= kLargest)) keys[i] = 0.0;
}

void FimtddEngine::check() {
    need(n_classes >= 1, "n_classes", "must be at least 1");
    need_length(place, n_classes, "place");
    need(n_seen >= 0 && n_seen <= n_classes, "n_seen", "is out of range");
    std::vector<bool> is_taken(n_seen, false);
    for (const int own : place) {
        if (own == -1) continue;
        need(own >= 0 && own < n_seen && !is_taken[own], "place", "must number the classes seen");
        is_taken[own] = true;
    }
    need(std::count(is_taken.begin(), is_taken.end(), true) == n_seen, "place", "must number the classes seen");
    check_schema(schema);
    check_scaler(scaler, schema.n_features);
    check_shape(shape);
    check_links(nodes, schema);
    check_clock(clock, n_rows);
    const std::size_t size = kHead + static_cast<std::size_t>(shape.outputs) * shape.stride;
    for (int node = 0; node < settings.max_nodes; node++) {
        const bool is_leaf = nodes.alive[node] && nodes.left[node] < 0;
        need_length(models[node], is_leaf ? size : 0, "model.memory");
        need(std::all_of(models[node].begin(), models[node].begin() + (is_leaf ? kHead : 0),
                         [](double value) { return value == 0.0; }),
             "model.memory", "must begin with zeros");
        need(std::all_of(models[node].begin(), models[node].end(), is_weight), "model.memory", "has a number out of range");
        if (is_leaf) need_zero_padding(std::span(models[node]).subspan(kHead), shape, "model.memory");
        const SplitPoints& points = split_points[node];
        if (is_leaf) {
            points.check(schema.n_features, std::max(n_seen, 2));
            need(!(nodes.rows[node] < 0.0 || nodes.tried_at[node] < 0.0), "tried_at", "must not be negative");
        } else {
            need(points.counts.empty() && points.present.empty() && points.root.empty() && points.n_keys.empty() &&
                     points.keys.empty(),
                 "split_points.counts", "has split points out of place");
        }
    }
    Bounds<false> bounds(kLargest);
    visit(bounds);
}

}  // namespace driftree
