// Poisson: a loss for counts and rates; the linear predictor is the logarithm of the rate. Counts usually vary more than a
// Poisson distribution does. The ratio, the dispersion, is learnt as the spread and divides the deviance, so that losses are
// nats.
#pragma once
#include "gaussian.hpp"

namespace driftree {
namespace {

struct Poisson {
    static constexpr const char* kName = "poisson";
    static constexpr bool kIsJoint = false, kHasLabels = false, kIsAsked = false, kIsBounded = false, kHasLogLink = true;
    static constexpr double kLogScale = 0.0;
    static constexpr double kMost = 8.0;  // bound of the predictor: 3,000 times the mean
    static int outputs(int) { return 1; }

    struct Lanes : SpreadLanes {
        DRIFTREE_INLINE Slopes slopes(const Vector& predictors) const { return slopes(predictors, at(target)); }
        DRIFTREE_INLINE Slopes slopes(const Vector& predictors, const Vector& targets) const {
            const Vector most = choose(predictors > kMost, all(kMost), predictors),
                         log_rate = choose(most < -kMost, all(-kMost), most);
            const Mask is_negative = log_rate < 0.0;
            const Vector e = exp_negative(choose(is_negative, log_rate, -log_rate)), rate = choose(is_negative, e, 1.0 / e);
            const Mask is_some = targets > 1e-300;
            const Vector log_target = log_positive(choose(is_some, targets, 1.0));
            const Vector deviance = (rate - targets) + choose(is_some, targets * (log_target - log_rate), 0.0);
            // The curvature is the larger of both: a rate far below the target would make steps too long.
            return {all(1.0), deviance / at(spread) + at(half_log_spread), (rate - targets) / at(spread),
                    choose(rate > targets, rate, targets) / at(spread)};
        }
    };
    static bool learns(const LossState&) { return true; }
    static void learn(LossState& state, const LearntRow& row, const LossRates& rates) {
        const double error = row.residual[0] * row.then->spread, rate = row.target + error;
        learn_spread(state, error * error / (rate > 1e-6 ? rate : 1e-6), row.weight, rates.spread);
    }
    static double error(const LearntRow& row) {
        const double error = row.residual[0] * row.then->spread, rate = row.target + error;
        return std::fabs(error) / std::sqrt(row.then->spread * (rate > 1e-6 ? rate : 1e-6));
    }
    static void interval(const LossState& state, const double* predictors, double reach, double* out) {
        double rate;
        read(state, predictors, 1, &rate);
        const double half = reach * std::sqrt(state.spread * rate);
        out[0] = rate > half ? rate - half : 0.0, out[1] = rate + half;
    }
    static void read(const LossState&, const double* predictors, int, double* out) {
        const double p = predictors[0];
        out[0] = std::exp(p > kMost ? kMost : (p < -kMost ? -kMost : p));
    }
    static int clear_choice(const LossState&, const double*, int) { return 0; }
};

}  // namespace
}  // namespace driftree
