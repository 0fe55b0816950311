// Nodes: the links of a tree, and the path of a row from the root to a leaf.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "memory.hpp"

namespace driftree {

struct Condition {  // the rows that go left
    std::int32_t feature = -1;
    double threshold = 0.0;
    std::uint8_t equality = 0;
    std::uint8_t missing_left = 0;
    bool holds(const double* x) const {
        const double v = x[feature];
        if (std::isnan(v)) return missing_left;
        return equality ? v == threshold : v <= threshold;
    }
};

struct Node {
    std::int32_t parent = -1, left = -1, right = -1, depth = 0, model = -1;
    std::uint8_t is_alive = 0;
    Condition condition;
    double rows = 0.0;  // weight of the rows since the node was created or last changed
    bool is_leaf() const { return left < 0; }
};

// An id is a place; the root is 0, none is -1; freed places are reused. There are only as many as were ever needed.
class Nodes {
public:
    explicit Nodes(int most) : most_(most) {}
    std::vector<Node> all;

    Node& operator[](int id) { return all[id]; }
    const Node& operator[](int id) const { return all[id]; }
    int size() const { return static_cast<int>(all.size()); }
    int most() const { return most_; }
    bool has(int id) const { return id >= 0 && id < size() && all[id].is_alive; }
    int n_alive() const {
        return static_cast<int>(std::count_if(all.begin(), all.end(), [](const Node& node) { return node.is_alive; }));
    }
    int leaf_of(const double* x, int id = 0) const {
        while (!all[id].is_leaf()) id = all[id].condition.holds(x) ? all[id].left : all[id].right;
        return id;
    }
    std::vector<int> below(int id) const {
        std::vector<int> found;
        const auto add_children_of = [&](int above) {
            if (!all[above].is_leaf()) found.insert(found.end(), {all[above].left, all[above].right});
        };
        add_children_of(id);
        for (std::size_t i = 0; i < found.size(); i++) add_children_of(found[i]);
        return found;
    }
    // Number of places after adding n nodes.
    int size_with(int n) const {
        int place = 0;
        for (; n > 0; place++) n -= place >= size() || !all[place].is_alive;
        if (place > most_) throw std::length_error("the tree has no room for two more nodes");
        return std::max(place, size());
    }
    // Adds a node at the first free place. The tree's make_places() has made room for it.
    int add(int parent, int model) {
        int id = 0;
        while (id < size() && all[id].is_alive) id++;
        if (id == size()) all.emplace_back();
        all[id] = Node();
        all[id].is_alive = 1;
        all[id].parent = parent;
        all[id].depth = parent < 0 ? 0 : all[parent].depth + 1;
        all[id].model = model;
        return id;
    }
    template <class Archive>
    void visit(Archive& a) {
        a.each("node", all, [](auto& inner, Node& node) {
            inner("parent", node.parent), inner("left", node.left), inner("right", node.right), inner("depth", node.depth);
            inner("model", node.model), inner("is_alive", node.is_alive), inner("feature", node.condition.feature);
            inner("threshold", node.condition.threshold), inner("equality", node.condition.equality);
            inner("missing_left", node.condition.missing_left), inner("rows", node.rows);
        });
    }

private:
    int most_;
};

}  // namespace driftree
