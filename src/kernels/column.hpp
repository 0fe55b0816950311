// Column: the values of one feature at a node, in buckets of ascending value, sorted only where needed.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "simple_models.hpp"

namespace driftree {

class Column {
public:
    std::vector<double> values;        // by place
    std::vector<std::int32_t> places;  // by bucket; within a bucket by value (once sorted) or by place

    // Reads the values of feature j. No bucket is empty except perhaps that of the rows without a value.
    void fill(const Functions& f, const double* X, int m, const std::int32_t* rows, int n, int j, Buckets& buckets) {
        values.resize(n);
        places.resize(n);
        codes_.resize(n);
        for (int i = 0; i < n; i++) values[i] = X[static_cast<long>(rows[i]) * m + j];
        n_codes_ = std::clamp(static_cast<int>(std::bit_ceil(static_cast<unsigned>(n) / 8)), 1, kMostBuckets);
        edges_.clear();
        range_ = f.codes(values.data(), n, n_codes_, codes_.data());
        gather(buckets);
        if (n_codes_ == kMostBuckets && is_skewed(buckets)) {
            code_by_quantiles(f);
            gather(buckets);
        }
        for (int b = 0; b < buckets.n; b++) buckets.is_level[b] = is_level(buckets.begin[b], buckets.begin[b + 1]);
    }
    double value(int i) const { return values[places[i]]; }
    double low() const { return range_.low; }  // larger than high() if no row has a value
    double high() const { return range_.high; }
    // The first bucket that may have a larger value; requires low() <= value <= high().
    int bucket_of(double value) const {
        if (!edges_.empty()) return bucket_[std::lower_bound(edges_.begin(), edges_.end(), value) - edges_.begin()];
        return bucket_[std::min(static_cast<int>((value - range_.origin) * range_.factor), n_codes_ - 1)];
    }
    template <class Archive>
    void visit_scratch(Archive& a) {
        a("values", values), a("places", places), a("codes", codes_), a("edges", edges_), a("slots", slots_);
    }
    // Sorts places by value; the sort is stable.
    void sort(int begin, int end) {
        const auto precedes = [&](std::int32_t i, std::int32_t j) {
            return values[i] != values[j] ? values[i] < values[j] : i < j;
        };
        const auto first = places.begin() + begin, last = places.begin() + end;
        if (end - begin > 48) {
            if (!std::is_sorted(first, last, precedes)) std::sort(first, last, precedes);  // often all values are equal
            return;
        }
        for (auto next = first; next != last; ++next) {  // insertion sort for few places
            const std::int32_t own = *next;
            auto to = next;
            for (; to != first && precedes(own, to[-1]); --to) *to = to[-1];
            *to = own;
        }
    }

private:
    // Groups places by code. Equal values have equal codes, and codes ascend with the values.
    void gather(Buckets& buckets) {
        const int n = static_cast<int>(values.size());
        std::int32_t next[kMostBuckets + 1] = {};
        for (const std::uint8_t code : codes_) next[code]++;
        buckets.n = 0;
        for (int code = 0, sum = 0; code <= n_codes_; code++) {
            const int count = next[code];
            bucket_[code] = static_cast<std::uint8_t>(buckets.n);
            buckets.begin[buckets.n] = next[code] = sum;
            sum += count;
            buckets.n += count > 0 && code < n_codes_;
        }
        buckets.begin[buckets.n + 1] = n;
        for (int i = 0; i < n; i++) places[next[codes_[i]]++] = i;
    }
    bool is_level(int begin, int end) const {
        int i = begin + 1;
        while (i < end && value(i) == value(i - 1)) i++;
        return i == end;
    }
    // Buckets of equal width need one pass, but a few large values can leave all others in one bucket.
    bool is_skewed(const Buckets& buckets) const {
        for (int b = 0; b < buckets.n; b++)
            if (buckets.begin[b + 1] - buckets.begin[b] > static_cast<int>(values.size()) / 4)
                return !is_level(buckets.begin[b], buckets.begin[b + 1]);
        return false;
    }
    // Uses quantiles of a part of the values. The order of the rows does not depend on the values.
    void code_by_quantiles(const Functions& f) {
        const long n = static_cast<long>(values.size());
        for (int i = 0; i < kMostBuckets - 1; i++)
            if (const double value = values[i * n / (kMostBuckets - 1)]; !std::isnan(value)) edges_.push_back(value);
        if (edges_.empty()) return;
        std::sort(edges_.begin(), edges_.end());
        edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
        slots_.resize(n);
        f.slots(edges_.data(), static_cast<int>(edges_.size()), values.data(), static_cast<int>(n), slots_.data());
        for (long i = 0; i < n; i++) codes_[i] = static_cast<std::uint8_t>(std::isnan(values[i]) ? n_codes_ : slots_[i]);
    }

    BucketRange range_ = {};
    int n_codes_ = 0;
    std::uint8_t bucket_[kMostBuckets + 1];  // by code
    std::vector<std::uint8_t> codes_;        // by place; n_codes_: no value
    std::vector<double> edges_;              // codes by quantiles: the number of smaller edges
    std::vector<std::int32_t> slots_;
};

}  // namespace driftree
