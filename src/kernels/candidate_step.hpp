// One step of a node's candidates, Algorithm 1, lines 6 to 12: the stored ones grow by the step's rows, and values of
// these rows become candidates where they promise more.
//
// A batch has nearly as many values as cells, and almost none gets into the store. So no feature is sorted: its rows
// are put into buckets, whose sums give the exact gains at their borders and bounds for what lies between; a bucket is
// looked into only if a value in it may be good enough. The outcome is that of looking at all values.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "candidates.hpp"
#include "column.hpp"
#include "rows.hpp"
#include "simple_models.hpp"

namespace driftree {

class CandidateStep {  // kept between steps for its memory
public:
    void begin(const Functions& f, const Shape& shape, const Schema& schema, const Chunk& chunk, const Visit& visit,
               const Forward& before, double gain_step) {
        rule_ = {&f, shape.outputs * shape.stride, gain_step};
        shape_ = shape;
        schema_ = &schema;
        n_ = visit.n;
        raw_ = chunk.raw.data();
        sums_.resize(n_);
        residual_.resize(static_cast<std::size_t>(n_) * shape.outputs);
        all_.assign(rule_.size, 0.0);
        f.weigh(shape, chunk.rows(), visit, before.residual, before.loss, residual_.data(), sums_.data());
        gradients_ = {chunk.inputs.data(), visit.rows, residual_.data(), sums_.data()};
        f.add_gradients(shape, gradients_, nullptr, n_, all_.data());
    }
    // Adds the rows to the sums of the node itself (lines 1 to 3).
    void add_all(double* gradient) const {
        for (int c = 0; c < rule_.size; c++) gradient[c] += all_[c];
    }
    // `then`, `now`: the node's sums without and with the step's rows.
    void learn(Candidates& store, const NodeSums& then, const NodeSums& now, int budget, int replacements) {
        budget_ = budget;
        room_ = std::max(0, budget - store.n());
        replacements = std::min(replacements, store.n());
        fresh_.clear();
        worst_.clear();
        if (n_ == 1) {
            learn_row(store, then, now, replacements);
        } else {
            store.settle_all(rule_, then);
            update(store, now, now.n - then.n);
            find_worst(store, replacements);
            propose(store, now.n - then.n);
        }
        admit(store, then, now);
    }
    template <class Archive>
    void visit_scratch(Archive& a) {
        a("sums", sums_), a("all", all_), a("left", left_), a("right", right_), a("prefix", prefix_);
        a("residual", residual_), a("left_norms", left_norms_), a("right_norms", right_norms_), a("group", group_);
        a("order", order_), a("admitted", admitted_), a("passing", passing_), a("is_stored", is_stored_);
        a("buckets", buckets_), a("promising", promising_), a("fresh", fresh_), a("worst", worst_);
        column_.visit_scratch(a);
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

    // ---------------------------------------------------------------- one row
    // A single row has the same gain for every feature: all of its length.
    void learn_row(Candidates& store, const NodeSums& then, const NodeSums& now, int replacements) {
        const double* x = raw_ + static_cast<long>(gradients_.rows[0]) * schema_->n_features;
        std::copy(all_.begin(), all_.end(), store.next_waiting(rule_, *schema_, then));
        double norm, nothing;
        rule_.f->norms(all_.data(), all_.data(), rule_.size, &norm, &nothing);
        store.add_waiting(rule_, x, sums_[0].n, sums_[0].loss, std::sqrt(norm), now);
        const double score = rank(rule_.gain(norm, 0.0, sums_[0].n, sums_[0].n));
        if (room_ == 0 && score <= store.waiting.lowest) return;
        is_stored_.assign(schema_->n_features, 0);
        for (int k = 0; k < store.n(); k++) is_stored_[store.feature[k]] |= store.value[k] == x[store.feature[k]];
        for (int j = 0; j < schema_->n_features; j++)
            if (!std::isnan(x[j]) && !is_stored_[j]) fresh_.push_back({score, j, x[j]});
        const int rest = static_cast<int>(fresh_.size()) - room_;
        if (rest > 0) find_worse(store, now, score, std::min(rest, replacements));
        fresh_.resize(std::min(fresh_.size(), room_ + worst_.size()));
    }
    // Who is worse than the score, at most as many as are wanted; their order does not matter, as all that replace them
    // have the same score.
    void find_worse(Candidates& store, const NodeSums& now, double score, int wanted) {
        const WaitingRows& waiting = store.waiting;
        int n_near = 0;
        for (int k = 0; k < store.n(); k++) n_near += waiting.least[k] < score;
        for (int k = 0; k < store.n() && wanted > 0; k++) {
            if (waiting.least[k] >= score) continue;
            const bool goes = n_near <= wanted && waiting.most[k] < score;  // whatever its gain is
            if (!goes) store.settle(rule_, k, now);
            const double own = rank(store.gain[k]);
            if (goes || own < score) worst_.push_back({{own, store.feature[k], store.value[k]}, k});
        }
        if (static_cast<int>(worst_.size()) <= wanted) return;
        std::nth_element(worst_.begin(), worst_.begin() + wanted, worst_.end(),
                         [](const auto& a, const auto& b) { return b.first < a.first; });
        worst_.resize(wanted);
        std::sort(worst_.begin(), worst_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    }

    // ---------------------------------------------------------------- a batch: stored candidates
    void update(Candidates& store, const NodeSums& now, double n) {
        rule_.f->measure(shape_, gradients_, all_.data(), n, n_, sums_.data());
        group_by_feature(store);
        buckets_.resize(schema_->n_features);
        prefix_.resize(static_cast<std::size_t>(kMostBuckets + 2) * rule_.size);
        for (int j = 0; j < schema_->n_features; j++) {
            const std::int32_t *begin = order_.data() + group_[j], *end = order_.data() + group_[j + 1];
            load(j);
            if (schema_->is_categorical[j]) {
                add_equal_to_all(store, begin, end);
            } else {
                rule_.f->sum_buckets(shape_, gradients_, all_.data(), n, rule_.step, column_.places.data(), buckets_[j],
                                     prefix_.data());
                add_left_of_all(store, buckets_[j], begin, end, prefix_.data());
            }
        }
        for (int k = 0; k < store.n(); k++) store.settle(rule_, k, now);
    }
    // Reads a feature's values; all of them in columns would fill the cache that the inputs need.
    void load(int j) {
        column_.fill(*rule_.f, raw_, schema_->n_features, gradients_.rows, n_, j, buckets_[j]);
    }
    // order_[group_[j] .. group_[j + 1]): the candidates of feature j by value.
    void group_by_feature(const Candidates& store) {
        group_.assign(schema_->n_features + 2, 0);
        for (int k = 0; k < store.n(); k++) group_[store.feature[k] + 2]++;
        for (int j = 0; j < schema_->n_features; j++) group_[j + 2] += group_[j + 1];
        order_.resize(store.n());
        for (int k = 0; k < store.n(); k++) order_[group_[store.feature[k] + 1]++] = k;
        for (int j = 0; j < schema_->n_features; j++)
            std::sort(order_.begin() + group_[j], order_.begin() + group_[j + 1],
                      [&](int a, int b) { return store.value[a] < store.value[b]; });
    }
    // Adds the rows to the left sides of candidates of the loaded feature, given by ascending value; `prefix` has the
    // sums before each bucket, if they are known.
    void add_left_of_all(Candidates& store, const Buckets& buckets, const std::int32_t* first, const std::int32_t* last,
                         const double* prefix) {
        int bucket = -1, next = 0;
        RowSums sums = {};
        left_.assign(rule_.size, 0.0);
        for (const std::int32_t* k = first; k < last; k++) {
            const double value = store.value[*k];
            if (!(value >= column_.low())) continue;
            const int own = value >= column_.high() ? buckets.n : column_.bucket_of(value);
            if (own != bucket) {
                bucket = own;
                if (prefix) {
                    std::copy_n(prefix + static_cast<long>(bucket) * rule_.size, rule_.size, left_.data());
                } else {
                    add_places(next, buckets.begin[bucket], left_.data());
                }
                next = buckets.begin[bucket];
                sums = {buckets.rows[bucket], buckets.loss[bucket], 0.0, 0.0};
                column_.sort(next, buckets.begin[bucket + 1]);
            }
            const int begin = next;
            for (; next < buckets.begin[bucket + 1] && column_.value(next) <= value; next++) {
                sums.n += sums_[column_.places[next]].n;
                sums.loss += sums_[column_.places[next]].loss;
            }
            add_places(begin, next, left_.data());
            add_left(store, *k, sums, left_.data());
        }
    }
    // The same for a categorical feature.
    void add_equal_to_all(Candidates& store, const std::int32_t* first, const std::int32_t* last) {
        for (const std::int32_t* k = first; k < last; k++) {
            RowSums sums = {};
            passing_.clear();
            for (int i = 0; i < n_; i++) {
                if (column_.values[i] != store.value[*k]) continue;
                passing_.push_back(i);
                sums.n += sums_[i].n;
                sums.loss += sums_[i].loss;
            }
            left_.assign(rule_.size, 0.0);
            const int n_passing = static_cast<int>(passing_.size());
            rule_.f->add_gradients(shape_, gradients_, passing_.data(), n_passing, left_.data());
            add_left(store, *k, sums, left_.data());
        }
    }
    void add_left(Candidates& store, int k, const RowSums& sums, const double* gradient) const {
        store.n_left[k] += sums.n;
        store.loss_left[k] += sums.loss;
        double* sum = store.gradient_left.data() + static_cast<long>(k) * rule_.size;
        for (int c = 0; c < rule_.size; c++) sum[c] += gradient[c];
    }
    void add_places(int begin, int end, double* sum) const {
        rule_.f->add_gradients(shape_, gradients_, column_.places.data() + begin, end - begin, sum);
    }
    // ---------------------------------------------------------------- a batch: new candidates
    // First what is known already, then the features that may bring most: both raise the bar for looking into buckets.
    void propose(const Candidates& store, double n) {
        promising_.clear();
        for (int j = 0; j < schema_->n_features; j++) {
            if (schema_->is_categorical[j]) {
                promising_.push_back({HUGE_VAL, j});
            } else {
                propose_borders(store, j, n);
            }
        }
        for (int j = 0; j < schema_->n_features; j++) {
            if (schema_->is_categorical[j] || buckets_[j].n == 0) continue;
            const double most = *std::max_element(buckets_[j].bound, buckets_[j].bound + buckets_[j].n);
            if (most >= bar()) promising_.push_back({most, j});
        }
        std::sort(promising_.begin(), promising_.end(), std::greater<>());
        for (const auto& [most, j] : promising_) {
            if (most < bar()) break;
            load(j);
            if (schema_->is_categorical[j]) {
                propose_levels(store, j, n);
            } else {
                propose_values(store, j, n);
            }
        }
    }
    void propose_levels(const Candidates& store, int j, double n) {
        const int n_present = buckets_[j].begin[buckets_[j].n];
        column_.sort(0, n_present);
        for (int begin = 0, end; begin < n_present; begin = end) {
            double n_left = 0.0, left_norm, right_norm;
            for (end = begin; end < n_present && column_.value(end) == column_.value(begin); end++)
                n_left += sums_[column_.places[end]].n;
            left_.assign(rule_.size, 0.0);
            add_places(begin, end, left_.data());
            rule_.f->norms(left_.data(), all_.data(), rule_.size, &left_norm, &right_norm);
            offer(store, rule_.gain(left_norm, right_norm, n_left, n), j, column_.value(begin));
        }
    }
    // The largest value of each bucket; that of all leaves nothing on the right, and counts only if it is the only one.
    void propose_borders(const Candidates& store, int j, double n) {
        const Buckets& buckets = buckets_[j];
        bool is_loaded = false;
        for (int b = 0; b < buckets.n; b++) {
            const double gain = rule_.gain(buckets.left_norm[b + 1], buckets.right_norm[b + 1], buckets.rows[b + 1], n);
            if (rank(gain) < bar()) continue;
            if (!is_loaded) load(j);
            is_loaded = true;
            if (b + 1 == buckets.n && column_.low() != column_.high()) break;
            double value = column_.value(buckets.begin[b]);
            for (int i = buckets.begin[b] + 1; i < buckets.begin[b + 1]; i++) value = std::max(value, column_.value(i));
            offer(store, gain, j, value);
        }
    }
    // The values inside buckets that may be good enough.
    void propose_values(const Candidates& store, int j, double n) {
        const Buckets& buckets = buckets_[j];
        int summed = 0;  // left_ is the sum of the places before
        left_.assign(rule_.size, 0.0);
        for (int b = 0; b < buckets.n; b++) {
            const int begin = buckets.begin[b], end = buckets.begin[b + 1];
            if (buckets.bound[b] < bar()) continue;
            column_.sort(begin, end);
            seek(summed, begin);
            left_norms_.resize(end - begin);
            right_norms_.resize(end - begin);
            rule_.f->scan(shape_, gradients_, all_.data(), column_.places.data() + begin, end - begin, left_.data(),
                          left_norms_.data(), right_norms_.data());
            summed = end;
            double n_left = buckets.rows[b];
            for (int i = begin; i + 1 < end; i++) {
                n_left += sums_[column_.places[i]].n;
                if (column_.value(i) == column_.value(i + 1)) continue;
                const double gain = rule_.gain(left_norms_[i - begin], right_norms_[i - begin], n_left, n);
                offer(store, gain, j, column_.value(i));
            }
        }
    }
    // left_ becomes the sum of the places before `end`: from where it is, or from all, whichever is nearer.
    void seek(int summed, int end) {
        if (end - summed <= n_ - end) {
            add_places(summed, end, left_.data());
            return;
        }
        right_.assign(rule_.size, 0.0);
        add_places(end, n_, right_.data());
        for (int c = 0; c < rule_.size; c++) left_[c] = all_[c] - right_[c];
    }

    // ---------------------------------------------------------------- who gets in
    void find_worst(const Candidates& store, int wanted) {
        for (int k = 0; k < store.n(); k++)
            worst_.push_back({{rank(store.gain[k]), store.feature[k], store.value[k]}, k});
        std::partial_sort(worst_.begin(), worst_.begin() + wanted, worst_.end(),
                          [](const auto& a, const auto& b) { return b.first < a.first; });
        worst_.resize(wanted);
    }
    // The i-th best new candidate gets a free place, or that of the i-th worst of the stored ones if it is better.
    double needed(std::size_t i) const {
        if (i < static_cast<std::size_t>(room_)) return -1.0;
        return i - room_ < worst_.size() ? worst_[i - room_].first.score : HUGE_VAL;
    }
    // Who scores less gets in neither behind nor before those that are there.
    double bar() const { return fresh_.empty() ? needed(0) : std::min(fresh_.back().score, needed(fresh_.size())); }
    void offer(const Candidates& store, double gain, std::int32_t feature, double value) {
        const Fresh own = {rank(gain), feature, value};
        if (own.score < bar()) return;
        if (is_stored(store, own)) return;
        fresh_.insert(std::upper_bound(fresh_.begin(), fresh_.end(), own), own);
        while (!fresh_.empty() && !(fresh_.back().score > needed(fresh_.size() - 1))) fresh_.pop_back();
    }
    bool is_stored(const Candidates& store, const Fresh& own) const {
        const auto end = order_.begin() + group_[own.feature + 1];
        const auto place = std::lower_bound(order_.begin() + group_[own.feature], end, own.value,
                                            [&](int k, double value) { return store.value[k] < value; });
        return place != end && store.value[*place] == own.value;
    }
    void admit(Candidates& store, const NodeSums& then, const NodeSums& now) {
        admitted_.clear();
        for (std::size_t i = 0; i < fresh_.size(); i++) {
            const bool is_free = i < static_cast<std::size_t>(room_);
            const int k = is_free ? store.append(rule_.size, budget_) : worst_[i - room_].second;
            const std::int32_t feature = fresh_[i].feature;
            store.start(k, feature, fresh_[i].value, schema_->is_categorical[feature], then, rule_.size);
            if (n_ == 1) add_left(store, k, sums_[0], all_.data());
            admitted_.push_back(k);
        }
        if (n_ > 1) add_left_of_admitted(store);
        for (const int k : admitted_) store.settle(rule_, k, now);
    }
    void add_left_of_admitted(Candidates& store) {
        std::sort(admitted_.begin(), admitted_.end(), [&](int a, int b) {
            return std::pair(store.feature[a], store.value[a]) < std::pair(store.feature[b], store.value[b]);
        });
        const std::int32_t* const end = admitted_.data() + admitted_.size();
        for (const std::int32_t *first = admitted_.data(), *last; first < end; first = last) {
            const int j = store.feature[*first];
            last = std::find_if(first, end, [&](int k) { return store.feature[k] != j; });
            load(j);
            if (schema_->is_categorical[j]) {
                add_equal_to_all(store, first, last);
            } else {
                add_left_of_all(store, buckets_[j], first, last, nullptr);
            }
        }
    }

    GainRule rule_ = {};
    Shape shape_ = {};
    const Schema* schema_ = nullptr;
    const double* raw_ = nullptr;  // the chunk's rows
    Gradients gradients_ = {};
    int n_ = 0, room_ = 0, budget_ = 0;
    std::vector<RowSums> sums_;
    Lines<double> all_, left_, right_, prefix_;
    std::vector<double> residual_, left_norms_, right_norms_;
    std::vector<std::int32_t> group_, order_, admitted_, passing_;
    std::vector<std::uint8_t> is_stored_;
    Column column_;                                  // of the feature that is looked at
    std::vector<Buckets> buckets_;                   // of all features
    std::vector<std::pair<double, int>> promising_;  // features by what they may bring
    std::vector<Fresh> fresh_;                       // the new candidates that get in, best first
    std::vector<std::pair<Fresh, int>> worst_;       // the stored ones that have to fear them, and their places
};

}  // namespace driftree
