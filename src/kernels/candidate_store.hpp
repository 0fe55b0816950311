// CandidateStore: the paper's evidence. Every node stores split candidates with gradients, counts and losses, and
// approximates their gains by one gradient step, (6) and (7). Nothing fades.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "candidate_step.hpp"
#include "candidates.hpp"
#include "loss_tree.hpp"
#include "step.hpp"

namespace driftree {

struct CandidateRates {             // passed by Python
    double gain_step = 0.05;        // lambda of (6) and (7)
    int per_feature = 3;            // candidates stored per feature
    double replacement_rate = 0.5;  // share of the store that one step may replace
};

class CandidateStore {
public:
    using Kind = Sgd;
    static constexpr Scaling kScaling = Scaling::range;

    CandidateStore(LossTree<Sgd>& tree, const CandidateRates& rates, std::uint64_t) : rates(rates), tree_(tree) {}

    CandidateRates rates;
    std::vector<Candidates> stores;        // by node
    std::vector<Lines<double>> gradients;  // by node: sum since it was created, [outputs, stride]

    // ---- sums of one step
    struct Part {
        CandidateSums sums;
        void start() {}
        Part& operator+=(const Part& other) {
            sums += other.sums;
            return *this;
        }
        template <class Archive>
        void visit(Archive& a) {
            sums.visit(a);
        }
    };
    struct Whole {  // empty
        Whole& operator+=(const Whole&) { return *this; }
        template <class Archive>
        void visit(Archive&) {}
    };
    struct Lessons {};
    struct Scratch {
        [[no_unique_address]] Lessons lessons;
        CandidateStep step;
        bool may_wait = false;  // a single row may wait until it is needed
        int n_threads = 1;
        template <class Archive>
        void visit_scratch(Archive& a) {
            step.visit_scratch(a);
        }
    };

    void begin_step() {}
    bool spares() const { return false; }
    static constexpr bool kWaits = false;  // rows that come one at a time are learnt at once
    void look(Stop& stop) const { stop.stands_for = 1.0; }
    bool trials_rest(int) const { return false; }
    void choose_rows(Step&) const {}
    void choose_rows(const Step&, const std::vector<std::int32_t>& rows, double, std::vector<std::int32_t>& seen) const {
        seen = rows;
    }
    void enlist(Step&, Stop&, const Pupil&) const {}
    void enlist_last(Step&) const {}
    void add_to(Fingerprint& print) const {
        for (const Candidates& store : stores)
            for (int k = 0; k < store.n(); k++) print.add(std::int64_t{store.feature[k]}), print.add(store.value[k]);
    }
    void make_room(const Step&, int n_threads, Scratch& scratch, Part&) {
        scratch.may_wait = true;
        scratch.n_threads = n_threads;
    }
    // Checks that sums from elsewhere fit this node.
    void make_room_for(int node, const Part& part) {
        const CandidateSums& sums = part.sums;
        const std::size_t n = stores[node].n(), size = tree_.shape.size();
        if (sums.gradient.size() != size || sums.n_left.size() != n || sums.loss_left.size() != n ||
            sums.has_left.size() != n || sums.gradient_left.size() != n * size || !sums.row.empty())
            throw std::invalid_argument("the sums do not fit the node's candidates");
    }
    void find_lessons(Step&, const Stop&, Lessons&) const {}
    void accumulate(Step& step, Scratch& scratch, const Stop& stop, Lessons&, const Lesson* own, int, Part& part) const {
        const Visit visit = own ? own->visit : Visit{nullptr, 0};
        const Forward before = own ? own->before : Forward{};
        scratch.step.begin(tree_.f, tree_.shape, tree_.table->schema, step.chunk, visit, before, rates.gain_step,
                           scratch.n_threads);
        scratch.step.accumulate(stores[stop.node], scratch.may_wait, part.sums);
    }
    void accumulate_last(Step&, Whole&) const {}
    void accumulate_grid(const Step&, const Stop&, Part&) const {}  // there is no grid
    void absorb_grid(int, Part&) {}
    void learn_grid(const Step&, const Stop&, const Visit&, const Features&, Scratch&, int) {}
    double grid_work(int) const { return 0.0; }
    Fade fade_after(double) const { return {}; }
    // The node's own sums already include the step's rows.
    void absorb(int node, const Fade&, const NodeSums& sums, Part& part) {
        Candidates& store = stores[node];
        Lines<double>& gradient = gradients[node];
        before_ = gradient;
        for (std::size_t i = 0; i < gradient.size(); i++) gradient[i] += part.sums.gradient[i];
        const LifeSums now = life(node), then = {now.n - sums.rows, now.loss - sums.own, before_.data()};
        const GainRule rule = gain_rule();
        if (!part.sums.row.empty()) {
            std::copy(part.sums.gradient.begin(), part.sums.gradient.end(),
                      store.next_waiting(rule, tree_.table->schema, then));
            store.add_waiting(rule, part.sums.row.data(), sums.rows, sums.own, part.sums.length, now);
            return;
        }
        store.settle_all(rule, then);
        for (int k = 0; k < store.n(); k++) {
            if (!part.sums.has_left[k]) {
                store.settle(rule, k, now);
                continue;
            }
            store.n_left[k] += part.sums.n_left[k];
            store.loss_left[k] += part.sums.loss_left[k];
            store.settle_with(rule, k, part.sums.gradient_left.data() + static_cast<long>(k) * rule.size, now);
        }
    }
    void absorb_last(const Whole&) {}
    // To be called after absorb(), with the scratch of accumulate().
    void renew(Step&, Scratch& scratch, int node, const NodeSums& sums) {
        const LifeSums now = life(node), then = {now.n - sums.rows, now.loss - sums.own, before_.data()};
        const int budget = rates.per_feature * tree_.table->n_features();
        scratch.step.renew(stores[node], then, now, budget, static_cast<int>(rates.replacement_rate * budget));
    }

    // Clears all sums when the unit of the target changes, as they mean nothing in the new one.
    void convert(const Conversion&) {
        for (Candidates& store : stores) store.clear();
        for (Lines<double>& gradient : gradients) std::fill(gradient.begin(), gradient.end(), 0.0);
        for (NodeRecord& record : tree_.records) record.own_loss = record.subtree_loss = 0.0;
    }

    // ---- whether anything is due: a cheap filter; Python decides
    bool is_due(int node) {
        const NodeRecord& record = tree_.records[node];
        const bool is_leaf = tree_.nodes[node].is_leaf();
        const double more = is_leaf ? 0.0 : record.subtree_loss - record.own_loss;
        const double level = is_leaf ? record.split_level : record.replace_level;
        const double nearly = level - more - 1e-9 * (std::abs(level) + std::abs(more));
        const double best = stores[node].best_gain(gain_rule(), life(node), nearly);
        return best >= 0.0 && more + best >= level;
    }
    Due due(int) const { return {true}; }  // to tell for sure, the gains would have to be computed
    bool is_link_due() const { return false; }

    // ---- structure
    void reserve_nodes(int n) {
        stores.reserve(n);
        gradients.reserve(n);
    }
    using Memory = Lines<double>;  // memory of a new node: its gradient
    Memory new_memory() const { return Memory(tree_.shape.size(), 0.0); }
    void add_node(int node, Memory&& memory) {
        if (node >= std::ssize(stores)) {
            stores.resize(node + 1);
            gradients.resize(node + 1);
        }
        gradients[node].swap(memory);
    }
    void release(int node) {
        stores[node].clear();
        Lines<double>().swap(gradients[node]);
    }
    struct Draft {
        Model left, right;
        double left_loss = 0.0, right_loss = 0.0, n_left = 0.0, n_right = 0.0;
    };
    // Children by (6) and (7): theta - lambda / n * gradient, and their share of the loss minus their part of the gain.
    Draft draft(int node, int k) {
        settle(node);
        const Candidates& store = stores[node];
        if (k < 0 || k >= store.n()) throw std::out_of_range("the node has no such candidate");
        tree_.models.make_places(2);
        const Model& own = tree_.models[tree_.nodes[node].model];
        Draft made = {own, own};
        const int size = tree_.shape.size();
        const double* left_gradient = store.gradient_left.data() + static_cast<long>(k) * size;
        const double* before = store.gradient_before.data() + static_cast<long>(k) * size;
        const double n[2] = {store.n_left[k], tree_.nodes[node].rows - store.n_before[k] - store.n_left[k]};
        const double own_loss = tree_.records[node].own_loss, window_loss = own_loss - store.loss_before[k];
        const double left_share = window_loss > 0.0 ? store.loss_left[k] / window_loss : 0.5;
        double losses[2] = {own_loss * left_share, own_loss * (1.0 - left_share)};
        Model* sides[2] = {&made.left, &made.right};
        for (int i = 0; i < size; i++) {
            const double g[2] = {left_gradient[i], gradients[node][i] - before[i] - left_gradient[i]};
            for (int side = 0; side < 2; side++) {
                sides[side]->numbers[i] -= rates.gain_step / n[side] * g[side];
                losses[side] -= rates.gain_step / n[side] * g[side] * g[side];
            }
        }
        made.left_loss = losses[0];
        made.right_loss = losses[1];
        made.n_left = n[0];
        made.n_right = n[1];
        return made;
    }
    Branch take(int node, int k, Draft& draft) {
        const std::int32_t feature = stores[node].feature[k];
        const Condition condition = {feature, stores[node].value[k], tree_.table->schema.is_categorical[feature], 0};
        const int left = tree_.models.place(std::move(draft.left));
        return {condition, left, tree_.models.place(std::move(draft.right))};
    }
    void children_came(int node, const Draft& draft) {
        NodeRecord &own = tree_.records[node], &left = tree_.records[tree_.nodes[node].left],
                   &right = tree_.records[tree_.nodes[node].right];
        left.own_loss = left.subtree_loss = draft.left_loss;
        right.own_loss = right.subtree_loss = draft.right_loss;
        left.evidence = own.evidence * draft.n_left / (draft.n_left + draft.n_right);
        right.evidence = own.evidence * draft.n_right / (draft.n_left + draft.n_right);
        set_subtree_loss(node, draft.left_loss + draft.right_loss);
    }
    // The loss of a subtree is the sum over its leaves, so it changes for all nodes above as well.
    void set_subtree_loss(int node, double loss) {
        const double change = loss - tree_.records[node].subtree_loss;
        for (int above = tree_.nodes[node].parent; above >= 0; above = tree_.nodes[above].parent)
            tree_.records[above].subtree_loss += change;
        tree_.records[node].subtree_loss = loss;
    }
    void settle(int node) { stores[node].settle_all(gain_rule(), life(node)); }  // before candidates are read
    void settle() {
        for (int node = 0; node < tree_.nodes.size(); node++)
            if (tree_.nodes[node].is_alive) settle(node);
    }
    void make_challenger() {}
    void drop_challenger() {}

    // ---- growth
    void feature_came() {}
    struct Moved {
        std::vector<Candidates> stores;
        std::vector<Lines<double>> gradients;
    };
    // With more outputs, sums of gradients start again from 0.
    Moved reshaped(const Shape& to) const {
        Moved moved = {stores, gradients};
        const int stride = tree_.shape.stride;
        const bool keeps_sums = to.outputs == tree_.shape.outputs;
        for (Candidates& store : moved.stores) {
            if (!keeps_sums) store.clear();
            store.gradient_left = widened(store.gradient_left, stride, to.stride);
            store.gradient_before = widened(store.gradient_before, stride, to.stride);
        }
        for (auto& gradient : moved.gradients) {
            if (gradient.empty()) continue;
            gradient = keeps_sums ? widened(gradient, stride, to.stride) : Lines<double>(to.size(), 0.0);
        }
        return moved;
    }
    void take_reshaped(Moved& moved) {
        stores.swap(moved.stores);
        gradients.swap(moved.gradients);
    }
    using Kept = Moved;
    Kept kept() const { return {stores, gradients}; }
    void put_back(Kept& then) { take_reshaped(then); }
    template <class Archive>
    void visit(Archive& a) {
        a.each("candidates", stores, [](auto& inner, Candidates& store) { store.visit(inner); });
        a.each("node_gradient", gradients, [](auto& inner, Lines<double>& g) { inner("sum", g); });
        if constexpr (Archive::kMeasures) a("before", before_);
    }

    LifeSums life(int node) const { return {tree_.nodes[node].rows, tree_.records[node].own_loss, gradients[node].data()}; }
    GainRule gain_rule() const { return {&tree_.f, tree_.shape.size(), rates.gain_step}; }

private:
    LossTree<Sgd>& tree_;
    Lines<double> before_;  // the current node's gradient before the step
};

}  // namespace driftree
