// Quantile: the pinball loss of several quantiles at once, as the likelihood of an asymmetric Laplace density whose scale is
// learnt. Each quantile has a linear predictor; where they cross, the prediction sorts them, which never increases the loss.
#pragma once
#include "gaussian.hpp"

namespace driftree {
namespace {

struct Quantile {
    static constexpr const char* kName = "quantile";
    static constexpr bool kIsJoint = true, kHasLabels = false, kIsAsked = false, kIsBounded = true, kHasLogLink = false;
    static int outputs(int n_levels) { return n_levels; }

    struct Lanes {  // only for losses with one predictor
        void set_state(int, const LossState&) {}
    };
    struct Slope {
        double ratio, hinge, curvature;
    };
    // Turns predictors [n] into residuals in place. Within a tenth of the scale the loss is a parabola. Beyond, its
    // curvature is that of a parabola that touches it from above. The quantiles share Newton's matrix, so the largest
    // curvature is used: a smaller one would throw the nearest quantile far beyond the target.
    static Slope slope(double* predictors, int n, double target, const LossState& state, const double* levels) {
        const double scale = std::sqrt(state.spread), near = 0.1 * scale;
        double sum = 0.0, curvature = 0.0;
        for (int k = 0; k < n; k++) {
            const double error = predictors[k] - target, size = error < 0.0 ? -error : error;
            const double side = size < near ? 0.5 + 0.5 * error / near : (error > 0.0 ? 1.0 : 0.0);
            sum += (error > 0.0 ? 1.0 - levels[k] : levels[k]) * size;
            predictors[k] = (side - levels[k]) / (scale * n);
            const double own = 0.5 / ((size > near ? size : near) * scale * n);
            curvature = own > curvature ? own : curvature;
        }
        return {1.0, sum / (scale * n) + state.half_log_spread, curvature};
    }
    // The scale of such a density is the mean of the losses. A mean of squares would depend on a few large errors, and so
    // would the offsets.
    static bool learns(const LossState&) { return true; }
    static void learn(LossState& state, const LearntRow& row, const LossRates& rates) {
        const double found = (row.loss - row.then->half_log_spread) * std::sqrt(row.then->spread);  // pinball loss
        const double scale = learn_mean(state, std::sqrt(state.spread), found, row.weight, rates.spread),
                     spread = scale * scale;
        state.spread = spread > rates.spread.least ? spread : rates.spread.least;
    }
    static void read(const LossState&, const double* predictors, int n, double* out) {
        for (int k = 0; k < n; k++) {  // insertion sort: there are few
            int i = k;
            for (; i > 0 && out[i - 1] > predictors[k]; i--) out[i] = out[i - 1];
            out[i] = predictors[k];
        }
    }
    static int clear_choice(const LossState&, const double*, int) { return 0; }
};

}  // namespace
}  // namespace driftree
