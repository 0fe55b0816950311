// Simple models: the loops that learn and predict rows, as plain functions over plain memory.
//
// simple_models.cpp is compiled once per instruction set and called through a table of functions. It uses no template of the
// standard library, so that no AVX code can leak into other object files. Every sum has a fixed order of eight lanes and no
// fused multiply-add, so that on one machine all builds give the same bits.
#pragma once
#include <cstdint>
#include <limits>

namespace driftree {

// The sizes that all models of a tree share.
struct Shape {
    int columns;                                   // inputs in use, the intercept (column 0) included
    int stride;                                    // columns rounded up to whole vectors of eight; the padding is zero
    int outputs;                                   // linear predictors of a row, which the loss determines
    int size() const { return outputs * stride; }  // number of weights
    bool operator==(const Shape&) const = default;
};

// The rows of one step, ready for the simple models.
struct Rows {
    const double* inputs;            // [n, stride]
    const std::int32_t* active;      // [n, stride]: indices of the row's inputs that are not zero
    const std::int32_t* n_active;    // [n]
    const double* targets;           // [n] labels as codes, or numbers
    const double* weights;           // [n] weights in the sums
    const double* steps;             // [n] weights in the models' updates, at most 1
    const double* levels = nullptr;  // [outputs] levels of the quantiles
    const double* input(const Shape& s, int row) const { return inputs + static_cast<long>(row) * s.stride; }
};

// Some rows, in the order in which they are visited.
struct Visit {
    const std::int32_t* rows;
    int n;
};

struct AskedLoss;  // a custom loss in Python: asked.hpp

// Learnt state of a loss, besides the model's weights (losses.hpp).
struct LossState {
    double floor[2] = {};   // rho: share of labels that are noise, per class
    double has_floor = 0;   // 0 or 1
    double floor_rows = 0;  // rows from which the floor was learnt
    double spread = 1;      // for numbers: the variance around the prediction, or the loss's counterpart of it
    double spread_rows = 0;
    double half_log_spread = 0;  // log(spread) / 2
    double root_spread = 1;      // sqrt(spread)
    AskedLoss* asked = nullptr;  // owned by the tree
    void set_spread(double given) {
        spread = given;
        half_log_spread = 0.5 * __builtin_log(given);
        root_spread = __builtin_sqrt(given);
    }
};

// Share of a blend's preference, and of its share of wrong rows, that remains after a row.
constexpr double kKeptPreference = 0.998, kKeptWrong = 0.98;
// Largest trace of Newton's matrix, as a multiple of its first trace.
constexpr double kMostTrace = 2.0;
// Value of `sureness_rows` before the first row.
constexpr double kFirstSurenessRows = 10.0;

// State of a blend besides the weights of its two learners (blend.hpp).
struct BlendState {
    double preference = 0;     // D: log evidence for Newton against Adagrad, faded
    double scale = 1;          // the true curvature inverse is scale * matrix
    double trace = 0;          // trace of the true matrix
    double memory = 1;         // rows that Newton remembers, as a multiple of what the rates say
    double wrong = 0;          // share of the last rows (about 50) whose label had less than even odds
    double sureness = 1;       // factor of the blended predictors; below 1 if they are overconfident
    double sureness_rows = 0;  // certainty of the sureness: curvature of the loss by its logarithm, faded
};

// Pointers to a simple model, which models.hpp owns.
struct ModelMemory {
    LossState* loss;
    BlendState* blend;         // unused by SGD
    double* numbers;           // weights [outputs, stride], and whatever else the kind of model has: see its header
    float* singles = nullptr;  // those in single precision, if it has any
};

// Rates at which losses and simple models learn, passed by Python (learn/constants.py).
struct FloorRates {
    double first = 0.1;               // first floor of either label
    double first_rows = 1000.0;       // at first, a row's rate is 1 / (rows so far + this);
    double rows = 10000.0;            // later it is 1 / this
    double least = 1e-6, most = 0.5;  // limits: of one label, of the sum of both
};
struct SpreadRates {
    double rows = 500.0;      // rows that the spread of a number remembers
    double first_rows = 5.0;  // rows that the first spread counts for
    double least = 1e-8;      // smallest spread, as a share of the target's variance
};
struct LossRates {
    FloorRates floor;
    SpreadRates spread;
};
// A row that a loss learns from: the model's prediction before the step, and the state of the loss at that time.
struct LearntRow {
    double loss;
    const double* residual;  // [outputs]
    double target, weight;
    const LossState* then;
    double spread = 0.0;  // the row's spread, of a custom loss
};
struct SgdRates {
    double step = 0.05;
};
struct BlendRates {
    double rows = 1000.0;           // rows that Newton remembers
    double rows_per_column = 20.0;  // fewest of these rows, per column
    int passes = 3;                 // passes of Adagrad over the rows of a step
    double clear_lead = 2.0;        // Newton's lead (preference) from which a single row gets only one pass of Adagrad
    double most_sure = 20.0;        // nats that a row may cost a model that is mostly wrong
    double variance = 10.0;         // variance of a weight before learning: the first diagonal of Newton's matrix
    double sureness_window = 0.0;   // rows from which the sureness is learnt; 0: it stays 1
    double step = 1.0;              // Adagrad's step
    double sparse_step = 0.5;       // Adagrad's step for sparse inputs
    bool mean_curvature = false;    // Newton divides by the mean curvature over the free outputs instead of half its sum
    LossRates loss;
    int costly_columns = std::numeric_limits<int>::max();  // a tree with more columns has wide models
    int single_columns = std::numeric_limits<int>::max();  // with more, Newton's matrix is in single precision
};

// Savings of blends.
struct Care {
    bool spares_passes;  // fewer passes of Adagrad where Newton leads
    bool halves_matrix;  // Newton's matrix is so large that only one half of it is computed
};

// Terms of a row for the state of a blend.
struct Signal {
    double advantage;   // Adagrad's loss minus Newton's
    double pull, grip;  // first and second derivative of the blend's loss by the logarithm of its sureness
    double spread;      // the row's spread, of a custom loss
};

// Results of a model for the visited rows before it learns them.
struct Forward {
    double* loss;      // [n] of the reported model
    double* residual;  // [n, outputs] derivative of the loss by the predictors
    double* said;      // [n, outputs] predictors
    Signal* signal;    // [n] (measured setting)
    double* scratch;   // [scratch_size] for one row; see Scratch in blend.hpp
};
constexpr int kLanes = 8;
static inline int padded(int n) { return (n + kLanes - 1) / kLanes * kLanes; }
static inline int scratch_size(const Shape& s) { return 2 * s.stride + 4 * padded(s.outputs) + kLanes; }

// Sparse features of the visited rows (sparse.hpp), and the model's numbers for them: a copy, which is written back later.
// Where all rows have the same features, the numbers are vectors: one number of all inputs after the other.
struct SparseLesson {
    const std::int32_t* begin = nullptr;  // [n + 1]
    const std::int32_t* cells = nullptr;  // inputs, as places in `numbers`
    const double* z = nullptr;            // values, or as vectors [rows of the step, line]
    double* numbers = nullptr;            // [cells, width], or as vectors [width, line]
    int width = 0;
    double* scale = nullptr;  // common factor of the model's sparse weights
    int n_cells = 0;
    int line = 0;                        // length of a vector; 0: there are no vectors
    const std::int32_t* rows = nullptr;  // visited rows, if there are vectors
    double& number(int cell, int c) const {
        return numbers[line ? static_cast<long>(c) * line + cell : static_cast<long>(cell) * width + c];
    }
    const double* vector(int row) const { return z + static_cast<long>(rows[row]) * line; }
};

// A model, the rows that it learns, and its predictions before that. A model with bends has inputs of its own.
struct Lesson {
    Shape shape;  // shape of this model
    ModelMemory model;
    Visit visit;
    Forward before;
    const double* inputs = nullptr;  // [lines, stride]
    const std::int32_t *active = nullptr, *n_active = nullptr;
    const std::int32_t* lines = nullptr;  // line of the i-th row's inputs
    SparseLesson* sparse = nullptr;       // for a model with sparse inputs
    const double* input(const Shape& s, int i) const { return inputs + static_cast<long>(lines[i]) * s.stride; }
    // Of a lesson without sparse inputs that is reduced to one row (visit.n = 1): on to the row after it.
    void go_on() {
        visit.rows++;
        before.loss++;
        before.residual += shape.outputs;
        before.said += shape.outputs;
        before.signal++;
        lines++;
    }
};

// Terms of one row in the sums of its side, besides the gradient.
struct RowSums {
    double n, loss;         // weight, and loss times weight
    double length, energy;  // |d| and |d|^2 / weight, where d is the gradient minus the row's share of all gradients
};

// The gradients of rows at a node, as residual x inputs: stored in full they would take longer to read.
struct Gradients {
    const double* inputs;      // [rows of the step, stride]
    const std::int32_t* rows;  // place at the node -> row
    const double* residual;    // [places, outputs], times the row's weight
    const RowSums* sums;       // [places]
};

// A feature's rows without sorting them: in buckets of ascending value. Bucket b is at the places begin[b] .. begin[b + 1];
// rows without a value are in one more bucket after the last.
constexpr int kMostBuckets = 64;
struct Buckets {
    int n;
    std::int32_t begin[kMostBuckets + 2];
    std::uint8_t is_level[kMostBuckets + 1];  // all its values are equal
    // At the start of each bucket: sums over the rows before it, |left|^2 and |total - left|^2
    double rows[kMostBuckets + 1], loss[kMostBuckets + 1], left_norm[kMostBuckets + 1], right_norm[kMostBuckets + 1];
    double length[kMostBuckets + 1], energy[kMostBuckets + 1];  // sums over the rows in the bucket
    double bound[kMostBuckets + 1];                             // upper bound of the gain at any value inside the bucket
};

// The paper's candidates as columns (candidates.hpp).
struct CandidateColumns {
    int n;
    const std::int32_t* feature;
    const double *low, *value;  // a row goes left if low <= x[feature] <= value
    const double* n_before;
    double *n_left, *loss_left;
    std::uint64_t* is_left;              // bit i: waiting row i went left
    double *left_length, *right_length;  // lengths of the gradients when last computed
    double *left_reach, *right_reach;    // bounds of their change since then
    double *least, *most;                // bounds of the gain
};

struct GainBounds {
    double lowest, highest;  // every candidate's gain is between them
};

struct CandidateRow {
    const double* x;
    double weight, loss;
    double reach;  // length of its gradient
    int place;     // index among the waiting rows
};

// Buckets of equal width: a value is in bucket (value - origin) * factor, or in the last one.
struct BucketRange {
    double low, high;  // low > high if there are no values
    double origin, factor;
};

// Running moments and scales of m features; see Scaler in table.hpp.
struct Scale {
    double *weight, *mean, *squares, *low, *high, *shift, *factor, *limit, *scratch;  // scratch: 4 m
    const double* has_value;
    std::uint8_t* is_indicator;
    double most;  // limit of numbers scaled by mean and deviation
};

// Hinges, each max(0, a z[first] + b z[second] + c); see forest.hpp.
struct HingeColumns {
    const std::int32_t *first, *second;
    const double *a, *b, *c;
};

// Predict the rows of all models before learning, and learn them. Lessons are sorted, the longest first.
struct SgdFunctions {
    void (*forward)(const Shape&, const Rows&, const Lesson* lessons, int n);
    void (*learn)(const Shape&, const Rows&, const Lesson* lessons, int n, const SgdRates&);
};
struct BlendFunctions {  // each model has its own shape
    void (*forward)(const Rows&, const Lesson* lessons, int n);
    void (*learn)(const Rows&, const Lesson* lessons, int n, const BlendRates&, const Care&);
    void (*follow)(const Rows&, const Lesson* lessons, int n, const BlendRates&, const Care&);  // both, row by row
};

struct Functions {
    const char* name;
    // The simple models, one entry for each loss in the list of losses.hpp.
    const SgdFunctions* sgd;
    const BlendFunctions* blend;
    // weights [outputs, stride] of the linear model that a blend is equal to
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
    // weighted[n, outputs] = weight * residual; sums[n] except lengths and energies
    void (*weigh)(const Shape&, const Rows&, const Visit&, const double* residual, const double* loss, double* weighted,
                  RowSums* sums);
    void (*measure)(const Shape&, const Gradients&, const double* total, double n_rows, int n, RowSums* sums);
    // sum += the gradients at n places, one by one; with places = nullptr, the first n
    void (*add_gradients)(const Shape&, const Gradients&, const std::int32_t* places, int n, double* sum);
    // Fills the fields that depend on gradients, and prefix[n + 2, size] with the sums of gradients before each bucket.
    void (*sum_buckets)(const Shape&, const Gradients&, const double* total, double n_rows, double gain_step,
                        const std::int32_t* places, Buckets& buckets, double* prefix);
    // Like add_gradients, with `left` as the sum; |left|^2 and |total - left|^2 after each place.
    void (*scan)(const Shape&, const Gradients&, const double* total, const std::int32_t* places, int n, double* left,
                 double* left_norms, double* right_norms);
    // left += the waiting gradients whose bit is set; norms = |left|^2, |total - before - left|^2
    void (*settle)(double* left, const double* before, const double* total, int size, const double* waiting,
                   std::uint64_t bits, double* norms);
    // Adds the row to the candidates' columns, and bounds their gains at a node of n rows.
    GainBounds (*add_row)(const CandidateColumns&, const CandidateRow&, double n, double gain_step);
    // codes[i] = bucket of values[i], or n_buckets if missing
    BucketRange (*codes)(const double* values, int n, int n_buckets, std::uint8_t* codes);
    // slots[i] = number of edges below values[i]
    void (*slots)(const double* edges, int n_edges, const double* values, int n, std::int32_t* slots);
    // keys by which the rows of a step are sorted
    void (*row_keys)(const double* X, int n, int m, std::uint64_t salt, std::uint64_t* keys);
    // Updates the moments of m features with n rows [n, stride]; scales one row.
    void (*update_scale)(const Scale&, const double* X, int stride, const double* weights, int n, int m, bool by_range);
    void (*scale_row)(const Scale&, const double* x, int m, double* out);
    // values[i] = (values[i] - low[i]) / (high[i] - low[i]), clipped to 0 .. 1
    void (*bend_inputs)(const double* low, const double* high, int n, double* values);
    // The values of n hinges for one row.
    void (*hinges)(const HingeColumns&, const double* z, int n, double* out);
};

extern const Functions baseline_functions;
#ifdef DRIFTREE_X86
extern const Functions avx2_functions;
extern const Functions avx512_functions;
#endif

}  // namespace driftree
