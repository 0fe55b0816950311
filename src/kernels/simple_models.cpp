// The loops of simple_models.hpp, compiled once per instruction set (DRIFTREE_ISA names the table).
#include "simple_models.hpp"

#include "blend.hpp"
#include "candidate_loops.hpp"
#include "row_keys.hpp"
#include "scaling.hpp"
#include "sgd.hpp"

#define DRIFTREE_JOIN2(a, b) a##b
#define DRIFTREE_JOIN(a, b) DRIFTREE_JOIN2(a, b)
#define DRIFTREE_TEXT2(a) #a
#define DRIFTREE_TEXT(a) DRIFTREE_TEXT2(a)

namespace driftree {
namespace {

void gradients_single(const Shape& s, const Rows& rows, const Visit& visit, const double* residual, float* gradients) {
    for (int i = 0; i < visit.n; i++) {
        const int row = visit.rows[i];
        const double* z = rows.input(s, row);
        for (int k = 0; k < s.outputs; k++) {
            const double r = rows.weights[row] * residual[static_cast<long>(i) * s.outputs + k];
            float* __restrict line = gradients + (static_cast<long>(i) * s.outputs + k) * s.stride;
            for (int c = 0; c < s.stride; c++) line[c] = static_cast<float>(r * z[c]);
        }
    }
}

void add(double* __restrict sum, const double* __restrict term, int n) {
    for (int i = 0; i < n; i++) sum[i] += term[i];
}

void add_single(float* __restrict sum, const float* __restrict term, int n) {
    for (int i = 0; i < n; i++) sum[i] += term[i];
}

void add_mixed(double* __restrict sum, const float* __restrict term, int n) {
    for (int i = 0; i < n; i++) sum[i] += static_cast<double>(term[i]);
}

// Compares every value with all edges: with about 64 edges that is faster than a binary search, in which each step waits for
// the one before.
void slots(const double* edges, int n_edges, const double* values, int n, std::int32_t* out) {
    const int whole = n_edges / kLanes * kLanes;
    for (int i = 0; i < n; i++) {
        Bits below[kParts] = {};
        for (int e = 0; e < whole; e += kLanes)
            for (int p = 0; p < kParts; p++) below[p] -= (at(edges + e) < values[i]).part[p];
        std::int64_t count = 0;
        for (int lane = 0; lane < kLanes; lane++) count += below[lane / kWidth][lane % kWidth];
        for (int e = whole; e < n_edges; e++) count += edges[e] < values[i];
        out[i] = static_cast<std::int32_t>(count);
    }
}

}  // namespace

namespace {
#define DRIFTREE_SGD(Loss) {sgd_forward<Loss>, sgd_learn<Loss>},
#define DRIFTREE_BLEND(Loss) {blend_forward<Loss>, blend_learn<Loss>, blend_follow<Loss>},
constexpr SgdFunctions sgd_functions[] = {DRIFTREE_LOSSES(DRIFTREE_SGD)};
constexpr BlendFunctions blend_functions[] = {DRIFTREE_LOSSES(DRIFTREE_BLEND)};
}  // namespace

extern const Functions DRIFTREE_JOIN(DRIFTREE_ISA, _functions) = {
    DRIFTREE_TEXT(DRIFTREE_ISA),
    sgd_functions,
    blend_functions,
    blend_weights,
    predictors_of,
    gradients_single,
    add,
    add_single,
    add_mixed,
    norms,
    weigh,
    measure,
    add_gradients,
    sum_buckets,
    scan,
    settle,
    add_row,
    codes,
    slots,
    row_keys,
    update_scale,
    scale_row,
    bend_inputs,
    hinges,
};

}  // namespace driftree
