// Links: from logits to loss, residual and curvature. Eight log-odds at a time (rows of one model, or models), or the
// logits of one row for any number of classes.
#pragma once
#include "simple_models.hpp"
#include "vectors.hpp"

namespace driftree {
namespace {

// The loss is log(ratio) + hinge: logarithms are dear, and mostly only a difference of losses is wanted.
struct Slopes {
    Vector ratio, hinge, residual, curvature;
    Vector loss() const { return log_positive(ratio) + hinge; }
};

// Eight log-odds, each with its label and the noise floor of its model: P(y) = rho_y + (1 - rho_0 - rho_1) s_y.
struct LogOdds {
    alignas(64) double logit[kLanes];
    alignas(64) double label[kLanes];
    alignas(64) double rho[2][kLanes];
    alignas(64) double has_floor[kLanes];
    bool any_floor = false;

    LogOdds() {  // vector by vector: compilers fill a whole struct with a slow instruction
        at(logit) = at(label) = at(rho[0]) = at(rho[1]) = at(has_floor) = all(0.0);
    }
    void set_floor(int lane, const Head& head) {
        any_floor = any_floor || head.has_floor != 0.0;
        has_floor[lane] = head.has_floor;
        for (int k = 0; k < 2; k++) rho[k][lane] = head.has_floor != 0.0 ? head.floor[k] : 0.0;
    }
    Slopes slopes(const Vector& logits) const { return slopes(logits, at(label)); }
    Slopes slopes(const Vector& logits, const Vector& labels) const {
        const Mask is_one = labels > 0.5, agrees = ~((logits >= 0.0) ^ is_one);
        const Vector size = choose(logits < 0.0, -logits, logits), e = exp_negative(-size);
        const Vector large = 1.0 / (1.0 + e), small = e * large, wrong = choose(agrees, small, large);
        Slopes plain = {1.0 + e, choose(agrees, all(0.0), size), choose(is_one, -wrong, wrong), large * small};
        return any_floor ? above_floor(plain, is_one, choose(agrees, large, small)) : plain;
    }

private:
    Slopes above_floor(const Slopes& plain, const Mask& is_one, const Vector& right) const {
        const Mask floored = at(has_floor) > 0.5;
        const Vector proved = (1.0 - at(rho[0]) - at(rho[1])) * right;
        const Vector likelihood = choose(is_one, at(rho[1]), at(rho[0])) + proved;
        const Vector factor = choose(floored, proved / likelihood, 1.0);
        return {choose(floored, 1.0 / likelihood, plain.ratio), choose(floored, all(0.0), plain.hinge),
                plain.residual * factor, plain.curvature * factor};
    }
};

// Soft-max: logits[outputs, rounded up to whole vectors] become residuals in place; the curvature is half of sum p (1 - p).
struct Softmax {
    double ratio, hinge, curvature;
};
inline Softmax softmax_slope(double* logits, int n, int label) {
    const int end = padded(n);
    for (int k = n; k < end; k++) logits[k] = -1e300;
    Vector top = at(logits);
    for (int k = kLanes; k < end; k += kLanes) top = choose(at(logits + k) > top, at(logits + k), top);
    double most = top[0];
    for (int lane = 1; lane < kLanes; lane++) most = top[lane] > most ? top[lane] : most;
    const double hinge = most - logits[label];
    Vector sum = all(0.0);
    for (int k = 0; k < end; k += kLanes) sum += at(logits + k) = exp_negative(at(logits + k) - most);
    const double ratio = total(sum);
    Vector spread = all(0.0);
    for (int k = 0; k < end; k += kLanes) {
        const Vector p = at(logits + k) / ratio;
        spread += p * (1.0 - p);
        at(logits + k) = p;
    }
    logits[label] -= 1.0;
    return {ratio, hinge, 0.5 * total(spread)};
}

}  // namespace
}  // namespace driftree
