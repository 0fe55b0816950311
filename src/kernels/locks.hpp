// Locks: the engine's lock (turns.hpp) together with Python's GIL.
#pragma once
#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <utility>

#include "turns.hpp"

namespace driftree {

namespace nb = nanobind;

// A call that holds the GIL also takes the engine's lock, and never waits for it while holding the GIL. A thread that holds
// the engine's lock may wait for the GIL: no deadlock.
constexpr auto without_gil = [](auto&& wait) {
    nb::gil_scoped_release release;
    wait();
};
// Locks for learning and for predicting.
struct Learning : Turn {
    template <class Engine>
    explicit Learning(const Engine& engine) : Turn(engine.turns, true, without_gil) {}
};
struct Predicting : Turn {
    template <class Engine>
    explicit Predicting(const Engine& engine) : Turn(engine.turns, false, without_gil) {}
};

// All others lock a settled tree, without buffered rows (model_tree.hpp).
template <class Engine>
bool has_waiting(const Engine& engine) {
    if constexpr (requires { engine.has_waiting(); }) return engine.has_waiting();
    return false;
}
template <class Engine>
void settle(const Engine& engine) {
    if constexpr (requires(Engine& e) { e.settle(); }) const_cast<Engine&>(engine).settle();
}
class Settled {
public:
    void end() { turn_.reset(); }

protected:
    template <class Engine>
    void begin(const Engine& engine, bool writes) {
        turn_.emplace(engine.turns, writes, without_gil);
        if (!has_waiting(engine)) return;
        if (!writes) {
            turn_.reset();
            if (Turn::only_reads(engine.turns)) {  // inside a prediction: it sees the same tree
                turn_.emplace(engine.turns, false, without_gil);
                return;
            }
            turn_.emplace(engine.turns, true, without_gil, true);
        }
        settle(engine);
    }
    std::optional<Turn> turn_;
};
struct Writing : Settled {
    template <class Engine>
    explicit Writing(const Engine& engine) {
        begin(engine, true);
    }
    void close() { turn_->close(); }
};
struct Reading : Settled {
    template <class Engine>
    explicit Reading(const Engine& engine) {
        begin(engine, false);
    }
};

// A lock over several calls from Python: `with engine.writing(): ...`.
class Held : Settled {
public:
    template <class Engine>
    Held(nb::object owner, const Engine& engine, bool writes)
        : engine_(std::move(owner)), begin_([this, &engine, writes] { Settled::begin(engine, writes); }) {}
    // Continues a writing turn of the thread: it ends with this object.
    template <class Engine>
    Held(nb::object owner, const Engine& engine, Turn& begun) : Held(std::move(owner), engine, true) {
        turn_.emplace(engine.turns, true, without_gil);
        turn_->take_over(begun);
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    void begin() {
        if (!turn_) begin_();
    }
    using Settled::end;

private:
    nb::object engine_;  // kept alive
    std::function<void()> begin_;
};

// A lock for whole calls. Unlike Python's own, it is released with its block whatever the interruption, and is free in a
// forked process.
struct Lock {
    mutable Turns turns{false};
};

template <class Engine, bool kWrites>
Held* hold(nb::handle_t<Engine> self) {
    return new Held(nb::borrow(self), *nb::inst_ptr<Engine>(self), kWrites);
}

}  // namespace driftree
