// SplitPoints: the possible splits of a FIMT-DD leaf, one extended binary search tree (E-BST) per feature (Ikonomovska et
// al. 2011).
//
// A key is an observed value, with the class weights of the rows that reached it and are not above it. One in-order walk
// over the keys gives, for each, the class weights of all rows with value <= key. The codes of a categorical feature are
// keys as well: neighbours differ by the rows of one level. For a numeric target there are three sums instead of class
// weights: of 1, of the target and of its square.
//
// A feature has at most max_keys() keys, the first distinct values. Rows with other values still count at the keys they
// pass, so every key stays exact; 256 thresholds, distributed like the rows, miss the best one by 0.4 % of the rows. (The
// 2011 paper makes room by dropping bad keys; a key created after that lacks the rows before it.)
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "memory.hpp"
#include "models.hpp"
#include "nodes.hpp"
#include "target.hpp"

namespace driftree {

// Mean standard deviation of the class indicators: sd = sqrt(p (1 - p)). For two classes, that of the second is enough.
inline double indicator_deviation(const double* counts, int n_classes, double n) {
    if (n <= 0.0) return 0.0;
    const int first = n_classes == 2 ? 1 : 0;
    double sum = 0.0;
    for (int k = first; k < n_classes; k++) {
        const double p = std::clamp(counts[k] / n, 0.0, 1.0);
        sum += std::sqrt(p * (1.0 - p));
    }
    return sum / (n_classes - first);
}

// The sums of a numeric target, in place of class weights.
enum NumberSums { kWeight, kSum, kSquares, kNumberSums };

inline double number_deviation(const double* sums) {
    if (sums[kWeight] <= 0.0) return 0.0;
    const double mean = sums[kSum] / sums[kWeight];
    return std::sqrt(std::max(sums[kSquares] / sums[kWeight] - mean * mean, 0.0));
}

// Adds a row to the sums of a key that it passes.
struct LabelCount {
    int label;
    double weight;
    void operator()(double* sums) const { sums[label] += weight; }
};
struct NumberCount {
    double target, weight;
    void operator()(double* sums) const {
        sums[kWeight] += weight;
        sums[kSum] += weight * target;
        sums[kSquares] += weight * target * target;
    }
};

struct SplitPoint {
    double reduction = 0.0;  // reduction of the standard deviation (SDR)
    Condition condition;
};

struct SplitPoints {
    // A key is contiguous in memory, since a row visits a dozen of them per feature: value, children, class weights.
    static constexpr int kHeadOfKey = 2;
    struct Children {
        std::int32_t below = -1, above = -1;
    };
    static constexpr int kMaxKeys = 256, kMinKeys = 16, kBudget = 16384;  // the budget is in doubles per feature
    static constexpr double kRounding = 1e-9;  // smaller shares of rows, and reductions, may be rounding errors
    int n_classes = 2;                         // or kNumberSums
    std::vector<double> counts;                // [classes] weights of all rows
    std::vector<double> present;               // [features, classes] of rows with a value
    std::vector<std::int32_t> root, n_keys;    // [features]
    std::vector<double> keys;                  // [keys of all features, kHeadOfKey + classes]

    SplitPoints() = default;
    SplitPoints(int n_features, int classes)
        : n_classes(classes), counts(classes, 0.0), present(static_cast<std::size_t>(n_features) * classes, 0.0),
          root(n_features, -1), n_keys(n_features, 0) {}

    void reserve(int n_more) {  // so that add_feature() cannot fail
        const std::size_t n = root.size() + n_more;
        make_capacity(present, n * n_classes);
        make_capacity(root, n);
        make_capacity(n_keys, n);
    }
    void add_feature() {
        present.insert(present.end(), n_classes, 0.0);
        root.push_back(-1);
        n_keys.push_back(0);
    }
    // The same for more classes, or an empty one if it has too many keys for them.
    SplitPoints with_classes(int classes) const {
        SplitPoints wider(static_cast<int>(root.size()), classes);
        if (std::any_of(n_keys.begin(), n_keys.end(), [&](int n) { return n > wider.max_keys(); })) return wider;
        wider.counts = widened(counts, n_classes, classes);
        wider.present = widened(present, n_classes, classes);
        wider.root = root;
        wider.n_keys = n_keys;
        wider.keys = widened(keys, kHeadOfKey + n_classes, kHeadOfKey + classes);
        return wider;
    }
    bool is_empty() const {
        return std::all_of(counts.begin(), counts.end(), [](double count) { return count == 0.0; });
    }
    // Makes room for the keys that a row may add.
    void make_room_for_row() {
        const std::size_t n = root.size(), width = kHeadOfKey + n_classes;
        make_room(keys, n * width, std::max(keys.size() + n * width, n * max_keys() * width));
        walks().reserve(n);
    }
    // Counts a row. All features descend their trees together, one level at a time: while one waits for memory, the others
    // go on.
    template <class Count>
    void add(const double* x, const Count& count) {
        auto& walks = SplitPoints::walks();
        walks.clear();
        count(counts.data());
        for (int j = 0; j < static_cast<int>(root.size()); j++) {
            if (std::isnan(x[j])) continue;
            count(present.data() + static_cast<std::size_t>(j) * n_classes);
            walks.push_back({j, root[j], -1, x[j]});
        }
        while (!walks.empty()) {
            std::size_t n = 0;
            for (const Walk& walk : walks)
                if (const Walk next = step(walk, count); next.feature >= 0) walks[n++] = next;
            walks.resize(n);
        }
    }
    // Calls visit(key, counts of the rows with value <= key) for the keys of a feature in ascending order.
    template <class Visit>
    void walk(int feature, Visit&& visit) const {
        std::vector<std::int32_t> path;
        std::vector<double> left(n_classes, 0.0);  // counts of the rows below the subtree
        std::vector<double> lefts;                 // the same for the nodes of the path
        int node = root[feature];
        while (node >= 0 || !path.empty()) {
            for (; node >= 0; node = children(node).below) {
                path.push_back(node);
                lefts.insert(lefts.end(), left.begin(), left.end());
            }
            node = path.back();
            path.pop_back();
            const double* own = place(node) + kHeadOfKey;
            const double* before = lefts.data() + lefts.size() - n_classes;
            for (int k = 0; k < n_classes; k++) left[k] = before[k] + own[k];
            lefts.resize(lefts.size() - n_classes);
            visit(*place(node), left.data());
            node = children(node).above;
        }
    }
    // The split of a feature that reduces the deviation most; the first of equals. Missing values go right; "is missing",
    // with only missing values on the left, is a split as well.
    SplitPoint best(int feature, bool is_categorical, bool has_labels) const {
        SplitPoint found{kRounding, {}};
        const auto rows = [&](const double* sums) { return has_labels ? sum(sums) : sums[kWeight]; };
        const auto deviation_of = [&](const double* sums, double n_rows) {
            return has_labels ? indicator_deviation(sums, n_classes, n_rows) : number_deviation(sums);
        };
        const double n = rows(counts.data()), deviation = deviation_of(counts.data(), n);
        std::vector<double> side(n_classes), rest(n_classes), last(n_classes, 0.0);
        const auto consider = [&](const Condition& condition) {
            for (int k = 0; k < n_classes; k++) rest[k] = counts[k] - side[k];
            const double n_side = rows(side.data()), n_rest = rows(rest.data());
            if (n_side <= kRounding * n || n_rest <= kRounding * n) return;
            const double reduction =
                deviation - n_side / n * deviation_of(side.data(), n_side) - n_rest / n * deviation_of(rest.data(), n_rest);
            if (reduction > found.reduction) found = {reduction, condition};
        };
        const double* all = present.data() + static_cast<std::size_t>(feature) * n_classes;
        walk(feature, [&](double value, const double* left) {
            if (!is_categorical && rows(all) - rows(left) <= kRounding * n) return;  // it would be the same as "is missing"
            for (int k = 0; k < n_classes; k++) side[k] = left[k] - (is_categorical ? last[k] : 0.0);
            std::copy_n(left, n_classes, last.data());
            consider({feature, value, is_categorical, false});
        });
        for (int k = 0; k < n_classes; k++) side[k] = counts[k] - all[k];
        consider({feature, -std::numeric_limits<double>::infinity(), false, true});
        return found;
    }
    // Converts the sums for a target in other units: new = factor old + shift.
    void convert(const Conversion& to) {
        const auto each = [&](double* sums) {
            sums[kSquares] = to.factor * to.factor * sums[kSquares] + 2.0 * to.factor * to.shift * sums[kSum] +
                             to.shift * to.shift * sums[kWeight];
            sums[kSum] = to.factor * sums[kSum] + to.shift * sums[kWeight];
        };
        if (!counts.empty()) each(counts.data());
        for (std::size_t i = 0; i < present.size(); i += kNumberSums) each(present.data() + i);
        for (std::size_t i = 0; i < keys.size(); i += kHeadOfKey + kNumberSums) each(keys.data() + i + kHeadOfKey);
    }
    void check(int n_features, int classes) const;  // soundness.cpp
    void heal();
    template <class Archive>
    void visit(Archive& a) {
        a("n_classes", n_classes), a("counts", counts), a("present", present), a("root", root), a("n_keys", n_keys);
        a("keys", keys);
    }

private:
    struct Walk {  // path of a row's value down the tree of a feature
        std::int32_t feature = -1, node = -1, parent = -1;
        double value = 0.0;
    };
    static std::vector<Walk>& walks() {
        thread_local std::vector<Walk> kept;
        return kept;
    }
    int max_keys() const { return std::clamp(kBudget / (kHeadOfKey + n_classes), kMinKeys, kMaxKeys); }
    double sum(const double* values) const {
        double total = 0.0;
        for (int k = 0; k < n_classes; k++) total += values[k];
        return total;
    }
    std::size_t offset(int node) const { return static_cast<std::size_t>(node) * (kHeadOfKey + n_classes); }
    const double* place(int node) const { return keys.data() + offset(node); }
    Children children(int node) const { return std::bit_cast<Children>(place(node)[1]); }

    // Counts a row at the next key of a feature, or creates that key; returns feature -1 at the end.
    template <class Count>
    Walk step(const Walk& walk, const Count& count) {
        if (walk.node < 0) {
            if (n_keys[walk.feature] < max_keys()) add_key(walk, count);
            return {};
        }
        double* key = keys.data() + offset(walk.node);
        if (walk.value <= key[0]) count(key + kHeadOfKey);
        if (walk.value == key[0]) return {};
        const Children next = std::bit_cast<Children>(key[1]);
        return {walk.feature, walk.value < key[0] ? next.below : next.above, walk.node, walk.value};
    }
    template <class Count>
    void add_key(const Walk& walk, const Count& count) {
        const int fresh = static_cast<int>(keys.size()) / (kHeadOfKey + n_classes);
        n_keys[walk.feature]++;
        if (walk.parent < 0) {
            root[walk.feature] = fresh;
        } else {
            double* parent = keys.data() + offset(walk.parent);
            Children next = std::bit_cast<Children>(parent[1]);
            (walk.value < parent[0] ? next.below : next.above) = fresh;
            parent[1] = std::bit_cast<double>(next);
        }
        keys.insert(keys.end(), {walk.value, std::bit_cast<double>(Children())});
        keys.insert(keys.end(), n_classes, 0.0);
        count(keys.data() + keys.size() - n_classes);
    }
};

}  // namespace driftree
