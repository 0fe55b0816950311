// Candidates: the paper's store. Per node, a fixed number of split candidates with their gradients, counts and losses,
// each over its own window (the rows since it was stored); gains by the approximation (7).
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "grid.hpp"
#include "rows.hpp"
#include "simple_models.hpp"

namespace driftree {

struct Candidates {
    std::vector<std::int32_t> feature;
    std::vector<double> value, n_left, loss_left;
    std::vector<double> n_before, loss_before;  // the node's own sums when the candidate was stored
    std::vector<double> gradient_left;          // [n, outputs, stride]
    std::vector<double> gradient_before;
    std::vector<double> gain;                   // (7): lambda (|g_left|^2 / n_left + |g_right|^2 / n_right)

    int n() const { return static_cast<int>(feature.size()); }
    void clear() { *this = Candidates(); }
    template <class Archive>
    void visit(Archive& archive) {
        archive("candidate_feature", feature);
        archive("candidate_value", value);
        archive("candidate_n_left", n_left);
        archive("candidate_loss_left", loss_left);
        archive("candidate_n_before", n_before);
        archive("candidate_loss_before", loss_before);
        archive("candidate_gradient_left", gradient_left);
        archive("candidate_gradient_before", gradient_before);
        archive("candidate_gain", gain);
    }
};

// The node's own sums over its life, after this step.
struct NodeSums {
    double n, loss;
    const double* gradient;
};

class CandidateStep {
public:
    CandidateStep(const Functions& f, const Shape& shape, const Schema& schema, const Chunk& chunk, const Visit& visit,
                  const double* loss, const double* residual, double gain_step)
        : f_(f), shape_(shape), schema_(schema), chunk_(chunk), visit_(visit), loss_(loss), residual_(residual),
          gain_step_(gain_step), size_(shape.outputs * shape.stride), all_(size_), left_(size_) {}

    // Lines 6 to 12 of Algorithm 1 for the stored candidates.
    void update(Candidates& store, const NodeSums& node) {
        for (int k = 0; k < store.n(); k++) {
            add(condition(store.feature[k], store.value[k]), store.n_left[k], store.loss_left[k],
                store.gradient_left.data() + static_cast<long>(k) * size_);
            refresh_gain(store, k, node);
        }
    }
    // The values of this batch become candidates where they promise more than what is stored.
    void propose(Candidates& store, const NodeSums& before, const NodeSums& node, int budget, int replacements) {
        const int room = std::max(0, budget - store.n());
        std::vector<int> worst(store.n());
        for (int k = 0; k < store.n(); k++) worst[k] = k;
        const auto fresh_of = [&](int k) { return Fresh{rank(store.gain[k]), store.feature[k], store.value[k]}; };
        std::sort(worst.begin(), worst.end(), [&](int a, int b) { return fresh_of(b) < fresh_of(a); });
        replacements = std::min(replacements, store.n());
        const double needed = room > 0 || replacements == 0 ? -1.0 : store.gain[worst[0]];
        collect(needed);
        const auto wanted = std::min(fresh_.size(), static_cast<std::size_t>(room + replacements + store.n()));
        std::partial_sort(fresh_.begin(), fresh_.begin() + wanted, fresh_.end());
        fresh_.resize(wanted);
        std::erase_if(fresh_, [&](const Fresh& candidate) { return is_stored(store, candidate); });
        int filled = 0, replaced = 0;
        for (const Fresh& candidate : fresh_) {
            if (filled < room) {
                put(store, append(store), candidate, before, node);
                filled++;
            } else if (replaced < replacements && candidate.score > rank(store.gain[worst[replaced]])) {
                put(store, worst[replaced], candidate, before, node);
                replaced++;
            } else {
                break;
            }
        }
    }

private:
    struct Fresh {
        double score;
        std::int32_t feature;
        double value;
        bool operator<(const Fresh& other) const {
            if (score != other.score) return score > other.score;
            return feature != other.feature ? feature < other.feature : value < other.value;
        }
    };
    static double rank(double gain) {  // 12 significant digits: rounding cannot decide a tie
        int exponent;
        const double mantissa = std::frexp(gain, &exponent);
        return std::ldexp(std::nearbyint(mantissa * 0x1p40), exponent - 40);
    }
    Condition condition(int feature, double value) const {
        return {feature, value, static_cast<bool>(schema_.is_categorical[feature]), false};
    }
    const double* raw(int i) const { return chunk_.raw_row(visit_.rows[i], schema_.n_features); }
    void add_row(int i, double& n, double& loss, double* gradient) const {
        const int row = visit_.rows[i];
        n += chunk_.weights[row];
        loss += chunk_.weights[row] * loss_[i];
        f_.add_gradient(shape_, chunk_.rows(), row, residual_ + static_cast<long>(i) * shape_.outputs, gradient);
    }
    void add(const Condition& condition, double& n, double& loss, double* gradient) const {
        for (int i = 0; i < visit_.n; i++)
            if (condition.holds(raw(i))) add_row(i, n, loss, gradient);
    }
    double gain_of(const double* left, const double* all, double n_left, double n) const {
        double l, r;
        f_.norms(left, all, size_, &l, &r);
        const double n_right = n - n_left;
        return gain_step_ * ((n_left > 0.0 ? l / n_left : 0.0) + (n_right > 1e-9 * n ? r / n_right : 0.0));
    }
    void refresh_gain(Candidates& store, int k, const NodeSums& node) {
        for (int i = 0; i < size_; i++)
            all_[i] = node.gradient[i] - store.gradient_before[static_cast<long>(k) * size_ + i];
        store.gain[k] = gain_of(store.gradient_left.data() + static_cast<long>(k) * size_, all_.data(), store.n_left[k],
                                node.n - store.n_before[k]);
    }
    // Every distinct value of the batch with its gain on the batch alone; `needed`: what it must exceed.
    void collect(double needed) {
        fresh_.clear();
        std::fill(all_.begin(), all_.end(), 0.0);
        double n = 0.0, unused = 0.0;
        for (int i = 0; i < visit_.n; i++) add_row(i, n, unused, all_.data());
        for (int j = 0; j < schema_.n_features; j++) collect_feature(j, n, needed);
    }
    void collect_feature(int j, double n, double needed) {
        sorted_.clear();
        for (int i = 0; i < visit_.n; i++)
            if (!std::isnan(raw(i)[j])) sorted_.push_back({raw(i)[j], i});
        if (sorted_.empty()) return;
        std::sort(sorted_.begin(), sorted_.end());
        const bool single = sorted_.front().first == sorted_.back().first, equality = schema_.is_categorical[j];
        std::fill(left_.begin(), left_.end(), 0.0);
        double n_left = 0.0, unused = 0.0;
        for (std::size_t i = 0; i < sorted_.size(); i++) {
            const double value = sorted_[i].first;
            if (equality && i > 0 && value != sorted_[i - 1].first) {
                std::fill(left_.begin(), left_.end(), 0.0);
                n_left = 0.0;
            }
            add_row(sorted_[i].second, n_left, unused, left_.data());
            const bool is_last = i + 1 == sorted_.size();
            if (!is_last && sorted_[i + 1].first == value) continue;
            if (is_last && !single && !equality) continue;  // the largest value leaves nothing on the right
            const double score = rank(gain_of(left_.data(), all_.data(), n_left, n));
            if (score > needed) fresh_.push_back({score, j, value});
        }
    }
    bool is_stored(const Candidates& store, const Fresh& candidate) const {
        for (int k = 0; k < store.n(); k++)
            if (store.feature[k] == candidate.feature && store.value[k] == candidate.value) return true;
        return false;
    }
    int append(Candidates& store) const {
        store.feature.push_back(-1);
        for (auto* values : {&store.value, &store.n_left, &store.loss_left, &store.n_before, &store.loss_before, &store.gain})
            values->push_back(0.0);
        store.gradient_left.resize(store.gradient_left.size() + size_);
        store.gradient_before.resize(store.gradient_before.size() + size_);
        return store.n() - 1;
    }
    void put(Candidates& store, int k, const Fresh& candidate, const NodeSums& before, const NodeSums& node) {
        double* left = store.gradient_left.data() + static_cast<long>(k) * size_;
        std::fill_n(left, size_, 0.0);
        std::copy_n(before.gradient, size_, store.gradient_before.data() + static_cast<long>(k) * size_);
        store.feature[k] = candidate.feature;
        store.value[k] = candidate.value;
        store.n_left[k] = store.loss_left[k] = 0.0;
        store.n_before[k] = before.n;
        store.loss_before[k] = before.loss;
        add(condition(candidate.feature, candidate.value), store.n_left[k], store.loss_left[k], left);
        refresh_gain(store, k, node);
    }

    const Functions& f_;
    const Shape& shape_;
    const Schema& schema_;
    const Chunk& chunk_;
    const Visit& visit_;
    const double* loss_;
    const double* residual_;
    double gain_step_;
    int size_;
    std::vector<double> all_, left_;
    std::vector<Fresh> fresh_;
    std::vector<std::pair<double, int>> sorted_;
};

}  // namespace driftree
