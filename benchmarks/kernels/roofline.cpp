// How fast is this machine, and how fast are the kernels on it? Both in seconds of processor time, as JSON.
//
//     roofline FEATURES CLASSES [FEATURES CLASSES ...]
//
// Peaks: multiply and add from registers without fusing them, divide and square root, the exponential, a chain of
// links, and bytes from the caches and from memory. Roots and exponentials are those of the kernels (vectors.hpp), of
// many numbers that wait for nothing. Kernels: seconds per row and model (or node), called directly, on a step's rows.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "column.hpp"
#include "rows.hpp"
#include "vectors.hpp"

namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 64;
#elif defined(__AVX2__)
constexpr int kWidth = 32;
#else
constexpr int kWidth = 16;
#endif
typedef double Wide __attribute__((vector_size(kWidth), aligned(8), may_alias));
constexpr int kLanes = kWidth / sizeof(double), kChains = 12, kRounds = 15, kRows = 200;
constexpr int kModels = 8;  // that learn side by side: of a leaf with three trials, and the challenger

double now() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class Values>
void use(Values& values) {
    asm volatile("" : : "g"(&values) : "memory");
}

// Seconds of one call of each, the least of several rounds: all take turns, so that all meet the same machine.
std::map<std::string, double> measure(const std::map<std::string, std::function<void()>>& calls) {
    std::map<std::string, double> seconds;
    std::map<std::string, int> repeats;
    for (const auto& [name, call] : calls) {
        call();
        const double begin = now();
        call();
        repeats[name] = std::max(1, static_cast<int>(3e-3 / std::max(now() - begin, 1e-9)));
        seconds[name] = 1e9;
    }
    for (int round = 0; round < kRounds; round++)
        for (const auto& [name, call] : calls) {
            const double begin = now();
            for (int i = 0; i < repeats[name]; i++) call();
            seconds[name] = std::min(seconds[name], (now() - begin) / repeats[name]);
        }
    return seconds;
}

// ---------------------------------------------------------------- the machine
constexpr int kTurns = 20000;

void multiply_add() {
    Wide sums[kChains] = {}, factor = Wide{} + 0.999, term = Wide{} + 1e-3;
    use(factor), use(term);
    for (int i = 0; i < kTurns; i++)
        for (Wide& sum : sums) sum = sum * factor + term;
    use(sums);
}

// What Adagrad does for every weight.
void divide_root(const driftree::Lines<double>& x) {
    driftree::Vector sum = driftree::all(0.0);
    for (std::size_t i = 0; i < x.size(); i += driftree::kLanes) sum += driftree::inverse_root(-driftree::at(x.data() + i));
    use(sum);
}

void exponentials(const driftree::Lines<double>& x) {
    driftree::Vector sum = driftree::all(0.0);
    for (std::size_t i = 0; i < x.size(); i += driftree::kLanes) sum += driftree::exp_negative(driftree::at(x.data() + i));
    use(sum);
}

// From one row's residual to the next one's: eight lanes summed, the link, and the step that the next row waits for.
void links() {
    driftree::Vector weights = driftree::all(0.1), inputs = driftree::all(0.1);
    use(inputs);
    for (int i = 0; i < kTurns / 8; i++) {
        const double logit = driftree::total(weights * inputs);
        const driftree::Vector e = driftree::exp_negative(driftree::all(-std::fabs(logit)));
        weights -= 0.05 / (1.0 + e) * inputs;
    }
    use(weights);
}

void read_all(const std::vector<double>& x, int times) {
    Wide sums[8] = {};
    for (int t = 0; t < times; t++) {
        use(x);
        const double* data = x.data();
        Wide own[8] = {};
        for (std::size_t i = 0; i < x.size(); i += 8 * kLanes)
            for (int k = 0; k < 8; k++) own[k] += *reinterpret_cast<const Wide*>(data + i + k * kLanes);
        for (int k = 0; k < 8; k++) sums[k] += own[k];
    }
    use(sums);
}

void update_all(std::vector<double>& x, int times) {
    const Wide term = Wide{} + 1e-9;
    for (int t = 0; t < times; t++) {
        double* data = x.data();
        for (std::size_t i = 0; i < x.size(); i += 8 * kLanes) {
            Wide own[8];
            for (int k = 0; k < 8; k++) own[k] = *reinterpret_cast<const Wide*>(data + i + k * kLanes) - term;
            for (int k = 0; k < 8; k++) *reinterpret_cast<Wide*>(data + i + k * kLanes) = own[k];
        }
        use(x);
    }
}

void print_machine() {
    const std::map<std::string, int> kilobytes = {{"L1", 16}, {"L2", 256}, {"L3", 8192}, {"memory", 131072}};
    driftree::Lines<double> places(512);
    for (std::size_t i = 0; i < places.size(); i++) places[i] = -static_cast<double>(i) / 64.0;
    std::map<std::string, std::vector<double>> arrays;
    std::map<std::string, std::function<void()>> calls = {{"multiply_add", multiply_add},
                                                          {"links", links},
                                                          {"divide_root", [&] { divide_root(places); }},
                                                          {"exponential", [&] { exponentials(places); }}};
    std::map<std::string, double> amounts = {{"multiply_add", 2.0 * kTurns * kChains * kLanes},
                                             {"links", kTurns / 8},
                                             {"divide_root", 512.0},
                                             {"exponential", 512.0}};
    for (const auto& [level, size] : kilobytes) {
        auto& array = arrays[level];
        array.resize(size * 128);
        const int times = std::max(1, 1024 / size);
        calls["read_" + level] = [&array, times] { read_all(array, times); };
        calls["update_" + level] = [&array, times] { update_all(array, times); };
        amounts["read_" + level] = 8.0 * array.size() * times;
        amounts["update_" + level] = 16.0 * array.size() * times;
    }
    auto seconds = measure(calls);
    std::printf("{\"lanes\": %d, \"L1\": %ld, \"L2\": %ld, \"L3\": %ld, \"per_second\": {", kLanes,
                sysconf(_SC_LEVEL1_DCACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE));
    const char* comma = "";
    for (const auto& [name, amount] : amounts) {
        std::printf("%s\"%s\": %.6g", comma, name.c_str(), amount / seconds[name]);
        comma = ", ";
    }
    std::printf("},\n \"kernels\": [");
}

// ---------------------------------------------------------------- the kernels
// A step of rows and some models of one shape, with all the memory that the kernels ask for.
template <class Tree>
struct Bench {
    using Kind = typename Tree::Kind;
    harness::Stream stream;
    Tree tree;
    const int n_models;
    driftree::Step step;

    Bench(int features, int classes, int models) : stream(features, classes), tree({}, classes), n_models(models) {
        for (int j = 0; j < features; j++) tree.add_feature(false, true);
        stream.draw(kRows);
        const driftree::Given given = {stream.X.data(), features, {}, stream.y.data(), nullptr};
        tree.learn(given, kRows);
        step.chunk.fill(tree.f, *tree.table, given, kRows, 1, tree.shape.stride);
        step.chunk.scale(tree.f, *tree.table, tree.shape.stride, Kind::kListsActive, 0, kRows);
        tree.models.make_places(n_models);
        for (int l = 0; l < n_models; l++) {
            driftree::Model copy = tree.models[tree.nodes[0].model];
            driftree::Pupil& pupil = step.add_pupil(tree.models.place(std::move(copy)));
            for (int i = 0; i < kRows; i++) pupil.rows.push_back(i);
        }
        step.make_lessons(tree.models, tree.shape);
    }
    const driftree::Lesson& first() const { return step.lessons[0]; }
    void forward() { Kind::forward(tree.f, tree.loss, tree.shape, step.chunk.rows(), step.lessons); }
    void learn(const typename Kind::Rates& rates) {
        Kind::learn(tree.f, tree.loss, tree.shape, step.chunk.rows(), step.lessons, rates, true);
    }
    // Adagrad makes more than one pass only where it leads: it always does here.
    void learn_passes(int passes) {
        for (const driftree::Lesson& lesson : step.lessons) {
            lesson.model.blend->preference = -8.0;
            std::fill_n(lesson.before.signal, kRows, driftree::Signal{});
        }
        driftree::BlendRates rates;
        rates.passes = passes;
        learn(rates);
    }
};

// A node's grid with even edges, as many as Python would choose.
struct GridBench {
    Bench<driftree::MeasuredTree>& bench;
    int bins;
    std::vector<double> edges, values, scratch;
    std::vector<std::int32_t> slots;
    driftree::Grid grid;
    driftree::GridRows sums;

    explicit GridBench(Bench<driftree::MeasuredTree>& b) : bench(b), values(kRows), scratch(kRows), slots(kRows) {
        const auto& shape = b.tree.shape;
        const int features = b.stream.features;
        bins = std::clamp(4'000'000 / (4 * shape.size()) / features - 1, 4, 64);
        for (int j = 0; j < features; j++)
            for (int e = 1; e <= bins + 1; e++) edges.push_back(e / static_cast<double>(bins));
        grid =
            driftree::Grid().chosen(std::vector<std::int32_t>(features, bins + 1), edges, b.tree.f, shape, b.tree.schema());
        for (int i = 0; i < kRows; i++) values[i] = b.step.chunk.raw_row(i, features)[0];
    }
    void add() {
        const auto& tree = bench.tree;
        const driftree::Lesson& lesson = bench.first();
        const driftree::Features all = {0, bench.stream.features};
        grid.accumulate(tree.f, tree.shape, *tree.table, bench.step.chunk, lesson.visit, lesson.before.residual, all,
                        scratch, sums);
        grid.absorb(tree.f, tree.shape, sums, all, 0);
    }
    void find_slots() { bench.tree.f.slots(edges.data(), bins - 1, values.data(), kRows, slots.data()); }
};

// The paper's store: a step's rows in the buckets of one feature, all of its values, and a single row.
struct CandidateBench {
    Bench<driftree::PaperTree>& bench;
    const driftree::Functions& f;
    const driftree::Shape& shape;
    std::vector<driftree::RowSums> sums;
    driftree::Lines<double> residual, all, left, prefix, left_norms, right_norms;
    driftree::Gradients gradients;
    driftree::Column column;
    driftree::Buckets buckets;
    std::vector<std::int32_t> feature;
    std::vector<std::uint64_t> is_left;
    std::vector<driftree::Lines<double>> columns;

    explicit CandidateBench(Bench<driftree::PaperTree>& b)
        : bench(b), f(b.tree.f), shape(b.tree.shape), sums(kRows), residual(kRows * shape.outputs), all(shape.size()),
          left(all.size()), prefix((driftree::kMostBuckets + 2) * all.size()), left_norms(kRows), right_norms(kRows) {
        const driftree::Visit& visit = b.first().visit;
        const auto& before = b.first().before;
        const driftree::Chunk& chunk = b.step.chunk;
        const int m = b.stream.features, n = 3 * m;
        f.weigh(shape, chunk.rows(), visit, before.residual, before.loss, residual.data(), sums.data());
        gradients = {chunk.inputs.data(), visit.rows, residual.data(), sums.data()};
        f.add_gradients(shape, gradients, nullptr, kRows, all.data());
        f.measure(shape, gradients, all.data(), kRows, kRows, sums.data());
        column.fill(f, chunk.raw.data(), m, visit.rows, kRows, 0, buckets);
        for (int k = 0; k < n; k++) feature.push_back(k % m);
        is_left.resize(n);
        for (const double value : {-1e300, 0.5, 0.0, 100.0, 50.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0})
            columns.emplace_back(n, value);
    }
    void sum_buckets() {
        f.sum_buckets(shape, gradients, all.data(), kRows, 0.05, column.places.data(), buckets, prefix.data());
    }
    void scan() {
        std::fill(left.begin(), left.end(), 0.0);
        f.scan(shape, gradients, all.data(), column.places.data(), kRows, left.data(), left_norms.data(),
               right_norms.data());
    }
    void add_row() {
        const auto at = [&](int i) { return columns[i].data(); };
        const auto bounds = f.add_row({static_cast<int>(feature.size()), feature.data(), at(0), at(1), at(2), at(3), at(4),
                                       is_left.data(), at(5), at(6), at(7), at(8), at(9), at(10)},
                                      {bench.step.chunk.raw.data(), 1.0, 0.7, 0.1, 0}, 1e9, 0.05);
        use(bounds);
    }
};

void print_kernels(int features, int classes) {
    Bench<driftree::MeasuredTree> ours(features, classes, kModels);
    Bench<driftree::PaperTree> papers(features, classes, 1);
    ours.forward(), papers.forward();
    GridBench grid(ours);
    CandidateBench store(papers);
    auto seconds = measure({
        {"forward", [&] { ours.forward(); }},
        {"learn1", [&] { ours.learn_passes(1); }},
        {"learn3", [&] { ours.learn_passes(3); }},
        {"grid", [&] { grid.add(); }},
        {"slots", [&] { grid.find_slots(); }},
        {"sgd_forward", [&] { papers.forward(); }},
        {"sgd_learn", [&] { papers.learn({0.05}); }},
        {"sums", [&] { store.sum_buckets(); }},
        {"scan", [&] { store.scan(); }},
        {"bounds", [&] { store.add_row(); }},
    });
    const double of_all = kRows * kModels, adagrad = (seconds["learn3"] - seconds["learn1"]) / 2;
    const double slot_seconds = seconds["slots"] * features;
    const std::map<std::string, double> per_row = {{"model forward", seconds["forward"] / of_all},
                                                   {"Adagrad pass", adagrad / of_all},
                                                   {"Newton row", (seconds["learn1"] - adagrad) / of_all},
                                                   {"slots", slot_seconds / kRows},
                                                   {"grid sums", (seconds["grid"] - slot_seconds) / kRows},
                                                   {"SGD forward", seconds["sgd_forward"] / kRows},
                                                   {"SGD row", seconds["sgd_learn"] / kRows},
                                                   {"candidate sums", seconds["sums"] * features / kRows},
                                                   {"candidate scan", seconds["scan"] * features / kRows},
                                                   {"candidate bounds", seconds["bounds"]}};
    const auto& shape = ours.tree.shape;
    for (const auto& [name, value] : per_row)
        std::printf(
            "\n  {\"kernel\": \"%s\", \"features\": %d, \"outputs\": %d, \"columns\": %d, \"stride\": %d, "
            "\"bins\": %d, \"seconds\": %.6g},",
            name.c_str(), features, shape.outputs, shape.columns, shape.stride, grid.bins, value);
}

}  // namespace

int main(int count, char** words) {
    print_machine();
    for (int i = 1; i + 1 < count; i += 2) print_kernels(std::atoi(words[i]), std::atoi(words[i + 1]));
    std::printf("\n  null]}\n");
}
