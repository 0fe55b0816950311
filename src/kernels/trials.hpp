// Trials: evidence by measurement. Promising splits are tried: two child models learn the following rows, and their loss is
// compared with that of the node and of the leaves below it. The grid proposes promising splits. The challenger does the
// same for the link of the whole tree, with or without a noise floor.
//
// All sums fade with the rows of the stream. In calm times nodes far from any change learn a random part of their rows,
// which counts for all.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "grid.hpp"
#include "loss_tree.hpp"
#include "step.hpp"
#include "threads.hpp"

namespace driftree {

struct TrialRates {                  // passed by Python (learn/constants.py)
    double window = 20000.0;         // rows of the stream after which a sum has faded to 1/e
    int per_node = 3;                // most trials per node
    int first_rows = 300;            // rows of a node from which its grid is chosen; 0: no grid
    int rest_share = 4;              // what rests learns one row in so many
    double rest_least = 0.5;         // share of its long-run gain that a branch must recently earn for its node to rest
    int recent_speed = 16;           // how many times as fast the recent sums fade
    double alarm_factor = 1.2;       // ratio of recent to long-run loss from which nothing rests
    double restless_rows = 10000.0;  // rows of the stream for which nothing rests then
    double split_price = 0.0;        // nats per row of the stream that a split must earn: added to its loss
    double alarm_nats = 0.0;         // recent loss per row above the long-run loss, besides the factor
    double trial_rows = std::numeric_limits<double>::infinity();    // rows after which a trial without a gain rests,
    double model_rows = std::numeric_limits<double>::infinity();    // another model for the node rests,
    double grid_rows = std::numeric_limits<double>::infinity();     // and the grid of a node rests
    double doubt = 0.0;                                             // handicap of a leaf's renewed model, in nats
    double renewed_rest = std::numeric_limits<double>::infinity();  // nats that it must be behind, besides, to rest
    double harm = std::numeric_limits<double>::infinity();          // nats of harm from which it may start from 0
    bool trials_rest = false;                                       // trials and grids of resting nodes learn no rows at all
    bool nodes_always_rest = false;                                 // nodes far from any change rest at any time
    int block_rows = 1;              // rows in a block: rows that come one at a time are buffered up to this,
    double wait_bytes = 0.0;         // if the models are larger than this
    double border_deviations = 0.0;  // width of the band near a threshold, in standard deviations
    double side_variance = 0.0;      // variance by which the weights of a side may differ from those of the node
};

struct Trial {
    Condition condition;  // feature -1: the place is free
    std::int32_t slot = -1, left_model = -1, right_model = -1;
    double node_loss = 0.0, subtree_loss = 0.0, trial_loss = 0.0;  // on the same rows
    double evidence = 0.0;                                         // rows behind them, faded like them
    double n_left = 0.0, n_right = 0.0, born = 0.0;                // rows of the sides, not faded; of the node at the start
    bool is_free() const { return condition.feature < 0; }
};

// Another model for a node, with more or fewer bends: it learns the node's rows along with the node's own.
struct BendTrial {
    std::int32_t model = -1;             // -1: none
    double node_loss = 0.0, loss = 0.0;  // on the same rows
    double evidence = 0.0, born = 0.0;   // rows behind them, faded like them; rows of the node at the start
    double level = 0.0, price = 0.0;     // gain from which it is due, and what each row adds to it; set by Python
    double next_at = 0.0;                // rows of the node from which the next may start; set by Python
    std::int32_t n_failed = 0;           // failed trials since the last change; set by Python
    bool is_free() const { return model < 0; }
    double gain() const { return node_loss - loss; }
    bool is_due() const { return !is_free() && gain() >= level + price * evidence; }
};

constexpr double kLeastGain = 1e-9;  // nats; less may be due to rounding
// Fade and limit of the lead of a renewed model, as for Newton's preference in a blend.
constexpr double kKeptLead = 0.998, kMostLead = 8.0;
constexpr double kKeptHarm = 0.9;       // fade of the harm per row
constexpr double kMostAdvantage = 3.0;  // nats per row, at most

class Trials {
public:
    using Kind = Blend;
    static constexpr Scaling kScaling = Scaling::moments;

    Trials(LossTree<Blend>& tree, const TrialRates& rates, std::uint64_t seed)
        : rates(rates), restless_until(rates.restless_rows), tree_(tree), seed_(seed),
          most_floored_(-std::log(tree.models.rates.loss.floor.least)) {}

    TrialRates rates;
    std::vector<Trial> trials;           // place `node * per_node + i`
    std::vector<Grid> grids;             // by node
    std::vector<BendTrial> bend_trials;  // by node

    struct Challenger {
        std::int32_t model = -1;
        double loss = 0.0, rival_loss = 0.0;  // its own and the tree's, on the same rows
        double rows = 0.0, clock = 0.0;
        double level = 0.0;  // set by Python
        double gain() const { return rival_loss - loss; }
    } challenger;
    double tree_loss = 0.0, tree_rows = 0.0;      // loss of the leaves, faded,
    double recent_loss = 0.0, recent_rows = 0.0;  // and faded faster
    double restless_until;                        // until this clock nothing rests

    // ---- sums of one step
    struct TrialSums {  // additive over rows
        std::int32_t trial = -1;
        double node_loss = 0.0, subtree_loss = 0.0, trial_loss = 0.0, seen = 0.0, n_left = 0.0, n_right = 0.0;
        TrialSums& operator+=(const TrialSums& other) {
            node_loss += other.node_loss;
            subtree_loss += other.subtree_loss;
            trial_loss += other.trial_loss;
            seen += other.seen;
            n_left += other.n_left;
            n_right += other.n_right;
            return *this;
        }
    };
    struct Part {  // sums for one node
        std::vector<TrialSums> trials;
        GridRows grid;
        double bend_node_loss = 0.0, bend_loss = 0.0, bend_seen = 0.0;
        double renewed_lead = 0.0;  // nats by which the renewed model has lost less
        void start() {
            trials.clear();
            bend_node_loss = bend_loss = bend_seen = renewed_lead = 0.0;
        }
        Part& operator+=(const Part& other) {
            for (const TrialSums& one : other.trials) {
                const auto own =
                    std::find_if(trials.begin(), trials.end(), [&](const auto& t) { return t.trial == one.trial; });
                own == trials.end() ? trials.push_back(one) : void(*own += one);
            }
            grid += other.grid;
            bend_node_loss += other.bend_node_loss;
            bend_loss += other.bend_loss;
            bend_seen += other.bend_seen;
            renewed_lead += other.renewed_lead;
            return *this;
        }
        template <class Archive>
        void visit(Archive& a) {
            a.records("trial", trials, &TrialSums::trial);
            a.records("trial_node_loss", trials, &TrialSums::node_loss);
            a.records("trial_subtree_loss", trials, &TrialSums::subtree_loss);
            a.records("trial_loss", trials, &TrialSums::trial_loss);
            a.records("trial_seen", trials, &TrialSums::seen);
            a.records("trial_n_left", trials, &TrialSums::n_left);
            a.records("trial_n_right", trials, &TrialSums::n_right);
            a("bend_node_loss", bend_node_loss), a("bend_loss", bend_loss), a("bend_seen", bend_seen);
            a("renewed_lead", renewed_lead);
            grid.visit(a);
        }
    };
    struct Whole {                                                   // sums for the whole tree; additive over rows
        double loss = 0.0, rows = 0.0;                               // loss and weight at the leaves
        double challenger_loss = 0.0, rival_loss = 0.0, seen = 0.0;  // losses of both on the same rows, and their weight
        Whole& operator+=(const Whole& other) {
            loss += other.loss;
            rows += other.rows;
            challenger_loss += other.challenger_loss;
            rival_loss += other.rival_loss;
            seen += other.seen;
            return *this;
        }
        template <class Archive>
        void visit(Archive& a) {
            a("loss", loss), a("whole_rows", rows), a("challenger_loss", challenger_loss);
            a("rival_loss", rival_loss), a("whole_seen", seen);
        }
    };
    struct GridScratch {
        std::vector<double> values;
        GridRows rows;
        std::vector<std::int32_t> seen;  // rows that a resting grid counts,
        std::vector<double> residual;    // and the residuals of the node's model for them
    };
    // Lessons of the models at a node, besides its own.
    struct Lessons {
        LessonRows renewed, bend;
        std::vector<LessonRows> sides;  // of the trials, left and right
    };
    struct Scratch {
        Lessons lessons;
        std::vector<GridScratch> grids;  // one per thread
        Lines<double> bent;              // inputs of a model with bends
        template <class Archive>
        void visit_scratch(Archive& a) {
            a("sides", lessons.sides), a("bent", bent);
            a.each("thread", grids, [](auto& inner, GridScratch& one) {
                inner("grid_values", one.values), inner("grid_seen", one.seen), inner("grid_residual", one.residual);
                one.rows.visit(inner);
            });
        }
    };

    // ---- what rests
    // Rows that come one at a time are learnt in blocks: what rests is decided at the start of a block, for the whole block.
    // Otherwise it is decided in every step.
    static constexpr bool kWaits = true;
    struct Block {
        std::uint8_t is_open = 0, spares = 0, challenger_rests = 0;
    } block;
    void open_block() {
        for (int node = 0; node < tree_.nodes.size(); node++)
            if (tree_.nodes.has(node)) tree_.records[node].rests = rests_now(node);
        block = {1, is_calm(), challenger_rests_now()};
    }
    bool is_calm() const { return tree_.clock >= restless_until; }
    void begin_step() { spares_ = block.is_open ? block.spares != 0 : is_calm(); }
    bool spares() const { return spares_; }
    // Rows of many columns are costly: then whatever has no gain always rests.
    bool is_costly() const { return Blend::are_wide(tree_.shape, tree_.models.rates); }
    bool may_rest() const { return spares_ || is_costly(); }
    bool nodes_may_rest() const { return spares_ || rates.nodes_always_rest; }

    // Bits for what rests at a node, where it may.
    enum Rests : std::int32_t { kNode = 1, kGrid = 2, kBendTrial = 4, kFirstTrial = 8 };
    std::int32_t rests_now(int node) const {
        const double rows = tree_.nodes[node].rows;
        const bool is_leaf = tree_.nodes[node].is_leaf();
        std::int32_t bits = !is_leaf && is_far_from_change(node) ? kNode : 0;
        // The grid only proposes trials. In calm times that of an old node learns some rows only; with costly rows, soon.
        if (rows > (is_costly() ? rates.trial_rows : rates.grid_rows)) bits |= kGrid;
        const Trial* trial = trials.data() + static_cast<long>(node) * rates.per_node;
        for (int i = 0; i < rates.per_node; i++, trial++) {
            if (trial->is_free()) continue;
            const double rival = is_leaf ? trial->node_loss : trial->subtree_loss;
            if (is_mostly_lost(rows - trial->born, rates.trial_rows, rival - trial->trial_loss)) bits |= kFirstTrial << i;
        }
        const BendTrial& bend = bend_trials[node];
        if (!bend.is_free() && is_mostly_lost(rows - bend.born, rates.model_rows, bend.gain()) &&
            tree_.models[bend.model].bends.n() >= tree_.models[tree_.nodes[node].model].bends.n())  // fewer need no gain
            bits |= kBendTrial;
        return bits;
    }
    void look(Stop& stop) const {
        const bool may = may_rest() || nodes_may_rest() || tree_.table->has_sparse();
        stop.rests = block.is_open ? tree_.records[stop.node].rests : (may ? rests_now(stop.node) : 0);
        stop.stands_for = nodes_may_rest() && (stop.rests & kNode) ? rates.rest_share : 1.0;
    }
    // Far from any change there is nothing to try. (If the rows of such trials counted for four, chance would win at times.)
    bool trials_rest(const Stop& stop) const { return rates.trials_rest && nodes_may_rest() && stop.stands_for != 1.0; }
    bool trials_rest(int node) const {
        return rates.trials_rest && nodes_may_rest() && !tree_.nodes[node].is_leaf() && is_far_from_change(node) &&
               rates.rest_share != 1;
    }
    // Chooses the rows that are learnt by what rests.
    void choose_rows(Step& step) const {
        step.is_for_all.resize(step.chunk.n);
        for (int row = 0; row < step.chunk.n; row++)
            step.is_for_all[row] =
                mix64(seed_ + static_cast<std::uint64_t>(tree_.n_rows + step.chunk.n - row)) % rates.rest_share == 0;
    }
    void choose_rows(const Step& step, const std::vector<std::int32_t>& rows, double stands_for,
                     std::vector<std::int32_t>& seen) const {
        if (stands_for == 1.0) {
            seen = rows;
            return;
        }
        for (const int row : rows)
            if (step.is_for_all[row]) seen.push_back(row);
    }
    // Rows of the node that each row of a trial counts for: a trial without a gain is mostly lost.
    double trial_stands_for(const Stop& stop, std::int32_t bit) const {
        const bool may = may_rest() || tree_.table->has_sparse();
        return may && stop.stands_for == 1.0 && (stop.rests & bit) ? rates.rest_share : 1.0;
    }
    // In calm times a renewed model that is clearly behind learns some rows only.
    double renewed_stands_for(const Renewed& renewed) const {
        return spares_ && renewed.lead < -rates.doubt - rates.renewed_rest ? rates.rest_share : 1.0;
    }
    void enlist_renewed(Step& step, const Pupil& own) const {
        const Renewed& renewed = tree_.models[own.model].renewed;
        if (renewed.model < 0) return;
        Pupil& again = step.add_pupil(renewed.model, &own);
        choose_rows(step, own.rows, renewed_stands_for(renewed), again.rows);
        if (again.rows.empty()) step.n_pupils--;
    }
    // Enlists the models of a node's trials, after its own.
    void enlist(Step& step, Stop& stop, const Pupil& own) const {
        const int node = stop.node;
        if (!step.waits) enlist_renewed(step, own);
        stop.has_grid = rates.first_rows > 0 && !trials_rest(stop);
        if (!stop.has_grid) return;
        stop.grid_rests = may_rest() && stop.stands_for == 1.0 && (stop.rests & kGrid);
        const auto is_seen = [&](int row) { return step.is_for_all[row] != 0; };
        stop.has_grid = !stop.grid_rests || std::any_of(own.rows.begin(), own.rows.end(), is_seen);
        for (int i = 0; i < rates.per_node; i++) {
            const Trial& trial = trials[node * rates.per_node + i];
            if (trial.is_free()) continue;
            Pupil& left = step.add_pupil(trial.left_model, &own);  // has the bends of `own`
            Pupil& right = step.add_pupil(trial.right_model, &own);
            const bool rests = trial_stands_for(stop, kFirstTrial << i) != 1.0;
            for (const int row : own.rows)
                if (!rests || step.is_for_all[row])
                    (trial.condition.holds(step.chunk.raw_row(row, tree_.table->n_features())) ? left : right)
                        .rows.push_back(row);
            if (left.rows.empty()) std::swap(step.pupils[step.n_pupils - 2], step.pupils[step.n_pupils - 1]);
            step.n_pupils -= left.rows.empty() + right.rows.empty();
        }
        if (bend_trials[node].is_free()) return;
        Pupil& bent = step.add_pupil(bend_trials[node].model, nullptr, &own);
        choose_rows(step, own.rows, trial_stands_for(stop, kBendTrial), bent.rows);
        if (bent.rows.empty()) step.n_pupils--;
    }
    // Enlists the challenger, after all nodes.
    void enlist_last(Step& step) const {
        if (challenger.model < 0) return;
        Pupil& pupil = step.add_pupil(challenger.model);
        choose_rows(step, step.stops[0].rows, challenger_stands_for(), pupil.rows);
        if (pupil.rows.empty()) step.n_pupils--;
    }
    void add_to(Fingerprint& print) const {
        for (const Trial& trial : trials) print.add(trial.condition);
        for (const Grid& grid : grids) print.add(std::int64_t{grid.n_slots()});
        for (const BendTrial& trial : bend_trials) print.add(std::int64_t{trial.model});
        for (const Model& model : tree_.models.all) print.add(std::int64_t{model.renewed.model});
    }
    void make_room(const Step& step, int n_threads, Scratch& scratch, Part& part) {
        part.trials.reserve(rates.per_node);
        scratch.lessons.sides.reserve(2 * static_cast<std::size_t>(rates.per_node));
        if (std::ssize(scratch.grids) < n_threads) scratch.grids.resize(n_threads);
        const int m = tree_.table->n_features();
        int n_raw = 0;  // most rows of a node without edges
        for (int s = 0; s < step.n_stops; s++) {
            Grid& grid = grids[step.stops[s].node];
            if (grid.is_ready() || rates.first_rows == 0) continue;
            const int n = static_cast<int>(step.stops[s].rows.size());
            grid.make_room_for(n, m, rates.first_rows);
            n_raw = std::max(n_raw, n);
        }
        for (int who = 0; who < n_threads; who++) {
            GridScratch& own = scratch.grids[who];
            own.values.resize(step.chunk.n);
            own.seen.reserve(step.chunk.n);
            own.residual.reserve(static_cast<std::size_t>(step.chunk.n) * tree_.shape.outputs);
            own.rows.reserve(step.chunk.n, tree_.grid_shape().size(), m, true);
            if (n_raw > 0) own.rows.reserve(n_raw, tree_.grid_shape().size(), m, false);
        }
    }
    // The same for sums from elsewhere; throws unless they fit this node.
    void make_room_for(int node, const Part& part) {
        for (const TrialSums& sums : part.trials)
            if (sums.trial < 0 || sums.trial / rates.per_node != node || trials[sums.trial].is_free())
                throw std::invalid_argument("the sums have a trial that the tree has not");
        grids[node].check(part.grid, tree_.grid_shape(), tree_.table->n_features());
        grids[node].make_room_for(part.grid.n, tree_.table->n_features(), rates.first_rows);
    }
    void find_lessons(Step& step, const Stop& stop, Lessons& found) const {
        const Renewed& renewed = tree_.models[tree_.nodes[stop.node].model].renewed;
        found.renewed = {renewed.model < 0 || step.waits ? nullptr : step.next_lesson(renewed.model)};
        found.sides.clear();
        found.bend = {};
        if (trials_rest(stop)) return;
        for (int t = stop.node * rates.per_node; t < (stop.node + 1) * rates.per_node; t++) {
            if (trials[t].is_free()) continue;
            for (const int model : {trials[t].left_model, trials[t].right_model})
                found.sides.push_back({step.next_lesson(model)});
        }
        const BendTrial& bend = bend_trials[stop.node];
        if (!bend.is_free()) found.bend = {step.next_lesson(bend.model)};
    }
    // Nats by which a renewed model has lost less on some rows.
    double lead_on(const Step& step, const Renewed& renewed, LessonRows& again, int end) const {
        double lead = 0.0;
        again.read(end, [&](int i, int row) {
            const double less = step.node_loss[row] - again.lesson->before.loss[i];
            lead +=
                renewed_stands_for(renewed) * step.chunk.weights[row] * std::clamp(less, -kMostAdvantage, kMostAdvantage);
        });
        return lead;
    }
    // Sums the next rows before `end`, except for grids.
    void accumulate(Step& step, Scratch&, const Stop& stop, Lessons& lessons, const Lesson*, int end, Part& part) const {
        part.renewed_lead += lead_on(step, tree_.models[tree_.nodes[stop.node].model].renewed, lessons.renewed, end);
        if (trials_rest(stop)) return;
        const double *weights = step.chunk.weights.data(), *node_loss = step.node_loss.data(),
                     *leaf_loss = step.leaf_loss.data();
        auto side = lessons.sides.begin();
        for (int place = 0; place < rates.per_node; place++) {
            const int t = stop.node * rates.per_node + place;
            if (trials[t].is_free()) continue;
            TrialSums& sums = part.trials.emplace_back();
            sums.trial = t;
            const double stands_for = stop.stands_for * trial_stands_for(stop, kFirstTrial << place);
            for (double* count : {&sums.n_left, &sums.n_right}) {
                const double* const losses = side->lesson ? side->lesson->before.loss : nullptr;
                side->read(end, [&](int i, int row) {
                    const double weight = stands_for * weights[row];
                    sums.node_loss += weight * node_loss[row];
                    sums.subtree_loss += weight * leaf_loss[row];
                    sums.trial_loss += weight * losses[i];
                    sums.seen += weight;
                    *count += weights[row];
                });
                side++;
            }
        }
        const double stands_for = stop.stands_for * trial_stands_for(stop, kBendTrial);
        lessons.bend.read(end, [&](int i, int row) {
            const double weight = stands_for * step.chunk.weights[row];
            part.bend_node_loss += weight * step.node_loss[row];
            part.bend_loss += weight * lessons.bend.lesson->before.loss[i];
            part.bend_seen += weight;
        });
    }
    // The grids: for a node that learns any rows, some features at a time, each on any thread.
    void accumulate_grid(const Step& step, const Stop& stop, Visit seen, const Features& some, GridScratch& own,
                         GridRows& sums) const {
        const int outputs = tree_.shape.outputs;
        const double* residual = stop.pupil->residual.data() + (seen.rows - stop.pupil->rows.data()) * outputs;
        if (stop.grid_rests) {
            own.seen.clear();
            own.residual.clear();
            for (int i = 0; i < seen.n; i++) {
                if (!step.is_for_all[seen.rows[i]]) continue;
                own.seen.push_back(seen.rows[i]);
                const double* said = residual + static_cast<long>(i) * outputs;
                own.residual.insert(own.residual.end(), said, said + outputs);
            }
            seen = {own.seen.data(), static_cast<int>(own.seen.size())};
            residual = own.residual.data();
        }
        grids[stop.node].accumulate(tree_.f, tree_.grid_shape(), *tree_.table, step.chunk, seen, residual, some, own.values,
                                    sums);
    }
    void accumulate_grid(const Step& step, const Stop& stop, Part& part) const {
        GridScratch own;
        own.values.resize(step.chunk.n);
        if (stop.has_grid) accumulate_grid(step, stop, stop.pupil->visit(), {0, tree_.table->n_features()}, own, part.grid);
    }
    void absorb_grid(int node, const Features& some, GridRows& sums) {
        grids[node].absorb(tree_.f, tree_.grid_shape(), sums, some, rates.first_rows);
    }
    void absorb_grid(int node, Part& part) { absorb_grid(node, {0, tree_.table->n_features()}, part.grid); }
    void learn_grid(const Step& step, const Stop& stop, const Visit& seen, const Features& some, Scratch& scratch, int who) {
        GridScratch& own = scratch.grids[who];
        accumulate_grid(step, stop, seen, some, own, own.rows);
        absorb_grid(stop.node, some, own.rows);
    }
    // Estimated nanoseconds per row and feature; next to nothing before there are edges.
    double grid_work(int node) const { return grids[node].is_ready() ? 8.0 + 0.2 * tree_.grid_shape().size() : 0.0; }
    // To be called after all nodes. With the floor a row costs at most -log of the smallest share, so the loss without it is
    // capped there as well.
    void accumulate_last(Step& step, Whole& sums) const {
        sums = {};
        LessonRows lesson = find_challenger(step);
        accumulate_challenger(step, lesson, step.chunk.n, sums);
        accumulate_loss(step, sums);
    }
    LessonRows find_challenger(Step& step) const {
        return {challenger.model < 0 ? nullptr : step.next_lesson(challenger.model)};
    }
    void accumulate_challenger(const Step& step, LessonRows& lesson, int end, Whole& sums) const {
        const double stands_for = challenger_stands_for(), most = most_floored_;
        lesson.read(end, [&](int i, int row) {
            const double weight = stands_for * step.chunk.weights[row];
            sums.seen += weight;
            sums.challenger_loss += weight * std::min(lesson.lesson->before.loss[i], most);
            sums.rival_loss += weight * std::min(step.leaf_loss[row], most);
        });
    }
    static void accumulate_loss(const Step& step, Whole& sums) {
        for (int i = 0; i < step.chunk.n; i++) {
            sums.loss += step.chunk.weights[i] * step.told_loss[i];
            sums.rows += step.chunk.weights[i];
        }
    }
    // The number of rows between two visits takes few different values, so the fades are cached.
    const Fade& fade_after(double rows) {
        const auto whole = static_cast<std::int64_t>(std::min(rows, 1e9));
        Fade& fade = fades_[static_cast<std::uint64_t>(whole) % kFades];
        if (rows != fade.rows) {
            const double keep = std::exp(-rows / rates.window);
            fade = {rows, keep, std::pow(keep, rates.recent_speed)};
        }
        return fade;
    }
    void absorb_lead(int node, double rows, double more) {
        Renewed& renewed = tree_.models[tree_.nodes[node].model].renewed;
        if (renewed.model < 0) return;
        const double keep = rows == 1.0 ? kKeptLead : std::pow(kKeptLead, rows);
        const double lead = keep * (renewed.lead + rates.doubt) - rates.doubt + more;
        renewed.lead = std::clamp(lead, -kMostLead, kMostLead);
    }
    // The harm is what a leaf has lately lost beyond the loss if all labels were equally likely.
    void absorb_harm(int node, double rows, double told_loss) {
        Renewed& renewed = tree_.models[tree_.nodes[node].model].renewed;
        if (renewed.model < 0 || tree_.n_classes == 0) return;  // for numbers there is none
        const double keep = rows == 1.0 ? kKeptHarm : std::pow(kKeptHarm, rows);
        const double more = told_loss / rows - std::log(tree_.n_classes);  // per row
        renewed.harm = std::max(0.0, keep * renewed.harm + more * (1.0 - keep) / (1.0 - kKeptHarm));
    }
    void absorb(int node, const Fade& fade, const NodeSums&, Part& part) {
        grids[node].fade(fade.keep);
        NodeRecord& record = tree_.records[node];
        const double price = rates.split_price * rates.window * (1.0 - fade.keep), below = record.n_splits * price;
        record.subtree_loss += below;
        for (int t = node * rates.per_node; part.trials.empty() && t < (node + 1) * rates.per_node; t++)
            for (double* sum : {&trials[t].node_loss, &trials[t].subtree_loss, &trials[t].trial_loss, &trials[t].evidence})
                *sum *= fade.keep;
        for (const TrialSums& own : part.trials) {
            Trial& trial = trials[own.trial];
            trial.node_loss = fade.keep * trial.node_loss + own.node_loss;
            trial.subtree_loss = fade.keep * trial.subtree_loss + own.subtree_loss + below;
            trial.trial_loss = fade.keep * trial.trial_loss + own.trial_loss + price;
            trial.evidence = fade.keep * trial.evidence + own.seen;
            trial.n_left += own.n_left;
            trial.n_right += own.n_right;
        }
        BendTrial& bend = bend_trials[node];
        bend.node_loss = fade.keep * bend.node_loss + part.bend_node_loss;
        bend.loss = fade.keep * bend.loss + part.bend_loss;
        bend.evidence = fade.keep * bend.evidence + part.bend_seen;
    }
    // When the recent loss of the leaves is clearly above the long-run loss, something has changed, and nothing rests for a
    // long while.
    void absorb_last(const Whole& sums) {
        absorb_challenger(sums, tree_.clock);
        absorb_loss(sums);
    }
    void absorb_challenger(const Whole& sums, double clock) {
        if (challenger.model < 0) return;
        const double keep = fade_after(clock - challenger.clock).keep;
        challenger.loss = keep * challenger.loss + sums.challenger_loss;
        challenger.rival_loss = keep * challenger.rival_loss + sums.rival_loss;
        challenger.rows = keep * challenger.rows + sums.seen;
        challenger.clock = clock;
    }
    void absorb_loss(const Whole& sums) {
        const Fade fade = fade_after(sums.rows);
        tree_loss = fade.keep * tree_loss + sums.loss;
        tree_rows = fade.keep * tree_rows + sums.rows;
        recent_loss = fade.keep_recent * recent_loss + sums.loss;
        recent_rows = fade.keep_recent * recent_rows + sums.rows;
        if (recent_loss * tree_rows > (rates.alarm_factor * tree_loss + rates.alarm_nats * tree_rows) * recent_rows)
            restless_until = tree_.clock + rates.restless_rows;
    }
    struct Kept {
        std::vector<Trial> trials;
        std::vector<Grid> grids;
        std::vector<BendTrial> bend_trials;
        double tree_loss, tree_rows, recent_loss, recent_rows, restless_until;
    };
    Kept kept() const {
        return {trials, grids, bend_trials, tree_loss, tree_rows, recent_loss, recent_rows, restless_until};
    }
    void put_back(Kept& from) {
        trials.swap(from.trials);
        grids.swap(from.grids);
        bend_trials.swap(from.bend_trials);
        tree_loss = from.tree_loss, tree_rows = from.tree_rows, recent_loss = from.recent_loss;
        recent_rows = from.recent_rows, restless_until = from.restless_until;
    }
    void renew(Step&, Scratch&, int, const NodeSums&) {}  // Python searches for new trials: learn/evidence.py

    // Converts to a target in other units; gradients are in their inverse. Losses include the logarithm of the spread's
    // root: on the same rows only differences count, but an alarm compares different rows.
    void convert(const Conversion& to) {
        const double keep = to.factor > 0.0 ? 1.0 : 0.0, more = 0.5 * std::log(to.spread);
        for (double* sum : {&tree_loss, &tree_rows, &recent_loss, &recent_rows}) *sum *= keep;
        tree_loss += more * tree_rows;
        recent_loss += more * recent_rows;
        if (to.is_log && to.factor > 0.0) return;
        for (Grid& grid : grids) to.factor > 0.0 ? grid.scale_gradients(1.0 / to.factor) : grid.forget_gradients();
    }

    // ---- whether anything is due: a cheap filter; Python decides
    Due due(int node) const {
        const NodeRecord& record = tree_.records[node];
        const bool is_leaf = tree_.nodes[node].is_leaf();
        Due due;
        for (int t = node * rates.per_node; t < (node + 1) * rates.per_node; t++) {
            const Trial& trial = trials[t];
            if (trial.is_free() || trial.node_loss - trial.trial_loss < record.split_level) continue;
            if (is_leaf || trial.subtree_loss - trial.trial_loss >= record.replace_level) due.change = true;
        }
        due.model = bend_trials[node].is_due();
        if (rates.first_rows == 0 || trials_rest(node)) return due;
        const Grid& grid = grids[node];
        due.search = grid.is_ready() ? tree_.nodes[node].rows >= record.refresh_at : grid.n_first_rows >= rates.first_rows;
        due.search = due.search || tree_.models[tree_.nodes[node].model].renewed.harm >= rates.harm;
        return due;
    }
    bool is_due(int node) const { return static_cast<bool>(due(node)); }
    bool is_link_due() const { return challenger.model >= 0 && challenger.gain() >= challenger.level; }

    // ---- structure
    void reserve_nodes(int n) {
        grids.reserve(n);
        bend_trials.reserve(n);
        trials.reserve(static_cast<std::size_t>(n) * rates.per_node);
    }
    struct Memory {};  // memory of a new node
    Memory new_memory() const { return {}; }
    void add_node(int node, Memory&&) {
        if (node < std::ssize(grids)) return;
        grids.resize(node + 1);
        bend_trials.resize(node + 1);
        trials.resize(static_cast<std::size_t>(node + 1) * rates.per_node);
    }
    void release(int node) {
        drop_trials(node);
        bend_trials[node] = BendTrial();
        grids[node].restart();
    }
    struct Draft {
        SparseWeights left, right;
    };
    Draft draft(int node, int t) const {
        if (t / rates.per_node != node || trials.at(t).is_free()) throw std::out_of_range("the node has no such trial");
        const int source = tree_.nodes[node].model;
        return {completed(trials[t].left_model, source), completed(trials[t].right_model, source)};
    }
    // Makes the trial's models those of the children. It cannot fail.
    Branch take(int node, int t, Draft& draft) {
        std::swap(tree_.models[trials[t].left_model].sparse, draft.left);
        std::swap(tree_.models[trials[t].right_model].sparse, draft.right);
        tree_.models.drop_renewed(tree_.models[tree_.nodes[node].model]);  // the node is no longer a leaf
        const Branch branch = {trials[t].condition, std::exchange(trials[t].left_model, -1),
                               std::exchange(trials[t].right_model, -1)};
        NodeRecord& record = tree_.records[node];
        record.own_loss = trials[t].node_loss;
        record.subtree_loss = trials[t].trial_loss;
        record.evidence = trials[t].evidence;
        record.recent = 0.0;
        drop_trials(node);
        return branch;
    }
    // Trials of bends that failed above are also rarer below.
    void children_came(int node, const Draft&) {
        for (const int child : {tree_.nodes[node].left, tree_.nodes[node].right})
            bend_trials[child].n_failed = bend_trials[node].n_failed;
    }
    void set_subtree_loss(int node, double loss) { tree_.records[node].subtree_loss = loss; }
    // After the threshold of a node has moved: drops trials of the same split, and those below that all rows are on one side
    // of. `left` and `right` are the nodes below its children.
    void threshold_moved(int node, const std::vector<int>& left, const std::vector<int>& right) {
        const Condition moved = tree_.nodes[node].condition;
        const auto drop = [&](int at, auto&& is_useless) {
            for (int t = at * rates.per_node; t < (at + 1) * rates.per_node; t++) {
                const Condition& tried = trials[t].condition;
                if (tried.feature == moved.feature && !tried.equality && is_useless(tried.threshold)) drop_trial(t, 0.0);
            }
        };
        const auto is_above = [&](double threshold) { return threshold >= moved.threshold; };
        const auto is_below = [&](double threshold) { return threshold <= moved.threshold && std::isfinite(threshold); };
        drop(node, [&](double threshold) { return threshold == moved.threshold; });
        drop(tree_.nodes[node].left, is_above);
        drop(tree_.nodes[node].right, is_below);
        for (const int below : left) drop(below, is_above);
        for (const int below : right) drop(below, is_below);
    }

    void start_trial(int t, const Proposal& proposal) {
        const int node = t / rates.per_node;
        if (!tree_.nodes.has(node)) throw std::out_of_range("there is no such place for a trial");
        tree_.models.make_places(2);
        Model left = tree_.models[tree_.nodes[node].model].without_sparse(), right = left;
        left.sparse.loosening = 1.0 / proposal.n_left;
        right.sparse.loosening = 1.0 / proposal.n_right;
        left.blend.scale /= proposal.n_left;  // fewer rows: more uncertainty
        left.blend.trace /= proposal.n_left;
        right.blend.scale /= proposal.n_right;
        right.blend.trace /= proposal.n_right;
        for (Model* side : {&left, &right}) Blend::add_variance(tree_.shape, *side, rates.side_variance);
        trials[t] = Trial();
        trials[t].condition = proposal.condition;
        trials[t].slot = proposal.slot;
        trials[t].born = tree_.nodes[node].rows;
        trials[t].left_model = tree_.models.place(std::move(left));
        trials[t].right_model = tree_.models.place(std::move(right));
    }
    void drop_trial(int t, double barred_until) {
        Trial& trial = trials.at(t);
        Grid& grid = grids[t / rates.per_node];
        if (barred_until > 0.0 && trial.slot >= 0) grid.barred_until[trial.slot] = barred_until;
        tree_.models.free(trial.left_model);
        tree_.models.free(trial.right_model);
        trial = Trial();
    }
    // ---- renewed models
    // Copies the leaf's model anew. The lead of the renewed model before is kept, as the best guess for the next.
    void renew(int node) {
        const Model& own = tree_.models[tree_.nodes[node].model];
        const double lead = own.renewed.model < 0 ? -rates.doubt : own.renewed.lead;
        put_renewed(node, Blend::renewed(tree_.shape, own, tree_.models.rates.variance), lead, own.renewed.harm);
    }
    // Lets it start from zero, with equal shares; a noise floor is one of the labels, and stays.
    void restart(int node) {
        const Model& own = tree_.models[tree_.nodes[node].model];
        Model model = own.without_sparse();
        tree_.models.restart(tree_.shape, model);
        model.loss = own.loss;
        put_renewed(node, std::move(model), 0.0, 0.0);
    }
    // ---- bends
    // Starts a trial of the node's model with these bends and this memory.
    void start_bend_trial(int node, const Bends& bends, double memory, double level, double price) {
        Model model = Blend::rebent(tree_.shape, tree_.table->schema, tree_.models[tree_.nodes[node].model].without_sparse(),
                                    bends, tree_.models.rates);
        model.blend.memory = memory;
        tree_.models.make_places(1);
        drop_bend_trial(node);
        bend_trials[node].born = tree_.nodes[node].rows;
        bend_trials[node].level = level;
        bend_trials[node].price = price;
        bend_trials[node].model = tree_.models.place(std::move(model));
    }
    void drop_bend_trial(int node) {
        BendTrial& trial = bend_trials[node];
        tree_.models.free(trial.model);
        const double next_at = trial.next_at;
        const int n_failed = trial.n_failed;
        trial = BendTrial();
        trial.next_at = next_at;
        trial.n_failed = n_failed;
    }
    void set_next_bend(int node, double next_at, int n_failed) {
        bend_trials[node].next_at = next_at;
        bend_trials[node].n_failed = n_failed;
    }
    // Makes the trial's model the node's. Trials of splits, which were compared with the old one, are dropped.
    void take_bend(int node) {
        SparseWeights sparse = completed(bend_trials[node].model, tree_.nodes[node].model);  // from here on nothing can fail
        std::swap(tree_.models[bend_trials[node].model].sparse, sparse);
        const double gain = bend_trials[node].gain();
        std::swap(tree_.nodes[node].model, bend_trials[node].model);
        NodeRecord& record = tree_.records[node];
        record.own_loss -= gain;
        if (tree_.nodes[node].is_leaf()) record.subtree_loss -= gain;
        drop_trials(node);
        grids[node].forget_gradients();
    }
    std::vector<BendProposal> bend_proposals(int node) const {
        const Table& table = *tree_.table;
        if (!grids[node].is_ready()) return {};
        const double work = 10.0 * grids[node].n_slots() / std::max(table.n_features(), 1);
        return by_feature<BendProposal>(work, [&](int j, std::vector<BendProposal>& found) {
            if (table.schema.value_column[j] >= 0 && !table.scaler.is_indicator[j])
                grids[node].add_bends(tree_.f, tree_.grid_shape(), table, j, found);
        });
    }
    void choose_grid(int node, const std::vector<std::int32_t>& slots, std::vector<double> edges) {
        grids[node] = grids[node].chosen(slots, std::move(edges), tree_.f, tree_.grid_shape(), tree_.table->schema);
    }
    std::vector<Proposal> proposals(int node) const {
        const int m = tree_.table->n_features(), size = tree_.grid_shape().size();
        if (!grids[node].is_ready()) return {};
        const double work = (20.0 + 0.5 * size) * grids[node].n_slots() / std::max(m, 1);
        return by_feature<Proposal>(work, [&](int j, std::vector<Proposal>& found) {
            const Proposal best = grids[node].best(tree_.f, tree_.grid_shape(), j, tree_.table->schema.is_categorical[j],
                                                   tree_.nodes[node].rows);
            if (best.slot >= 0) found.push_back(best);
        });
    }
    // For two labels, or fewer so far.
    void make_challenger() {
        Model model = tree_.models.fresh(tree_.shape);
        model.loss.has_floor = 1.0;
        tree_.models.make_places(1);
        challenger.model = tree_.models.place(std::move(model));
    }
    void drop_challenger() {
        tree_.models.free(challenger.model);
        for (Model& model : tree_.models.all) model.loss.has_floor = 0.0;
    }
    // Makes the challenger's model the root's; the other link is the challenger from now on. Without a floor, that is the
    // root's previous model: a model with a floor has not learnt what it took for noise, and a copy of it would start far
    // behind. Returns the root's next model; `plain` is its previous one.
    struct Exchange {
        bool has_floor;
        Model twin;
    };
    Exchange draft_exchange() {
        if (challenger.model < 0) throw std::logic_error("there is no challenger");
        const bool has_floor = tree_.models[challenger.model].loss.has_floor != 0.0;
        Exchange made = {has_floor, has_floor ? Model() : tree_.models[challenger.model]};
        tree_.models.make_places(1);
        return made;
    }
    int take_exchange(int plain, Exchange& made) {
        const int winner = challenger.model;
        if (made.has_floor) {
            challenger.model = plain;
        } else {
            made.twin.loss = {};
            made.twin.loss.floor[0] = made.twin.loss.floor[1] = tree_.models.rates.loss.floor.first;
            made.twin.loss.has_floor = 1.0;
            challenger.model = tree_.models.place(std::move(made.twin));
        }
        challenger.loss = challenger.rival_loss = challenger.rows = 0.0;
        return winner;
    }

    // ---- growth
    void feature_came() {
        for (Grid& grid : grids) grid.restart();
        for (Trial& trial : trials) trial.slot = -1;  // its grid is gone
    }
    // Called before a sparse feature gets a column: models on trial may use the weights of others for it, so trials are
    // dropped.
    void promotion_comes() {
        for (int node = 0; node < tree_.nodes.size(); node++)
            if (tree_.nodes.has(node)) drop_trials(node);
    }
    std::vector<Grid> reshaped(const Shape& to) const {
        std::vector<Grid> moved = grids;
        for (Grid& grid : moved) {
            if (!grid.is_ready()) continue;
            if (to.outputs == tree_.shape.outputs && !tree_.table->has_sparse()) {
                grid.gradients = widened(grid.gradients, tree_.shape.stride, to.stride);
                grid.total = widened(grid.total, tree_.shape.stride, to.stride);
            } else {
                grid.clear_gradients(tree_.grid_shape_of(to));
            }
        }
        return moved;
    }
    void take_reshaped(std::vector<Grid>& moved) { grids.swap(moved); }
    void settle() {}

    template <class Archive>
    void visit(Archive& a) {
        a("challenger", challenger.model), a("challenger_loss", challenger.loss), a("rival_loss", challenger.rival_loss);
        a("challenger_clock", challenger.clock), a("challenger_rows", challenger.rows);
        a("tree_loss", tree_loss), a("tree_rows", tree_rows), a("recent_loss", recent_loss);
        a("recent_rows", recent_rows), a("restless_until", restless_until);
        a("block_is_open", block.is_open), a("block_spares", block.spares);
        a("block_challenger_rests", block.challenger_rests);
        a.each("trial", trials, [](auto& inner, Trial& trial) {
            inner("feature", trial.condition.feature), inner("threshold", trial.condition.threshold);
            inner("equality", trial.condition.equality), inner("missing_left", trial.condition.missing_left);
            inner("slot", trial.slot), inner("left_model", trial.left_model), inner("right_model", trial.right_model);
            inner("node_loss", trial.node_loss), inner("subtree_loss", trial.subtree_loss), inner("loss", trial.trial_loss);
            inner("evidence", trial.evidence), inner("n_left", trial.n_left), inner("n_right", trial.n_right);
            inner("born", trial.born);
        });
        a.each("grid", grids, [](auto& inner, Grid& grid) { grid.visit(inner); });
        a.each("bend_trial", bend_trials, [](auto& inner, BendTrial& trial) {
            inner("model", trial.model), inner("node_loss", trial.node_loss), inner("loss", trial.loss);
            inner("evidence", trial.evidence), inner("born", trial.born), inner("next_at", trial.next_at);
            inner("n_failed", trial.n_failed);
        });
    }

private:
    void put_renewed(int node, Model&& model, double lead, double harm) {
        if (!tree_.nodes[node].is_leaf() || tree_.table->has_sparse())
            throw std::invalid_argument("only a leaf has a renewed model, and none of sparse features");
        const int id = tree_.nodes[node].model;
        tree_.models.make_places(1);  // from here on nothing can fail
        tree_.models.free(tree_.models[id].renewed.model);
        const int place = tree_.models.place(std::move(model));
        tree_.models[id].renewed = {place, lead, tree_.nodes[node].rows, harm};
    }
    // Collects the results of find(feature, found) in the order of the features; `work` is per feature.
    template <class Found, class Find>
    std::vector<Found> by_feature(double work, const Find& find) const {
        const int m = tree_.table->n_features();
        std::vector<std::vector<Found>> parts(m);
        Threads::all().run_ranges(tree_.n_threads, m, 1, work, [&](std::size_t begin, std::size_t end, int) {
            for (std::size_t j = begin; j < end; j++) find(static_cast<int>(j), parts[j]);
        });
        std::vector<Found> all;
        for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
        return all;
    }
    // The sparse weights of a model on trial, including those that it still takes from its source.
    SparseWeights completed(int model, int source) const {
        const int width = SparseCell::width(tree_.shape.outputs);
        SparseWeights all = tree_.models[model].sparse;
        all.reserve(tree_.models[source].sparse.n(), width);
        all.complete(tree_.models[source].sparse, width, tree_.models.rates.variance);
        all.loosening = 1.0;
        return all;
    }
    // A node far from being pruned rests as long as its branch also earns enough recently.
    bool is_far_from_change(int node) const {
        const NodeRecord& record = tree_.records[node];
        const double gain = record.own_loss - record.subtree_loss;
        return gain >= record.rest_level && rates.recent_speed * record.recent >= rates.rest_least * gain;
    }
    static bool is_mostly_lost(double rows, double least_rows, double gain) {
        return rows > least_rows && !(gain > kLeastGain);
    }
    bool challenger_rests_now() const {
        return challenger.gain() <= -challenger.level ||
               is_mostly_lost(challenger.rows, rates.trial_rows, challenger.gain());
    }
    double challenger_stands_for() const {
        if (tree_.table->has_sparse() && challenger.gain() <= 0.0) return rates.rest_share;
        const bool rests = block.is_open ? block.challenger_rests != 0 : challenger_rests_now();
        return may_rest() && rests ? rates.rest_share : 1.0;
    }
    void drop_trials(int node) {
        for (int t = node * rates.per_node; t < (node + 1) * rates.per_node; t++)
            if (!trials[t].is_free()) drop_trial(t, 0.0);
        drop_bend_trial(node);
    }
    LossTree<Blend>& tree_;
    std::uint64_t seed_;
    double most_floored_;              // most nats per row with a floor
    static constexpr int kFades = 61;  // a prime, as rows often come in batches of one size
    Fade fades_[kFades];               // by number of rows
    bool spares_ = false;
};

}  // namespace driftree
