// Blend: our simple model. Adagrad and online Newton learn the same rows; the prediction is a blend of both.
#pragma once
#include <cmath>
#include <type_traits>

#include "blend_parts.hpp"
#include "losses.hpp"

namespace driftree {
namespace {

constexpr double kEvenOdds = 0.6931471805599453;  // nats: log 2
constexpr long kTogetherBytes = 16384;            // most bytes of matrices learnt together in one step
constexpr long kFollowingBytes = 262144;          // the same, row by row
constexpr double kJump = 4.0;   // growth of the spread in one step that only a jump of the target explains, even at first
constexpr int kRowsByHalf = 4;  // fewest rows of a lesson for which skipping the lower half of Newton's matrix pays

// Predictors of a model. A loss that is not joint has one: a constant, which spares its loops.
template <class Loss>
DRIFTREE_INLINE int outputs_of(const Shape& s) {
    return Loss::kIsJoint ? s.outputs : 1;
}
inline void predictors_of(const Shape& s, const double* weights, const double* inputs, double* predictors) {
    for (int k = 0; k < s.outputs; k++) predictors[k] = dot(weights + k * s.stride, inputs, s.stride);
}

// ---------------------------------------------------------------- sparse inputs
// They have the same two learners: Adagrad, and Newton with a diagonal matrix. These functions are not inlined, so that
// models without sparse inputs pay nothing.
enum SparseNumber { kSparseVariance, kSparseAdagrad, kSparseSquares, kSparseNewton };

inline double sparse_sum(const SparseLesson& sparse, int row, int number) {
    double sum = 0.0;
    for (int i = sparse.begin[row]; i < sparse.begin[row + 1]; i++)
        sum += sparse.z[i] * sparse.numbers[static_cast<long>(sparse.cells[i]) * sparse.width + number];
    return sum;
}
[[gnu::noinline]] inline void add_sparse(const SparseLesson& sparse, int row, SparseNumber number, int outputs,
                                         double* predictors) {
    for (int k = 0; k < outputs; k++) {
        const int c = 3 * k + number;
        predictors[k] += sparse.line
                             ? dot(sparse.numbers + static_cast<long>(c) * sparse.line, sparse.vector(row), sparse.line)
                             : sparse_sum(sparse, row, c);
    }
}
inline void adagrad_vectors(const SparseLesson& sparse, int row, double weight, double step, int outputs,
                            const double* residual) {
    const double* z = sparse.vector(row);
    for (int k = 0; k < outputs; k++) {
        double* squares = sparse.numbers + static_cast<long>(3 * k + kSparseSquares) * sparse.line;
        double* w = sparse.numbers + static_cast<long>(3 * k + kSparseAdagrad) * sparse.line;
        for (int c = 0; c < sparse.line; c += kLanes) {
            const Vector g = residual[k] * at(z + c), sum = at(squares + c) + weight * (g * g);
            at(squares + c) = sum;
            at(w + c) -= step * weight * g * inverse_root(sum);
        }
    }
}
[[gnu::noinline]] inline void adagrad_sparse(const SparseLesson& sparse, int row, double weight, double step, int outputs,
                                             const double* residual) {
    if (sparse.line) return adagrad_vectors(sparse, row, weight, step, outputs, residual);
    for (int i = sparse.begin[row]; i < sparse.begin[row + 1]; i++) {
        double* cell = sparse.numbers + static_cast<long>(sparse.cells[i]) * sparse.width;
        for (int k = 0; k < outputs; k++, cell += 3) {
            const double g = residual[k] * sparse.z[i];
            cell[kSparseSquares] += weight * (g * g);
            cell[kSparseAdagrad] -= step * weight * g / (std::sqrt(cell[kSparseSquares]) + 1e-8);
        }
    }
}
[[gnu::noinline]] inline double sparse_leverage(const SparseLesson& sparse, int row) {
    if (sparse.line) {
        const double* z = sparse.vector(row);
        Vector all_of = all(0.0);
        for (int c = 0; c < sparse.line; c += kLanes) all_of += at(z + c) * at(z + c) * at(sparse.numbers + c);
        return total(all_of);
    }
    double sum = 0.0;
    for (int i = sparse.begin[row]; i < sparse.begin[row + 1]; i++)
        sum += sparse.z[i] * sparse.z[i] * sparse.numbers[static_cast<long>(sparse.cells[i]) * sparse.width];
    return sum;
}
inline void newton_vectors(const SparseLesson& sparse, int row, double step, double shrink, double fade, double variance,
                           int outputs, const double* residual) {
    const double* z = sparse.vector(row);
    const double keep = 1.0 / fade;
    for (int c = 0; c < sparse.line; c += kLanes) {
        const Vector own = at(sparse.numbers + c), u = own * at(z + c);
        for (int k = 0; k < outputs; k++)
            at(sparse.numbers + static_cast<long>(3 * k + kSparseNewton) * sparse.line + c) -= step * residual[k] * u;
        const Vector left = (own - shrink * u * u) * keep;
        at(sparse.numbers + c) = choose(left < variance, left, variance);
    }
}
// Like newton_row: `step` and `shrink` are the weight and the curvature, divided by q.
[[gnu::noinline]] inline void newton_sparse(const SparseLesson& sparse, int row, double step, double shrink, double fade,
                                            double variance, int outputs, const double* residual) {
    if (sparse.line) return newton_vectors(sparse, row, step, shrink, fade, variance, outputs, residual);
    for (int i = sparse.begin[row]; i < sparse.begin[row + 1]; i++) {
        double* cell = sparse.numbers + static_cast<long>(sparse.cells[i]) * sparse.width;
        const double u = cell[kSparseVariance] * sparse.z[i];
        for (int k = 0; k < outputs; k++) cell[3 * k + kSparseNewton] -= step * residual[k] * u;
        const double left = (cell[kSparseVariance] - shrink * u * u) / fade;
        cell[kSparseVariance] = left < variance ? left : variance;
    }
}

// A model's memory for one row. After the forward pass it has the residuals of both learners for the first row, which are
// still valid when they start to learn it.
struct Scratch {
    double* newton_row;                                   // [2 stride]: NewtonRow
    double *adagrad, *newton, *blend, *said, *curvature;  // residuals of the learners; predictors; Newton's curvature
    explicit Scratch(const Lesson& lesson) : Scratch(lesson.shape, lesson) {}
    Scratch(const Shape& s, const Lesson& lesson)
        : newton_row(lesson.before.scratch), adagrad(newton_row + 2 * s.stride), newton(adagrad + padded(s.outputs)),
          blend(newton + padded(s.outputs)), said(blend + padded(s.outputs)), curvature(said + padded(s.outputs)) {}
};

// ---------------------------------------------------------------- predictions before learning
// Up to eight rows, of one or several models, with the places for their results.
struct Lanes {
    int n = 0;
    const Lesson* lesson[kLanes];
    int place[kLanes];
    void add(const Lesson& one, int i) {
        lesson[n] = &one;
        place[n++] = i;
    }
    void write(const Vector& loss, const Vector& advantage) {
        for (int lane = 0; lane < n; lane++) {
            lesson[lane]->before.loss[place[lane]] = loss[lane];
            lesson[lane]->before.signal[place[lane]].advantage = advantage[lane];
        }
        n = 0;
    }
};

// Newton's share of the blend; the rest is Adagrad's.
DRIFTREE_INLINE Vector newton_share(const Vector& preference) {
    const Mask is_negative = preference < 0.0;
    const Vector e = exp_negative(choose(is_negative, preference, -preference));
    return choose(is_negative, e, 1.0) / (1.0 + e);
}

template <class Loss>
void forward_lanes(const Rows& rows, const Lesson* lessons, int n) {
    Lanes lanes;
    typename Loss::Lanes given;
    alignas(64) double a[kLanes], b[kLanes], preference[kLanes], sureness[kLanes];
    at(a) = at(b) = at(preference) = at(sureness) = all(0.0);
    const auto finish = [&] {
        const Vector share = newton_share(at(preference));
        const Slopes slopes_a = given.slopes(at(a)), slopes_b = given.slopes(at(b));
        const Vector said = at(sureness) * ((1.0 - share) * at(a) + share * at(b));
        const Slopes slopes = given.slopes(said);
        for (int lane = 0; lane < lanes.n; lane++) {
            const Forward& before = lanes.lesson[lane]->before;
            before.residual[lanes.place[lane]] = slopes.residual[lane];
            before.said[lanes.place[lane]] = said[lane];
            before.signal[lanes.place[lane]].pull = slopes.residual[lane] * said[lane];
            before.signal[lanes.place[lane]].grip = slopes.curvature[lane] * said[lane] * said[lane];
            if (lanes.place[lane] > 0) continue;
            const Scratch scratch(*lanes.lesson[lane]);
            *scratch.adagrad = slopes_a.residual[lane];
            *scratch.newton = slopes_b.residual[lane];
            *scratch.curvature = slopes_b.curvature[lane];
        }
        lanes.write(slopes.loss(), log_positive(slopes_a.ratio / slopes_b.ratio) + (slopes_a.hinge - slopes_b.hinge));
    };
    for (const Lesson* lesson = lessons; lesson < lessons + n; lesson++) {
        const Shape s = lesson->shape;
        const BlendParts model(s, lesson->model);
        for (int i = 0; i < lesson->visit.n; i++) {
            const int row = lesson->visit.rows[i], lane = lanes.n;
            a[lane] = dot(model.adagrad, lesson->input(s, i), s.stride);
            b[lane] = dot(model.newton, lesson->input(s, i), s.stride);
            if (lesson->sparse) [[unlikely]] {
                add_sparse(*lesson->sparse, i, kSparseAdagrad, 1, a + lane);
                add_sparse(*lesson->sparse, i, kSparseNewton, 1, b + lane);
            }
            preference[lane] = model.state->preference;
            sureness[lane] = model.state->sureness;
            given.target[lane] = rows.targets[row];
            given.set_state(lane, *lesson->model.loss);
            lanes.add(*lesson, i);
            if (lanes.n == kLanes) finish();
        }
    }
    if (lanes.n > 0) finish();
}

template <class Loss>
void forward_joint(const Rows& rows, const Lesson* lessons, int n) {
    Lanes lanes;
    alignas(64) double hinge[kLanes], hinge_gap[kLanes], ratio[kLanes], ratio_gap[kLanes];
    at(hinge) = at(hinge_gap) = at(ratio) = at(ratio_gap) = all(1.0);
    const auto finish = [&] {
        lanes.write(log_positive(at(ratio)) + at(hinge), log_positive(at(ratio_gap)) + at(hinge_gap));
    };
    for (const Lesson* lesson = lessons; lesson < lessons + n; lesson++) {
        const Shape s = lesson->shape;
        const BlendParts model(s, lesson->model);
        const double share = newton_share(all(model.state->preference))[0];
        const Scratch scratch(*lesson);
        double *a = scratch.adagrad, *b = scratch.newton, *blend = scratch.blend;
        for (int i = lesson->visit.n - 1; i >= 0; i--) {  // backwards: the scratch keeps the first row
            const int row = lesson->visit.rows[i], lane = lanes.n;
            const double target = rows.targets[row];
            predictors_of(s, model.adagrad, lesson->input(s, i), a);
            predictors_of(s, model.newton, lesson->input(s, i), b);
            if (lesson->sparse) {
                add_sparse(*lesson->sparse, i, kSparseAdagrad, s.outputs, a);
                add_sparse(*lesson->sparse, i, kSparseNewton, s.outputs, b);
            }
            for (int k = 0; k < s.outputs; k++)
                scratch.said[k] = blend[k] = model.state->sureness * ((1.0 - share) * a[k] + share * b[k]);
            const LossState& state = *lesson->model.loss;
            const auto own = Loss::slope(blend, s.outputs, target, state, rows.levels);
            const auto of_a = Loss::slope(a, s.outputs, target, state, rows.levels);
            const auto of_b = Loss::slope(b, s.outputs, target, state, rows.levels);
            ratio[lane] = own.ratio;
            hinge[lane] = own.hinge;
            ratio_gap[lane] = of_a.ratio / of_b.ratio;
            hinge_gap[lane] = of_a.hinge - of_b.hinge;
            *scratch.curvature = of_b.curvature;
            double pull = 0.0, mean = 0.0, square = 0.0;
            for (int k = 0; k < s.outputs; k++) {
                const bool is_label = Loss::kHasLabels && k == static_cast<int>(target);
                const double p = blend[k] + (is_label ? 1.0 : 0.0), said = scratch.said[k];
                lesson->before.residual[static_cast<long>(i) * s.outputs + k] = blend[k];
                lesson->before.said[static_cast<long>(i) * s.outputs + k] = said;
                pull += blend[k] * said;
                mean += p * said;
                square += p * said * said;
            }
            lesson->before.signal[i].pull = pull;
            lesson->before.signal[i].grip = square > mean * mean ? square - mean * mean : 0.0;  // a variance, up to rounding
            lanes.add(*lesson, i);
            if (lanes.n == kLanes) finish();
        }
    }
    if (lanes.n > 0) finish();
}

// The same for a custom loss, whose functions are called once for all rows of all models.
template <class Loss>
void forward_asked(const Rows& rows, const Lesson* lessons, int n) {
    int n_rows = 0;
    for (int l = 0; l < n; l++) n_rows += lessons[l].visit.n;
    if (n_rows == 0) return;
    AskedLoss& asked = *lessons[0].model.loss->asked;
    const AskedLoss::Columns all_rows = asked.room(3 * n_rows);
    const auto part = [&](int i) { return all_rows.from(i * n_rows); };
    const AskedLoss::Columns of_a = part(0), of_b = part(1), of_blend = part(2);
    int place = 0;
    for (const Lesson* lesson = lessons; lesson < lessons + n; lesson++) {
        const Shape& s = lesson->shape;
        const BlendParts model(s, lesson->model);
        const double share = newton_share(all(model.state->preference))[0];
        for (int i = 0; i < lesson->visit.n; i++, place++) {
            double a = dot(model.adagrad, lesson->input(s, i), s.stride),
                   b = dot(model.newton, lesson->input(s, i), s.stride);
            if (lesson->sparse) {
                add_sparse(*lesson->sparse, i, kSparseAdagrad, 1, &a);
                add_sparse(*lesson->sparse, i, kSparseNewton, 1, &b);
            }
            of_a.predictor[place] = a;
            of_b.predictor[place] = b;
            of_blend.predictor[place] = model.state->sureness * ((1.0 - share) * a + share * b);
            of_a.target[place] = of_b.target[place] = of_blend.target[place] = rows.targets[lesson->visit.rows[i]];
        }
    }
    asked.ask(3 * n_rows);
    place = 0;
    for (const Lesson* lesson = lessons; lesson < lessons + n; lesson++) {
        const LossState& state = *lesson->model.loss;
        const Forward& before = lesson->before;
        for (int i = 0; i < lesson->visit.n; i++, place++) {
            before.loss[i] = of_blend.loss[place] / state.spread + state.half_log_spread + Loss::kLogScale;
            before.residual[i] = of_blend.slope[place] / state.spread;
            before.said[i] = of_blend.predictor[place];
            before.signal[i] = {(of_a.loss[place] - of_b.loss[place]) / state.spread, 0.0, 0.0, of_blend.spread[place]};
            if (i > 0) continue;
            const Scratch scratch(*lesson);
            *scratch.adagrad = of_a.slope[place] / state.spread;
            *scratch.newton = of_b.slope[place] / state.spread;
            *scratch.curvature = of_b.curvature[place] / state.spread;
        }
    }
}

template <class Loss>
void blend_forward(const Rows& rows, const Lesson* lessons, int n) {
    if constexpr (Loss::kIsJoint) {
        forward_joint<Loss>(rows, lessons, n);
    } else if constexpr (Loss::kIsAsked) {
        forward_asked<Loss>(rows, lessons, n);
    } else {
        forward_lanes<Loss>(rows, lessons, n);
    }
}

// ---------------------------------------------------------------- one row of each of several models
// Up to eight models of any shape learn side by side, each its own i-th row: while one waits for its exponential, the others
// compute.
template <class Loss>
struct Group {
    Rows rows;
    const Lesson* lessons[kLanes];  // longest first
    const BlendParts* models[kLanes];
    int n = 0;
    typename Loss::Lanes given;

    explicit Group(const Rows& all_rows) : rows(all_rows) {}
    void add(const Lesson& lesson, const BlendParts& model) {
        given.set_state(n, *lesson.model.loss);
        models[n] = &model;
        lessons[n++] = &lesson;
    }
    int row(int l, int i) const { return lessons[l]->visit.rows[i]; }
    double step(int l, int i) const { return rows.steps[row(l, i)]; }
    const Shape& shape(int l) const { return lessons[l]->shape; }
    Scratch scratch(int l) const { return Scratch(*lessons[l]); }

    // Calls each(i) for every i up to the longest lesson; models without an i-th row leave the group.
    template <class Each>
    void for_rows(Each&& each) {
        const int all_models = n;
        for (int i = 0; n > 0 && i < lessons[0]->visit.n; i++) {
            while (lessons[n - 1]->visit.n <= i) n--;
            each(i);
        }
        n = all_models;
    }
    // Residuals and curvatures of the i-th rows, with the weights of one of the two learners.
    template <double* BlendParts::* weights_of, double* Scratch::* residual_of>
    void ask(int i) {
        constexpr SparseNumber kSparse = residual_of == &Scratch::newton ? kSparseNewton : kSparseAdagrad;
        if constexpr (Loss::kIsJoint) {
            for (int l = 0; l < n; l++) {
                const Shape& s = shape(l);
                double* residual = scratch(l).*residual_of;
                predictors_of(s, models[l]->*weights_of, lessons[l]->input(s, i), residual);
                if (lessons[l]->sparse) add_sparse(*lessons[l]->sparse, i, kSparse, s.outputs, residual);
                const auto slope =
                    Loss::slope(residual, s.outputs, rows.targets[row(l, i)], *lessons[l]->model.loss, rows.levels);
                if (residual_of == &Scratch::newton) *scratch(l).curvature = slope.curvature;
            }
        } else {
            for (int l = 0; l < n; l++) {
                const Shape& s = shape(l);
                given.predictor[l] = dot(models[l]->*weights_of, lessons[l]->input(s, i), s.stride);
                if (lessons[l]->sparse) [[unlikely]]
                    add_sparse(*lessons[l]->sparse, i, kSparse, 1, given.predictor + l);
                given.target[l] = rows.targets[row(l, i)];
            }
            const auto slopes = given.slopes(at(given.predictor));
            for (int l = 0; l < n; l++) {
                *(scratch(l).*residual_of) = slopes.residual[l];
                if (residual_of == &Scratch::newton) *scratch(l).curvature = slopes.curvature[l];
            }
        }
    }
};

// ---------------------------------------------------------------- Adagrad
inline bool is_sparse(const Shape& s, int n_active) { return 8 * n_active < s.stride; }

template <class Loss>
inline void adagrad_row(const Shape& s, const BlendParts& model, const Lesson& lesson, int place, double weight, double step,
                        const double* residual) {
    const double move = step * weight;
    const double* z = lesson.input(s, place);
    const std::int32_t* active = lesson.active + static_cast<long>(lesson.lines[place]) * s.stride;
    const int n_active = lesson.n_active[lesson.lines[place]];
    for (int k = 0; k < outputs_of<Loss>(s); k++) {
        double* w = model.adagrad + k * s.stride;
        double* squares = model.squares + k * s.stride;
        if (is_sparse(s, n_active)) [[unlikely]] {
            for (int i = 0; i < n_active; i++) {
                const double g = residual[k] * z[active[i]];
                const double sum = squares[active[i]] += weight * (g * g);
                w[active[i]] -= move * g * static_cast<double>(1.0f / (std::sqrt(static_cast<float>(sum)) + 1e-8f));
            }
            continue;
        }
        for (int c = 0; c < s.stride; c += kLanes) {
            const Vector g = residual[k] * at(z + c), sum = at(squares + c) + weight * (g * g);
            at(squares + c) = sum;
            at(w + c) -= move * g * inverse_root(sum);
        }
    }
}

// Sparse inputs learn in the first pass only: for an input with few rows, three passes over each are too many.
template <bool is_first, class Loss>
void adagrad_pass(Group<Loss>& group, bool knows_first, double step, double sparse_step) {
    group.for_rows([&](int i) {
        if (i > 0 || !knows_first) group.template ask<&BlendParts::adagrad, &Scratch::adagrad>(i);
        for (int l = 0; l < group.n; l++) {
            const Lesson& lesson = *group.lessons[l];
            const double* residual = group.scratch(l).adagrad;
            adagrad_row<Loss>(group.shape(l), *group.models[l], lesson, i, group.step(l, i), step, residual);
            if (is_first && lesson.sparse) [[unlikely]]
                adagrad_sparse(*lesson.sparse, i, group.step(l, i), sparse_step, group.shape(l).outputs, residual);
        }
    });
}

// ---------------------------------------------------------------- online Newton
// A row in the precision of the matrix, and what Newton remembers of it.
template <class Cell>
struct NewtonRow;
template <>
struct NewtonRow<double> {
    double *product, *square;  // A x for this row; what must still be subtracted from A for the row before
    NewtonRow(const Shape& s, const Scratch& scratch) : product(scratch.newton_row), square(product + s.stride) {}
    static const double* inputs(const Shape&, const double* z) { return z; }
};
template <>
struct NewtonRow<float> {
    float *product, *square, *z;
    NewtonRow(const Shape& s, const Scratch& scratch)
        : product(reinterpret_cast<float*>(scratch.newton_row)), square(product + s.stride), z(square + s.stride) {}
    const float* inputs(const Shape& s, const double* given) const {
        for (int c = 0; c < s.stride; c += kLanes) store(z + c, at(given + c));
        return z;
    }
};

template <class Cell>
void reset_matrix(const Shape& s, Cell* matrix, BlendState& state, double variance) {
    for (std::size_t i = 0; i < BlendParts::cells(s); i++) matrix[i] = 0;
    for (int c = 0; c < s.columns; c++) matrix[static_cast<long>(c) * s.stride + c] = static_cast<Cell>(variance);
    state.scale = 1.0;
    state.trace = variance * s.columns;
}

// Multiplies the matrix by the scale, so that neither overflows in a long stream.
template <class Cell>
void fold_scale(const Shape& s, Cell* matrix, BlendState& state) {
    const Cell scale = static_cast<Cell>(state.scale);
    state.scale = 1.0;
    state.trace = 0.0;
    for (int r = 0; r < s.columns; r++) {
        Cell* line = matrix + static_cast<long>(r) * s.stride;
        for (int c = 0; c < s.stride; c++) line[c] *= scale;
        state.trace += line[r];
    }
}

// Forgetting makes A grow where no rows inform it (columns that stay zero). When the trace of A has reached twice its first
// value, each variance is limited to its first value. Row and column shrink together, which keeps A symmetric and positive
// definite.
template <class Cell>
void limit_diagonal(const Shape& s, Cell* matrix, BlendState& state, double variance) {
    fold_scale(s, matrix, state);
    for (int r = 0; r < s.columns; r++) {
        Cell* line = matrix + static_cast<long>(r) * s.stride;
        const double own = line[r];
        if (!(own > variance)) continue;
        const Cell factor = static_cast<Cell>(std::sqrt(variance / own));
        for (int c = 0; c < s.columns; c++) {
            if (c == r) continue;
            line[c] *= factor;
            matrix[static_cast<long>(c) * s.stride + r] = line[c];
        }
        line[r] = static_cast<Cell>(variance);
        state.trace -= own - variance;
    }
}

// Calls each(number of vectors, first column) for a line in parts of up to `Most` vectors, which fit into registers.
// Functions that write to a matrix take the shape by value: otherwise, for the compiler, any write might change it.
template <int Most, class Each>
DRIFTREE_INLINE void for_parts(Shape s, Each&& each) {
    int c = 0;
    for (; c + Most * kLanes <= s.stride; c += Most * kLanes) each(std::integral_constant<int, Most>(), c);
    if constexpr (Most > 1)
        if (c + (Most - 1) * kLanes == s.stride) each(std::integral_constant<int, Most - 1>(), c);
    if constexpr (Most > 2)
        if (c + (Most - 2) * kLanes == s.stride) each(std::integral_constant<int, Most - 2>(), c);
    if constexpr (Most > 3)
        if (c + (Most - 3) * kLanes == s.stride) each(std::integral_constant<int, Most - 3>(), c);
}

// product = matrix . z, as a sum of rows of the matrix, which is symmetric.
template <class Cell>
inline void times(Shape s, const Cell* matrix, const Cell* z, const std::int32_t* active, int n_active, Cell* product) {
    for_parts<4>(s, [&](auto n_vectors, int c) DRIFTREE_HOT {
        VectorOf<Cell> sum[n_vectors];
        for (int j = 0; j < n_vectors; j++) sum[j] = zeros<Cell>();
        for (int i = 0; i < n_active; i++) {
            const Cell* line = matrix + static_cast<long>(active[i]) * s.stride + c;
            for (int j = 0; j < n_vectors; j++) sum[j] += z[active[i]] * at(line + j * kLanes);
        }
        for (int j = 0; j < n_vectors; j++) at(product + c + j * kLanes) = sum[j];
    });
}

// matrix -= v v', with the same bits on both sides of the diagonal.
template <class Cell>
inline void subtract_square(Shape s, Cell* matrix, const Cell* v) {
    for_parts<4>(s, [&](auto n_vectors, int c) DRIFTREE_HOT {
        VectorOf<Cell> own[n_vectors];
        for (int j = 0; j < n_vectors; j++) own[j] = at(v + c + j * kLanes);
        Cell* line = matrix + c;
        for (int r = 0; r < s.columns; r++, line += s.stride)
            for (int j = 0; j < n_vectors; j++) at(line + j * kLanes) -= v[r] * own[j];
    });
}

// matrix -= v v', then product = matrix . z while the lines are in registers: the same bits as one after the other.
template <class Cell>
inline void subtract_square_and_times(Shape s, Cell* matrix, const Cell* v, const Cell* z, Cell* product) {
    constexpr int kParts_ = static_cast<int>(sizeof(VectorOf<Cell>) / sizeof(PartOf<Cell>));
    constexpr int kMost = kWidth == 8 || kParts_ == 1 ? 4 : (kParts_ == 2 ? 2 : 1);  // keeps twice as many numbers as above
    for_parts<kMost>(s, [&](auto n_vectors, int c) DRIFTREE_HOT {
        VectorOf<Cell> own[n_vectors], sum[n_vectors];
        for (int j = 0; j < n_vectors; j++) own[j] = at(v + c + j * kLanes), sum[j] = zeros<Cell>();
        Cell* line = matrix + c;
        for (int r = 0; r < s.columns; r++, line += s.stride) {
            for (int j = 0; j < n_vectors; j++) {
                const VectorOf<Cell> now = at(line + j * kLanes) - v[r] * own[j];
                at(line + j * kLanes) = now;
                sum[j] += z[r] * now;
            }
        }
        for (int j = 0; j < n_vectors; j++) at(product + c + j * kLanes) = sum[j];
    });
}

// The same on the upper half of a large matrix, which halves the memory traffic: eight lines at a time, from their diagonal
// on. A number right of the diagonal is added down its column and, as its mirror image, across its line.
template <class Cell>
DRIFTREE_INLINE PartOf<Cell>& part_at(Cell* p) {
    return *reinterpret_cast<PartOf<Cell>*>(p);
}
template <class Cell>
DRIFTREE_INLINE const PartOf<Cell>& part_at(const Cell* p) {
    return *reinterpret_cast<const PartOf<Cell>*>(p);
}
template <class Cell>
inline void subtract_square_and_times_upper(Shape s, Cell* matrix, const Cell* v, const Cell* z, Cell* product) {
    constexpr int kPieces = static_cast<int>(sizeof(VectorOf<Cell>) / sizeof(PartOf<Cell>)), kPiece = kLanes / kPieces;
    for (int c = 0; c < s.stride; c += kLanes) at(product + c) = zeros<Cell>();
    for (int first = 0; first < s.stride; first += kLanes) {
        Cell* lines = matrix + static_cast<long>(first) * s.stride;
        PartOf<Cell> across[kLanes][kPieces] = {};
        const auto pass = [&](int c, int piece, auto is_right) DRIFTREE_HOT {
            const PartOf<Cell> own = part_at(v + c), given = part_at(z + c);
            PartOf<Cell> down = part_at(product + c);
#pragma GCC unroll 8
            for (int i = 0; i < kLanes; i++) {
                PartOf<Cell>& cell = part_at(lines + static_cast<long>(i) * s.stride + c);
                const PartOf<Cell> now = cell - v[first + i] * own;
                cell = now;
                down += z[first + i] * now;
                if constexpr (is_right) across[i][piece] += given * now;
            }
            part_at(product + c) = down;
        };
        for (int piece = 0; piece < kPieces; piece++) pass(first + piece * kPiece, piece, std::false_type());
        for (int c = first + kLanes; c < s.stride; c += kLanes) {
#pragma GCC unroll 8
            for (int piece = 0; piece < kPieces; piece++) pass(c + piece * kPiece, piece, std::true_type());
        }
        for (int i = 0; i < kLanes; i++) {
            VectorOf<Cell> sum;
            for (int piece = 0; piece < kPieces; piece++) sum.part[piece] = across[i][piece];
            product[first + i] += static_cast<Cell>(total(sum));
        }
    }
}
// matrix -= v v', then copies the upper half to the lower half.
template <class Cell>
void subtract_square_and_mirror(Shape s, Cell* matrix, const Cell* v, Cell* room) {
    subtract_square_and_times_upper(s, matrix, v, v, room);
    for (int r = kLanes; r < s.stride; r += kLanes)
        for (int c = 0; c < r; c += kLanes) {
            alignas(64) Cell block[kLanes][kLanes];
            for (int i = 0; i < kLanes; i++) at(block[i]) = at(matrix + static_cast<long>(c + i) * s.stride + r);
            for (int i = 0; i < kLanes; i++)
                for (int j = 0; j < kLanes; j++) matrix[static_cast<long>(r + i) * s.stride + c + j] = block[j][i];
        }
}

template <class Cell>
inline void subtract_waiting(const Shape& s, Cell* matrix, const NewtonRow<Cell>& row, bool by_half) {
    if (by_half) {
        subtract_square_and_mirror(s, matrix, row.square, row.product);
    } else {
        subtract_square(s, matrix, row.square);
    }
}
// The matrix in the precision that the template names.
template <class Cell>
Cell* matrix_of(const BlendParts& model) {
    if constexpr (std::is_same_v<Cell, float>)
        return model.single_matrix;
    else
        return model.matrix;
}

// One row of online Newton:  u = A x;  q = f + h x'u;  A <- (A - h u u' / q) / f;  W -= residual u' / q,
// with A = scale * matrix. The subtraction is deferred, in NewtonRow::square, to the model's next row, which reads the whole
// matrix anyway. `by_half`: while a subtraction is deferred, only the upper half is valid.
template <class Loss, class Cell>
inline void newton_row(const Shape& s, const BlendParts& model, const Lesson& lesson, int place, double weight, double keep,
                       double curvature_share, double variance, const Scratch& scratch, bool by_half, bool& waits) {
    BlendState& state = *model.state;
    Cell* matrix = matrix_of<Cell>(model);
    const double* z = lesson.input(s, place);
    const std::int32_t* active = lesson.active + static_cast<long>(lesson.lines[place]) * s.stride;
    const int n_active = lesson.n_active[lesson.lines[place]];
    const double fade = weight == 1.0 ? keep : std::pow(keep, weight);
    const double given = curvature_share * *scratch.curvature, curvature = weight * (given > 0.01 ? given : 0.01);
    const NewtonRow<Cell> row(s, scratch);
    const Cell* inputs = row.inputs(s, z);
    Cell* u = row.product;

    if (waits && by_half) {
        subtract_square_and_times_upper(s, matrix, row.square, inputs, u);
    } else if (waits) {
        subtract_square_and_times(s, matrix, row.square, inputs, u);
    } else {
        times(s, matrix, inputs, active, n_active, u);
    }
    double leverage = dot(z, u, s.stride);
    if (!(leverage >= 0.0 && leverage < 1e300)) [[unlikely]] {  // A is no longer positive definite, by rounding
        reset_matrix(s, matrix, state, variance);
        times(s, matrix, inputs, active, n_active, u);
        leverage = dot(z, u, s.stride);
    }
    double q = fade + curvature * state.scale * leverage;
    if (lesson.sparse) [[unlikely]] {
        q += curvature * sparse_leverage(*lesson.sparse, place);
        newton_sparse(*lesson.sparse, place, weight / q, curvature / q, fade, variance, s.outputs, scratch.newton);
    }
    const double step = weight * state.scale / q;
    for (int k = 0; k < outputs_of<Loss>(s); k++) {
        double* w = model.newton + k * s.stride;
        const double r = step * scratch.newton[k];
        for (int c = 0; c < s.stride; c += kLanes) at(w + c) -= r * wide_at(u + c);
    }
    const double shrink = curvature * state.scale / q;
    state.trace = (state.trace - shrink * state.scale * dot(u, u, s.stride)) / fade;
    state.scale /= fade;
    const double root = std::sqrt(shrink);
    for (int c = 0; c < s.stride; c += kLanes) store(row.square + c, wide_at(u + c) * root);
    const bool is_large = state.trace > kMostTrace * variance * s.columns;
    const bool is_off = state.scale > 1e3 || state.scale < 1e-3;
    waits = !is_large && !is_off;
    if (waits) [[likely]]
        return;
    subtract_waiting(s, matrix, row, by_half);
    if (is_large) limit_diagonal(s, matrix, state, variance);
    if (state.scale > 1e3 || state.scale < 1e-3) fold_scale(s, matrix, state);
}

// For the matrices of a group: whether only the upper half is computed, and whether a subtraction is deferred.
struct Matrices {
    bool by_half[kLanes] = {}, waits[kLanes] = {};
};

template <class Cell, class Loss>
void newton_pass(Group<Loss>& group, const BlendRates& rates, bool knows_first, Matrices& matrices) {
    const int free_outputs = group.shape(0).outputs - 1;  // of a joint loss: one follows from the others
    const double share = Loss::kIsJoint && Loss::kHasLabels && rates.mean_curvature ? 2.0 / free_outputs : 1.0;
    double keep[kLanes];
    for (int l = 0; l < group.n; l++) {
        const double least = rates.rows_per_column * group.shape(l).columns;
        const double memory = rates.rows > least ? rates.rows : least;
        keep[l] = 1.0 - 1.0 / (memory * group.models[l]->state->memory);
    }
    group.for_rows([&](int i) {
        if (i > 0 || !knows_first) group.template ask<&BlendParts::newton, &Scratch::newton>(i);
        for (int l = 0; l < group.n; l++)
            newton_row<Loss, Cell>(group.shape(l), *group.models[l], *group.lessons[l], i, group.step(l, i), keep[l], share,
                                   rates.variance, group.scratch(l), matrices.by_half[l], matrices.waits[l]);
    });
}
// All rows of a step, for models whose matrices are learnt together.
template <class Cell, class Loss>
void newton_step(Group<Loss>& group, const BlendRates& rates, bool knows_first, bool halves_matrix) {
    Matrices matrices;
    const auto row = [&](int l) { return NewtonRow<Cell>(group.shape(l), group.scratch(l)); };
    for (int l = 0; l < group.n; l++) {
        matrices.by_half[l] = matrices.waits[l] = halves_matrix && group.lessons[l]->visit.n >= kRowsByHalf;
        for (int c = 0; matrices.by_half[l] && c < group.shape(l).stride; c++) row(l).square[c] = 0;  // nothing yet
    }
    newton_pass<Cell>(group, rates, knows_first, matrices);
    for (int l = 0; l < group.n; l++)
        if (matrices.waits[l])
            subtract_waiting(group.shape(l), matrix_of<Cell>(*group.models[l]), row(l), matrices.by_half[l]);
}

// ---------------------------------------------------------------- the blend
// Lower bound of a row's loss at a sureness of 1: beyond even odds, the loss is about linear in the predictors.
inline double full_loss(double loss, double sureness) {
    return loss > kEvenOdds ? loss + (1.0 / sureness - 1.0) * (loss - kEvenOdds) : loss;
}

// Updates the preference and the share of wrong rows; returns a lower bound of the largest loss at a sureness of 1.
template <class Loss>
double learn_preference(const Rows& rows, const Lesson& lesson) {
    BlendState& state = *lesson.model.blend;
    double most = 0.0;
    for (int i = 0; i < lesson.visit.n; i++) {
        const double weight = rows.steps[lesson.visit.rows[i]], loss = lesson.before.loss[i];
        const bool is_whole = weight == 1.0;
        const double fade = is_whole ? kKeptPreference : std::pow(kKeptPreference, weight);
        const double keep = is_whole ? kKeptWrong : std::pow(kKeptWrong, weight);
        double advantage = lesson.before.signal[i].advantage;
        if constexpr (!Loss::kHasLabels)  // the error of a number is unbounded
            advantage = advantage > 1.0 ? 1.0 : (advantage < -1.0 ? -1.0 : advantage);
        const double d = fade * state.preference + weight * advantage;
        state.preference = d > 8.0 ? 8.0 : (d < -8.0 ? -8.0 : d);
        state.wrong = keep * state.wrong + (loss > kEvenOdds ? 1.0 - keep : 0.0);
        most = loss > most ? loss : most;
    }
    return full_loss(most, state.sureness);
}

// The last fade: it depends on the number of rows only, which is mostly that of the lesson before.
struct SurenessFade {
    double rows = 0.0, keep = 1.0;
};
// One Newton step on the sureness for all rows of the lesson. Learners with few rows are overconfident; the blend learns by
// how much. This changes losses, but no decision between labels.
inline void learn_sureness(const Rows& rows, const Lesson& lesson, double window, SurenessFade& fade) {
    BlendState& state = *lesson.model.blend;
    double pull = 0.0, grip = 0.0, n = 0.0;
    for (int i = 0; i < lesson.visit.n; i++) {
        const double weight = rows.steps[lesson.visit.rows[i]];
        pull += weight * lesson.before.signal[i].pull;
        grip += weight * lesson.before.signal[i].grip;
        n += weight;
    }
    if (n != fade.rows) fade = {n, std::exp(-n / window)};
    state.sureness_rows = fade.keep * state.sureness_rows + grip;
    const double step = pull / (state.sureness_rows + kFirstSurenessRows),
                 limited = step > 0.5 ? 0.5 : (step < -0.5 ? -0.5 : step);
    if (state.sureness == 1.0 && limited <= 0.0) return;  // already the largest: the usual case, without an exponential
    const double sureness = state.sureness * std::exp(-limited);
    state.sureness = sureness > 1.0 ? 1.0 : (sureness < 0.01 ? 0.01 : sureness);
}

// Without noise, weights grow for as long as rows come, and after a change all of that would have to be undone first. A
// model that is mostly wrong and overconfident scales all weights down, as if it had learnt less: Adagrad's weights grow
// like the root of its squares. One common factor changes no decision. Occasional wrong labels are left to the floor.
void limit_sureness(const Rows& rows, const Lesson& lesson, double most_sure) {
    const Shape& s = lesson.shape;
    const BlendParts model(s, lesson.model);
    double factor = 1.0;
    for (int i = 0; i < lesson.visit.n; i++) {
        const double loss = full_loss(lesson.before.loss[i], lesson.model.blend->sureness);
        if (!(loss > most_sure)) continue;
        const double own = std::pow(most_sure / loss, rows.steps[lesson.visit.rows[i]]);
        factor = own < factor ? own : factor;
    }
    for (int c = 0; c < s.size(); c++) {
        model.adagrad[c] *= factor;
        model.squares[c] *= factor * factor;
        model.newton[c] *= factor;
    }
    if (lesson.sparse) {
        const SparseLesson& sparse = *lesson.sparse;
        *sparse.scale *= factor;
        for (int cell = 0; cell < sparse.n_cells; cell++)
            for (int c = 1; c < sparse.width; c++)
                sparse.number(cell, c) *= (c - 1) % 3 + 1 == kSparseSquares ? factor * factor : factor;
    }
    const double sureness = model.state->sureness / factor;  // the smaller weights replace a part of it
    model.state->sureness = sureness < 1.0 ? sureness : 1.0;
}

// A model of numbers that has become wrong would adapt too slowly: its spread grows with the errors, so that rows weigh less
// than those from when errors were small, which Newton still trusts. The variance of the weights is proportional to the
// spread, and scaled with it; at first, while the spread falls as the model learns, only with bounded slopes, or if it jumps.
template <class Loss>
void learn_loss(const Rows& rows, const Lesson& lesson, const LossRates& rates) {
    if (!Loss::learns(*lesson.model.loss)) return;
    const LossState then = *lesson.model.loss;
    for (int i = 0; i < lesson.visit.n; i++) {
        const int row = lesson.visit.rows[i];
        const double* residual = lesson.before.residual + static_cast<long>(i) * lesson.shape.outputs;
        Loss::learn(*lesson.model.loss,
                    {lesson.before.loss[i], residual, rows.targets[row], rows.steps[row], &then,
                     Loss::kIsAsked ? lesson.before.signal[i].spread : 0.0},
                    rates);
    }
    if constexpr (!Loss::kHasLabels) lesson.model.loss->set_spread(lesson.model.loss->spread);  // one logarithm for all rows
    const double ratio = lesson.model.loss->spread / then.spread;
    const bool is_old = 4.0 * then.spread_rows >= rates.spread.rows;  // at first the spread counts one row of four
    if (Loss::kIsBounded || (!Loss::kHasLabels && (is_old || ratio > kJump))) {
        lesson.model.blend->scale *= ratio;
        lesson.model.blend->trace *= ratio;
    }
}

// More than one pass of Adagrad pays where it leads; over a single row, unless it is far behind.
inline bool needs_more_passes(const Lesson& lesson, const BlendRates& rates, bool spares) {
    if (lesson.sparse && lesson.shape.columns == 1) return false;  // only the intercept would learn in further passes
    return !spares || lesson.model.blend->preference <= (lesson.visit.n == 1 ? rates.clear_lead : 0.0);
}

// Number of lessons that learn together: their matrices should stay in the L1 cache, or in L2.
inline int learn_together(const Lesson* lessons, int n, long most_bytes) {
    long size = 0;
    for (int l = 0; l < n; l++) {
        const long cell = lessons[l].model.singles ? sizeof(float) : sizeof(double);
        size += cell * static_cast<long>(BlendParts::cells(lessons[l].shape));
        if (l > 0 && size > most_bytes) return l;
    }
    return n;
}

// Learns up to eight lessons. newton(models, knows_first) trains Newton.
template <class Loss, class Newton>
void learn_side_by_side(const Rows& rows, const Lesson* lessons, int n, const BlendRates& rates, bool spares_passes,
                        SurenessFade& fade, Newton&& newton) {
    Group<Loss> group(rows), again(rows);
    BlendParts models[kLanes];
    bool knows_first = true;  // the scratch of the forward pass is still valid
    for (int l = 0; l < n; l++) {
        if (learn_preference<Loss>(rows, lessons[l]) > rates.most_sure && lessons[l].model.blend->wrong > 0.5) [[unlikely]] {
            limit_sureness(rows, lessons[l], rates.most_sure);
            knows_first = false;
        }
        if (rates.sureness_window > 0.0) learn_sureness(rows, lessons[l], rates.sureness_window, fade);
        const BlendParts& model = models[l] = BlendParts(lessons[l].shape, lessons[l].model);
        group.add(lessons[l], model);
        if (needs_more_passes(lessons[l], rates, spares_passes)) again.add(lessons[l], model);
    }
    adagrad_pass<true>(group, knows_first, rates.step, rates.sparse_step);
    for (int pass = 1; pass < rates.passes; pass++) adagrad_pass<false>(again, false, rates.step, 0.0);
    newton(models, knows_first);
    for (int l = 0; l < n; l++) learn_loss<Loss>(rows, lessons[l], rates.loss);
}

template <class Loss, class Cell>
void blend_learn_in(const Rows& rows, const Lesson* lessons, int n, const BlendRates& rates, const Care& care) {
    SurenessFade fade;
    for (int begin = 0; begin < n; begin += kLanes) {
        const Lesson* const some = lessons + begin;
        const int n_some = n < begin + kLanes ? n - begin : kLanes;
        const auto newton = [&](const BlendParts* models, bool knows_first) {
            for (int l = 0, together; l < n_some; l += together) {
                together = learn_together(some + l, n_some - l, kTogetherBytes);
                Group<Loss> part(rows);
                for (int i = l; i < l + together; i++) part.add(some[i], models[i]);
                newton_step<Cell>(part, rates, knows_first, care.halves_matrix);
            }
        };
        learn_side_by_side<Loss>(rows, some, n_some, rates, care.spares_passes, fade, newton);
    }
}

template <class Loss>
void blend_learn(const Rows& rows, const Lesson* lessons, int n, const BlendRates& rates, const Care& care) {
    const auto learn = n > 0 && lessons[0].model.singles ? blend_learn_in<Loss, float> : blend_learn_in<Loss, double>;
    learn(rows, lessons, n, rates, care);
}

// The same rows as if each were a step of its own, predicted by models that have learnt the rows before it. A model's rows
// are learnt one after the other, so that its matrix stays in the cache.
template <class Loss, class Cell>
void blend_follow_in(const Rows& rows, const Lesson* lessons, int n, const BlendRates& rates, const Care& care) {
    SurenessFade fade;
    for (int begin = 0, together; begin < n; begin += together) {
        together = learn_together(lessons + begin, n - begin < kLanes ? n - begin : kLanes, kFollowingBytes);
        Lesson one[kLanes];  // the next row of each lesson
        for (int l = 0; l < together; l++) {
            one[l] = lessons[begin + l];
            one[l].visit.n = 1;
        }
        Matrices matrices;
        int n_left = together;
        const auto newton = [&](const BlendParts* models, bool knows_first) {
            Group<Loss> group(rows);
            for (int l = 0; l < n_left; l++) group.add(one[l], models[l]);
            newton_pass<Cell>(group, rates, knows_first, matrices);
        };
        for (int i = 0; i < lessons[begin].visit.n; i++) {
            while (lessons[begin + n_left - 1].visit.n <= i) n_left--;
            blend_forward<Loss>(rows, one, n_left);
            learn_side_by_side<Loss>(rows, one, n_left, rates, care.spares_passes, fade, newton);
            for (int l = 0; l < n_left; l++) one[l].go_on();
        }
        for (int l = 0; l < together; l++) {
            const Lesson& lesson = lessons[begin + l];
            if (matrices.waits[l])
                subtract_waiting(lesson.shape, matrix_of<Cell>(BlendParts(lesson.shape, lesson.model)),
                                 NewtonRow<Cell>(lesson.shape, Scratch(lesson)), false);
        }
    }
}
template <class Loss>
void blend_follow(const Rows& rows, const Lesson* lessons, int n, const BlendRates& rates, const Care& care) {
    const auto follow = n > 0 && lessons[0].model.singles ? blend_follow_in<Loss, float> : blend_follow_in<Loss, double>;
    follow(rows, lessons, n, rates, care);
}

void blend_weights(const Shape& s, const ModelMemory& memory, double* weights) {
    const BlendParts model(s, memory);
    const double share = newton_share(all(model.state->preference))[0];
    for (int c = 0; c < s.size(); c++)
        weights[c] = model.state->sureness * ((1.0 - share) * model.adagrad[c] + share * model.newton[c]);
}

}  // namespace
}  // namespace driftree
