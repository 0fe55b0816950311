// Gaussian: a loss for numbers, -log of a normal density around the linear predictor. Its variance, the model's `spread`, is
// learnt from the rows, so that losses are nats and a gain means the same in any unit of the target.
#pragma once
#include <cmath>

#include "simple_models.hpp"
#include "vectors.hpp"

namespace driftree {
namespace {

// Common part of the losses for numbers with one predictor: eight rows, each with its model's spread.
struct SpreadLanes {
    alignas(64) double predictor[kLanes];
    alignas(64) double target[kLanes];
    alignas(64) double spread[kLanes];
    alignas(64) double half_log_spread[kLanes];

    SpreadLanes() {
        at(predictor) = at(target) = at(half_log_spread) = all(0.0);
        at(spread) = all(1.0);
    }
    void set_state(int lane, const LossState& state) {
        spread[lane] = state.spread;
        half_log_spread[lane] = state.half_log_spread;
    }
};

// Updates a mean: at first over the last quarter of the rows, as errors shrink then, later over a fixed number of rows.
inline double learn_mean(LossState& state, double mean, double found, double weight, const SpreadRates& rates) {
    const double rows = state.spread_rows + 0.25 * weight;
    state.spread_rows = rows < rates.rows ? rows : rates.rows;
    return mean + weight / (rates.first_rows + state.spread_rows) * (found - mean);
}
inline void learn_spread(LossState& state, double found, double weight, const SpreadRates& rates) {
    const double spread = learn_mean(state, state.spread, found, weight, rates);
    state.spread = spread > rates.least ? spread : rates.least;
}

struct Gaussian {
    static constexpr const char* kName = "gaussian";
    static constexpr bool kIsJoint = false, kHasLabels = false, kIsAsked = false, kIsBounded = false, kHasLogLink = false;
    static constexpr double kLogScale = 0.9189385332046727;  // log(sqrt(2 pi))
    static int outputs(int) { return 1; }

    struct Lanes : SpreadLanes {
        DRIFTREE_INLINE Slopes slopes(const Vector& predictors) const { return slopes(predictors, at(target)); }
        DRIFTREE_INLINE Slopes slopes(const Vector& predictors, const Vector& targets) const {
            const Vector error = predictors - targets, precision = 1.0 / at(spread), slope = error * precision;
            return {all(1.0), 0.5 * error * slope + at(half_log_spread) + kLogScale, slope, precision};
        }
    };
    static bool learns(const LossState&) { return true; }
    static void learn(LossState& state, const LearntRow& row, const LossRates& rates) {
        const double error = row.residual[0] * row.then->spread;
        learn_spread(state, error * error, row.weight, rates.spread);
    }
    // The loss of one row, without the cost of eight.
    static double loss_of(const LossState& state, double predictor, double target) {
        const double error = predictor - target;
        return 0.5 * error * (error * (1.0 / state.spread)) + state.half_log_spread + kLogScale;
    }
    // The error as a multiple of the spread's root, and the two numbers at such a distance.
    static double error(const LearntRow& row) { return std::fabs(row.residual[0]) * std::sqrt(row.then->spread); }
    static void interval(const LossState& state, const double* predictors, double reach, double* out) {
        const double half = reach * std::sqrt(state.spread);
        out[0] = predictors[0] - half, out[1] = predictors[0] + half;
    }
    static void read(const LossState&, const double* predictors, int, double* out) { out[0] = predictors[0]; }
    static int clear_choice(const LossState&, const double*, int) { return 0; }
};

}  // namespace
}  // namespace driftree
