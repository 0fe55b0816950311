// LossTree: a tree whose nodes all have a model, and know what it has lost beside the leaves below it.
#pragma once
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "tree.hpp"

namespace driftree {

struct NodeRecord {
    double clock = 0.0, born = 0.0;               // when it was last visited, and made
    double own_loss = 0.0, subtree_loss = 0.0;    // of its own model, and of the leaves below
    double evidence = 0.0;                        // rows behind the two losses, faded like them
    double recent = 0.0;                          // own minus subtree loss lately: faded faster
    std::vector<double> class_rows;               // rows of each class, faded like the losses
    double refresh_at = 0.0;                      // rows of the node at which Python wants to look for candidates
    double split_level = 0.0, prune_level = 0.0;  // set by Python: what the gains must reach to be reported,
    double replace_level = 0.0, rest_level = std::numeric_limits<double>::infinity();  // and what lets the node rest;
    int n_splits = 0;                                                                  // of its branch
    std::int32_t rests = 0;  // who rests until the block ends: Trials::Rests
};

// What the rows of a step add to a node. Additive over rows.
struct NodeSums {
    std::int32_t node = -1;
    double rows = 0.0;                // weight of all rows that came
    double seen = 0.0;                // of those that the node looked at, each counted for all it stands for
    double own = 0.0, subtree = 0.0;  // losses of those
    std::vector<double> class_rows;

    void start(int id, int n_classes) {
        node = id;
        rows = seen = own = subtree = 0.0;
        class_rows.assign(n_classes, 0.0);
    }
    NodeSums& operator+=(const NodeSums& other) {
        rows += other.rows;
        seen += other.seen;
        own += other.own;
        subtree += other.subtree;
        for (std::size_t k = 0; k < class_rows.size(); k++) class_rows[k] += other.class_rows[k];
        return *this;
    }
    template <class Archive>
    void visit(Archive& a) {
        a("node", node), a("rows", rows), a("seen", seen), a("own", own), a("subtree", subtree);
        a("class_rows", class_rows);
    }
};

// A hash of what two trees must have in common for the sums of one to be for the other.
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

// What a split makes of a node: a condition, and the models of its children.
struct Branch {
    Condition condition;
    int left, right;
};

// What is left of faded sums after some rows.
struct Fade {
    double rows = 0.0, keep = 1.0, keep_recent = 1.0;
};

template <class Kind>
class LossTree : public Tree<Kind> {
public:
    using Tree<Kind>::Tree;
    std::vector<NodeRecord> records;  // by node
    std::int64_t n_steps = 0;
};

}  // namespace driftree
