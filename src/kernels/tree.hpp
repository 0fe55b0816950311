// Tree: the common part of all trees of linear models, however they grow: table, nodes, simple models, prediction.
//
// It contains no policy. Any allocation may fail, so each function called from Python first allocates everything it needs
// and only then changes anything: after an exception the tree is unchanged.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "chunk.hpp"
#include "models.hpp"
#include "nodes.hpp"
#include "table.hpp"
#include "turns.hpp"

namespace driftree {

// The functions for each instruction set that was built and that this machine has, narrowest first.
std::vector<const Functions*> all_functions();
// The functions for the widest of them, or for the one named in DRIFTREE_ISA.
const Functions& choose_functions();

template <class Kind>
class Tree {
public:
    Tree(const typename Kind::Rates& rates, Scaling scaling, int classes, int max_nodes)
        : table(std::make_shared<Table>(scaling)), nodes(max_nodes), models(rates), n_classes(classes),
          f(choose_functions()) {}
    Tree(const Tree&) = delete;
    Tree& operator=(const Tree&) = delete;
    virtual ~Tree() = default;

    std::shared_ptr<Table> table;
    Shape shape = {1, kLanes, 1};
    Nodes nodes;
    Models<Kind> models;
    int n_classes;
    LossKind loss = kLogit;
    double clock = 0.0;  // weight of all rows
    std::int64_t n_rows = 0;
    int most_sparse = 0;  // most names of sparse features
    const Functions& f;
    std::atomic<int> n_threads = 1;  // threads for a single call
    mutable Turns turns;             // one call learns, or several predict

    const Schema& schema() const { return table->schema; }
    // Shape of the gradients in grids: after the columns, the sketch of sparse inputs.
    Shape grid_shape_of(const Shape& s) const {
        return {s.columns, s.stride + (table->has_sparse() ? kSketch : 0), s.outputs};
    }
    Shape grid_shape() const { return grid_shape_of(shape); }

    // ---- growth: what is new in a batch. prepare() allocates all that the other functions need, so that they cannot fail.
    void prepare(int n_features, int n_columns, int classes) {
        table->reserve(n_features);
        reserve(n_features, classes);
        int stride = shape.stride;
        while (shape.columns + n_columns > stride) stride = padded(stride + stride / 4 + 1);
        const int outputs = outputs_for(classes);
        if (stride != shape.stride || outputs != shape.outputs || !models.have_room(shape.columns + n_columns))
            reshape({shape.columns, stride, outputs}, n_columns);  // succeeds, or changes nothing
    }
    int add_feature(bool categorical, bool has_value) {
        prepare(1, has_value, n_classes);
        const int feature = table->add_feature(categorical, has_value);
        follow();
        feature_came();
        return feature;
    }
    void make_categorical(int feature, bool has_value) {
        table->make_categorical(feature, has_value);
        feature_came();
    }
    void add_level(int feature, int code) {
        prepare(0, 1, n_classes);
        table->add_level(feature, code);
        follow();
    }
    void add_missing(int feature) {
        prepare(0, 1, n_classes);
        table->add_missing(feature);
        follow();
    }
    virtual void set_classes(int classes) = 0;

    // ---- prediction
    // Linear predictors [n, outputs] of rows, and their leaves.
    void predictors_of(const double* rows, const SparseRows& held, int n, std::int32_t* leaves, double* out) const {
        Room inputs(static_cast<std::size_t>(n) * shape.stride);
        table->fill_inputs(f, rows, n, shape.stride, inputs.data());
        typename Kind::Predicting predict(f, shape);
        for (int i = 0; i < n; i++, out += shape.outputs) {
            leaves[i] = nodes.leaf_of(rows + static_cast<long>(i) * table->n_features());
            const Model& model = models[nodes[leaves[i]].model];
            const double* plain = inputs.data() + static_cast<long>(i) * shape.stride;
            if (i == 0 || leaves[i] != leaves[i - 1]) predict.by(model, models.renewed(model));
            Room bent(model.bends.n() > 0 ? model.stride : 0);
            predict_bent(predict, model, rows + static_cast<long>(i) * table->n_features(), plain, bent.data(), out);
            predict.add(*table, held.from(i), out);
        }
    }
    int n_outputs() const { return shape.outputs; }
    double predicting_work() const { return 30.0 + shape.size(); }  // estimated nanoseconds per row
    void probabilities_of(int leaf, const double* predictors, double* out) const {
        rules(loss_of_classes(n_classes)).read(loss_state(leaf), predictors, n_classes, out);
    }
    // The most probable class; the first one if several are equal.
    int class_of(int leaf, const double* predictors) const {
        const int clear = rules(loss_of_classes(n_classes)).clear_choice(loss_state(leaf), predictors, n_classes);
        if (clear >= 0) return clear;
        Room probabilities(n_classes);
        probabilities_of(leaf, predictors, probabilities.data());
        return static_cast<int>(std::max_element(probabilities.data(), probabilities.data() + n_classes) -
                                probabilities.data());
    }
    bool has_model(int node) const { return nodes[node].model >= 0; }
    // Weights [outputs, stride] in the shape of the node's model. A leaf's prediction is linear, even with a renewed model.
    void weights_of(int node, double* out) const {
        const Model& model = models[nodes[node].model];
        const Shape s = model.shape(shape);
        Kind::weights(f, s, model, out);
        const Model* const renewed = models.renewed(model);
        if (!renewed) return;
        Room other(s.size());
        Kind::weights(f, s, *renewed, other.data());
        const double share = model.renewed.share();
        for (int i = 0; i < s.size(); i++) out[i] = (1.0 - share) * out[i] + share * other.data()[i];
    }
    Shape shape_of(int node) const { return models[nodes[node].model].shape(shape); }
    const Bends& bends_of(int node) const { return models[nodes[node].model].bends; }

protected:
    // Predicts a row by a model that may have bends. `plain` are the inputs that all models have; `bent` is room for more.
    void predict_bent(typename Kind::Predicting& predict, const Model& model, const double* row, const double* plain,
                      double* bent, double* out) const {
        if (model.bends.n() == 0) return predict(plain, out);
        table->fill_bends(f, row, plain, model.bends, model.stride, bent);
        predict(bent, out);
    }
    // Adds the new columns of the table to the models; prepare() has made room for them.
    void follow() {
        while (shape.columns < table->n_columns()) {
            models.add_column(shape, shape.columns++);
            column_came();
        }
    }
    // Makes room for so many more nodes in everything that is kept by node; capacity doubles.
    void make_places(int n_more) {
        const int n = nodes.size_with(n_more);
        const int room =
            n > static_cast<int>(nodes.all.capacity()) ? std::min(std::max(n, 2 * nodes.size()), nodes.most()) : n;
        nodes.all.reserve(room);
        reserve_nodes(room);
    }
    const LossState& loss_state(int leaf) const { return models[nodes[leaf].model].loss; }

    // ---- growth, for subclasses
    virtual int outputs_for(int classes) const = 0;
    virtual void reserve(int n_features, int classes) = 0;
    virtual void reserve_nodes(int n) = 0;
    virtual void reshape(const Shape& to, int n_more) = 0;  // wider stride or more outputs, room for n_more columns
    virtual void feature_came() {}
    virtual void column_came() {}
};

}  // namespace driftree
