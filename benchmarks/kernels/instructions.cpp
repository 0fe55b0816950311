// The engine without Python, on fixed input and with a fixed tree: what callgrind counts repeats to the instruction.
//
//     instructions SETTING FEATURES CLASSES STEP_ROWS ROWS [SETTING ...]
//
// For every workload a tree of depth 2 is grown by force, with as many trials as Python would start (three at a leaf,
// one at an inner node); then ROWS more rows are learnt in steps of STEP_ROWS and predicted, and only that is counted.
// Whether splits are worth it is not asked, no model rests, and Adagrad leads in all of them, so that it makes all its
// passes: the work of a row must not depend on what the models are worth.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "rows.hpp"
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#error "valgrind's headers are missing: install valgrind (Debian/Ubuntu: apt install valgrind)"
#endif

using driftree::Engine;
using driftree::Settings;

namespace {

constexpr int kDepth = 2, kBins = 64;
constexpr int kWarmUpRows = 50;  // that a leaf gets before it has trials, and again before it is split

struct Workload {
    bool by_gradient;
    int features, classes, step_rows, rows;
};

void let_adagrad_lead(Engine& engine) {
    for (auto& model : engine.models)
        if (!model.empty()) reinterpret_cast<driftree::Head*>(model.data())->preference = -8.0;
}

// Learns the rows that were drawn, in steps.
void learn_drawn(Engine& engine, const harness::Stream& stream, int step) {
    const int n = static_cast<int>(stream.y.size());
    for (int i = 0; i < n; i += step) {
        let_adagrad_lead(engine);
        const double* rows = stream.X.data() + static_cast<long>(i) * stream.features;
        engine.learn(rows, stream.y.data() + i, nullptr, std::min(step, n - i));
    }
}

void learn(Engine& engine, harness::Stream& stream, int n, int step) {
    stream.draw(n);
    learn_drawn(engine, stream, step);
}

// Even edges, as many as fit into four million bytes of sums: what Python chooses for rows in [0, 1).
void choose_grid(Engine& engine, int node, int features) {
    const int room = 4'000'000 / (4 * engine.shape.outputs * engine.shape.stride) / features - 1;
    const int bins = std::clamp(room, 4, kBins);
    std::vector<double> edges;
    for (int j = 0; j < features; j++)
        for (int e = 1; e <= bins + 1; e++) edges.push_back(e / static_cast<double>(bins));
    engine.choose_grid(node, std::vector<std::int32_t>(features, bins + 1), edges);
}

// Best first, but those that leave a side with hardly any rows last: all leaves are to get some.
void start_trials(Engine& engine, int node, int wanted) {
    auto proposals = engine.proposals(node);
    const auto rank = [](const auto& p) { return std::pair(std::min(p.n_left, p.n_right) >= 0.1, p.score); };
    const auto precedes = [&](const auto& a, const auto& b) { return rank(a) > rank(b); };
    std::stable_sort(proposals.begin(), proposals.end(), precedes);
    for (int t = 0; t < std::min<int>(wanted, proposals.size()); t++)
        engine.start_trial(node * engine.settings.trials + t, proposals[t]);
}

int best_candidate(const Engine& engine, int node) {
    const auto& store = engine.candidates[node];
    int best = -1;
    for (int k = 0; k < store.n(); k++)
        if (store.n_left[k] > 0.0 && engine.nodes.rows[node] - store.n_before[k] - store.n_left[k] > 0.0 &&
            (best < 0 || store.gain[k] > store.gain[best]))
            best = k;
    return best;
}

std::vector<int> alive(const Engine& engine) {
    std::vector<int> found;
    for (int node = 0; node < engine.settings.max_nodes; node++)
        if (engine.nodes.alive[node]) found.push_back(node);
    return found;
}

// One level deeper everywhere: the rows that a node needs for its grid, for its trials, then the split.
void grow(Engine& engine, harness::Stream& stream) {
    const int rows = kWarmUpRows << engine.nodes.depth[alive(engine).back()];
    learn(engine, stream, rows, rows);
    if (!engine.settings.by_gradient) {
        for (const int node : alive(engine))
            if (!engine.grids[node].is_ready()) choose_grid(engine, node, stream.features);
        learn(engine, stream, rows, rows);
        for (const int node : alive(engine))
            if (engine.nodes.left[node] < 0) start_trials(engine, node, engine.settings.trials);
    }
    learn(engine, stream, rows, rows);
}

void split_leaves(Engine& engine) {
    for (const int node : alive(engine)) {
        if (engine.nodes.left[node] >= 0) continue;
        if (engine.settings.by_gradient) {
            if (const int k = best_candidate(engine, node); k >= 0) engine.split_by_candidate(node, k);
        } else if (engine.trials.feature[node * engine.settings.trials] >= 0) {
            engine.split_by_trial(node, node * engine.settings.trials);
            start_trials(engine, node, 1);
        }
    }
}

void predict(const Engine& engine, const harness::Stream& stream) {
    std::vector<double> logits(engine.n_outputs()), shares(engine.n_classes);
    for (std::size_t i = 0; i < stream.y.size(); i++) {
        std::int32_t leaf;
        engine.logits_of(stream.X.data() + i * stream.features, 1, &leaf, logits.data());
        engine.probabilities_of(leaf, logits.data(), shares.data());
    }
}

void run(const Workload& w, const std::string& name) {
    Settings settings;
    settings.by_gradient = w.by_gradient;
    Engine engine(settings, w.classes);
    engine.challenger_level = 1e300;
    for (int j = 0; j < w.features; j++) engine.add_feature(false, true);
    harness::Stream stream(w.features, w.classes);
    for (int depth = 0; depth < kDepth; depth++) {
        grow(engine, stream);
        split_leaves(engine);
    }
    grow(engine, stream);
    learn(engine, stream, w.step_rows, w.step_rows);  // memory of this size is there
    stream.draw(w.rows);
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
    learn_drawn(engine, stream, w.step_rows);
    predict(engine, stream);
    CALLGRIND_DUMP_STATS_AT(name.c_str());
    CALLGRIND_STOP_INSTRUMENTATION;
    std::printf("%s: %zu nodes\n", name.c_str(), alive(engine).size());
}

}  // namespace

int main(int count, char** words) {
    for (int i = 1; i + 4 < count; i += 5) {
        const Workload w = {std::strcmp(words[i], "paper") == 0, std::atoi(words[i + 1]), std::atoi(words[i + 2]),
                            std::atoi(words[i + 3]), std::atoi(words[i + 4])};
        run(w, std::string(words[i]) + "-" + words[i + 1] + "-" + words[i + 2] + "-" + words[i + 3]);
    }
}
