// FimtddTree: FIMT-DD on the same table, nodes, models and prediction as the Dynamic Model Tree. The differences: only
// leaves have models, leaves have split points, inner nodes have Page-Hinkley tests, and rows are learnt one by one, up to
// the row at which a node is due. Python decides which nodes are split or deleted (baselines.py).
#pragma once
#include <cstdint>
#include <vector>

#include "split_points.hpp"
#include "target.hpp"
#include "tree.hpp"

namespace driftree {

// One step of the Page-Hinkley test: how far the sum of (error - mean - tolerance) has risen above its minimum.
inline void page_hinkley_step(double error, double weight, double tolerance, double& n, double& mean, double& sum,
                              double& least) {
    n += weight;
    mean += weight * (error - mean) / n;
    sum += weight * (error - mean - tolerance);
    least = sum < least ? sum : least;
}

class FimtddTree final : public Tree<Sgd> {
public:
    struct Settings {
        SgdRates model = {0.01};
        double grace_period = 200.0;     // rows of a leaf between two split attempts
        double drift_tolerance = 0.005;  // Page-Hinkley: alpha
        double drift_threshold = 50.0;   // Page-Hinkley: lambda
        double drift_rows = 30.0;        // rows that an inner node needs before it may raise an alarm
        int max_nodes = 255;
        bool has_labels = true;  // otherwise the target is a number
    };
    struct Record {
        double tried_at = 0.0;                                      // leaf: its rows at the last split attempt
        double error_mean = 0.0, error_sum = 0.0, least_sum = 0.0;  // inner node: Page-Hinkley
    };
    FimtddTree(const Settings& settings, int n_classes);

    bool has_labels() const { return settings.has_labels; }
    int learn(const Given& given, int n);                          // up to the first row at which a node is due
    const std::vector<std::int32_t>& due() const { return due_; }  // parents before children
    bool has_due() const { return !due_.empty(); }

    // In the user's order of the classes; the models have them in order of first appearance.
    int n_outputs() const { return n_classes > 2 ? n_classes : 1; }
    double number_of(int, const double* predictors) const { return target.unscaled(predictors[0]); }
    void numbers_of(int leaf, const double* predictors, double* out) const { out[0] = number_of(leaf, predictors); }
    void predictors_of(const double* rows, const SparseRows& held, int n, std::int32_t* leaves, double* out) const;
    void weights_of(int leaf, double* out) const;  // [n_outputs, stride]
    void set_classes(int classes) override;

    // ---- structure, called by Python's decisions
    std::vector<SplitPoint> best_splits(int leaf) const;  // the best split of every feature that has one
    void split(int leaf, const Condition& condition);
    void delete_branch(int node);

    Settings settings;
    NumberTarget target;
    std::vector<Record> records;            // by node
    std::vector<SplitPoints> split_points;  // by node; only leaves have them
    int n_seen = 0;
    std::vector<std::int32_t> place;  // index of each class in the models; -1: no row yet

    template <class Archive>
    void visit(Archive& a) {
        table->visit(a);
        if (!has_labels()) target.visit(a);
        a("n_classes", n_classes), a("n_seen", n_seen), a("place", place);
        a("stride", shape.stride), a("clock", clock), a("n_rows", n_rows);
        models.visit(a);
        nodes.visit(a);
        a.each("sums", records, [](auto& inner, Record& record) {
            inner("tried_at", record.tried_at), inner("error_mean", record.error_mean);
            inner("error_sum", record.error_sum), inner("least_sum", record.least_sum);
        });
        a.each("split_points", split_points, [](auto& inner, SplitPoints& points) { points.visit(inner); });
        if constexpr (Archive::kMeasures) {
            a("inputs", inputs_), a("residual", residual_), a("said", said_), a("scratch", scratch_), a("due", due_),
                a("path", path_);
            a("lessons", lessons_);
        }
    }
    void derive();  // recomputes what is not stored, after loading
    void heal();    // repairs what cannot be saved, before a visit that copies
    void check();   // throws unless the tree could have reached this state: soundness.cpp

private:
    void learn_row(const double* x, double given, double weight);
    void learn_target(double y, double weight);
    LossKind loss_for(int classes) const { return has_labels() ? loss_of_classes(classes) : kGaussian; }
    int n_sums() const { return has_labels() ? std::max(n_seen, 2) : static_cast<int>(kNumberSums); }  // per split point
    void arrange(const double* own, int width, double* out) const;
    int admit(int code);
    void make_leaf(int node, int model, SplitPoints&& points);
    int add_leaf(int parent, int model, SplitPoints&& points);
    SplitPoints new_split_points() const { return {table->n_features(), n_sums()}; }

    int outputs_for(int) const override { return shape.outputs; }
    void reserve(int n_features, int classes) override;
    void reserve_nodes(int n) override;
    void reshape(const Shape& to, int n_more) override;
    void feature_came() override;

    std::vector<double> inputs_, residual_, said_, scratch_;
    std::vector<std::int32_t> due_, path_;
    std::vector<Lesson> lessons_;
};

}  // namespace driftree
