// One step of a node's candidates, Algorithm 1, lines 6 to 12: the step's rows are added to the stored candidates, and
// values of these rows with a larger gain become candidates.
//
// A batch has nearly as many values as cells, and almost none gets into the store. So features are not sorted: their rows
// are put into buckets, whose sums give the exact gains at the borders and bounds in between. A bucket is searched only if
// one of its values may be good enough. The result is the same as with all values.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "candidates.hpp"
#include "chunk.hpp"
#include "column.hpp"
#include "simple_models.hpp"
#include "table.hpp"
#include "threads.hpp"

namespace driftree {

// Sums of a step's rows for a node's store: over all of them, and over those on the left of each candidate. Additive over
// rows. Which values of the rows become candidates is not: see CandidateStep::renew.
struct CandidateSums {
    Lines<double> gradient;  // [outputs, stride] over all rows
    std::vector<double> n_left, loss_left;
    Lines<double> gradient_left;         // [candidates, outputs, stride]
    std::vector<std::uint8_t> has_left;  // 0: no row is on the left, and its gradient is not set
    std::vector<double> row;             // a single row that waits: its values, instead of sums of the left sides,
    double length = 0.0;                 // and the length of its gradient

    CandidateSums& operator+=(const CandidateSums& other) {
        for (std::size_t i = 0; i < gradient.size(); i++) gradient[i] += other.gradient[i];
        for (std::size_t k = 0; k < n_left.size(); k++) {
            if (!other.has_left[k]) continue;
            const std::size_t size = gradient.size(), begin = k * size;
            for (std::size_t i = begin; i < begin + size; i++)
                gradient_left[i] = (has_left[k] ? gradient_left[i] : 0.0) + other.gradient_left[i];
            n_left[k] += other.n_left[k];
            loss_left[k] += other.loss_left[k];
            has_left[k] = 1;
        }
        return *this;
    }
    template <class Archive>
    void visit(Archive& a) {
        a("gradient", gradient), a("n_left", n_left), a("loss_left", loss_left), a("gradient_left", gradient_left);
        a("has_left", has_left), a("row", row), a("length", length);
    }
};

// The work on one node; reused, for its memory.
class CandidateStep {
public:
    void begin(const Functions& f, const Shape& shape, const Schema& schema, const Chunk& chunk, const Visit& visit,
               const Forward& before, double gain_step, int n_threads) {
        benches_.resize(std::max<std::size_t>(benches_.size(), n_threads));
        n_threads_ = n_threads;
        rule_ = {&f, shape.size(), gain_step};
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
    // Sums the rows. A single row is passed on as its values if it may wait.
    void accumulate(const Candidates& store, bool may_wait, CandidateSums& sums) {
        sums.gradient = all_;
        if (may_wait && n_ == 1) {
            const double* x = row();
            double nothing;
            sums.row.assign(x, x + schema_->n_features);
            rule_.f->norms(all_.data(), all_.data(), rule_.size, &norm_, &nothing);
            sums.length = std::sqrt(norm_);
            return;
        }
        sums.row.clear();
        for (auto* values : {&sums.n_left, &sums.loss_left}) values->assign(store.n(), 0.0);
        sums.has_left.assign(store.n(), 0);
        sums.gradient_left.resize(static_cast<std::size_t>(store.n()) * rule_.size);
        double n = 0.0;
        for (const RowSums& one : sums_) n += one.n;
        sum_left(store, n, sums);
    }
    // Values of the step's rows become candidates if their gain is larger than that of stored ones. Not additive: this needs
    // the rows themselves. `then` and `now` are the node's sums without and with them.
    void renew(Candidates& store, const LifeSums& then, const LifeSums& now, int budget, int replacements) {
        budget_ = budget;
        room_ = std::max(0, budget - store.n());
        replacements = std::min(replacements, store.n());
        fresh_.clear();
        worst_.clear();
        if (n_ == 1) {
            propose_row(store, now, replacements);
        } else {
            find_worst(store, replacements);
            propose(store, now.n - then.n);
        }
        admit(store, then, now);
    }
    template <class Archive>
    void visit_scratch(Archive& a) {
        a("sums", sums_), a("all", all_);
        a("residual", residual_), a("left_norms", left_norms_), a("right_norms", right_norms_), a("group", group_);
        a("order", order_), a("admitted", admitted_), a("is_stored", is_stored_);
        a("buckets", buckets_), a("promising", promising_), a("fresh", fresh_), a("worst", worst_);
        a.each("bench", benches_, [](auto& inner, Bench& bench) {
            inner("left", bench.left), inner("right", bench.right), inner("prefix", bench.prefix);
            inner("passing", bench.passing);
            bench.column.visit_scratch(inner);
        });
    }

private:
    struct Bench {      // one per thread
        Column column;  // the current feature
        Lines<double> left, right, prefix;
        std::vector<std::int32_t> passing;
    };
    struct Fresh {
        double score;
        std::int32_t feature;
        double value;
        bool operator<(const Fresh& other) const {
            if (score != other.score) return score > other.score;
            return feature != other.feature ? feature < other.feature : value < other.value;
        }
    };

    const double* row() const { return raw_ + static_cast<long>(gradients_.rows[0]) * schema_->n_features; }

    // ---------------------------------------------------------------- one row
    // A single row has the same gain for every feature, that of its whole gradient.
    void propose_row(Candidates& store, const LifeSums& now, int replacements) {
        const double* x = row();
        const double score = rank(rule_.gain(norm_, 0.0, sums_[0].n, sums_[0].n));
        if (room_ == 0 && score <= store.waiting.lowest) return;
        is_stored_.assign(schema_->n_features, 0);
        for (int k = 0; k < store.n(); k++) is_stored_[store.feature[k]] |= store.value[k] == x[store.feature[k]];
        for (int j = 0; j < schema_->n_features; j++)
            if (!std::isnan(x[j]) && !is_stored_[j]) fresh_.push_back({score, j, x[j]});
        const int rest = static_cast<int>(fresh_.size()) - room_;
        if (rest > 0) find_worse(store, now, score, std::min(rest, replacements));
        fresh_.resize(std::min(fresh_.size(), room_ + worst_.size()));
    }
    // Finds stored candidates that are worse than the score, at most `wanted`. Their order does not matter, as all that
    // replace them have the same score.
    void find_worse(Candidates& store, const LifeSums& now, double score, int wanted) {
        const WaitingRows& waiting = store.waiting;
        int n_near = 0;
        for (int k = 0; k < store.n(); k++) n_near += waiting.least[k] < score;
        for (int k = 0; k < store.n() && wanted > 0; k++) {
            if (waiting.least[k] >= score) continue;
            const bool goes = n_near <= wanted && waiting.most[k] < score;  // whatever its exact gain is
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

    // Functions take(k, sums, gradient) that store or add the rows on the left of candidate k.
    auto into(CandidateSums& sums) const {
        return [this, &sums](int k, const RowSums& left, const double* gradient) {
            sums.n_left[k] = left.n;
            sums.loss_left[k] = left.loss;
            sums.has_left[k] = 1;
            std::copy_n(gradient, rule_.size, sums.gradient_left.data() + static_cast<long>(k) * rule_.size);
        };
    }
    auto into(Candidates& store) const {
        return [this, &store](int k, const RowSums& left, const double* gradient) {
            store.n_left[k] += left.n;
            store.loss_left[k] += left.loss;
            double* sum = store.gradient_left.data() + static_cast<long>(k) * rule_.size;
            for (int c = 0; c < rule_.size; c++) sum[c] += gradient[c];
        };
    }
    // ---------------------------------------------------------------- a batch: stored candidates
    void sum_left(const Candidates& store, double n, CandidateSums& sums) {
        rule_.f->measure(shape_, gradients_, all_.data(), n, n_, sums_.data());
        group_by_feature(store);
        buckets_.resize(schema_->n_features);
        const double work = n_ * (3.0 + 0.24 * rule_.size);  // estimated nanoseconds
        Threads::all().run_ranges(n_threads_, schema_->n_features, 1, work,
                                  [&](std::size_t first, std::size_t last, int who) {
                                      for (int j = static_cast<int>(first); j < static_cast<int>(last); j++)
                                          sum_left_of_feature(benches_[who], store, j, n, sums);
                                  });
    }
    void sum_left_of_feature(Bench& bench, const Candidates& store, int j, double n, CandidateSums& sums) {
        const std::int32_t *begin = order_.data() + group_[j], *end = order_.data() + group_[j + 1];
        bench.prefix.resize(static_cast<std::size_t>(kMostBuckets + 2) * rule_.size);
        load(bench, j);
        if (schema_->is_categorical[j]) {
            sum_equal_to_all(bench, store, begin, end, into(sums));
        } else {
            rule_.f->sum_buckets(shape_, gradients_, all_.data(), n, rule_.step, bench.column.places.data(), buckets_[j],
                                 bench.prefix.data());
            sum_left_of_all(bench, store, buckets_[j], begin, end, bench.prefix.data(), into(sums));
        }
    }
    // Reads a feature's values, one feature at a time: all columns at once would fill the cache that the inputs need.
    void load(Bench& bench, int j) {
        bench.column.fill(*rule_.f, raw_, schema_->n_features, gradients_.rows, n_, j, buckets_[j]);
    }
    // order_[group_[j] .. group_[j + 1]): the candidates of feature j, sorted by value.
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
    // Sums the rows on the left of candidates of the loaded feature, which are sorted by value; `prefix` has the sums before
    // each bucket, if known.
    template <class Take>
    void sum_left_of_all(Bench& bench, const Candidates& store, const Buckets& buckets, const std::int32_t* first,
                         const std::int32_t* last, const double* prefix, Take&& take) {
        int bucket = -1, next = 0;
        RowSums sums = {};
        bench.left.assign(rule_.size, 0.0);
        for (const std::int32_t* k = first; k < last; k++) {
            const double value = store.value[*k];
            if (!(value >= bench.column.low())) continue;
            const int own = value >= bench.column.high() ? buckets.n : bench.column.bucket_of(value);
            if (own != bucket) {
                bucket = own;
                if (prefix) {
                    std::copy_n(prefix + static_cast<long>(bucket) * rule_.size, rule_.size, bench.left.data());
                } else {
                    add_places(bench, next, buckets.begin[bucket], bench.left.data());
                }
                next = buckets.begin[bucket];
                sums = {buckets.rows[bucket], buckets.loss[bucket], 0.0, 0.0};
                bench.column.sort(next, buckets.begin[bucket + 1]);
            }
            const int begin = next;
            for (; next < buckets.begin[bucket + 1] && bench.column.value(next) <= value; next++) {
                sums.n += sums_[bench.column.places[next]].n;
                sums.loss += sums_[bench.column.places[next]].loss;
            }
            add_places(bench, begin, next, bench.left.data());
            take(*k, sums, bench.left.data());
        }
    }
    // The same for a categorical feature.
    template <class Take>
    void sum_equal_to_all(Bench& bench, const Candidates& store, const std::int32_t* first, const std::int32_t* last,
                          Take&& take) {
        for (const std::int32_t* k = first; k < last; k++) {
            RowSums sums = {};
            bench.passing.clear();
            for (int i = 0; i < n_; i++) {
                if (bench.column.values[i] != store.value[*k]) continue;
                bench.passing.push_back(i);
                sums.n += sums_[i].n;
                sums.loss += sums_[i].loss;
            }
            bench.left.assign(rule_.size, 0.0);
            const int n_passing = static_cast<int>(bench.passing.size());
            rule_.f->add_gradients(shape_, gradients_, bench.passing.data(), n_passing, bench.left.data());
            take(*k, sums, bench.left.data());
        }
    }
    void add_places(const Bench& bench, int begin, int end, double* sum) const {
        rule_.f->add_gradients(shape_, gradients_, bench.column.places.data() + begin, end - begin, sum);
    }
    // ---------------------------------------------------------------- a batch: new candidates
    // First the gains that are already known, then the most promising features: both raise the bar for searching buckets.
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
            load(benches_[0], j);
            if (schema_->is_categorical[j]) {
                propose_levels(store, j, n);
            } else {
                propose_values(store, j, n);
            }
        }
    }
    void propose_levels(const Candidates& store, int j, double n) {
        const int n_present = buckets_[j].begin[buckets_[j].n];
        Bench& bench = benches_[0];
        bench.column.sort(0, n_present);
        for (int begin = 0, end; begin < n_present; begin = end) {
            double n_left = 0.0, left_norm, right_norm;
            for (end = begin; end < n_present && bench.column.value(end) == bench.column.value(begin); end++)
                n_left += sums_[bench.column.places[end]].n;
            bench.left.assign(rule_.size, 0.0);
            add_places(bench, begin, end, bench.left.data());
            rule_.f->norms(bench.left.data(), all_.data(), rule_.size, &left_norm, &right_norm);
            offer(store, rule_.gain(left_norm, right_norm, n_left, n), j, bench.column.value(begin));
        }
    }
    // Proposes the largest value of each bucket. The largest of all leaves nothing on the right, and counts only if it is
    // the only value.
    void propose_borders(const Candidates& store, int j, double n) {
        const Buckets& buckets = buckets_[j];
        Bench& bench = benches_[0];
        bool is_loaded = false;
        for (int b = 0; b < buckets.n; b++) {
            const double gain = rule_.gain(buckets.left_norm[b + 1], buckets.right_norm[b + 1], buckets.rows[b + 1], n);
            if (rank(gain) < bar()) continue;
            if (!is_loaded) load(bench, j);
            is_loaded = true;
            if (b + 1 == buckets.n && bench.column.low() != bench.column.high()) break;
            double value = bench.column.value(buckets.begin[b]);
            for (int i = buckets.begin[b] + 1; i < buckets.begin[b + 1]; i++) value = std::max(value, bench.column.value(i));
            offer(store, gain, j, value);
        }
    }
    // Proposes the values inside buckets that may be good enough.
    void propose_values(const Candidates& store, int j, double n) {
        const Buckets& buckets = buckets_[j];
        Bench& bench = benches_[0];
        int summed = 0;  // `left` is the sum of the places before it
        bench.left.assign(rule_.size, 0.0);
        for (int b = 0; b < buckets.n; b++) {
            const int begin = buckets.begin[b], end = buckets.begin[b + 1];
            if (buckets.bound[b] < bar()) continue;
            bench.column.sort(begin, end);
            seek(bench, summed, begin);
            left_norms_.resize(end - begin);
            right_norms_.resize(end - begin);
            rule_.f->scan(shape_, gradients_, all_.data(), bench.column.places.data() + begin, end - begin,
                          bench.left.data(), left_norms_.data(), right_norms_.data());
            summed = end;
            double n_left = buckets.rows[b];
            for (int i = begin; i + 1 < end; i++) {
                n_left += sums_[bench.column.places[i]].n;
                if (bench.column.value(i) == bench.column.value(i + 1)) continue;
                const double gain = rule_.gain(left_norms_[i - begin], right_norms_[i - begin], n_left, n);
                offer(store, gain, j, bench.column.value(i));
            }
        }
    }
    // Sets `left` to the sum of the places before `end`, starting from its present sum or from the total, whichever is
    // nearer.
    void seek(Bench& bench, int summed, int end) {
        if (end - summed <= n_ - end) {
            add_places(bench, summed, end, bench.left.data());
            return;
        }
        bench.right.assign(rule_.size, 0.0);
        add_places(bench, end, n_, bench.right.data());
        for (int c = 0; c < rule_.size; c++) bench.left[c] = all_[c] - bench.right[c];
    }

    // ---------------------------------------------------------------- admission
    void find_worst(const Candidates& store, int wanted) {
        for (int k = 0; k < store.n(); k++) worst_.push_back({{rank(store.gain[k]), store.feature[k], store.value[k]}, k});
        std::partial_sort(worst_.begin(), worst_.begin() + wanted, worst_.end(),
                          [](const auto& a, const auto& b) { return b.first < a.first; });
        worst_.resize(wanted);
    }
    // The i-th best new candidate gets a free place, or that of the i-th worst stored one if its gain is larger.
    double needed(std::size_t i) const {
        if (i < static_cast<std::size_t>(room_)) return -1.0;
        return i - room_ < worst_.size() ? worst_[i - room_].first.score : HUGE_VAL;
    }
    // The score below which a new candidate is not admitted.
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
    void admit(Candidates& store, const LifeSums& then, const LifeSums& now) {
        admitted_.clear();
        for (std::size_t i = 0; i < fresh_.size(); i++) {
            const bool is_free = i < static_cast<std::size_t>(room_);
            const int k = is_free ? store.append(rule_.size, budget_) : worst_[i - room_].second;
            const std::int32_t feature = fresh_[i].feature;
            store.start(k, feature, fresh_[i].value, schema_->is_categorical[feature], then, rule_.size);
            if (n_ == 1) into(store)(k, sums_[0], all_.data());
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
        Bench& bench = benches_[0];
        for (const std::int32_t *first = admitted_.data(), *last; first < end; first = last) {
            const int j = store.feature[*first];
            last = std::find_if(first, end, [&](int k) { return store.feature[k] != j; });
            load(bench, j);
            if (schema_->is_categorical[j]) {
                sum_equal_to_all(bench, store, first, last, into(store));
            } else {
                sum_left_of_all(bench, store, buckets_[j], first, last, nullptr, into(store));
            }
        }
    }

    GainRule rule_ = {};
    Shape shape_ = {};
    const Schema* schema_ = nullptr;
    const double* raw_ = nullptr;  // the chunk's rows
    Gradients gradients_ = {};
    int n_ = 0, n_threads_ = 1, room_ = 0, budget_ = 0;
    double norm_ = 0.0;  // squared length of a single row's gradient
    std::vector<RowSums> sums_;
    Lines<double> all_;
    std::vector<double> residual_, left_norms_, right_norms_;
    std::vector<std::int32_t> group_, order_, admitted_;
    std::vector<std::uint8_t> is_stored_;
    std::vector<Bench> benches_;
    std::vector<Buckets> buckets_;                   // of all features
    std::vector<std::pair<double, int>> promising_;  // features by their largest possible gain
    std::vector<Fresh> fresh_;                       // new candidates to be admitted, best first
    std::vector<std::pair<Fresh, int>> worst_;       // stored ones that they may replace, and their places
};

}  // namespace driftree
