// Candidates: the paper's store. Per node, a fixed number of split candidates with their gradients, counts and losses,
// each over its own window (the rows since it was stored); gains by the approximation (7).
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
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

// One step of a node's candidates. The object is kept between steps for its memory.
class CandidateStep {
public:
    void begin(const Functions& f, const Shape& shape, const Schema& schema, const Chunk& chunk, const Visit& visit,
               const Forward& before, double gain_step) {
        f_ = &f;
        schema_ = &schema;
        n_ = visit.n;
        size_ = shape.outputs * shape.stride;
        gain_step_ = gain_step;
        loss_.resize(n_);
        weight_.resize(n_);
        gradients_.resize(static_cast<std::size_t>(n_) * size_);
        columns_.resize(static_cast<std::size_t>(n_) * schema.n_features);
        all_.resize(size_);
        left_.resize(size_);
        f.gradients(shape, chunk.rows(), visit, before.residual, gradients_.data());
        for (int i = 0; i < n_; i++) {
            const int row = visit.rows[i];
            weight_[i] = chunk.weights[row];
            loss_[i] = chunk.weights[row] * before.loss[i];
            for (int j = 0; j < schema.n_features; j++)
                columns_[static_cast<std::size_t>(j) * n_ + i] = chunk.raw_row(row, schema.n_features)[j];
        }
        orders_.resize(schema.n_features);
        for (int j = 0; j < schema.n_features; j++) sort_column(column(j), orders_[j]);
    }
    // Adds the rows to the sums of the node itself (lines 1 to 3 of Algorithm 1).
    void add_all(double* gradient) const {
        for (int i = 0; i < n_; i++) f_->add(gradient, gradients_.data() + static_cast<long>(i) * size_, size_);
    }
    // Lines 6 to 12 of Algorithm 1 for the stored candidates.
    void update(Candidates& store, const NodeSums& node) {
        places_.resize(store.n());
        for (int k = 0; k < store.n(); k++) places_[k] = k;
        std::sort(places_.begin(), places_.end(), [&](int a, int b) {
            return store.feature[a] != store.feature[b] ? store.feature[a] < store.feature[b]
                                                        : store.value[a] < store.value[b];
        });
        for (int begin = 0, end; begin < store.n(); begin = end) {
            const int j = store.feature[places_[begin]];
            for (end = begin; end < store.n() && store.feature[places_[end]] == j;) end++;
            if (schema_->is_categorical[j]) {
                for (int i = begin; i < end; i++) add_left(store, places_[i]);
            } else {
                add_left_of_all(store, j, begin, end);
            }
        }
        for (int k = 0; k < store.n(); k++) refresh_gain(store, k, node);
    }
    // The values of this batch become candidates where they promise more than what is stored.
    void propose(Candidates& store, const NodeSums& before, const NodeSums& node, int budget, int replacements) {
        const int room = std::max(0, budget - store.n());
        worst_.clear();
        for (int k = 0; k < store.n(); k++) worst_.push_back({{rank(store.gain[k]), store.feature[k], store.value[k]}, k});
        replacements = std::min(replacements, store.n());
        std::partial_sort(worst_.begin(), worst_.begin() + replacements, worst_.end(),
                          [](const auto& a, const auto& b) { return b.first < a.first; });
        collect(room > 0 || replacements == 0 ? -1.0 : worst_[0].first.score, node, before);
        const auto wanted = std::min(fresh_.size(), static_cast<std::size_t>(room + replacements + store.n()));
        std::partial_sort(fresh_.begin(), fresh_.begin() + wanted, fresh_.end());
        fresh_.resize(wanted);
        std::erase_if(fresh_, [&](const Fresh& candidate) { return is_stored(store, candidate); });
        int filled = 0, replaced = 0;
        for (const Fresh& candidate : fresh_) {
            if (filled < room) {
                put(store, append(store), candidate, before, node);
                filled++;
            } else if (replaced < replacements && candidate.score > worst_[replaced].first.score) {
                put(store, worst_[replaced].second, candidate, before, node);
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
        return std::bit_cast<double>((std::bit_cast<std::uint64_t>(gain) + 0x800) & ~std::uint64_t{0xFFF});
    }
    const double* column(int j) const { return columns_.data() + static_cast<std::size_t>(j) * n_; }

    // Adds the rows to the left sides of places_[begin .. end), all of one numeric feature, in one walk along its values.
    void add_left_of_all(Candidates& store, int j, int begin, int end) {
        std::fill(left_.begin(), left_.end(), 0.0);
        double n = 0.0, loss = 0.0;
        std::size_t i = 0;
        for (int place = begin; place < end; place++) {
            const int k = places_[place];
            for (; i < orders_[j].size() && column(j)[orders_[j][i]] <= store.value[k]; i++) {
                const int row = orders_[j][i];
                n += weight_[row];
                loss += loss_[row];
                f_->add(left_.data(), gradients_.data() + static_cast<long>(row) * size_, size_);
            }
            store.n_left[k] += n;
            store.loss_left[k] += loss;
            f_->add(store.gradient_left.data() + static_cast<long>(k) * size_, left_.data(), size_);
        }
    }
    // Adds the rows that pass the candidate's condition to its left side.
    void add_left(Candidates& store, int k) const {
        const double* values = column(store.feature[k]);
        const double value = store.value[k];
        const bool equality = schema_->is_categorical[store.feature[k]];
        double* gradient = store.gradient_left.data() + static_cast<long>(k) * size_;
        for (int i = 0; i < n_; i++) {
            if (!(equality ? values[i] == value : values[i] <= value)) continue;  // NaN: right
            store.n_left[k] += weight_[i];
            store.loss_left[k] += loss_[i];
            f_->add(gradient, gradients_.data() + static_cast<long>(i) * size_, size_);
        }
    }
    double gain_of(double left_norm, double right_norm, double n_left, double n) const {
        const double n_right = n - n_left;
        return gain_step_ * ((n_left > 0.0 ? left_norm / n_left : 0.0) + (n_right > 1e-9 * n ? right_norm / n_right : 0.0));
    }
    void refresh_gain(Candidates& store, int k, const NodeSums& node) {
        const double* before = store.gradient_before.data() + static_cast<long>(k) * size_;
        for (int i = 0; i < size_; i++) all_[i] = node.gradient[i] - before[i];
        double l, r;
        f_->norms(store.gradient_left.data() + static_cast<long>(k) * size_, all_.data(), size_, &l, &r);
        store.gain[k] = gain_of(l, r, store.n_left[k], node.n - store.n_before[k]);
    }
    // Every distinct value of the batch with its gain on the batch alone; `needed`: what it must exceed.
    void collect(double needed, const NodeSums& node, const NodeSums& before) {
        fresh_.clear();
        for (int i = 0; i < size_; i++) all_[i] = node.gradient[i] - before.gradient[i];
        for (int j = 0; j < schema_->n_features; j++)
            if (!orders_[j].empty()) collect_feature(j, node.n - before.n, needed);
    }
    void collect_feature(int j, double n, double needed) {
        const double* values = column(j);
        const std::vector<std::int32_t>& order = orders_[j];
        const bool equality = schema_->is_categorical[j];
        const int present = static_cast<int>(order.size());
        left_norms_.resize(present);
        right_norms_.resize(present);
        for (int begin = 0, end; begin < present; begin = end) {  // runs: all values, or the rows of one category
            end = begin + 1;
            while (end < present && (!equality || values[order[end]] == values[order[begin]])) end++;
            f_->scan(gradients_.data(), all_.data(), size_, order.data() + begin, end - begin, left_.data(),
                     left_norms_.data() + begin, right_norms_.data() + begin);
        }
        const bool single = values[order.front()] == values[order.back()];
        double n_left = 0.0;
        for (int i = 0; i < present; i++) {
            const double value = values[order[i]];
            if (equality && i > 0 && value != values[order[i - 1]]) n_left = 0.0;
            n_left += weight_[order[i]];
            const bool is_last = i + 1 == present;
            if (!is_last && values[order[i + 1]] == value) continue;
            if (is_last && !single && !equality) continue;  // the largest value leaves nothing on the right
            const double score = rank(gain_of(left_norms_[i], right_norms_[i], n_left, n));
            if (score > needed) fresh_.push_back({score, j, value});
        }
    }
    // The rows that have the feature, by value: sorts the values' leading bits with the row packed behind them,
    // then settles what those bits leave open.
    void sort_column(const double* values, std::vector<std::int32_t>& order) {
        constexpr std::uint64_t row_bits = 0xFFFFFF;
        keys_.clear();
        for (int i = 0; i < n_; i++) {
            if (std::isnan(values[i])) continue;
            const auto bits = std::bit_cast<std::uint64_t>(values[i] + 0.0);
            const auto ordered = bits >> 63 ? ~bits : bits | (1ull << 63);
            keys_.push_back((ordered & ~row_bits) | (static_cast<std::uint64_t>(i) & row_bits));
        }
        std::sort(keys_.begin(), keys_.end());
        order.resize(keys_.size());
        for (std::size_t i = 0; i < keys_.size(); i++) order[i] = static_cast<std::int32_t>(keys_[i] & row_bits);
        const auto by_value = [&](int a, int b) { return values[a] < values[b]; };
        for (std::size_t begin = 0, end; begin < keys_.size(); begin = end) {
            for (end = begin; end < keys_.size() && (keys_[end] | row_bits) == (keys_[begin] | row_bits);) end++;
            if (end - begin > 1) std::stable_sort(order.begin() + begin, order.begin() + end, by_value);
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
        std::fill_n(store.gradient_left.data() + static_cast<long>(k) * size_, size_, 0.0);
        std::copy_n(before.gradient, size_, store.gradient_before.data() + static_cast<long>(k) * size_);
        store.feature[k] = candidate.feature;
        store.value[k] = candidate.value;
        store.n_left[k] = store.loss_left[k] = 0.0;
        store.n_before[k] = before.n;
        store.loss_before[k] = before.loss;
        add_left(store, k);
        refresh_gain(store, k, node);
    }

    const Functions* f_ = nullptr;
    const Schema* schema_ = nullptr;
    int n_ = 0, size_ = 0;
    double gain_step_ = 0.0;
    std::vector<double> weight_, loss_, gradients_, columns_, all_, left_, left_norms_, right_norms_;
    std::vector<Fresh> fresh_;
    std::vector<std::pair<Fresh, int>> worst_;
    std::vector<std::uint64_t> keys_;
    std::vector<std::int32_t> places_;
    std::vector<std::vector<std::int32_t>> orders_;  // per feature
};

}  // namespace driftree
