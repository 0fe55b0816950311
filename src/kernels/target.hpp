// Target: scale and recent level of a numeric target.
//
// Simple models learn (y - shift) / scale, so that nothing depends on the unit of y. Both are fixed after enough rows and
// change only when y itself has changed much; what was learnt is converted then. The level is an input of the models: the
// last y, and its mean over a few and over more rows.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace driftree {

constexpr double kLargestNumber = 1e100;  // largest that can be learnt: squares of larger ones overflow
constexpr int kLevelInputs = 3;
constexpr double kLevelRates[kLevelInputs] = {1.0, 1.0 / 3.0, 1.0 / 20.0};
constexpr double kLevelLimit = 1e3;  // of such an input, which is half a scaled number: a level may drift anywhere

// Shares of rows that the intervals should contain, and normal quantiles, at which the reaches start.
constexpr int kReaches = 8;
constexpr double kReachLevels[kReaches] = {0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99};
constexpr double kFirstReaches[kReaches] = {0.67449, 0.84162, 1.03643, 1.28155, 1.64485, 1.95996, 2.32635, 2.57583};

// Adaptive conformal steps of a tenth on the logarithm of each level's reach: a row outside makes it longer, a row inside a
// little shorter, so that in the long run the interval contains the level's share of rows, whatever the models predict. A row
// whose weight is not the mean makes a longer or shorter step.
inline void learn_reach(std::vector<double>& reach, double error, double step = 1.0) {
    // exp(0.1 level), exp(-0.1 (1 - level))
    static constexpr double kLonger[kReaches] = {1.051271, 1.061837, 1.072508, 1.083287,
                                                 1.094174, 1.099659, 1.102963, 1.104066};
    static constexpr double kShorter[kReaches] = {0.951229, 0.960789, 0.970446, 0.980199,
                                                  0.990050, 0.995012, 0.998002, 0.999000};
    double* own = reach.data();
    if (step != 1.0) {
        for (int k = 0; k < kReaches; k++)
            own[k] = std::clamp(own[k] * std::pow(error > own[k] ? kLonger[k] : kShorter[k], step), 1e-6, 1e6);
        return;
    }
    for (int k = 0; k < kReaches; k++) {  // without a branch, so that it is vectorised
        const double longer = own[k] * kLonger[k], shorter = own[k] * kShorter[k];
        const double next = error > own[k] ? longer : shorter, most = next > 1e6 ? 1e6 : next;
        own[k] = most < 1e-6 ? 1e-6 : most;
    }
}

// Conversion of one scale into the next: new = factor old + shift; and the factor of spreads.
struct Conversion {
    double factor = 1.0, shift = 0.0;
    bool is_log = false;  // the target is scaled, and predictors are its logarithm
    double spread = 1.0;
    bool shows_level = true;  // whether the rows being learnt have the level as an input
};

struct TargetMoments {  // Welford's algorithm, faded after many rows
    double rows = 0.0, mean = 0.0, squares = 0.0;
    double deviation() const { return rows > 0.0 ? std::sqrt(squares / rows) : 0.0; }
    void add(double y, double weight) {
        weight = std::min(weight, kMostRows);
        fade(weight);
        rows += weight;
        const double delta = y - mean;
        mean += delta * (weight / rows);
        squares = std::max(0.0, squares + weight * delta * (y - mean));  // the mean may be rounded beyond y
    }

private:
    static constexpr double kMostRows = 10000.0;
    void fade(double weight) {
        if (rows < kMostRows) return;
        squares *= 1.0 - weight / kMostRows;
        rows -= weight;
    }
};

struct MeanWeight {  // of the last rows; nothing is counted until one has another weight than 1
    double rows = 0.0, mean = 1.0;
    void add(double weight, double n_before) {
        if (rows == 0.0 && weight == 1.0) return;
        rows = std::min((rows == 0.0 ? n_before : rows) + 1.0, kMostRows);
        mean = rows == 1.0 ? weight : mean + (weight - mean) / rows;
    }
    // The step of a row, compared with that of one of the mean weight.
    double step(double weight) const { return std::min(weight / mean, kMostStep); }

private:
    static constexpr double kMostRows = 500.0, kMostStep = 10.0;
};

struct NumberTarget {
    double shift = 0.0, scale = 1.0;
    TargetMoments moments;
    MeanWeight weight;
    double level[kLevelInputs] = {};
    std::vector<double> reach = {kFirstReaches, kFirstReaches + kReaches};  // reach of intervals, in roots of the spread
    std::vector<double> offset;                                             // added to quantiles, scaled
    std::uint8_t is_known = 0;                                              // whether y has ever varied
    std::uint8_t has_level = 0;                                             // whether the level is an input of the models
    std::uint8_t hides_level = 0;  // whether the last rows were learnt without it, although others had it
    bool has_log_link = false;     // if so, y is scaled by its mean
    bool has_unit = false;         // custom loss in Python:
    double unit = 1.0;             // unit of the loss: the spread of a row that is one scale off
    double power = 1.0;            // with a log link, the power of the mean that variances grow with

    double scaled(double y) const { return (y - shift) / scale; }
    // Until y varies there is no scale, and nothing else could be predicted in any unit of y.
    double told_scale() const { return is_known || has_log_link ? scale : 0.0; }
    double unscaled(double t) const { return shift + told_scale() * t; }
    double level_input(int k) const { return has_log_link ? std::log1p(std::max(level[k], 0.0)) : level[k]; }

    void add(double y, double weight) {
        for (int k = 0; k < kLevelInputs; k++) {
            const double rate = weight == 1.0 ? kLevelRates[k] : 1.0 - std::pow(1.0 - kLevelRates[k], weight);
            level[k] = moments.rows == 0.0 ? y : level[k] + rate * (limited(y) - level[k]);
        }
        moments.add(limited(y), weight);
    }
    // An outlier is limited in the scale before it, not in the one that it makes: the models learn it, too, so it would be
    // multiplied by weights that grow with it. Nor may it make the scale so large that all else that was learnt is lost.
    double limited(double y) const {
        const double most = 2.0 * kLevelLimit * scale;
        return is_known && !has_log_link ? std::clamp(y, shift - most, shift + most) : y;
    }
    double size(const TargetMoments& of) const { return has_log_link ? of.mean : of.deviation(); }

    // Whether the scale no longer fits.
    bool is_off() const { return is_off(moments); }
    // Whether it will no longer fit once this number is added.
    bool is_off_after(double y, double weight) const {
        TargetMoments then = moments;
        then.add(limited(y), weight);
        return is_off(then);
    }
    // Adopts the scale of the rows so far.
    Conversion renew() {
        const double old_shift = shift, old_scale = scale;
        const double small = has_log_link ? 1.0 : 1.0 + 4.0 / moments.rows;  // few rows mostly underestimate it
        const double now = size(moments) * small;
        shift = has_log_link ? 0.0 : moments.mean;
        if (!(now > 0.0)) return {};  // 0: all equal so far
        scale = now;
        for (double& one : offset) one *= is_known ? old_scale / scale : 0.0;
        if (!is_known) {
            is_known = 1;
            return {0.0, 0.0};  // nothing learnt so far is of use
        }
        const double factor = old_scale / scale;
        return {factor, (old_shift - shift) / scale, has_log_link, has_log_link ? factor : factor * factor};
    }
    // For intervals; `error` is in roots of the spread. Until y varies, every error is 0, whatever the reach should be.
    void learn_reach(double error, double step) {
        if (is_known) driftree::learn_reach(reach, error, step);
    }
    // The same for quantiles: each has its own offset, which moves by a share of the spread's root.
    void learn_offsets(double scaled_y, const double* quantiles, const std::vector<double>& levels, double root,
                       double step) {
        for (std::size_t k = 0; k < offset.size() && is_known; k++)
            offset[k] += step * (kReachStep * root * (levels[k] - (scaled_y <= quantiles[k] ? 1.0 : 0.0)));
    }
    template <class Archive>
    void visit(Archive& a) {
        a("target_shift", shift), a("target_scale", scale), a("target_rows", moments.rows);
        a("target_mean", moments.mean), a("target_squares", moments.squares), a("target_last", level[0]),
            a("target_last_few", level[1]);
        a("target_last_many", level[2]), a("target_is_known", is_known), a("target_has_level", has_level);
        a("target_reach", reach), a("target_offset", offset);
        if (has_unit) a("target_unit", unit), a("target_power", power);
        if constexpr (requires { a.has_weights; }) a.has_weights = weight.rows > 0.0, a.has_hidden = hides_level != 0;
        a("target_weight_rows", weight.rows), a("target_weight_mean", weight.mean);
        a("target_hides_level", hides_level);
    }

private:
    bool is_off(const TargetMoments& of) const {
        const double now = size(of);
        if (!(now > 0.0)) return !is_known && shift != of.mean;
        if (!is_known || of.rows <= kFirstRows) return true;  // at first it is renewed in every step
        return now > 4.0 * scale || 4.0 * now < scale || std::abs(of.mean - shift) > 8.0 * scale;
    }
    static constexpr double kFirstRows = 100.0, kReachStep = 0.1;
};

}  // namespace driftree
