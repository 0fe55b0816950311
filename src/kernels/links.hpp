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

// Noise floors: P(y) = rho_y + (1 - rho_0 - rho_1) s_y.
struct Floors {
    Vector rho[2] = {};
    Mask has_floor = {};
    bool any = false;
    void set(int lane, const Head& head) {
        if (head.has_floor == 0.0) return;
        any = true;
        has_floor[lane] = -1;
        for (int k = 0; k < 2; k++) rho[k][lane] = head.floor[k];
    }
};

inline Slopes logit_slopes(const Vector& logit, const Mask& is_one, const Floors& floors) {
    const Vector size = logit < 0.0 ? -logit : logit, e = exp_negative(-size);
    const Vector large = 1.0 / (1.0 + e), small = e * large;
    const Mask agrees = ~((logit >= 0.0) ^ is_one);
    const Vector wrong = agrees ? small : large;
    Slopes slopes = {1.0 + e, agrees ? Vector{} : size, is_one ? -wrong : wrong, large * small};
    if (!floors.any) return slopes;
    const Vector clean = 1.0 - floors.rho[0] - floors.rho[1], proved = clean * (agrees ? large : small);
    const Vector likelihood = (is_one ? floors.rho[1] : floors.rho[0]) + proved;
    const Vector factor = floors.has_floor ? proved / likelihood : all(1.0);
    slopes.ratio = floors.has_floor ? 1.0 / likelihood : slopes.ratio;
    slopes.hinge = floors.has_floor ? Vector{} : slopes.hinge;
    slopes.residual *= factor;
    slopes.curvature *= factor;
    return slopes;
}

// Soft-max: logits[outputs, rounded up to whole vectors] become residuals in place; the curvature is half of sum p (1 - p).
struct Softmax {
    double ratio, hinge, curvature;
};
inline Softmax softmax_slope(double* logits, int n, int label) {
    const int end = padded(n);
    for (int k = n; k < end; k++) logits[k] = -1e300;
    Vector top = at(logits);
    for (int k = kLanes; k < end; k += kLanes) top = at(logits + k) > top ? at(logits + k) : top;
    double most = top[0];
    for (int lane = 1; lane < kLanes; lane++) most = top[lane] > most ? top[lane] : most;
    const double hinge = most - logits[label];
    Vector sum = {};
    for (int k = 0; k < end; k += kLanes) sum += at(logits + k) = exp_negative(at(logits + k) - most);
    const double ratio = total(sum);
    Vector spread = {};
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
