// Softmax: the loss for three or more labels, -log P(label), with one linear predictor per label.
#pragma once
#include <cmath>

#include "simple_models.hpp"
#include "vectors.hpp"

namespace driftree {
namespace {

struct Softmax {
    static constexpr const char* kName = "softmax";
    static constexpr bool kIsJoint = true;  // predictors depend on each other: one row at a time
    static constexpr bool kHasLabels = true, kIsAsked = false, kIsBounded = false, kHasLogLink = false;
    static int outputs(int n_classes) { return n_classes; }

    struct Lanes {  // only for losses with one predictor
        void set_state(int, const LossState&) {}
    };
    // For one row: the loss is log(ratio) + hinge, the curvature is half of sum p (1 - p).
    struct Slope {
        double ratio, hinge, curvature;
    };
    // Turns predictors [n, padded to whole vectors] into residuals in place.
    static Slope slope(double* predictors, int n, double target, const LossState&, const double*) {
        const int end = padded(n), label = static_cast<int>(target);
        for (int k = n; k < end; k++) predictors[k] = -1e300;
        Vector top = at(predictors);
        for (int k = kLanes; k < end; k += kLanes) top = choose(at(predictors + k) > top, at(predictors + k), top);
        double most = top[0];
        for (int lane = 1; lane < kLanes; lane++) most = top[lane] > most ? top[lane] : most;
        const double hinge = most - predictors[label];
        Vector sum = all(0.0);
        for (int k = 0; k < end; k += kLanes) sum += at(predictors + k) = exp_negative(at(predictors + k) - most);
        const double ratio = total(sum);
        Vector spread = all(0.0);
        for (int k = 0; k < end; k += kLanes) {
            const Vector p = at(predictors + k) / ratio;
            spread += p * (1.0 - p);
            at(predictors + k) = p;
        }
        predictors[label] -= 1.0;
        return {ratio, hinge, 0.5 * total(spread)};
    }
    static bool learns(const LossState&) { return false; }  // has no state of its own
    static void learn(LossState&, const LearntRow&, const LossRates&) {}

    static void read(const LossState&, const double* predictors, int n_classes, double* probabilities) {
        double top = predictors[0], sum = 0.0;
        for (int k = 1; k < n_classes; k++) top = predictors[k] > top ? predictors[k] : top;
        for (int k = 0; k < n_classes; k++) sum += probabilities[k] = std::exp(predictors[k] - top);
        for (int k = 0; k < n_classes; k++) probabilities[k] /= sum;
    }
    // The most probable label if it is clear, or -1 if others are so close that rounding decides.
    static int clear_choice(const LossState&, const double* predictors, int n_classes) {
        int best = 0, n_near = 0;
        for (int k = 1; k < n_classes; k++)
            if (predictors[k] > predictors[best]) best = k;
        for (int k = 0; k < n_classes; k++) n_near += predictors[k] > predictors[best] - 1e-9;
        return n_near == 1 ? best : -1;
    }
};

}  // namespace
}  // namespace driftree
