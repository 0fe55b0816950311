// Sparse features: those that are absent from most rows, such as words of a text. A row lists those that it holds, and costs
// only that much. Each has one input, and weights only in models that have learnt rows with it. One that matters
// becomes prominent: it may be split upon, and has a column if most rows hold it.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "memory.hpp"
#include "simple_models.hpp"

namespace driftree {

constexpr int kSketch = 64;  // length of the sketch (hashed sparse inputs) in a grid

// Sparse features of rows: those of row i are at begin[i] to begin[i + 1].
struct SparseRows {
    const std::int64_t* begin = nullptr;  // nullptr: nothing
    const std::int32_t* ids = nullptr;
    const double* values = nullptr;
    SparseRows from(std::size_t row) const { return begin ? SparseRows{begin + row, ids, values} : *this; }
};

// ---------------------------------------------------------------- statistics of each
// An id is a place; freed ids are reused. An absent feature is 0, and 0 is not scaled; but if the feature is centred, absent
// means missing, and counts as the mean.
struct SparseTable {
    std::vector<float> weight, mean, squares;  // weight and moments of the values (Welford)
    std::vector<float> energy;                 // energy of the gradients: squared residual times squared input
    std::vector<std::int32_t> feature;         // the ordinary feature that it has become, or -1
    std::vector<std::uint8_t> is_centred;
    double energy_of_all = 0.0;   // the same for an input that is always 1
    std::int64_t n_given_up = 0;  // features forgotten so far

    int n() const { return static_cast<int>(weight.size()); }
    void reserve(int n_all) {  // so that grow() cannot fail
        for (auto* values : {&weight, &mean, &squares, &energy}) make_capacity(*values, n_all);
        make_capacity(feature, n_all);
        make_capacity(is_centred, n_all);
    }
    void grow(int n_all) {
        if (n_all <= n()) return;
        for (auto* values : {&weight, &mean, &squares, &energy}) values->resize(n_all, 0.0f);
        feature.resize(n_all, -1);
        is_centred.resize(n_all, 0);
    }
    void give_up(int id) {
        weight[id] = mean[id] = squares[id] = energy[id] = 0.0f;
        is_centred[id] = 0;
        n_given_up++;
    }
    // Lets the statistics count for less than new rows.
    void fade(double keep) {
        for (auto* values : {&weight, &squares})
            for (float& value : *values) value *= static_cast<float>(keep);
    }
    void fade_energy(double keep) {
        for (float& value : energy) value *= static_cast<float>(keep);
        energy_of_all *= keep;
    }
    void add(int id, double value, double w) {
        const double known = std::clamp(value, -kMost, kMost);  // beyond, inputs are at the limits anyway
        if (known == mean[id]) {                                // the usual case: nothing else changes
            weight[id] = static_cast<float>(weight[id] + w);
            return;
        }
        const double both = weight[id] + w, delta = known - mean[id], now = mean[id] + delta * (w / both);
        mean[id] = static_cast<float>(now);
        squares[id] = static_cast<float>(std::min(squares[id] + w * delta * (known - now), kMost * kMost));
        weight[id] = static_cast<float>(both);
    }
    // Scales by the root of the mean square or, if centred, by mean and deviation, like the features with columns.
    struct Scale {
        double shift, factor;
        double input(double value) const {
            const double z = (value - shift) * factor;
            return z > 1.5 ? 1.5 : (z < -1.5 ? -1.5 : z);
        }
    };
    Scale scale(int id) const {
        if (!(weight[id] > 0.0)) return {0.0, 0.0};
        const double own = mean[id], spread = static_cast<double>(squares[id]) / weight[id];
        if (is_centred[id]) return {own, spread > 0.0 ? 0.5 / std::sqrt(spread) : 0.0};
        const double size = std::sqrt(spread + own * own);
        return {0.0, size > 0.0 ? 1.0 / size : 0.0};
    }
    double input(int id, double value) const { return is_indicator(id) && value == 1.0 ? 1.0 : scale(id).input(value); }
    bool is_indicator(int id) const { return mean[id] == 1.0f && squares[id] == 0.0f; }
    // With many features, each is elsewhere in memory: they are prefetched while others are read.
    void fetch(int id) const {
        for (const auto* values : {&weight, &mean, &squares, &energy}) __builtin_prefetch(values->data() + id);
        __builtin_prefetch(feature.data() + id);
    }

    template <class Archive>
    void visit(Archive& a) {
        a("sparse_weight", weight), a("sparse_mean", mean), a("sparse_squares", squares), a("sparse_energy", energy);
        a("sparse_feature", feature), a("sparse_is_centred", is_centred), a("sparse_energy_of_all", energy_of_all);
        a("sparse_n_given_up", n_given_up);
    }

private:
    static constexpr double kMost = 1e18;  // squares of larger values overflow a float
};

// ---------------------------------------------------------------- a model's weights
// Per input: its variance, common to all outputs; per output: the weights of the two learners and the sum of squares.
struct SparseCell {
    static constexpr int kVariance = 0, kAdagrad = 1, kSquares = 2, kNewton = 3;
    static constexpr int width(int outputs) { return 1 + 3 * outputs; }
    static constexpr int kOneOutput = 4;  // width(1)
};

// Cells in order of insertion, and a hash table of the ids with open addressing.
class SparseWeights {
public:
    std::vector<std::int32_t> ids;
    std::vector<float> numbers;  // [ids, width]
    double scale = 1.0;          // common factor of all weights
    double loosening = 1.0;      // factor of variances taken from another model, which has so many times the rows

    int n() const { return static_cast<int>(ids.size()); }
    int find(int id) const {
        if (index_.empty()) return -1;
        for (std::size_t at = first(id);; at = (at + 1) & (index_.size() - 1)) {
            const std::int32_t place = index_[at];
            if (place < 0 || ids[place] == id) return place;
        }
    }
    // Finds many ids at once, and prefetches their numbers.
    void find(const std::vector<std::int32_t>& all, int width, std::int32_t* places) const {
        const std::size_t n = all.size();
        if (index_.empty()) return void(std::fill_n(places, n, -1));
        const std::int32_t *const index = index_.data(), *const own = ids.data(), *const wanted = all.data();
        const float* const from = numbers.data();
        const std::size_t mask = index_.size() - 1;
        for (std::size_t i = 0; i < n; i++) {  // independent of each other, so that memory accesses overlap
            std::size_t at = mixed(wanted[i]) & mask;
            while (index[at] >= 0 && own[index[at]] != wanted[i]) at = (at + 1) & mask;
            places[i] = index[at];
            if (index[at] >= 0) __builtin_prefetch(from + static_cast<long>(index[at]) * width);
        }
    }
    void reserve(int n_more, int width) {  // so that insert() cannot fail
        const std::size_t n_all = ids.size() + n_more;
        make_capacity(ids, n_all);
        make_capacity(numbers, n_all * width);
        if (2 * n_all > index_.size()) make_index(std::bit_ceil(std::max<std::size_t>(2 * n_all, 16)));
    }
    int insert(int id, int width) {
        const int place = n();
        ids.push_back(id);
        numbers.resize(numbers.size() + width, 0.0f);
        index_[free(id)] = place;
        return place;
    }
    // Removes those for which goes(id) is true; the others keep their order.
    template <class Goes>
    void erase(int width, Goes&& goes) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < ids.size(); i++) {
            if (goes(ids[i])) continue;
            ids[kept] = ids[i];
            std::copy_n(numbers.begin() + i * width, width, numbers.begin() + kept * width);
            kept++;
        }
        ids.resize(kept);
        numbers.resize(kept * width);
        index();
    }
    // Adds what only the other has. There must be room for all of it.
    void complete(const SparseWeights& other, int width, double variance) {
        for (int i = 0; i < other.n(); i++) {
            if (find(other.ids[i]) >= 0) continue;
            const int place = insert(other.ids[i], width);
            for (int c = 0; c < width; c++) set_number(place, c, width, taken(other, i, c, width, variance));
        }
    }
    // A number of the other model as this model adopts it.
    double taken(const SparseWeights& other, int place, int c, int width, double variance) const {
        const double number = other.true_number(place, c, width);
        return c == SparseCell::kVariance ? std::min(number * loosening, variance) : number;
    }
    // The number with the common factor applied.
    double true_number(int place, int c, int width) const { return numbers[static_cast<long>(place) * width + c] * unit(c); }
    void set_number(int place, int c, int width, double value) {
        numbers[static_cast<long>(place) * width + c] = static_cast<float>(value / unit(c));
    }
    // Copy all numbers of an input out and in; outside they are `step` apart.
    void read(int place, int width, double* out, int step) const {
        const float* from = numbers.data() + static_cast<long>(place) * width;
        for (int c = 0; c < width; c++) out[static_cast<long>(c) * step] = from[c];
        for (int c = 1; scale != 1.0 && c < width; c++) out[static_cast<long>(c) * step] *= unit(c);
    }
    void write(int place, int width, const double* from, int step) {
        float* to = numbers.data() + static_cast<long>(place) * width;
        for (int c = 0; c < width; c++) to[c] = static_cast<float>(from[static_cast<long>(c) * step]);
        for (int c = 1; scale != 1.0 && c < width; c++) set_number(place, c, width, from[static_cast<long>(c) * step]);
    }
    // The same for one output and a scale of 1, the usual case.
    bool is_plain(int width) const { return width == SparseCell::kOneOutput && scale == 1.0; }
    void read_plain(int place, double* out, long step) const {
        const float* from = numbers.data() + static_cast<long>(place) * SparseCell::kOneOutput;
        out[0] = from[0], out[step] = from[1], out[2 * step] = from[2], out[3 * step] = from[3];
    }
    void write_plain(int place, const double* from, long step) {
        float* to = numbers.data() + static_cast<long>(place) * SparseCell::kOneOutput;
        const auto number = [from, step](int c) { return static_cast<float>(from[c * step]); };
        to[0] = number(0), to[1] = number(1), to[2] = number(2), to[3] = number(3);
    }
    // Converts to more outputs: log-odds w become the logits -w/2, w/2.
    void widen(int outputs, int to_outputs) {
        const int old = SparseCell::width(outputs), width = SparseCell::width(to_outputs);
        std::vector<float> wide(ids.size() * width, 0.0f);
        for (std::size_t i = 0; i < ids.size(); i++) {
            const float* from = numbers.data() + i * old;
            float* to = wide.data() + i * width;
            const int first = outputs == 1 && to_outputs > 1 ? 1 : 0;
            to[0] = from[0];
            std::copy_n(from + 1, 3 * outputs, to + 1 + 3 * first);
            if (first == 0) continue;
            to[SparseCell::kSquares] = from[SparseCell::kSquares];
            for (const int c : {SparseCell::kAdagrad, SparseCell::kNewton}) {
                to[c] = -0.5f * from[c];
                to[3 + c] = 0.5f * from[c];
            }
        }
        numbers.swap(wide);
    }
    // Converts to a target in other units: new = factor old.
    void convert(int width, double factor) {
        for (std::size_t i = 0; i < numbers.size(); i++) {
            const int c = static_cast<int>(i % width);
            const bool is_square = c > 0 && (c - 1) % 3 + 1 == SparseCell::kSquares;
            const double by = c == SparseCell::kVariance ? factor * factor : is_square ? 1.0 / (factor * factor) : factor;
            numbers[i] = static_cast<float>(numbers[i] * by);
        }
    }
    void clear() {
        ids.clear();
        numbers.clear();
        scale = loosening = 1.0;
        std::fill(index_.begin(), index_.end(), -1);
    }
    // Builds the hash table after loading.
    void derive() { make_index(ids.empty() ? 0 : std::bit_ceil(std::max<std::size_t>(2 * ids.size(), 16))); }

    template <class Archive>
    void visit(Archive& a) {
        a("sparse_ids", ids), a("sparse_numbers", numbers), a("sparse_scale", scale);
        a("sparse_loosening", loosening);
        if constexpr (Archive::kMeasures) a("sparse_index", index_);
    }

private:
    double unit(int c) const {
        if (c == SparseCell::kVariance) return 1.0;
        return (c - 1) % 3 + 1 == SparseCell::kSquares ? scale * scale : scale;
    }
    static std::size_t mixed(int id) {
        return static_cast<std::uint64_t>(static_cast<std::uint32_t>(id)) * 0x9E3779B97F4A7C15ull >> 32;
    }
    std::size_t first(int id) const { return mixed(id) & (index_.size() - 1); }
    std::size_t free(int id) const {
        std::size_t at = first(id);
        while (index_[at] >= 0) at = (at + 1) & (index_.size() - 1);
        return at;
    }
    void make_index(std::size_t size) {
        std::vector<std::int32_t> fresh(size, -1);
        index_.swap(fresh);
        index();
    }
    void index() {
        std::fill(index_.begin(), index_.end(), -1);
        for (int i = 0; i < n() && !index_.empty(); i++) index_[free(ids[i])] = i;
    }
    std::vector<std::int32_t> index_;  // place of an id, or -1; the size is a power of two, at most half used
};

// ---------------------------------------------------------------- rows
// Some rows as they are read.
struct SparseBatch {
    std::vector<std::int64_t> begin = {0};
    std::vector<std::int32_t> ids;
    std::vector<double> values;

    void clear() {
        begin.assign(1, 0);
        ids.clear();
        values.clear();
    }
    void end_row() { begin.push_back(static_cast<std::int64_t>(ids.size())); }
    SparseRows rows() const { return {begin.data(), ids.data(), values.data()}; }
    SparseRows held() const { return ids.empty() ? SparseRows{} : rows(); }
};

// The features without a column in the rows of a chunk, as inputs.
struct SparseInputs {
    std::vector<std::int32_t> begin;         // [rows + 1]; empty if there are none at all
    std::vector<std::int32_t> ids, numbers;  // numbers: the ids that occur, numbered from 0
    std::vector<double> values, z;
    int n_ids = 0;  // number of different ids
    // All rows have the same features in the same order, as a single row or a wide table does: then inputs are also vectors.
    bool is_even = false;
    int line = 0;           // length of such a vector, padded
    Lines<double> vectors;  // [rows, line]

    // Finds out whether they do, and makes room.
    void find_even(int n_rows) {
        const auto n = static_cast<std::size_t>(begin[1]);
        is_even = n > 0 && ids.size() == n * n_rows;
        for (std::size_t i = n; is_even && i < ids.size(); i += n)
            is_even =
                begin[i / n] == static_cast<std::int32_t>(i) && std::equal(ids.begin(), ids.begin() + n, ids.begin() + i);
        line = is_even ? padded(static_cast<int>(n)) : 0;
        if (is_even) vectors.resize(static_cast<std::size_t>(n_rows) * line);
    }
    // Computes the inputs from the values.
    void scale(const SparseTable& table) {
        if (!is_even) {
            for (std::size_t c = 0; c < ids.size(); c++) z[c] = table.input(ids[c], values[c]);
            return;
        }
        const int n = begin[1];
        const std::size_t n_rows = begin.size() - 1;
        for (int c = 0; c < n; c++) {
            const bool is_indicator = table.is_indicator(ids[c]);
            const bool is_plain = is_indicator && !table.is_centred[ids[c]];  // the usual case: no root is needed
            const SparseTable::Scale own = is_plain ? SparseTable::Scale{0.0, 1.0} : table.scale(ids[c]);
            for (std::size_t i = 0; i < n_rows; i++) {
                const double value = values[i * n + c];
                z[i * n + c] = vectors[i * line + c] = is_indicator && value == 1.0 ? 1.0 : own.input(value);
            }
        }
        for (std::size_t i = 0; i < n_rows; i++) std::fill_n(vectors.data() + i * line + n, line - n, 0.0);
    }
    // Numbers the ids that occur; there are `n` ids in total.
    void number_ids(int n) {
        number_of_.resize(n, -1);
        numbers.resize(ids.size());
        n_ids = 0;
        for (std::size_t c = 0; c < ids.size(); c++) {
            std::int32_t& number = number_of_[ids[c]];
            if (number < 0) number = n_ids++;
            numbers[c] = number;
        }
        for (const int id : ids) number_of_[id] = -1;
    }
    bool is_empty() const { return ids.empty(); }
    template <class Archive>
    void visit_scratch(Archive& a) {
        a("sparse_begin", begin), a("sparse_ids", ids), a("sparse_values", values), a("sparse_z", z);
        a("sparse_numbers", numbers), a("sparse_number_of", number_of_), a("sparse_vectors", vectors);
    }

private:
    std::vector<std::int32_t> number_of_;  // by id; -1 between steps
};

}  // namespace driftree
