// What the engines share about the layout of their models: moving weights to other sizes, and logits to probabilities.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "simple_models.hpp"

namespace driftree {

// Copies lines of `old_stride` values to lines of `stride` values; zeros behind them, or what is cut off is padding.
template <class Values>
Values widened(const Values& lines, int old_stride, int stride) {
    const std::size_t n = lines.size() / old_stride;
    Values wide(n * stride, 0);
    for (std::size_t i = 0; i < n; i++)
        std::copy_n(lines.data() + i * old_stride, std::min(old_stride, stride), wide.data() + i * stride);
    return wide;
}

// Moves weights [outputs, stride] to a wider stride or more outputs; `squares` are sums of squared gradients.
inline void move_weights(const Shape& old, const double* from, const Shape& shape, double* to, bool squares) {
    for (int k = 0; k < old.outputs; k++) {
        const int target = old.outputs == 1 && shape.outputs > 1 ? 1 : k;
        std::copy_n(from + k * old.stride, old.columns, to + target * shape.stride);
    }
    if (old.outputs > 1 || shape.outputs == 1) return;
    for (int c = 0; c < old.columns; c++) {  // log-odds w become the logits -w/2, w/2
        to[c] = squares ? to[shape.stride + c] : -0.5 * to[shape.stride + c];
        if (!squares) to[shape.stride + c] *= 0.5;
    }
}

// Probabilities of `n_classes` from log-odds (one output) or logits.
inline void fill_probabilities(const Shape& shape, const Head& head, const double* logits, int n_classes, double* out) {
    if (shape.outputs == 1) {
        double p = 1.0 / (1.0 + std::exp(-logits[0]));
        if (head.has_floor != 0.0) p = head.floor[1] + (1.0 - head.floor[0] - head.floor[1]) * p;
        out[0] = n_classes < 2 ? 1.0 : 1.0 - p;
        if (n_classes > 1) out[1] = p;
        return;
    }
    const double top = *std::max_element(logits, logits + shape.outputs);
    double sum = 0.0;
    for (int k = 0; k < shape.outputs; k++) sum += out[k] = std::exp(logits[k] - top);
    for (int k = 0; k < shape.outputs; k++) out[k] /= sum;
}

// The most probable class, the first of equals: that of the largest logit, unless others are so near that rounding
// decides, or a noise floor has a say.
inline int most_probable(const Shape& shape, const Head& head, const double* logits, int n_classes) {
    if (shape.outputs == 1) {
        if (n_classes > 1 && head.has_floor == 0.0 && std::abs(logits[0]) > 1e-9) return logits[0] > 0.0;
    } else {
        const auto best = std::max_element(logits, logits + shape.outputs);
        const auto n_near = std::count_if(logits, logits + shape.outputs, [&](double t) { return t > *best - 1e-9; });
        if (n_near == 1) return static_cast<int>(best - logits);
    }
    std::vector<double> probabilities(n_classes);
    fill_probabilities(shape, head, logits, n_classes, probabilities.data());
    return static_cast<int>(std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin());
}

}  // namespace driftree
