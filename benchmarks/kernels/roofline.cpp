// How fast is this machine, and how fast are the kernels on it? Both in seconds of processor time, as JSON.
//
//     roofline FEATURES CLASSES [FEATURES CLASSES ...]
//
// Peaks: multiply and add from registers without fusing them, divide and square root, the exponential, a chain of links,
// and bytes from the caches and from memory. Kernels: seconds per row and model (or node), called directly, on the rows of one step.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "rows.hpp"

namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 64;
#elif defined(__AVX2__)
constexpr int kWidth = 32;
#else
constexpr int kWidth = 16;
#endif
typedef double Wide __attribute__((vector_size(kWidth), aligned(8), may_alias));
constexpr int kLanes = kWidth / sizeof(double), kChains = 12, kRounds = 15, kRows = 200, kModels = 8;

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
void divide_root() {
    Wide values[kChains / 2];
    for (Wide& value : values) value = Wide{} + 2.0;
    for (int i = 0; i < kTurns / 8; i++)
        for (Wide& value : values) {
            Wide root;
            for (int l = 0; l < kLanes; l++) root[l] = std::sqrt(value[l]);
            value = 2.0 / (root + 1e-8);
        }
    use(values);
}

void exponentials(const std::vector<double>& x) {
    double sum = 0.0;
    for (const double value : x) sum += std::exp(value);
    use(sum);
}

// From one row's residual to the next one's: eight lanes summed, the link, and the step that the next row waits for.
void links() {
    double logit = 0.3;
    for (int i = 0; i < kTurns / 8; i++) {
        const double e = std::exp(-std::fabs(logit)), residual = 1.0 / (1.0 + e);
        double lanes[8];
        for (int l = 0; l < 8; l++) lanes[l] = 0.9 - residual * (0.1 * l);
        logit = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
    }
    use(logit);
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
        for (std::size_t i = 0; i < x.size(); i += kLanes) *reinterpret_cast<Wide*>(data + i) -= term;
        use(x);
    }
}

void print_machine() {
    const std::map<std::string, int> kilobytes = {{"L1", 16}, {"L2", 256}, {"L3", 8192}, {"memory", 131072}};
    std::vector<double> places(512);
    for (std::size_t i = 0; i < places.size(); i++) places[i] = -4.0 + i / 64.0;
    std::map<std::string, std::vector<double>> arrays;
    std::map<std::string, std::function<void()>> calls = {
        {"multiply_add", multiply_add}, {"divide_root", divide_root}, {"links", links},
        {"exponential", [&] { exponentials(places); }}};
    std::map<std::string, double> amounts = {
        {"multiply_add", 2.0 * kTurns * kChains * kLanes}, {"divide_root", kTurns / 8 * (kChains / 2.0) * kLanes},
        {"links", kTurns / 8}, {"exponential", 512.0}};
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
// A step of rows and several models of one shape, with all the memory that the kernels ask for.
struct Bench {
    harness::Stream stream;
    driftree::Engine engine;
    driftree::Chunk chunk;
    const driftree::Functions& f = driftree::choose_functions();
    std::vector<std::int32_t> places;
    std::vector<std::vector<double>> models, loss, residual, advantage, scratch;
    std::vector<driftree::Lesson> lessons;

    static driftree::Settings settings(bool by_gradient) {
        driftree::Settings settings;
        settings.by_gradient = by_gradient;
        return settings;
    }
    Bench(int features, int classes, bool by_gradient) : stream(features, classes), engine(settings(by_gradient), classes) {
        for (int j = 0; j < features; j++) engine.add_feature(false, true);
        stream.draw(kRows);
        engine.learn(stream.X.data(), stream.y.data(), nullptr, kRows);
        chunk.fill(stream.X.data(), stream.y.data(), nullptr, kRows, features, 1);
        chunk.scale(engine.schema, engine.scaler, engine.shape.stride, by_gradient);
        for (int i = 0; i < kRows; i++) places.push_back(i);
        const auto& shape = engine.shape;
        for (int l = 0; l < kModels; l++) {
            models.push_back(engine.models[engine.nodes.model[0]]);
            loss.emplace_back(kRows), advantage.emplace_back(kRows), residual.emplace_back(kRows * shape.outputs);
            scratch.emplace_back(driftree::scratch_size(shape));
        }
        for (int l = 0; l < kModels; l++)
            lessons.push_back({models[l].data(), {places.data(), kRows},
                               {loss[l].data(), residual[l].data(), advantage[l].data(), scratch[l].data()}});
    }
    void forward() {
        const auto run = engine.settings.by_gradient ? f.sgd_forward : f.blend_forward;
        for (const auto& lesson : lessons) run(engine.shape, lesson.model, chunk.rows(), lesson.visit, lesson.before);
    }
    void learn(int passes) {
        const auto run = engine.settings.by_gradient ? f.sgd_learn : f.blend_learn;
        run(engine.shape, chunk.rows(), lessons.data(), kModels, {0.05, 1000.0, passes});
    }
};

void print_kernels(int features, int classes) {
    Bench ours(features, classes, false), papers(features, classes, true);
    ours.forward(), papers.forward();
    const auto& shape = ours.engine.shape;
    const int size = shape.outputs * shape.stride;

    const int bins = std::clamp(4'000'000 / (4 * size) / features - 1, 4, 64);
    std::vector<double> edges, values(kRows);
    for (int j = 0; j < features; j++)
        for (int e = 1; e <= bins + 1; e++) edges.push_back(e / static_cast<double>(bins));
    driftree::Grid grid;
    grid.choose(std::vector<std::int32_t>(features, bins + 1), edges, shape);
    driftree::GridScratch scratch;
    std::vector<std::int32_t> slots(kRows);
    for (int i = 0; i < kRows; i++) values[i] = ours.chunk.raw_row(i, features)[0];

    std::vector<double> gradients(static_cast<std::size_t>(kRows) * size), all(size, 1.0), left(size), a(kRows), b(kRows);
    papers.f.gradients(shape, papers.chunk.rows(), papers.lessons[0].visit, papers.residual[0].data(), gradients.data());

    auto seconds = measure({
        {"forward", [&] { ours.forward(); }},
        {"learn1", [&] { ours.learn(1); }},
        {"learn3", [&] { ours.learn(3); }},
        {"grid", [&] { grid.add(ours.f, shape, ours.engine.schema, ours.chunk, ours.lessons[0].visit, ours.residual[0].data(), scratch); }},
        {"slots", [&] { ours.f.slots(edges.data(), bins - 1, values.data(), kRows, slots.data()); }},
        {"sgd_forward", [&] { papers.forward(); }},
        {"sgd_learn", [&] { papers.learn(1); }},
        {"scan", [&] { papers.f.scan(gradients.data(), all.data(), size, papers.places.data(), kRows, left.data(), a.data(), b.data()); }},
    });
    const double of_all = kRows * kModels, adagrad = (seconds["learn3"] - seconds["learn1"]) / 2;
    const double slot_seconds = seconds["slots"] * features;
    const std::map<std::string, double> per_row = {
        {"model forward", seconds["forward"] / of_all}, {"Adagrad pass", adagrad / of_all},
        {"Newton row", (seconds["learn1"] - adagrad) / of_all}, {"slots", slot_seconds / kRows},
        {"grid sums", (seconds["grid"] - slot_seconds) / kRows}, {"SGD forward", seconds["sgd_forward"] / of_all},
        {"SGD row", seconds["sgd_learn"] / of_all}, {"candidate scan", seconds["scan"] * features / kRows}};
    for (const auto& [name, value] : per_row)
        std::printf("\n  {\"kernel\": \"%s\", \"features\": %d, \"outputs\": %d, \"columns\": %d, \"stride\": %d, \"bins\": %d, "
                    "\"seconds\": %.6g},", name.c_str(), features, shape.outputs, shape.columns, shape.stride, bins, value);
}

}  // namespace

int main(int count, char** words) {
    print_machine();
    for (int i = 1; i + 1 < count; i += 2) print_kernels(std::atoi(words[i]), std::atoi(words[i + 1]));
    std::printf("\n  null]}\n");
}
