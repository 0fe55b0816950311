// SGD: the paper's simple models, (multinomial) logit models trained by stochastic gradient descent with a constant step.
#pragma once
#include "blend.hpp"
#include "losses.hpp"

namespace driftree {
namespace {

// Predictors of up to eight rows, of one or several models.
template <class Loss>
struct SomeRows {
    int n = 0;
    typename Loss::Lanes given;
    double *residual[kLanes], *loss[kLanes];
    // Filling all lanes with one number is faster than collecting numbers.
    Slopes slopes() const {
        return n == 1 ? given.slopes(all(given.predictor[0]), all(given.target[0])) : given.slopes(at(given.predictor));
    }
    void finish() {
        const Slopes found = slopes();
        const Vector losses = found.loss();
        for (int lane = 0; lane < n; lane++) {
            *residual[lane] = found.residual[lane];
            *loss[lane] = losses[lane];
        }
        n = 0;
    }
};

template <class Loss>
void sgd_forward(const Shape& s, const Rows& rows, const Lesson* lessons, int n) {
    if constexpr (Loss::kIsJoint) {
        for (const Lesson* lesson = lessons; lesson < lessons + n; lesson++) {
            const Forward& out = lesson->before;
            for (int i = 0; i < lesson->visit.n; i++) {
                const int row = lesson->visit.rows[i];
                predictors_of(s, lesson->model.numbers, rows.input(s, row), out.scratch);
                for (int k = 0; k < s.outputs; k++) out.said[static_cast<long>(i) * s.outputs + k] = out.scratch[k];
                const auto slope = Loss::slope(out.scratch, s.outputs, rows.targets[row], *lesson->model.loss, rows.levels);
                out.loss[i] = log_positive(all(slope.ratio))[0] + slope.hinge;
                for (int k = 0; k < s.outputs; k++) out.residual[static_cast<long>(i) * s.outputs + k] = out.scratch[k];
            }
        }
    } else {
        SomeRows<Loss> some;
        for (const Lesson* lesson = lessons; lesson < lessons + n; lesson++) {
            for (int i = 0; i < lesson->visit.n; i++) {
                const int row = lesson->visit.rows[i];
                const double said = dot(lesson->model.numbers, rows.input(s, row), s.stride);
                some.given.predictor[some.n] = lesson->before.said[i] = said;
                some.given.target[some.n] = rows.targets[row];
                some.residual[some.n] = lesson->before.residual + i;
                some.loss[some.n++] = lesson->before.loss + i;
                if (some.n == kLanes) some.finish();
            }
        }
        if (some.n > 0) some.finish();
    }
}

inline void sgd_step(const Shape& s, double* weights, const double* z, double step) {
    for (int c = 0; c < s.stride; c += kLanes) at(weights + c) -= step * at(z + c);
}

// Each row depends on the one before, but models are independent: up to eight learn side by side, longest first. The
// residual of the first row is known from before the step. For the next row, everything is computed in advance except the
// change by this row:  (w - step z) . z' = w . z' - step (z . z').
template <class Loss>
void sgd_learn_lanes(const Shape& s, const Rows& rows, const Lesson* lessons, int n, double rate) {
    SomeRows<Loss> some;
    some.n = n;
    double residual[kLanes];
    for (int l = 0; l < n; l++) residual[l] = lessons[l].before.residual[0];
    for (int i = 0; i < lessons[0].visit.n; i++) {
        while (lessons[some.n - 1].visit.n <= i) some.n--;
        for (int l = 0; l < some.n; l++) {
            const Visit& visit = lessons[l].visit;
            const double* z = rows.input(s, visit.rows[i]);
            double* weights = lessons[l].model.numbers;
            const double step = rate * rows.steps[visit.rows[i]] * residual[l];
            if (i + 1 < visit.n) {
                const double* next = rows.input(s, visit.rows[i + 1]);
                some.given.predictor[l] = dot(weights, next, s.stride) - step * dot(z, next, s.stride);
                some.given.target[l] = rows.targets[visit.rows[i + 1]];
            }
            sgd_step(s, weights, z, step);
        }
        if (i + 1 == lessons[0].visit.n) break;
        const Vector found = some.slopes().residual;
        for (int l = 0; l < some.n; l++) residual[l] = found[l];
    }
}

template <class Loss>
void sgd_learn_joint(const Shape& s, const Rows& rows, const Lesson& lesson, double rate) {
    double *weights = lesson.model.numbers, *residual = lesson.before.scratch;
    for (int i = 0; i < lesson.visit.n; i++) {
        const int row = lesson.visit.rows[i];
        predictors_of(s, weights, rows.input(s, row), residual);
        Loss::slope(residual, s.outputs, rows.targets[row], *lesson.model.loss, rows.levels);
        for (int k = 0; k < s.outputs; k++)
            sgd_step(s, weights + k * s.stride, rows.input(s, row), rate * rows.steps[row] * residual[k]);
    }
}

template <class Loss>
void sgd_learn(const Shape& s, const Rows& rows, const Lesson* lessons, int n, const SgdRates& rates) {
    if constexpr (Loss::kIsJoint) {
        for (int l = 0; l < n; l++) sgd_learn_joint<Loss>(s, rows, lessons[l], rates.step);
    } else {
        for (int l = 0; l < n; l += kLanes)
            sgd_learn_lanes<Loss>(s, rows, lessons + l, n - l < kLanes ? n - l : kLanes, rates.step);
    }
}

}  // namespace
}  // namespace driftree
