// Grid: per node, counts and gradients of the rows by (feature, slot), which propose split candidates.
//
// A numeric feature has edges; slot s has the values above edge s - 1 and up to edge s. A categorical feature has one slot
// per level. The last slot of every feature is for missing values. A slot with most rows of a feature (the zeros of a sparse
// column) is implied: it is the total minus the other slots, and costs nothing per row.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "chunk.hpp"
#include "nodes.hpp"
#include "table.hpp"

namespace driftree {

struct Proposal {
    Condition condition;
    double score = -1.0;
    double n_left = 0.0, n_right = 0.0;
    int slot = -1;
};

struct BendProposal {
    double score;
    std::int32_t feature;
    double knot;
};

// Scores are compared in single precision, so that rounding cannot decide a tie.
inline double rounded(double value) { return static_cast<double>(static_cast<float>(value)); }

// The contribution of a step's rows to a grid: their gradients and slots, or the rows themselves until edges are chosen.
// Additive over rows: the rows of the second follow those of the first.
struct GridRows {
    int n = 0;
    std::vector<float> gradients;     // [n, outputs, stride]
    std::vector<double> weights;      // [n]
    std::vector<std::int32_t> slots;  // [features, n]
    std::vector<double> first_rows;   // [n, features]: raw values

    void reserve(int n_rows, int size, int n_features, bool is_ready) {
        gradients.reserve(is_ready ? static_cast<std::size_t>(n_rows) * size : 0);
        weights.reserve(is_ready ? n_rows : 0);
        slots.reserve(is_ready ? static_cast<std::size_t>(n_rows) * n_features : 0);
        first_rows.reserve(is_ready ? 0 : static_cast<std::size_t>(n_rows) * n_features);
    }
    void resize(int n_rows, int size, int n_features, bool is_ready) {
        const std::size_t n_gradients = static_cast<std::size_t>(n_rows) * size,
                          n_slots = static_cast<std::size_t>(n_rows) * n_features;
        if (is_ready && n == n_rows && gradients.size() == n_gradients && slots.size() == n_slots) return;  // the usual case
        n = n_rows;
        gradients.resize(is_ready ? n_gradients : 0);
        weights.resize(is_ready ? n_rows : 0);
        slots.resize(is_ready ? n_slots : 0);
        first_rows.resize(is_ready ? 0 : n_slots);
    }
    GridRows& operator+=(const GridRows& other) {
        const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
        std::vector<std::int32_t> both;
        both.reserve(slots.size() + other.slots.size());
        if (n == 0) return *this = other;
        const std::size_t m = slots.size() / n;
        for (std::size_t j = 0; j < m; j++) {
            both.insert(both.end(), slots.begin() + j * n, slots.begin() + (j + 1) * n);
            both.insert(both.end(), other.slots.begin() + j * other.n, other.slots.begin() + (j + 1) * other.n);
        }
        slots.swap(both);
        append(gradients, other.gradients);
        append(weights, other.weights);
        append(first_rows, other.first_rows);
        n += other.n;
        return *this;
    }
    template <class Archive>
    void visit(Archive& a) {
        a("grid_n", n), a("grid_gradients", gradients), a("grid_weights", weights), a("grid_slots", slots);
        a("grid_first_rows", first_rows);
    }
};

struct Grid {
    std::vector<double> first_rows;  // raw rows, until the edges are chosen
    int n_first_rows = 0;
    std::vector<std::int32_t> first_slot;  // [n_features + 1]; empty until the edges are chosen
    std::vector<double> edges;             // one per slot; the last two slots of a feature (top, missing) have none
    std::vector<double> counts;            // per slot; true value = scale * stored
    std::vector<float> gradients;          // [slot, outputs, stride]; zero in an implied slot
    std::vector<double> total;             // [outputs, stride]: sum of the gradients of all rows
    std::vector<std::int32_t> implied;     // per feature: its implied slot, or -1
    std::vector<double> barred_until;      // per slot: rows of the node until which it is barred
    double scale = 1.0;

    bool is_ready() const { return !first_slot.empty(); }
    int n_slots() const { return first_slot.empty() ? 0 : first_slot.back(); }

    // Makes room for n rows before they are counted.
    void make_room_for(int n, int n_features, int limit) {
        const int n_more = std::min(n, limit - n_first_rows);
        if (!is_ready() && n_more > 0)
            make_room(first_rows, static_cast<std::size_t>(n_more) * n_features,
                      static_cast<std::size_t>(limit) * n_features);
    }
    // The grid with slot_counts[j] slots for feature j; `all_edges` has the edges of numeric features, padded to one per
    // slot.
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
    // Implies the slots that have more than half of some rows.
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
    void forget_gradients() {
        std::fill(counts.begin(), counts.end(), 0.0);
        std::fill(gradients.begin(), gradients.end(), 0.0f);
        std::fill(total.begin(), total.end(), 0.0);
        scale = 1.0;
    }
    void scale_gradients(double factor) {
        for (float& g : gradients) g *= static_cast<float>(factor);
        for (double& g : total) g *= factor;
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
    // Slots of n values of feature j, counted from the feature's first slot.
    void slots_of(const Functions& f, const Schema& schema, int j, const double* values, int n, std::int32_t* slots) const {
        const int begin = first_slot[j], last = first_slot[j + 1] - 1;
        const int n_edges = last - 1 - begin;  // two more are NaN, which compares false: whole vectors are faster
        if (!schema.is_categorical[j] && n == 1 && n_edges <= kLanes) {
            int slot = 0;
            while (slot < n_edges && edges[begin + slot] < values[0]) slot++;
            slots[0] = slot;
        } else if (!schema.is_categorical[j])
            f.slots(edges.data() + begin, std::min(padded(n_edges), n_edges + 2), values, n, slots);
        for (int i = 0; i < n; i++) {
            if (std::isnan(values[i])) {
                slots[i] = last - begin;
            } else if (schema.is_categorical[j]) {
                slots[i] = static_cast<std::int32_t>(values[i]);
            }
        }
    }
    // Computes the gradients and slots of the visited rows for some features. There is room in `sums` and `values`. Until
    // the edges are chosen, these must be all features.
    void accumulate(const Functions& f, const Shape& shape, const Table& table, const Chunk& chunk, const Visit& visit,
                    const double* residual, const Features& some, std::vector<double>& values, GridRows& sums) const {
        const int m = table.n_features();
        sums.resize(visit.n, shape.size(), some.end - some.begin, is_ready());
        if (visit.n == 0) return;
        if (!is_ready()) {
            for (int i = 0; i < visit.n; i++)
                std::copy_n(chunk.raw_row(visit.rows[i], m), m, sums.first_rows.data() + static_cast<long>(i) * m);
            return;
        }
        f.gradients_single(shape, chunk.grid_rows(), visit, residual, sums.gradients.data());
        for (int i = 0; i < visit.n; i++) sums.weights[i] = chunk.weights[visit.rows[i]];
        std::int32_t* slots = sums.slots.data();
        for (int j = some.begin; j < some.end; j++, slots += visit.n) {
            for (int i = 0; i < visit.n; i++) values[i] = chunk.raw_row(visit.rows[i], m)[j];
            slots_of(f, table.schema, j, values.data(), visit.n, slots);
        }
    }
    // Throws unless the sums fit this grid.
    void check(const GridRows& sums, const Shape& shape, int n_features) const {
        const std::size_t n = sums.n, n_slots_of_rows = is_ready() ? n * n_features : 0;
        bool is_sound = sums.n >= 0 && sums.gradients.size() == (is_ready() ? n * shape.size() : 0) &&
                        sums.weights.size() == (is_ready() ? n : 0) && sums.slots.size() == n_slots_of_rows &&
                        sums.first_rows.size() == (is_ready() ? 0 : n * n_features);
        for (std::size_t i = 0; is_sound && i < n_slots_of_rows; i++) {
            const std::size_t j = i / n;
            is_sound = sums.slots[i] >= 0 && sums.slots[i] < first_slot[j + 1] - first_slot[j];
        }
        if (!is_sound) throw std::invalid_argument("the sums do not fit the node's grid");
    }
    // Different features may be added in parallel; the one with the first feature adds the total gradient. make_room_for()
    // has made room for first rows.
    void absorb(const Functions& f, const Shape& shape, GridRows& sums, const Features& some, int limit) {
        if (!is_ready()) {
            const int n_more = std::min(sums.n, limit - n_first_rows);
            if (n_more <= 0) return;
            first_rows.insert(first_rows.end(), sums.first_rows.begin(),
                              sums.first_rows.begin() + static_cast<long>(n_more) * some.end);
            n_first_rows += n_more;
            return;
        }
        const int size = shape.size();
        const double inverse = 1.0 / scale;
        if (inverse != 1.0) {
            const float single = static_cast<float>(inverse);
            for (float& g : sums.gradients) g *= single;
        }
        const float* gradient = sums.gradients.data();
        for (int i = 0; i < sums.n && some.begin == 0; i++)
            f.add_mixed(total.data(), gradient + static_cast<long>(i) * size, size);
        const std::int32_t* slots = sums.slots.data();
        for (int j = some.begin; j < some.end; j++, slots += sums.n) {
            for (int i = 0; i < sums.n; i++) {
                const int slot = first_slot[j] + slots[i];
                counts[slot] += sums.weights[i] * inverse;
                if (slot == implied[j]) continue;
                f.add_single(gradients.data() + static_cast<long>(slot) * size, gradient + static_cast<long>(i) * size,
                             size);
            }
        }
    }

    // Gradient of the implied slot of feature j: the total minus the other slots. Zeros if there is none.
    std::vector<double> implied_gradient(const Functions& f, int size, int j) const {
        std::vector<double> rest(size, 0.0);
        if (implied[j] < 0) return rest;
        for (int slot = first_slot[j]; slot < first_slot[j + 1]; slot++)
            f.add_mixed(rest.data(), gradients.data() + static_cast<long>(slot) * size, size);
        for (int i = 0; i < size; i++) rest[i] = total[i] - rest[i];
        return rest;
    }
    // The best proposal of feature j, by |g_left|^2 / n_left + |g_right|^2 / n_right, with rows on both sides.
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
            const double least = 1e-9 * n;  // smaller counts have faded to rounding errors
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
    // Scores a bend at each edge of feature j, by a score test of the input that it would add, next to an intercept and the
    // feature's own input. From the sums by slot: with the hinge h = max(0, z - knot), the part that these two do not
    // explain has the variance V and the gradient U, and the score is U^2 / V over all outputs.
    void add_bends(const Functions& f, const Shape& shape, const Table& table, int j, std::vector<BendProposal>& out) const {
        const int begin = first_slot[j], top = first_slot[j + 1] - 2;  // the last slot of values
        const int outputs = shape.outputs, size = shape.size(), column = table.schema.value_column[j];
        const double shift = table.scaler.shift[j], factor = table.scaler.factor[j];
        if (top - begin < 2 || column < 0) return;
        const std::vector<double> rest = implied_gradient(f, size, j);
        const auto gradient = [&](int slot, int k, int c) {
            const int i = k * shape.stride + c;
            return static_cast<double>(gradients[static_cast<long>(slot) * size + i]) + (slot == implied[j] ? rest[i] : 0.0);
        };
        const double most = table.scaler.most;
        const auto z_of = [&](double value) { return std::clamp((value - shift) * factor, -most, most); };
        const auto middle = [&](int slot) {
            if (slot == begin) return z_of(edges[begin]);
            return slot == top ? z_of(edges[top - 1] + 0.5 * (edges[top - 1] - edges[top - 2]))
                               : z_of(0.5 * (edges[slot - 1] + edges[slot]));
        };
        double n = 0.0, s1 = 0.0, s2 = 0.0;
        std::vector<double> all_1(outputs, 0.0), all_z(outputs, 0.0), above_1(outputs, 0.0), above_z(outputs, 0.0);
        for (int slot = begin; slot <= top; slot++) {
            const double z = middle(slot);
            n += counts[slot], s1 += counts[slot] * z, s2 += counts[slot] * z * z;
            for (int k = 0; k < outputs; k++) all_1[k] += gradient(slot, k, 0), all_z[k] += gradient(slot, k, column);
        }
        const double spread = n * s2 - s1 * s1;
        if (!(spread > 1e-9 * n * n)) return;
        double n_above = 0.0, z_above = 0.0, zz_above = 0.0;
        for (int slot = top; slot > begin; slot--) {  // the knot is the edge below the slot
            const double z = middle(slot), knot = z_of(edges[slot - 1]);
            n_above += counts[slot], z_above += counts[slot] * z, zz_above += counts[slot] * z * z;
            for (int k = 0; k < outputs; k++) above_1[k] += gradient(slot, k, 0), above_z[k] += gradient(slot, k, column);
            const double h = z_above - knot * n_above, hh = zz_above - 2.0 * knot * z_above + knot * knot * n_above,
                         hz = zz_above - knot * z_above;
            const double slope = (n * hz - s1 * h) / spread, offset = (h - slope * s1) / n;
            const double variance = hh - offset * h - slope * hz;
            if (!(variance > 1e-4 * n)) continue;
            double score = 0.0;
            for (int k = 0; k < outputs; k++) {
                const double u = above_z[k] - knot * above_1[k] - offset * all_1[k] - slope * all_z[k];
                score += u * u;
            }
            out.push_back({rounded(scale * score / variance), j, edges[slot - 1]});
        }
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
