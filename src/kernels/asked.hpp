// Asked: a custom loss in Python, as functions of whole arrays. It calls them where other losses compute; everything else is
// as with the Gaussian, or with a log link as with Poisson.
#pragma once
#include "gaussian.hpp"
#include "poisson.hpp"

namespace driftree {

// Interface to the Python functions (python_loss.hpp). Targets, predictors and losses are scaled, without units.
struct AskedLoss {
    struct Columns {  // [n]
        double *predictor, *target;
        double *loss, *slope, *curvature, *spread;
        Columns from(int i) const { return {predictor + i, target + i, loss + i, slope + i, curvature + i, spread + i}; }
    };
    virtual Columns room(int n) = 0;
    virtual void ask(int n) = 0;                // fills the last four columns or throws
    virtual double variance_power() const = 0;  // with a log link, power of the mean: 1 for counts, 2 for amounts

protected:
    ~AskedLoss() = default;
};

namespace {

template <class Like>
struct AskedLike {
    static constexpr const char* kName = Like::kHasLogLink ? "asked_log" : "asked";
    static constexpr bool kIsJoint = false, kHasLabels = false, kIsAsked = true, kIsBounded = false,
                          kHasLogLink = Like::kHasLogLink;
    static constexpr double kLogScale = Like::kLogScale;
    static int outputs(int) { return 1; }

    struct Lanes : SpreadLanes {
        AskedLoss* asked = nullptr;
        int n = 0;  // lanes in use

        void set_state(int lane, const LossState& state) {
            SpreadLanes::set_state(lane, state);
            asked = state.asked;
            n = lane < n ? n : lane + 1;
        }
        Slopes slopes(const Vector& predictors) const {
            const AskedLoss::Columns rows = asked->room(n);
            for (int lane = 0; lane < n; lane++) rows.predictor[lane] = predictors[lane], rows.target[lane] = target[lane];
            asked->ask(n);
            alignas(64) double found[3][kLanes] = {};
            for (int lane = 0; lane < n; lane++)
                found[0][lane] = rows.loss[lane], found[1][lane] = rows.slope[lane], found[2][lane] = rows.curvature[lane];
            const Vector precision = 1.0 / at(spread);
            return {all(1.0), at(found[0]) * precision + at(half_log_spread) + kLogScale, at(found[1]) * precision,
                    at(found[2]) * precision};
        }
        Slopes slopes(const Vector& predictors, const Vector&) const { return slopes(predictors); }
    };
    static bool learns(const LossState&) { return true; }
    static void learn(LossState& state, const LearntRow& row, const LossRates& rates) {
        learn_spread(state, row.spread, row.weight, rates.spread);
    }
    static void interval(const LossState& state, const double* predictors, double reach, double* out) {
        if constexpr (!kHasLogLink) return Like::interval(state, predictors, reach, out);
        double number;
        read(state, predictors, 1, &number);
        const double half = reach * std::sqrt(state.spread * std::pow(number, state.asked->variance_power()));
        out[0] = number > half ? number - half : 0.0, out[1] = number + half;
    }
    static void read(const LossState& state, const double* predictors, int n, double* out) {
        Like::read(state, predictors, n, out);
    }
    static int clear_choice(const LossState&, const double*, int) { return 0; }
};
using Asked = AskedLike<Gaussian>;
using AskedLog = AskedLike<Poisson>;

}  // namespace
}  // namespace driftree
