// Borders: whether the threshold of a split should move.
//
// Rows near the threshold are also judged by the leaf that they would reach on the other side of it, before either learns
// them. If the rows between the threshold and another one would have lost enough less there, it moves, and both sides keep
// their models. Rows are summed in cells by their distance from the threshold: the nearer, the finer.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <vector>

#include "nodes.hpp"

namespace driftree {

// Sums over the rows in a band on both sides of a threshold; additive over rows.
struct BorderSums {
    static constexpr int kCells = 10;  // on either side; each but the first ends at twice the distance of the one before it
    static constexpr double kMostGain = 4.0;  // nats: no single row may move a threshold
    static constexpr double kNone = std::numeric_limits<double>::lowest();
    enum Number { kGain, kOther, kRows, kMost, kNumbers };  // kMost: the largest value
    std::vector<double> all;                                // [kNumbers, 2, kCells]: below, above; empty: no rows

    static constexpr std::size_t size() { return place(kNumbers, false, 0); }
    double& number(Number which, bool is_above, int cell) { return all[place(which, is_above, cell)]; }
    double number(Number which, bool is_above, int cell) const { return all[place(which, is_above, cell)]; }

    // Adds a row in the band: its value, its loss, and the loss that it would have had on the other side.
    void add(double value, double threshold, double width, double weight, double paid, double other) {
        if (all.empty()) {
            all.assign(size(), 0.0);
            std::fill(all.begin() + place(kMost, false, 0), all.end(), kNone);
        }
        const double distance = std::abs(value - threshold);
        const bool is_above = value > threshold;
        int cell = kCells - 1;
        double inner = 0.5 * width;
        while (cell > 0 && distance < inner) inner *= 0.5, cell--;
        number(kGain, is_above, cell) += weight * std::clamp(paid - other, -kMostGain, kMostGain);
        number(kOther, is_above, cell) += weight * other;
        number(kRows, is_above, cell) += weight;
        number(kMost, is_above, cell) = std::max(number(kMost, is_above, cell), value);
    }
    BorderSums& operator+=(const BorderSums& other) {
        if (other.all.empty()) return *this;
        if (all.empty()) return *this = other;
        if (all.size() != other.all.size()) throw std::invalid_argument("sums near a threshold have a wrong length");
        const std::size_t most = place(kMost, false, 0);
        for (std::size_t i = 0; i < most; i++) all[i] += other.all[i];
        for (std::size_t i = most; i < size(); i++) all[i] = std::max(all[i], other.all[i]);
        return *this;
    }
    void fade(double keep) {
        for (std::size_t i = 0; i < place(kMost, false, 0) && !all.empty(); i++) all[i] *= keep;
    }

private:
    static constexpr std::size_t place(int which, bool is_above, int cell) {
        const std::size_t side = is_above ? 1 : 0;
        return (2 * static_cast<std::size_t>(which) + side) * kCells + static_cast<std::size_t>(cell);
    }
};

// Another threshold: what the rows between would have lost on the other side, and how much less that is.
struct Shift {
    double threshold = 0.0, gain = 0.0, loss = 0.0, rows = 0.0;
};

// The values that a feature has had.
struct Range {
    double low, high;
};

// The border between the two sides of a split.
struct Border {
    static constexpr double kNear = 0.25;  // least distance of two thresholds, as a share of the band
    double width = 0.0;                    // of the band on either side, in the unit of the feature; 0: not begun
    double clock = 0.0;                    // of the sums
    BorderSums sums;
    double level = std::numeric_limits<double>::infinity();  // gain from which it is due; set by Python,
    double low = 0.0, high = 0.0;                            // with the nearest thresholds above or below the node

    bool is_due(double threshold, const Range& seen) const { return may_gain(level) && best(threshold, seen).gain >= level; }
    bool has_inside(double value, double threshold) const { return std::abs(value - threshold) < width; }
    void restart() {
        width = clock = 0.0;
        sums.all.clear();
    }
    void fade(double keep, double now) {
        sums.fade(keep);
        clock = now;
    }
    // The threshold that would have saved most: a value that occurred, like all thresholds, if any did beyond it. `seen` is
    // the range of the feature: with a threshold outside it, one side would have no rows.
    Shift best(double threshold, const Range& seen) const {
        Shift best;
        for (const bool is_above : {false, true}) {
            Shift found;
            double most = BorderSums::kNone, end = std::ldexp(width, 1 - BorderSums::kCells);
            for (int cell = 0; cell < BorderSums::kCells && !sums.all.empty(); cell++, end *= 2.0) {
                found.gain += sums.number(BorderSums::kGain, is_above, cell);
                found.loss += sums.number(BorderSums::kOther, is_above, cell);
                found.rows += sums.number(BorderSums::kRows, is_above, cell);
                most = std::max(most, sums.number(BorderSums::kMost, is_above, cell));
                found.threshold = is_above ? most : most_below(cell, threshold - end);
                const bool is_free = found.threshold > low + kNear * width && found.threshold < high - kNear * width;
                const bool divides = found.threshold >= seen.low && found.threshold < seen.high;
                if (found.gain > best.gain && is_free && divides && found.threshold != threshold) best = found;
            }
        }
        return best;
    }

private:
    // Whether the rows up to any cell gain that much; mostly they do not, and nothing else need be computed.
    bool may_gain(double least) const {
        if (sums.all.empty()) return false;
        double gain[2] = {}, most = 0.0;
        for (int cell = 0; cell < BorderSums::kCells; cell++)
            for (const bool is_above : {false, true})
                most = std::max(most, gain[is_above] += sums.number(BorderSums::kGain, is_above, cell));
        return most >= least;
    }
    // The largest value in the cells behind this one: the rows in it and before it go right.
    double most_below(int cell, double end) const {
        while (++cell < BorderSums::kCells)
            if (const double most = sums.number(BorderSums::kMost, false, cell); most != BorderSums::kNone) return most;
        return end;
    }
};

}  // namespace driftree
