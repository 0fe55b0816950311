// Tasks: the parts of a step that may run in parallel, since no task touches what another reads or writes. A model learns
// its own rows; a feature's slots of a grid add their own gradients.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "threads.hpp"

namespace driftree {

struct StepTask {
    double work;
    int stop;  // index of the stop with the grid, or -1 for lessons
    int begin, end;
};

class StepTasks {
public:
    std::vector<StepTask> all;

    void reserve(int n_threads, std::size_t n_stops, std::size_t n_lessons) {
        all.reserve(n_threads > 1 ? n_lessons + n_stops * kParts * n_threads : 0);
    }
    // Adds lessons in their order; small ones together, since they fill vectors together.
    template <class Work>
    void add_lessons(int n, double most, const Work& work_of) {
        for (int begin = 0, end; begin < n; begin = end) {
            double work = work_of(begin);
            for (end = begin + 1; end < n && end - begin < kTogether && work + work_of(end) <= most; end++)
                work += work_of(end);
            all.push_back({work, -1, begin, end});
        }
    }
    void add_features(int stop, int n_threads, int n_features, double work) {
        const int n = std::max(1, std::min({static_cast<int>(work / kLeastTask), kParts * n_threads, n_features}));
        for (int part = 0; part < n; part++)
            all.push_back({work / n, stop, part * n_features / n, (part + 1) * n_features / n});
    }
    // Whether helpers would save enough; if so, sorts the tasks longest first, as idle threads take the next one.
    bool pay(int n_threads) {
        double sum = 0.0, longest = 0.0;
        for (const StepTask& task : all) sum += task.work, longest = std::max(longest, task.work);
        if (!Threads::all().pays(n_threads, sum - std::max(longest, sum / n_threads))) return false;
        std::sort(all.begin(), all.end(), [](const StepTask& a, const StepTask& b) { return a.work > b.work; });
        return true;
    }
    template <class Archive>
    void visit_scratch(Archive& a) {
        a("tasks", all);
    }

private:
    static constexpr int kTogether = 8;  // models that fill a vector
    static constexpr int kParts = 4;     // most parts of a grid, per thread
};

}  // namespace driftree
