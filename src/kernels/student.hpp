// Student: a robust loss for numbers, -log of Student's density with five degrees of freedom around the linear predictor. An
// error costs little more than one half as large, and moves the model less. The spread is learnt by EM.
#pragma once
#include "gaussian.hpp"

namespace driftree {
namespace {

struct Student {
    static constexpr const char* kName = "student";
    static constexpr bool kIsJoint = false, kHasLabels = false, kIsAsked = false, kIsBounded = false, kHasLogLink = false;
    static constexpr double kFreedom = 5.0;
    static constexpr double kLogScale = 0.9686195890547243;  // log(sqrt(5 pi) gamma(5/2) / gamma(3))
    static constexpr double kFarthest = 1e100;               // its cube is finite
    static int outputs(int) { return 1; }

    struct Lanes : SpreadLanes {
        DRIFTREE_INLINE Slopes slopes(const Vector& predictors) const { return slopes(predictors, at(target)); }
        DRIFTREE_INLINE Slopes slopes(const Vector& predictors, const Vector& targets) const {
            const Vector error = predictors - targets, width = kFreedom * at(spread), reach = width + error * error;
            const Vector ratio = reach / width, far = choose(ratio < kFarthest, ratio, kFarthest);
            const Vector curvature = (kFreedom + 1.0) / reach;
            return {far * far * far, at(half_log_spread) + kLogScale, error * curvature,
                    curvature};  // (freedom + 1) / 2 = 3
        }
    };
    static bool learns(const LossState&) { return true; }
    static void learn(LossState& state, const LearntRow& row, const LossRates& rates) {
        const double square = square_of(row);
        learn_spread(state, (kFreedom + 1.0) * square / (kFreedom + square) * row.then->spread, row.weight, rates.spread);
    }
    // The squared error over the spread. It follows from the loss, not from the slope, which decreases again for large
    // errors.
    static double square_of(const LearntRow& row) {
        const double far = std::exp((row.loss - kLogScale - row.then->half_log_spread) / 3.0);
        return far > 1.0 ? kFreedom * (far - 1.0) : 0.0;
    }
    static double error(const LearntRow& row) { return std::sqrt(square_of(row)); }
    static void interval(const LossState& state, const double* predictors, double reach, double* out) {
        Gaussian::interval(state, predictors, reach, out);
    }
    static void read(const LossState&, const double* predictors, int, double* out) { out[0] = predictors[0]; }
    static int clear_choice(const LossState&, const double*, int) { return 0; }
};

}  // namespace
}  // namespace driftree
