// The trees without Python, on fixed input and with a fixed tree: what callgrind counts repeats to the instruction.
//
//     instructions SETTING FEATURES CLASSES STEP_ROWS ROWS [SETTING ...]
//
// For every workload a tree of depth 2 is grown by force, with as many trials as Python would start (three at a leaf,
// one at an inner node); then ROWS more rows are learnt in steps of STEP_ROWS and predicted, and only that is counted.
// Whether splits are worth it is not asked, no model rests, and Adagrad leads in all of them, so that it makes all its
// passes: the work of a row must not depend on what the models are worth. CLASSES 0 is a target of numbers; there each leaf
// also tries bends.
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

using driftree::MeasuredTree;
using driftree::PaperTree;

namespace {

constexpr int kDepth = 2, kBins = 64;
constexpr int kWarmUpRows = 50;  // that a leaf gets before it has trials, and again before it is split

struct Workload {
    int features, classes, step_rows, rows;
};

// Learns the rows that were drawn, in steps.
template <class Tree>
void learn_drawn(Tree& tree, const harness::Stream& stream, int step) {
    const int n = static_cast<int>(stream.y.size());
    for (int i = 0; i < n; i += step) {
        for (auto& model : tree.models.all) model.blend.preference = -8.0;  // Adagrad leads
        const double* rows = stream.X.data() + static_cast<long>(i) * stream.features;
        tree.learn({rows, stream.features, {}, stream.y.data() + i, nullptr}, std::min(step, n - i));
    }
}

template <class Tree>
void learn(Tree& tree, harness::Stream& stream, int n, int step) {
    stream.draw(n);
    learn_drawn(tree, stream, step);
}

// Even edges, as many as fit into four million bytes of sums: what Python chooses for rows in [0, 1).
void choose_grid(MeasuredTree& tree, int node, int features) {
    const int room = 4'000'000 / (4 * tree.shape.size()) / features - 1;
    const int bins = std::clamp(room, 4, kBins);
    std::vector<double> edges;
    for (int j = 0; j < features; j++)
        for (int e = 1; e <= bins + 1; e++) edges.push_back(e / static_cast<double>(bins));
    tree.evidence.choose_grid(node, std::vector<std::int32_t>(features, bins + 1), edges);
}

// Best first, but those that leave a side with hardly any rows last: all leaves are to get some.
void start_trials(MeasuredTree& tree, int node, int wanted) {
    auto proposals = tree.evidence.proposals(node);
    const auto rank = [](const auto& p) { return std::pair(std::min(p.n_left, p.n_right) >= 0.1, p.score); };
    const auto precedes = [&](const auto& a, const auto& b) { return rank(a) > rank(b); };
    std::stable_sort(proposals.begin(), proposals.end(), precedes);
    for (int t = 0; t < std::min<int>(wanted, proposals.size()); t++)
        tree.evidence.start_trial(node * tree.evidence.rates.per_node + t, proposals[t]);
}

int best_candidate(const PaperTree& tree, int node) {
    const auto& store = tree.evidence.stores[node];
    int best = -1;
    for (int k = 0; k < store.n(); k++)
        if (store.n_left[k] > 0.0 && tree.nodes[node].rows - store.n_before[k] - store.n_left[k] > 0.0 &&
            (best < 0 || store.gain[k] > store.gain[best]))
            best = k;
    return best;
}

template <class Tree>
std::vector<int> alive(const Tree& tree) {
    std::vector<int> found;
    for (int node = 0; node < tree.nodes.size(); node++)
        if (tree.nodes.has(node)) found.push_back(node);
    return found;
}

// Every feature bends in the middle.
void start_bend_trial(MeasuredTree& tree, int node, int features) {
    driftree::Bends bends;
    for (int j = 0; j < features; j++) {
        bends.feature.insert(bends.feature.end(), {j, j});
        bends.low.insert(bends.low.end(), {0.0, 0.5});
        bends.high.insert(bends.high.end(), {0.5, 1.0});
    }
    tree.evidence.start_bend_trial(node, bends, 1.0, 1e300, 0.0);
}

// One level deeper everywhere: the rows that a node needs for its grid, for its trials, then the split.
void look_for_splits(PaperTree&, harness::Stream&, int) {}
void look_for_splits(MeasuredTree& tree, harness::Stream& stream, int rows) {
    for (const int node : alive(tree))
        if (!tree.evidence.grids[node].is_ready()) choose_grid(tree, node, stream.features);
    learn(tree, stream, rows, rows);
    for (const int node : alive(tree)) {
        if (!tree.nodes[node].is_leaf()) continue;
        start_trials(tree, node, tree.evidence.rates.per_node);
        if (!tree.has_labels()) start_bend_trial(tree, node, stream.features);
    }
}

template <class Tree>
void grow(Tree& tree, harness::Stream& stream) {
    const int rows = kWarmUpRows << tree.nodes[alive(tree).back()].depth;
    learn(tree, stream, rows, rows);
    look_for_splits(tree, stream, rows);
    learn(tree, stream, rows, rows);
}

void split(PaperTree& tree, int node) {
    if (const int k = best_candidate(tree, node); k >= 0) tree.split(node, k);
}
void split(MeasuredTree& tree, int node) {
    const int first = node * tree.evidence.rates.per_node;
    if (tree.evidence.trials[first].is_free()) return;
    tree.split(node, first);
    start_trials(tree, node, 1);
}

template <class Tree>
void predict(const Tree& tree, const harness::Stream& stream) {
    std::vector<double> predictors(tree.n_outputs()), shares(tree.n_classes);
    for (std::size_t i = 0; i < stream.y.size(); i++) {
        std::int32_t leaf;
        tree.predictors_of(stream.X.data() + i * stream.features, {}, 1, &leaf, predictors.data());
        if (tree.has_labels()) {
            tree.probabilities_of(leaf, predictors.data(), shares.data());
        } else {
            tree.number_of(leaf, predictors.data());
        }
    }
}

// Times are calm from the start, and the link stays.
void calm_down(PaperTree&) {}
void calm_down(MeasuredTree& tree) {
    tree.evidence.restless_until = tree.evidence.rates.restless_rows = 0.0;
    tree.evidence.challenger.level = 1e300;
}

template <class Tree>
void run(const Workload& w, const std::string& name) {
    typename Tree::Settings settings;
    if (w.classes == 0) settings.loss = driftree::kGaussian;
    Tree tree(settings, w.classes);
    calm_down(tree);
    for (int j = 0; j < w.features; j++) tree.add_feature(false, true);
    harness::Stream stream(w.features, w.classes);
    for (int depth = 0; depth < kDepth; depth++) {
        grow(tree, stream);
        for (const int node : alive(tree))
            if (tree.nodes[node].is_leaf()) split(tree, node);
    }
    grow(tree, stream);
    learn(tree, stream, w.step_rows, w.step_rows);  // memory of this size is there
    stream.draw(w.rows);
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
    learn_drawn(tree, stream, w.step_rows);
    predict(tree, stream);
    CALLGRIND_DUMP_STATS_AT(name.c_str());
    CALLGRIND_STOP_INSTRUMENTATION;
    std::printf("%s: %zu nodes\n", name.c_str(), alive(tree).size());
}

}  // namespace

int main(int count, char** words) {
    for (int i = 1; i + 4 < count; i += 5) {
        const Workload w = {std::atoi(words[i + 1]), std::atoi(words[i + 2]), std::atoi(words[i + 3]),
                            std::atoi(words[i + 4])};
        const auto count_rows = std::strcmp(words[i], "paper") == 0 ? run<PaperTree> : run<MeasuredTree>;
        count_rows(w, std::string(words[i]) + "-" + words[i + 1] + "-" + words[i + 2] + "-" + words[i + 3]);
    }
}
