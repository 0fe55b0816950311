// Simple models: the loops over rows that learn and predict, as plain functions over plain memory.
//
// simple_models.cpp is compiled once per instruction set and reached through a table of functions.
// It uses no template of the standard library, so that no AVX code can leak into the other objects.
// Every sum has a fixed order of eight lanes and no fused multiply-add: on one machine all builds give the same bits.
#pragma once
#include <cstdint>

namespace driftree {

// The sizes that all models of a tree share.
struct Shape {
    int columns;  // inputs in use, the intercept (column 0) included
    int stride;   // columns rounded up to whole vectors of eight; the padding is zero
    int outputs;  // 1: log-odds of class 1; otherwise one logit per class (soft-max)
};

// The rows of one step, ready for the simple models.
struct Rows {
    const double* inputs;         // [n, stride]
    const std::int32_t* active;   // [n, stride]: which inputs of the row are not zero
    const std::int32_t* n_active; // [n]
    const std::int32_t* labels;   // [n] class codes
    const double* weights;        // [n] in the sums
    const double* steps;          // [n] in the models' updates: the weight, at most 1
    const double* input(const Shape& s, int row) const { return inputs + static_cast<long>(row) * s.stride; }
};

// A choice of rows, in the order in which they are visited.
struct Visit {
    const std::int32_t* rows;
    int n;
};

// Head of every model's memory; the weights follow.
struct Head {
    double preference;    // D: log evidence for Newton against Adagrad, faded
    double scale;         // the true curvature inverse is scale * matrix
    double trace;         // of the true matrix
    double floor[2];      // rho: share of labels that are noise, per class
    double has_floor;     // 0 or 1
    double floor_rows;    // rows that the floor has learnt from
    double unused;        // makes it a whole vector
};
constexpr int kHead = sizeof(Head) / sizeof(double);

struct Learning {
    double rate;       // SGD: learning rate
    double memory;     // Newton: rows remembered (at least 20 per column)
    int passes;        // Adagrad: passes over the rows of a step
};

// What a model said of the visited rows before learning them.
struct Forward {
    double* loss;       // [n] of the reported model
    double* residual;   // [n, outputs] derivative of the loss by the logits
    double* advantage;  // [n] Adagrad's loss minus Newton's (measured setting)
    double* scratch;    // [scratch_size]: for one row; see Scratch in blend.hpp
};
constexpr int kLanes = 8;
static inline int padded(int n) { return (n + kLanes - 1) / kLanes * kLanes; }
static inline int scratch_size(const Shape& s) { return s.stride + 3 * padded(s.outputs) + kLanes; }

// One model and the rows it is to learn; what it said of them before.
struct Lesson {
    double* model;
    Visit visit;
    Forward before;
};

// Running moments and scales of m features; see Scaler in rows.hpp.
struct Scale {
    double *weight, *mean, *squares, *low, *high, *shift, *factor, *limit, *scratch;  // scratch: 4 m
    const double* has_value;
    std::uint8_t* is_indicator;
};

struct Functions {
    const char* name;
    // Measured setting: Adagrad and online Newton, blended.
    void (*blend_forward)(const Shape&, const Rows&, const Lesson* lessons, int n);
    void (*blend_learn)(const Shape&, const Rows&, const Lesson* lessons, int n, const Learning&);  // longest first
    void (*blend_weights)(const Shape&, const double* model, double* weights);
    // Paper's setting: stochastic gradient descent.
    void (*sgd_forward)(const Shape&, const Rows&, const Lesson* lessons, int n);
    void (*sgd_learn)(const Shape&, const Rows&, const Lesson* lessons, int n, const Learning&);
    void (*sgd_weights)(const Shape&, const double* model, double* weights);
    // logits[k] = weights[k] . inputs
    void (*logits)(const Shape&, const double* weights, const double* inputs, double* logits);
    // gradients[n, outputs, stride] = weight * residual x inputs
    void (*gradients)(const Shape&, const Rows&, const Visit&, const double* residual, double* gradients);
    void (*gradients_single)(const Shape&, const Rows&, const Visit&, const double* residual, float* gradients);
    void (*add)(double* sum, const double* term, int n);
    void (*add_single)(float* sum, const float* term, int n);
    void (*add_mixed)(double* sum, const float* term, int n);
    // |left|^2 and |total - left|^2
    void (*norms)(const double* left, const double* total, int n, double* left_norm, double* right_norm);
    // The same for the sums of the first 1, 2, ... of `n` gradients in the given order; left[size] is scratch.
    void (*scan)(const double* gradients, const double* total, int size, const std::int32_t* order, int n, double* left,
                 double* left_norms, double* right_norms);
    // slots[i] = number of edges below values[i]
    void (*slots)(const double* edges, int n_edges, const double* values, int n, std::int32_t* slots);
    // Takes n rows into the moments; scales one row.
    void (*update_scale)(const Scale&, const double* X, const double* weights, int n, int m, bool by_range);
    void (*scale_row)(const Scale&, const double* x, int m, double* out);
};

extern const Functions baseline_functions;
#ifdef DRIFTREE_X86
extern const Functions avx2_functions;
extern const Functions avx512_functions;
#endif

// Where the parts of a model lie behind its head; SGD keeps its only weights where Adagrad does.
static inline double* adagrad_weights(const Shape&, double* model) { return model + kHead; }
static inline double* adagrad_squares(const Shape& s, double* model) { return model + kHead + s.outputs * s.stride; }
static inline double* newton_weights(const Shape& s, double* model) { return model + kHead + 2 * s.outputs * s.stride; }
static inline double* newton_matrix(const Shape& s, double* model) { return model + kHead + 3 * s.outputs * s.stride; }

constexpr double kInitialCurvatureInverse = 10.0;
constexpr double kInitialFloor = 0.1;

}  // namespace driftree
