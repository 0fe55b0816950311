// Forest: all trees of a forest at once. A row is read once. Each member sees it with hinges of its own, says what it thinks
// of it and learns it; the stack learns from what they said. What is split, rescaled or replaced is decided in Python.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "model_tree.hpp"
#include "stack.hpp"
#include "threads.hpp"

namespace driftree {

// Where the columns of a member's rows come from: feature `source`, or where that is negative the hinge -1 - source.
struct Hinges {
    std::vector<std::int32_t> sources, ends;  // of each hinge two ends,
    std::vector<double> slopes;               // and three slopes
    int n_features = 0, n_ends = 0;           // that rows, and the scale, must have at least

    int n() const { return static_cast<int>(ends.size() / 2); }
    int width() const { return static_cast<int>(sources.size()); }
    // Throws unless all is there that these speak of.
    void check() {
        if (ends.size() % 2 || slopes.size() != 3 * ends.size() / 2)
            throw std::invalid_argument("a hinge has two ends and three slopes");
        for (const int end : ends) {
            if (end < 0) throw std::invalid_argument("there is no such end of a hinge");
            n_ends = std::max(n_ends, end + 1);
        }
        n_features = n_ends;
        for (const int source : sources) {
            if (source < -n()) throw std::invalid_argument("there is no such hinge");
            n_features = std::max(n_features, source + 1);
        }
    }
    // A row as the member sees it; `scaled` are the features in deviations from their means.
    void extend(const double* x, const double* scaled, double* out) const {
        Room room(n());
        double* found = room.data();
        for (int h = 0; h < n(); h++) {
            const double* slope = &slopes[3 * static_cast<std::size_t>(h)];
            found[h] = std::max(0.0, slope[0] * scaled[ends[2 * h]] + slope[1] * scaled[ends[2 * h + 1]] + slope[2]);
        }
        for (int c = 0; c < width(); c++) out[c] = sources[c] >= 0 ? x[sources[c]] : found[-1 - sources[c]];
    }
};

// Rows as they are given to a forest: of sparse features each member has its own.
struct ForestRows {
    const double* X;
    int width;
    std::vector<SparseRows> sparse;  // of each member; or none
    SparseRows held(int member) const { return sparse.empty() ? SparseRows{} : sparse[member]; }
    bool are_sparse() const { return !sparse.empty(); }
};

class Forest {
public:
    struct Member {
        MeasuredTree* engine = nullptr;
        Hinges hinges;
        Lines<double> rows, said;  // of a step: kept between steps for their memory
    };
    Forest(int n_members, const Stack::Rates& rates, double most) : stack(n_members, rates), most_deviations(most) {
        members.resize(n_members);
    }
    Stack stack;
    std::vector<Member> members;
    std::vector<double> scale;  // of the features that are ends: shift and factor of each
    double most_deviations;     // that count
    std::int64_t wake_at = std::numeric_limits<std::int64_t>::max();  // rows at which Python wants to look; set by it
    std::atomic<int> n_threads = 1;
    mutable Turns turns;

    MeasuredTree& leader() const { return *members[0].engine; }
    bool has_labels() const { return leader().has_labels(); }
    int n_classes() const { return leader().n_classes; }
    // Numbers that a member says of a row, and all together.
    int width() const { return has_labels() ? n_classes() : leader().n_outputs(); }

    void set_member(int place, MeasuredTree& engine, Hinges hinges) {
        hinges.check();
        std::vector<std::int32_t> sources = hinges.sources;
        for (std::int32_t& source : sources) source = std::max(source, -1);
        members[place].hinges = std::move(hinges);
        members[place].engine = &engine;
        if (place == 0) return;
        engine.table->leader = sources.empty() ? nullptr : leader().table;
        engine.table->sources = std::move(sources);
    }

    // ---------------------------------------------------------------- one time step
    // All members learn the rows, which were checked. Who is due then is for Python to decide.
    void learn(const ForestRows& given, const double* targets, const double* weights, int n) {
        const int n_members = stack.n_members;
        std::atomic<bool> is_scaled = false, has_failed = false;
        std::vector<const double*> said(n_members);
        const auto study = [&](std::size_t begin, std::size_t end, int) {
            for (std::size_t i = begin; i < end; i++) {
                const int place = static_cast<int>(i);
                if (place > 0) is_scaled.wait(false);
                if (has_failed) return;
                try {
                    said[i] = study_one(place, given, targets, weights, n, place == 0 ? &is_scaled : nullptr);
                } catch (...) {
                    has_failed = true;
                    is_scaled = true;
                    is_scaled.notify_all();
                    throw;
                }
            }
        };
        Threads::all().run_ranges(threads_for(n), n_members, 1, n * learning_work(), study);
        if (has_labels()) {
            stack.learn_labels(said, targets, weights, n, n_classes());
        } else {
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
    // What all say together of the rows from `begin` on, before `end`: [rows, width()]
    void predict(const ForestRows& given, std::size_t begin, std::size_t end, Kind kind, double* out) const {
        const int n_members = stack.n_members, wide = width();
        const std::size_t block = std::min<std::size_t>(kRowsTogether, end - begin);
        std::size_t most = 0;
        for (const Member& member : members) most = std::max<std::size_t>(most, member.engine->table->n_features());
        Room rows(block * most), said(n_members * block * wide), links(static_cast<std::size_t>(n_members) * wide);
        std::vector<double> shares;
        if (kind == Kind::numbers) shares = stack.shares();
        for (std::size_t i = begin; i < end; i += block) {
            const int n = static_cast<int>(std::min(block, end - i));
            for (int m = 0; m < n_members; m++) {
                const SparseRows held = given.held(m).from(i);
                const double* seen =
                    see(m, given.X + i * given.width, given.width, given.are_sparse(), held, n, rows.data());
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
    // Rows X [n, width] as a member sees them: [n, features of its tree], as they are, or in `room`, which is large enough.
    // Features that have come since the rows were read are what they are in a row that does not say.
    const double* see(int place, const double* X, int width, bool are_sparse, const SparseRows& held, int n,
                      double* room) const {
        const Member& member = members[place];
        const Table &own = *member.engine->table, &common = are_sparse ? own : *leader().table;
        const int m = common.n_features();
        const bool is_whole = width == m, is_plain = are_sparse || member.hinges.n() == 0;
        if (is_whole && is_plain) return X;
        const int wide = is_plain ? m : own.n_features();
        Room whole(is_plain ? 0 : m), scaled(is_plain ? 0 : m);
        for (int i = 0; i < n; i++) {
            const double* x = X + static_cast<long>(i) * width;
            double* to = room + static_cast<long>(i) * wide;
            if (!is_whole) {
                double* filled = is_plain ? to : whole.data();
                common.fill_raw(x, width, held.from(i), filled);
                x = filled;
            }
            if (is_plain) continue;
            for (int j = 0; j < member.hinges.n_ends; j++) {
                const double z = (x[j] - scale[2 * j]) * scale[2 * j + 1];
                scaled.data()[j] = std::isnan(z) ? 0.0 : std::clamp(z, -most_deviations, most_deviations);
            }
            member.hinges.extend(x, scaled.data(), to);
        }
        return room;
    }
    std::size_t scratch_bytes() const {
        std::size_t n = 0;
        for (const Member& member : members) n += 8 * (member.rows.capacity() + member.said.capacity());
        return n;
    }

private:
    static constexpr auto kWait = [](auto&& wait) { wait(); };
    // A row is not worth a thread, and Python answers one at a time.
    int threads_for(int n) const { return n == 1 || leader().asks() ? 1 : n_threads.load(); }
    double learning_work() const { return 1000.0 + 50.0 * leader().shape.columns; }  // nanoseconds of a row, roughly

    // What a member says of the rows; then it learns them.
    const double* study_one(int place, const ForestRows& given, const double* targets, const double* weights, int n,
                            std::atomic<bool>* scaled) {
        Member& member = members[place];
        MeasuredTree& engine = *member.engine;
        const Turn turn(engine.turns, true, kWait);
        const SparseRows held = given.held(place);
        const int wide = width(), m = engine.table->n_features();
        if (member.rows.size() < static_cast<std::size_t>(n) * m) member.rows.resize(static_cast<std::size_t>(n) * m);
        const double* rows = see(place, given.X, given.width, given.are_sparse(), held, n, member.rows.data());
        if (member.said.size() < static_cast<std::size_t>(n) * wide) member.said.resize(static_cast<std::size_t>(n) * wide);
        say(engine, rows, held, n, wide, member.said.data());
        for (int i = 0; i < n && !has_labels(); i++) member.said[i] = member.said[static_cast<long>(i) * wide + wide / 2];
        engine.n_threads = threads_for(n);         // who has no tree left helps with another's models
        const bool is_given = given.are_sparse();  // the chunk fills in what sparse rows hold
        engine.learn({is_given ? given.X : rows, is_given ? given.width : m, held, targets, weights}, n, scaled);
        return member.said.data();
    }
    static void say(const MeasuredTree& engine, const double* rows, const SparseRows& held, int n, int wide, double* out) {
        const Turn turn(engine.turns, false, kWait);  // who looks at the forest may copy a tree
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
};

}  // namespace driftree
