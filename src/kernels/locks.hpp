// Locks: one learns, or many predict.
#pragma once
#include <nanobind/nanobind.h>

#include <mutex>
#include <shared_mutex>

namespace driftree {

namespace nb = nanobind;

// A call that has the interpreter's lock (GIL) also takes the engine's. It never waits for it with the GIL in its hands,
// and whoever has released the GIL lets go of the engine before it asks for the GIL again: no deadlock.
template <class Lock>
class Holding {
public:
    template <class Engine>
    explicit Holding(const Engine& engine) : lock_(engine.mutex, std::try_to_lock) {
        if (lock_.owns_lock()) return;
        nb::gil_scoped_release release;
        lock_.lock();
    }

private:
    Lock lock_;
};
using Writing = Holding<std::unique_lock<std::shared_mutex>>;
using Reading = Holding<std::shared_lock<std::shared_mutex>>;

}  // namespace driftree
