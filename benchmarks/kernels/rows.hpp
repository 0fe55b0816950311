// Fixed input for the harness: the same rows on every machine, no library's random numbers.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "model_tree.hpp"

namespace harness {

class Draws {
public:
    explicit Draws(std::uint64_t seed) : state_(seed) {}
    double uniform() { return static_cast<double>(driftree::mix64(state_++) >> 11) * 0x1p-53; }

private:
    std::uint64_t state_;
};

// Rows in [0, 1); the label is that of the largest of `classes` linear scores, and every tenth is drawn at random. Without
// classes the target is a number: one linear score, and noise.
struct Stream {
    int features, classes;
    Draws draws{1};
    std::vector<double> weights, X, y;  // y: codes of labels

    Stream(int m, int c) : features(m), classes(c), weights(static_cast<std::size_t>(m) * std::max(c, 1)) {
        for (double& w : weights) w = draws.uniform() - 0.5;
    }
    void draw(int n) {
        X.resize(static_cast<std::size_t>(n) * features);
        y.resize(n);
        for (double& x : X) x = draws.uniform();
        for (int i = 0; i < n; i++) {
            double best = -1e300;
            for (int k = 0; k < classes; k++)
                if (const double own = score(i, k); own > best) best = own, y[i] = k;
            if (classes == 0) {
                y[i] = score(i, 0) + 0.1 * draws.uniform();
            } else if (draws.uniform() < 0.1) {
                y[i] = std::floor(draws.uniform() * classes);
            }
        }
    }

private:
    double score(int row, int k) const {
        double sum = 0.0;
        for (int j = 0; j < features; j++)
            sum += weights[static_cast<long>(k) * features + j] * (X[static_cast<long>(row) * features + j] - 0.5);
        return sum;
    }
};

}  // namespace harness
