// Chunk: the rows of one step, read and scaled once.
//
// The rows of a step are a set: they are visited in an order that depends on their values and the seed, not on the order
// of arrival (which only rows of equal values keep among themselves).
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "memory.hpp"
#include "table.hpp"

namespace driftree {

inline std::uint64_t mix64(std::uint64_t z) {  // splitmix64's finaliser
    z += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// Which of n inputs are not 0; returns how many.
inline int list_active(const double* inputs, int n, std::int32_t* list) {
    int count = 0;
    for (int c = 0; c < n; c++) {
        list[count] = c;
        count += inputs[c] != 0.0;
    }
    return count;
}

// The rows of one step: raw values, inputs of the simple models, targets, weights.
class Chunk {
public:
    int n = 0;
    Lines<double> raw, inputs, targets, weights, steps;
    std::vector<std::int32_t> active, n_active;

    Rows rows() const {
        return {inputs.data(), active.data(), n_active.data(), targets.data(), weights.data(), steps.data()};
    }
    const double* raw_row(int i, int n_features) const { return raw.data() + static_cast<long>(i) * n_features; }

    template <class Archive>
    void visit_scratch(Archive& a) {
        a("raw", raw), a("inputs", inputs), a("weights", weights), a("steps", steps), a("targets", targets);
        a("active", active), a("n_active", n_active), a("order", order_), a("keys", keys_), a("begin", begin_);
    }
    // Copies the rows in the order in which the step visits them, and makes room for their inputs.
    void fill(const Functions& f, const double* X, const double* y, const double* w, int n_rows, int m, std::uint64_t seed,
              int stride) {
        n = n_rows;
        inputs.resize(static_cast<std::size_t>(n) * stride);
        active.resize(static_cast<std::size_t>(n) * stride);
        n_active.resize(n);
        raw.resize(static_cast<std::size_t>(n) * m);
        targets.resize(n);
        weights.resize(n);
        steps.resize(n);
        choose_order(f, X, m, seed);
        for (int i = 0; i < n; i++) {
            const int from = order_[i].row;
            std::copy_n(X + static_cast<long>(from) * m, m, raw.data() + static_cast<long>(i) * m);
            targets[i] = y[from];
            weights[i] = w ? w[from] : 1.0;
            steps[i] = std::min(weights[i], 1.0);
        }
    }
    // Computes the inputs of the simple models from the raw values, and if it is wanted, which of them are not 0.
    void scale(const Functions& f, const Table& table, int stride, bool lists_active) {
        table.fill_inputs(f, raw.data(), n, stride, inputs.data());
        for (int i = 0; i < n && lists_active; i++) {
            const double* z = inputs.data() + static_cast<long>(i) * stride;
            n_active[i] = list_active(z, table.n_columns(), active.data() + static_cast<long>(i) * stride);
        }
    }

private:
    struct Place {
        std::uint64_t key;
        std::int32_t row;
    };
    // By key, equal ones in their order. Keys are as good as random: their leading bits put nearly all in place.
    void choose_order(const Functions& f, const double* X, int m, std::uint64_t seed) {
        order_.resize(n);
        order_[0] = {0, 0};
        if (n == 1) return;
        keys_.resize(n);
        f.row_keys(X, n, m, seed * 0x9E3779B97F4A7C15ull, keys_.data());
        const int n_bits = std::min(static_cast<int>(std::bit_width(static_cast<unsigned>(n))), 16);
        const int shift = 64 - n_bits;
        begin_.assign((std::size_t{1} << n_bits) + 1, 0);
        for (const std::uint64_t key : keys_) begin_[(key >> shift) + 1]++;
        for (std::size_t b = 1; b < begin_.size(); b++) begin_[b] += begin_[b - 1];
        for (int i = 0; i < n; i++) order_[begin_[keys_[i] >> shift]++] = {keys_[i], i};
        const auto precedes = [](const Place& a, const Place& b) { return a.key < b.key; };
        for (int first = 0, last; first < n; first = last) {
            for (last = first + 1; last < n && order_[last].key >> shift == order_[first].key >> shift; last++)
                for (int i = last; i > first && last - first < 16 && precedes(order_[i], order_[i - 1]); i--)
                    std::swap(order_[i], order_[i - 1]);
            if (last - first > 16) std::stable_sort(order_.begin() + first, order_.begin() + last, precedes);
        }
    }
    std::vector<Place> order_;
    std::vector<std::uint64_t> keys_;
    std::vector<std::int32_t> begin_;
};

}  // namespace driftree
