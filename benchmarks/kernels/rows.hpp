// Fixed input for the harness: the same rows on every machine, no library's random numbers.
#pragma once
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

// Rows in [0, 1); the label is that of the largest of `classes` linear scores, and every tenth is drawn at random.
struct Stream {
    int features, classes;
    Draws draws{1};
    std::vector<double> weights, X, y;  // y: codes of labels

    Stream(int m, int c) : features(m), classes(c), weights(static_cast<std::size_t>(m) * c) {
        for (double& w : weights) w = draws.uniform() - 0.5;
    }
    void draw(int n) {
        X.resize(static_cast<std::size_t>(n) * features);
        y.resize(n);
        for (double& x : X) x = draws.uniform();
        for (int i = 0; i < n; i++) {
            double best = -1e300;
            for (int k = 0; k < classes; k++) {
                double score = 0.0;
                for (int j = 0; j < features; j++)
                    score += weights[static_cast<long>(k) * features + j] * (X[static_cast<long>(i) * features + j] - 0.5);
                if (score > best) best = score, y[i] = k;
            }
            if (draws.uniform() < 0.1) y[i] = std::floor(draws.uniform() * classes);
        }
    }
};

}  // namespace harness
