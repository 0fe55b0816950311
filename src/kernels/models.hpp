// Models: the simple models of a tree, each a typed structure with a place of its own.
//
// A kind of model defines how many numbers it has and how it starts, grows, learns and predicts; its loops over rows are in
// sgd.hpp and blend.hpp. To add one: a struct here, its header, and a row of functions in simple_models.hpp.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "blend_parts.hpp"
#include "losses.hpp"
#include "memory.hpp"
#include "table.hpp"
#include "target.hpp"

namespace driftree {

// The renewed model of a leaf: a copy of its weights from some time ago, learnt on with their uncertainty reset, so that it
// follows a change at once. The leaf predicts a mean of both, weighted by their recent losses.
struct Renewed {
    std::int32_t model = -1;  // its place; -1: none
    double lead = 0.0;        // nats by which it has lost less than the model, faded, minus a handicap
    double born = 0.0;        // rows of the node when it was created
    double harm = 0.0;        // nats that the leaf has lately lost beyond those of no model
    double share() const { return 1.0 / (1.0 + std::exp(-lead)); }
};

struct Model {
    LossState loss;
    BlendState blend;
    Renewed renewed;
    Bends bends;            // inputs of this model only
    Lines<double> numbers;  // empty if the place is free
    Lines<float> singles;   // those in single precision, if any
    SparseWeights sparse;   // weights of inputs without a column
    int stride = 0;         // stride of its weights
    bool is_free() const { return numbers.empty(); }
    // Its own shape in a tree of shape `tree`: bends add columns.
    Shape shape(const Shape& tree) const { return {tree.columns + bends.n(), stride, tree.outputs}; }
    // A copy for a trial, which uses the sparse weights of the original until it learns its own: Step.
    Model without_sparse() const {
        Model copy;
        copy.loss = loss;
        copy.blend = blend;
        copy.bends = bends;
        copy.numbers = numbers;
        copy.singles = singles;
        copy.stride = stride;
        return copy;
    }
    ModelMemory memory() { return {&loss, &blend, numbers.data(), singles.empty() ? nullptr : singles.data()}; }
    ModelMemory memory() const { return const_cast<Model*>(this)->memory(); }  // read only
};

// Copies lines of `old_stride` values to lines of `stride` values, padded with zeros; what is cut off is padding.
template <class Values>
Values widened(const Values& lines, int old_stride, int stride) {
    const std::size_t n = lines.size() / old_stride;
    Values wide(n * stride, 0);
    for (std::size_t i = 0; i < n; i++)
        std::copy_n(lines.data() + i * old_stride, std::min(old_stride, stride), wide.data() + i * stride);
    return wide;
}

// Moves weights [outputs, stride] to a wider stride or more outputs; `squares` are sums of squared gradients.
inline void move_weights(const Shape& old, const double* from, const Shape& shape, double* to, bool squares) {
    for (int k = 0; k < old.outputs; k++) {
        const int target = old.outputs == 1 && shape.outputs > 1 ? 1 : k;
        std::copy_n(from + k * old.stride, old.columns, to + target * shape.stride);
    }
    if (old.outputs > 1 || shape.outputs == 1) return;
    for (int c = 0; c < old.columns; c++) {  // log-odds w become the logits -w/2, w/2
        to[c] = squares ? to[shape.stride + c] : -0.5 * to[shape.stride + c];
        if (!squares) to[shape.stride + c] *= 0.5;
    }
}

// Converts weights [outputs, stride] for a target in other units: new = factor old + shift. The intercept is the first.
// Inputs that are levels of the target change units as well; they are halved, so that a weight of 2 means the whole level.
// Where they are hidden, they are 0 before and after.
inline void convert_weights(const Shape& s, double* weights, const Conversion& to, const std::int32_t* levels) {
    if (to.is_log) {
        for (int k = 0; k < s.outputs; k++) weights[k * s.stride] += std::log(to.factor);
        return;
    }
    for (int k = 0; k < s.outputs; k++, weights += s.stride) {
        double share = 0.0;
        for (int j = 0; levels && to.shows_level && j < kLevelInputs; j++) share += 0.5 * weights[levels[j]];
        for (int c = 0; c < s.stride; c++) weights[c] *= to.factor;
        weights[0] += to.shift * (1.0 - share);
        for (int j = 0; levels && j < kLevelInputs; j++) weights[levels[j]] /= to.factor;
    }
}

// ---------------------------------------------------------------- stochastic gradient descent
struct Sgd {
    using Rates = SgdRates;
    static constexpr bool kHasSparse = false;
    static constexpr bool kListsActive = false;  // it uses all inputs
    static constexpr bool kHasState = false;     // state besides its weights
    static constexpr double kLeastFactor = 0.0;
    static bool are_single(int, const Rates&) { return false; }
    static std::size_t size(const Shape& s, bool) { return s.size(); }
    static void make_numbers(const Shape& s, Model& model, bool) { model.numbers.assign(s.size(), 0.0); }
    static void derive(const Shape& tree, Model& model, const Rates&) {
        model.stride = static_cast<int>(model.numbers.size()) / tree.outputs;
    }
    static void start(const Shape&, Model&, const Rates&) {}
    static void add_column(const Shape&, Model&, int, const Rates&) {}
    static void add_class(const Shape& s, Model& model, int k, double intercept) { model.numbers[k * s.stride] = intercept; }
    static void move(const Shape& old, const Model& from, const Shape& s, Model& to) {
        move_weights(old, from.numbers.data(), s, to.numbers.data(), false);
    }
    static void convert(const Shape& s, Model& model, const Conversion& to, const std::int32_t* levels) {
        convert_weights(s, model.numbers.data(), to, levels);
    }
    static void forward(const Functions& f, LossKind loss, const Shape& s, const Rows& rows,
                        std::span<const Lesson> lessons) {
        f.sgd[loss].forward(s, rows, lessons.data(), static_cast<int>(lessons.size()));
    }
    static void learn(const Functions& f, LossKind loss, const Shape& s, const Rows& rows, std::span<const Lesson> lessons,
                      const Rates& rates, bool) {
        f.sgd[loss].learn(s, rows, lessons.data(), static_cast<int>(lessons.size()), rates);
    }
    // Estimated nanoseconds per row and model.
    static double learning_work(const Shape& s) { return 35.0 + 0.2 * s.size(); }
    static void weights(const Functions&, const Shape& s, const Model& model, double* out) {
        std::copy_n(model.numbers.data(), s.size(), out);
    }
    // Computes predictors of rows, one model at a time.
    class Predicting {
    public:
        Predicting(const Functions& f, const Shape& s) : f_(f), s_(s) {}
        void by(const Model& model, const Model*) { weights_ = model.numbers.data(); }
        void operator()(const double* inputs, double* out) { f_.predictors(s_, weights_, inputs, out); }
        void add(const Table&, const SparseRows&, double*) const {}  // has no sparse inputs

    private:
        const Functions& f_;
        const Shape& s_;
        const double* weights_ = nullptr;
    };
};

// ---------------------------------------------------------------- Adagrad and online Newton, blended
struct Blend {
    using Rates = BlendRates;
    static constexpr bool kHasSparse = true;
    static constexpr bool kListsActive = true;
    static constexpr bool kHasState = true;
    // Least factor of a conversion. With a smaller one, what was learnt would be less than the root of the least spread in
    // the new unit, and sums of squares might overflow.
    static constexpr double kLeastFactor = 1e-4;
    // Whether models of a tree with so many columns have their matrix in single precision.
    static bool are_single(int columns, const Rates& rates) { return columns > rates.single_columns; }
    static std::size_t size(const Shape& s, bool is_single) {
        return BlendParts::weights(s) + (is_single ? 0 : BlendParts::cells(s));
    }
    static void make_numbers(const Shape& s, Model& model, bool is_single) {
        model.numbers.assign(size(s, is_single), 0.0);
        model.singles.assign(is_single ? BlendParts::cells(s) : 0, 0.0f);
    }
    static void start(const Shape& s, Model& model, const Rates& rates) {
        forget(s, BlendParts(s, model.memory()), rates.variance);
        model.loss.floor[0] = model.loss.floor[1] = rates.loss.floor.first;
    }
    // After loading: in files the matrix is always in double precision, behind the other numbers.
    static void derive(const Shape& tree, Model& model, const Rates& rates) {
        const bool is_whole = model.singles.empty();
        Shape s = {tree.columns, kLanes, tree.outputs};
        while (BlendParts::weights(s) + (is_whole ? BlendParts::cells(s) : 0) < model.numbers.size()) s.stride += kLanes;
        model.stride = s.stride;
        if (!is_whole || !are_single(tree.columns, rates) ||
            model.numbers.size() != BlendParts::weights(s) + BlendParts::cells(s))
            return;
        const auto matrix = model.numbers.begin() + static_cast<std::ptrdiff_t>(BlendParts::weights(s));
        model.singles.assign(matrix, model.numbers.end());
        model.numbers.erase(matrix, model.numbers.end());
        model.numbers.shrink_to_fit();
    }
    // Inserts a column. `s` includes it already; later columns move.
    static void add_column(const Shape& s, Model& model, int column, const Rates& rates) {
        const BlendParts parts(s, model.memory());
        const auto open = [&](auto* line) {
            std::copy_backward(line + column, line + s.columns - 1, line + s.columns);
            line[column] = 0;
        };
        for (int k = 0; k < s.outputs; k++)
            for (double* weights : {parts.adagrad, parts.squares, parts.newton}) open(weights + k * s.stride);
        parts.with_matrix([&](auto* matrix) {
            auto* const place = matrix + static_cast<long>(column) * s.stride;
            auto* const end = matrix + static_cast<long>(s.columns - 1) * s.stride;
            std::copy_backward(place, end, end + s.stride);
            std::fill_n(place, s.stride, 0);
            for (int r = 0; r < s.columns; r++) open(matrix + static_cast<long>(r) * s.stride);
            place[column] = rates.variance / parts.state->scale;
        });
        parts.state->trace += rates.variance;
    }
    static void add_class(const Shape& s, Model& model, int k, double intercept) {
        const BlendParts parts(s, model.memory());
        parts.adagrad[k * s.stride] = parts.newton[k * s.stride] = intercept;
    }
    static void move(const Shape& old, const Model& from, const Shape& s, Model& to) {
        const BlendParts a(old, from.memory()), b(s, to.memory());
        move_weights(old, a.adagrad, s, b.adagrad, false);
        move_weights(old, a.squares, s, b.squares, true);
        move_weights(old, a.newton, s, b.newton, false);
        b.with_matrix([&](auto* matrix) {
            for (int r = 0; r < old.columns; r++)
                for (int c = 0; c < old.columns; c++) matrix[static_cast<long>(r) * s.stride + c] = a.cell(old, r, c);
        });
    }
    // Weights have the unit of the target, their variances its square, gradients its inverse.
    static void convert(const Shape& s, Model& model, const Conversion& to, const std::int32_t* levels) {
        const BlendParts parts(s, model.memory());
        const double square = to.factor * to.factor;
        convert_weights(s, parts.adagrad, to, levels);
        convert_weights(s, parts.newton, to, levels);
        if (to.is_log) {
            model.loss.set_spread(model.loss.spread * to.spread);
            return;
        }
        for (int i = 0; i < s.size(); i++) parts.squares[i] /= square;
        for (int j = 0; levels && j < kLevelInputs; j++) {
            convert_matrix(s, parts, levels[j], 1.0 / to.factor, to.shows_level ? -0.5 * to.shift / to.factor : 0.0);
            for (int k = 0; k < s.outputs; k++) parts.squares[k * s.stride + levels[j]] *= square;
            if (!to.shows_level) detach(s, parts, levels[j]);
        }
        parts.state->scale *= square;
        parts.state->trace = parts.state->scale * trace_of(s, parts);
        model.loss.set_spread(model.loss.spread * to.spread);
        model.sparse.convert(SparseCell::width(s.outputs), to.factor);
    }
    // Converts the weights of an input whose unit changes: old = factor new + shift. No prediction changes.
    static void convert_input(const Shape& s, Model& model, int column, double factor, double shift) {
        const BlendParts parts(s, model.memory());
        for (int k = 0; k < s.outputs; k++) {
            for (double* weights : {parts.adagrad + k * s.stride, parts.newton + k * s.stride}) {
                weights[0] += shift * weights[column];
                weights[column] *= factor;
            }
            parts.squares[k * s.stride + column] /= factor * factor;
        }
        const double before = trace_of(s, parts);
        convert_matrix(s, parts, column, factor, shift);
        parts.state->trace += parts.state->scale * (trace_of(s, parts) - before);
    }
    static void forward(const Functions& f, LossKind loss, const Shape&, const Rows& rows, std::span<const Lesson> lessons) {
        f.blend[loss].forward(rows, lessons.data(), static_cast<int>(lessons.size()));
    }
    static bool are_wide(const Shape& tree, const Rates& rates) { return tree.columns > rates.costly_columns; }
    static void learn(const Functions& f, LossKind loss, const Shape& tree, const Rows& rows,
                      std::span<const Lesson> lessons, const Rates& rates, bool spares) {
        const bool is_wide = are_wide(tree, rates);
        f.blend[loss].learn(rows, lessons.data(), static_cast<int>(lessons.size()), rates, {spares || is_wide, is_wide});
    }
    // Learns rows that came one at a time and were buffered.
    static void follow(const Functions& f, LossKind loss, const Shape& tree, const Rows& rows,
                       std::span<const Lesson> lessons, const Rates& rates, bool spares) {
        f.blend[loss].follow(rows, lessons.data(), static_cast<int>(lessons.size()), rates,
                             {spares || are_wide(tree, rates), false});
    }
    static double learning_work(const Shape& s) { return 50.0 + 1.5 * s.size() + 0.1 * s.stride * s.stride; }
    static void weights(const Functions& f, const Shape& s, const Model& model, double* out) {
        f.blend_weights(s, model.memory(), out);
    }
    // A copy with other bends. Dropped bends are conditioned out, as if their weights had always been 0, so that the other
    // inputs fit their part as well as possible. New bends start at 0.
    static Model rebent(const Shape& tree, const Schema& schema, Model from, const Bends& bends, const Rates& rates) {
        Model to;
        const Shape old = from.shape(tree);
        const BlendParts a(old, from.memory());
        for (int i = 0; i < from.bends.n(); i++)
            if (bends.find(from.bends.feature[i], from.bends.low[i], from.bends.high[i]) < 0)
                condition_out(old, a, tree.columns + i);
        to.loss = from.loss;
        to.blend = from.blend;
        to.bends = bends;
        to.stride = bends.n() == 0 ? tree.stride : padded(tree.columns + bends.n());  // the tree's inputs, or its own
        const Shape s = to.shape(tree);
        make_numbers(s, to, are_single(tree.columns, rates));
        const BlendParts b(s, to.memory());
        std::vector<int> source(s.columns, -1);  // column of `from`, or -1
        for (int c = 0; c < tree.columns; c++) source[c] = c;
        for (int i = 0; i < bends.n(); i++) {
            const int found = from.bends.find(bends.feature[i], bends.low[i], bends.high[i]);
            if (found >= 0) source[tree.columns + i] = tree.columns + found;
        }
        b.state->trace = 0.0;
        b.with_matrix([&](auto* matrix) {
            for (int r = 0; r < s.columns; r++) {
                auto* line = matrix + static_cast<long>(r) * s.stride;
                if (source[r] < 0) line[r] = rates.variance / b.state->scale;
                for (int c = 0; c < s.columns && source[r] >= 0; c++)
                    if (source[c] >= 0) line[c] = a.cell(old, source[r], source[c]);
                b.state->trace += b.state->scale * line[r];
            }
        });
        for (int r = 0; r < s.columns; r++) {
            for (int k = 0; k < s.outputs && source[r] >= 0; k++) {
                b.adagrad[k * s.stride + r] = a.adagrad[k * old.stride + source[r]];
                b.squares[k * s.stride + r] = a.squares[k * old.stride + source[r]];
                b.newton[k * s.stride + r] = a.newton[k * old.stride + source[r]];
            }
            if (source[r] >= 0) continue;
            const int own = schema.value_column[bends.feature[r - tree.columns]];
            for (int k = 0; k < s.outputs; k++) b.squares[k * s.stride + r] = a.squares[k * old.stride + own];
        }
        return to;
    }
    // Moves a sparse input to a column, the last of the tree, in which `z_old = factor z_new + shift`.
    static void promote(const Shape& tree, Model& model, int id, double factor, double shift) {
        const int width = SparseCell::width(tree.outputs), place = model.sparse.find(id);
        if (place < 0) return;
        const Shape s = model.shape(tree);
        const BlendParts parts(s, model.memory());
        const int column = tree.columns - 1;
        const auto number = [&](int c) { return model.sparse.true_number(place, c, width); };
        for (int k = 0; k < s.outputs; k++) {
            const double adagrad = number(3 * k + SparseCell::kAdagrad), newton = number(3 * k + SparseCell::kNewton);
            parts.adagrad[k * s.stride + column] = adagrad * factor;
            parts.newton[k * s.stride + column] = newton * factor;
            parts.adagrad[k * s.stride] += adagrad * shift;
            parts.newton[k * s.stride] += newton * shift;
            parts.squares[k * s.stride + column] =
                factor > 0.0 ? number(3 * k + SparseCell::kSquares) / (factor * factor) : 0.0;
        }
        const double own = parts.cell(s, column, column);
        const double variance = std::min(own, number(SparseCell::kVariance) * factor * factor / parts.state->scale);
        if (variance > 0.0) {
            parts.state->trace -= parts.state->scale * (own - variance);
            parts.with_matrix([&](auto* matrix) { matrix[static_cast<long>(column) * s.stride + column] = variance; });
        }
    }
    // A copy with the uncertainty of its weights reset.
    static Model renewed(const Shape& tree, const Model& from, double variance) {
        Model model = from.without_sparse();
        const Shape s = model.shape(tree);
        forget(s, BlendParts(s, model.memory()), variance);
        return model;
    }
    // Adds a variance to that of each weight.
    static void add_variance(const Shape& tree, Model& model, double variance) {
        const Shape s = model.shape(tree);
        const BlendParts parts(s, model.memory());
        parts.with_matrix([&](auto* matrix) {
            for (int c = 0; c < s.columns; c++) matrix[static_cast<long>(c) * s.stride + c] += variance / parts.state->scale;
        });
        parts.state->trace += variance * s.columns;
    }
    // Second-order estimate of the rise of the loss without this input: w^2 / (2 A), over all outputs.
    static double worth(const Shape& s, const Model& model, int column) {
        const BlendParts parts(s, model.memory());
        const double own = parts.state->scale * parts.cell(s, column, column);
        double sum = 0.0;
        for (int k = 0; k < s.outputs; k++) sum += parts.newton[k * s.stride + column] * parts.newton[k * s.stride + column];
        return own > 0.0 ? 0.5 * sum / own : 0.0;
    }
    class Predicting {
    public:
        Predicting(const Functions& f, const Shape& s) : f_(f), tree_(s), s_(s), other_(s.outputs), second_(s.outputs) {}
        void by(const Model& model, const Model* renewed) {
            s_ = model.shape(tree_);
            own_ = Learners(s_, model);
            sparse_ = &model.sparse;
            has_renewed_ = renewed != nullptr;
            if (!renewed) return;
            renewed_ = Learners(s_, *renewed);
            renewed_share_ = model.renewed.share();
        }
        void operator()(const double* inputs, double* out) {
            ask(own_, inputs, out);
            if (!has_renewed_) return;
            ask(renewed_, inputs, second_.data());
            for (int k = 0; k < s_.outputs; k++)
                out[k] = (1.0 - renewed_share_) * out[k] + renewed_share_ * second_.data()[k];
        }

        // Adds the sparse features of a row.
        void add(const Table& table, const SparseRows& row, double* out) const {
            if (!row.begin || sparse_->n() == 0) return;
            const int width = SparseCell::width(s_.outputs);
            for (std::int64_t i = row.begin[0]; i < row.begin[1]; i++) {
                if (!table.is_sparse(row.ids[i])) continue;
                const int place = sparse_->find(row.ids[i]);
                if (place < 0) continue;
                const double z = own_.sureness * sparse_->scale * table.sparse.input(row.ids[i], row.values[i]);
                const float* cell = sparse_->numbers.data() + static_cast<long>(place) * width;
                for (int k = 0; k < s_.outputs; k++, cell += 3)
                    out[k] += z * ((1.0 - own_.newton_share) * cell[SparseCell::kAdagrad] +
                                   own_.newton_share * cell[SparseCell::kNewton]);
            }
        }

    private:
        struct Learners {  // the two learners of one model
            const double *adagrad = nullptr, *newton = nullptr;
            double newton_share = 0.0, sureness = 1.0;
            Learners() = default;
            Learners(const Shape& s, const Model& model) {
                const BlendParts parts(s, model.memory());
                adagrad = parts.adagrad;
                newton = parts.newton;
                newton_share = 1.0 / (1.0 + std::exp(-parts.state->preference));
                sureness = parts.state->sureness;
            }
        };
        void ask(const Learners& model, const double* inputs, double* out) {
            f_.predictors(s_, model.adagrad, inputs, out);
            f_.predictors(s_, model.newton, inputs, other_.data());
            for (int k = 0; k < s_.outputs; k++)
                out[k] = model.sureness * ((1.0 - model.newton_share) * out[k] + model.newton_share * other_.data()[k]);
        }
        const Functions& f_;
        const Shape& tree_;
        Shape s_;
        const SparseWeights* sparse_ = nullptr;
        Learners own_, renewed_;
        bool has_renewed_ = false;
        double renewed_share_ = 0.0;
        Room other_, second_;
    };

private:
    // Resets everything except the weights.
    static void forget(const Shape& s, const BlendParts& parts, double variance) {
        std::fill_n(parts.squares, s.size(), 0.0);
        parts.with_matrix([&](auto* matrix) {
            std::fill_n(matrix, BlendParts::cells(s), 0);
            for (int c = 0; c < s.columns; c++) matrix[static_cast<long>(c) * s.stride + c] = variance;
        });
        parts.state->scale = 1.0;
        parts.state->trace = variance * s.columns;
    }
    static double trace_of(const Shape& s, const BlendParts& parts) {
        double sum = 0.0;
        for (int c = 0; c < s.columns; c++) sum += parts.cell(s, c, c);
        return sum;
    }
    // Updates the matrix when one weight is multiplied and a share of it is added to the intercept.
    static void convert_matrix(const Shape& s, const BlendParts& parts, int column, double factor, double shift) {
        parts.with_matrix([&](auto* matrix) {
            auto* const own = matrix + static_cast<long>(column) * s.stride;
            for (int c = 0; c < s.columns; c++) matrix[c] += shift * own[c];
            for (int r = 0; r < s.columns; r++) {
                auto* line = matrix + static_cast<long>(r) * s.stride;
                line[0] += shift * line[column];
            }
            for (int c = 0; c < s.columns; c++) own[c] *= factor;
            for (int r = 0; r < s.columns; r++) matrix[static_cast<long>(r) * s.stride + column] *= factor;
        });
    }
    // Makes a weight independent of the others: what they learn without its input tells nothing about it.
    static void detach(const Shape& s, const BlendParts& parts, int column) {
        parts.with_matrix([&](auto* matrix) {
            for (int c = 0; c < s.columns; c++) {
                if (c == column) continue;
                matrix[static_cast<long>(column) * s.stride + c] = 0;
                matrix[static_cast<long>(c) * s.stride + column] = 0;
            }
        });
    }
    static void condition_out(const Shape& s, const BlendParts& parts, int column) {
        parts.with_matrix([&](auto* matrix) { condition_out(s, parts, matrix, column); });
    }
    template <class Cell>
    static void condition_out(const Shape& s, const BlendParts& parts, Cell* matrix, int column) {
        Cell* const own = matrix + static_cast<long>(column) * s.stride;
        const double variance = own[column];
        for (int k = 0; k < s.outputs; k++) {
            double* w = parts.newton + k * s.stride;
            const double share = variance > 0.0 ? w[column] / variance : 0.0;
            for (int c = 0; c < s.columns; c++)
                if (c != column) w[c] -= share * own[c];
            w[column] = 0.0;
        }
        for (int r = 0; r < s.columns && variance > 0.0; r++) {
            if (r == column) continue;
            Cell* line = matrix + static_cast<long>(r) * s.stride;
            const double share = own[r] / variance;
            for (int c = 0; c < s.columns; c++)
                if (c != column) line[c] -= share * own[c];
        }
        for (int c = 0; c < s.columns; c++) own[c] = matrix[static_cast<long>(c) * s.stride + column] = 0;
    }
};

// ---------------------------------------------------------------- all models of a tree
// An id is a place; freed ones are reused. Everything that may fail for lack of memory comes before any change.
template <class Kind>
class Models {
public:
    explicit Models(const typename Kind::Rates& rates) : rates(rates) {}
    typename Kind::Rates rates;
    bool have_spread = false;    // the target is a number
    AskedLoss* asked = nullptr;  // a custom loss in Python
    std::vector<Model> all;

    Model& operator[](int id) { return all[id]; }
    const Model& operator[](int id) const { return all[id]; }
    bool has(int id) const { return id >= 0 && id < std::ssize(all) && !all[id].is_free(); }

    double bytes() const {
        std::size_t n = 0;
        for (const Model& model : all) n += model.numbers.size() * sizeof(double) + model.singles.size() * sizeof(float);
        return static_cast<double>(n);
    }

    Model fresh(const Shape& s) const {
        Model model;
        model.stride = s.stride;
        Kind::make_numbers(s, model, Kind::are_single(s.columns, rates));
        Kind::start(s, model, rates);
        model.loss.asked = asked;
        return model;
    }
    // Resets a model, with the same link.
    void restart(const Shape& tree, Model& model) const {
        const Shape s = model.shape(tree);
        Model again;
        again.numbers.swap(model.numbers);
        again.singles.swap(model.singles);
        std::fill(again.numbers.begin(), again.numbers.end(), 0.0);
        std::fill(again.singles.begin(), again.singles.end(), 0.0f);
        Kind::start(s, again, rates);
        again.numbers.swap(model.numbers);
        again.singles.swap(model.singles);
        again.loss.has_floor = model.loss.has_floor;
        again.loss.asked = asked;
        again.blend.memory = model.blend.memory;
        model.sparse.clear();
        model.loss = again.loss;
        model.blend = again.blend;
    }
    void make_places(int n) { make_room(all, n, all.size() + 2 * static_cast<std::size_t>(n)); }
    // Puts a model into the first free place; make_places() has made room.
    int place(Model&& model) {
        auto free = std::find_if(all.begin(), all.end(), [](const Model& one) { return one.is_free(); });
        if (free == all.end()) free = all.insert(all.end(), Model());
        std::swap(*free, model);
        return static_cast<int>(free - all.begin());
    }
    void free(std::int32_t& id) {
        if (id >= 0) {
            Model gone;
            std::swap(all[id], gone);
            free(gone.renewed.model);
        }
        id = -1;
    }
    const Model* renewed(const Model& model) const { return model.renewed.model < 0 ? nullptr : &all[model.renewed.model]; }
    // Called when the node is no longer a leaf, or its model has other inputs.
    void drop_renewed(Model& model) {
        free(model.renewed.model);
        model.renewed = Renewed();
    }
    // Whether all models have room for so many columns of the tree, in the right precision.
    bool have_room(int columns) const {
        const bool are_single = Kind::are_single(columns, rates);
        return std::all_of(all.begin(), all.end(), [&](const Model& one) {
            return one.is_free() || (columns + one.bends.n() <= one.stride && one.singles.empty() != are_single);
        });
    }
    // The models in another shape, with room for `n_more` columns.
    std::vector<Model> moved(const Shape& old, const Shape& s, int n_more = 0) const {
        std::vector<Model> out(all.size());
        for (std::size_t i = 0; i < all.size(); i++) {
            if (all[i].is_free()) continue;
            const int n_bends = all[i].bends.n();
            out[i].loss = all[i].loss;
            out[i].blend = all[i].blend;
            out[i].renewed = all[i].renewed;
            out[i].bends = all[i].bends;
            out[i].sparse = all[i].sparse;
            if (old.outputs != s.outputs) out[i].sparse.widen(old.outputs, s.outputs);
            out[i].stride = n_bends == 0 ? s.stride : padded(s.columns + n_more + n_bends);
            const Shape own = out[i].shape(s);
            Kind::make_numbers(own, out[i], Kind::are_single(s.columns + n_more, rates));
            Kind::move(all[i].shape(old), all[i], own, out[i]);
        }
        return out;
    }
    // `tree` includes the column already.
    void add_column(const Shape& tree, int column) {
        for (Model& model : all)
            if (!model.is_free()) Kind::add_column(model.shape(tree), model, column, rates);
    }
    // A class without any row so far is rare.
    void add_class(const Shape& tree, int k, double n_rows) {
        for (Model& model : all)
            if (!model.is_free()) Kind::add_class(model.shape(tree), model, k, -std::log1p(n_rows));
    }
    // Converts all models for a target in other units. With a factor of 0, nothing learnt is of use.
    void convert(const Shape& tree, const Conversion& to, const std::int32_t* levels) {
        for (Model& model : all) {
            if (model.is_free()) continue;
            if (to.factor > 0.0) {
                Kind::convert(model.shape(tree), model, to, levels);
            } else {
                restart(tree, model);
            }
        }
    }
    void derive(const Shape& tree) {
        for (Model& model : all)
            if (!model.is_free()) {
                model.loss.set_spread(model.loss.spread);
                model.loss.asked = asked;
                Kind::derive(tree, model, rates);
                model.sparse.derive();
            }
    }
    template <class Archive>
    void visit(Archive& a) {
        a.each("model", all, [this](auto& inner, Model& model) {
            inner.numbers("numbers", model.numbers, model.singles);
            if constexpr (Kind::kHasState) {
                inner("floor_0", model.loss.floor[0]), inner("floor_1", model.loss.floor[1]);
                inner("has_floor", model.loss.has_floor), inner("floor_rows", model.loss.floor_rows);
                inner("preference", model.blend.preference), inner("scale", model.blend.scale);
                inner("trace", model.blend.trace), inner("wrong", model.blend.wrong);
                inner("memory", model.blend.memory), inner("sureness", model.blend.sureness),
                    inner("sureness_rows", model.blend.sureness_rows);
                inner("bend_feature", model.bends.feature), inner("bend_low", model.bends.low);
                inner("bend_high", model.bends.high);
                inner("renewed_model", model.renewed.model), inner("renewed_lead", model.renewed.lead);
                inner("renewed_born", model.renewed.born), inner("renewed_harm", model.renewed.harm);
                model.sparse.visit(inner);
            }
            if (have_spread) inner("spread", model.loss.spread), inner("spread_rows", model.loss.spread_rows);
        });
    }
};

}  // namespace driftree
