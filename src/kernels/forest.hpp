// Forest: all trees of a forest at once. A row is read once. Each member adds its own hinges to it, predicts it and learns
// it; the stack learns from the predictions. Python decides what is split, rescaled or replaced.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "model_tree.hpp"
#include "stack.hpp"
#include "threads.hpp"

namespace driftree {

// Sources of the columns of a member's rows: feature `source` or, if negative, hinge -1 - source.
class Hinges {
public:
    Hinges() = default;
    // `ends` has two features per hinge, `slopes` three numbers. Throws if any index is invalid.
    Hinges(std::vector<std::int32_t> given, const std::vector<std::int32_t>& ends, const std::vector<double>& slopes)
        : sources(std::move(given)) {
        if (ends.size() % 2 || slopes.size() != 3 * ends.size() / 2)
            throw std::invalid_argument("a hinge has two ends and three slopes");
        for (std::size_t h = 0; h < ends.size() / 2; h++) {
            if (ends[2 * h] < 0 || ends[2 * h + 1] < 0) throw std::invalid_argument("there is no such end of a hinge");
            first_.push_back(ends[2 * h]), second_.push_back(ends[2 * h + 1]);
            a_.push_back(slopes[3 * h]), b_.push_back(slopes[3 * h + 1]), c_.push_back(slopes[3 * h + 2]);
        }
        for (const int end : ends) n_ends = std::max(n_ends, end + 1);
        n_features = n_ends;
        for (const int source : sources) {
            if (source < -n()) throw std::invalid_argument("there is no such hinge");
            n_features = std::max(n_features, source + 1);
        }
    }
    std::vector<std::int32_t> sources;
    int n_features = 0, n_ends = 0;  // fewest features that rows, and the scale, must have

    int n() const { return static_cast<int>(first_.size()); }
    int width() const { return static_cast<int>(sources.size()); }
    // A row with the member's own columns; `scaled` are the features in deviations from their means.
    void extend(const Functions& f, const double* x, const double* scaled, double* out) const {
        Room room(n());
        double* found = room.data();
        f.hinges({first_.data(), second_.data(), a_.data(), b_.data(), c_.data()}, scaled, n(), found);
        for (int c = 0; c < width(); c++) out[c] = sources[c] >= 0 ? x[sources[c]] : found[-1 - sources[c]];
    }

private:
    std::vector<std::int32_t> first_, second_;  // both ends of each hinge
    std::vector<double> a_, b_, c_;
};

// Rows as passed to a forest; with sparse features each member has its own.
struct ForestRows {
    const double* X;
    int width;
    std::vector<SparseRows> sparse;  // of each member, or empty
    SparseRows held(int member) const { return sparse.empty() ? SparseRows{} : sparse[member]; }
    bool are_sparse() const { return !sparse.empty(); }
};

class Forest {
public:
    struct Member {
        MeasuredTree* engine = nullptr;
        Hinges hinges;
        Lines<double> rows, said;  // of a step; reused, for the memory
        std::int64_t took = 0;     // nanoseconds to learn the last step
    };
    Forest(int n_members, const Stack::Rates& rates, double most) : stack(n_members, rates), most_deviations(most) {
        members.resize(n_members);
        order_.resize(n_members - 1);
        std::iota(order_.begin(), order_.end(), 1);
    }
    Stack stack;
    std::vector<Member> members;
    double most_deviations;                                           // limit of scaled features
    std::int64_t wake_at = std::numeric_limits<std::int64_t>::max();  // rows from which something is due; set by Python
    int n_said = 0, said_width = 0;  // of the last step: rows, and numbers per row in members[].said
    std::atomic<int> n_threads = 1;
    mutable Turns turns;

    MeasuredTree& leader() const { return *members[0].engine; }
    bool has_labels() const { return leader().has_labels(); }
    int n_classes() const { return leader().n_classes; }
    // Numbers per row in a prediction of a member, and of the forest.
    int width() const { return has_labels() ? n_classes() : leader().n_outputs(); }

    // Sets shift and factor of each feature that may be an end.
    void set_scale(const double* given, std::size_t n) {
        scale_ = {};
        for (std::size_t j = 0; j < n; j++) {
            scale_.shift.push_back(given[2 * j]), scale_.factor.push_back(given[2 * j + 1]);
            scale_.limit.push_back(most_deviations);
        }
    }
    std::vector<double> scale() const {
        std::vector<double> all;
        for (std::size_t j = 0; j < scale_.shift.size(); j++)
            all.push_back(scale_.shift[j]), all.push_back(scale_.factor[j]);
        return all;
    }
    int n_scaled() const { return static_cast<int>(scale_.shift.size()); }

    void set_member(int place, MeasuredTree& engine, Hinges hinges) {
        std::vector<std::int32_t> sources = hinges.sources;
        for (std::int32_t& source : sources) source = std::max(source, -1);
        members[place].hinges = std::move(hinges);
        members[place].engine = &engine;
        if (place == 0) return;
        engine.table->leader = sources.empty() ? nullptr : leader().table;
        engine.table->sources = std::move(sources);
    }

    // ---------------------------------------------------------------- one step
    // All members learn the rows, which must be checked. Python then decides about due nodes.
    //
    // The first tree predicts and learns; meanwhile the others predict, and learn once its table has read the rows, the
    // slowest first, so that all threads finish at about the same time. With several threads, the calling thread runs
    // decide(place) for members that are due while others learn, but not for the first, whose table they follow.
    template <class Decide>
    void learn(const ForestRows& given, const double* targets, const double* weights, const double* wholes, int n,
               const Decide& decide) {
        const int n_members = stack.n_members;
        const bool is_first = leader().n_rows == 0;
        Signals signals(n_members - 1);
        std::vector<const double*> seen(n_members), said(n_members);
        std::vector<std::atomic<bool>> is_learnt(n_members);
        const Shared shared = share(given, 0, n, fit(whole_, n * n_features()), fit(scaled_, n * n_ends()));
        const StepRows step = {given, targets, weights, wholes, n};
        const double work = n * n_members * learning_work();
        const int most = threads_for(n);
        const int n_threads = most > 1 && Threads::all().pays(most, work - work / most) ? most : 1;
        if (n_threads > 1) sort_members();
        const auto decide_due = [&] {
            for (int i = 1; i < n_members; i++)
                if (is_learnt[i].exchange(false) && members[i].engine->has_due()) decide(i);
        };
        const auto study = [&](int i, int who) {
            if (signals.has_failed) return;
            try {
                if (i < n_members) said[i] = say_before(i, given, shared, n, seen[i]);
                if (i == 0) {
                    study_one(0, step, seen[0], &signals.is_scaled);
                } else if (i < n_members) {
                    signals.count();
                } else {
                    signals.wait();
                    const int place = order_[i - n_members];
                    if (signals.has_failed) return;
                    study_one(place, step, seen[place], nullptr);
                    is_learnt[place] = true;
                }
                if (who == 0 && n_threads > 1) decide_due();
            } catch (...) {
                signals.fail();
                throw;
            }
        };
        n_said = 0;
        Threads::all().run(n_threads, 2 * n_members - 1, study);
        n_said = n, said_width = has_labels() ? n_classes() : 1;
        if (has_labels()) {
            stack.learn_labels(said, targets, weights, n, n_classes());
        } else if (!is_first) {  // trees that have learnt nothing predict 0: their errors would be those of the unit
            stack.learn_numbers(said, targets, weights, n);
        }
    }
    bool has_due() const {
        return leader().n_rows >= wake_at ||
               std::any_of(members.begin(), members.end(), [](const Member& member) { return member.engine->has_due(); });
    }
    void show_level() {
        for (Member& member : members) member.engine->show_level();
    }

    // ---------------------------------------------------------------- predictions
    enum class Kind { log_odds, probabilities, numbers };
    // Predictions [rows, width()] of the forest for rows from `begin` up to, not including, `end`.
    void predict(const ForestRows& given, std::size_t begin, std::size_t end, Kind kind, double* out) const {
        const int n_members = stack.n_members, wide = width();
        const std::size_t block = std::min<std::size_t>(kRowsTogether, end - begin);
        std::size_t most = 0;
        for (const Member& member : members) most = std::max<std::size_t>(most, member.engine->table->n_features());
        Room rows(block * most), said(n_members * block * wide), links(static_cast<std::size_t>(n_members) * wide);
        Room whole(block * n_features()), scaled(block * n_ends());
        std::vector<double> shares;
        if (kind == Kind::numbers) shares = stack.shares();
        for (std::size_t i = begin; i < end; i += block) {
            const int n = static_cast<int>(std::min(block, end - i));
            const Shared shared = share(given, i, n, whole.data(), scaled.data());
            for (int m = 0; m < n_members; m++) {
                const SparseRows held = given.held(m).from(i);
                const double* seen = see(m, shared, held, n, rows.data());
                say(*members[m].engine, seen, held, n, wide, said.data() + m * block * wide);
            }
            for (int r = 0; r < n; r++, out += wide) {
                const double* own = said.data() + static_cast<std::size_t>(r) * wide;
                if (kind == Kind::numbers) {
                    stack.mean_of(own, block * wide, shares.data(), wide, leader().target.has_log_link, out);
                    continue;
                }
                for (int m = 0; m < n_members; m++) stack.links_of(own + m * block * wide, wide, links.data() + m * wide);
                stack.add_up(links.data(), wide, out);
                if (kind == Kind::probabilities) Stack::to_probabilities(out, wide);
            }
        }
    }
    double predicting_work() const {
        return static_cast<double>(stack.n_members) * members.back().engine->predicting_work();
    }
    // The common part of all members' rows. Features newer than the rows have their value for absent ones; of sparse rows
    // each member has its own.
    struct Shared {
        const double* X;
        int width;
        bool are_sparse;
        const double* scaled;  // [n, n_ends()] in deviations from their means
    };
    int n_features() const { return leader().table->n_features(); }
    // Number of features up to the last end of a hinge.
    int n_ends() const {
        int n = 0;
        for (const Member& member : members) n = std::max(n, member.hinges.n_ends);
        return n;
    }
    // The common part of n rows from `begin` on, in `whole` [n, n_features()] and `scaled` [n, n_ends()] as far as needed.
    Shared share(const ForestRows& given, std::size_t begin, int n, double* whole, double* scaled) const {
        Shared shared = {given.X + begin * given.width, given.width, given.are_sparse(), scaled};
        if (given.are_sparse()) return shared;
        const int m = n_features(), ends = n_ends();
        shared.X = fill(*leader().table, shared.X, shared.width, {}, n, whole);
        shared.width = m;
        for (int i = 0; i < n && ends > 0; i++)
            leader().f.scale_row(scale_.parts(), shared.X + static_cast<long>(i) * m, ends,
                                 scaled + static_cast<long>(i) * ends);
        return shared;
    }
    // Rows with a member's own columns, [n, features of its tree]: the given ones, or in `room`, which is large enough.
    const double* see(int place, const Shared& shared, const SparseRows& held, int n, double* room) const {
        const Member& member = members[place];
        const int m = member.engine->table->n_features(), ends = n_ends();
        if (shared.are_sparse) return fill(*member.engine->table, shared.X, shared.width, held, n, room);
        if (member.hinges.n() == 0) return shared.X;
        for (int i = 0; i < n; i++)
            member.hinges.extend(leader().f, shared.X + static_cast<long>(i) * shared.width,
                                 shared.scaled + static_cast<long>(i) * ends, room + static_cast<long>(i) * m);
        return room;
    }
    std::size_t scratch_bytes() const {
        std::size_t n = whole_.capacity() + scaled_.capacity();
        for (const Member& member : members) n += member.rows.capacity() + member.said.capacity();
        return sizeof(double) * n;
    }

private:
    static constexpr auto kWait = [](auto&& wait) { wait(); };
    // A single row is not worth a thread, and Python answers one at a time.
    int threads_for(int n) const { return n == 1 || leader().asks() ? 1 : n_threads.load(); }
    double learning_work() const { return 1000.0 + 50.0 * leader().shape.columns; }  // estimated nanoseconds per row

    // Complete rows from their first `width` values and their sparse features.
    static const double* fill(const Table& table, const double* X, int width, const SparseRows& held, int n, double* room) {
        const int m = table.n_features();
        if (width == m) return X;
        for (int i = 0; i < n; i++)
            table.fill_raw(X + static_cast<long>(i) * width, width, held.from(i), room + static_cast<long>(i) * m);
        return room;
    }
    static double* fit(Lines<double>& values, std::size_t n) {
        if (values.size() < n) values.resize(n);
        return values.data();
    }
    struct StepRows {
        const ForestRows& given;
        const double *targets, *weights, *wholes;  // as in Given
        int n;
    };
    // What the members of a step wait for: the predictions of the others, and the first tree's table, which must have read
    // the rows.
    struct Signals {
        explicit Signals(int n) : n_silent(n) {}
        std::atomic<int> n_silent;
        std::atomic<bool> is_scaled = false, has_failed = false;
        void count() {
            if (--n_silent == 0) n_silent.notify_all();
        }
        void wait() const {
            is_scaled.wait(false);
            for (int n; (n = n_silent) > 0;) n_silent.wait(n);
        }
        void fail() {
            has_failed = true;
            is_scaled = true, is_scaled.notify_all();
            n_silent = 0, n_silent.notify_all();
        }
    };
    // All but the first, slowest first.
    void sort_members() {
        std::sort(order_.begin(), order_.end(), [&](int a, int b) { return members[a].took > members[b].took; });
    }
    // A member's prediction of the rows before it learns them.
    const double* say_before(int place, const ForestRows& given, const Shared& shared, int n, const double*& seen) {
        Member& member = members[place];
        const SparseRows held = given.held(place);
        const int wide = width(), m = member.engine->table->n_features();
        seen = see(place, shared, held, n, fit(member.rows, static_cast<std::size_t>(n) * m));
        double* said = fit(member.said, static_cast<std::size_t>(n) * wide);
        say(*member.engine, seen, held, n, wide, said);
        for (int i = 0; i < n && !has_labels(); i++) said[i] = said[static_cast<long>(i) * wide + wide / 2];
        return said;
    }
    void study_one(int place, const StepRows& step, const double* seen, std::atomic<bool>* is_scaled) {
        const auto begin = std::chrono::steady_clock::now();
        MeasuredTree& engine = *members[place].engine;
        const Turn turn(engine.turns, true, kWait);
        engine.n_threads = threads_for(step.n);         // threads without a tree left help with the models of another
        const bool is_given = step.given.are_sparse();  // the chunk fills in sparse features
        const int m = engine.table->n_features();
        engine.learn({is_given ? step.given.X : seen, is_given ? step.given.width : m, step.given.held(place), step.targets,
                      step.weights, step.wholes},
                     step.n, is_scaled);
        members[place].took = (std::chrono::steady_clock::now() - begin).count();
    }
    static void say(const MeasuredTree& engine, const double* rows, const SparseRows& held, int n, int wide, double* out) {
        const Turn turn(engine.turns, false, kWait);  // a reader of the forest may copy a tree
        const int outputs = engine.n_outputs(), m = engine.table->n_features();
        std::int32_t leaves[kRowsTogether];
        Room predictors(static_cast<std::size_t>(kRowsTogether) * outputs);
        for (int i = 0; i < n; i += kRowsTogether) {
            const int some = std::min(kRowsTogether, n - i);
            engine.predictors_of(rows + static_cast<long>(i) * m, held.from(i), some, leaves, predictors.data());
            for (int r = 0; r < some; r++, out += wide) {
                const double* own = predictors.data() + static_cast<long>(r) * outputs;
                if (engine.has_labels()) {
                    engine.probabilities_of(leaves[r], own, out);
                } else {
                    engine.numbers_of(leaves[r], own, out);
                }
            }
        }
    }

    std::vector<int> order_;        // in which all members but the first learn
    Lines<double> whole_, scaled_;  // common rows of a step; reused, for the memory
    struct {
        std::vector<double> shift, factor, limit;
        Scale parts() const {
            const auto of = [](const std::vector<double>& values) { return const_cast<double*>(values.data()); };
            Scale scale = {};
            scale.shift = of(shift), scale.factor = of(factor), scale.limit = of(limit);
            return scale;
        }
    } scale_;  // scale of the features that may be ends
};

}  // namespace driftree
