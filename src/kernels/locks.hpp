// Locks: turns at an engine (turns.hpp) beside Python's own lock.
#pragma once
#include <nanobind/nanobind.h>

#include <optional>
#include <utility>

#include "turns.hpp"

namespace driftree {

namespace nb = nanobind;

// A call that has the interpreter's lock (GIL) also takes its turn at the engine, and never waits for that with the GIL in
// its hands. Whoever has a turn may wait for the GIL: no deadlock.
constexpr auto without_gil = [](auto&& wait) {
    nb::gil_scoped_release release;
    wait();
};
struct Writing : Turn {
    template <class Engine>
    explicit Writing(const Engine& engine) : Turn(engine.turns, true, without_gil) {}
};
struct Reading : Turn {
    template <class Engine>
    explicit Reading(const Engine& engine) : Turn(engine.turns, false, without_gil) {}
};

// One turn for several calls from Python: `with engine.writing(): ...`.
class Held {
public:
    Held(nb::object engine, Turns& turns, bool writes) : engine_(std::move(engine)), turns_(turns), writes_(writes) {}
    // Goes on with a writing turn that the thread has: it ends with this object.
    Held(nb::object engine, Turns& turns, Turn& begun) : Held(std::move(engine), turns, true) {
        begin();
        turn_->take_over(begun);
    }
    void begin() {
        if (!turn_) turn_.emplace(turns_, writes_, without_gil);
    }
    void end() { turn_.reset(); }

private:
    nb::object engine_;  // stays alive
    Turns& turns_;
    bool writes_;
    std::optional<Turn> turn_;
};

// A lock for whole calls. Unlike Python's own it is released with its block whatever interrupts that, and a forked process
// finds it free.
struct Lock {
    Turns turns{false};
};

template <class Engine, bool kWrites>
Held* hold(nb::handle_t<Engine> self) {
    return new Held(nb::borrow(self), nb::inst_ptr<Engine>(self)->turns, kWrites);
}

}  // namespace driftree
