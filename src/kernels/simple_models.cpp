// The loops of simple_models.hpp, compiled once per instruction set (DRIFTREE_ISA names the table).
#include "simple_models.hpp"

#include <cmath>

#define DRIFTREE_JOIN2(a, b) a##b
#define DRIFTREE_JOIN(a, b) DRIFTREE_JOIN2(a, b)
#define DRIFTREE_TEXT2(a) #a
#define DRIFTREE_TEXT(a) DRIFTREE_TEXT2(a)

namespace driftree {
namespace {

typedef double Vector __attribute__((vector_size(64), aligned(8)));

inline Vector& at(double* p) { return *reinterpret_cast<Vector*>(p); }
inline const Vector& at(const double* p) { return *reinterpret_cast<const Vector*>(p); }

inline double total(const Vector& v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

inline double dot(const double* a, const double* b, int n) {
    Vector sum = {};
    for (int i = 0; i < n; i += 8) sum += at(a + i) * at(b + i);
    return total(sum);
}

inline bool is_sparse(const Shape& s, int n_active) { return 4 * n_active < s.stride; }

// ---------------------------------------------------------------- links
// The loss is log(ratio) + hinge: logarithms are dear, and mostly only a difference of losses is wanted.
struct Slope {
    double ratio, hinge, residual, curvature;
    double loss() const { return std::log(ratio) + hinge; }
};

// Log-odds to loss, residual and curvature; with a noise floor P(y) = rho_y + (1 - rho_0 - rho_1) s_y.
inline Slope logit_slope(double logit, int label, const Head& head) {
    const double size = std::fabs(logit), e = std::exp(-size);
    const double large = 1.0 / (1.0 + e), small = e * large;
    const bool agrees = (logit >= 0.0) == (label == 1);
    const double right = agrees ? large : small, wrong = agrees ? small : large;
    const double residual = label == 1 ? -wrong : wrong;
    if (head.has_floor == 0.0) return {1.0 + e, agrees ? 0.0 : size, residual, large * small};
    const double clean = 1.0 - head.floor[0] - head.floor[1];
    const double likelihood = head.floor[label] + clean * right;
    const double factor = clean * right / likelihood;
    return {1.0 / likelihood, 0.0, residual * factor, large * small * factor};
}

// Logits become residuals in place; the curvature is half of sum p (1 - p).
inline Slope softmax_slope(double* logits, int n, int label) {
    double top = logits[0];
    for (int k = 1; k < n; k++) top = logits[k] > top ? logits[k] : top;
    Slope slope = {0.0, top - logits[label], 0.0, 0.0};
    for (int k = 0; k < n; k++) {
        logits[k] = std::exp(logits[k] - top);
        slope.ratio += logits[k];
    }
    for (int k = 0; k < n; k++) {
        const double p = logits[k] / slope.ratio;
        slope.curvature += p * (1.0 - p);
        logits[k] = p;
    }
    logits[label] -= 1.0;
    slope.curvature *= 0.5;
    return slope;
}

// residual[outputs] holds the logits on entry and the residuals on return.
inline Slope slope_of(const Shape& s, const Head& head, double* residual, int label) {
    if (s.outputs > 1) return softmax_slope(residual, s.outputs, label);
    const Slope slope = logit_slope(residual[0], label, head);
    residual[0] = slope.residual;
    return slope;
}

inline void logits_of(const Shape& s, const double* weights, const double* inputs, double* logits) {
    for (int k = 0; k < s.outputs; k++) logits[k] = dot(weights + k * s.stride, inputs, s.stride);
}

// ---------------------------------------------------------------- paper: SGD
void sgd_forward(const Shape& s, const double* model, const Rows& rows, const Visit& visit, const Forward& out) {
    const Head& head = *reinterpret_cast<const Head*>(model);
    for (int i = 0; i < visit.n; i++) {
        const int row = visit.rows[i];
        double* residual = out.residual + static_cast<long>(i) * s.outputs;
        logits_of(s, model + kHead, rows.inputs + static_cast<long>(row) * s.stride, residual);
        out.loss[i] = slope_of(s, head, residual, rows.labels[row]).loss();
    }
}

void sgd_row(const Shape& s, double* model, const Rows& rows, int row, double rate, double* residual) {
    const Head& head = *reinterpret_cast<const Head*>(model);
    const double* z = rows.inputs + static_cast<long>(row) * s.stride;
    logits_of(s, model + kHead, z, residual);
    slope_of(s, head, residual, rows.labels[row]);
    for (int k = 0; k < s.outputs; k++) {
        const double step = rate * rows.steps[row] * residual[k];
        double* w = model + kHead + k * s.stride;
        for (int c = 0; c < s.stride; c += 8) at(w + c) -= step * at(z + c);
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

// ---------------------------------------------------------------- measured: Adagrad and Newton, blended
// What one learner says of a row: its residuals and its curvature.
struct Opinion {
    double* residual;   // [outputs]
    double* curvature;
};
inline Opinion adagrad_opinion(const Shape&, double* scratch) { return {scratch, nullptr}; }
inline Opinion newton_opinion(const Shape& s, double* scratch) { return {scratch + s.outputs, scratch + 3 * s.outputs}; }

void blend_forward(const Shape& s, const double* model, const Rows& rows, const Visit& visit, const Forward& out) {
    const Head& head = *reinterpret_cast<const Head*>(model);
    double* memory = const_cast<double*>(model);
    const double share_b = 1.0 / (1.0 + std::exp(-head.preference)), share_a = 1.0 - share_b;
    double* a = adagrad_opinion(s, out.scratch).residual;
    double* b = newton_opinion(s, out.scratch).residual;
    for (int i = visit.n - 1; i >= 0; i--) {  // backwards: the scratch keeps the first row
        const int row = visit.rows[i], label = rows.labels[row];
        const double* z = rows.inputs + static_cast<long>(row) * s.stride;
        double* blend = out.residual + static_cast<long>(i) * s.outputs;
        logits_of(s, adagrad_weights(s, memory), z, a);
        logits_of(s, newton_weights(s, memory), z, b);
        for (int k = 0; k < s.outputs; k++) blend[k] = share_a * a[k] + share_b * b[k];
        const Slope slope_a = slope_of(s, head, a, label), slope_b = slope_of(s, head, b, label);
        *newton_opinion(s, out.scratch).curvature = slope_b.curvature;
        out.advantage[i] = std::log(slope_a.ratio / slope_b.ratio) + (slope_a.hinge - slope_b.hinge);
        out.loss[i] = slope_of(s, head, blend, label).loss();
    }
}

void adagrad_row(const Shape& s, double* model, const Rows& rows, int row, const double* residual) {
    const double* z = rows.inputs + static_cast<long>(row) * s.stride;
    const double weight = rows.steps[row];
    const int n_active = rows.n_active[row];
    const std::int32_t* active = rows.active + static_cast<long>(row) * s.stride;
    for (int k = 0; k < s.outputs; k++) {
        double* __restrict w = adagrad_weights(s, model) + k * s.stride;
        double* __restrict squares = adagrad_squares(s, model) + k * s.stride;
        const double r = residual[k];
        if (is_sparse(s, n_active)) {
            for (int i = 0; i < n_active; i++) {
                const int c = active[i];
                const double g = r * z[c];
                squares[c] += weight * (g * g);
                w[c] -= weight * g / (std::sqrt(squares[c]) + 1e-8);
            }
        } else {
            for (int c = 0; c < s.stride; c++) {
                const double g = r * z[c];
                squares[c] += weight * (g * g);
                w[c] -= weight * g / (std::sqrt(squares[c]) + 1e-8);
            }
        }
    }
}

void reset_matrix(const Shape& s, double* matrix, Head& head) {
    for (long i = 0; i < static_cast<long>(s.stride) * s.stride; i++) matrix[i] = 0.0;
    for (int c = 0; c < s.columns; c++) matrix[static_cast<long>(c) * s.stride + c] = kInitialCurvatureInverse;
    head.scale = 1.0;
    head.trace = kInitialCurvatureInverse * s.columns;
}

// Multiplies the scale into the matrix, so that neither overflows in a long life.
void fold_scale(const Shape& s, double* matrix, Head& head) {
    const double scale = head.scale;
    head.scale = 1.0;
    head.trace = 0.0;
    for (int r = 0; r < s.columns; r++) {
        double* line = matrix + static_cast<long>(r) * s.stride;
        for (int c = 0; c < s.stride; c++) line[c] *= scale;
        head.trace += line[r];
    }
}

// Forgetting makes A grow where no rows inform it (columns that stay zero). When A as a whole is twice what it was at
// the start, no input may stay less certain than it was then. Line and column shrink together, which keeps A symmetric and positive definite.
void limit_diagonal(const Shape& s, double* matrix, Head& head) {
    fold_scale(s, matrix, head);
    for (int r = 0; r < s.columns; r++) {
        double* line = matrix + static_cast<long>(r) * s.stride;
        const double own = line[r];
        if (!(own > kInitialCurvatureInverse)) continue;
        const double factor = std::sqrt(kInitialCurvatureInverse / own);
        for (int c = 0; c < s.columns; c++) {
            if (c == r) continue;
            line[c] *= factor;
            matrix[static_cast<long>(c) * s.stride + r] = line[c];
        }
        line[r] = kInitialCurvatureInverse;
        head.trace -= own - kInitialCurvatureInverse;
    }
}

// product = matrix . z, as a sum of the matrix's lines (it is symmetric).
void times(const Shape& s, const double* matrix, const double* z, const std::int32_t* active, int n_active,
           double* product) {
    int c = 0;
    for (; c + 32 <= s.stride; c += 32) {
        Vector s0 = {}, s1 = {}, s2 = {}, s3 = {};
        for (int i = 0; i < n_active; i++) {
            const double* line = matrix + static_cast<long>(active[i]) * s.stride + c;
            const double x = z[active[i]];
            s0 += x * at(line);
            s1 += x * at(line + 8);
            s2 += x * at(line + 16);
            s3 += x * at(line + 24);
        }
        at(product + c) = s0;
        at(product + c + 8) = s1;
        at(product + c + 16) = s2;
        at(product + c + 24) = s3;
    }
    for (; c < s.stride; c += 8) {
        Vector sum = {};
        for (int i = 0; i < n_active; i++) sum += z[active[i]] * at(matrix + static_cast<long>(active[i]) * s.stride + c);
        at(product + c) = sum;
    }
}

// One row of online Newton:  u = A x;  q = f + h x'u;  A <- (A - h u u' / q) / f;  W -= residual u' / q,
// with A = scale * matrix. The update v v' has the same bits on both sides of the diagonal.
void newton_row(const Shape& s, double* model, const Rows& rows, int row, double keep, const Opinion& opinion, double* u) {
    Head& head = *reinterpret_cast<Head*>(model);
    double* matrix = newton_matrix(s, model);
    const double* z = rows.inputs + static_cast<long>(row) * s.stride;
    const std::int32_t* active = rows.active + static_cast<long>(row) * s.stride;
    const int n_active = rows.n_active[row];
    const double weight = rows.steps[row];
    const double fade = weight == 1.0 ? keep : std::pow(keep, weight);
    const double curvature = weight * (*opinion.curvature > 0.01 ? *opinion.curvature : 0.01);

    times(s, matrix, z, active, n_active, u);
    double leverage = dot(z, u, s.stride);
    if (!(leverage >= 0.0 && leverage < 1e300)) {  // rounding has cost A its positive definiteness
        reset_matrix(s, matrix, head);
        times(s, matrix, z, active, n_active, u);
        leverage = dot(z, u, s.stride);
    }
    const double q = fade + curvature * head.scale * leverage;
    const double step = weight * head.scale / q;
    for (int k = 0; k < s.outputs; k++) {
        double* w = newton_weights(s, model) + k * s.stride;
        const double r = step * opinion.residual[k];
        for (int c = 0; c < s.stride; c += 8) at(w + c) -= r * at(u + c);
    }
    const double shrink = curvature * head.scale / q;
    head.trace = (head.trace - shrink * head.scale * dot(u, u, s.stride)) / fade;
    head.scale /= fade;
    const double root = std::sqrt(shrink);
    for (int c = 0; c < s.stride; c += 8) at(u + c) *= root;
    for (int r = 0; r < s.columns; r++) {
        double* line = matrix + static_cast<long>(r) * s.stride;
        const double v = u[r];
        for (int c = 0; c < s.stride; c += 8) at(line + c) -= v * at(u + c);
    }
    if (head.trace > 2.0 * kInitialCurvatureInverse * s.columns) limit_diagonal(s, matrix, head);
    if (head.scale > 1e3 || head.scale < 1e-3) fold_scale(s, matrix, head);
}

// Online EM: how probably was this label drawn from the floor? Fast at first, then with a memory of 10,000 rows.
void learn_floor(Head& head, double loss, int label, double weight) {
    head.floor_rows += weight;
    const double rate = weight / (head.floor_rows < 9000.0 ? 1000.0 + head.floor_rows : 10000.0);
    const double blame = head.floor[label] / std::exp(-loss);
    for (int k = 0; k < 2; k++) {
        const double share = head.floor[k] + rate * ((k == label ? blame : 0.0) - head.floor[k]);
        head.floor[k] = share > 1e-6 ? share : 1e-6;  // never 0: no label may become impossible
    }
    const double sum = head.floor[0] + head.floor[1];
    if (sum > 0.5) {
        head.floor[0] *= 0.5 / sum;
        head.floor[1] *= 0.5 / sum;
    }
}

void learn_preference(const Rows& rows, const Lesson& lesson) {
    Head& head = *reinterpret_cast<Head*>(lesson.model);
    for (int i = 0; i < lesson.visit.n; i++) {
        const double weight = rows.steps[lesson.visit.rows[i]];
        const double fade = weight == 1.0 ? 0.998 : std::pow(0.998, weight);
        const double d = fade * head.preference + weight * lesson.before.advantage[i];
        head.preference = d > 8.0 ? 8.0 : (d < -8.0 ? -8.0 : d);
    }
}

// One row of a lesson. Of the first row, both learners still think what they said in the forward pass.
inline void learn_row(const Shape& s, const Rows& rows, const Lesson& lesson, int i, bool is_first, bool is_last, double keep) {
    Head& head = *reinterpret_cast<Head*>(lesson.model);
    const int row = lesson.visit.rows[i];
    const double* z = rows.inputs + static_cast<long>(row) * s.stride;
    const Opinion a = adagrad_opinion(s, lesson.before.scratch), b = newton_opinion(s, lesson.before.scratch);
    if (!is_first) {
        double* fresh = a.residual + 2 * s.outputs;  // b's opinion of the first row waits for its turn
        logits_of(s, adagrad_weights(s, lesson.model), z, fresh);
        slope_of(s, head, fresh, rows.labels[row]);
        adagrad_row(s, lesson.model, rows, row, fresh);
    } else {
        adagrad_row(s, lesson.model, rows, row, a.residual);
    }
    if (!is_last) return;
    if (i > 0) {
        logits_of(s, newton_weights(s, lesson.model), z, b.residual);
        *b.curvature = slope_of(s, head, b.residual, rows.labels[row]).curvature;
    }
    newton_row(s, lesson.model, rows, row, keep, b, b.curvature + 1);
}

// The models do not depend on each other: row by row in turn, one computes while the other waits for its exponential.
void blend_learn_group(const Shape& s, const Rows& rows, const Lesson* lessons, int n, const Learning& learning) {
    const double remembered = learning.memory > 20.0 * s.columns ? learning.memory : 20.0 * s.columns;
    const double keep = 1.0 - 1.0 / remembered;
    int longest = 0;
    for (int l = 0; l < n; l++) {
        learn_preference(rows, lessons[l]);
        longest = lessons[l].visit.n > longest ? lessons[l].visit.n : longest;
    }
    for (int pass = 1; pass <= learning.passes; pass++)
        for (int i = 0; i < longest; i++)
            for (int l = 0; l < n; l++)
                if (i < lessons[l].visit.n)
                    learn_row(s, rows, lessons[l], i, pass == 1 && i == 0, pass == learning.passes, keep);
    for (int l = 0; l < n; l++) {
        Head& head = *reinterpret_cast<Head*>(lessons[l].model);
        const Visit& visit = lessons[l].visit;
        for (int i = 0; i < visit.n && head.has_floor != 0.0; i++)
            learn_floor(head, lessons[l].before.loss[i], rows.labels[visit.rows[i]], rows.steps[visit.rows[i]]);
    }
}

void blend_learn(const Shape& s, const Rows& rows, const Lesson* lessons, int n, const Learning& learning) {
    const long size = 8L * s.stride * (s.stride + 3 * s.outputs);  // bytes; a group should stay in the first cache
    const int together = size < 2048 ? 8 : (size < 8192 ? 3 : 1);
    for (int l = 0; l < n; l += together)
        blend_learn_group(s, rows, lessons + l, n - l < together ? n - l : together, learning);
}

void blend_weights(const Shape& s, const double* model, double* weights) {
    const Head& head = *reinterpret_cast<const Head*>(model);
    double* memory = const_cast<double*>(model);
    const double share_b = 1.0 / (1.0 + std::exp(-head.preference)), share_a = 1.0 - share_b;
    for (int c = 0; c < s.outputs * s.stride; c++)
        weights[c] = share_a * adagrad_weights(s, memory)[c] + share_b * newton_weights(s, memory)[c];
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

void norms(const double* left, const double* all, int n, double* left_norm, double* right_norm) {
    Vector l = {}, r = {};
    for (int i = 0; i < n; i += 8) {
        const Vector a = at(left + i), b = at(all + i) - a;
        l += a * a;
        r += b * b;
    }
    *left_norm = total(l);
    *right_norm = total(r);
}

void scan(const double* all_gradients, const double* all, int size, const std::int32_t* order, int n, double* left,
          double* left_norms, double* right_norms) {
    for (int c = 0; c < size; c++) left[c] = 0.0;
    for (int i = 0; i < n; i++) {
        const double* own = all_gradients + static_cast<long>(order[i]) * size;
        Vector l = {}, r = {};
        for (int c = 0; c < size; c += 8) {
            const Vector a = at(left + c) + at(own + c), b = at(all + c) - a;
            at(left + c) = a;
            l += a * a;
            r += b * b;
        }
        left_norms[i] = total(l);
        right_norms[i] = total(r);
    }
}

void slots(const double* edges, int n_edges, const double* values, int n, std::int32_t* out) {
    typedef std::int64_t Mask __attribute__((vector_size(64), aligned(8)));
    for (int i = 0; i < n; i++) {
        const double v = values[i];
        Mask below = {};
        int e = 0;
        for (; e + 8 <= n_edges; e += 8) below += at(edges + e) < v;
        std::int64_t count = -(below[0] + below[1] + below[2] + below[3] + below[4] + below[5] + below[6] + below[7]);
        for (; e < n_edges; e++) count += edges[e] < v;
        out[i] = static_cast<std::int32_t>(count);
    }
}

}  // namespace

extern const Functions DRIFTREE_JOIN(DRIFTREE_ISA, _functions) = {
    DRIFTREE_TEXT(DRIFTREE_ISA), blend_forward, blend_learn, blend_weights, sgd_forward, sgd_learn, sgd_weights,
    logits_of, gradients, gradients_single, add, add_single, add_mixed, norms, scan, slots,
};

}  // namespace driftree
