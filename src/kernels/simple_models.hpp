// Simple models: the loops over rows that learn and predict, as plain functions over plain memory.
//
// simple_models.cpp is compiled once per instruction set and reached through a table of functions.
// It uses no template of the standard library, so that no AVX code can leak into the other objects.
// Every sum has a fixed order of eight lanes and no fused multiply-add: on one machine all builds give the same bits.
#pragma once
#include <cstdint>
#include <limits>

namespace driftree {

// The sizes that all models of a tree share.
struct Shape {
    int columns;                                   // inputs in use, the intercept (column 0) included
    int stride;                                    // columns rounded up to whole vectors of eight; the padding is zero
    int outputs;                                   // linear predictors of a row: as many as the loss wants
    int size() const { return outputs * stride; }  // of all weights
    bool operator==(const Shape&) const = default;
};

// The rows of one step, ready for the simple models.
struct Rows {
    const double* inputs;            // [n, stride]
    const std::int32_t* active;      // [n, stride]: which inputs of the row are not zero
    const std::int32_t* n_active;    // [n]
    const double* targets;           // [n] codes of labels
    const double* weights;           // [n] in the sums
    const double* steps;             // [n] in the models' updates: the weight, at most 1
    const double* levels = nullptr;  // [outputs] of quantiles
    const double* input(const Shape& s, int row) const { return inputs + static_cast<long>(row) * s.stride; }
};

// A choice of rows, in the order in which they are visited.
struct Visit {
    const std::int32_t* rows;
    int n;
};

struct AskedLoss;  // that Python has: asked.hpp

// What a loss learns of a model's rows, besides the weights (losses.hpp).
struct LossState {
    double floor[2] = {};   // rho: share of labels that are noise, per class
    double has_floor = 0;   // 0 or 1
    double floor_rows = 0;  // rows that the floor has learnt from
    double spread = 1;      // of numbers: the variance around the prediction, or what the loss has instead
    double spread_rows = 0;
    double half_log_spread = 0;  // follows from the spread
    AskedLoss* asked = nullptr;  // the tree's
    void set_spread(double given) {
        spread = given;
        half_log_spread = 0.5 * __builtin_log(given);
    }
};

// What a row leaves of a blend's preference, and of the share of rows that it was wrong about.
constexpr double kKeptPreference = 0.998, kKeptWrong = 0.98;
// Of Newton's matrix, as a multiple of what it is at the start: beyond that it is limited.
constexpr double kMostTrace = 2.0;
// What is known of a blend's sureness before it has seen a row, in the unit of `sureness_rows`.
constexpr double kFirstSurenessRows = 10.0;

// What the blend knows besides the weights of its two learners (blend.hpp).
struct BlendState {
    double preference = 0;     // D: log evidence for Newton against Adagrad, faded
    double scale = 1;          // the true curvature inverse is scale * matrix
    double trace = 0;          // of the true matrix
    double memory = 1;         // rows that Newton remembers, as a share of those that the rates say
    double wrong = 0;          // share of the last rows (some 50) whose label had less than even odds
    double sureness = 1;       // by which the blended predictors are multiplied: less than 1 if they say too much
    double sureness_rows = 0;  // what is known of it: the curvature of the loss by its logarithm, faded
};

// A simple model where it lies; models.hpp owns it.
struct ModelMemory {
    LossState* loss;
    BlendState* blend;  // unused by SGD
    double* numbers;    // weights [outputs, stride], and what else the kind of model has: see its header
};

// The numbers behind how a loss and a simple model learn; Python hands them in (learn/constants.py).
struct FloorRates {
    double first = 0.1;               // of either label
    double first_rows = 1000.0;       // a row counts 1 / (rows so far + this) at first,
    double rows = 10000.0;            // and 1 / this later
    double least = 1e-6, most = 0.5;  // of a label, of both
};
struct SpreadRates {
    double rows = 500.0;      // that the spread of a number remembers,
    double first_rows = 5.0;  // and what it is at first counts for,
    double least = 1e-8;      // of the target's variance
};
struct LossRates {
    FloorRates floor;
    SpreadRates spread;
};
// What a loss learns from: a row, with what the model said of it before the step; also what the loss knew then.
struct LearntRow {
    double loss;
    const double* residual;  // [outputs]
    double target, weight;
    const LossState* then;
    double spread = 0.0;  // what a loss that Python has says of it
};
struct SgdRates {
    double step = 0.05;
};
struct BlendRates {
    double rows = 1000.0;           // that Newton remembers,
    double rows_per_column = 20.0;  // at least so many times the columns
    int passes = 3;                 // of Adagrad over the rows of a step
    double clear_lead = 2.0;        // of Newton (its preference) that spares Adagrad more than one pass over a single row
    double most_sure = 20.0;        // nats: what a row may cost a model that is mostly wrong
    double variance = 10.0;         // of a weight before anything is learnt: what Newton's matrix starts with
    double sureness_window = 0.0;   // rows that decide how sure the blend is; 0: as sure as it says
    double step = 1.0;              // of Adagrad,
    double sparse_step = 0.5;       // and for sparse inputs
    bool mean_curvature = false;    // Newton divides by the mean curvature over the free outputs, not by half of their sum
    LossRates loss;
    int costly_columns = std::numeric_limits<int>::max();  // of a tree: with more, its models are wide
};

// What blends are to be careful of.
struct Care {
    bool spares_passes;  // of Adagrad, where Newton leads
    bool halves_matrix;  // Newton's is so large that half of it is left out of the work
};

// What a blend learns of itself from a row.
struct Signal {
    double advantage;   // Adagrad's loss minus Newton's
    double pull, grip;  // first and second derivative of the blend's loss by the logarithm of its sureness
    double spread;      // what a loss that Python has says of the row's
};

// What a model said of the visited rows before learning them.
struct Forward {
    double* loss;      // [n] of the reported model
    double* residual;  // [n, outputs] derivative of the loss by the logits
    Signal* signal;    // [n] (measured setting)
    double* scratch;   // [scratch_size]: for one row; see Scratch in blend.hpp
};
constexpr int kLanes = 8;
static inline int padded(int n) { return (n + kLanes - 1) / kLanes * kLanes; }
static inline int scratch_size(const Shape& s) { return 2 * s.stride + 4 * padded(s.outputs) + kLanes; }

// What the visited rows hold of sparse features (sparse.hpp), and the model's numbers for these: copied out, and back later.
// Where all rows hold the same features these are vectors, one number of all inputs after the other.
struct SparseLesson {
    const std::int32_t* begin = nullptr;  // [n + 1]
    const std::int32_t* cells = nullptr;  // which inputs, as places in `numbers`
    const double* z = nullptr;            // or vectors, [rows of the step, line]
    double* numbers = nullptr;            // [cells, width], or vectors, [width, line]
    int width = 0;
    double* scale = nullptr;  // of all the model's sparse weights
    int n_cells = 0;
    int line = 0;                        // length of a vector; 0: there are none
    const std::int32_t* rows = nullptr;  // that are visited, if there are vectors
    double& number(int cell, int c) const {
        return numbers[line ? static_cast<long>(c) * line + cell : static_cast<long>(cell) * width + c];
    }
    const double* vector(int row) const { return z + static_cast<long>(rows[row]) * line; }
};

// One model and the rows it is to learn; what it said of them before. A model with bends has inputs of its own.
struct Lesson {
    Shape shape;  // of this model
    ModelMemory model;
    Visit visit;
    Forward before;
    const double* inputs = nullptr;  // [lines, stride]
    const std::int32_t *active = nullptr, *n_active = nullptr;
    const std::int32_t* lines = nullptr;  // where the inputs of the i-th row are
    SparseLesson* sparse = nullptr;       // of a model that has sparse inputs
    const double* input(const Shape& s, int i) const { return inputs + static_cast<long>(lines[i]) * s.stride; }
    // Its i-th row alone; not of sparse inputs.
    Lesson row(int i) const {
        Lesson one = *this;
        one.visit = {visit.rows + i, 1};
        one.before = {before.loss + i, before.residual + static_cast<long>(i) * shape.outputs, before.signal + i,
                      before.scratch};
        one.lines = lines + i;
        return one;
    }
};

// What one row adds to the sums of its side, besides its gradient.
struct RowSums {
    double n, loss;         // its weight, and the loss times that
    double length, energy;  // |d| and |d|^2 / weight, where d is the gradient minus the row's share of all gradients
};

// The gradients of rows at a node, as residual x inputs: written out they would take longer to read.
struct Gradients {
    const double* inputs;      // [rows of the step, stride]
    const std::int32_t* rows;  // place at the node -> row
    const double* residual;    // [places, outputs], times the row's weight
    const RowSums* sums;       // [places]
};

// What is known of a feature's rows without putting them in order: they are in buckets of ascending value, bucket b at
// the places begin[b] .. begin[b + 1], and those without a value in one more behind the last.
constexpr int kMostBuckets = 64;
struct Buckets {
    int n;
    std::int32_t begin[kMostBuckets + 2];
    std::uint8_t is_level[kMostBuckets + 1];  // all values in it are the same
    // At the begin of each bucket: sums over the rows before it, |left|^2 and |total - left|^2
    double rows[kMostBuckets + 1], loss[kMostBuckets + 1], left_norm[kMostBuckets + 1], right_norm[kMostBuckets + 1];
    double length[kMostBuckets + 1], energy[kMostBuckets + 1];  // of the rows in it
    double bound[kMostBuckets + 1];                             // no value inside it has a larger gain
};

// The paper's candidates as columns (candidates.hpp).
struct CandidateColumns {
    int n;
    const std::int32_t* feature;
    const double *low, *value;  // a row goes left if low <= x[feature] <= value
    const double* n_before;
    double *n_left, *loss_left;
    std::uint64_t* is_left;              // bit i: waiting row i went left
    double *left_length, *right_length;  // of the gradients, when they were last known
    double *left_reach, *right_reach;    // by how much they may have changed since
    double *least, *most;                // bounds of the gain
};

struct GainBounds {
    double lowest, highest;  // no candidate's gain is outside
};

struct CandidateRow {
    const double* x;
    double weight, loss;
    double reach;  // the length of its gradient
    int place;     // among the waiting rows
};

// Buckets of equal width: that of a value is (value - origin) * factor, or the last one.
struct BucketRange {
    double low, high;  // low > high: there are no values
    double origin, factor;
};

// Running moments and scales of m features; see Scaler in table.hpp.
struct Scale {
    double *weight, *mean, *squares, *low, *high, *shift, *factor, *limit, *scratch;  // scratch: 4 m
    const double* has_value;
    std::uint8_t* is_indicator;
    double most;  // limit of numbers that are scaled by mean and deviation
};

// Hinges: max(0, a z[first] + b z[second] + c) each; see forest.hpp.
struct HingeColumns {
    const std::int32_t *first, *second;
    const double *a, *b, *c;
};

// What all models say of their rows before they learn them; and how they learn them. Longest lesson first.
struct SgdFunctions {
    void (*forward)(const Shape&, const Rows&, const Lesson* lessons, int n);
    void (*learn)(const Shape&, const Rows&, const Lesson* lessons, int n, const SgdRates&);
};
struct BlendFunctions {  // each model in its own shape
    void (*forward)(const Rows&, const Lesson* lessons, int n);
    void (*learn)(const Rows&, const Lesson* lessons, int n, const BlendRates&, const Care&);
    void (*follow)(const Rows&, const Lesson* lessons, int n, const BlendRates&, const Care&);  // both, row after row
};

struct Functions {
    const char* name;
    // The simple models, for each loss of the list in losses.hpp.
    const SgdFunctions* sgd;
    const BlendFunctions* blend;
    // weights [outputs, stride] of the one linear model that a blend is
    void (*blend_weights)(const Shape&, const ModelMemory&, double* weights);
    // predictors[k] = weights[k] . inputs
    void (*predictors)(const Shape&, const double* weights, const double* inputs, double* predictors);
    // gradients[n, outputs, stride] = weight * residual x inputs
    void (*gradients_single)(const Shape&, const Rows&, const Visit&, const double* residual, float* gradients);
    void (*add)(double* sum, const double* term, int n);
    void (*add_single)(float* sum, const float* term, int n);
    void (*add_mixed)(double* sum, const float* term, int n);
    // |left|^2 and |total - left|^2
    void (*norms)(const double* left, const double* total, int n, double* left_norm, double* right_norm);
    // weighted[n, outputs] = weight * residual; sums[n] but for lengths and energies
    void (*weigh)(const Shape&, const Rows&, const Visit&, const double* residual, const double* loss, double* weighted,
                  RowSums* sums);
    void (*measure)(const Shape&, const Gradients&, const double* total, double n_rows, int n, RowSums* sums);
    // sum += the gradients at n places, one after the other; places nullptr: the first n
    void (*add_gradients)(const Shape&, const Gradients&, const std::int32_t* places, int n, double* sum);
    // Fills what has to do with gradients, and prefix[n + 2, size] with the gradients before each bucket.
    void (*sum_buckets)(const Shape&, const Gradients&, const double* total, double n_rows, double gain_step,
                        const std::int32_t* places, Buckets& buckets, double* prefix);
    // As add_gradients, with `left` for the sum; |left|^2 and |total - left|^2 after each place.
    void (*scan)(const Shape&, const Gradients&, const double* total, const std::int32_t* places, int n, double* left,
                 double* left_norms, double* right_norms);
    // left += the waiting gradients whose bit is set; norms = |left|^2, |total - before - left|^2
    void (*settle)(double* left, const double* before, const double* total, int size, const double* waiting,
                   std::uint64_t bits, double* norms);
    // Counts the row in the candidates' columns, and bounds their gains at a node of n rows.
    GainBounds (*add_row)(const CandidateColumns&, const CandidateRow&, double n, double gain_step);
    // codes[i]: the bucket of values[i], or n_buckets if it is missing
    BucketRange (*codes)(const double* values, int n, int n_buckets, std::uint8_t* codes);
    // slots[i] = number of edges below values[i]
    void (*slots)(const double* edges, int n_edges, const double* values, int n, std::int32_t* slots);
    // Keys by which the rows of a step are put in order
    void (*row_keys)(const double* X, int n, int m, std::uint64_t salt, std::uint64_t* keys);
    // Takes n rows [n, stride] into the moments of m features; scales one row.
    void (*update_scale)(const Scale&, const double* X, int stride, const double* weights, int n, int m, bool by_range);
    void (*scale_row)(const Scale&, const double* x, int m, double* out);
    // values[i] = how far it is on the way from low[i] to high[i], from 0 to 1
    void (*bend_inputs)(const double* low, const double* high, int n, double* values);
    // What n hinges make of one row.
    void (*hinges)(const HingeColumns&, const double* z, int n, double* out);
};

extern const Functions baseline_functions;
#ifdef DRIFTREE_X86
extern const Functions avx2_functions;
extern const Functions avx512_functions;
#endif

}  // namespace driftree
