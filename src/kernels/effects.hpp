// Effects: how much the inputs of a node's model matter. Computed for every leaf at every sample of a history.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "nodes.hpp"
#include "table.hpp"

namespace driftree {

// A feature's contribution to one output: piecewise linear between ascending knots, constant outside.
struct FeatureCurve {
    std::vector<double> knots, values;

    double operator()(double place) const {
        const auto above = std::upper_bound(knots.begin(), knots.end(), place) - knots.begin();
        if (above == 0 || above == std::ssize(knots)) return values[std::max<std::ptrdiff_t>(above - 1, 0)];
        const double share = (place - knots[above - 1]) / (knots[above] - knots[above - 1]);
        return values[above - 1] + share * (values[above] - values[above - 1]);
    }
    // The largest rise, or fall (negative), over at most `width` between `first` and `last`. One end of it is at a knot.
    double largest_move(double first, double last, double width) const {
        std::vector<double> ends = {first};
        for (const double knot : knots)
            if (first < knot && knot < last) ends.push_back(knot);
        ends.push_back(last);
        double largest = 0.0;
        const auto take = [&largest](double move) {
            if (std::abs(move) > std::abs(largest)) largest = move;
        };
        for (std::size_t i = 0; i < ends.size(); i++) {
            const double own = (*this)(ends[i]);
            for (std::size_t k = i; k < ends.size() && ends[k] <= ends[i] + width * (1.0 + 1e-9); k++)
                take((*this)(ends[k]) - own);
            if (ends[i] + width < last) take((*this)(ends[i] + width) - own);
            if (ends[i] - width > first) take(own - (*this)(ends[i] - width));
        }
        return largest;
    }
};

// The range of a numeric feature at a node, according to the splits above it.
template <class Engine>
std::pair<double, double> way_through(const Engine& engine, int node, int feature) {
    std::pair<double, double> way = {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    for (int parent; (parent = engine.nodes[node].parent) >= 0; node = parent) {
        const Condition& split = engine.nodes[parent].condition;
        if (split.equality || split.feature != feature) continue;
        double& end = engine.nodes[parent].left == node ? way.second : way.first;
        end = engine.nodes[parent].left == node ? std::min(end, split.threshold) : std::max(end, split.threshold);
    }
    return way;
}

// The weights of a node's model, [outputs, columns]. For a feature with bends, the largest move of its curve as the value
// grows by up to two deviations, within the bent part that the node's rows can reach or, if there is none, within the
// limits.
template <class Engine>
std::vector<double> effects_of(const Engine& engine, int node) {
    const Table& table = *engine.table;
    const Scaler& scaler = table.scaler;
    const Bends& bends = engine.bends_of(node);
    const int columns = table.n_columns(), outputs = engine.n_outputs(), stride = engine.shape_of(node).stride;
    std::vector<double> weights(static_cast<std::size_t>(outputs) * stride), effects;
    engine.weights_of(node, weights.data());
    for (int k = 0; k < outputs; k++)
        effects.insert(effects.end(), weights.begin() + static_cast<long>(k) * stride,
                       weights.begin() + static_cast<long>(k) * stride + columns);
    for (int i = 0; i < bends.n(); i++) {
        const int j = bends.feature[i];
        if (std::find(bends.feature.begin(), bends.feature.begin() + i, j) != bends.feature.begin() + i) continue;
        const double factor = scaler.factor[j], reach = factor > 0.0 ? scaler.most / factor : 0.0;
        FeatureCurve curve = {{scaler.shift[j] - reach, scaler.shift[j] + reach}, {}};
        double low = bends.low[i], high = bends.high[i];
        for (int b = i; b < bends.n(); b++) {
            if (bends.feature[b] != j) continue;
            curve.knots.insert(curve.knots.end(), {bends.low[b], bends.high[b]});
            low = std::min(low, bends.low[b]);
            high = std::max(high, bends.high[b]);
        }
        std::sort(curve.knots.begin(), curve.knots.end());
        curve.knots.erase(std::unique(curve.knots.begin(), curve.knots.end()), curve.knots.end());
        const auto way = way_through(engine, node, j);
        double first = std::max(low, way.first), last = std::min(high, way.second);
        if (!(first < last)) {
            first = std::max(scaler.shift[j] - reach, way.first);
            last = std::min(scaler.shift[j] + reach, way.second);
        }
        if (!(first < last)) first = low, last = high;
        const int column = table.schema.value_column[j];
        const double width = factor > 0.0 ? 1.0 / factor : std::numeric_limits<double>::infinity();  // 0: underflow
        for (int k = 0; k < outputs; k++) {
            const double* own = weights.data() + static_cast<long>(k) * stride;
            curve.values.clear();
            for (const double knot : curve.knots) {
                const double z = (knot - scaler.shift[j]) * factor, limit = scaler.limit[j];
                double value = own[column] * (z == z ? std::clamp(z, -limit, limit) : 0.0);
                for (int b = i; b < bends.n(); b++)
                    if (bends.feature[b] == j) value += own[columns + b] * bends.input(b, knot);
                curve.values.push_back(value);
            }
            effects[static_cast<std::size_t>(k) * columns + column] = curve.largest_move(first, last, width);
        }
    }
    return effects;
}

}  // namespace driftree
