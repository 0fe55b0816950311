// Stack: the weighted sum of the members' predictions. The weights of log-odds or numbers follow the loss by Newton steps;
// where the rows are uninformative they return to equal weights.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "memory.hpp"

namespace driftree {

class Stack {
public:
    struct Rates {
        double window;     // rows that the weights remember
        double prior;      // number of rows that equal weights are worth, roughly
        double most_step;  // largest step of a weight
        double mixed;      // share of the uniform distribution mixed into a member's prediction
        double clear;      // errors up to this many typical ones count in full
    };
    Stack(int n_members, const Rates& given)
        : rates(given), n_members(n_members), weights(n_members, 1.0 / n_members),
          curvature(static_cast<std::size_t>(n_members) * n_members, 0.0), losses(n_members + 1, 0.0),
          agreement(n_members, 0.0), rows(n_members + 1, 0.0) {}

    Rates rates;
    int n_members;
    std::vector<double> weights, curvature;  // [members], [members, members]
    std::vector<double> losses;              // faded, of each member and then of the forest
    std::vector<double> agreement;           // faded rows in which a member predicts the same as the forest
    std::vector<double> rows;                // faded weight of the rows since each member was added, and of the forest
    std::vector<double> seen;                // by class: 1 if a row of it was learnt; classes beyond the end have none
    double square = 0.0;                     // faded squared errors of a number

    // ---------------------------------------------------------------- labels
    // Log-odds of a member's probabilities, centred over the classes. Returns what was subtracted from the logarithms.
    double links_of(const double* probabilities, int n_classes, double* out) const {
        double mean = 0.0;
        for (int k = 0; k < n_classes; k++)
            mean += out[k] = std::log((1.0 - rates.mixed) * probabilities[k] + rates.mixed / n_classes);
        mean /= n_classes;
        for (int k = 0; k < n_classes; k++) out[k] -= mean;
        return mean;
    }
    // Log-odds [classes] of the forest; `links` [members, classes].
    void add_up(const double* links, int n_classes, double* out) const {
        std::fill_n(out, n_classes, 0.0);
        for (int m = 0; m < n_members; m++)
            for (int k = 0; k < n_classes; k++) out[k] += weights[m] * links[m * n_classes + k];
    }
    static void to_probabilities(double* log_odds, int n_classes) {
        const double most = *std::max_element(log_odds, log_odds + n_classes);
        double sum = 0.0;
        for (int k = 0; k < n_classes; k++) sum += log_odds[k] = std::exp(log_odds[k] - most);
        for (int k = 0; k < n_classes; k++) log_odds[k] /= sum;
    }
    // members: probabilities [n, classes] of each, predicted before it learnt the rows; codes of classes. A label that no
    // member had seen does not show which members are right: its first rows count for the losses only.
    void learn_labels(const std::vector<const double*>& members, const double* codes, const double* row_weights, int n,
                      int n_classes) {
        Sums& sums = fresh_sums();
        if (std::ssize(seen) < n_classes) seen.resize(n_classes, 0.0);
        Room room(static_cast<std::size_t>(n_members) * (n_classes + 1) + n_classes);
        double *links = room.data(), *means = links + static_cast<long>(n_members) * n_classes, *all = means + n_members;
        for (int i = 0; i < n; i++) {
            const int code = static_cast<int>(codes[i]);
            const double weight = row_weights ? row_weights[i] : 1.0;
            for (int m = 0; m < n_members; m++) {
                double* own = links + m * n_classes;
                const double mean = links_of(members[m] + static_cast<long>(i) * n_classes, n_classes, own);
                sums.losses[m] -= weight * (own[code] + mean);
            }
            add_up(links, n_classes, all);
            to_probabilities(all, n_classes);
            const auto choice = std::max_element(all, all + n_classes) - all;
            sums.losses[n_members] -= weight * std::log(std::max(all[code], 1e-300));
            for (int m = 0; m < n_members; m++) {
                double* own = links + m * n_classes;
                sums.agreement[m] += weight * (std::max_element(own, own + n_classes) - own == choice);
                if (seen[code] == 0.0) continue;
                means[m] = 0.0;
                for (int k = 0; k < n_classes; k++) means[m] += all[k] * own[k];
                sums.gradient[m] += weight * (means[m] - own[code]);
                for (int k = 0; k < n_classes; k++) own[k] -= means[m];  // from here on only deviations count
                for (int o = 0; o <= m; o++) {
                    double product = 0.0;
                    for (int k = 0; k < n_classes; k++) product += all[k] * own[k] * links[o * n_classes + k];
                    sums.curvature[m * n_members + o] += weight * product;
                }
            }
            sums.rows += weight;
        }
        absorb(sums);
        for (int i = 0; i < n; i++)
            if (!row_weights || row_weights[i] > 0.0) seen[static_cast<int>(codes[i])] = 1.0;
    }

    // ---------------------------------------------------------------- numbers
    // Share of each member in the mean; they sum to one.
    std::vector<double> shares() const {
        double rest = 1.0;
        for (const double weight : weights) rest -= weight;
        std::vector<double> out(weights);
        for (double& share : out) share += rest / n_members;
        return out;
    }
    // The mean of the members' predictions for a row, each [outputs], `distance` apart; with a log link, of the logarithms.
    // Quantiles ascend.
    void mean_of(const double* members, std::size_t distance, const double* share, int outputs, bool has_log_link,
                 double* out) const {
        for (int k = 0; k < outputs; k++) {
            double sum = 0.0;
            for (int m = 0; m < n_members; m++) {
                const double number = members[m * distance + k];
                sum += share[m] * (has_log_link ? std::log(std::max(number, 1e-300)) : number);
            }
            out[k] = has_log_link ? std::exp(sum) : sum;
            if (k > 0) out[k] = std::max(out[k], out[k - 1]);
        }
    }
    // members: numbers [n] of each, predicted before it learnt the rows
    void learn_numbers(const std::vector<const double*>& members, const double* targets, const double* row_weights, int n) {
        Sums& sums = fresh_sums();
        const std::vector<double> share = shares();
        const double root = rows.back() > 0.0 ? std::sqrt(square / rows.back()) : 0.0;
        for (int i = 0; i < n; i++) {
            const double weight = row_weights ? row_weights[i] : 1.0;
            double all = 0.0, mean = 0.0;
            for (int m = 0; m < n_members; m++) all += share[m] * members[m][i], mean += members[m][i] / n_members;
            const double error = all - targets[i];
            for (int m = 0; m < n_members; m++) {
                sums.losses[m] += weight * std::abs(members[m][i] - targets[i]);
                sums.agreement[m] += weight * (std::abs(members[m][i] - all) <= root);
            }
            sums.losses[n_members] += weight * std::abs(error);
            sums.square += weight * error * error;
            sums.rows += weight;
            if (!(root > 0.0)) continue;
            const double slope = std::clamp(error / root, -rates.clear, rates.clear);
            for (int m = 0; m < n_members; m++) {
                const double own = std::clamp((members[m][i] - mean) / root, -rates.clear, rates.clear);
                sums.gradient[m] += weight * slope * own;
                for (int o = 0; o <= m; o++)
                    sums.curvature[m * n_members + o] +=
                        weight * own * std::clamp((members[o][i] - mean) / root, -rates.clear, rates.clear);
            }
        }
        absorb(sums);
    }

    // Puts a new member in a place: what was learnt about the old one is dropped, and the weight is the mean of the others.
    void restart(int member) {
        double sum = 0.0;
        for (int m = 0; m < n_members; m++) sum += m == member ? 0.0 : weights[m];
        weights[member] = n_members > 1 ? sum / (n_members - 1) : 1.0;
        for (int m = 0; m < n_members; m++) curvature[member * n_members + m] = curvature[m * n_members + member] = 0.0;
        losses[member] = agreement[member] = rows[member] = 0.0;
    }
    template <class Archive>
    void visit(Archive& archive) {
        archive("weights", weights), archive("curvature", curvature), archive("losses", losses);
        archive("agreement", agreement), archive("rows", rows), archive("square", square), archive("seen", seen);
    }
    // Whether learning could have reached this state.
    bool is_sound() const {
        const auto fits = [](const std::vector<double>& values, int n) {
            return std::ssize(values) == n &&
                   std::all_of(values.begin(), values.end(), [](double value) { return std::abs(value) <= kMost; });
        };
        return fits(weights, n_members) && fits(curvature, n_members * n_members) && fits(losses, n_members + 1) &&
               fits(agreement, n_members) && fits(rows, n_members + 1) &&
               *std::min_element(rows.begin(), rows.end()) >= 0.0 && square >= 0.0 && square <= kMost &&
               std::all_of(seen.begin(), seen.end(), [](double is) { return is == 0.0 || is == 1.0; });
    }

private:
    static constexpr double kMost = 1e250;  // largest sum
    struct Sums {                           // over the rows of a step
        std::vector<double> gradient, curvature, losses, agreement;
        double rows = 0.0, square = 0.0;
    };
    Sums sums_;                   // reused between steps, for the memory,
    std::vector<double> matrix_;  // like Newton's matrix
    Sums& fresh_sums() {
        sums_.gradient.assign(n_members, 0.0);
        sums_.curvature.assign(curvature.size(), 0.0);
        sums_.losses.assign(n_members + 1, 0.0);
        sums_.agreement.assign(n_members, 0.0);
        sums_.rows = sums_.square = 0.0;
        matrix_.reserve(curvature.size());  // from here on nothing can fail
        return sums_;
    }
    void absorb(Sums& sums) {
        const double keep = std::exp(-sums.rows / rates.window);
        for (int m = 0; m < n_members; m++)
            for (int o = 0; o < m; o++) sums.curvature[o * n_members + m] = sums.curvature[m * n_members + o];
        const auto faded = [keep](double sum, double more) { return std::clamp(keep * sum + more, -kMost, kMost); };
        const auto fade = [&](std::vector<double>& values, const std::vector<double>& more) {
            for (std::size_t i = 0; i < values.size(); i++) values[i] = faded(values[i], more[i]);
        };
        fade(curvature, sums.curvature), fade(losses, sums.losses), fade(agreement, sums.agreement);
        for (double& weight : rows) weight = keep * weight + sums.rows;
        square = faded(square, sums.square);
        std::vector<double>& step = sums.gradient;
        matrix_ = curvature;
        for (int m = 0; m < n_members; m++) {
            step[m] += rates.prior * (1.0 - keep) * (weights[m] - 1.0 / n_members);
            matrix_[m * n_members + m] += rates.prior;
        }
        solve(matrix_, step);
        for (int m = 0; m < n_members; m++)
            if (std::isfinite(step[m])) weights[m] -= std::clamp(step[m], -rates.most_step, rates.most_step);
    }
    // Cholesky: the matrix is symmetric, and larger than `prior` times the identity.
    void solve(std::vector<double>& matrix, std::vector<double>& right) const {
        const int n = n_members;
        for (int i = 0; i < n; i++)
            for (int j = 0; j <= i; j++) {
                double sum = matrix[i * n + j];
                for (int k = 0; k < j; k++) sum -= matrix[i * n + k] * matrix[j * n + k];
                matrix[i * n + j] = i == j ? std::sqrt(std::max(sum, rates.prior)) : sum / matrix[j * n + j];
            }
        for (int i = 0; i < n; i++) {
            for (int k = 0; k < i; k++) right[i] -= matrix[i * n + k] * right[k];
            right[i] /= matrix[i * n + i];
        }
        for (int i = n - 1; i >= 0; i--) {
            for (int k = i + 1; k < n; k++) right[i] -= matrix[k * n + i] * right[k];
            right[i] /= matrix[i * n + i];
        }
    }
};

}  // namespace driftree
