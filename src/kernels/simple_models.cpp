// The loops of simple_models.hpp, compiled once per instruction set (DRIFTREE_ISA names the table).
#include "simple_models.hpp"

#include "blend.hpp"
#include "scaling.hpp"

#define DRIFTREE_JOIN2(a, b) a##b
#define DRIFTREE_JOIN(a, b) DRIFTREE_JOIN2(a, b)
#define DRIFTREE_TEXT2(a) #a
#define DRIFTREE_TEXT(a) DRIFTREE_TEXT2(a)

namespace driftree {
namespace {

// ---------------------------------------------------------------- paper: SGD
void sgd_forward(const Shape& s, const Rows& rows, const Lesson* lessons, int n) {
    LogOdds odds;
    for (const Lesson* lesson = lessons; lesson < lessons + n; lesson++) {
        const Forward& out = lesson->before;
        for (int i = 0; i < lesson->visit.n; i++) {
            const int row = lesson->visit.rows[i];
            logits_of(s, lesson->model + kHead, rows.input(s, row), out.scratch);
            if (s.outputs == 1) {
                odds.label[0] = rows.labels[row];
                const Slopes slopes = odds.slopes(all(out.scratch[0]));
                out.residual[i] = slopes.residual[0];
                out.loss[i] = slopes.loss()[0];
                continue;
            }
            const Softmax slope = softmax_slope(out.scratch, s.outputs, rows.labels[row]);
            out.loss[i] = log_positive(all(slope.ratio))[0] + slope.hinge;
            for (int k = 0; k < s.outputs; k++) out.residual[static_cast<long>(i) * s.outputs + k] = out.scratch[k];
        }
    }
}

void sgd_row(const Shape& s, double* model, const Rows& rows, int row, double rate, double* residual) {
    const double* z = rows.input(s, row);
    logits_of(s, model + kHead, z, residual);
    if (s.outputs == 1) {
        LogOdds odds;
        odds.label[0] = rows.labels[row];
        residual[0] = odds.slopes(all(residual[0])).residual[0];
    } else {
        softmax_slope(residual, s.outputs, rows.labels[row]);
    }
    for (int k = 0; k < s.outputs; k++) {
        const double step = rate * rows.steps[row] * residual[k];
        double* w = model + kHead + k * s.stride;
        for (int c = 0; c < s.stride; c += kLanes) at(w + c) -= step * at(z + c);
    }
}

void sgd_learn(const Shape& s, const Rows& rows, const Lesson* lessons, int n, const Learning& learning) {
    for (const Lesson* lesson = lessons; lesson < lessons + n; lesson++) {
        for (int i = 0; i < lesson->visit.n; i++)
            sgd_row(s, lesson->model, rows, lesson->visit.rows[i], learning.rate, lesson->before.scratch);
    }
}

void sgd_weights(const Shape& s, const double* model, double* weights) {
    for (int c = 0; c < s.outputs * s.stride; c++) weights[c] = model[kHead + c];
}

// ---------------------------------------------------------------- gradients
template <class T>
inline void fill_gradients(const Shape& s, const Rows& rows, const Visit& visit, const double* residual, T* gradients) {
    for (int i = 0; i < visit.n; i++) {
        const int row = visit.rows[i];
        const double* z = rows.inputs + static_cast<long>(row) * s.stride;
        for (int k = 0; k < s.outputs; k++) {
            const double r = rows.weights[row] * residual[static_cast<long>(i) * s.outputs + k];
            T* __restrict line = gradients + (static_cast<long>(i) * s.outputs + k) * s.stride;
            for (int c = 0; c < s.stride; c++) line[c] = static_cast<T>(r * z[c]);
        }
    }
}

void gradients(const Shape& s, const Rows& rows, const Visit& visit, const double* residual, double* out) {
    fill_gradients(s, rows, visit, residual, out);
}

void gradients_single(const Shape& s, const Rows& rows, const Visit& visit, const double* residual, float* out) {
    fill_gradients(s, rows, visit, residual, out);
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

void norms(const double* left, const double* sum, int n, double* left_norm, double* right_norm) {
    Vector l = all(0.0), r = all(0.0);
    for (int i = 0; i < n; i += 8) {
        const Vector a = at(left + i), b = at(sum + i) - a;
        l += a * a;
        r += b * b;
    }
    *left_norm = total(l);
    *right_norm = total(r);
}

void scan(const double* gradients, const double* sum, int size, const std::int32_t* order, int n, double* left,
          double* left_norms, double* right_norms) {
    for (int c = 0; c < size; c++) left[c] = 0.0;
    for (int i = 0; i < n; i++) {
        const double* own = gradients + static_cast<long>(order[i]) * size;
        Vector l = all(0.0), r = all(0.0);
        for (int c = 0; c < size; c += 8) {
            const Vector a = at(left + c) + at(own + c), b = at(sum + c) - a;
            at(left + c) = a;
            l += a * a;
            r += b * b;
        }
        left_norms[i] = total(l);
        right_norms[i] = total(r);
    }
}

// Compares every value with all edges: for some 64 of them that is faster than to search, where each step waits for the last.
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

extern const Functions DRIFTREE_JOIN(DRIFTREE_ISA, _functions) = {
    DRIFTREE_TEXT(DRIFTREE_ISA), blend_forward, blend_learn, blend_weights, sgd_forward, sgd_learn, sgd_weights,
    logits_of, gradients, gradients_single, add, add_single, add_mixed, norms, scan, slots,
    update_scale, scale_row,
};

}  // namespace driftree
