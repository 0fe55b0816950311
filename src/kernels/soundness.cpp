// Soundness: whether a state from outside is one that an engine could have reached.
//
// The kernels follow the state without checks: links between nodes, ids of models, slots of grids, input columns, keys of
// search trees. Here each of them is checked once, with every length, before any kernel runs; so is what they rely on: NaN
// where a feature has no more edges, zeros after the columns in use. Plain numbers are only added and compared, and cannot
// lead a kernel astray; they must be finite and small enough that sums do not overflow (Bounds in archive.hpp).
// tests/learn/test_soundness.py has a row for each array.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "archive.hpp"
#include "fimtdd.hpp"
#include "model_tree.hpp"

namespace driftree {
namespace {

void need(bool is_so, const char* array, const char* what) {
    if (!is_so) throw std::invalid_argument("'" + std::string(array) + "' " + what);
}

template <class Values>
void need_length(const Values& values, std::size_t n, const char* array) {
    need(values.size() == n, array, "has a wrong length");
}

template <class Values>
void need_flags(const Values& flags, const char* array) {
    need(std::all_of(flags.begin(), flags.end(), [](int flag) { return flag == 0 || flag == 1; }), array,
         "must hold only 0 and 1");
}

bool is_weight(double value) { return std::abs(value) <= kLargest; }

// Lines of `wide` numbers, of which those from `columns` to `stride` are padding, which kernels add as well.
template <class Values>
void need_zero_padding(const Values& lines, const Shape& shape, const char* array, int wide = 0) {
    if (wide == 0) wide = shape.stride;
    need(lines.size() % wide == 0, array, "has a wrong length");
    for (std::size_t begin = 0; begin < lines.size(); begin += wide)
        for (int c = shape.columns; c < shape.stride; c++)
            need(lines[begin + c] == 0, array, "must be 0 behind the columns");
}

bool is_finite(double value) { return std::abs(value) <= std::numeric_limits<double>::max(); }

// ---------------------------------------------------------------- common to both engines
// Every input column except the intercept belongs to one feature: to its value, one of its levels, or "is missing".
void check_schema(const Schema& schema, const SparseTable& sparse) {
    const std::size_t n = schema.is_categorical.size();
    need_flags(schema.is_categorical, "is_categorical");
    need_length(schema.value_column, n, "value_column");
    need_length(schema.missing_column, n, "missing_column");
    need_length(schema.level_column, n * kLevels, "level_column");
    std::vector<bool> is_used(schema.n_columns, false);
    const auto use = [&](const std::vector<std::int32_t>& columns, const char* array) {
        for (const int column : columns) {
            if (column == -1) continue;
            need(column > 0 && column < schema.n_columns, array, "names a column that is not there");
            need(!is_used[column], array, "names a column that is another's");
            is_used[column] = true;
        }
    };
    use(schema.value_column, "value_column");
    use(schema.missing_column, "missing_column");
    use(schema.level_column, "level_column");
    std::vector<bool> is_sparse(n, false);
    for (const int feature : sparse.feature) {
        if (feature == -1) continue;
        need(feature >= 0 && feature < schema.n_features && !schema.is_categorical[feature], "sparse_feature",
             "names a feature that is no number");
        need(!is_sparse[feature], "sparse_feature", "names a feature that is another's");
        is_sparse[feature] = true;
    }
    for (std::size_t j = 0; j < n; j++) {
        need(schema.is_categorical[j] || schema.value_column[j] >= 0 || is_sparse[j], "value_column",
             "must have every number");
        const auto first = schema.level_column.begin() + static_cast<std::ptrdiff_t>(j * kLevels);
        need(schema.value_column[j] < 0 || std::all_of(
                                               first, first + kLevels, [](int c) { return c < 0; }),
             "level_column", "must be -1 where a feature is a number");
    }
}

void check_sparse(const SparseTable& sparse) {
    const std::size_t n = sparse.weight.size();
    need_length(sparse.mean, n, "sparse_mean");
    need_length(sparse.squares, n, "sparse_squares");
    need_length(sparse.energy, n, "sparse_energy");
    need_length(sparse.feature, n, "sparse_feature");
    need_length(sparse.is_centred, n, "sparse_is_centred");
    need_flags(sparse.is_centred, "sparse_is_centred");
    const auto is_sum = [](double value) { return value >= 0.0; };
    need(std::all_of(sparse.weight.begin(), sparse.weight.end(), is_sum), "sparse_weight", "must not be negative");
    need(std::all_of(sparse.squares.begin(), sparse.squares.end(), is_sum), "sparse_squares", "must not be negative");
    need(sparse.n_given_up >= 0 && sparse.n_given_up <= kMostRows, "sparse_n_given_up", "is out of range");
}

// Values near the limit of float64 may leave no finite mean; the kernels can handle that.
void check_scaler(const Scaler& scaler, std::size_t n) {
    need_length(scaler.weight, n, "scale_weight");
    need_length(scaler.mean, n, "scale_mean");
    need_length(scaler.squares, n, "scale_squares");
    need_length(scaler.low, n, "scale_low");
    need_length(scaler.high, n, "scale_high");
    need_length(scaler.shift, n, "scale_shift");
    need_length(scaler.factor, n, "scale_factor");
    need_length(scaler.is_indicator, n, "scale_is_indicator");
    need_flags(scaler.is_indicator, "scale_is_indicator");
}

void check_shape(const Shape& shape) {
    const bool is_wide = shape.stride > 2 * shape.columns + 16;  // it grows by a quarter when needed
    need(shape.stride % kLanes == 0 && shape.stride >= shape.columns && !is_wide, "stride", "does not fit the columns");
}

void check_table(const Table& table, const Shape& shape) {
    check_sparse(table.sparse);
    check_schema(table.schema, table.sparse);
    check_scaler(table.scaler, table.n_features());
    check_shape(shape);
}

// A split must be one that rows can be tested by and that can be described: a threshold of a number, a level, or "is
// missing" (-inf).
void check_condition(const Condition& condition, const Schema& schema, const char* array) {
    need(condition.feature >= 0 && condition.feature < schema.n_features, array, "names a feature that is not there");
    const double value = condition.threshold;
    if (value == -std::numeric_limits<double>::infinity()) {
        need(!condition.equality && condition.missing_left, array, "has a split that is none");
        return;
    }
    need(is_finite(value), array, "has a split at no number");
    need(condition.equality == static_cast<bool>(schema.is_categorical[condition.feature]), array,
         "has a split that does not fit its feature");
    const bool is_code = schema.has_levels(condition.feature);
    need(!is_code || (value >= 0.0 && value < kLevels && value == std::floor(value)), array, "has a split at no level");
}

// A parent's depth is one less than its children's, and only the root has no parent: so every node is reachable from the
// root by exactly one path.
void check_links(const Nodes& nodes, const Schema& schema) {
    need(nodes.size() <= nodes.most(), "node.parent", "has more nodes than the parameters allow");
    const auto is_flag = [](int flag) { return flag == 0 || flag == 1; };
    for (const Node& node : nodes.all) {
        need(is_flag(node.is_alive), "node.is_alive", "must hold only 0 and 1");
        need(is_flag(node.condition.equality), "node.equality", "must hold only 0 and 1");
        need(is_flag(node.condition.missing_left), "node.missing_left", "must hold only 0 and 1");
    }
    need(nodes.has(0) && nodes[0].parent == -1 && nodes[0].depth == 0, "node.parent", "must begin with the root");
    const auto is_child = [&](int child, int node) {
        return child > 0 && nodes.has(child) && nodes[child].parent == node &&
               nodes[child].depth == std::int64_t{nodes[node].depth} + 1;
    };
    for (int id = 0; id < nodes.size(); id++) {
        const Node& node = nodes[id];
        if (!node.is_alive) continue;
        if (id > 0) {
            need(nodes.has(node.parent), "node.parent", "names a node that is not there");
            need(nodes[node.parent].left == id || nodes[node.parent].right == id, "node.parent",
                 "names a node with other children");
        }
        if (node.left == -1) {
            need(node.right == -1, "node.right", "must be -1 at a leaf");
            need(node.condition.feature == -1, "node.feature", "must be -1 at a leaf");
            continue;
        }
        need(is_child(node.left, id), "node.left", "names a node that is no child");
        need(is_child(node.right, id) && node.right != node.left, "node.right", "names a node that is no child");
        check_condition(node.condition, schema, "node.feature");
    }
}

void check_clock(double clock, std::int64_t n_rows) {
    need(clock >= 0.0, "clock", "must not be negative");
    need(n_rows >= 0 && n_rows <= kMostRows, "n_rows", "is out of range");
}

// ---------------------------------------------------------------- parts of the Dynamic Model Tree
void check_loss(const LossState& loss, bool may_have_floor) {
    need(loss.floor_rows >= 0.0, "model.floor_rows", "must not be negative");
    need(loss.spread > 0.0 && is_finite(loss.spread), "model.spread", "must be above 0");
    need(loss.spread_rows >= 0.0, "model.spread_rows", "must not be negative");
    need(loss.floor[0] >= 0.0, "model.floor_0", "must not be negative");
    need(loss.floor[1] >= 0.0, "model.floor_1", "must not be negative");
    need(loss.floor[0] + loss.floor[1] <= 1.0, "model.floor_1", "has a noise floor that is none");
    // A label's code is an index of the two floors.
    need(loss.has_floor == 0.0 || (loss.has_floor == 1.0 && may_have_floor), "model.has_floor",
         "has a noise floor out of place");
}

void check_reach(const std::vector<double>& reach, const char* name) {
    need_length(reach, kReaches, name);
    for (const double one : reach) need(one > 0.0 && one <= 1e6, name, "is out of range");
}

void check_target(const NumberTarget& target, const Table& table, std::size_t n_quantiles) {
    for (const double number : {target.shift, target.moments.mean, target.level[0], target.level[1], target.level[2]})
        need(std::abs(number) <= kLargestNumber, "target_mean", "must hold finite numbers, and none so large");
    need(target.scale > 0.0 && target.scale <= kLargestNumber, "target_scale", "must be above 0");
    need(target.moments.rows >= 0.0 && target.moments.squares >= 0.0, "target_squares", "must not be negative");
    check_reach(target.reach, "target_reach");
    need_length(target.offset, n_quantiles, "target_offset");
    need(std::all_of(target.offset.begin(), target.offset.end(), is_weight), "target_offset", "must hold finite numbers");
    need(target.weight.rows >= 0.0, "target_weight_rows", "must not be negative");
    need(target.weight.mean > 0.0 && is_finite(target.weight.mean), "target_weight_mean", "must be above 0");
    need(target.unit > 0.0 && is_finite(target.unit), "target_unit", "must be above 0");
    need(target.power >= 0.0 && target.power <= 4.0, "target_power", "is out of range");
    need(target.is_known <= 1, "target_is_known", "must hold only 0 and 1");
    need(target.has_level <= 1, "target_has_level", "must hold only 0 and 1");
    need(target.hides_level <= target.has_level, "target_hides_level", "must hold only 0, or 1 where there is a level");
    need(!target.has_level || table.n_features() >= kLevelInputs, "target_has_level", "has a level that is no feature");
}

bool has_weights(const Model& model) {
    return std::all_of(model.numbers.begin(), model.numbers.end(), is_weight) &&
           std::all_of(model.singles.begin(), model.singles.end(), is_weight);
}
constexpr const char* kNotWeights = "must hold finite numbers, and none so large";

// Stochastic gradient descent on numbers may diverge, to NaN as well; such a model is reset when it is to learn again.
void check_model(const Model& model, const Shape& shape, Sgd, bool may_diverge) {
    need(may_diverge || has_weights(model), "model.numbers", kNotWeights);
    need_zero_padding(model.numbers, shape, "model.numbers");
}

void check_model(const Model& model, const Shape& shape, Blend, bool) {
    need(has_weights(model), "model.numbers", kNotWeights);
    need_zero_padding(model.numbers, shape, "model.numbers");
    need(model.singles.empty() || model.singles.size() == BlendParts::cells(shape), "model.numbers", "has a wrong length");
    need_zero_padding(model.singles, shape, "model.numbers");
    need(std::abs(model.blend.preference) <= 8.0, "model.preference", "is out of range");
    need(model.blend.scale > 0.0 && is_weight(model.blend.scale), "model.scale", "must be above 0");
    need(is_weight(model.blend.trace), "model.trace", "is out of range");
    need(model.blend.sureness > 0.0 && model.blend.sureness <= 1.0, "model.sureness", "must be above 0 and at most 1");
    need(model.blend.sureness_rows >= 0.0, "model.sureness_rows", "must not be negative");
    need(model.blend.memory >= 1e-3 && model.blend.memory <= 1e3, "model.memory", "must be from 0.001 to 1000");
    need(model.blend.wrong >= 0.0 && model.blend.wrong <= 1.0, "model.wrong", "must be from 0 to 1");
    need(std::abs(model.renewed.lead) <= kMostLead, "model.renewed_lead", "is out of range");
    need(model.renewed.born >= 0.0 && is_finite(model.renewed.born), "model.renewed_born", "is out of range");
    need(model.renewed.harm >= 0.0 && is_finite(model.renewed.harm), "model.renewed_harm", "is out of range");
    const BlendParts parts(shape, model.memory());
    need(std::all_of(parts.squares, parts.newton, [](double sum) { return sum >= 0.0; }), "model.numbers",
         "has a negative sum of squares");
    const bool has_zeros = parts.with_matrix([&](const auto* matrix) {
        const auto* const end = matrix + BlendParts::cells(shape);
        return std::all_of(matrix + static_cast<long>(shape.columns) * shape.stride, end, [](auto x) { return x == 0; });
    });
    need(has_zeros, "model.numbers", "must be 0 behind the columns");
}

void check_sparse_weights(const SparseWeights& weights, const Shape& shape, int n_sparse) {
    const int width = SparseCell::width(shape.outputs);
    need_length(weights.numbers, weights.ids.size() * width, "model.sparse_numbers");
    need(weights.scale > 0.0 && weights.scale <= 1.0, "model.sparse_scale", "must be above 0 and at most 1");
    need(weights.loosening >= 1.0, "model.sparse_loosening", "must be at least 1");
    std::vector<bool> is_met(n_sparse, false);
    for (const int id : weights.ids) {
        need(id >= 0 && id < n_sparse, "model.sparse_ids", "names a feature that is not there");
        need(!is_met[id], "model.sparse_ids", "names a feature twice");
        is_met[id] = true;
    }
    for (std::size_t i = 0; i < weights.numbers.size(); i++) {
        const std::size_t c = i % width;
        need(std::isfinite(weights.numbers[i]), "model.sparse_numbers", "must hold finite numbers");
        need(weights.numbers[i] >= 0.0f || (c > 0 && (c - 1) % 3 + 1 != SparseCell::kSquares), "model.sparse_numbers",
             "has a negative variance or sum of squares");
    }
}

// Every model has one owner: a node, a side of a split on trial, a trial of bends, a model to renew, or the challenger.
class ModelUse {
public:
    explicit ModelUse(const std::vector<Model>& models) : models_(models), is_used_(models.size(), false) {}
    void use(int model, const char* array) {
        need(model >= 0 && model < std::ssize(models_), array, "names a model that is not there");
        need(!is_used_[model], array, "names a model that is another's");
        is_used_[model] = true;
    }
    template <class Kind>
    void check(const Shape& shape, Kind kind, bool may_diverge = false, int n_sparse = 0) const {
        for (std::size_t i = 0; i < models_.size(); i++) {
            const Model& model = models_[i];
            const Shape own = model.shape(shape);
            need(!model.is_free() || model.bends.n() == 0, "model.bend_feature", "has bends of no model");
            need(!is_used_[i] || own.columns <= own.stride, "model.numbers", "has a wrong length");
            // Without bends it reads the common inputs, which have the stride of the tree.
            need(!is_used_[i] || model.bends.n() > 0 || own.stride == shape.stride, "model.numbers", "has a wrong length");
            need_length(model.numbers, is_used_[i] ? Kind::size(own, !model.singles.empty()) : 0, "model.numbers");
            if (is_used_[i]) check_model(model, own, kind, may_diverge);
            if constexpr (Kind::kHasSparse) check_sparse_weights(model.sparse, shape, is_used_[i] ? n_sparse : 0);
        }
    }
    void check_bends(const Schema& schema) const {
        for (const Model& model : models_) {
            need_length(model.bends.low, model.bends.feature.size(), "model.bend_low");
            need_length(model.bends.high, model.bends.feature.size(), "model.bend_high");
            for (int i = 0; i < model.bends.n(); i++) {
                const int j = model.bends.feature[i];
                need(j >= 0 && j < schema.n_features && schema.value_column[j] >= 0, "model.bend_feature",
                     "names a feature that is no number");
                need(is_finite(model.bends.low[i]) && is_finite(model.bends.high[i] - model.bends.low[i]), "model.bend_low",
                     "must hold finite numbers");
                need(model.bends.low[i] < model.bends.high[i], "model.bend_high", "must be above the low end");
            }
        }
    }

private:
    const std::vector<Model>& models_;
    std::vector<bool> is_used_;
};

// Raw values of rows: numbers, or codes of levels, which kernels use as indices.
template <class IsCode>
void check_rows(const std::vector<double>& rows, std::size_t n_features, const char* array, IsCode&& is_code) {
    for (std::size_t i = 0; i < rows.size(); i++) {
        if (std::isnan(rows[i])) continue;
        need(is_finite(rows[i]), array, "must hold finite numbers, or NaN");
        const bool is_level = rows[i] >= 0.0 && rows[i] < kLevels;
        need(is_level || !is_code(static_cast<int>(i % n_features)), array, "has an unknown level");
    }
}

// The rows from which a grid will be chosen; a level's code becomes a slot.
constexpr int kMostFirstRows = 1 << 20;
void check_first_rows(const Grid& grid, const Schema& schema) {
    const std::size_t n = grid.n_first_rows, m = schema.n_features;
    need(grid.n_first_rows >= 0 && grid.n_first_rows <= kMostFirstRows, "grid.n_first_rows", "is out of range");
    need_length(grid.first_rows, n * m, "grid.first_rows");
    check_rows(grid.first_rows, m, "grid.first_rows", [&](int j) { return schema.is_categorical[j] != 0; });
}

void check_grid(const Grid& grid, const Schema& schema, const Shape& shape, int wide) {
    const std::size_t size = static_cast<std::size_t>(shape.outputs) * wide;
    need(grid.scale > 0.0 && grid.scale <= 1.0, "grid.scale", "must be above 0 and at most 1");
    check_first_rows(grid, schema);
    if (!grid.is_ready()) {
        need(grid.edges.empty() && grid.counts.empty() && grid.barred_until.empty() && grid.implied.empty(),
             "grid.first_slot", "lacks the slots of a grid");
        need(grid.gradients.empty() && grid.total.empty(), "grid.gradients", "has gradients of no grid");
        return;
    }
    need(grid.n_first_rows == 0, "grid.n_first_rows", "must be 0 once the grid is chosen");
    need_length(grid.first_slot, static_cast<std::size_t>(schema.n_features) + 1, "grid.first_slot");
    need_length(grid.implied, schema.n_features, "grid.implied");
    need(grid.first_slot[0] == 0, "grid.first_slot", "must begin with 0");
    for (int j = 0; j < schema.n_features; j++) {
        const std::int64_t begin = grid.first_slot[j], end = grid.first_slot[j + 1];
        need(schema.is_categorical[j] ? end - begin == kLevels + 1 : end - begin >= 2, "grid.first_slot",
             "gives a feature a wrong number of slots");
        need(grid.implied[j] == -1 || (grid.implied[j] >= begin && grid.implied[j] < end), "grid.implied",
             "names a slot of another feature");
    }
    const std::size_t n_slots = grid.n_slots();
    need_zero_padding(grid.gradients, shape, "grid.gradients", wide);
    need_zero_padding(grid.total, shape, "grid.total", wide);
    need_length(grid.edges, n_slots, "grid.edges");
    need_length(grid.counts, n_slots, "grid.counts");
    need_length(grid.barred_until, n_slots, "grid.barred_until");
    need_length(grid.gradients, n_slots * size, "grid.gradients");
    need_length(grid.total, size, "grid.total");
    for (int j = 0; j < schema.n_features; j++) {
        const auto begin = grid.edges.begin() + grid.first_slot[j], last = grid.edges.begin() + grid.first_slot[j + 1];
        const auto end = schema.is_categorical[j] ? begin : last - 2;  // the top and the missing slot have none
        need(std::all_of(begin, end, is_finite) && std::is_sorted(begin, end), "grid.edges", "must ascend");
        need(std::all_of(end, last, [](double edge) { return std::isnan(edge); }), "grid.edges",
             "must be NaN where a slot has no edge");
    }
}

void check_candidates(const Candidates& store, const Schema& schema, const Shape& shape) {
    const std::size_t size = static_cast<std::size_t>(shape.outputs) * shape.stride;
    const std::size_t n = store.feature.size();
    for (const int feature : store.feature)
        need(feature >= 0 && feature < schema.n_features, "candidates.feature", "names a feature that is not there");
    need_length(store.value, n, "candidates.value");
    need(std::all_of(store.value.begin(), store.value.end(), is_finite), "candidates.value",
         "must hold finite numbers");  // they are sorted
    need_length(store.n_left, n, "candidates.n_left");
    need_length(store.loss_left, n, "candidates.loss_left");
    need_length(store.n_before, n, "candidates.n_before");
    need_length(store.loss_before, n, "candidates.loss_before");
    need_length(store.gain, n, "candidates.gain");
    need_length(store.gradient_left, n * size, "candidates.gradient_left");
    need_length(store.gradient_before, n * size, "candidates.gradient_before");
    need_zero_padding(store.gradient_left, shape, "candidates.gradient_left");
    need_zero_padding(store.gradient_before, shape, "candidates.gradient_before");
}

// ---------------------------------------------------------------- evidence
void check_border(const Border& border, const Node& node, double clock) {
    need(border.width >= 0.0, "sums.border_width", "must not be negative");
    need(border.width == 0.0 || (node.is_alive && !node.is_leaf()), "sums.border_width",
         "must be 0 where there is no split");
    need(border.clock >= 0.0 && border.clock <= clock, "sums.border_clock", "is out of range");
    const auto& sums = border.sums.all;
    need(sums.empty() || (sums.size() == BorderSums::size() && border.width > 0.0), "sums.border_sums",
         "has a wrong length");
    need(std::all_of(sums.begin(), sums.end(), is_finite), "sums.border_sums", "has a number out of range");
    for (int cell = 0; cell < BorderSums::kCells && !sums.empty(); cell++)
        for (const bool is_above : {false, true})
            need(border.sums.number(BorderSums::kRows, is_above, cell) >= 0.0, "sums.border_sums", "has a negative count");
}

void check_evidence(const Trials& evidence, const LossTree<Blend>& tree, ModelUse& models) {
    const Schema& schema = tree.schema();
    for (int j = 0; j < schema.n_features; j++)  // a level's code is a slot of a grid
        need(!schema.is_categorical[j] || schema.value_column[j] < 0, "value_column",
             "must be -1 where a feature has levels");
    const Trials::Block& block = evidence.block;
    need(block.is_open <= 1, "block_is_open", "must be 0 or 1");
    need(block.spares <= 1, "block_spares", "must be 0 or 1");
    need(block.challenger_rests <= 1, "block_challenger_rests", "must be 0 or 1");
    for (const NodeRecord& record : tree.records)
        need(record.rests >= 0 && record.rests < Trials::kFirstTrial << evidence.rates.per_node, "sums.block_rests",
             "is out of range");
    for (std::size_t node = 0; node < tree.borders.size(); node++)
        check_border(tree.borders[node], tree.nodes.all[node], tree.clock);
    const std::size_t n = tree.nodes.size();
    need_length(evidence.grids, n, "grid.scale");
    need_length(evidence.trials, n * evidence.rates.per_node, "trial.feature");
    for (std::size_t t = 0; t < evidence.trials.size(); t++) {
        const Trial& trial = evidence.trials[t];
        const std::size_t node = t / evidence.rates.per_node;
        const auto is_flag = [](int flag) { return flag == 0 || flag == 1; };
        need(is_flag(trial.condition.equality), "trial.equality", "must hold only 0 and 1");
        need(is_flag(trial.condition.missing_left), "trial.missing_left", "must hold only 0 and 1");
        if (trial.condition.feature == -1) continue;
        need(tree.nodes[node].is_alive, "trial.feature", "has a trial out of place");
        check_condition(trial.condition, schema, "trial.feature");
        need(trial.slot >= -1 && trial.slot < evidence.grids[node].n_slots(), "trial.slot",
             "names a slot that is not there");
        models.use(trial.left_model, "trial.left_model");
        models.use(trial.right_model, "trial.right_model");
        const Model& own = tree.models[tree.nodes[node].model];
        for (const int side : {trial.left_model, trial.right_model}) {  // which read the inputs of the node's model
            const Model& model = tree.models[side];
            need(model.bends == own.bends && model.stride == own.stride, "trial.left_model",
                 "must have the bends of the node's model");
        }
    }
    for (std::size_t i = 0; i < tree.models.all.size(); i++) {
        const Model& own = tree.models.all[i];
        if (own.renewed.model == -1) continue;
        models.use(own.renewed.model, "model.renewed_model");
        const Model& model = tree.models.all[own.renewed.model];
        need(model.bends == own.bends && model.stride == own.stride, "model.renewed_model",
             "must have the bends of the model that it renews");
        const bool is_leafs = std::any_of(tree.nodes.all.begin(), tree.nodes.all.end(), [&](const Node& node) {
            return node.is_alive && node.is_leaf() && node.model == static_cast<int>(i);
        });
        need(is_leafs && tree.table->sparse.n() == 0, "model.renewed_model", "has a model out of place");
    }
    need_length(evidence.bend_trials, n, "bend_trial.model");
    for (std::size_t node = 0; node < n; node++) {
        const int n_failed = evidence.bend_trials[node].n_failed;
        need(n_failed >= 0 && n_failed < std::numeric_limits<int>::max() / 2, "bend_trial.n_failed", "is out of range");
        if (evidence.bend_trials[node].is_free()) continue;
        need(tree.nodes[node].is_alive, "bend_trial.model", "has a trial out of place");
        models.use(evidence.bend_trials[node].model, "bend_trial.model");
    }
    models.check_bends(schema);
    const bool has_challenger = evidence.challenger.model != -1;  // a tree with pairs of features has none
    need(!has_challenger || tree.n_classes == 1 || tree.n_classes == 2, "challenger",
         "must be -1 but in trees of two classes");
    if (has_challenger) models.use(evidence.challenger.model, "challenger");
    for (const Model& model : tree.models.all) check_loss(model.loss, has_challenger);
    for (std::size_t node = 0; node < n; node++) {
        check_grid(evidence.grids[node], schema, tree.shape, tree.grid_shape().stride);
        need((!evidence.grids[node].is_ready() && evidence.grids[node].n_first_rows == 0) || tree.nodes[node].is_alive,
             "grid.first_slot", "has a grid out of place");
    }
}

void check_evidence(const CandidateStore& evidence, const LossTree<Sgd>& tree, ModelUse&) {
    const Schema& schema = tree.schema();
    for (const int column : schema.value_column)  // numbers are inputs here even if they are levels
        need(column >= 0, "value_column", "must have every feature in the paper's setting");
    const std::size_t n = tree.nodes.size();
    need_length(evidence.stores, n, "candidates.feature");
    need_length(evidence.gradients, n, "node_gradient.sum");
    for (std::size_t node = 0; node < n; node++) {
        const bool is_alive = tree.nodes[node].is_alive;
        need_length(evidence.gradients[node], is_alive ? tree.shape.size() : 0, "node_gradient.sum");
        need_zero_padding(evidence.gradients[node], tree.shape, "node_gradient.sum");
        check_candidates(evidence.stores[node], schema, tree.shape);
        need(evidence.stores[node].n() == 0 || is_alive, "candidates.feature", "has candidates out of place");
    }
}

template <class Kind>
void heal_models(Models<Kind>& models, const Shape& shape) {
    for (Model& model : models.all) {
        if (model.is_free()) continue;
        for (float& number : model.sparse.numbers)
            if (!std::isfinite(number)) number = 0.0f;
        const bool is_sure = model.blend.sureness > 0.0 && model.blend.sureness <= 1.0;
        if (!has_weights(model) || !is_sure || !(model.blend.scale > 0.0)) models.restart(shape, model);
    }
}

// A step that is not finite makes the padding NaN, and with it the prediction: here the intercept takes that over.
void heal_padding(Models<Sgd>& models, const Shape& shape) {
    for (Model& model : models.all)
        for (std::size_t begin = 0; begin < model.numbers.size(); begin += shape.stride) {
            const auto line = model.numbers.begin() + static_cast<std::ptrdiff_t>(begin), padding = line + shape.columns;
            if (std::all_of(padding, line + shape.stride, [](double x) { return x == 0.0; })) continue;
            *line = std::numeric_limits<double>::quiet_NaN();
            std::fill(padding, line + shape.stride, 0.0);
        }
}

}  // namespace

namespace {

void check_watch(const Watch& watch, const Schema& schema, int n_classes, std::int64_t n_rows) {
    const std::size_t n = watch.targets.size(), m = schema.n_features;
    need_length(watch.rows, n * m, "watch_rows");
    check_rows(watch.rows, m, "watch_rows", [&](int j) { return schema.has_levels(j); });
    need_length(watch.losses, n, "watch_losses");
    need_length(watch.came, n, "watch_came");
    need_length(watch.bets, Watch::kBets, "watch_bets");
    const auto is_code = [&](double code) { return code >= 0.0 && code < n_classes && code == std::floor(code); };
    need(n_classes == 0 || std::all_of(watch.targets.begin(), watch.targets.end(), is_code), "watch_targets",
         "must hold codes of labels");
    need(std::is_sorted(watch.came.begin(), watch.came.end()), "watch_came", "must be in order");
    need(std::all_of(watch.came.begin(), watch.came.end(), [&](double row) { return row >= 0.0 && row <= n_rows; }),
         "watch_came", "is out of range");
    need(std::all_of(watch.bets.begin(), watch.bets.end(), [](double bet) { return bet >= 0.0; }), "watch_bets",
         "must not be negative");
    need(watch.rise >= 1.0, "watch_rise", "must be at least 1");
    need(watch.n_checks >= 0 && watch.n_checks <= kMostRows, "watch_n_checks", "is out of range");
    need(std::ssize(watch.earlier) <= watch.n_checks, "watch_earlier", "has more checks than there were");
    for (const std::int64_t row : {watch.next_check, watch.next_kept})
        need(row >= 0 && row <= 2 * kMostRows, "watch_next_check", "is out of range");
    need(watch.since >= 0 && watch.since <= n_rows, "watch_since", "is out of range");
}

}  // namespace

// ---------------------------------------------------------------- the Dynamic Model Tree
template <class Evidence>
void ModelTree<Evidence>::derive() {
    table->derive();
    show_level();
    if (n_rows > 0) scale_levels();  // a tree of a forest may be new
    loss = loss_for(n_classes);
    shape.columns = table->n_columns();
    shape.outputs = outputs_of(n_classes);
    models.derive(shape);
    borders.resize(nodes.size());
    if (nodes.all.empty() || nodes[0].is_leaf()) std::vector<Border>().swap(borders);
    due_.clear();
    bent_room_for_ = -1;
}

template <class Evidence>
void ModelTree<Evidence>::check() {
    need(has_labels() ? n_classes >= 1 : n_classes == 0, "n_classes", "does not fit the target");
    check_reach(label_reach, "label_reach");
    if (!has_labels()) check_target(target, *table, loss == kQuantile ? settings.quantiles.size() : 0);
    check_table(*table, shape);
    check_links(nodes, table->schema);
    check_clock(clock, n_rows);
    need(n_steps >= 0 && n_steps <= n_rows, "n_steps", "is out of range");
    need_length(records, nodes.size(), "sums.clock");
    ModelUse use(models.all);
    for (int node = 0; node < nodes.size(); node++) {
        const bool is_alive = nodes[node].is_alive;
        if (is_alive) use.use(nodes[node].model, "node.model");
        need(is_alive || nodes[node].model == -1, "node.model", "must be -1 where there is no node");
        need_length(records[node].class_rows, is_alive ? n_classes : 0, "sums.class_rows");
        need(!is_alive || !(records[node].clock > clock), "sums.clock", "must not be ahead of the clock");
    }
    check_evidence(evidence, *this, use);
    check_watch(watch, table->schema, n_classes, n_rows);
    use.check(shape, Kind(), !has_labels(), table->sparse.n());
    Bounds<false> bounds(kLargest);
    visit(bounds);
}

// Repairs what only a strange file can have caused, so that whatever was loaded can be saved.
template <class Evidence>
void ModelTree<Evidence>::heal() {
    Bounds<true> bounds(kLargest);
    visit(bounds);
    for (Border& border : borders)
        if (!std::all_of(border.sums.all.begin(), border.sums.all.end(), is_finite)) border.restart();
    if constexpr (std::is_same_v<Kind, Sgd>) {
        if (!has_labels()) return heal_padding(models, shape);
    }
    heal_models(models, shape);
}

template class ModelTree<Trials>;
template class ModelTree<CandidateStore>;

// ---------------------------------------------------------------- FIMT-DD
// The search trees of all features: every key is reachable from exactly one key or root, so that a walk visits it once.
void SplitPoints::check(int n_features, int classes) const {
    need(n_classes == classes, "split_points.n_classes", "is wrong");
    need_length(counts, classes, "split_points.counts");
    need_length(present, static_cast<std::size_t>(n_features) * classes, "split_points.present");
    need_length(root, n_features, "split_points.root");
    need_length(n_keys, n_features, "split_points.n_keys");
    const std::size_t width = kHeadOfKey + static_cast<std::size_t>(classes), n = keys.size() / width;
    need(std::all_of(n_keys.begin(), n_keys.end(), [&](int own) { return own <= max_keys(); }), "split_points.n_keys",
         "has too many keys of a feature");
    need(keys.size() == n * width && n <= std::numeric_limits<std::int32_t>::max(), "split_points.keys",
         "has a wrong length");
    std::vector<bool> is_met(n, false);
    std::vector<std::int32_t> rest;
    std::size_t n_met = 0;
    for (int j = 0; j < n_features; j++) {
        const std::size_t n_before = n_met;
        rest.assign(1, root[j]);
        while (!rest.empty()) {
            const int key = rest.back();
            rest.pop_back();
            if (key == -1) continue;
            need(key >= 0 && static_cast<std::size_t>(key) < n && !is_met[key], "split_points.keys",
                 "has a key that is not there, or that two others have");
            need(is_finite(*place(key)), "split_points.keys", "has a key that is no number");
            need(std::all_of(place(key) + kHeadOfKey, place(key) + width,
                             [](double sum) { return std::abs(sum) <= kLargest; }),
                 "split_points.keys", "has a number out of range");
            is_met[key] = true;
            n_met++;
            rest.insert(rest.end(), {children(key).below, children(key).above});
        }
        const auto n_own = static_cast<std::int64_t>(n_met - n_before);
        need(n_keys[j] == n_own, "split_points.n_keys", "is wrong");
    }
    need(n_met == n, "split_points.keys", "has keys of no feature");
}

void FimtddTree::derive() {
    table->derive();
    loss = loss_for(n_seen);
    shape.columns = table->n_columns();
    shape.outputs = rules(loss).outputs(n_seen);
    models.derive(shape);
    due_.clear();
}

void FimtddTree::heal() {
    Bounds<true> bounds(kLargest);
    visit(bounds);
    heal_models(models, shape);
    for (SplitPoints& points : split_points) points.heal();
}

// Repairs the class weights of the keys; their values and links cannot have changed.
void SplitPoints::heal() {
    const std::size_t width = kHeadOfKey + static_cast<std::size_t>(n_classes);
    for (std::size_t i = 0; i < keys.size(); i++)
        if (i % width >= kHeadOfKey && !(std::abs(keys[i]) <= kLargest)) keys[i] = 0.0;
}

void FimtddTree::check() {
    need(has_labels() ? n_classes >= 1 : n_classes == 0, "n_classes", "does not fit the target");
    if (!has_labels()) check_target(target, *table, 0);
    need_length(place, n_classes, "place");
    need(n_seen >= 0 && n_seen <= n_classes, "n_seen", "is out of range");
    std::vector<bool> is_taken(n_seen, false);
    for (const int own : place) {
        if (own == -1) continue;
        need(own >= 0 && own < n_seen && !is_taken[own], "place", "must number the classes seen");
        is_taken[own] = true;
    }
    need(std::count(is_taken.begin(), is_taken.end(), true) == n_seen, "place", "must number the classes seen");
    check_table(*table, shape);
    check_links(nodes, table->schema);
    check_clock(clock, n_rows);
    need_length(records, nodes.size(), "sums.tried_at");
    need_length(split_points, nodes.size(), "split_points.n_classes");
    ModelUse use(models.all);
    for (int node = 0; node < nodes.size(); node++) {
        const bool is_leaf = nodes[node].is_alive && nodes[node].is_leaf();
        const SplitPoints& points = split_points[node];
        if (is_leaf) {
            use.use(nodes[node].model, "node.model");
            points.check(table->n_features(), n_sums());
            need(!(nodes[node].rows < 0.0 || records[node].tried_at < 0.0), "sums.tried_at", "must not be negative");
        } else {
            need(nodes[node].model == -1, "node.model", "must be -1 where there is no leaf");
            need(points.counts.empty() && points.present.empty() && points.root.empty() && points.n_keys.empty() &&
                     points.keys.empty(),
                 "split_points.counts", "has split points out of place");
        }
    }
    use.check(shape, Sgd());
    Bounds<false> bounds(kLargest);
    visit(bounds);
}

}  // namespace driftree
