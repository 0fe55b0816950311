// ModelTree: the Dynamic Model Tree, composed of a kind of simple model and a kind of evidence.
//
// A step has three phases. Models predict the rows before learning them, and the losses are summed (accumulate: changes
// nothing but scratch); the sums are added to the nodes (absorb); the models learn the rows (train). Sums are additive over
// rows, so the sums of several machines for the same tree can be added and absorbed at once. Training is not additive: each
// row is learnt by models that have learnt the rows before it. Nodes whose sums have crossed a level set by Python are due;
// Python decides what is split, replaced or pruned (learn/tree.py).
#pragma once
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "candidate_store.hpp"
#include "loss_tree.hpp"
#include "step.hpp"
#include "tasks.hpp"
#include "trials.hpp"
#include "watch.hpp"

namespace driftree {

template <class Evidence>
class ModelTree final : public LossTree<typename Evidence::Kind> {
public:
    using Kind = typename Evidence::Kind;
    using Base = LossTree<Kind>;
    using Rates = decltype(Evidence::rates);
    struct Settings {
        typename Kind::Rates model;
        Rates evidence;
        std::uint64_t seed = 1;
        int max_nodes = 255;
        LossKind loss = kLogit;         // ignored for labels, whose number determines the loss
        std::vector<double> quantiles;  // ascending
        std::function<std::shared_ptr<AskedLoss>(const NumberTarget&)> asked;  // creates a custom loss
    };
    using Base::borders, Base::clock, Base::f, Base::loss, Base::models, Base::n_classes, Base::n_rows, Base::n_steps,
        Base::nodes, Base::records, Base::shape, Base::table;

    ModelTree(const Settings& given, int classes)
        : Base(given.model, Evidence::kScaling, classes, given.max_nodes), settings(given),
          has_labels_(rules(given.loss).has_labels), evidence(*this, given.evidence, given.seed) {
        loss = loss_for(classes);
        models.have_spread = !has_labels();
        target.has_log_link = rules(loss).has_log_link;
        if (loss == kQuantile) target.offset.assign(settings.quantiles.size(), 0.0);
        if (rules(loss).is_asked) {
            asked_ = settings.asked(target);
            target.has_unit = true;
            models.asked = asked_.get();
        }
        shape.outputs = outputs_of(classes);
        this->make_places(1);
        models.make_places(1);
        add_node(-1, models.place(models.fresh(shape)), new_memory());
        if (classes <= 2 && has_labels()) evidence.make_challenger();
    }

    bool has_labels() const { return has_labels_; }
    int outputs_of(int classes) const {
        return rules(loss_for(classes)).outputs(has_labels() ? classes : static_cast<int>(settings.quantiles.size()));
    }
    LossKind loss_for(int classes) const { return has_labels() ? loss_of_classes(classes) : settings.loss; }

    Settings settings;
    NumberTarget target;  // only without labels
    // For labels: for each level, the largest loss in nats of a label in the set.
    std::vector<double> label_reach = std::vector<double>(kReaches, 1.0);
    bool has_labels_;
    bool is_asking_ = false;  // a custom loss in Python
    bool had_help_ = false;   // whether the last step ran on several threads
    Evidence evidence;
    Watch watch;
    std::int64_t n_changes = 0, n_growths = 0;                        // changes of the tree and of the schema
    std::int64_t n_told = -1;                                         // both, as far as Python has dealt with them
    std::int64_t wake_at = std::numeric_limits<std::int64_t>::max();  // rows from which something is due; set by Python
    std::int64_t look_at = std::numeric_limits<std::int64_t>::max();  // the same, for sparse features worth a column

    // ---------------------------------------------------------------- one step
    struct Part {
        NodeSums node;
        typename Evidence::Part evidence;
    };
    struct Sums {                 // over rows, for a tree
        std::vector<Part> parts;  // one per node that they passed, children before parents
        typename Evidence::Whole whole;
        double weight = 0.0;
        std::int64_t n_rows = 0, n_steps = 0;
        std::int64_t tree = 0;  // fingerprint of their tree

        Sums& operator+=(const Sums& other) {
            if (other.n_rows == 0) return *this;
            if (n_rows == 0) return *this = other;
            if (tree != other.tree) throw std::invalid_argument("sums for different trees cannot be added");
            for (const Part& part : other.parts) {
                const auto own = std::find_if(parts.begin(), parts.end(),
                                              [&](const Part& one) { return one.node.node == part.node.node; });
                if (own == parts.end()) {
                    parts.push_back(part);
                } else {
                    own->node += part.node;
                    own->evidence += part.evidence;
                }
            }
            whole += other.whole;
            weight += other.weight;
            n_rows += other.n_rows;
            n_steps += other.n_steps;
            return *this;
        }
        template <class Archive>
        void visit(Archive& a) {
            a("weight", weight), a("n_rows", n_rows), a("n_steps", n_steps), a("tree", tree);
            whole.visit(a);
            if (n_rows == 0) return;  // no parts
            a.each("part", parts, [](auto& inner, Part& part) {
                part.node.visit(inner);
                part.evidence.visit(inner);
            });
        }
    };

    // A custom loss may fail at any time: then the tree is restored. `scaled` becomes true when the table has read the rows:
    // trees that share its scale wait for that.
    void learn(const Given& given, int n, std::atomic<bool>* scaled = nullptr) {
        if (!asked_) return take_step(given, n, scaled);
        if (is_asking_) throw std::logic_error(kInside);
        Kept before = kept();
        is_asking_ = true;
        try {
            take_step(given, n, scaled);
        } catch (...) {
            put_back(before);
            is_asking_ = false;
            throw;
        }
        is_asking_ = false;
    }

    // Rows that come one at a time may be buffered: their leaves' models have learnt them, which is all that predictions
    // need. Inner nodes, trials, grids and the challenger learn them in blocks, each model its own rows one by one, as if
    // each had been a step of its own. Before anything else is read, the tree settles; this does not change what is learnt,
    // but may fail for lack of memory: then the rows stay buffered.
    int n_waiting() const { return waiting_.n; }
    bool has_waiting() const { return n_waiting() > 0; }
    void settle() {
        if (!has_waiting()) return;
        prepare_to_settle(waiting_.n);
        finish_waiting();
    }

    // Sums over rows for the present tree, which stays unchanged.
    Sums accumulate(const Given& given, int n) const {
        Sums sums;
        if (n == 0) return sums;
        if (is_asking_) throw std::logic_error(kInside);
        sums.tree = fingerprint();
        Step step;
        typename Evidence::Scratch scratch;
        read(step, given, n);
        scale_targets(step);
        scale(step, 1);
        judge(step, 1);
        for (int s = step.n_stops - 1; s >= 0; s--) {
            Part& part = sums.parts.emplace_back();
            accumulate(step, scratch, step.stops[s], part);
            evidence.accumulate_grid(step, step.stops[s], part.evidence);
        }
        evidence.accumulate_last(step, sums.whole);
        for (int i = 0; i < n; i++) sums.weight += step.chunk.weights[i];
        sums.n_rows = n;
        sums.n_steps = 1;
        return sums;
    }
    // Adds sums that were accumulated for this very tree, possibly elsewhere.
    void absorb(Sums sums) {
        if (sums.n_rows == 0) return;
        if (sums.tree != fingerprint())
            throw std::invalid_argument("these sums are for another tree, or for this one before it changed");
        due_.clear();
        due_.reserve(sums.parts.size());
        for (const Part& part : sums.parts) {
            if (!nodes.has(part.node.node) || std::ssize(part.node.class_rows) != n_classes)
                throw std::invalid_argument("the sums have a node that the tree has not");
            check_border(part.node);
            evidence.make_room_for(part.node.node, part.evidence);
            reserve_border(part.node.node);
        }
        clock += sums.weight;
        n_rows = std::min(n_rows + sums.n_rows, kMostRows);
        n_steps = std::min(n_steps + sums.n_steps, n_rows);
        for (Part& part : sums.parts) {
            absorb_lead(part);
            absorb(part, clock);
            evidence.absorb_grid(part.node.node, part.evidence);
        }
        evidence.absorb_last(sums.whole);
        for (const Part& part : sums.parts) begin_border(part.node.node);  // so that copies of this tree have the same band
        for (const Part& part : sums.parts)
            if (is_due(part.node.node)) due_.push_back(part.node.node);
    }

    // Work of the tasks of the last step, longest first; empty if it ran on one thread.
    std::vector<double> task_work() const {
        std::vector<double> work;
        for (std::size_t i = 0; i < tasks_.all.size() && had_help_; i++) work.push_back(tasks_.all[i].work);
        return work;
    }
    bool asks() const { return asked_ != nullptr; }  // has a custom loss
    const std::vector<std::int32_t>& due() const { return due_; }
    bool has_due() const {
        return !due_.empty() || n_changes + n_growths != n_told || n_rows >= wake_at || n_rows >= look_at || is_link_due() ||
               watch.has_alarm();
    }
    Due due_at(int node) const {
        Due due = evidence.due(node);
        due.change = due.change || prune_is_due(node) || this->shift_is_due(node);
        return due;
    }
    bool is_link_due() const { return !is_in_block() && evidence.is_link_due(); }  // nothing is decided within a block

    // ---------------------------------------------------------------- structure, called by Python's decisions
    // Splits a node by one of its candidates; the branch of an inner node is removed.
    void split(int node, int place) {
        auto draft = evidence.draft(node, place);
        const std::vector<int> below = nodes.below(node);
        if (below.empty()) this->make_places(2);
        borders.resize(std::max<std::size_t>(borders.size(), nodes.size_with(below.empty() ? 2 : 0)));
        Memory left = new_memory(), right = new_memory();  // from here on nothing can fail
        remove(node, below);
        const auto branch = evidence.take(node, place, draft);
        nodes[node].condition = branch.condition;
        const int first = add_node(node, branch.left, std::move(left));
        const int second = add_node(node, branch.right, std::move(right));
        nodes[node].left = first;
        nodes[node].right = second;
        evidence.children_came(node, draft);
        n_changes++;
    }
    void prune(int node) { remove(node, nodes.below(node)); }
    // Moves the threshold of a split to where that saves most; both sides stay.
    void shift(int node)
        requires Evidence::kWaits
    {
        const Shift best = nodes[node].is_leaf() ? Shift() : this->best_shift(node);
        if (!(best.gain > 0.0)) throw std::invalid_argument("the node has no other threshold");
        const std::vector<int> left = nodes.below(nodes[node].left), right = nodes.below(nodes[node].right);
        nodes[node].condition.threshold = best.threshold;  // from here on nothing can fail
        borders[node].restart();
        evidence.threshold_moved(node, left, right);
        n_changes++;
    }
    // Replaces the node's model by the one on trial with other bends.
    void bend(int node)
        requires requires(Evidence& e) { e.take_bend(node); }
    {
        evidence.take_bend(node);
        n_changes++;
    }
    // Restarts the tree from the challenger.
    void adopt_challenger()
        requires requires(Evidence& e) { e.draft_exchange(); }
    {
        auto made = evidence.draft_exchange();
        const std::vector<int> below = nodes.below(0);
        Memory memory = new_memory();
        remove(0, below);
        models.drop_renewed(models[nodes[0].model]);
        const int plain = made.has_floor ? std::exchange(nodes[0].model, -1) : -1;
        release(0);
        add_node(-1, evidence.take_exchange(plain, made), std::move(memory));
        n_changes++;
    }
    // The predicted number; of several outputs, the middle one.
    double number_of(int leaf, const double* predictors) const {
        Room numbers(shape.outputs);
        numbers_of(leaf, predictors, numbers.data());
        return numbers.data()[shape.outputs / 2];
    }
    // Predicted numbers [outputs], in the user's unit.
    void numbers_of(int leaf, const double* predictors, double* out) const {
        quantiles_of(leaf, predictors, out);
        for (int k = 0; k < shape.outputs; k++) out[k] = target.unscaled(out[k]);
    }
    // The same, scaled.
    void quantiles_of(int leaf, const double* predictors, double* out) const {
        Room own(shape.outputs);
        offset_quantiles_of(predictors, own.data());
        rules(loss).read(this->loss_state(leaf), own.data(), shape.outputs, out);
    }
    // Not sorted, so that no offset learns from another's quantile.
    void offset_quantiles_of(const double* predictors, double* out) const {
        std::copy_n(predictors, shape.outputs, out);
        for (std::size_t k = 0; k < target.offset.size(); k++) out[k] += target.offset[k];
    }
    bool has_intervals() const { return rules(loss).interval != nullptr; }
    // Lower and upper end of an interval, in the user's unit.
    void interval_of(int leaf, const double* predictors, double reach, double* out) const {
        rules(loss).interval(this->loss_state(leaf), predictors, reach, out);
        for (int k = 0; k < 2; k++) out[k] = target.unscaled(out[k]);
    }
    // The loss of each row in nats; targets are in the user's unit.
    void losses_of(const double* rows, const double* targets, int n, double* out) const {
        const int wide = padded(shape.outputs);
        std::vector<std::int32_t> leaves(n);
        Room found(static_cast<std::size_t>(n) * shape.outputs), predictors(wide);
        this->predictors_of(rows, {}, n, leaves.data(), found.data());
        for (int i = 0; i < n; i++) {
            std::copy_n(found.data() + static_cast<long>(i) * shape.outputs, shape.outputs, predictors.data());
            out[i] = rules(loss).loss(this->loss_state(leaves[i]), predictors.data(), shape.outputs,
                                      has_labels() ? targets[i] : target.scaled(targets[i]), settings.quantiles.data());
        }
    }
    // Makes the present level of the target an input of the next rows. After rows that were learnt without it the next ones are
    // predicted without it, too: the models' other weights have learnt what it would have told.
    void show_level() {
        for (int k = 0; k < kLevelInputs && target.has_level; k++)
            table->absent[k] = target.hides_level ? std::numeric_limits<double>::quiet_NaN() : target.level_input(k);
    }
    // The level as few rows are learnt with it.
    void fill_level(double* row) const {
        for (int k = 0; k < kLevelInputs && target.has_level; k++)
            row[k] = target.hides_level ? target.level_input(k) : table->absent[k];
    }
    void set_levels(int node, double split_level, double prune_level, double replace_level, double rest_level,
                    int n_splits) {
        NodeRecord& record = records[node];
        record.split_level = split_level;
        record.prune_level = prune_level;
        record.replace_level = replace_level;
        record.rest_level = rest_level;
        record.n_splits = n_splits;
    }
    void set_border(int node, double level, double low, double high) {
        if (nodes[node].is_leaf()) throw std::invalid_argument("a leaf has no threshold");
        Border& border = borders[node];
        border.level = level;
        border.low = low;
        border.high = high;
    }

    // ---------------------------------------------------------------- growth
    // Makes room for n sparse features in total.
    void make_sparse(int n)
        requires Kind::kHasSparse
    {
        settle();
        table->sparse.reserve(n);
        if (!table->has_sparse() && n > 0) evidence.feature_came();  // gradients will be wider
        for (Model& model : models.all) models.drop_renewed(model);
        table->sparse.grow(n);
    }
    // Turns a sparse feature into one that may be split upon; with a column it is like any other. Predictions change only by
    // limits of inputs. Returns the feature.
    int promote(int id, bool has_column)
        requires Kind::kHasSparse
    {
        if (id < 0 || id >= table->sparse.n() || table->sparse.feature[id] >= 0)
            throw std::out_of_range("there is no such sparse feature");
        this->prepare(1, has_column, n_classes);  // from here on nothing can fail
        if (has_column) evidence.promotion_comes();
        const Table::Rescaled scaled = table->promote(id, has_column, clock);
        this->follow();
        const int width = SparseCell::width(shape.outputs);
        for (Model& model : models.all) {
            if (model.is_free() || !has_column) continue;
            Kind::promote(shape, model, id, scaled.factor, scaled.shift);
            model.sparse.erase(width, [id](int own) { return own == id; });
        }
        feature_came();
        return scaled.feature;
    }
    // Forgets sparse features; their ids become free.
    void give_up(const std::vector<std::int32_t>& ids)
        requires Kind::kHasSparse
    {
        std::vector<bool> goes(table->sparse.n(), false);
        for (const int id : ids) {
            if (id < 0 || id >= table->sparse.n() || table->sparse.feature[id] >= 0)
                throw std::out_of_range("there is no such sparse feature");
            goes[id] = true;
        }
        for (const int id : ids) table->sparse.give_up(id);
        const int width = SparseCell::width(shape.outputs);
        for (Model& model : models.all) model.sparse.erase(width, [&](int id) { return goes[id]; });
    }
    void set_classes(int classes) override {
        if (classes <= n_classes) return;
        const int known = n_classes;
        this->prepare(0, 0, classes);
        n_growths++;
        n_classes = classes;
        loss = loss_for(classes);
        for (NodeRecord& record : records)
            if (!record.class_rows.empty()) record.class_rows.resize(classes, 0.0);
        if (classes <= 2) return;
        for (Border& border : borders) border.restart();  // losses will be of another kind
        evidence.drop_challenger();
        for (int k = known; k < classes; k++) models.add_class(shape, k, clock);
    }

    template <class Archive>
    void visit(Archive& a) {
        if constexpr (Archive::kReads) settle_all();  // buffered rows are not copied
        table->visit(a);
        if constexpr (requires { a.has_sparse; }) {
            a.has_sparse = table->has_sparse();
            a.has_renewed = std::any_of(models.all.begin(), models.all.end(),
                                        [](const Model& model) { return model.renewed.model >= 0; });
            a.has_block = is_in_block();
            a.has_border =
                std::any_of(borders.begin(), borders.end(), [](const Border& border) { return border.width > 0.0; });
        }
        if constexpr (Kind::kHasSparse) table->sparse.visit(a);
        has_labels() ? a("label_reach", label_reach) : target.visit(a);
        a("n_classes", n_classes), a("stride", shape.stride), a("clock", clock), a("n_steps", n_steps), a("n_rows", n_rows);
        models.visit(a);
        nodes.visit(a);
        a.derived(borders);
        a.each("sums", records, [&](auto& inner, NodeRecord& record) {
            inner("clock", record.clock), inner("born", record.born), inner("own_loss", record.own_loss);
            inner("subtree_loss", record.subtree_loss), inner("evidence", record.evidence), inner("recent", record.recent);
            inner("refresh_at", record.refresh_at), inner("class_rows", record.class_rows);
            if constexpr (Evidence::kWaits) {
                inner("block_rests", record.rests);
                const std::size_t node = &record - records.data();
                if constexpr (!Archive::kReads && !Archive::kMeasures) borders.resize(std::max(borders.size(), node + 1));
                Border none, &border = node < borders.size() ? borders[node] : none;
                inner("border_width", border.width), inner("border_clock", border.clock);
                inner("border_sums", border.sums.all);
            }
        });
        evidence.visit(a);
        if constexpr (requires { a.has_watch; }) a.has_watch = watch.has_begun();
        watch.visit(a);
        if constexpr (Archive::kMeasures) {
            step_.visit_scratch(a);
            waiting_.visit_scratch(a);
            scratch_.visit_scratch(a);
            tasks_.visit_scratch(a);
            part_.node.visit(a);
            part_.evidence.visit(a);
            a("due", due_);
        }
    }
    void derive();  // recomputes what is not stored, after loading
    void heal();    // repairs what cannot be saved, before a visit that copies
    void check();   // throws unless the tree could have reached this state: soundness.cpp

private:
    static constexpr int kScratchRows = 4096;
    static constexpr const char* kInside = "a loss must not teach the model that asks it";

    struct Memory {  // memory of a new node
        std::vector<double> class_rows;
        typename Evidence::Memory evidence;
    };
    Memory new_memory() const { return {std::vector<double>(n_classes, 0.0), evidence.new_memory()}; }

    // A hash of what sums depend on besides the models: the same in a copy of the tree on any machine.
    std::int64_t fingerprint() const {
        Fingerprint print;
        for (const int number : {shape.columns, shape.outputs, n_classes}) print.add(std::int64_t{number});
        for (const Node& node : nodes.all) {
            for (const int number : {int{node.is_alive}, node.left, node.right}) print.add(std::int64_t{number});
            print.add(node.condition);
        }
        evidence.add_to(print);
        return print.value();
    }

    // ---- drift detection
    // Compares the present losses of kept rows with earlier ones; rows with sparse features are not kept.
    void look_back() {
        if (!watch.is_check_due(n_rows)) return;
        const int n = table->has_sparse() || asked_ ? 0 : watch.n_ripe(n_rows);
        if (n > 0) {
            watch.make_check_room();
            std::vector<double> now(n);
            losses_of(watch.rows.data(), watch.targets.data(), n, now.data());
            double sum = 0.0;
            const double most = watch.rates.most_excess;
            for (int i = 0; i < n; i++) sum += std::clamp(now[i] - watch.losses[i], -most, most);
            watch.drop(n, table->n_features());
            if (std::isfinite(sum)) watch.add(sum / n);
        }
        watch.end_check(n_rows);
    }
    // To be called after the losses of the step's rows are known and before they are learnt.
    void keep_rows() {
        if (!watch.is_on() || n_rows < watch.next_kept || table->has_sparse() || asked_) return;
        const int n = step_.chunk.n, m = table->n_features();
        const std::int64_t distance = watch.distance(n, m);
        std::int64_t i = std::max<std::int64_t>(watch.next_kept - (n_rows - n), 0);
        for (; i < n; i += distance) {
            const double target = step_.chunk.targets[i];
            watch.keep(step_.chunk.raw_row(static_cast<int>(i), m), m, has_labels() ? target : this->target.unscaled(target),
                       step_.told_loss[i], n_rows);
        }
        watch.next_kept = n_rows - n + i;
    }

    // ---- buffered rows
    bool is_in_block() const {
        if constexpr (Evidence::kWaits) return evidence.block.is_open;
        return false;
    }
    void settle_all() {
        settle();
        evidence.settle();
    }
    // A block starts with a single row, when the rows so far are a multiple of a block; it ends when they are again, or when
    // several rows come together.
    bool may_wait(int n) const {
        if constexpr (Evidence::kWaits) {
            const Rates& rates = evidence.rates;
            if (n != 1 || rates.block_rows == 1 || asked_ || table->has_sparse()) return false;
            return is_in_block() || (n_rows % rates.block_rows == 0 && models.bytes() > rates.wait_bytes);
        }
        return false;
    }
    // The second condition is for streams longer than the count of rows, which has a maximum.
    bool ends_block() const { return (n_rows + 1) % block_rows() == 0 || n_waiting() + 1 == block_rows(); }
    int block_rows() const {
        if constexpr (Evidence::kWaits) return evidence.rates.block_rows;
        return 1;
    }
    void open_block() {
        if constexpr (Evidence::kWaits) evidence.open_block();
    }
    void close_block() {
        if constexpr (Evidence::kWaits) evidence.block = {};
    }
    // Whether this row will convert models. Those for which rows are buffered must have learnt the earlier rows by then.
    bool will_convert(const Given& given) const {
        if (has_labels()) return false;
        const double weight = given.weights ? given.weights[0] : 1.0;
        if (target.is_off_after(given.targets[0], weight)) return true;
        const Scaler& scaler = table->scaler;
        for (int j = 0; j < table->n_features() && !table->by_range(); j++) {
            const double x = given.X[j];
            if (scaler.shift[j] == 0.0 && scaler.factor[j] == 1.0) {
                const bool stays = scaler.is_indicator[j] && (x == 0.0 || x == 1.0 || std::isnan(x));
                if (!stays) return true;
            }
            if (!is_one_generation(scaler.weight[j], scaler.weight[j] + weight)) return true;
        }
        return false;
    }
    // Buffers the step's row: first the part that is needed to enlist models,
    void wait_raw() {
        const int i = waiting_.n;
        waiting_.step.chunk.take_raw(i, step_.chunk, table->n_features());
        waiting_.step.is_for_all[i] = step_.is_for_all[0];
    }
    // then, once it is learnt, the rest.
    void wait_on() {
        const int i = waiting_.n;
        const Lesson& leaf = step_.lessons[0];
        waiting_.step.chunk.take_inputs(i, step_.chunk, *table, shape.stride);
        waiting_.clock[i] = clock;
        waiting_.loss[i] = leaf.before.loss[0];
        std::copy_n(leaf.before.residual, shape.outputs, waiting_.residual.data() + static_cast<long>(i) * shape.outputs);
        waiting_.n = i + 1;
    }
    // Everything that may fail for lack of memory, for n rows. The last of them may not be learnt by its leaf yet.
    void prepare_to_settle(int n) {
        if constexpr (Evidence::kWaits) {
            Step& step = waiting_.step;
            step.chunk.n = n;
            evidence.begin_step();
            step.route(nodes, table->n_features());
            enlist(step);
            waiting_.lessons.reserve(step.lessons.size());
            evidence.make_room(step, 1, scratch_, part_.evidence);
            part_.node.class_rows.reserve(n_classes);
        }
    }
    void finish_waiting() {
        if constexpr (Evidence::kWaits) {
            Step& step = waiting_.step;
            step.fill_bends(f, models, *table, shape.stride, 0, step.chunk.n);
            for (int p = 0; p < step.n_pupils; p++) {
                if (!step.pupils[p]->is_taught) continue;
                const Lesson& lesson = step.lessons[p];
                for (int i = 0; i < lesson.visit.n; i++) {
                    const int row = lesson.visit.rows[i];
                    lesson.before.loss[i] = waiting_.loss[row];
                    std::copy_n(waiting_.residual.data() + static_cast<long>(row) * shape.outputs, shape.outputs,
                                lesson.before.residual + static_cast<long>(i) * shape.outputs);
                }
            }
            catch_up(step);
            keep_finite(step);
            for (int s = step.n_stops - 1; s >= 0; s--) absorb_rows(step, step.stops[s]);
            LessonRows challenger = evidence.find_challenger(step);
            for (int row = 0; row < step.chunk.n; row++) {
                whole_ = {};
                evidence.accumulate_challenger(step, challenger, row + 1, whole_);
                evidence.absorb_challenger(whole_, waiting_.clock[row]);
            }
            waiting_.n = 0;
        }
    }
    void catch_up(Step& step)
        requires Evidence::kWaits
    {
        step.list_untaught(waiting_.lessons);
        const Rows rows = rows_of(step);
        const Lesson* lessons = waiting_.lessons.data();
        const std::size_t n = waiting_.lessons.size();
        const int n_threads = this->n_threads.load();
        double work = 0.0;
        for (std::size_t i = 0; i < n && n_threads > 1; i++)
            work += lessons[i].visit.n * Kind::learning_work(lessons[i].shape);
        Threads::all().run_ranges(
            n_threads, n, 1, work / std::max<std::size_t>(n, 1), [&](std::size_t begin, std::size_t end, int) {
                Kind::follow(f, loss, shape, rows, {lessons + begin, lessons + end}, models.rates, evidence.spares());
            });
    }
    // One row at a time, in order of arrival.
    void absorb_rows(Step& step, const Stop& stop)
        requires Evidence::kWaits
    {
        const Lesson* const own = step.next_lesson(nodes[stop.node].model);
        evidence.find_lessons(step, stop, scratch_.lessons);
        SumsSoFar so_far;
        for (const int row : stop.rows) {
            const int then = so_far.own.next;
            so_far.own.lesson = own;
            accumulate(step, scratch_, stop, so_far, row + 1, part_);
            absorb(part_, waiting_.clock[row]);
            const Visit seen = {own ? own->visit.rows + then : nullptr, so_far.own.next - then};
            if (seen.n > 0 && stop.has_grid && (!stop.grid_rests || step.is_for_all[row]))
                evidence.learn_grid(step, stop, seen, {0, table->n_features()}, scratch_, 0);
        }
    }
    // Lists the due nodes of a branch, children before parents.
    void list_due(int node) {
        if (!nodes[node].is_leaf()) list_due(nodes[node].left), list_due(nodes[node].right);
        if (is_due(node)) due_.push_back(node);
    }

    // ---- phases
    // All memory is allocated before the first change (except in the paper's candidate store, which stays sound if memory
    // runs out in mid-step). Nodes are summed and absorbed one by one, so that there is memory for the sums of one node
    // only. Grids count the rows while the models learn, on as many threads.
    void take_step(const Given& given, int n, std::atomic<bool>* scaled) {
        due_.clear();
        if (n == 0) return;
        const int n_threads = asked_ ? 1 : this->n_threads.load();  // Python answers one at a time
        if (n_threads > 1 && had_help_) Threads::all().wake(n_threads - 1);
        const bool waits = may_wait(n), ends = !waits || ends_block();
        if (has_waiting() && (!waits || will_convert(given))) settle();
        if (n_rows == 0 && shape.stride != padded(shape.columns))  // the columns of the first rows are known
            reshape({shape.columns, padded(shape.columns), shape.outputs}, 0);
        evidence.begin_step();
        if (waits) {
            read_for_leaf(step_, given);
            waiting_.make_room(block_rows(), table->n_features(), shape);
            wait_raw();
            if (ends) prepare_to_settle(waiting_.n + 1);
        } else {
            read(step_, given, n);
            if constexpr (Kind::kHasSparse) step_.make_sparse_room(models, shape);
            evidence.make_room(step_, n_threads, scratch_, part_.evidence);
        }
        tasks_.reserve(n_threads, step_.n_stops, step_.lessons.size());
        part_.node.class_rows.reserve(n_classes);
        due_.reserve(waits ? nodes.size() : step_.n_stops);
        make_scale_room();
        make_border_room(step_);
        table->scaler.make_scratch();
        watch.make_room(n_rows, n, table->n_features());
        look_back();  // from here on nothing can fail
        if (waits && !is_in_block()) open_block();
        if (!has_labels()) learn_target(given, n);
        scale_targets(step_);
        step_.chunk.learn_sparse(table->sparse);
        update_table();
        if (scaled) *scaled = true, scaled->notify_all();
        scale(step_, n_threads);
        for (int i = 0; i < n; i++) clock += step_.chunk.weights[i];
        n_rows = std::min(n_rows + n, kMostRows);
        n_steps = std::min(n_steps + 1, n_rows);
        judge(step_, n_threads);
        keep_finite(step_);
        for (int s = 0; s < step_.n_stops; s++) begin_border(step_.stops[s].node);
        if (!has_labels()) learn_reaches(step_, given);
        if constexpr (Kind::kHasSparse) learn_energy(step_);
        if (waits) {
            absorb_leaf(step_);
        } else {
            for (int s = step_.n_stops - 1; s >= 0; s--) {  // children before parents
                accumulate(step_, scratch_, step_.stops[s], part_);
                absorb_lead(part_);
                absorb(part_, clock);
                evidence.renew(step_, scratch_, step_.stops[s].node, part_.node);
            }
            evidence.accumulate_last(step_, whole_);
            evidence.absorb_last(whole_);
        }
        for (int i = 0; i < n && has_labels(); i++) learn_reach(label_reach, step_.told_loss[i]);
        keep_rows();
        train(step_, n_threads);
        if constexpr (Kind::kHasSparse) step_.keep_sparse(models, shape);
        if (waits) wait_on();
        if (ends && waits) {
            finish_waiting();
            list_due(0);
        } else if (ends) {
            for (int s = step_.n_stops - 1; s >= 0; s--)
                if (is_due(step_.stops[s].node)) due_.push_back(step_.stops[s].node);
        }
        if (ends) close_block();
        if (n > kScratchRows) drop_scratch();  // frees the memory of a huge batch
    }
    // Routes the rows to nodes, and chooses the models that learn them.
    void read(Step& step, const Given& given, int n) const {
        step.chunk.fill(f, *table, given, n, settings.seed, shape.stride);
        step.route(nodes, table->n_features());
        evidence.choose_rows(step);
        enlist(step);
    }
    void enlist(Step& step) const {
        step.n_pupils = 0;
        for (int s = step.n_stops - 1; s >= 0; s--) {
            Stop& stop = step.stops[s];
            evidence.look(stop);
            Pupil& pupil = step.add_pupil(nodes[stop.node].model);
            pupil.is_taught = step.waits && nodes[stop.node].is_leaf();
            evidence.choose_rows(step, stop.rows, stop.stands_for, pupil.rows);
            stop.pupil = pupil.rows.empty() ? nullptr : &pupil;
            stop.has_grid = stop.pupil != nullptr;
            if (pupil.rows.empty()) {
                step.n_pupils--;
            } else {
                evidence.enlist(step, stop, pupil);
            }
        }
        evidence.enlist_last(step);
        step.make_lessons(const_cast<Models<Kind>&>(models), shape);
    }
    // The same for a row to be buffered: only its leaf gets it.
    void read_for_leaf(Step& step, const Given& given) const {
        step.chunk.fill(f, *table, given, 1, settings.seed, shape.stride);
        step.route_to_leaf(nodes);
        evidence.choose_rows(step);
        step.n_pupils = 0;
        Pupil& pupil = step.add_pupil(nodes[step.stops[0].node].model);
        pupil.rows.push_back(0);
        step.stops[0].pupil = &pupil;
        if constexpr (Evidence::kWaits) evidence.enlist_renewed(step, pupil);
        step.make_lessons(const_cast<Models<Kind>&>(models), shape);
    }
    // Adds numbers to the scale and the level of the target, in order of arrival. It cannot fail.
    void learn_target(const Given& given, int n) {
        const bool has_level = target.has_level && !std::isnan(step_.chunk.raw_row(0, table->n_features())[0]);
        target.hides_level = target.has_level && !has_level && table->scaler.weight[0] > 0.0;
        for (int i = 0; i < n; i++) target.add(given.targets[i], given.weight(i));
        for (int i = 0; i < n; i++)
            if (given.whole(i) > 0.0) target.weight.add(given.whole(i), static_cast<double>(n_rows + i));
        if (!target.is_off()) return;
        Conversion to = target.renew();
        if (to.factor < Kind::kLeastFactor) to = {0.0, 0.0};  // nothing learnt so far is of use
        to.shows_level = has_level;
        if (asked_) renew_unit(given, n, to);
        watch.drop_rows();  // their losses are in the old unit
        const bool has_scaled_level = target.has_level && !target.has_log_link;
        models.convert(shape, to, has_scaled_level ? table->schema.value_column.data() : nullptr);
        evidence.convert(to);
    }
    // Adopts the unit of a custom loss: the spread of a row that is one scale off, if it grows with the square. It is
    // computed for the row nearest to that, as other numbers may not be valid targets. (With a log link, for twice the
    // mean.)
    void renew_unit(const Given& given, int n, Conversion& to) {
        double off = 1.0, best = std::numeric_limits<double>::infinity();
        for (int i = 0; i < n && !target.has_log_link; i++) {
            const double t = target.scaled(given.targets[i]);
            if (std::abs(std::abs(t) - 1.0) < best) best = std::abs(std::abs(t) - 1.0), off = t;
        }
        if (target.has_log_link) {  // where the loss is a parabola, the variance of log y is the spread over the curvature
            const AskedLoss::Columns rows = asked_->room(2);
            rows.predictor[0] = 0.0, rows.predictor[1] = 1.0;
            for (int i = 0; i < 2; i++) rows.target[i] = std::exp(rows.predictor[i]);
            asked_->ask(2);
            target.power = std::clamp(2.0 - std::log(rows.curvature[1] / rows.curvature[0]), 0.0, 4.0);
        }
        const AskedLoss::Columns row = asked_->room(1);
        *row.predictor = 0.0;
        *row.target = target.has_log_link ? 1.0 + off : off;
        asked_->ask(1);
        const double unit = *row.spread * target.unit / (off * off);
        if (std::abs(off) > 1e-3 && unit > 0.0 && unit < kLargest) to.spread = target.unit / unit;
        target.unit /= to.spread;
    }
    // Learns from the leaves' errors, before they learn the rows; once for each row of the user, however many copies it is.
    void learn_reaches(const Step& step, const Given& given) {
        const auto length_for = [&](int row) { return target.weight.step(given.whole(step.chunk.given_row(row))); };
        for (int p = 0; p < step.n_pupils; p++) {
            const Pupil& pupil = *step.pupils[p];
            const Lesson& lesson = step.lessons[p];
            if (!is_of_leaf(step, pupil.model)) continue;
            if (loss == kQuantile || !rules(loss).error || models.renewed(models[pupil.model])) {
                told(step, lesson, [&](int row, const double* predictors) {
                    const double y = step.chunk.targets[row], length = length_for(row);
                    if (length == 0.0) return;
                    loss == kQuantile ? learn_offsets(*lesson.model.loss, predictors, y, length)
                                      : target.learn_reach(error_of(*lesson.model.loss, predictors, y), length);
                });
                continue;
            }
            for (int i = 0; i < lesson.visit.n; i++) {
                const int row = lesson.visit.rows[i];
                const double length = length_for(row);
                if (length == 0.0) continue;
                const double* residual = lesson.before.residual + static_cast<long>(i) * shape.outputs;
                const double error =
                    rules(loss).error({lesson.before.loss[i], residual, step.chunk.targets[row], 1.0, lesson.model.loss});
                target.learn_reach(error, length);
            }
        }
    }
    bool is_of_leaf(const Step& step, int model) const {
        for (int s = 0; s < step.n_stops; s++) {
            const Node& node = nodes[step.stops[s].node];
            if (node.model == model) return node.is_leaf();
        }
        return false;
    }
    // An error as a reach.
    double error_of(const LossState& state, const double* predictor, double scaled_y) const {
        double number, ends[2];
        rules(loss).read(state, predictor, 1, &number);
        rules(loss).interval(state, predictor, 1.0, ends);
        return std::abs(scaled_y - number) / (ends[1] - number);
    }
    void learn_offsets(const LossState& state, const double* predictors, double scaled_y, double length) {
        Room found(shape.outputs);
        offset_quantiles_of(predictors, found.data());
        target.learn_offsets(scaled_y, found.data(), settings.quantiles, std::sqrt(state.spread), length);
    }
    void make_scale_room() {
        if (has_labels()) return;
        for (auto* values : {&scale_then_.weight, &scale_then_.shift, &scale_then_.factor})
            make_capacity(*values, table->n_features());
    }
    // Adds the rows to the moments of the features. With labels, errors are so much larger than the change of an input's
    // scale from row to row that the models can follow it by learning. Numbers may be exact: the scale is fixed until the
    // rows have doubled, and the models are converted then.
    void update_table() {
        Scaler& scaler = table->scaler;
        const bool holds = !has_labels() && !table->by_range();
        if (holds) scale_then_.weight = scaler.weight, scale_then_.shift = scaler.shift, scale_then_.factor = scaler.factor;
        table->update(f, step_.chunk.raw.data(), step_.chunk.weights.data(), step_.chunk.n);
        if constexpr (Kind::kHasSparse) {
            const int first = target.has_level && !target.has_log_link ? kLevelInputs : 0;
            for (int j = first; holds && j < table->n_features(); j++) hold_scale(j);
        }
        scale_levels();
    }
    static constexpr double kScaleRows = 20.0;  // rows after which a scale is worth keeping
    // Beyond this growth of a scale models are not converted: values that were clipped so far no longer are, and a slope that
    // was learnt from the others would be extrapolated to them. But the level, which is much the same in the next row, must not
    // change a prediction at once: its slope stays, and the intercept moves.
    static constexpr double kMostGrowth = 4.0;
    void hold_scale(int j) {
        Scaler& scaler = table->scaler;
        const double shift = scale_then_.shift[j], factor = scale_then_.factor[j];
        const int column = table->schema.value_column[j];
        if (column < 0 || scale_then_.weight[j] < kScaleRows || !(factor > 0.0) || !(scaler.factor[j] > 0.0)) return;
        if (factor == scaler.factor[j] && shift == scaler.shift[j]) return;
        const bool was_indicator = shift == 0.0 && factor == 1.0;  // possibly; if so, its scale is of another kind now
        if (!was_indicator && is_one_generation(scale_then_.weight[j], scaler.weight[j])) {
            scaler.shift[j] = shift;
            scaler.factor[j] = factor;
            return;
        }
        convert_input(j);
    }
    // Converts the models to the new scale of a feature. Not inlined, as it is rare.
    [[gnu::noinline]] void convert_input(int j) {
        const Scaler& scaler = table->scaler;
        const double shift = scale_then_.shift[j], factor = scale_then_.factor[j];
        double by = factor / scaler.factor[j], move = (scaler.shift[j] - shift) * factor;
        if (by > kMostGrowth) {
            const double now = step_.chunk.raw_row(0, table->n_features())[j];
            if (!is_level(j) || std::isnan(now)) return;
            by = 1.0;
            move = std::clamp((now - shift) * factor, -scaler.limit[j], scaler.limit[j]) - scaler.input(j, now);
        }
        const int column = table->schema.value_column[j];
        for (Model& model : models.all)
            if constexpr (Kind::kHasSparse)
                if (!model.is_free()) Kind::convert_input(model.shape(shape), model, column, by, move);
    }
    bool is_level(int feature) const { return target.has_level && feature < kLevelInputs; }
    // Whether a scale stays: it changes with each of the first rows, and then whenever the rows have doubled.
    static bool is_one_generation(double rows, double later) {
        constexpr int kMantissaBits = 52;
        if (rows < 100.0 || later < 100.0) return static_cast<int>(rows) == static_cast<int>(later);
        const auto exponent = [](double x) { return std::bit_cast<std::uint64_t>(x / 100.0) >> kMantissaBits; };
        return exponent(rows) == exponent(later);
    }

    // The level has the scale of the target, so that models in which one follows the other need not change.
    void scale_levels() {
        for (int k = 0; is_level(k) && !target.has_log_link; k++) {
            table->scaler.shift[k] = target.shift;
            table->scaler.factor[k] = 0.5 / target.scale;
            table->scaler.limit[k] = kLevelLimit;
            table->scaler.is_indicator[k] = 0;
        }
    }
    void scale_targets(Step& step) const {
        for (int i = 0; i < step.chunk.n && !has_labels(); i++) step.chunk.targets[i] = target.scaled(step.chunk.targets[i]);
    }
    // Computes the inputs of all models.
    void scale(Step& step, int n_threads) const {
        double work = 20.0 + 2.0 * shape.columns;
        for (int i = 0; i < step.n_pupils && n_threads > 1; i++)
            if (!step.pupils[i]->lender) work += 2.0 * step.lessons[i].shape.columns - 2.0 * shape.columns;
        Threads::all().run_ranges(n_threads, step.chunk.n, 8, work, [&](std::size_t first, std::size_t last, int) {
            const int begin = static_cast<int>(first), end = static_cast<int>(last);
            step.chunk.scale(f, *table, shape.stride, Kind::kListsActive, begin, end);
            step.fill_bends(f, models, *table, shape.stride, begin, end);
        });
        bool has_grids = false;
        for (int s = 0; s < step.n_stops; s++) has_grids |= step.stops[s].has_grid;
        step.chunk.scale_sparse(*table, shape.stride, has_grids);
        step.fill_sparse();
    }
    // Predicts the rows of all models before they learn them.
    void judge(Step& step, int n_threads) const {
        const Rows rows = rows_of(step);
        const Lesson* lessons = step.lessons.data();
        double work = 0.0;
        for (int i = 0; i < step.n_pupils && n_threads > 1; i++)
            work += lessons[i].visit.n * (10.0 + 0.4 * lessons[i].shape.size());
        Threads::all().run_ranges(n_threads, step.n_pupils, 1, work / std::max(step.n_pupils, 1),
                                  [&](std::size_t begin, std::size_t end, int) {
                                      Kind::forward(f, loss, shape, rows, {lessons + begin, lessons + end});
                                  });
    }
    Rows rows_of(const Step& step) const {
        Rows rows = step.chunk.rows();
        rows.levels = settings.quantiles.data();
        return rows;
    }

    // How far the rows of a node have been summed.
    struct SumsSoFar {
        LessonRows own;
        std::size_t next_row = 0;
    };
    void accumulate(Step& step, typename Evidence::Scratch& scratch, const Stop& stop, Part& part) const {
        SumsSoFar so_far = {{step.next_lesson(nodes[stop.node].model)}};
        evidence.find_lessons(step, stop, scratch.lessons);
        accumulate(step, scratch, stop, so_far, step.chunk.n, part);
    }
    // Sums the next rows before `end`.
    void accumulate(Step& step, typename Evidence::Scratch& scratch, const Stop& stop, SumsSoFar& so_far, int end,
                    Part& part) const {
        NodeSums& sums = part.node;
        const Node& node = nodes[stop.node];
        sums.start(stop.node, n_classes);
        part.evidence.start();
        const double *weights = step.chunk.weights.data(), *targets = step.chunk.targets.data();
        const std::size_t first = so_far.next_row;
        std::size_t last = first;
        for (; last < stop.rows.size() && stop.rows[last] < end; last++) sums.rows += weights[stop.rows[last]];
        so_far.next_row = last;
        double* const class_rows = sums.class_rows.data();
        for (std::size_t i = first; i < last && has_labels(); i++)
            class_rows[static_cast<int>(targets[stop.rows[i]])] += weights[stop.rows[i]];
        const Lesson* const lesson = so_far.own.lesson;
        const bool is_leaf = node.is_leaf();
        const double* const losses = lesson ? lesson->before.loss : nullptr;
        double *const node_loss = step.node_loss.data(), *const leaf_loss = step.leaf_loss.data();
        double* const told_loss = step.told_loss.data();
        so_far.own.read(end, [&](int i, int row) {
            const double weight = stop.stands_for * weights[row], own = losses[i];
            node_loss[row] = own;
            if (is_leaf) leaf_loss[row] = told_loss[row] = own;
            sums.own += weight * own;
            sums.subtree += weight * leaf_loss[row];
            sums.seen += weight;
        });
        if (is_leaf && lesson && !step.waits) tell_losses(step, node.model, *lesson);
        if constexpr (Evidence::kWaits)
            if (!is_leaf && !step.waits)
                judge_border(step, stop.node, {stop.rows.data(), static_cast<int>(stop.rows.size())}, scratch.bent,
                             [&](auto... judged) { sums.border.add(judged...); });
        if constexpr (Evidence::kWaits)
            for (std::size_t i = first; i < last && is_leaf; i++)
                sums.told += weights[stop.rows[i]] * told_loss[stop.rows[i]];
        evidence.accumulate(step, scratch, stop, scratch.lessons, lesson, end, part.evidence);
    }
    // Updates what the leaf and the whole tree learn at once from a row to be buffered.
    void absorb_leaf(Step& step) {
        if constexpr (Evidence::kWaits) {
            const int node = step.stops[0].node, model = nodes[node].model;
            const Lesson& own = step.lessons[0];
            step.node_loss[0] = step.leaf_loss[0] = step.told_loss[0] = own.before.loss[0];
            tell_losses(step, model, own);
            LessonRows again = {step.n_pupils > 1 ? &step.lessons[1] : nullptr};
            const double weight = step.chunk.weights[0];
            evidence.absorb_lead(node, weight, evidence.lead_on(step, models[model].renewed, again, 1));
            evidence.absorb_harm(node, weight, weight * step.told_loss[0]);
            whole_ = {};
            evidence.accumulate_loss(step, whole_);
            evidence.absorb_loss(whole_);
            const std::int32_t row = 0;
            for (int above = nodes[node].parent; above >= 0; above = nodes[above].parent) {
                begin_border(above);
                judge_border(step, above, {&row, 1}, scratch_.bent, [&](auto... judged) {
                    fade_border(above, clock);
                    borders[above].sums.add(judged...);
                });
            }
        }
    }
    // ---- borders
    // The band is a multiple of the feature's standard deviation at this time.
    void begin_border(int node) {
        if constexpr (Evidence::kWaits) {
            if (nodes[node].is_leaf() || borders[node].width > 0.0) return;
            Border& border = borders[node];
            const double deviation = 0.5 / table->scaler.factor[nodes[node].condition.feature];
            const double width = evidence.rates.border_deviations * deviation;
            if (width > 0.0 && width < kLargest) border.width = width, border.clock = clock;
        }
    }
    // Room for the sums of all borders that the step's rows may be near.
    void make_border_room(const Step& step) {
        if constexpr (Evidence::kWaits) {
            if (nodes[0].is_leaf() || !(evidence.rates.border_deviations > 0.0)) return;
            part_.node.border.all.reserve(BorderSums::size());
            for (int node = step.stops[0].node; node >= 0; node = nodes[node].parent) reserve_border(node);
            for (int s = 1; s < step.n_stops; s++) reserve_border(step.stops[s].node);
            if (bent_room_for_ == n_changes + n_growths) return;
            for (const Node& node : nodes.all)
                if (node.is_alive && node.is_leaf() && std::ssize(scratch_.bent) < models[node.model].stride)
                    scratch_.bent.resize(models[node.model].stride);
            bent_room_for_ = n_changes + n_growths;
        }
    }
    void reserve_border(int node) {
        if (!nodes[node].is_leaf()) borders[node].sums.all.reserve(BorderSums::size());
    }
    // What rows near the threshold of a node have cost, and what they would have cost on the other side of it: calls add
    // with the arguments of BorderSums::add for each.
    template <class Add>
    void judge_border(const Step& step, int node, const Visit& seen, Lines<double>& bent, Add&& add) const {
        const Border& border = borders[node];
        const Condition& condition = nodes[node].condition;
        if (border.width == 0.0 || condition.equality || table->has_sparse() || asked_) return;
        for (int i = 0; i < seen.n; i++) {
            const int row = seen.rows[i];
            const double value = step.chunk.raw_row(row, table->n_features())[condition.feature];
            if (!border.has_inside(value, condition.threshold)) continue;  // nor if it is missing
            const double other =
                loss_from(value > condition.threshold ? nodes[node].left : nodes[node].right, step, row, bent);
            if (other < kLargest)  // a model that is not sound can only come from a file
                add(value, condition.threshold, border.width, step.chunk.weights[row], step.leaf_loss[row], other);
        }
    }
    // The loss of a row in the leaf that it reaches from a node.
    double loss_from(int node, const Step& step, int row, Lines<double>& bent) const {
        const double* x = step.chunk.raw_row(row, table->n_features());
        const Model& model = models[nodes[nodes.leaf_of(x, node)].model];
        const double* plain = step.chunk.inputs.data() + static_cast<long>(row) * shape.stride;
        if (std::ssize(bent) < model.stride) bent.resize(model.stride);
        typename Kind::Predicting predict(f, shape);
        Room predictors(padded(shape.outputs));
        predict.by(model, nullptr);
        this->predict_bent(predict, model, x, plain, bent.data(), predictors.data());
        return rules(loss).loss(model.loss, predictors.data(), shape.outputs, step.chunk.targets[row],
                                settings.quantiles.data());
    }
    void fade_border(int node, double now) {
        Border& border = borders[node];
        border.fade(evidence.fade_after(now - border.clock).keep, now);
    }
    // Sums from elsewhere must fit.
    void check_border(const NodeSums& sums) const {
        const auto& all = sums.border.all;
        const bool fits = all.size() == BorderSums::size() && !nodes[sums.node].is_leaf() &&
                          std::all_of(all.begin(), all.end(), [](double x) { return std::isfinite(x); });
        if (!all.empty() && !fits) throw std::invalid_argument("the sums near a threshold do not fit the tree");
    }
    // Before its band is known, a copy of the tree may have had another one.
    void absorb_border(int node, const BorderSums& sums, double now) {
        if (sums.all.empty() || borders[node].width == 0.0) return;
        fade_border(node, now);
        borders[node].sums += sums;
    }
    // Calls each(row, predictors) for the rows of a leaf's lesson, with what the leaf predicts, which may be overwritten. A
    // renewed model has a share in it, and if it rests, it has not predicted all rows yet.
    template <class Each>
    void told(const Step& step, const Lesson& lesson, Each&& each) const {
        const Model& model = models[step.pupils[&lesson - step.lessons.data()]->model];
        const Model* const renewed = models.renewed(model);
        const bool has_lesson = renewed && &lesson + 1 < step.lessons.data() + step.n_pupils &&
                                step.pupils[&lesson + 1 - step.lessons.data()]->model == model.renewed.model;
        const Lesson* const again = has_lesson ? &lesson + 1 : nullptr;
        const double share = renewed ? model.renewed.share() : 0.0;
        typename Kind::Predicting predict(f, shape);
        if (renewed) predict.by(*renewed, nullptr);
        Room predictors(padded(shape.outputs));
        for (int i = 0, next = 0; i < lesson.visit.n; i++) {
            const double *own = lesson.before.said + static_cast<long>(i) * shape.outputs, *other = own;
            if (!renewed) {
                std::copy_n(own, shape.outputs, predictors.data());
                each(lesson.visit.rows[i], predictors.data());
                continue;
            }
            if (again && next < again->visit.n && again->visit.rows[next] == lesson.visit.rows[i]) {
                other = again->before.said + static_cast<long>(next++) * shape.outputs;
            } else {
                predict(lesson.input(lesson.shape, i), predictors.data());
                other = predictors.data();
            }
            for (int k = 0; k < shape.outputs; k++) predictors.data()[k] = (1.0 - share) * own[k] + share * other[k];
            each(lesson.visit.rows[i], predictors.data());
        }
    }
    // The losses of a leaf's predictions. (With a custom loss, those of its own model.)
    void tell_losses(Step& step, int model, const Lesson& lesson) const {
        if (!models.renewed(models[model]) || asked_) return;
        told(step, lesson, [&](int row, double* predictors) {
            step.told_loss[row] = rules(loss).loss(*lesson.model.loss, predictors, shape.outputs, step.chunk.targets[row],
                                                   settings.quantiles.data());
        });
    }
    void absorb_lead(const Part& part) {
        if constexpr (Evidence::kWaits) {
            evidence.absorb_lead(part.node.node, part.node.rows, part.evidence.renewed_lead);
            evidence.absorb_harm(part.node.node, part.node.rows, part.node.told);
        }
    }
    void absorb(Part& part, double now) {
        const NodeSums& sums = part.node;
        NodeRecord& record = records[sums.node];
        const Fade fade = evidence.fade_after(now - record.clock);
        record.clock = now;
        for (int k = 0; k < n_classes; k++) record.class_rows[k] = fade.keep * record.class_rows[k] + sums.class_rows[k];
        nodes[sums.node].rows += sums.rows;
        record.own_loss = fade.keep * record.own_loss + sums.own;
        record.subtree_loss = fade.keep * record.subtree_loss + sums.subtree;
        record.evidence = fade.keep * record.evidence + sums.seen;
        if (!nodes[sums.node].is_leaf()) record.recent = fade.keep_recent * record.recent + (sums.own - sums.subtree);
        absorb_border(sums.node, sums.border, now);
        evidence.absorb(sums.node, fade, sums, part.evidence);
    }
    void train(Step& step, int n_threads) {
        step.sort_lessons();
        const Rows rows = rows_of(step);
        const int m = table->n_features();
        const auto teach = [&](int begin, int end) {
            const Lesson* lessons = step.lessons.data();
            Kind::learn(f, loss, shape, rows, {lessons + begin, lessons + end}, models.rates, evidence.spares());
        };
        had_help_ = n_threads > 1 && plan(step, n_threads);
        if (had_help_) {
            Threads::all().run(n_threads, static_cast<int>(tasks_.all.size()), [&](int i, int who) {
                const StepTask& task = tasks_.all[i];
                if (task.stop < 0) {
                    teach(task.begin, task.end);
                } else {
                    const Stop& stop = step.stops[task.stop];
                    evidence.learn_grid(step, stop, stop.pupil->visit(), {task.begin, task.end}, scratch_, who);
                }
            });
            return;
        }
        for (int s = step.n_stops - 1; s >= 0; s--)
            if (const Stop& stop = step.stops[s]; stop.has_grid)
                evidence.learn_grid(step, stop, stop.pupil->visit(), {0, m}, scratch_, 0);
        teach(0, step.n_pupils);
    }
    // Cuts the training into tasks; returns whether several threads pay off.
    bool plan(const Step& step, int n_threads) {
        const auto work_of = [&](int i) {
            const Lesson& lesson = step.lessons[i];
            return lesson.visit.n * Kind::learning_work(lesson.shape);
        };
        double work = 0.0;
        for (int i = 0; i < step.n_pupils; i++) work += work_of(i);
        tasks_.all.clear();
        tasks_.add_lessons(step.n_pupils, work / n_threads, work_of);
        for (int s = 0; s < step.n_stops; s++) {
            const Stop& stop = step.stops[s];
            const int m = table->n_features();
            if (stop.has_grid)
                tasks_.add_features(s, n_threads, m, stop.pupil->visit().n * m * evidence.grid_work(stop.node));
        }
        return tasks_.pay(n_threads);
    }
    // A model whose loss is not finite can only come from a file. It is reset, and its loss on these rows is that of a model
    // that knows nothing.
    void keep_finite(Step& step) {
        for (int i = 0; i < step.n_pupils; i++) {
            const Lesson& lesson = step.lessons[i];
            double sum = 0.0;
            for (int j = 0; j < lesson.visit.n; j++) sum += lesson.before.loss[j];
            if (sum < kLargest) continue;
            models.restart(shape, models[step.pupils[i]->model]);
            std::fill_n(lesson.before.loss, lesson.visit.n, std::log(std::max(n_classes, 2)));
            for (double* one : {lesson.before.residual, lesson.before.said})
                std::fill_n(one, static_cast<std::size_t>(lesson.visit.n) * shape.outputs, 0.0);
            std::fill_n(lesson.before.signal, lesson.visit.n, Signal{});
            std::fill_n(lesson.before.scratch, scratch_size(lesson.shape), 0.0);
            if constexpr (Kind::kHasSparse)
                for (int cell = 0; lesson.sparse && cell < lesson.sparse->n_cells; cell++)
                    for (int c = 0; c < lesson.sparse->width; c++)
                        lesson.sparse->number(cell, c) = c == 0 ? models.rates.variance : 0.0;
        }
    }
    bool is_due(int node) { return prune_is_due(node) || this->shift_is_due(node) || evidence.is_due(node); }
    bool prune_is_due(int node) const {
        const NodeRecord& record = records[node];
        return !nodes[node].is_leaf() && record.subtree_loss - record.own_loss >= record.prune_level;
    }
    void drop_scratch() {
        step_ = {};
        scratch_ = {};
        bent_room_for_ = -1;
        tasks_ = {};
        part_ = {};
    }

    // Adds to the energy of each sparse feature: how much the leaves' models still have to learn of it.
    void learn_energy(const Step& step) {
        const auto& sparse = step.chunk.sparse;
        for (int s = 0; s < step.n_stops && !sparse.is_empty(); s++) {
            const Node& node = nodes[step.stops[s].node];
            if (!node.is_leaf()) continue;
            int p = 0;
            while (p < step.n_pupils && step.pupils[p]->model != node.model) p++;
            for (std::size_t i = 0; p < step.n_pupils && i < step.pupils[p]->rows.size(); i++) {
                const int row = step.pupils[p]->rows[i];
                const double* residual = step.lessons[p].before.residual + i * shape.outputs;
                double square = 0.0;
                for (int k = 0; k < shape.outputs; k++) square += residual[k] * residual[k];
                square *= step.chunk.weights[row];
                table->sparse.energy_of_all += square;
                for (int c = sparse.begin[row]; c < sparse.begin[row + 1]; c++)
                    table->sparse.energy[sparse.ids[c]] += static_cast<float>(square * sparse.z[c] * sparse.z[c]);
            }
        }
    }

    // ---- structure
    int add_node(int parent, int model, Memory&& memory) {
        const int node = nodes.add(parent, model);
        if (node >= std::ssize(records)) records.resize(node + 1);
        NodeRecord record;
        record.clock = record.born = clock;
        record.class_rows.swap(memory.class_rows);
        std::swap(records[node], record);
        evidence.add_node(node, std::move(memory.evidence));
        return node;
    }
    void release(int node) {
        evidence.release(node);
        models.free(nodes[node].model);
        NodeRecord none;
        std::swap(records[node], none);
        if (node < std::ssize(borders)) borders[node] = Border();
        nodes[node] = Node();
    }
    void remove(int node, const std::vector<int>& below) {
        if (below.empty()) return;
        for (const int one : below) release(one);
        nodes[node].left = nodes[node].right = -1;
        nodes[node].condition = Condition();
        borders[node].restart();
        evidence.set_subtree_loss(node, records[node].own_loss);
        n_changes++;
    }

    // ---- growth
    int outputs_for(int classes) const override { return outputs_of(std::max(classes, n_classes)); }
    void reserve(int, int classes) override {
        for (NodeRecord& record : records)
            if (!record.class_rows.empty()) make_capacity(record.class_rows, classes);
    }
    void reserve_nodes(int n) override {
        records.reserve(n);
        evidence.reserve_nodes(n);
    }
    void reshape(const Shape& to, int n_more) override {
        settle_all();
        auto moved_models = models.moved(shape, to, n_more);
        auto moved_sums = evidence.reshaped(to);
        models.all.swap(moved_models);
        evidence.take_reshaped(moved_sums);
        shape = to;
    }
    void feature_came() override {
        n_growths++;
        watch.drop_rows();
        evidence.feature_came();
    }
    void column_came() override { n_growths++; }

    // ---- undoing a step
    struct Kept {
        Table table;
        NumberTarget target;
        std::vector<Node> nodes;
        std::vector<Model> models;
        std::vector<NodeRecord> records;
        std::vector<Border> borders;
        typename Evidence::Kept evidence;
        double clock;
        std::int64_t n_rows, n_steps;
        Shape shape;
    };
    Kept kept() const {
        return {*table, target, nodes.all, models.all, records, borders, evidence.kept(), clock, n_rows, n_steps, shape};
    }
    void put_back(Kept& then) {
        std::swap(*table, then.table);
        std::swap(target, then.target);
        nodes.all.swap(then.nodes);
        models.all.swap(then.models);
        records.swap(then.records);
        borders.swap(then.borders);
        evidence.put_back(then.evidence);
        clock = then.clock;
        n_rows = then.n_rows;
        n_steps = then.n_steps;
        shape = then.shape;
        due_.clear();
    }

    std::shared_ptr<AskedLoss> asked_;  // a custom loss in Python, if any
    Step step_;
    RowBlock waiting_;
    typename Evidence::Scratch scratch_;
    std::int64_t bent_room_for_ = -1;  // n_changes + n_growths of the tree that scratch_.bent has room for
    StepTasks tasks_;
    Part part_;
    typename Evidence::Whole whole_;
    std::vector<std::int32_t> due_;
    struct {
        std::vector<double> weight, shift, factor;
    } scale_then_;  // before the step, for scales that are kept
};

using MeasuredTree = ModelTree<Trials>;       // the measured setting
using PaperTree = ModelTree<CandidateStore>;  // the paper's setting

}  // namespace driftree
