// FimtddEngine: the FIMT-DD tree as parallel arrays indexed by node id, and the work per row over them.
//
// It holds no policy: it routes rows, trains the leaves' models, keeps their split points and the Page-Hinkley sums of
// the inner nodes, and stops at the row at which a node is due. What is split or deleted is decided in Python
// (baselines/fimtdd_tree.py).
#pragma once
#include <cstdint>
#include <vector>

#include "rows.hpp"
#include "simple_models.hpp"
#include "split_points.hpp"
#include "turns.hpp"

namespace driftree {

struct FimtddSettings {
    double learning_rate = 0.01;
    double grace_period = 200.0;     // rows of a leaf between two looks at its splits
    double drift_tolerance = 0.005;  // Page-Hinkley: alpha
    double drift_threshold = 50.0;   // Page-Hinkley: lambda
    double drift_rows = 30.0;        // rows that an inner node sees before it may alarm
    int max_nodes = 255;
};

// One step of the Page-Hinkley test: how far has the sum of (error - mean - tolerance) risen above its least value?
inline void page_hinkley_step(double error, double weight, double tolerance, double& n, double& mean, double& sum,
                              double& least) {
    n += weight;
    mean += weight * (error - mean) / n;
    sum += weight * (error - mean - tolerance);
    least = sum < least ? sum : least;
}

// The node arrays. Ids are places in them; the root is 0, none is -1; freed ids are used again.
struct FimtddNodes {
    std::vector<std::int32_t> parent, left, right, feature, depth;
    std::vector<std::uint8_t> equality, missing_left, alive;
    std::vector<double> threshold;
    std::vector<double> rows;      // weight of the rows since the node became what it is: leaf, or inner node
    std::vector<double> tried_at;  // leaf: its rows when its splits were looked at last
    std::vector<double> error_mean, error_sum, least_sum;  // Page-Hinkley

    explicit FimtddNodes(int n) {
        for (auto* ids : {&parent, &left, &right, &feature, &depth}) ids->assign(n, -1);
        for (auto* flags : {&equality, &missing_left, &alive}) flags->assign(n, 0);
        for (auto* values : {&threshold, &rows, &tried_at, &error_mean, &error_sum, &least_sum}) values->assign(n, 0.0);
    }
    Condition condition(int i) const {
        return {feature[i], threshold[i], static_cast<bool>(equality[i]), static_cast<bool>(missing_left[i])};
    }
    template <class Archive>
    void visit(Archive& a) {
        a("parent", parent), a("left", left), a("right", right), a("feature", feature), a("depth", depth);
        a("equality", equality), a("missing_left", missing_left), a("alive", alive), a("threshold", threshold);
        a("rows", rows), a("tried_at", tried_at), a("error_mean", error_mean), a("error_sum", error_sum);
        a("least_sum", least_sum);
    }
};

class FimtddEngine {
public:
    FimtddEngine(const FimtddSettings& settings, int n_classes);
    FimtddEngine(const FimtddEngine&) = delete;
    FimtddEngine& operator=(const FimtddEngine&) = delete;

    // ---- schema
    void prepare(int n_features, int n_columns, int classes);  // so that these cannot fail
    int add_feature(bool categorical, bool has_value);
    int add_level(int feature, int code);
    int add_missing(int feature);
    void make_categorical(int feature, bool has_value);
    void set_classes(int n_classes);

    // ---- rows
    int learn(const double* X, const std::int32_t* y, const double* weights, int n);  // stops at a decision
    const std::vector<std::int32_t>& due() const { return due_; }  // parents before children
    bool has_due() const { return !due_.empty(); }
    int leaf_of(const double* x) const;
    void logits_of(const double* rows, int n, std::int32_t* leaves, double* logits) const;  // [n, outputs]
    int class_of(int leaf, const double* logits) const;              // the most probable
    void probabilities_of(int leaf, const double* logits, double* out) const;
    int n_outputs() const { return n_classes > 2 ? n_classes : 1; }  // as the user knows them
    bool has_model(int node) const { return nodes.left[node] < 0; }
    void weights_of(int leaf, double* out) const;                    // [n_outputs, stride]

    // ---- structure, for Python's decisions
    std::vector<SplitPoint> best_splits(int leaf) const;             // of every feature that has one
    void split(int leaf, const Condition& condition);
    void delete_branch(int node);

    FimtddSettings settings;
    Schema schema;
    Scaler scaler;
    Shape shape;
    FimtddNodes nodes;
    std::vector<std::vector<double>> models;  // of the leaves: a head and the weights; empty elsewhere
    std::vector<SplitPoints> split_points;    // of the leaves
    int n_classes, n_seen = 0;
    std::vector<std::int32_t> place;          // of each class in the models, in the order of their first rows; -1: none
    double clock = 0.0;
    std::int64_t n_rows = 0;
    mutable Turns turns;                      // one learns, or many predict

    template <class Archive>
    void visit(Archive& a) {
        schema.visit(a);
        scaler.visit(a);
        a("n_classes", n_classes), a("n_seen", n_seen), a("place", place);
        a("stride", shape.stride), a("clock", clock), a("n_rows", n_rows);
        a.fixed(true);
        nodes.visit(a);
        a.each("model", models, [](auto& inner, std::vector<double>& model) { inner("memory", model); });
        a.each("split_points", split_points, [](auto& inner, SplitPoints& points) { points.visit(inner); });
        a.fixed(false);
        if constexpr (Archive::kMeasures) {
            a("inputs", inputs_), a("residual", residual_), a("scratch", scratch_), a("due", due_), a("path", path_);
        }
    }
    void derive();       // what follows from what was loaded
    void heal();         // puts right what cannot be saved, before a visit that copies
    void check();        // throws unless this is a state that the engine can have made: soundness.cpp

private:
    void learn_row(const double* x, std::int32_t code, double weight);
    void arrange(const double* own, int width, double* out) const;
    void add_column();
    void reshape(int stride, int outputs);
    std::vector<std::vector<double>> moved_models(const Shape& to) const;
    void make_leaf(int node, std::vector<double>&& model, SplitPoints&& points);
    int new_node(int parent, std::vector<double>&& model, SplitPoints&& points);
    SplitPoints new_split_points() const { return {schema.n_features, std::max(n_seen, 2)}; }
    int admit(int code);

    const Functions* f_;
    std::vector<double> inputs_, residual_, scratch_;
    std::vector<std::int32_t> due_, path_;
};

}  // namespace driftree
