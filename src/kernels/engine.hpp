// Engine: the tree as parallel arrays indexed by node id, and one step of accumulation over it.
//
// It holds no policy: it sums losses, gradients and counts, trains the simple models, and reports the nodes whose sums
// have crossed a level that Python set. What is split, replaced or pruned is decided in Python (learn/tree.py).
#pragma once
#include <cstdint>
#include <memory>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "candidate_step.hpp"
#include "candidates.hpp"
#include "grid.hpp"
#include "memory.hpp"
#include "rows.hpp"
#include "simple_models.hpp"
#include "turns.hpp"

namespace driftree {

struct Settings {
    bool by_gradient = false;       // the paper's setting: SGD models, candidates by gradient approximation
    double evidence_window = 20000.0;
    double learning_rate = 0.05;
    double memory = 1000.0;
    int passes = 3;
    int first_rows = 300;           // rows of a node that choose its grid
    double gain_step = 0.05;
    int candidates_per_feature = 3;
    double replacement_rate = 0.5;
    std::uint64_t seed = 1;
    int max_nodes = 255;
    int trials = 3;                 // places for trials per node
};

// The node arrays. Ids are places in them; the root is 0, none is -1; freed ids are used again.
struct Nodes {
    std::vector<std::int32_t> parent, left, right, feature, depth, model;
    std::vector<std::uint8_t> equality, missing_left, alive;
    std::vector<double> threshold, rows, clock, own_loss, subtree_loss, born, refresh_at;
    std::vector<double> evidence;  // rows behind the two losses, faded like them
    std::vector<double> recent;    // what the branch earned lately: own minus subtree loss, faded kRecent times as fast
    std::vector<double> split_level, prune_level, replace_level, rest_level;  // set by Python

    explicit Nodes(int n) {
        for (auto* ids : {&parent, &left, &right, &feature, &depth, &model}) ids->assign(n, -1);
        for (auto* flags : {&equality, &missing_left, &alive}) flags->assign(n, 0);
        for (auto* values : {&threshold, &rows, &clock, &own_loss, &subtree_loss, &born, &refresh_at, &evidence, &recent,
                             &split_level, &prune_level, &replace_level, &rest_level})
            values->assign(n, 0.0);
    }
    template <class Archive>
    void visit(Archive& a) {
        a("parent", parent), a("left", left), a("right", right), a("feature", feature), a("depth", depth);
        a("model", model), a("equality", equality), a("missing_left", missing_left), a("alive", alive);
        a("threshold", threshold), a("rows", rows), a("node_clock", clock), a("own_loss", own_loss);
        a("subtree_loss", subtree_loss), a("born", born), a("refresh_at", refresh_at), a("evidence", evidence);
        a("recent", recent);
        a.derived(split_level), a.derived(prune_level), a.derived(replace_level), a.derived(rest_level);
    }
};

// Trials: two child models really trained on the rows that follow. Place `node * trials + i`; feature -1: free.
struct Trials {
    std::vector<std::int32_t> feature, slot, left_model, right_model;
    std::vector<std::uint8_t> equality, missing_left;
    std::vector<double> threshold, node_loss, subtree_loss, trial_loss, n_left, n_right, born;
    std::vector<double> evidence;  // rows behind the losses, faded like them

    explicit Trials(int n) {
        for (auto* ids : {&feature, &slot, &left_model, &right_model}) ids->assign(n, -1);
        for (auto* flags : {&equality, &missing_left}) flags->assign(n, 0);
        for (auto* values : {&threshold, &node_loss, &subtree_loss, &trial_loss, &n_left, &n_right, &born,
                             &evidence})
            values->assign(n, 0.0);
    }
    Condition condition(int t) const {
        return {feature[t], threshold[t], static_cast<bool>(equality[t]), static_cast<bool>(missing_left[t])};
    }
    template <class Archive>
    void visit(Archive& a) {
        a("trial_feature", feature), a("trial_slot", slot), a("trial_left_model", left_model);
        a("trial_right_model", right_model), a("trial_equality", equality), a("trial_missing_left", missing_left);
        a("trial_threshold", threshold), a("trial_node_loss", node_loss), a("trial_subtree_loss", subtree_loss);
        a("trial_loss", trial_loss), a("trial_n_left", n_left), a("trial_n_right", n_right), a("trial_born", born);
        a("trial_evidence", evidence);
    }
};

class Engine {
public:
    Engine(const Settings& settings, int n_classes);
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // ---- schema
    void prepare(int n_features, int n_columns, int classes);  // so that these cannot fail
    int add_feature(bool categorical, bool has_value);
    int add_level(int feature, int code);
    int add_missing(int feature);
    void make_categorical(int feature, bool has_value);
    void set_classes(int n_classes);

    // ---- one step
    void learn(const double* X, const std::int32_t* y, const double* weights, int n);
    const std::vector<std::int32_t>& due() const { return due_; }
    bool has_due() const {
        return !due_.empty() || n_changes + n_growths != n_told || n_rows >= wake_at || (challenger >= 0 && challenger_gain() >= challenger_level);
    }
    int leaf_of(const double* x) const;
    void logits_of(const double* rows, int n, std::int32_t* leaves, double* logits) const;  // [n, outputs]
    int class_of(int leaf, const double* logits) const;              // the most probable
    void probabilities_of(int leaf, const double* logits, double* out) const;
    int n_outputs() const { return shape.outputs; }
    bool has_model(int node) const { return nodes.model[node] >= 0; }

    // ---- structure, for Python's decisions
    void split_by_trial(int node, int trial);
    void split_by_candidate(int node, int candidate);
    void prune(int node);
    void choose_grid(int node, const std::vector<std::int32_t>& slots, std::vector<double> edges);
    std::vector<Proposal> proposals(int node) const;
    void start_trial(int trial, const Proposal& proposal);
    void drop_trial(int trial, double barred_until);
    void adopt_challenger();
    void weights_of(int node, double* weights) const;                // [outputs, stride]
    void settle(int node) { candidates[node].settle_all(gain_rule(), sums(node)); }  // before they are looked at
    void settle();

    Settings settings;
    Schema schema;
    Scaler scaler;
    Shape shape;
    Nodes nodes;
    Trials trials;
    std::vector<Grid> grids;
    std::vector<Candidates> candidates;
    std::vector<Lines<double>> node_gradient;        // paper: life sums, [outputs, stride]
    std::vector<std::vector<double>> class_rows;     // rows of each class at a node, faded like its losses
    std::vector<Lines<double>> models;               // empty: free
    int n_classes;
    int challenger = -1;
    double challenger_loss = 0.0, rival_loss = 0.0;  // the challenger's and the tree's, on the same rows
    double challenger_clock = 0.0, challenger_rows = 0.0;
    double challenger_level = 0.0;                   // set by Python
    double tree_loss = 0.0, tree_rows = 0.0;         // what the leaves paid, faded,
    double recent_loss = 0.0, recent_rows = 0.0;     // and kRecent times as fast
    double restless_until = 0.0;                     // on the clock; begun by Python
    double restless_rows = 0.0, alarm_level = 0.0;   // set by Python
    double clock = 0.0;
    std::int64_t n_steps = 0, n_rows = 0;
    std::int64_t n_changes = 0, n_growths = 0;       // of the tree and of the schema, since this engine was made
    std::int64_t n_told = 0;                         // how many of both Python has dealt with; set by it
    std::int64_t wake_at = std::numeric_limits<std::int64_t>::max();  // rows at which Python wants to look; set by it

    template <class Archive>
    void visit(Archive& a) {
        if constexpr (Archive::kReads) settle();  // rows that wait are not copied
        schema.visit(a);
        scaler.visit(a);
        a("n_classes", n_classes), a("stride", shape.stride);
        a("challenger", challenger), a("challenger_loss", challenger_loss), a("rival_loss", rival_loss);
        a("challenger_clock", challenger_clock), a("challenger_rows", challenger_rows);
        a("tree_loss", tree_loss), a("tree_rows", tree_rows), a("recent_loss", recent_loss);
        a("recent_rows", recent_rows), a("restless_until", restless_until);
        a.derived(challenger_level), a("clock", clock), a("n_steps", n_steps), a("n_rows", n_rows);
        a.each("model", models, [](auto& inner, Lines<double>& model) { inner("memory", model); });
        a.fixed(true);
        nodes.visit(a);
        trials.visit(a);
        a.each("grid", grids, [](auto& inner, Grid& grid) { grid.visit(inner); });
        a.each("candidates", candidates, [](auto& inner, Candidates& store) { store.visit(inner); });
        a.each("node_gradient", node_gradient, [](auto& inner, Lines<double>& g) { inner("sum", g); });
        a.each("class_rows", class_rows, [](auto& inner, std::vector<double>& counts) { inner("count", counts); });
        a.fixed(false);
        if constexpr (Archive::kMeasures) visit_scratch(a);
    }
    void make_all_places();  // before a visit that copies, and before check()
    void drop_places();      // that no node needs
    void derive();       // what follows from what was loaded
    void heal();         // puts right what cannot be saved, before a visit that copies
    void check();        // throws unless this is a state that the engine can have made: soundness.cpp

    double challenger_gain() const { return rival_loss - challenger_loss; }
    bool is_calm() const { return clock >= restless_until; }
    mutable Turns turns;  // one learns, or many predict
    Head& head(int model) { return *reinterpret_cast<Head*>(models[model].data()); }

private:
    template <class Archive>
    void visit_scratch(Archive& a) {
        chunk_.visit_scratch(a);
        candidate_step_.visit_scratch(a);
        a.each("stop", stops_, [](auto& inner, Stop& stop) { inner("rows", stop.rows); });
        a.each("pupil", pupils_, [](auto& inner, std::unique_ptr<Pupil>& p) {
            inner.owned(*p);
            inner("rows", p->rows), inner("loss", p->loss), inner("residual", p->residual);
            inner("advantage", p->advantage), inner("scratch", p->scratch);
        });
        a("node_loss", node_loss_), a("leaf_loss", leaf_loss_), a("lessons", lessons_), a("due", due_);
        a("grid_gradient", grid_scratch_.gradient), a("grid_values", grid_scratch_.values);
        a("grid_slots", grid_scratch_.slots), a("gradient_before", gradient_before_);
    }

    struct Stop {  // the rows of this step at one node
        int node;
        std::vector<std::int32_t> rows;
        double stands_for;  // how many rows each row that the node looks at counts for
    };
    struct Fade {  // what is kept of faded sums
        double rows = 0.0, keep = 1.0, keep_recent = 1.0;
    };
    struct Pupil {  // a model that learns in this step
        int model;
        std::vector<std::int32_t> rows;
        Lines<double> loss, residual, advantage, scratch;
        Visit visit() const { return {rows.data(), static_cast<int>(rows.size())}; }
        Forward before(const Shape& shape);
    };

    void check_models() const;
    void check_model(int model) const;
    void check_node(int node) const;
    struct NodeMemory {  // of a new node
        std::vector<double> class_rows;
        Lines<double> gradient;
    };
    struct Children {  // two new ones, and whose place they take
        NodeMemory left, right;
        std::vector<int> below;
    };
    Lines<double> new_model() const;
    void restart_model(Lines<double>& memory) const;
    void make_model_places(int n);
    int place_model(Lines<double>&& memory);
    void free_model(int& model);
    Lines<double> moved_model(const Lines<double>& memory, const Shape& to) const;
    NodeMemory new_sums() const;
    Children new_children(int node);
    int new_node(int parent, int model, NodeMemory&& memory);
    std::vector<int> nodes_below(int node) const;
    void remove(int node, const std::vector<int>& below);
    void release(int node);
    void add_children(int node, const Condition& condition, int left_model, int right_model, Children&& made);
    std::size_t model_size(const Shape& of) const;
    std::size_t model_size() const { return model_size(shape); }
    Condition condition(int node) const;
    void make_places(int n_nodes);
    void set_subtree_loss(int node, double loss);
    void add_column();
    void restart_grids();
    void restride(int stride, int outputs);

    Pupil& add_pupil(int model);
    const Lesson* next_lesson(int model);
    void route();
    void enlist();
    void make_room_for_step();
    void forward();
    void keep_finite(const Lesson& lesson, int model);
    void learn_models();
    void step_node(const Stop& stop);
    void step_grid(int node, const Visit& visit, const Forward& before);
    void step_trials(const Stop& stop, double keep);
    void step_candidates(int node, const Visit& visit, const Forward& before, double rows, double loss);
    void step_challenger();
    NodeSums sums(int node) const { return {nodes.rows[node], nodes.own_loss[node], node_gradient[node].data()}; }
    GainRule gain_rule() const { return {f_, shape.outputs * shape.stride, settings.gain_step}; }
    const Fade& fade_after(double rows);
    void step_calm();
    bool is_due(int node);
    bool rests(int node) const;
    bool challenger_rests() const { return learning_.spares && challenger_gain() <= -challenger_level; }
    void look_at(const std::vector<std::int32_t>& rows, bool rests, std::vector<std::int32_t>& seen) const;

    const Functions* f_;
    Learning learning_;
    Fade fade_;
    Chunk chunk_;
    std::vector<Stop> stops_;
    int n_stops_ = 0;
    std::vector<double> node_loss_;  // per row of the chunk: what the node at work paid,
    std::vector<double> leaf_loss_;  // and what its leaf paid
    std::vector<std::unique_ptr<Pupil>> pupils_;  // grows without moving what is there
    int n_pupils_ = 0, next_lesson_ = 0;
    std::vector<Lesson> lessons_;  // of the pupils, in their order until they learn
    GridScratch grid_scratch_;
    Lines<double> gradient_before_;
    CandidateStep candidate_step_;
    std::vector<std::int32_t> due_;
};

// The functions for the instruction sets that were built and that this machine has, narrowest first.
std::vector<const Functions*> all_functions();
// Those for the widest of them, or for the one named in DRIFTREE_ISA.
const Functions& choose_functions();

}  // namespace driftree
