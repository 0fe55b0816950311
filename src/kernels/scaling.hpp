// Scaling: running moments of all features at once, and a row of values to the inputs of the simple models. Plain loops
// over features, without branches, which the compiler turns into vectors, but for the sums over rows.
#pragma once
#include <cmath>

#include "simple_models.hpp"
#include "vectors.hpp"

namespace driftree {
namespace {

// Squares of numbers beyond about 1e150 have no room in a double, nor have sums of numbers near 1e308. What overflows
// counts as the largest sum of squares there may be, and leaves the mean where it is: such numbers scale to the limits.
constexpr double kMostSquares = 1e300, kInfinity = __builtin_inf();

// What n rows X [n, stride] say of their features: weight, mean, squares around it, range, and what is neither 0 nor 1. NaN is
// missing. A vector of features stays in registers over all rows.
struct Moments {
    double *count, *mean, *squares, *other, *low, *high;  // `other` is not 0 where a value is neither 0 nor 1
};
inline void moments_of_vector(const Moments& out, const double* X, const double* weights, int n, int stride, int j) {
    Vector count = all(0.0), sum = all(0.0), squares = all(0.0), other = all(0.0), low = at(out.low + j),
           high = at(out.high + j);
    for (int i = 0; i < n; i++) {
        const Vector& row = at(X + static_cast<long>(i) * stride + j);
        const Mask is_here = row >= row;
        const Vector v = choose(is_here, row, 0.0), w = choose(is_here, all(weights[i]), 0.0), product = v * (v - 1.0);
        count += w;
        sum += w * v;
        low = choose(row < low, row, low);
        high = choose(row > high, row, high);
        other += choose(product < 0.0, -product, product);
    }
    sum = sum / count;
    for (int i = 0; i < n; i++) {
        const Vector& row = at(X + static_cast<long>(i) * stride + j);
        const Vector distance = row - sum;
        squares += choose(row >= row, weights[i] * distance * distance, 0.0);
    }
    at(out.count + j) = count, at(out.mean + j) = sum, at(out.squares + j) = squares, at(out.other + j) = other;
    at(out.low + j) = low, at(out.high + j) = high;
}
// The same for one feature.
inline void moments_of_feature(const Moments& out, const double* X, const double* weights, int n, int stride, int j) {
    double count = 0.0, sum = 0.0, squares = 0.0, other = 0.0, low = out.low[j], high = out.high[j];
    for (int i = 0; i < n; i++) {
        const double value = X[static_cast<long>(i) * stride + j];
        const bool is_here = value == value;
        const double v = is_here ? value : 0.0, w = is_here ? weights[i] : 0.0;
        count += w;
        sum += w * v;
        low = value < low ? value : low;
        high = value > high ? value : high;
        other += std::fabs(v * (v - 1.0));
    }
    sum /= count;
    for (int i = 0; i < n; i++) {
        const double value = X[static_cast<long>(i) * stride + j], distance = value - sum;
        squares += value == value ? weights[i] * distance * distance : 0.0;
    }
    out.count[j] = count, out.mean[j] = sum, out.squares[j] = squares, out.other[j] = other;
    out.low[j] = low, out.high[j] = high;
}

// Chan's merge of the moments of n rows, in the first m of `stride` columns. `has_value` is 0 for features without an input of their own.
void update_scale(const Scale& scale, const double* X, int stride, const double* weights, int n, int m, bool by_range) {
    double *count = scale.scratch, *mean = count + m, *squares = mean + m, *other = squares + m;
    const double *low = scale.low, *high = scale.high;
    const Moments moments = {count, mean, squares, other, scale.low, scale.high};
    int j0 = 0;
    for (; j0 + kLanes <= m; j0 += kLanes) moments_of_vector(moments, X, weights, n, stride, j0);
    for (; j0 < m; j0++) moments_of_feature(moments, X, weights, n, stride, j0);
    for (int j = 0; j < m; j++) {
        scale.is_indicator[j] &= other[j] == 0.0;
        other[j] = scale.is_indicator[j] ? 1.0 : 0.0;
    }
    for (int j = 0; j < m; j++) {
        const bool is_new = count[j] > 0.0 && scale.has_value[j] != 0.0;
        const double both = scale.weight[j] + count[j], delta = mean[j] - scale.mean[j];
        const double spread = squares[j] + delta * delta * (scale.weight[j] * count[j] / both);
        const double sum_of_squares = scale.squares[j] + (is_new ? spread : 0.0), step = delta * (count[j] / both);
        scale.squares[j] = sum_of_squares < kMostSquares ? sum_of_squares : kMostSquares;
        scale.mean[j] += is_new && std::fabs(step) < kInfinity ? step : 0.0;
        scale.weight[j] = is_new ? both : scale.weight[j];
        const double sd = std::sqrt(scale.squares[j] / scale.weight[j]);
        const bool varies = low[j] < high[j] && sd > 0.0 && sd < 1e308;
        const bool is_scaled = is_new && (by_range || other[j] == 0.0);
        const double shift = by_range ? low[j] : scale.mean[j];
        const double factor = by_range ? 1.0 / (high[j] - low[j]) : (varies ? 0.5 / sd : 0.0);
        scale.shift[j] = is_scaled ? shift : scale.shift[j];
        scale.factor[j] = is_scaled ? factor : scale.factor[j];
        scale.limit[j] = by_range || other[j] != 0.0 ? 1e6 : scale.most;
    }
}

// A z-score clipped (at 3, or what `most` says) and halved, or the place in the range seen; missing values give 0.
void scale_row(const Scale& scale, const double* __restrict x, int m, double* __restrict out) {
    for (int j = 0; j < m; j++) {
        const double z = (x[j] - scale.shift[j]) * scale.factor[j], limit = scale.limit[j];
        const double clipped = z < -limit ? -limit : (z > limit ? limit : z);
        out[j] = z == z ? clipped : 0.0;
    }
}

// As Bends::input(), of several.
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
