// LossTree: a tree with a model at every node, which compares its loss with that of the leaves below it.
#pragma once
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "borders.hpp"
#include "tree.hpp"

namespace driftree {

struct NodeRecord {
    double clock = 0.0, born = 0.0;               // clock at the last visit, and when it was created
    double own_loss = 0.0, subtree_loss = 0.0;    // losses of its own model and of the leaves below
    double evidence = 0.0;                        // rows behind both losses, faded like them
    double recent = 0.0;                          // own minus subtree loss, faded faster
    std::vector<double> class_rows;               // rows of each class, faded like the losses
    double refresh_at = 0.0;                      // rows of the node at which Python searches for candidates again
    double split_level = 0.0, prune_level = 0.0;  // set by Python: gains from which the node is due
    double replace_level = 0.0, rest_level = std::numeric_limits<double>::infinity();  // and the level from which it rests
    int n_splits = 0;                                                                  // splits in its branch
    std::int32_t rests = 0;  // what rests until the block ends: Trials::Rests
};

// What Python has to decide about a node. The kernels only filter: whoever reaches a level is due.
struct Due {
    bool change = false;  // a split, a replacement, pruning or a shift
    bool model = false;   // the other model on trial
    bool search = false;  // new candidates, or another renewed model
    explicit operator bool() const { return change || model || search; }
};

// Sums over the rows of a step at a node; additive over rows.
struct NodeSums {
    std::int32_t node = -1;
    double rows = 0.0;                // weight of all rows
    double seen = 0.0;                // weight of the rows that the node learnt, each counted for all that it stands for
    double own = 0.0, subtree = 0.0;  // losses of these rows
    double told = 0.0;                // of a leaf: losses of its predictions, with its renewed model
    std::vector<double> class_rows;
    BorderSums border;  // of an inner node: the rows near its threshold

    void start(int id, int n_classes) {
        node = id;
        rows = seen = own = subtree = told = 0.0;
        class_rows.assign(n_classes, 0.0);
        border.all.clear();
    }
    NodeSums& operator+=(const NodeSums& other) {
        rows += other.rows;
        seen += other.seen;
        own += other.own;
        subtree += other.subtree;
        told += other.told;
        for (std::size_t k = 0; k < class_rows.size(); k++) class_rows[k] += other.class_rows[k];
        border += other.border;
        return *this;
    }
    template <class Archive>
    void visit(Archive& a) {
        a("node", node), a("rows", rows), a("seen", seen), a("own", own), a("subtree", subtree), a("told", told);
        a("class_rows", class_rows), a("border", border.all);
    }
};

// A hash of all that two trees must have in common so that sums of one can be added to the other.
class Fingerprint {
public:
    void add(std::int64_t number) { state_ = mix64(state_ + static_cast<std::uint64_t>(number)); }
    void add(double number) { add(std::bit_cast<std::int64_t>(number)); }
    void add(const Condition& condition) {
        add(std::int64_t{condition.feature}), add(condition.threshold);
        add(std::int64_t{condition.equality}), add(std::int64_t{condition.missing_left});
    }
    std::int64_t value() const { return std::bit_cast<std::int64_t>(state_); }

private:
    std::uint64_t state_ = 0;
};

// The result of a split: a condition and the models of both children.
struct Branch {
    Condition condition;
    int left, right;
};

// How much of the faded sums remains after some rows.
struct Fade {
    double rows = 0.0, keep = 1.0, keep_recent = 1.0;
};

template <class Kind>
class LossTree : public Tree<Kind> {
public:
    using Tree<Kind>::Tree;
    std::vector<NodeRecord> records;  // by node
    std::vector<Border> borders;      // by node; none before the first split, since many trees are never split
    bool shift_is_due(int node) const {
        if (node >= std::ssize(borders) || this->nodes[node].is_leaf()) return false;
        return borders[node].is_due(this->nodes[node].condition.threshold, range_at(node));
    }
    // The best other threshold of an inner node.
    Shift best_shift(int node) const { return borders[node].best(this->nodes[node].condition.threshold, range_at(node)); }

private:
    Range range_at(int node) const {
        const int feature = this->nodes[node].condition.feature;
        return {this->table->scaler.low[feature], this->table->scaler.high[feature]};
    }

public:
    std::int64_t n_steps = 0;
};

}  // namespace driftree
