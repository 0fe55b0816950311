// FIMT-DD: learning a row, and changes of the tree by new features, classes and nodes.
#include "fimtdd.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace driftree {

constexpr double kNeverSeen = -1000.0;  // logit of a class without a row

FimtddTree::FimtddTree(const Settings& given, int classes)
    : Tree(given.model, Scaling::moments, classes, given.max_nodes), settings(given), place(classes, -1) {
    loss = loss_for(0);
    make_places(1);
    models.make_places(1);
    add_leaf(-1, models.place(models.fresh(shape)), new_split_points());
}

// ---------------------------------------------------------------- rows
// Learns rows in order up to the first after which a node is due; returns their number.
int FimtddTree::learn(const Given& given, int n) {
    const auto [X, width, sparse, y, weights, wholes] = given;
    due_.clear();
    int done = 0;
    while (done < n && due_.empty()) {
        learn_row(X + static_cast<long>(done) * table->n_features(), y[done], weights ? weights[done] : 1.0);
        done++;
    }
    return done;
}

// Adds a number to the scale of the target, and converts what was learnt if the scale no longer fits. It cannot fail.
void FimtddTree::learn_target(double y, double weight) {
    const bool was_known = target.is_known;
    const double old_shift = target.shift;
    target.add(y, weight);
    if (!target.is_off()) return;
    Conversion to = target.renew();
    models.convert(shape, to, nullptr);
    if (!was_known) to = {0.0, (old_shift - target.shift) / target.scale};  // all rows so far had the same target
    for (SplitPoints& points : split_points) points.convert(to);
}

void FimtddTree::learn_row(const double* x, double given, double weight) {
    double own = given;  // the target in the models' terms
    if (has_labels()) {
        const int code = static_cast<int>(given);
        own = place[code] >= 0 ? place[code] : admit(code);
    }
    path_.clear();
    int leaf = 0;
    while (!nodes[leaf].is_leaf()) {
        path_.push_back(leaf);
        leaf = nodes[leaf].condition.holds(x) ? nodes[leaf].left : nodes[leaf].right;
    }
    inputs_.resize(shape.stride);
    residual_.resize(shape.outputs);
    said_.resize(shape.outputs);
    scratch_.resize(scratch_size(shape));
    due_.reserve(path_.size() + 1);
    lessons_.resize(1);
    table->scaler.make_scratch();
    split_points[leaf].make_room_for_row();  // from here on nothing can fail

    table->update(f, x, &weight, 1);
    table->fill_inputs(f, x, 1, shape.stride, inputs_.data());
    clock += weight;
    n_rows = std::min(n_rows + 1, kMostRows);
    double step = std::min(weight, 1.0);
    if (!has_labels()) {
        learn_target(given, weight);
        own = target.scaled(given);
        double length = 0.0;
        for (const double z : inputs_) length += z * z;
        step = std::min(step, 1.0 / (settings.model.step * length));  // a step does not overshoot the row's target
    }
    const std::int32_t row = 0;
    double row_loss = 0.0;
    const Rows rows = {inputs_.data(), nullptr, nullptr, &own, &weight, &step};
    lessons_[0] = {shape,
                   models[nodes[leaf].model].memory(),
                   {&row, 1},
                   {&row_loss, residual_.data(), said_.data(), nullptr, scratch_.data()}};
    Sgd::forward(f, loss, shape, rows, lessons_);
    // The residual is the derivative by the logit, p - 1 at the row's label: the error of the predicted probability. For a
    // number it is the error in deviations of the target.
    const double error = std::abs(shape.outputs == 1 ? residual_[0] : residual_[static_cast<int>(own)]);
    for (const int node : path_) {
        Record& record = records[node];
        page_hinkley_step(error, weight, settings.drift_tolerance, nodes[node].rows, record.error_mean, record.error_sum,
                          record.least_sum);
        const bool is_old = nodes[node].rows >= settings.drift_rows;
        if (is_old && record.error_sum - record.least_sum > settings.drift_threshold) due_.push_back(node);
    }
    Sgd::learn(f, loss, shape, rows, lessons_, models.rates, false);
    if (has_labels()) {
        split_points[leaf].add(x, LabelCount{static_cast<int>(own), weight});
    } else {
        split_points[leaf].add(x, NumberCount{own, weight});
    }
    nodes[leaf].rows += weight;
    if (nodes[leaf].rows - records[leaf].tried_at >= settings.grace_period) {
        records[leaf].tried_at = nodes[leaf].rows;
        due_.push_back(leaf);
    }
}

// Arranges lines of `width` values, one per output of the models, as one per output that the user sees; the intercept is
// first.
void FimtddTree::arrange(const double* own, int width, double* out) const {
    const auto value = [&](int code, int i) {
        if (place[code] < 0) return i == 0 ? kNeverSeen : 0.0;
        return shape.outputs > 1 ? own[place[code] * width + i] : place[code] == 1 ? 0.5 * own[i] : -0.5 * own[i];
    };
    for (int k = 0; k < n_outputs(); k++)
        for (int i = 0; i < width; i++)
            out[k * width + i] = n_classes > 2 ? value(k, i) : n_classes == 2 ? value(1, i) - value(0, i) : -value(0, i);
}

void FimtddTree::weights_of(int leaf, double* out) const {
    if (!has_labels()) return Tree::weights_of(leaf, out);
    arrange(models[nodes[leaf].model].numbers.data(), shape.stride, out);
}

void FimtddTree::predictors_of(const double* rows, const SparseRows& held, int n, std::int32_t* leaves, double* out) const {
    if (!has_labels()) return Tree::predictors_of(rows, held, n, leaves, out);
    Room own(static_cast<std::size_t>(n) * shape.outputs);
    Tree::predictors_of(rows, held, n, leaves, own.data());
    for (int i = 0; i < n; i++)
        arrange(own.data() + static_cast<long>(i) * shape.outputs, 1, out + static_cast<long>(i) * n_outputs());
}

// ---------------------------------------------------------------- growth
void FimtddTree::reserve(int n_features, int classes) {
    make_capacity(place, classes);
    for (SplitPoints& points : split_points)
        if (!points.counts.empty()) points.reserve(n_features);
}

void FimtddTree::reserve_nodes(int n) {
    records.reserve(n);
    split_points.reserve(n);
}

void FimtddTree::feature_came() {
    for (SplitPoints& points : split_points)
        while (!points.counts.empty() && std::ssize(points.root) < table->n_features()) points.add_feature();
}

void FimtddTree::reshape(const Shape& to, int) {
    auto moved = models.moved(shape, to);
    models.all.swap(moved);
    shape = to;
}

void FimtddTree::set_classes(int classes) {
    if (classes <= n_classes) return;
    prepare(0, 0, classes);
    place.resize(classes, -1);
    n_classes = classes;
}

// A class takes part from its first row on, no matter how long before it was announced.
int FimtddTree::admit(int code) {
    if (n_seen < 2) return place[code] = n_seen++;
    const Shape to = {shape.columns, shape.stride, n_seen + 1};
    auto wider_models = models.moved(shape, to);
    std::vector<SplitPoints> wider_points(split_points.size());
    for (std::size_t i = 0; i < split_points.size(); i++)
        if (!split_points[i].counts.empty()) wider_points[i] = split_points[i].with_classes(n_seen + 1);
    place[code] = n_seen++;
    loss = loss_of_classes(n_seen);
    shape = to;
    models.all.swap(wider_models);
    split_points.swap(wider_points);
    models.add_class(shape, place[code], clock);
    for (std::size_t i = 0; i < split_points.size(); i++)
        if (!split_points[i].counts.empty() && split_points[i].is_empty()) nodes[i].rows = records[i].tried_at = 0.0;
    return place[code];
}

// ---------------------------------------------------------------- structure
void FimtddTree::make_leaf(int node, int model, SplitPoints&& points) {
    nodes[node].left = nodes[node].right = -1;
    nodes[node].condition = Condition();
    nodes[node].model = model;
    nodes[node].rows = 0.0;
    records[node] = Record();
    std::swap(split_points[node], points);
}

int FimtddTree::add_leaf(int parent, int model, SplitPoints&& points) {
    const int node = nodes.add(parent, model);
    if (node >= std::ssize(records)) {
        records.resize(node + 1);
        split_points.resize(node + 1);
    }
    make_leaf(node, model, std::move(points));
    return node;
}

std::vector<SplitPoint> FimtddTree::best_splits(int leaf) const {
    std::vector<SplitPoint> found;
    for (int j = 0; j < table->n_features(); j++) {
        const SplitPoint best = split_points[leaf].best(j, schema().is_categorical[j], has_labels());
        if (best.condition.feature >= 0) found.push_back(best);
    }
    return found;
}

// Both children start with the leaf's model; the inner node starts its Page-Hinkley test.
void FimtddTree::split(int leaf, const Condition& condition) {
    if (!nodes[leaf].is_leaf()) throw std::invalid_argument("only a leaf can be split");
    make_places(2);
    models.make_places(1);
    Model twin = models[nodes[leaf].model];
    SplitPoints left_points = new_split_points(), right_points = new_split_points(), none;  // from here on nothing can fail
    const int left = add_leaf(leaf, nodes[leaf].model, std::move(left_points));
    const int right = add_leaf(leaf, models.place(std::move(twin)), std::move(right_points));
    std::swap(split_points[leaf], none);
    nodes[leaf].model = -1;
    nodes[leaf].left = left;
    nodes[leaf].right = right;
    nodes[leaf].condition = condition;
    nodes[leaf].rows = 0.0;
}

// The new leaf starts with the mean of the models of the leaves below, weighted by their rows.
void FimtddTree::delete_branch(int node) {
    if (nodes[node].is_leaf()) throw std::invalid_argument("a leaf has no branch");
    Model mean = models.fresh(shape);
    SplitPoints points = new_split_points();
    double rows = 0.0;
    std::vector<int> rest = {nodes[node].left, nodes[node].right}, gone;
    while (!rest.empty()) {
        const int below = rest.back();
        rest.pop_back();
        gone.push_back(below);
        if (!nodes[below].is_leaf()) {
            rest.insert(rest.end(), {nodes[below].left, nodes[below].right});
        } else if (nodes[below].rows > 0.0) {
            rows += nodes[below].rows;
            const double share = nodes[below].rows / rows;
            const Model& own = models[nodes[below].model];
            for (std::size_t i = 0; i < mean.numbers.size(); i++)
                mean.numbers[i] += share * (own.numbers[i] - mean.numbers[i]);
        }
    }
    for (const int below : gone) {  // from here on nothing can fail; a place for the model is free now
        models.free(nodes[below].model);
        SplitPoints none;
        std::swap(split_points[below], none);
        records[below] = Record();
        nodes[below] = Node();
    }
    make_leaf(node, models.place(std::move(mean)), std::move(points));
}

}  // namespace driftree
