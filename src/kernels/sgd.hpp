// The paper's simple models: a (multinomial) logit model, stochastic gradient descent with a constant learning rate.
#pragma once
#include "blend.hpp"
#include "links.hpp"

namespace driftree {
namespace {

// Log-odds of up to eight rows, of one model or several.
struct SomeLogits {
    int n = 0;
    LogOdds odds;
    double *residual[kLanes], *loss[kLanes];
    // One number in all lanes is quicker to have than numbers put together.
    Slopes slopes() const {
        return n == 1 ? odds.slopes(all(odds.logit[0]), all(odds.label[0])) : odds.slopes(at(odds.logit));
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

void sgd_forward(const Shape& s, const Rows& rows, const Lesson* lessons, int n) {
    SomeLogits logits;
    for (const Lesson* lesson = lessons; lesson < lessons + n; lesson++) {
        const Forward& out = lesson->before;
        for (int i = 0; i < lesson->visit.n; i++) {
            const int row = lesson->visit.rows[i];
            if (s.outputs == 1) {
                logits.odds.logit[logits.n] = dot(lesson->model + kHead, rows.input(s, row), s.stride);
                logits.odds.label[logits.n] = rows.labels[row];
                logits.residual[logits.n] = out.residual + i;
                logits.loss[logits.n++] = out.loss + i;
                if (logits.n == kLanes) logits.finish();
                continue;
            }
            logits_of(s, lesson->model + kHead, rows.input(s, row), out.scratch);
            const Softmax slope = softmax_slope(out.scratch, s.outputs, rows.labels[row]);
            out.loss[i] = log_positive(all(slope.ratio))[0] + slope.hinge;
            for (int k = 0; k < s.outputs; k++) out.residual[static_cast<long>(i) * s.outputs + k] = out.scratch[k];
        }
    }
    if (logits.n > 0) logits.finish();
}

inline void sgd_step(const Shape& s, double* weights, const double* z, double step) {
    for (int c = 0; c < s.stride; c += kLanes) at(weights + c) -= step * at(z + c);
}

// A row must wait for the one before, but not for other models: up to eight of them learn side by side, longest first.
// Of the first row, each still thinks what it said before. And of the next row all is computed in advance but what this
// row changes:  (w - step z) . z' = w . z' - step (z . z').
void sgd_learn_logits(const Shape& s, const Rows& rows, const Lesson* lessons, int n, double rate) {
    SomeLogits logits;
    logits.n = n;
    double residual[kLanes];
    for (int l = 0; l < n; l++) residual[l] = lessons[l].before.residual[0];
    for (int i = 0; i < lessons[0].visit.n; i++) {
        while (lessons[logits.n - 1].visit.n <= i) logits.n--;
        for (int l = 0; l < logits.n; l++) {
            const Visit& visit = lessons[l].visit;
            const double* z = rows.input(s, visit.rows[i]);
            double* weights = lessons[l].model + kHead;
            const double step = rate * rows.steps[visit.rows[i]] * residual[l];
            if (i + 1 < visit.n) {
                const double* next = rows.input(s, visit.rows[i + 1]);
                logits.odds.logit[l] = dot(weights, next, s.stride) - step * dot(z, next, s.stride);
                logits.odds.label[l] = rows.labels[visit.rows[i + 1]];
            }
            sgd_step(s, weights, z, step);
        }
        if (i + 1 == lessons[0].visit.n) break;
        const Vector found = logits.slopes().residual;
        for (int l = 0; l < logits.n; l++) residual[l] = found[l];
    }
}

void sgd_learn(const Shape& s, const Rows& rows, const Lesson* lessons, int n, const Learning& learning) {
    for (int l = 0; l < n && s.outputs == 1; l += kLanes)
        sgd_learn_logits(s, rows, lessons + l, n - l < kLanes ? n - l : kLanes, learning.rate);
    for (const Lesson* lesson = lessons; lesson < lessons + n && s.outputs > 1; lesson++) {
        for (int i = 0; i < lesson->visit.n; i++) {
            const int row = lesson->visit.rows[i];
            double* residual = lesson->before.scratch;
            logits_of(s, lesson->model + kHead, rows.input(s, row), residual);
            softmax_slope(residual, s.outputs, rows.labels[row]);
            for (int k = 0; k < s.outputs; k++) {
                const double step = learning.rate * rows.steps[row] * residual[k];
                sgd_step(s, lesson->model + kHead + k * s.stride, rows.input(s, row), step);
            }
        }
    }
}

void sgd_weights(const Shape& s, const double* model, double* weights) {
    for (int c = 0; c < s.outputs * s.stride; c++) weights[c] = model[kHead + c];
}

}  // namespace
}  // namespace driftree
