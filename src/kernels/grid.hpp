// Grid: per node, the counts and gradients of the rows by (feature, slot). It proposes split candidates.
//
// A numeric feature has edges; slot s holds the values above edge s - 1 and up to edge s. A categorical feature has one
// slot per level. The last slot of every feature holds the missing values. Where most rows share a slot of a feature (the
// zeros of a sparse column), that slot is implied: it is what the others leave of the total, and costs nothing per row.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "rows.hpp"
#include "simple_models.hpp"

namespace driftree {

struct Proposal {
    Condition condition;
    double score = -1.0;
    double n_left = 0.0, n_right = 0.0;
    int slot = -1;
};

// Scores compare in single precision, so that rounding cannot decide a tie.
inline double rounded(double value) {
    return static_cast<double>(static_cast<float>(value));
}

struct GridScratch {
    std::vector<float> gradient;
    std::vector<double> values;
    std::vector<std::int32_t> slots;
    void resize(int n, int size) {
        gradient.resize(static_cast<std::size_t>(n) * size);
        values.resize(n);
        slots.resize(n);
    }
};

struct Grid {
    std::vector<double> first_rows;     // raw rows, until the edges are chosen
    int n_first_rows = 0;
    std::vector<std::int32_t> first_slot;  // [n_features + 1]; empty: edges not chosen yet
    std::vector<double> edges;          // one per slot; the last two slots of a feature (top, missing) have none
    std::vector<double> counts;         // per slot; true value = scale * stored
    std::vector<float> gradients;       // [slot, outputs, stride]; zero in an implied slot
    std::vector<double> total;          // [outputs, stride]: gradient of all rows
    std::vector<std::int32_t> implied;  // per feature: its implied slot, or -1
    std::vector<double> barred_until;   // per slot: rows of the node
    double scale = 1.0;

    bool is_ready() const { return !first_slot.empty(); }
    int n_slots() const { return first_slot.empty() ? 0 : first_slot.back(); }

    void collect(const double* row, int n_features, int limit) {
        if (n_first_rows >= limit) return;  // there is room: make_room_for()
        first_rows.insert(first_rows.end(), row, row + n_features);
        n_first_rows++;
    }
    // Before rows come: whatever is kept of them has its place.
    void make_room_for(int n, int n_features, int limit) {
        const int n_more = std::min(n, limit - n_first_rows);
        if (!is_ready() && n_more > 0) make_room(first_rows, static_cast<std::size_t>(n_more) * n_features, static_cast<std::size_t>(limit) * n_features);
    }
    // The grid with slot_counts[j] slots for feature j; `all_edges` has the edges of the numeric features, padded to
    // slots.
    Grid chosen(const std::vector<std::int32_t>& slot_counts, std::vector<double> all_edges, const Functions& f,
                const Shape& shape, const Schema& schema) const {
        Grid grid;
        grid.first_slot.assign(1, 0);
        for (int slots : slot_counts) grid.first_slot.push_back(grid.first_slot.back() + slots);
        grid.edges = std::move(all_edges);
        grid.barred_until.assign(grid.n_slots(), 0.0);
        grid.clear_gradients(shape);
        grid.choose_implied(f, schema, first_rows, n_first_rows);
        return grid;
    }
    // Implies the slots that hold more than half of some rows.
    void choose_implied(const Functions& f, const Schema& schema, const std::vector<double>& rows_of, int n) {
        implied.assign(schema.n_features, -1);
        std::vector<double> values(n);
        std::vector<std::int32_t> slots(n);
        for (int j = 0; j < schema.n_features; j++) {
            for (int i = 0; i < n; i++) values[i] = rows_of[static_cast<std::size_t>(i) * schema.n_features + j];
            slots_of(f, schema, j, values.data(), n, slots.data());
            std::vector<int> rows(first_slot[j + 1] - first_slot[j], 0);
            for (const int slot : slots)
                if (2 * ++rows[slot] > n) implied[j] = first_slot[j] + slot;
        }
    }
    void clear_gradients(const Shape& shape) {
        std::vector<double> no_counts(n_slots(), 0.0), no_total(static_cast<std::size_t>(shape.outputs) * shape.stride, 0.0);
        std::vector<float> no_gradients(static_cast<std::size_t>(n_slots()) * shape.outputs * shape.stride, 0.0f);
        counts.swap(no_counts);
        gradients.swap(no_gradients);
        total.swap(no_total);
        scale = 1.0;
    }
    void restart() { *this = Grid(); }
    void fade(double factor) {
        scale *= factor;
        if (scale >= 1e-3) return;
        for (double& count : counts) count *= scale;
        const float single = static_cast<float>(scale);
        for (float& g : gradients) g *= single;
        for (double& g : total) g *= scale;
        scale = 1.0;
    }
    // Slots of the visited rows' values of feature j, from the feature's first slot on.
    void slots_of(const Functions& f, const Schema& schema, int j, const double* values, int n, std::int32_t* slots) const {
        const int begin = first_slot[j], last = first_slot[j + 1] - 1;
        const int n_edges = last - 1 - begin;  // and two that are no numbers, below no value: whole vectors are quicker
        if (!schema.is_categorical[j]) f.slots(edges.data() + begin, std::min(padded(n_edges), n_edges + 2), values, n, slots);
        for (int i = 0; i < n; i++) {
            if (std::isnan(values[i])) {
                slots[i] = last - begin;
            } else if (schema.is_categorical[j]) {
                slots[i] = static_cast<std::int32_t>(values[i]);
            }
        }
    }
    void add(const Functions& f, const Shape& shape, const Schema& schema, const Chunk& chunk, const Visit& visit,
             const double* residual, GridScratch& scratch) {
        const int size = shape.outputs * shape.stride;
        auto& [gradient, values, slots] = scratch;
        f.gradients_single(shape, chunk.rows(), visit, residual, gradient.data());
        const double inverse = 1.0 / scale;
        if (inverse != 1.0) {
            const float single = static_cast<float>(inverse);
            for (int i = 0; i < visit.n * size; i++) gradient[i] *= single;
        }
        for (int i = 0; i < visit.n; i++) f.add_mixed(total.data(), gradient.data() + static_cast<long>(i) * size, size);
        for (int j = 0; j < schema.n_features; j++) {
            for (int i = 0; i < visit.n; i++) values[i] = chunk.raw_row(visit.rows[i], schema.n_features)[j];
            slots_of(f, schema, j, values.data(), visit.n, slots.data());
            for (int i = 0; i < visit.n; i++) {
                const int slot = first_slot[j] + slots[i];
                counts[slot] += chunk.weights[visit.rows[i]] * inverse;
                if (slot == implied[j]) continue;
                f.add_single(gradients.data() + static_cast<long>(slot) * size,
                             gradient.data() + static_cast<long>(i) * size, size);
            }
        }
    }

    // Gradient of the implied slot of feature j: what the others leave of the total. Zeros if there is none.
    std::vector<double> implied_gradient(const Functions& f, int size, int j) const {
        std::vector<double> rest(size, 0.0);
        if (implied[j] < 0) return rest;
        for (int slot = first_slot[j]; slot < first_slot[j + 1]; slot++)
            f.add_mixed(rest.data(), gradients.data() + static_cast<long>(slot) * size, size);
        for (int i = 0; i < size; i++) rest[i] = total[i] - rest[i];
        return rest;
    }
    // The best proposal of feature j: |g_left|^2 / n_left + |g_right|^2 / n_right, both sides populated.
    Proposal best(const Functions& f, const Shape& shape, int j, bool categorical, double node_rows) const {
        const int size = shape.outputs * shape.stride, begin = first_slot[j], last = first_slot[j + 1] - 1;
        std::vector<double> left(size, 0.0), with_missing(size, 0.0);
        double n = 0.0, n_left = 0.0;
        for (int slot = begin; slot <= last; slot++) n += counts[slot];
        const std::vector<double> rest = implied_gradient(f, size, j), &all = total;
        const auto add_slot = [&](std::vector<double>& sum, int slot) {
            f.add_mixed(sum.data(), gradients.data() + static_cast<long>(slot) * size, size);
            if (slot == implied[j]) f.add(sum.data(), rest.data(), size);
        };
        const double n_missing = counts[last];
        Proposal best;
        auto consider = [&](const std::vector<double>& side, double count, int slot, const Condition& condition) {
            const double least = 1e-9 * n;  // what has faded further is mostly rounding
            if (count <= least || n - count <= least || barred_until[slot] > node_rows) return;
            double l, r;
            f.norms(side.data(), all.data(), size, &l, &r);
            const double score = rounded(scale * (l / count + r / (n - count)));
            if (score > best.score) best = {condition, score, count / n, 1.0 - count / n, slot};
        };
        if (n_missing > 0.0) {
            add_slot(with_missing, last);
            consider(with_missing, n_missing, last, {j, -std::numeric_limits<double>::infinity(), false, true});
        }
        for (int slot = begin; slot < last; slot++) {
            if (categorical) {
                if (slot - begin == kLevels - 1) break;  // "one of the other levels" is not a condition
                std::fill(left.begin(), left.end(), 0.0);
                add_slot(left, slot);
                consider(left, counts[slot], slot, {j, static_cast<double>(slot - begin), true, false});
                continue;
            }
            if (slot == last - 1) break;  // the top slot has no edge
            add_slot(left, slot);
            n_left += counts[slot];
            if (n_missing == 0.0) {
                consider(left, n_left, slot, {j, edges[slot], false, 2.0 * n_left > n * (1.0 + 1e-9)});
                continue;
            }
            consider(left, n_left, slot, {j, edges[slot], false, false});
            with_missing = left;
            add_slot(with_missing, last);
            consider(with_missing, n_left + n_missing, slot, {j, edges[slot], false, true});
        }
        return best;
    }
    template <class Archive>
    void visit(Archive& archive) {
        archive("first_rows", first_rows);
        archive("n_first_rows", n_first_rows);
        archive("first_slot", first_slot);
        archive("edges", edges);
        archive("counts", counts);
        archive("gradients", gradients);
        archive("total", total);
        archive("implied", implied);
        archive("barred_until", barred_until);
        archive("scale", scale);
    }
};

}  // namespace driftree
