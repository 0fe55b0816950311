// Logit: the loss for two labels, -log P(label), with one linear predictor, the log-odds of label 1. A noise floor may allow
// for labels that are random: P(y) = rho_y + (1 - rho_0 - rho_1) s_y, where rho is learnt by online EM.
#pragma once
#include <cmath>

#include "simple_models.hpp"
#include "vectors.hpp"

namespace driftree {
namespace {

struct Logit {
    static constexpr const char* kName = "logit";
    static constexpr bool kIsJoint = false;  // one predictor: eight rows at a time, of one or several models
    static constexpr bool kHasLabels = true, kIsAsked = false, kIsBounded = false, kHasLogLink = false;
    static int outputs(int) { return 1; }

    // Eight log-odds, each with its label and the noise floor of its model.
    struct Lanes {
        alignas(64) double predictor[kLanes];
        alignas(64) double target[kLanes];
        alignas(64) double rho[2][kLanes];
        alignas(64) double has_floor[kLanes];
        bool any_floor = false;

        Lanes() {  // vector by vector: compilers fill a whole struct with a slow instruction
            at(predictor) = at(target) = at(rho[0]) = at(rho[1]) = at(has_floor) = all(0.0);
        }
        void set_state(int lane, const LossState& state) {
            any_floor = any_floor || state.has_floor != 0.0;
            has_floor[lane] = state.has_floor;
            for (int k = 0; k < 2; k++) rho[k][lane] = state.has_floor != 0.0 ? state.floor[k] : 0.0;
        }
        DRIFTREE_INLINE Slopes slopes(const Vector& predictors) const { return slopes(predictors, at(target)); }
        DRIFTREE_INLINE Slopes slopes(const Vector& predictors, const Vector& targets) const {
            const Mask is_one = targets > 0.5, agrees = ~((predictors >= 0.0) ^ is_one);
            const Vector size = choose(predictors < 0.0, -predictors, predictors), e = exp_negative(-size);
            const Vector large = 1.0 / (1.0 + e), small = e * large, wrong = choose(agrees, small, large);
            Slopes plain = {1.0 + e, choose(agrees, all(0.0), size), choose(is_one, -wrong, wrong), large * small};
            return any_floor ? above_floor(plain, is_one, choose(agrees, large, small)) : plain;
        }

    private:
        DRIFTREE_INLINE Slopes above_floor(const Slopes& plain, const Mask& is_one, const Vector& right) const {
            const Mask floored = at(has_floor) > 0.5;
            const Vector proved = (1.0 - at(rho[0]) - at(rho[1])) * right;
            const Vector likelihood = choose(is_one, at(rho[1]), at(rho[0])) + proved;
            const Vector factor = choose(floored, proved / likelihood, 1.0);
            return {choose(floored, 1.0 / likelihood, plain.ratio), choose(floored, all(0.0), plain.hinge),
                    plain.residual * factor, plain.curvature * factor};
        }
    };

    // Online EM: the probability that this label was drawn from the floor. Fast at first, later with a long memory.
    static bool learns(const LossState& state) { return state.has_floor != 0.0; }
    static void learn(LossState& state, const LearntRow& row, const LossRates& all_rates) {
        const FloorRates& rates = all_rates.floor;
        const int label = row.target > 0.5;
        state.floor_rows += row.weight;
        const double soon = rates.first_rows + state.floor_rows;
        const double rate = row.weight / (soon < rates.rows ? soon : rates.rows);
        const double blame = state.floor[label] / std::exp(-row.loss);
        for (int k = 0; k < 2; k++) {
            const double share = state.floor[k] + rate * ((k == label ? blame : 0.0) - state.floor[k]);
            state.floor[k] = share > rates.least ? share : rates.least;  // never 0: no label may become impossible
        }
        const double sum = state.floor[0] + state.floor[1];
        if (sum > rates.most) {
            state.floor[0] *= rates.most / sum;
            state.floor[1] *= rates.most / sum;
        }
    }

    // The loss of one row, without the cost of eight.
    static double loss_of(const LossState& state, double predictor, double target) {
        const double margin = target > 0.5 ? predictor : -predictor, e = std::exp(-std::fabs(margin));
        if (state.has_floor == 0.0) return std::log1p(e) + (margin < 0.0 ? -margin : 0.0);
        const double right = (margin < 0.0 ? e : 1.0) / (1.0 + e);
        return -std::log(state.floor[target > 0.5] + (1.0 - state.floor[0] - state.floor[1]) * right);
    }
    static void read(const LossState& state, const double* predictors, int n_classes, double* probabilities) {
        double p = 1.0 / (1.0 + std::exp(-predictors[0]));
        if (state.has_floor != 0.0) p = state.floor[1] + (1.0 - state.floor[0] - state.floor[1]) * p;
        probabilities[0] = n_classes < 2 ? 1.0 : 1.0 - p;
        if (n_classes > 1) probabilities[1] = p;
    }
    // The most probable label if it is clear, or -1 if the probabilities must be computed.
    static int clear_choice(const LossState& state, const double* predictors, int n_classes) {
        const bool is_clear = n_classes > 1 && state.has_floor == 0.0 && std::fabs(predictors[0]) > 1e-9;
        return is_clear ? predictors[0] > 0.0 : -1;
    }
};

}  // namespace
}  // namespace driftree
