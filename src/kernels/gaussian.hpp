// Gaussian: a loss for numbers, -log of a normal density around the linear predictor. Its variance, the model's `spread`, is
// learnt from the rows, so that losses are nats and a gain means the same in any unit of the target.
#pragma once
#include <cmath>
#include <limits>

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
    // A larger error, in roots of a learnt spread, moves a model as this one does: an outlier would otherwise be explained by
    // weights that hardly any row has tested. After a jump of the target the spread follows at once: its first row raises it
    // such that the next is at most 22.5 roots off.
    static constexpr double kMostRoots = 30.0, kUnbounded = std::numeric_limits<double>::infinity();
    static int outputs(int) { return 1; }

    struct Lanes : SpreadLanes {
        alignas(64) double root[kLanes];

        Lanes() { at(root) = all(kUnbounded); }
        void set_state(int lane, const LossState& state) {
            SpreadLanes::set_state(lane, state);
            root[lane] = bounding_root(state);
        }
        DRIFTREE_INLINE Slopes slopes(const Vector& predictors) const { return slopes(predictors, at(target)); }
        DRIFTREE_INLINE Slopes slopes(const Vector& predictors, const Vector& targets) const {
            const Vector error = predictors - targets, precision = 1.0 / at(spread), slope = error * precision;
            const Vector most = kMostRoots * precision * at(root), bounded = choose(slope > most, most, slope);
            return {all(1.0), 0.5 * error * slope + at(half_log_spread) + kLogScale, choose(bounded < -most, -most, bounded),
                    precision};
        }
    };
    static bool learns(const LossState&) { return true; }
    static void learn(LossState& state, const LearntRow& row, const LossRates& rates) {
        const LossState& then = *row.then;
        const double error = is_bounded(row) ? roots_of(row) * then.root_spread : row.residual[0] * then.spread;
        learn_spread(state, error * error, row.weight, rates.spread);
    }
    static bool is_bounded(const LearntRow& row) {
        return std::fabs(row.residual[0]) >= kMostRoots * (1.0 / row.then->spread) * bounding_root(*row.then);
    }
    static double bounding_root(const LossState& state) { return state.spread_rows > 0.0 ? state.root_spread : kUnbounded; }
    // The error in roots of the spread, where the slope does not tell it: from the loss.
    static double roots_of(const LearntRow& row) {
        return std::sqrt(2.0 * (row.loss - row.then->half_log_spread - kLogScale));
    }
    // The loss of one row, without the cost of eight.
    static double loss_of(const LossState& state, double predictor, double target) {
        const double error = predictor - target;
        return 0.5 * error * (error * (1.0 / state.spread)) + state.half_log_spread + kLogScale;
    }
    // The error as a multiple of the spread's root, and the two numbers at such a distance.
    static double error(const LearntRow& row) {
        return is_bounded(row) ? roots_of(row) : std::fabs(row.residual[0]) * row.then->root_spread;
    }
    static void interval(const LossState& state, const double* predictors, double reach, double* out) {
        const double half = reach * std::sqrt(state.spread);
        out[0] = predictors[0] - half, out[1] = predictors[0] + half;
    }
    static void read(const LossState&, const double* predictors, int, double* out) { out[0] = predictors[0]; }
    static int clear_choice(const LossState&, const double*, int) { return 0; }
};

}  // namespace
}  // namespace driftree
