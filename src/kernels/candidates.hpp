// Candidates: the paper's store. Per node, a bounded number of split candidates with their gradients, counts and losses,
// each over its own window (the rows since it was stored), and gains by the approximation (7).
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "memory.hpp"
#include "simple_models.hpp"
#include "table.hpp"

namespace driftree {

// A node's sums since it was created.
struct LifeSums {
    double n, loss;
    const double* gradient;  // [outputs, stride]
};

// Parameters of gains: the kernels, the length of a gradient, lambda of (7).
struct GainRule {
    const Functions* f;
    int size;
    double step;
    double gain(double left_norm, double right_norm, double n_left, double n) const {
        const double n_right = n - n_left;  // rounding may leave a rest on an empty side
        return step * ((n_left > 0.0 ? left_norm / n_left : 0.0) + (n_right > 1e-9 * n ? right_norm / n_right : 0.0));
    }
};

inline double rank(double gain) {   // 12 significant digits, so that rounding cannot decide a tie
    if (gain != gain) return -1.0;  // NaN would break sorting
    return std::bit_cast<double>((std::bit_cast<std::uint64_t>(gain) + 0x800) & ~std::uint64_t{0xFFF});
}

// Row by row, most sums of most candidates are not needed yet: whether a candidate is replaced or chosen depends on its
// gain, and a row changes that only a little: neither side's gradient changes by more than the row's (triangle inequality).
// So rows wait. A candidate records at once on which side they are, which bounds its gain. When the bounds cannot tell
// whether it is replaced or chosen, it is settled: the rows are added one by one, as if they had not waited.
struct WaitingRows {
    static constexpr int kMost = 32;
    int n = 0;
    bool is_open = false;                           // the rest is only valid while rows come one by one
    Lines<double> gradients;                        // [kMost, outputs, stride]
    std::vector<double> low;                        // per candidate: a row goes left if low <= x <= value
    std::vector<std::uint64_t> is_left;             // bit i: waiting row i went left and is not in the candidate's sum yet
    std::vector<double> left_length, right_length;  // |g_left| and |g_right| when last settled
    std::vector<double> left_reach, right_reach;    // bounds of their change since then
    std::vector<double> least, most;                // bounds of the gain
    double lowest = 0.0, highest = 0.0;             // bounds of all gains
    double node_length = 0.0;                       // bound of the length of the node's own gradient

    template <class Archive>
    void visit_scratch(Archive& a) {
        a("gradients", gradients), a("low", low), a("is_left", is_left), a("left_length", left_length);
        a("right_length", right_length), a("left_reach", left_reach), a("right_reach", right_reach);
        a("least", least), a("most", most);
    }
    void resize(int n_candidates) {
        is_left.resize(n_candidates);
        for (auto* values : {&low, &left_length, &right_length, &left_reach, &right_reach, &least, &most})
            values->resize(n_candidates);
    }
    void note_gain(int k, const double* norms, double gain) {
        is_left[k] = 0;
        left_length[k] = std::sqrt(norms[0]);
        right_length[k] = std::sqrt(norms[1]);
        left_reach[k] = right_reach[k] = 0.0;
        least[k] = most[k] = gain;
        lowest = std::min(lowest, gain);
        highest = std::max(highest, gain);
    }
};

struct Candidates {
    std::vector<std::int32_t> feature;
    std::vector<double> value, n_left, loss_left;
    std::vector<double> n_before, loss_before;  // the node's own sums when the candidate was stored
    Lines<double> gradient_left;                // [n, outputs, stride]
    Lines<double> gradient_before;
    std::vector<double> gain;  // (7): lambda (|g_left|^2 / n_left + |g_right|^2 / n_right)
    WaitingRows waiting;       // not saved: it is settled before

    int n() const { return static_cast<int>(feature.size()); }
    void clear() { *this = Candidates(); }
    template <class Archive>
    void visit(Archive& archive) {
        if constexpr (Archive::kMeasures) {
            waiting.visit_scratch(archive);
        } else {
            waiting = WaitingRows();
        }
        archive("feature", feature);
        archive("value", value);
        archive("n_left", n_left);
        archive("loss_left", loss_left);
        archive("n_before", n_before);
        archive("loss_before", loss_before);
        archive("gradient_left", gradient_left);
        archive("gradient_before", gradient_before);
        archive("gain", gain);
    }
    int append(int size, int budget) {
        for (auto* gradients : {&gradient_left, &gradient_before})
            make_room(*gradients, size, static_cast<std::size_t>(budget) * size);
        make_capacity(feature, feature.size() + 1);
        for (auto* values : {&value, &n_left, &loss_left, &n_before, &loss_before, &gain})
            make_capacity(*values, values->size() + 1);
        if (waiting.is_open) waiting.resize(n() + 1);  // from here on nothing can fail
        feature.push_back(-1);
        for (auto* values : {&value, &n_left, &loss_left, &n_before, &loss_before, &gain}) values->push_back(0.0);
        gradient_left.resize(gradient_left.size() + size);
        gradient_before.resize(gradient_before.size() + size);
        return n() - 1;
    }
    // Puts a new candidate at place k, whose window starts at the node's sums `then`.
    void start(int k, std::int32_t new_feature, double new_value, bool equality, const LifeSums& then, int size) {
        feature[k] = new_feature;
        value[k] = new_value;
        n_left[k] = loss_left[k] = 0.0;
        n_before[k] = then.n;
        loss_before[k] = then.loss;
        std::fill_n(gradient_left.data() + static_cast<long>(k) * size, size, 0.0);
        std::copy_n(then.gradient, size, gradient_before.data() + static_cast<long>(k) * size);
        if (waiting.is_open) {
            waiting.is_left[k] = 0;
            set_condition(k, equality);
        }
    }
    // Adds the waiting rows to candidate k and computes its gain.
    void settle(const GainRule& rule, int k, const LifeSums& node) {
        const long place = static_cast<long>(k) * rule.size;
        double norms[2];
        rule.f->settle(gradient_left.data() + place, gradient_before.data() + place, node.gradient, rule.size,
                       waiting.gradients.data(), waiting.is_open ? waiting.is_left[k] : 0, norms);
        gain[k] = rule.gain(norms[0], norms[1], n_left[k], node.n - n_before[k]);
        if (waiting.is_open) waiting.note_gain(k, norms, gain[k]);
    }
    // Adds the rows of a step to the left of candidate k and computes its gain. No row may be waiting.
    void settle_with(const GainRule& rule, int k, const double* gradient, const LifeSums& node) {
        const long place = static_cast<long>(k) * rule.size;
        double norms[2];
        rule.f->settle(gradient_left.data() + place, gradient_before.data() + place, node.gradient, rule.size, gradient, 1,
                       norms);
        gain[k] = rule.gain(norms[0], norms[1], n_left[k], node.n - n_before[k]);
    }
    // Settles all candidates: afterwards no row is waiting.
    void settle_all(const GainRule& rule, const LifeSums& node) {
        for (int k = 0; k < n() && waiting.n > 0; k++) settle(rule, k, node);
        waiting.n = 0;
        waiting.is_open = false;
    }
    // Memory for the gradient of the next waiting row; `node` has the sums without it.
    double* next_waiting(const GainRule& rule, const Schema& schema, const LifeSums& node) {
        if (!waiting.is_open || waiting.n == WaitingRows::kMost) {
            if (!waiting.is_open) {
                waiting.gradients.resize(static_cast<std::size_t>(WaitingRows::kMost) * rule.size);
                waiting.resize(n());
                waiting.is_open = true;
                std::fill(waiting.is_left.begin(), waiting.is_left.end(), 0);
                for (int k = 0; k < n(); k++) set_condition(k, schema.is_categorical[feature[k]]);
            }
            for (int k = 0; k < n(); k++) settle(rule, k, node);
            waiting.n = 0;
            double norm, nothing;
            rule.f->norms(node.gradient, node.gradient, rule.size, &norm, &nothing);
            waiting.node_length = std::sqrt(norm);
        }
        return waiting.gradients.data() + static_cast<long>(waiting.n) * rule.size;
    }
    // Adds the row whose gradient was stored there; `node` has the sums with it.
    void add_waiting(const GainRule& rule, const double* x, double weight, double loss, double length,
                     const LifeSums& node) {
        WaitingRows& w = waiting;
        w.node_length += length;
        const double reach = length + 1e-14 * w.node_length;  // allows for rounding of the node's sums
        const GainBounds bounds =
            rule.f->add_row({n(), feature.data(), w.low.data(), value.data(), n_before.data(), n_left.data(),
                             loss_left.data(), w.is_left.data(), w.left_length.data(), w.right_length.data(),
                             w.left_reach.data(), w.right_reach.data(), w.least.data(), w.most.data()},
                            {x, weight, loss, reach, w.n}, node.n, rule.step);
        w.lowest = bounds.lowest;
        w.highest = bounds.highest;
        w.n++;
    }
    // The best gain of a candidate with rows on both sides, or any gain below `needed` if none reaches that.
    double best_gain(const GainRule& rule, const LifeSums& node, double needed) {
        double best = -1.0;
        if (waiting.is_open && waiting.highest < needed) return best;
        for (int k = 0; k < n(); k++) {
            const double n_right = node.n - n_before[k] - n_left[k];
            if (!(n_left[k] > 0.0 && n_right > 0.0)) continue;
            if (waiting.is_open && waiting.most[k] >= needed) settle(rule, k, node);
            best = std::max(best, waiting.is_open ? waiting.least[k] : gain[k]);
        }
        return best;
    }

private:
    void set_condition(int k, bool equality) {
        waiting.low[k] = equality ? value[k] : -std::numeric_limits<double>::infinity();
    }
};

}  // namespace driftree
