// Table: the features. Schema has the input columns of each feature, Scaler brings numbers of any size to a common scale.
// Trees of a forest share the scale of their common features: that of the first tree.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "memory.hpp"
#include "simple_models.hpp"
#include "sparse.hpp"

namespace driftree {

// Limits of a state (soundness.cpp), so that no sum overflows, however long it learns.
constexpr std::int64_t kMostRows = std::int64_t{1} << 53;  // rows that are counted
constexpr double kLargest = 1e150;                         // largest number: its square is still finite

constexpr int kLevels = 33;  // 32 levels of a categorical feature, and one for all later levels

struct Schema {
    int n_features = 0;
    int n_columns = 1;                         // column 0 is the intercept
    bool only_numbers = true;                  // feature j has column 1 + j for all j
    std::vector<std::uint8_t> is_categorical;  // splits of this feature are equalities
    std::vector<std::int32_t> value_column;    // -1: it has level columns instead, or is a sparse input
    std::vector<std::int32_t> missing_column;  // -1: no missing value learnt yet
    std::vector<std::int32_t> level_column;    // [n_features, kLevels], -1: level not seen

    void reserve(int n_more) {  // so that add_feature() cannot fail
        const std::size_t n = static_cast<std::size_t>(n_features) + n_more;
        make_capacity(is_categorical, n);
        make_capacity(value_column, n);
        make_capacity(missing_column, n);
        make_capacity(level_column, n * kLevels);
    }
    int add_feature(bool categorical, bool has_value) {
        is_categorical.push_back(categorical);
        only_numbers = only_numbers && has_value && n_columns == 1 + n_features;
        value_column.push_back(has_value ? n_columns++ : -1);
        missing_column.push_back(-1);
        level_column.insert(level_column.end(), kLevels, -1);
        return n_features++;
    }
    void make_categorical(int feature, bool has_value) {
        is_categorical[feature] = 1;
        if (has_value) return;
        only_numbers = false;
        std::swap(value_column[feature], level_column[feature * kLevels]);
    }
    bool has_levels(int j) const { return value_column[j] < 0 && is_categorical[j]; }
    // Whether this value is the first of its kind that needs an input column: missing, or a level beyond the first 32.
    bool lacks_column(int j, double value) const {
        if (std::isnan(value)) return missing_column[j] < 0;
        return has_levels(j) && value == kLevels - 1 && level_column[j * kLevels + kLevels - 1] < 0;
    }
    template <class Archive>
    void visit(Archive& archive) {
        archive.derived(n_features);
        archive.derived(n_columns);
        archive.derived(only_numbers);
        archive("is_categorical", is_categorical);
        archive("value_column", value_column);
        archive("missing_column", missing_column);
        archive("level_column", level_column);
    }
    void derive() {
        n_features = static_cast<int>(is_categorical.size());
        n_columns = 1;
        for (const auto* columns : {&value_column, &missing_column, &level_column})
            for (const int column : *columns) n_columns += column >= 0;
        only_numbers = true;
        for (std::size_t j = 0; j < value_column.size(); j++)
            only_numbers = only_numbers && value_column[j] == 1 + static_cast<int>(j);
    }
};

// Running moments and range of every feature; the loops are in scaling.hpp. Before its first value, a feature scales to 0.
struct Scaler {
    std::vector<double> weight, mean, squares, low, high;
    std::vector<std::uint8_t> is_indicator;    // only 0 and 1 so far
    std::vector<double> shift, factor, limit;  // z = (x - shift) * factor, with |z| <= limit
    std::vector<double> has_value;             // 0: categorical, without a numeric input
    double most = 1.5;                         // limit of z: three deviations

    void reserve(int n_more) {  // so that add_feature() cannot fail
        const std::size_t n = weight.size() + n_more;
        for (auto* values : {&weight, &mean, &squares, &shift, &low, &high, &factor, &limit, &has_value})
            make_capacity(*values, n);
        make_capacity(is_indicator, n);
    }
    // When scaling by range, the range starts as [0, 1], so that inputs that were normalised beforehand stay unchanged.
    void add_feature(bool by_range, bool is_number) {
        for (auto* values : {&weight, &mean, &squares, &shift}) values->push_back(0.0);
        low.push_back(by_range ? 0.0 : std::numeric_limits<double>::infinity());
        high.push_back(by_range ? 1.0 : -std::numeric_limits<double>::infinity());
        factor.push_back(1.0);
        limit.push_back(1e6);
        has_value.push_back(is_number);
        is_indicator.push_back(1);
    }
    void make_scratch() { scratch_.resize(4 * weight.size()); }  // before update()
    // Adds rows [n, features] to the moments of the features from `begin` up to, not including, `end`.
    void update(const Functions& f, const double* X, const double* weights, int n, int begin, int end, bool by_range) {
        f.update_scale(parts(begin), X + begin, static_cast<int>(weight.size()), weights, n, end - begin, by_range);
    }
    // The same for one value of a feature without an input, which has only a range.
    void update_range(int j, double x) {
        low[j] = x < low[j] ? x : low[j];
        high[j] = x > high[j] ? x : high[j];
        is_indicator[j] &= x == 0.0 || x == 1.0 || std::isnan(x);
        limit[j] = is_indicator[j] ? 1.0 : most;
    }
    // The input of one feature, as scale_row() has it.
    double input(int j, double x) const {
        const double z = (x - shift[j]) * factor[j];
        return std::isnan(z) ? 0.0 : std::clamp(z, -limit[j], limit[j]);
    }
    // The inputs of all features, treating all as numbers.
    void apply(const Functions& f, const double* x, double* out) const {
        f.scale_row(const_cast<Scaler*>(this)->parts(), x, static_cast<int>(weight.size()), out);
    }
    // Copies the scale of feature j from feature i of another scaler.
    void follow(int j, const Scaler& other, int i) {
        weight[j] = other.weight[i], mean[j] = other.mean[i], squares[j] = other.squares[i];
        low[j] = other.low[i], high[j] = other.high[i], is_indicator[j] = other.is_indicator[i];
        shift[j] = other.shift[i], factor[j] = other.factor[i], limit[j] = other.limit[i];
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
        archive.derived(limit);
        archive.derived(has_value);
        if constexpr (Archive::kMeasures) archive("scratch", scratch_);
    }
    void derive(const Schema& schema, bool by_range) {
        limit.clear();
        has_value.clear();
        for (const std::uint8_t flag : is_indicator) limit.push_back(by_range ? 1e6 : (flag ? 1.0 : most));
        for (const int column : schema.value_column) has_value.push_back(column >= 0);
    }

private:
    Scale parts(int first = 0) {
        return {weight.data() + first, mean.data() + first,      squares.data() + first,      low.data() + first,
                high.data() + first,   shift.data() + first,     factor.data() + first,       limit.data() + first,
                scratch_.data(),       has_value.data() + first, is_indicator.data() + first, most};
    }
    std::vector<double> scratch_;
};

// Bends: further inputs, each rising from 0 to 1 between two values of a feature. In a model they turn the feature's line
// into a curve.
struct Bends {
    std::vector<std::int32_t> feature;
    std::vector<double> low, high;
    int n() const { return static_cast<int>(feature.size()); }
    bool operator==(const Bends&) const = default;
    int find(int j, double from, double to) const {
        for (int i = 0; i < n(); i++)
            if (feature[i] == j && low[i] == from && high[i] == to) return i;
        return -1;
    }
    double input(int i, double value) const {
        const double share = (value - low[i]) / (high[i] - low[i]);
        return share > 0.0 ? (share < 1.0 ? share : 1.0) : 0.0;
    }
};

// How numbers are scaled: to the range so far (paper's setting), or by mean and deviation (measured setting).
enum class Scaling { range, moments };

struct Table {
    explicit Table(Scaling given) : scaling(given) {}
    Scaling scaling;
    Schema schema;
    Scaler scaler;
    SparseTable sparse;
    std::vector<double> absent;   // per feature: its value in a row without it
    bool absent_is_zero = false;  // all features are sparse until they are prominent
    // For a tree that has features of another's table and further ones: that table, which scales the common ones for both,
    // and the index there of each own feature; -1: not there.
    std::shared_ptr<const Table> leader;
    std::vector<std::int32_t> sources;

    bool by_range() const { return scaling == Scaling::range; }
    bool has_sparse() const { return absent_is_zero || sparse.n() > 0; }
    int n_features() const { return schema.n_features; }
    int n_columns() const { return schema.n_columns; }

    void reserve(int n_features) {  // so that add_feature() cannot fail
        schema.reserve(n_features);
        scaler.reserve(n_features);
        make_capacity(absent, absent.size() + n_features);
    }
    int add_feature(bool categorical, bool has_value) {
        absent.push_back(std::numeric_limits<double>::quiet_NaN());
        scaler.add_feature(by_range(), has_value);
        return schema.add_feature(categorical, has_value);
    }
    // Whether a sparse feature has no column.
    bool is_sparse(int id) const { return sparse.feature[id] < 0 || schema.value_column[sparse.feature[id]] < 0; }
    // Makes a sparse feature an ordinary one, with its statistics; `n_rows` have been learnt so far. Without a column it
    // stays a sparse input. With one, returns the scale of the new input relative to the old: old = factor new + shift,
    // except for limits.
    struct Rescaled {
        int feature;
        double factor, shift;
    };
    Rescaled promote(int id, bool has_column, double n_rows) {
        const int j = add_feature(false, has_column);
        const bool is_indicator = sparse.is_indicator(id), is_centred = sparse.is_centred[id];
        const double weight = sparse.weight[id], mean = sparse.mean[id], squares = sparse.squares[id];
        const double all = is_centred ? weight : std::max(n_rows, weight), share = all > 0.0 ? weight / all : 0.0;
        if (!is_centred) absent[j] = 0.0;
        scaler.weight[j] = all;
        scaler.mean[j] = share * mean;
        scaler.squares[j] = squares + weight * (1.0 - share) * mean * mean;
        scaler.low[j] = is_centred ? mean : std::min(0.0, mean);
        scaler.high[j] = is_centred ? mean : std::max(0.0, mean);
        const double sd = all > 0.0 ? std::sqrt(scaler.squares[j] / all) : 0.0;
        if (!is_indicator || is_centred) {
            scaler.is_indicator[j] = 0;
            scaler.limit[j] = scaler.most;
            scaler.shift[j] = scaler.mean[j];
            scaler.factor[j] = sd > 0.0 ? 0.5 / sd : 0.0;
        }
        sparse.feature[id] = j;
        // old = value * size - offset, new = (value - shift) * factor
        const double spread = weight > 0.0 ? squares / weight : 0.0, root = std::sqrt(spread + mean * mean);
        const double size = is_centred ? (spread > 0.0 ? 0.5 / std::sqrt(spread) : 0.0) : (root > 0.0 ? 1.0 / root : 0.0);
        const double offset = is_centred ? mean * size : 0.0, factor = scaler.factor[j];
        return {j, factor > 0.0 ? size / factor : 0.0, scaler.shift[j] * size - offset};
    }
    // Fills in a row from its first `width` values and its prominent sparse features.
    void fill_raw(const double* x, int width, const SparseRows& held, double* raw) const {
        std::copy_n(x, width, raw);
        for (int j = width; j < schema.n_features; j++) raw[j] = absent[j];
        for (std::int64_t i = held.begin ? held.begin[0] : 0; held.begin && i < held.begin[1]; i++)
            if (const int j = sparse.feature[held.ids[i]]; j >= width) raw[j] = held.values[i];
    }
    // Makes a numeric feature that was always missing categorical; its unused column becomes that of the first level.
    void make_categorical(int feature, bool has_value) {
        schema.make_categorical(feature, has_value);
        scaler.has_value[feature] = has_value;
    }
    void add_level(int feature, int code) { schema.level_column[feature * kLevels + code] = schema.n_columns++; }
    void add_missing(int feature) { schema.missing_column[feature] = schema.n_columns++; }

    // Adds rows [n, features] to the moments. Additive over rows except for rounding: Chan's merge.
    void update(const Functions& f, const double* X, const double* weights, int n) {
        if (!leader && has_few_columns() && n == 1) return update_row(f, X, weights);
        if (!leader) return scaler.update(f, X, weights, n, 0, n_features(), by_range());
        const auto is_own = [&](int j) { return j >= std::ssize(sources) || sources[j] < 0; };
        for (int j = 0, end; j < n_features(); j = end) {
            end = j + 1;
            if (is_own(j)) {
                while (end < n_features() && is_own(end)) end++;
                scaler.update(f, X, weights, n, j, end, by_range());
            } else {
                scaler.follow(j, leader->scaler, sources[j]);
            }
        }
    }
    // Computes inputs [n, stride] of rows [n, features].
    void fill_inputs(const Functions& f, const double* rows, int n, int stride, double* inputs) const {
        std::fill_n(inputs, static_cast<std::size_t>(n) * stride, 0.0);
        for (int i = 0; i < n; i++)
            fill_row(f, rows + static_cast<long>(i) * schema.n_features, inputs + static_cast<long>(i) * stride);
    }
    // Computes the inputs of one row for a model with bends: the common inputs, followed by the bends. A missing value
    // counts as the mean, as in the feature's own input.
    void fill_bends(const Functions& f, const double* x, const double* inputs, const Bends& bends, int stride,
                    double* out) const {
        std::copy_n(inputs, schema.n_columns, out);
        out += schema.n_columns;
        for (int i = 0; i < bends.n(); i++) {
            const int j = bends.feature[i];
            out[i] = std::isnan(x[j]) ? scaler.shift[j] : x[j];
        }
        f.bend_inputs(bends.low.data(), bends.high.data(), bends.n(), out);
        std::fill(out + bends.n(), out + (stride - schema.n_columns), 0.0);
    }
    template <class Archive>
    void visit(Archive& archive) {
        schema.visit(archive);
        scaler.visit(archive);
        archive.derived(absent);
    }
    void derive() {
        schema.derive();
        scaler.derive(schema, by_range());
        absent.assign(schema.n_features, std::numeric_limits<double>::quiet_NaN());
        const std::size_t n = std::min(sparse.feature.size(), sparse.is_centred.size());  // not yet checked
        for (std::size_t id = 0; id < n; id++)
            if (const int j = sparse.feature[id]; j >= 0 && j < schema.n_features && !sparse.is_centred[id]) absent[j] = 0.0;
    }

private:
    // In tables of sparse rows all features are numbers, and mostly few have a column.
    bool has_few_columns() const { return absent_is_zero && schema.n_columns <= 4; }
    void update_row(const Functions& f, const double* x, const double* weight) {
        const double *const low = scaler.low.data(), *const high = scaler.high.data();
        const std::int32_t* const column = schema.value_column.data();
        for (int j = 0; j < schema.n_features; j++) {
            if (column[j] < 0 && x[j] == 0.0 && low[j] <= 0.0 && high[j] >= 0.0) continue;  // the usual case
            if (column[j] < 0) {
                scaler.update_range(j, x[j]);
            } else {
                scaler.update(f, x, weight, 1, j, j + 1, false);
            }
        }
    }
    // z must be zero on entry. With only numbers and no missing values so far, the inputs are in the order of the features.
    void fill_row(const Functions& f, const double* x, double* z) const {
        z[0] = 1.0;
        if (has_few_columns()) {
            for (int j = 0; j < schema.n_features; j++)
                if (schema.value_column[j] >= 0) z[schema.value_column[j]] = scaler.input(j, x[j]);
            return;
        }
        if (schema.only_numbers && schema.n_columns == 1 + schema.n_features) {
            scaler.apply(f, x, z + 1);
            return;
        }
        Room room(schema.n_features);
        double* scaled = room.data();
        scaler.apply(f, x, scaled);
        for (int j = 0; j < schema.n_features; j++) {
            if (std::isnan(x[j])) {
                if (schema.missing_column[j] >= 0) z[schema.missing_column[j]] = 1.0;
            } else if (schema.value_column[j] >= 0) {
                z[schema.value_column[j]] = scaled[j];
            } else if (schema.is_categorical[j]) {
                const int column = schema.level_column[j * kLevels + static_cast<int>(x[j])];
                if (column >= 0) z[column] = 1.0;
            }
        }
    }
};

}  // namespace driftree
