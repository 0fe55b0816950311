// Watch: drift detection. A few rows are kept with their loss at the time. Some thousand rows later the tree predicts them
// again. As long as the concept is the same, their loss is no higher, and lower while the tree still learns. If it is
// higher, the tree has learnt something that was not true of the kept rows.
//
// A check compares the mean of this excess with those of earlier checks. Without a change it is positive at most as often as
// negative, whatever its size, so the rank of its size, with its sign, gives a p-value. Bets on small p-values multiply into
// evidence (Shiryaev and Roberts): without a change it takes, on average, at least A checks to reach A.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "memory.hpp"

namespace driftree {

struct WatchRates {                // passed by Python (learn/constants.py)
    int keep_one_in = 0;           // one row in so many is kept; 0: drift detection is off
    int check_rows = 1000;         // rows of the stream between two checks
    int checks_later = 8;          // checks after which kept rows are predicted again
    int most_earlier = 100;        // earlier checks to compare with: the last ones, at most half of all
    double least_excess = 0.02;    // nats per row; the size of an excess counts beyond its rank only above this
    double most_excess = 4.0;      // limit of a row's excess, in either direction
    std::int64_t most_values = 0;  // values in all kept rows, at most
    double level = std::numeric_limits<double>::infinity();  // evidence from which a drift is reported
};

struct Watch {
    static constexpr int kBets = 2;
    static constexpr double kPowers[kBets] = {0.1, 0.3};  // a bet pays power * p^(power - 1), on average 1
    static constexpr double kMostEvidence = 1e100;

    WatchRates rates;
    std::vector<double> rows, targets, losses, came;  // kept rows: raw values; user's unit; nats; row of the stream
    std::vector<double> earlier;                      // mean excess of earlier checks
    std::vector<double> bets = std::vector<double>(kBets, 0.0);  // evidence of each bet
    double rise = 1.0;                                           // evidence of all bets together, at least 1
    std::int64_t n_checks = 0, next_check = 0, next_kept = 0;
    std::int64_t since = 0;  // row of the last check without evidence

    bool is_on() const { return rates.keep_one_in > 0; }
    bool has_begun() const { return next_check > 0; }
    int n_kept() const { return static_cast<int>(targets.size()); }
    double evidence() const {
        double sum = 0.0;
        for (const double one : bets) sum += one;
        return sum / kBets;
    }
    bool has_alarm() const { return evidence() >= rates.level; }
    bool is_check_due(std::int64_t n_rows) const { return is_on() && n_rows >= next_check; }

    // ---- rows
    // Distance of kept rows in a step: larger in huge steps, and for rows with very many values.
    std::int64_t distance(int n, int n_features) const {
        const std::int64_t usual = std::int64_t{rates.keep_one_in} * std::max(1, n / rates.check_rows);
        const std::int64_t held = std::int64_t{rates.check_rows} * (rates.checks_later + 1) * n_features;
        return std::max(usual, held / std::max<std::int64_t>(rates.most_values, 1));
    }
    void make_room(std::int64_t n_rows, int n, int n_features) {  // so that keep() cannot fail
        if (!is_on() || n_rows + n <= next_kept) return;
        const std::size_t most = n_kept() + n / distance(n, n_features) + 1;
        make_capacity(rows, most * n_features);
        for (auto* values : {&targets, &losses, &came}) make_capacity(*values, most);
    }
    void keep(const double* row, int n_features, double target, double loss, std::int64_t n_rows) {
        rows.insert(rows.end(), row, row + n_features);
        targets.push_back(target);
        losses.push_back(loss);
        came.push_back(static_cast<double>(n_rows));
    }
    // Number of rows that were kept long enough ago.
    int n_ripe(std::int64_t n_rows) const {
        const double latest = static_cast<double>(n_rows - std::int64_t{rates.check_rows} * rates.checks_later);
        return static_cast<int>(std::upper_bound(came.begin(), came.end(), latest) - came.begin());
    }
    void drop(int n, int n_features) {
        rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(n) * n_features);
        for (auto* values : {&targets, &losses, &came}) values->erase(values->begin(), values->begin() + n);
    }
    void drop_rows() { drop(n_kept(), 0), rows.clear(); }

    // ---- checks
    void end_check(std::int64_t n_rows) {
        next_check = n_rows + rates.check_rows;
        if (rise <= 1.0) since = n_rows;
    }
    void add(double excess) {
        const double p = p_value(excess);
        double gain = 0.0;
        for (int i = 0; i < kBets; i++) {
            const double pays = kPowers[i] * std::pow(p, kPowers[i] - 1.0);
            bets[i] = std::min((1.0 + bets[i]) * pays, kMostEvidence);
            gain += pays / kBets;
        }
        rise = std::clamp(rise * gain, 1.0, kMostEvidence);
        if (static_cast<int>(earlier.size()) >= rates.most_earlier) earlier.erase(earlier.begin());
        earlier.push_back(excess);  // make_check_room() has made room
        n_checks++;
    }
    void make_check_room() { make_capacity(earlier, earlier.size() + 1); }
    // Forgets everything after a drift.
    void restart(std::int64_t n_rows) {
        drop_rows();
        earlier.clear();
        std::fill(bets.begin(), bets.end(), 0.0);
        rise = 1.0;
        n_checks = 0;
        since = n_rows;
        next_check = n_rows + rates.check_rows;
    }

    template <class Archive>
    void visit(Archive& a) {
        a("watch_rows", rows), a("watch_targets", targets), a("watch_losses", losses), a("watch_came", came);
        a("watch_earlier", earlier), a("watch_bets", bets), a("watch_rise", rise), a("watch_n_checks", n_checks);
        a("watch_next_check", next_check), a("watch_next_kept", next_kept), a("watch_since", since);
    }

private:
    // Above the largest earlier size, it falls with the square of the size.
    double p_value(double excess) const {
        const auto n = static_cast<int>(std::min<std::int64_t>(std::ssize(earlier), (n_checks + 1) / 2));
        const double size = std::abs(excess);
        double largest = rates.least_excess, n_above = 0.0;
        for (auto one = earlier.end() - n; one != earlier.end(); ++one) {
            n_above += std::abs(*one) >= size;
            largest = std::max(largest, std::abs(*one));
        }
        double share = (n_above + 0.5) / (n + 1);
        if (n > 0 && size > largest) share *= (largest / size) * (largest / size);
        return excess > 0.0 ? 0.5 * share : 1.0 - 0.5 * share;
    }
};

}  // namespace driftree
