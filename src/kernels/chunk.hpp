// Chunk: the rows of one step, read and scaled once.
//
// The rows of a step are a set: they are visited in an order that depends on their values and the seed, not on their order
// of arrival (except among rows with equal values, and sparse rows with new names, whose ids depend on it).
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
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

// Lists which of n inputs are not 0; returns their number.
inline int list_active(const double* inputs, int n, std::int32_t* list) {
    int count = 0;
    for (int c = 0; c < n; c++) {
        list[count] = c;
        count += inputs[c] != 0.0;
    }
    return count;
}

struct Features {  // those from `begin` up to, not including, `end`
    int begin, end;
};

// Rows as passed in: the first `width` values of each, their sparse features, targets and weights. A row of the user may be
// several copies here: of them the first has its whole weight, the others 0.
struct Given {
    const double* X;
    int width;
    SparseRows sparse;
    const double *targets, *weights, *wholes = nullptr;  // weights = nullptr: all 1; wholes = nullptr: the weights
    double weight(int i) const { return weights ? weights[i] : 1.0; }
    double whole(int i) const { return wholes ? wholes[i] : weight(i); }
};

// The rows of one step: raw values, inputs of the simple models, targets, weights.
class Chunk {
public:
    int n = 0;
    Lines<double> raw, inputs, targets, weights, steps;
    std::vector<std::int32_t> active, n_active;
    SparseInputs sparse;     // features without a column
    Lines<double> sketched;  // inputs followed by the sketch of sparse ones; empty if there are none
    Lines<double> filled;    // of buffered rows: raw values, with missing ones replaced by what they counted as

    Rows rows() const {
        return {inputs.data(), active.data(), n_active.data(), targets.data(), weights.data(), steps.data()};
    }
    // The same for grids, with a sketch of the sparse inputs.
    Rows grid_rows() const {
        Rows all = rows();
        if (has_sparse()) all.inputs = sketched.data();
        return all;
    }
    int given_row(int i) const { return order_[i].row; }  // unless it was buffered
    const double* raw_row(int i, int n_features) const { return raw.data() + static_cast<long>(i) * n_features; }

    template <class Archive>
    void visit_scratch(Archive& a) {
        a("raw", raw), a("inputs", inputs), a("weights", weights), a("steps", steps), a("targets", targets);
        a("active", active), a("n_active", n_active), a("order", order_), a("keys", keys_), a("begin", begin_);
        sparse.visit_scratch(a);
        a("sketched", sketched), a("filled", filled);
    }
    // Copies the rows in the order of the step, and makes room for their inputs. Each row has its first `width` values: all
    // except sparse features.
    void fill(const Functions& f, const Table& table, const Given& given, int n_rows, std::uint64_t seed, int stride) {
        const int m = table.n_features();
        n = n_rows;
        inputs.resize(static_cast<std::size_t>(n) * stride);
        active.resize(static_cast<std::size_t>(n) * stride);
        n_active.resize(n);
        raw.resize(static_cast<std::size_t>(n) * m);
        targets.resize(n);
        weights.resize(n);
        steps.resize(n);
        choose_order(f, given.X, given.width, given.sparse, seed);
        const bool is_dense = !table.has_sparse();
        if (!is_dense) fill_sparse(table, given, stride);
        for (int i = 0; i < n; i++) {
            const int from = order_[i].row;
            if (is_dense) std::copy_n(given.X + static_cast<long>(from) * m, m, raw.data() + static_cast<long>(i) * m);
            targets[i] = given.targets[from];
            weights[i] = given.weight(from);
            steps[i] = std::min(weights[i], 1.0);
        }
    }
    // Computes the inputs of the simple models from the raw values of some rows and, if wanted, lists those that are not 0.
    void scale(const Functions& f, const Table& table, int stride, bool lists_active, int begin, int end) {
        const auto of = [stride](auto& values, int row) { return values.data() + static_cast<long>(row) * stride; };
        table.fill_inputs(f, raw_row(begin, table.n_features()), end - begin, stride, of(inputs, begin));
        for (int i = begin; i < end && lists_active; i++)
            n_active[i] = list_active(of(inputs, i), table.n_columns(), of(active, i));
    }
    // Computes the inputs of sparse features once all rows are read, and their sketch if any grid counts the rows.
    void scale_sparse(const Table& table, int stride, bool has_grids) {
        if (!has_sparse()) return;
        sparse.scale(table.sparse);
        if (has_grids) sketch(stride);
    }
    bool has_sparse() const { return !sketched.empty(); }

    // ---- buffered rows
    void make_room(int most, int m, int stride) {
        for (auto* values : {&raw, &filled}) values->resize(static_cast<std::size_t>(most) * m);
        inputs.resize(static_cast<std::size_t>(most) * stride);
        active.resize(static_cast<std::size_t>(most) * stride);
        n_active.resize(most);
        for (auto* values : {&targets, &weights, &steps}) values->resize(most);
    }
    // Copies the only row of another chunk to row i: first what is known before scaling, then the rest.
    void take_raw(int i, const Chunk& from, int m) {
        std::copy_n(from.raw.data(), m, raw.data() + static_cast<long>(i) * m);
        weights[i] = from.weights[0];
        steps[i] = from.steps[0];
    }
    void take_inputs(int i, const Chunk& from, const Table& table, int stride) {
        const int m = table.n_features();
        double* values = filled.data() + static_cast<long>(i) * m;
        for (int j = 0; j < m; j++) values[j] = std::isnan(from.raw[j]) ? table.scaler.shift[j] : from.raw[j];
        std::copy_n(from.inputs.data(), stride, inputs.data() + static_cast<long>(i) * stride);
        std::copy_n(from.active.data(), from.n_active[0], active.data() + static_cast<long>(i) * stride);
        n_active[i] = from.n_active[0];
        targets[i] = from.targets[0];
    }

    // Adds the rows to the statistics of sparse features; each feature has a place.
    void learn_sparse(SparseTable& table) const {
        for (int i = 0; i < n && !sparse.is_empty(); i++)
            for (int c = sparse.begin[i]; c < sparse.begin[i + 1]; c++)
                table.add(sparse.ids[c], sparse.values[c], weights[i]);
    }

private:
    // Copies prominent sparse features to the raw values, and those without a column to lists.
    void fill_sparse(const Table& table, const Given& given, int stride) {
        sketched.resize(static_cast<std::size_t>(n) * (stride + kSketch));
        sparse.begin.assign(1, 0);
        std::size_t n_held = 0;
        for (int i = 0; i < n; i++) {
            const SparseRows row = given.sparse.from(order_[i].row);
            table.fill_raw(given.X + static_cast<long>(order_[i].row) * given.width, given.width, row,
                           raw.data() + static_cast<long>(i) * table.n_features());
            const std::int64_t begin = row.begin ? row.begin[0] : 0, end = row.begin ? row.begin[1] : 0;
            sparse.ids.resize(n_held + (end - begin));
            sparse.values.resize(n_held + (end - begin));
            std::int32_t* const ids = sparse.ids.data();
            double* const values = sparse.values.data();
            for (std::int64_t c = begin; c < end; c++) {
                if (!table.is_sparse(row.ids[c])) continue;
                ids[n_held] = row.ids[c];
                values[n_held++] = row.values[c];
            }
            sparse.begin.push_back(static_cast<std::int32_t>(n_held));
        }
        sparse.ids.resize(n_held);
        sparse.values.resize(n_held);
        sparse.z.resize(sparse.ids.size());
        sparse.find_even(n);
        if (!sparse.is_even) sparse.number_ids(table.sparse.n());
    }
    void sketch(int stride) {
        const int wide = stride + kSketch;
        for (int i = 0; i < n; i++) {
            double* to = sketched.data() + static_cast<long>(i) * wide;
            std::copy_n(inputs.data() + static_cast<long>(i) * stride, stride, to);
            std::fill_n(to + stride, kSketch, 0.0);
            for (int c = sparse.begin[i]; c < sparse.begin[i + 1]; c++) {
                const std::uint64_t hash = mix64(static_cast<std::uint64_t>(sparse.ids[c]));
                to[stride + static_cast<int>(hash % kSketch)] += hash >> 63 ? sparse.z[c] : -sparse.z[c];
            }
        }
    }
    struct Place {
        std::uint64_t key;
        std::int32_t row;
    };
    // Sorts rows by key, stably. Keys are as good as random: their leading bits sort nearly all of them.
    void choose_order(const Functions& f, const double* X, int m, const SparseRows& held, std::uint64_t seed) {
        order_.resize(n);
        order_[0] = {0, 0};
        if (n == 1) return;
        keys_.resize(n);
        f.row_keys(X, n, m, seed * 0x9E3779B97F4A7C15ull, keys_.data());
        if (held.begin) add_sparse_keys(held, seed);
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
    void add_sparse_keys(const SparseRows& held, std::uint64_t seed) {
        for (int i = 0; i < n; i++)
            for (std::int64_t c = held.begin[i]; c < held.begin[i + 1]; c++)
                keys_[i] += mix64(std::bit_cast<std::uint64_t>(held.values[c]) + mix64(seed + held.ids[c]));
    }
    std::vector<Place> order_;
    std::vector<std::uint64_t> keys_;
    std::vector<std::int32_t> begin_;
};

}  // namespace driftree
