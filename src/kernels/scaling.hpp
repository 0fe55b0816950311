// Scaling: running moments of all features at once, and the simple models' inputs from a row of values.
#pragma once
#include <cmath>

#include "simple_models.hpp"
#include "vectors.hpp"

namespace driftree {
namespace {

// Squares of numbers beyond about 1e150 overflow a double, as do sums of numbers near 1e308. What overflows counts as the
// largest allowed sum of squares and leaves the mean unchanged: such numbers are scaled to the limits.
constexpr double kMostSquares = 1e300, kInfinity = __builtin_inf();

// Moments of the features in n rows X [n, stride]: weight, mean, squares around it, range, and whether all values are 0 or
// 1. NaN is missing. `Number` is eight features at a time (Vector), which stay in registers over all rows, or one of the
// remaining features (double).
struct Moments {
    double *count, *mean, *squares, *other, *low, *high;  // `other` is not 0 where a value is neither 0 nor 1
};
template <class Number>
void take_moments(const Moments& out, const double* X, const double* weights, int n, int stride, int j) {
    const Number zero = all<Number>(0.0);
    Number count = zero, sum = zero, squares = zero, other = zero, low = at<Number>(out.low + j),
           high = at<Number>(out.high + j);
    for (int i = 0; i < n; i++) {
        const Number row = at<Number>(X + static_cast<long>(i) * stride + j);
        const auto is_here = row >= row;
        const Number v = choose(is_here, row, zero), w = choose(is_here, all<Number>(weights[i]), zero),
                     product = v * (v - 1.0);
        count += w;
        sum += w * v;
        low = choose(row < low, row, low);
        high = choose(row > high, row, high);
        other += choose(product < 0.0, -product, product);
    }
    sum = sum / count;
    for (int i = 0; i < n; i++) {
        const Number row = at<Number>(X + static_cast<long>(i) * stride + j), distance = row - sum;
        squares += choose(row >= row, weights[i] * distance * distance, zero);
    }
    at<Number>(out.count + j) = count, at<Number>(out.mean + j) = sum, at<Number>(out.squares + j) = squares;
    at<Number>(out.other + j) = other, at<Number>(out.low + j) = low, at<Number>(out.high + j) = high;
}

// Chan's merge of these moments with the earlier ones, and the resulting scale. Here `other` is 1 where all values so far
// are 0 or 1; `has_value` is 0 for features without an input of their own.
template <class Number>
void merge_moments(const Scale& scale, const Moments& of, int j, bool by_range) {
    const Number zero = all<Number>(0.0), count = at<Number>(of.count + j), is_indicator = at<Number>(of.other + j);
    const Number low = at<Number>(of.low + j), high = at<Number>(of.high + j);
    Number &weight = at<Number>(scale.weight + j), &mean = at<Number>(scale.mean + j),
           &squares = at<Number>(scale.squares + j);
    Number &shift = at<Number>(scale.shift + j), &factor = at<Number>(scale.factor + j);
    const auto is_new = (count > 0.0) & (at<Number>(scale.has_value + j) > 0.0);
    const Number both = weight + count, delta = at<Number>(of.mean + j) - mean;
    const Number spread = at<Number>(of.squares + j) + delta * delta * (weight * count / both);
    const Number sum_of_squares = squares + choose(is_new, spread, zero), step = delta * (count / both);
    squares = choose(sum_of_squares < kMostSquares, sum_of_squares, all<Number>(kMostSquares));
    mean = mean + choose(is_new & (step < kInfinity) & (step > -kInfinity), step, zero);
    weight = choose(is_new, both, weight);
    if (by_range) {
        shift = choose(is_new, low, shift);
        factor = choose(is_new, 1.0 / (high - low), factor);
        at<Number>(scale.limit + j) = all<Number>(1e6);
        return;
    }
    const Number sd = root(squares / weight);
    const auto varies = (low < high) & (sd > 0.0) & (sd < 1e308), is_scaled = is_new & (is_indicator <= 0.0);
    shift = choose(is_scaled, mean, shift);
    factor = choose(is_scaled, choose(varies, 0.5 / sd, zero), factor);
    at<Number>(scale.limit + j) = choose(is_indicator > 0.0, all<Number>(1.0), all<Number>(scale.most));
}

// Reads the first m of `stride` columns of n rows.
void update_scale(const Scale& scale, const double* X, int stride, const double* weights, int n, int m, bool by_range) {
    const Moments moments = {scale.scratch,         scale.scratch + m, scale.scratch + 2 * m,
                             scale.scratch + 3 * m, scale.low,         scale.high};
    const int whole = m / kLanes * kLanes;
    for (int j = 0; j < whole; j += kLanes) take_moments<Vector>(moments, X, weights, n, stride, j);
    for (int j = whole; j < m; j++) take_moments<double>(moments, X, weights, n, stride, j);
    for (int j = 0; j < m; j++) {
        scale.is_indicator[j] &= moments.other[j] == 0.0;
        moments.other[j] = scale.is_indicator[j] ? 1.0 : 0.0;
    }
    for (int j = 0; j < whole; j += kLanes) merge_moments<Vector>(scale, moments, j, by_range);
    for (int j = whole; j < m; j++) merge_moments<double>(scale, moments, j, by_range);
}

// A halved z-score, clipped to three deviations (or to `most`), or the position in the range so far; 0 for missing values.
void scale_row(const Scale& scale, const double* __restrict x, int m, double* __restrict out) {
    for (int j = 0; j < m; j++) {
        const double z = (x[j] - scale.shift[j]) * scale.factor[j], limit = scale.limit[j];
        const double clipped = z < -limit ? -limit : (z > limit ? limit : z);
        out[j] = z == z ? clipped : 0.0;
    }
}

// Like Bends::input(), for several bends.
void bend_inputs(const double* __restrict low, const double* __restrict high, int n, double* __restrict values) {
    for (int i = 0; i < n; i++) {
        const double share = (values[i] - low[i]) / (high[i] - low[i]);
        const double risen = share > 0.0 ? share : 0.0;
        values[i] = risen < 1.0 ? risen : 1.0;
    }
}

void hinges(const HingeColumns& hinge, const double* z, int n, double* __restrict out) {
    for (int i = 0; i < n; i++) {
        const double sum = hinge.a[i] * z[hinge.first[i]] + hinge.b[i] * z[hinge.second[i]] + hinge.c[i];
        out[i] = sum > 0.0 ? sum : 0.0;
    }
}

}  // namespace
}  // namespace driftree
