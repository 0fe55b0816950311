// Models: the simple models of a tree, each a typed structure in a place of its own.
//
// A kind of model says how many numbers it has, how it starts, grows, learns and predicts; its loops over rows are in
// sgd.hpp and blend.hpp. To add one: a struct here, its header, and a row of functions in simple_models.hpp.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "blend_parts.hpp"
#include "losses.hpp"
#include "memory.hpp"

namespace driftree {

struct Model {
    LossState loss;
    BlendState blend;
    Lines<double> numbers;  // none: the place is free
    bool is_free() const { return numbers.empty(); }
    ModelMemory memory() { return {&loss, &blend, numbers.data()}; }
    ModelMemory memory() const { return const_cast<Model*>(this)->memory(); }  // for those who only read
};

// Copies lines of `old_stride` values to lines of `stride` values; zeros behind them, or what is cut off is padding.
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

// ---------------------------------------------------------------- stochastic gradient descent
struct Sgd {
    using Rates = SgdRates;
    static constexpr bool kListsActive = false;  // it takes all inputs
    static constexpr bool kHasState = false;     // besides its weights
    static std::size_t size(const Shape& s) { return s.size(); }
    static void start(const Shape&, Model&, const Rates&) {}
    static void add_column(const Shape&, Model&, int) {}
    static void add_class(const Shape& s, Model& model, int k, double intercept) { model.numbers[k * s.stride] = intercept; }
    static void move(const Shape& old, const Model& from, const Shape& s, Model& to) {
        move_weights(old, from.numbers.data(), s, to.numbers.data(), false);
    }
    static void forward(const Functions& f, LossKind loss, const Shape& s, const Rows& rows,
                        const std::vector<Lesson>& lessons) {
        f.sgd[loss].forward(s, rows, lessons.data(), static_cast<int>(lessons.size()));
    }
    static void learn(const Functions& f, LossKind loss, const Shape& s, const Rows& rows,
                      const std::vector<Lesson>& lessons, const Rates& rates, bool) {
        f.sgd[loss].learn(s, rows, lessons.data(), static_cast<int>(lessons.size()), rates);
    }
    static void weights(const Functions&, const Shape& s, const Model& model, double* out) {
        std::copy_n(model.numbers.data(), s.size(), out);
    }
    // Predictors of rows, one model at a time.
    class Predicting {
    public:
        Predicting(const Functions& f, const Shape& s) : f_(f), s_(s) {}
        void by(const Model& model) { weights_ = model.numbers.data(); }
        void operator()(const double* inputs, double* out) { f_.predictors(s_, weights_, inputs, out); }

    private:
        const Functions& f_;
        const Shape& s_;
        const double* weights_ = nullptr;
    };
};

// ---------------------------------------------------------------- Adagrad and online Newton, blended
struct Blend {
    using Rates = BlendRates;
    static constexpr bool kListsActive = true;
    static constexpr bool kHasState = true;
    static std::size_t size(const Shape& s) { return BlendParts::size(s); }
    static void start(const Shape& s, Model& model, const Rates& rates) {
        const BlendParts parts(s, model.memory());
        for (int c = 0; c < s.columns; c++) parts.matrix[static_cast<long>(c) * s.stride + c] = kInitialCurvatureInverse;
        parts.state->trace = kInitialCurvatureInverse * s.columns;
        model.loss.floor[0] = model.loss.floor[1] = rates.floor.first;
    }
    static void add_column(const Shape& s, Model& model, int column) {
        const BlendParts parts(s, model.memory());
        parts.matrix[static_cast<long>(column) * s.stride + column] = kInitialCurvatureInverse / parts.state->scale;
        parts.state->trace += kInitialCurvatureInverse;
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
        for (int c = 0; c < old.columns; c++)
            std::copy_n(a.matrix + static_cast<long>(c) * old.stride, old.columns,
                        b.matrix + static_cast<long>(c) * s.stride);
    }
    static void forward(const Functions& f, LossKind loss, const Shape& s, const Rows& rows,
                        const std::vector<Lesson>& lessons) {
        f.blend[loss].forward(s, rows, lessons.data(), static_cast<int>(lessons.size()));
    }
    static void learn(const Functions& f, LossKind loss, const Shape& s, const Rows& rows,
                      const std::vector<Lesson>& lessons, const Rates& rates, bool spares) {
        f.blend[loss].learn(s, rows, lessons.data(), static_cast<int>(lessons.size()), rates, spares);
    }
    static void weights(const Functions& f, const Shape& s, const Model& model, double* out) {
        f.blend_weights(s, model.memory(), out);
    }
    class Predicting {
    public:
        Predicting(const Functions& f, const Shape& s) : f_(f), s_(s), other_(s.outputs) {}
        void by(const Model& model) {
            const BlendParts parts(s_, model.memory());
            adagrad_ = parts.adagrad;
            newton_ = parts.newton;
            newton_share_ = 1.0 / (1.0 + std::exp(-parts.state->preference));
        }
        void operator()(const double* inputs, double* out) {
            f_.predictors(s_, adagrad_, inputs, out);
            f_.predictors(s_, newton_, inputs, other_.data());
            for (int k = 0; k < s_.outputs; k++) out[k] = (1.0 - newton_share_) * out[k] + newton_share_ * other_.data()[k];
        }

    private:
        const Functions& f_;
        const Shape& s_;
        const double *adagrad_ = nullptr, *newton_ = nullptr;
        double newton_share_ = 0.0;
        Room other_;
    };
};

// ---------------------------------------------------------------- all models of a tree
// Ids are places; a freed one is used again. What may fail for want of memory comes before what changes anything.
template <class Kind>
class Models {
public:
    explicit Models(const typename Kind::Rates& rates) : rates(rates) {}
    typename Kind::Rates rates;
    std::vector<Model> all;

    Model& operator[](int id) { return all[id]; }
    const Model& operator[](int id) const { return all[id]; }
    bool has(int id) const { return id >= 0 && id < std::ssize(all) && !all[id].is_free(); }

    Model fresh(const Shape& s) const {
        Model model;
        model.numbers.assign(Kind::size(s), 0.0);
        Kind::start(s, model, rates);
        return model;
    }
    // Starts again, with the same link.
    void restart(const Shape& s, Model& model) const {
        Model again;
        again.numbers.swap(model.numbers);
        std::fill(again.numbers.begin(), again.numbers.end(), 0.0);
        Kind::start(s, again, rates);
        again.numbers.swap(model.numbers);
        again.loss.has_floor = model.loss.has_floor;
        model.loss = again.loss;
        model.blend = again.blend;
    }
    void make_places(int n) { make_room(all, n, all.size() + 2 * static_cast<std::size_t>(n)); }
    // Into the first free place, of which there is one: make_places().
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
        }
        id = -1;
    }
    std::vector<Model> moved(const Shape& old, const Shape& s) const {
        std::vector<Model> out(all.size());
        for (std::size_t i = 0; i < all.size(); i++) {
            if (all[i].is_free()) continue;
            out[i].loss = all[i].loss;
            out[i].blend = all[i].blend;
            out[i].numbers.assign(Kind::size(s), 0.0);
            Kind::move(old, all[i], s, out[i]);
        }
        return out;
    }
    void add_column(const Shape& s, int column) {
        for (Model& model : all)
            if (!model.is_free()) Kind::add_column(s, model, column);
    }
    // A class that was not seen in all the rows so far is rare.
    void add_class(const Shape& s, int k, double n_rows) {
        for (Model& model : all)
            if (!model.is_free()) Kind::add_class(s, model, k, -std::log1p(n_rows));
    }
    template <class Archive>
    void visit(Archive& a) {
        a.each("model", all, [](auto& inner, Model& model) {
            inner("numbers", model.numbers);
            if constexpr (Kind::kHasState) {
                inner("floor_0", model.loss.floor[0]), inner("floor_1", model.loss.floor[1]);
                inner("has_floor", model.loss.has_floor), inner("floor_rows", model.loss.floor_rows);
                inner("preference", model.blend.preference), inner("scale", model.blend.scale);
                inner("trace", model.blend.trace), inner("wrong", model.blend.wrong);
            }
        });
    }
};

}  // namespace driftree
