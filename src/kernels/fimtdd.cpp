// FIMT-DD: the work per row, and the tree as features, classes and nodes come and go.
#include "fimtdd.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "engine.hpp"
#include "layout.hpp"

namespace driftree {

constexpr double kNeverSeen = -1000.0;  // logit of a class without a row

FimtddEngine::FimtddEngine(const FimtddSettings& given, int classes)
    : settings(given), shape{1, 8, 1}, nodes(given.max_nodes), models(given.max_nodes),
      split_points(given.max_nodes), n_classes(classes), place(classes, -1), f_(&choose_functions()) {
    new_node(-1, std::vector<double>(kHead + shape.stride, 0.0), new_split_points());
}

// ---------------------------------------------------------------- rows
// Learns rows in their order up to the first after which a node is due; returns how many.
int FimtddEngine::learn(const double* X, const std::int32_t* y, const double* weights, int n) {
    due_.clear();
    int done = 0;
    while (done < n && due_.empty()) {
        learn_row(X + static_cast<long>(done) * schema.n_features, y[done], weights ? weights[done] : 1.0);
        done++;
    }
    return done;
}

void FimtddEngine::learn_row(const double* x, std::int32_t code, double weight) {
    const std::int32_t label = place[code] >= 0 ? place[code] : admit(code);
    path_.clear();
    int leaf = 0;
    while (nodes.left[leaf] >= 0) {
        path_.push_back(leaf);
        leaf = nodes.condition(leaf).holds(x) ? nodes.left[leaf] : nodes.right[leaf];
    }
    inputs_.resize(shape.stride);
    residual_.resize(shape.outputs);
    scratch_.resize(scratch_size(shape));
    due_.reserve(path_.size() + 1);
    scaler.make_scratch();
    split_points[leaf].make_room_for_row();  // from here on nothing can fail

    scaler.update(*f_, x, &weight, 1, false);
    Chunk::fill_inputs(*f_, schema, scaler, x, 1, shape.stride, inputs_.data());
    clock += weight;
    n_rows = std::min(n_rows + 1, kMostRows);
    const std::int32_t row = 0;
    const double step = std::min(weight, 1.0);
    double loss = 0.0;
    const Rows rows = {inputs_.data(), nullptr, nullptr, &label, &weight, &step};
    const Lesson lesson = {models[leaf].data(), {&row, 1}, {&loss, residual_.data(), nullptr, scratch_.data()}};
    f_->sgd_forward(shape, rows, &lesson, 1);
    // The residual is the derivative by the logit, p - 1 at the row's label: the error of the predicted probability.
    const double error = std::abs(shape.outputs == 1 ? residual_[0] : residual_[label]);
    for (const int node : path_) {
        page_hinkley_step(error, weight, settings.drift_tolerance, nodes.rows[node], nodes.error_mean[node],
                          nodes.error_sum[node], nodes.least_sum[node]);
        const bool is_old = nodes.rows[node] >= settings.drift_rows;
        if (is_old && nodes.error_sum[node] - nodes.least_sum[node] > settings.drift_threshold) due_.push_back(node);
    }
    f_->sgd_learn(shape, rows, &lesson, 1, {settings.learning_rate, 0.0, 1, false});
    split_points[leaf].add(x, label, weight);
    nodes.rows[leaf] += weight;
    if (nodes.rows[leaf] - nodes.tried_at[leaf] >= settings.grace_period) {
        nodes.tried_at[leaf] = nodes.rows[leaf];
        due_.push_back(leaf);
    }
}

int FimtddEngine::leaf_of(const double* x) const {
    int node = 0;
    while (nodes.left[node] >= 0) node = nodes.condition(node).holds(x) ? nodes.left[node] : nodes.right[node];
    return node;
}

// Lines of `width` values, one per output of the models, to one per output that the user knows; the intercept is first.
void FimtddEngine::arrange(const double* own, int width, double* out) const {
    const auto value = [&](int code, int i) {
        if (place[code] < 0) return i == 0 ? kNeverSeen : 0.0;
        return shape.outputs > 1 ? own[place[code] * width + i] : place[code] == 1 ? 0.5 * own[i] : -0.5 * own[i];
    };
    for (int k = 0; k < n_outputs(); k++)
        for (int i = 0; i < width; i++)
            out[k * width + i] = n_classes > 2 ? value(k, i) : n_classes == 2 ? value(1, i) - value(0, i) : -value(0, i);
}

void FimtddEngine::weights_of(int leaf, double* out) const { arrange(models[leaf].data() + kHead, shape.stride, out); }

void FimtddEngine::logits_of(const double* rows, int n, std::int32_t* leaves, double* logits) const {
    Room inputs(static_cast<std::size_t>(n) * shape.stride), own(shape.outputs);
    Chunk::fill_inputs(*f_, schema, scaler, rows, n, shape.stride, inputs.data());
    for (int i = 0; i < n; i++, logits += n_outputs()) {
        leaves[i] = leaf_of(rows + static_cast<long>(i) * schema.n_features);
        f_->logits(shape, models[leaves[i]].data() + kHead, inputs.data() + static_cast<long>(i) * shape.stride, own.data());
        arrange(own.data(), 1, logits);
    }
}

int FimtddEngine::class_of(int leaf, const double* logits) const {
    const Head& head = *reinterpret_cast<const Head*>(models[leaf].data());
    return most_probable({shape.columns, shape.stride, n_outputs()}, head, logits, n_classes);
}

void FimtddEngine::probabilities_of(int leaf, const double* logits, double* out) const {
    const Head& head = *reinterpret_cast<const Head*>(models[leaf].data());
    fill_probabilities({shape.columns, shape.stride, n_outputs()}, head, logits, n_classes, out);
}

// ---------------------------------------------------------------- schema
// Makes all that so many more features and columns, and so many classes in all, will need; moving the models comes last.
void FimtddEngine::prepare(int n_features, int n_columns, int classes) {
    make_capacity(place, classes);
    schema.reserve(n_features);
    scaler.reserve(n_features);
    for (SplitPoints& points : split_points)
        if (!points.counts.empty()) points.reserve(n_features);
    int stride = shape.stride;
    while (shape.columns + n_columns > stride) stride = padded(stride + stride / 4 + 1);
    if (stride != shape.stride) reshape(stride, shape.outputs);
}

int FimtddEngine::add_feature(bool categorical, bool has_value) {
    prepare(1, has_value, n_classes);
    const int feature = schema.add_feature(categorical, has_value);
    scaler.add_feature(false, has_value);
    if (has_value) add_column();
    for (SplitPoints& points : split_points)
        if (!points.counts.empty()) points.add_feature();
    return feature;
}

// A numeric feature that was always missing turns out to hold levels; its unused column becomes the first level's.
void FimtddEngine::make_categorical(int feature, bool has_value) {
    schema.make_categorical(feature, has_value);
    scaler.has_value[feature] = has_value;
}

int FimtddEngine::add_level(int feature, int code) {
    prepare(0, 1, n_classes);
    schema.level_column[feature * kLevels + code] = schema.n_columns++;
    add_column();
    return schema.n_columns - 1;
}

int FimtddEngine::add_missing(int feature) {
    prepare(0, 1, n_classes);
    schema.missing_column[feature] = schema.n_columns++;
    add_column();
    return schema.n_columns - 1;
}

void FimtddEngine::add_column() { shape.columns++; }  // there is room for it: prepare()

void FimtddEngine::set_classes(int classes) {
    if (classes <= n_classes) return;
    prepare(0, 0, classes);
    place.resize(classes, -1);
    n_classes = classes;
}

// A class takes part from its first row on, so it does not matter how long before that it was announced.
int FimtddEngine::admit(int code) {
    if (n_seen < 2) return place[code] = n_seen++;
    const Shape to = {shape.columns, shape.stride, n_seen + 1};
    auto wider_models = moved_models(to);
    std::vector<SplitPoints> wider_points(split_points.size());
    for (std::size_t i = 0; i < split_points.size(); i++)
        if (!split_points[i].counts.empty()) wider_points[i] = split_points[i].with_classes(n_seen + 1);
    place[code] = n_seen++;
    shape = to;
    models.swap(wider_models);
    split_points.swap(wider_points);
    for (auto& model : models)  // a class that was not seen in all these rows is rare
        if (!model.empty()) model[kHead + place[code] * shape.stride] = -std::log1p(clock);
    for (std::size_t i = 0; i < split_points.size(); i++)
        if (!split_points[i].counts.empty() && split_points[i].is_empty()) nodes.rows[i] = nodes.tried_at[i] = 0.0;
    return place[code];
}

std::vector<std::vector<double>> FimtddEngine::moved_models(const Shape& to) const {
    std::vector<std::vector<double>> moved(models.size());
    for (std::size_t i = 0; i < models.size(); i++) {
        if (models[i].empty()) continue;
        moved[i].assign(kHead + static_cast<std::size_t>(to.outputs) * to.stride, 0.0);
        move_weights(shape, models[i].data() + kHead, to, moved[i].data() + kHead, false);
    }
    return moved;
}

void FimtddEngine::reshape(int stride, int outputs) {
    const Shape to = {shape.columns, stride, outputs};
    auto moved = moved_models(to);
    models.swap(moved);
    shape = to;
}

// ---------------------------------------------------------------- structure
void FimtddEngine::make_leaf(int node, std::vector<double>&& model, SplitPoints&& points) {
    nodes.left[node] = nodes.right[node] = nodes.feature[node] = -1;
    nodes.rows[node] = nodes.tried_at[node] = 0.0;
    nodes.error_mean[node] = nodes.error_sum[node] = nodes.least_sum[node] = 0.0;
    models[node] = std::move(model);
    split_points[node] = std::move(points);
}

int FimtddEngine::new_node(int parent, std::vector<double>&& model, SplitPoints&& points) {
    const auto place = std::find(nodes.alive.begin(), nodes.alive.end(), 0);
    if (place == nodes.alive.end()) throw std::length_error("the tree has max_nodes nodes already");
    const int node = static_cast<int>(place - nodes.alive.begin());
    nodes.alive[node] = 1;
    nodes.parent[node] = parent;
    nodes.depth[node] = parent < 0 ? 0 : nodes.depth[parent] + 1;
    make_leaf(node, std::move(model), std::move(points));
    return node;
}

std::vector<SplitPoint> FimtddEngine::best_splits(int leaf) const {
    std::vector<SplitPoint> found;
    for (int j = 0; j < schema.n_features; j++) {
        const SplitPoint best = split_points[leaf].best(j, schema.is_categorical[j]);
        if (best.condition.feature >= 0) found.push_back(best);
    }
    return found;
}

// Both children start with the leaf's model; the inner node starts its Page-Hinkley test.
void FimtddEngine::split(int leaf, const Condition& condition) {
    if (nodes.left[leaf] >= 0) throw std::invalid_argument("only a leaf can be split");
    if (std::count(nodes.alive.begin(), nodes.alive.end(), 0) < 2)
        throw std::length_error("the tree has no room for two more nodes");
    std::vector<double> twin = models[leaf];
    SplitPoints left_points = new_split_points(), right_points = new_split_points();  // from here on nothing can fail
    const int left = new_node(leaf, std::move(models[leaf]), std::move(left_points));
    const int right = new_node(leaf, std::move(twin), std::move(right_points));
    models[leaf] = {};
    split_points[leaf] = {};
    nodes.left[leaf] = left;
    nodes.right[leaf] = right;
    nodes.feature[leaf] = condition.feature;
    nodes.threshold[leaf] = condition.threshold;
    nodes.equality[leaf] = condition.equality;
    nodes.missing_left[leaf] = condition.missing_left;
    nodes.rows[leaf] = 0.0;
}

// The new leaf starts with the mean of the models of the leaves below, each as heavy as the rows it has seen.
void FimtddEngine::delete_branch(int node) {
    if (nodes.left[node] < 0) throw std::invalid_argument("a leaf has no branch");
    std::vector<double> mean(kHead + static_cast<std::size_t>(shape.outputs) * shape.stride, 0.0);
    SplitPoints points = new_split_points();
    double rows = 0.0;
    std::vector<int> rest = {nodes.left[node], nodes.right[node]}, gone;
    while (!rest.empty()) {
        const int below = rest.back();
        rest.pop_back();
        gone.push_back(below);
        if (nodes.left[below] >= 0) {
            rest.insert(rest.end(), {nodes.left[below], nodes.right[below]});
        } else if (nodes.rows[below] > 0.0) {
            rows += nodes.rows[below];
            const double share = nodes.rows[below] / rows;
            for (std::size_t i = kHead; i < mean.size(); i++) mean[i] += share * (models[below][i] - mean[i]);
        }
    }
    for (const int below : gone) {  // from here on nothing can fail
        models[below] = {};
        split_points[below] = {};
        nodes.alive[below] = 0;
    }
    make_leaf(node, std::move(mean), std::move(points));
}

}  // namespace driftree
