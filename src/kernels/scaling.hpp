// Scaling: running moments of all features at once, and a row of values to the inputs of the simple models. Plain loops
// over features, without branches, which the compiler turns into vectors.
#pragma once
#include <cmath>

#include "simple_models.hpp"

namespace driftree {
namespace {

// Chan's merge of the moments of n rows X [n, m]; NaN is missing. `has_value` is 0 for features without an input of their own.
void update_scale(const Scale& scale, const double* X, const double* weights, int n, int m, bool by_range) {
    double* __restrict count = scale.scratch;
    double* __restrict sum = count + m;
    double* __restrict squares = sum + m;
    double* __restrict other = squares + m;  // not 0 where a value is neither 0 nor 1
    double* __restrict low = scale.low;
    double* __restrict high = scale.high;
    for (int j = 0; j < 4 * m; j++) scale.scratch[j] = 0.0;
    for (int i = 0; i < n; i++) {
        const double* __restrict row = X + static_cast<long>(i) * m;
        for (int j = 0; j < m; j++) {
            const bool is_here = row[j] == row[j];
            const double v = is_here ? row[j] : 0.0, w = is_here ? weights[i] : 0.0;
            count[j] += w;
            sum[j] += w * v;
            low[j] = row[j] < low[j] ? row[j] : low[j];
            high[j] = row[j] > high[j] ? row[j] : high[j];
            other[j] += std::fabs(v * (v - 1.0));
        }
    }
    for (int j = 0; j < m; j++) sum[j] /= count[j];  // the mean of these rows
    for (int i = 0; i < n; i++) {
        const double* __restrict row = X + static_cast<long>(i) * m;
        for (int j = 0; j < m; j++) {
            const double distance = row[j] - sum[j];
            squares[j] += row[j] == row[j] ? weights[i] * distance * distance : 0.0;
        }
    }
    for (int j = 0; j < m; j++) {
        scale.is_indicator[j] &= other[j] == 0.0;
        other[j] = scale.is_indicator[j] ? 1.0 : 0.0;
    }
    for (int j = 0; j < m; j++) {
        const bool is_new = count[j] > 0.0 && scale.has_value[j] != 0.0;
        const double both = scale.weight[j] + count[j], delta = sum[j] - scale.mean[j];
        const double spread = squares[j] + delta * delta * (scale.weight[j] * count[j] / both);
        scale.squares[j] += is_new ? spread : 0.0;
        scale.mean[j] += is_new ? delta * (count[j] / both) : 0.0;
        scale.weight[j] = is_new ? both : scale.weight[j];
        const double sd = std::sqrt(scale.squares[j] / scale.weight[j]);
        const bool varies = low[j] < high[j] && sd > 0.0 && sd < 1e308;
        const bool is_scaled = is_new && (by_range || other[j] == 0.0);
        const double shift = by_range ? low[j] : scale.mean[j];
        const double factor = by_range ? 1.0 / (high[j] - low[j]) : (varies ? 0.5 / sd : 0.0);
        scale.shift[j] = is_scaled ? shift : scale.shift[j];
        scale.factor[j] = is_scaled ? factor : scale.factor[j];
        scale.limit[j] = by_range || other[j] != 0.0 ? 1e6 : 1.5;
    }
}

// A z-score clipped at 3 and halved, or the place in the range seen; missing values give 0.
void scale_row(const Scale& scale, const double* __restrict x, int m, double* __restrict out) {
    for (int j = 0; j < m; j++) {
        const double z = (x[j] - scale.shift[j]) * scale.factor[j], limit = scale.limit[j];
        const double clipped = z < -limit ? -limit : (z > limit ? limit : z);
        out[j] = z == z ? clipped : 0.0;
    }
}

}  // namespace
}  // namespace driftree
