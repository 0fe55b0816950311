// Rows: from the user's values to the inputs of the simple models.
//
// Schema says which input columns a feature has, Scaler brings numbers of any size to a common scale, Condition is a
// split, Chunk holds the rows of one step. The rows of a step are a set: they are visited in an order that depends on
// their values and the seed, not on the order of arrival (which only rows of equal values keep among themselves).
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "memory.hpp"
#include "simple_models.hpp"

namespace driftree {

constexpr int kLevels = 33;  // 32 levels of a categorical feature, and one that all later levels share

inline int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

struct Schema {
    int n_features = 0;
    int n_columns = 1;                          // column 0 is the intercept
    std::vector<std::uint8_t> is_categorical;   // splits of this feature are equalities
    std::vector<std::int32_t> value_column;     // -1: the feature has level columns instead
    std::vector<std::int32_t> missing_column;   // -1: nothing missing was learnt yet
    std::vector<std::int32_t> level_column;     // [n_features, kLevels], -1: level not seen

    int add_feature(bool categorical, bool has_value) {
        is_categorical.push_back(categorical);
        value_column.push_back(has_value ? n_columns++ : -1);
        missing_column.push_back(-1);
        level_column.insert(level_column.end(), kLevels, -1);
        return n_features++;
    }
    // Is this value the first of its kind that needs an input column: missing, or one of the levels that share one?
    bool lacks_column(int j, double value) const {
        if (std::isnan(value)) return missing_column[j] < 0;
        return value_column[j] < 0 && value == kLevels - 1 && level_column[j * kLevels + kLevels - 1] < 0;
    }
    template <class Archive>
    void visit(Archive& archive) {
        archive("n_features", n_features);
        archive("n_columns", n_columns);
        archive("is_categorical", is_categorical);
        archive("value_column", value_column);
        archive("missing_column", missing_column);
        archive("level_column", level_column);
    }
};

// Running moments and range of every feature.
struct Scaler {
    std::vector<double> weight, mean, squares, low, high;
    std::vector<std::uint8_t> is_indicator;  // only 0 and 1 so far
    std::vector<double> shift, factor;       // z = (x - shift) * factor

    // By range, the range starts as [0, 1]: inputs that were normalised beforehand stay as they are.
    void add_feature(bool by_range) {
        for (auto* values : {&weight, &mean, &squares, &shift}) values->push_back(0.0);
        low.push_back(by_range ? 0.0 : std::numeric_limits<double>::infinity());
        high.push_back(by_range ? 1.0 : -std::numeric_limits<double>::infinity());
        factor.push_back(1.0);
        is_indicator.push_back(1);
    }
    // Chan's merge of the moments of n values of feature j (every `step`-th double of x).
    void update(int j, const double* x, int step, const double* weights, int n, bool by_range) {
        double w = 0.0, sum = 0.0;
        for (int i = 0; i < n; i++) {
            const double v = x[static_cast<long>(i) * step];
            if (std::isnan(v)) continue;
            w += weights[i];
            sum += weights[i] * v;
            low[j] = std::min(low[j], v);
            high[j] = std::max(high[j], v);
            is_indicator[j] = is_indicator[j] && (v == 0.0 || v == 1.0);
        }
        if (w == 0.0) return;
        const double own_mean = sum / w;
        double own_squares = 0.0;
        for (int i = 0; i < n; i++) {
            const double v = x[static_cast<long>(i) * step];
            if (!std::isnan(v)) own_squares += weights[i] * (v - own_mean) * (v - own_mean);
        }
        const double delta = own_mean - mean[j], both = weight[j] + w;
        squares[j] += own_squares + delta * delta * (weight[j] * w / both);
        mean[j] += delta * (w / both);
        weight[j] = both;
        if (by_range) {
            shift[j] = low[j];
            factor[j] = 1.0 / (high[j] - low[j]);
        } else if (!is_indicator[j]) {
            const double sd = std::sqrt(squares[j] / weight[j]);
            shift[j] = mean[j];
            factor[j] = low[j] < high[j] && sd > 0.0 && std::isfinite(sd) ? 0.5 / sd : 0.0;
        }
    }
    // The input of the simple models: a z-score clipped at 3 and halved, or the place in the range seen.
    double apply(int j, double x, bool by_range) const {
        const double z = (x - shift[j]) * factor[j], limit = by_range || is_indicator[j] ? 1e6 : 1.5;
        return std::isnan(z) ? 0.0 : std::clamp(z, -limit, limit);
    }
    template <class Archive>
    void visit(Archive& archive) {
        archive("scale_weight", weight);
        archive("scale_mean", mean);
        archive("scale_squares", squares);
        archive("scale_low", low);
        archive("scale_high", high);
        archive("scale_is_indicator", is_indicator);
        archive("scale_shift", shift);
        archive("scale_factor", factor);
    }
};

struct Condition {  // which rows go left
    std::int32_t feature = -1;
    double threshold = 0.0;
    bool equality = false;
    bool missing_left = false;
    bool holds(const double* x) const {
        const double v = x[feature];
        if (std::isnan(v)) return missing_left;
        return equality ? v == threshold : v <= threshold;
    }
};

inline std::uint64_t mix64(std::uint64_t z) {  // splitmix64's finaliser
    z += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// The rows of one step: raw values, inputs of the simple models, labels, weights.
class Chunk {
public:
    int n = 0;
    Lines<double> raw, inputs, weights, steps;
    std::vector<std::int32_t> labels, active, n_active;

    Rows rows() const { return {inputs.data(), active.data(), n_active.data(), labels.data(), weights.data(),
                                    steps.data()}; }
    const double* raw_row(int i, int n_features) const { return raw.data() + static_cast<long>(i) * n_features; }

    // Copies the rows in the order in which the step visits them.
    void fill(const double* X, const std::int32_t* y, const double* w, int n_rows, int m, std::uint64_t seed) {
        n = n_rows;
        raw.resize(static_cast<std::size_t>(n) * m);
        labels.resize(n);
        weights.resize(n);
        steps.resize(n);
        order_.resize(n);
        for (int i = 0; i < n; i++) order_[i] = {0, i};
        if (n > 1) {
            const std::uint64_t salt = seed * 0x9E3779B97F4A7C15ull;
            for (int i = 0; i < n; i++)
                for (int j = 0; j < m; j++) {
                    const double v = X[static_cast<long>(i) * m + j];
                    const auto bits = std::isnan(v) ? 0x7ff8000000000000ull : std::bit_cast<std::uint64_t>(v + 0.0);
                    order_[i].key += mix64(bits + salt);
                }
            std::stable_sort(order_.begin(), order_.end(), [](const Place& a, const Place& b) { return a.key < b.key; });
        }
        for (int i = 0; i < n; i++) {
            const int from = order_[i].row;
            std::copy_n(X + static_cast<long>(from) * m, m, raw.data() + static_cast<long>(i) * m);
            labels[i] = y ? y[from] : 0;
            weights[i] = w ? w[from] : 1.0;
            steps[i] = std::min(weights[i], 1.0);
        }
    }
    // Computes the inputs of the simple models from the raw values.
    void scale(const Schema& schema, const Scaler& scaler, int stride, bool by_range) {
        inputs.assign(static_cast<std::size_t>(n) * stride, 0.0);
        active.resize(static_cast<std::size_t>(n) * stride);
        n_active.resize(n);
        for (int i = 0; i < n; i++) {
            double* z = inputs.data() + static_cast<long>(i) * stride;
            fill_inputs(schema, scaler, raw_row(i, schema.n_features), by_range, z);
            std::int32_t* list = active.data() + static_cast<long>(i) * stride;
            int count = 0;
            for (int c = 0; c < schema.n_columns; c++) {
                list[count] = c;
                count += z[c] != 0.0;
            }
            n_active[i] = count;
        }
    }
    static void fill_inputs(const Schema& schema, const Scaler& scaler, const double* x, bool by_range, double* z) {
        z[0] = 1.0;
        for (int j = 0; j < schema.n_features; j++) {
            const double v = x[j];
            if (std::isnan(v)) {
                if (schema.missing_column[j] >= 0) z[schema.missing_column[j]] = 1.0;
            } else if (schema.value_column[j] >= 0) {
                z[schema.value_column[j]] = scaler.apply(j, v, by_range);
            } else {
                const int column = schema.level_column[j * kLevels + static_cast<int>(v)];
                if (column >= 0) z[column] = 1.0;
            }
        }
    }

private:
    struct Place {
        std::uint64_t key;
        std::int32_t row;
    };
    std::vector<Place> order_;
};

}  // namespace driftree
