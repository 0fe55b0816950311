// Turns: a fair readers-writer lock. One learns, or many look. A writer that has finished admits the readers that wait;
// readers that come later queue behind the writers that wait.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

#include <pthread.h>

namespace driftree {

class Turns {
public:
    // `tears`: what they guard is broken in a process that is forked in the middle of a writing turn.
    explicit Turns(bool tears = true) : tears_(tears) {
        const std::lock_guard guard(all_mutex_);
        next_ = all_;
        if (all_) all_->before_ = this;
        all_ = this;
    }
    Turns(const Turns&) = delete;
    Turns& operator=(const Turns&) = delete;
    ~Turns() {
        const std::lock_guard guard(all_mutex_);
        (before_ ? before_->next_ : all_) = next_;
        if (next_) next_->before_ = before_;
    }
    bool try_read() {
        std::uint32_t now = state_.load(std::memory_order_relaxed);
        while (!(now & (kWriter | kQueue)))
            if (state_.compare_exchange_weak(now, now + 1, std::memory_order_acquire)) return true;
        return false;
    }
    bool try_write() {
        std::uint32_t nobody = 0;
        return state_.compare_exchange_strong(nobody, kWriter, std::memory_order_acquire);
    }
    void read() {
        std::unique_lock guard(mutex_);
        need_whole();
        const std::uint32_t now = state_.fetch_or(kQueue);
        if (now & kWriter || n_came_ > n_served_) {
            n_readers_++;
            const std::uint64_t phase = phase_;
            readers_.wait(guard, [&] { return phase_ != phase; });
        } else {
            state_++;
            open_if_empty();
        }
    }
    void write() {
        std::unique_lock guard(mutex_);
        need_whole();
        const std::uint32_t now = state_.fetch_or(kQueue);
        if (now & ~kQueue || n_came_ > n_served_ || n_readers_ > 0) {
            const std::uint64_t place = ++n_came_;
            writers_.wait(guard, [&] { return n_served_ == place; });
        } else {
            state_ |= kWriter;
            open_if_empty();
        }
    }
    void end_read() {
        if (state_.fetch_sub(1, std::memory_order_acq_rel) != (kQueue | 1)) return;
        const std::lock_guard guard(mutex_);
        pass_on(n_came_ > n_served_);
    }
    void end_write() {
        std::uint32_t only_us = kWriter;
        if (state_.compare_exchange_strong(only_us, 0, std::memory_order_release)) return;
        const std::lock_guard guard(mutex_);
        state_ &= ~kWriter;
        pass_on(n_readers_ == 0);
    }

    // ---- fork: of all threads only the one that forks goes on in the child. What it holds it still holds; what others
    // held is free. If one of those was learning, the child's copy of the model is half of a step.
    static void before_fork() { all_mutex_.lock(); }
    static void after_fork_in_parent() { all_mutex_.unlock(); }
    template <class CountOwn>
    static void after_fork_in_child(CountOwn&& count_own) {
        for (Turns* turns = all_; turns; turns = turns->next_) {
            const auto [writes, n_reads] = count_own(*turns);
            turns->is_torn_ = turns->is_torn_ || (turns->tears_ && turns->state_ & kWriter && !writes);
            new (&turns->mutex_) std::mutex;
            new (&turns->readers_) std::condition_variable;
            new (&turns->writers_) std::condition_variable;
            turns->n_readers_ = 0;
            turns->n_served_ = turns->n_came_;
            turns->state_ = (writes || turns->is_torn_ ? kWriter : 0) + n_reads;
        }
        new (&all_mutex_) std::mutex;
    }

private:
    void need_whole() const {
        if (is_torn_)
            throw std::runtime_error(
                "another thread was learning when this process was forked, so this copy of the model is "
                "broken: fork before threads learn, or load the model from a file here");
    }
    static inline constinit std::mutex all_mutex_;  // of the list of all
    static inline Turns* all_ = nullptr;
    Turns *before_ = nullptr, *next_ = nullptr;
    const bool tears_;
    bool is_torn_ = false;
    static constexpr std::uint32_t kWriter = 1u << 31;  // somebody writes
    static constexpr std::uint32_t kQueue = 1u << 30;   // somebody waits: who comes now has to ask under the mutex

    // Gives the free turn to those who wait, who have it before they are awake: nobody can come between.
    void pass_on(bool to_writer) {
        if (state_ & ~kQueue) return;  // somebody was quicker
        if (to_writer && n_came_ > n_served_) {
            state_ |= kWriter;
            n_served_++;
            writers_.notify_all();
        } else if (n_readers_ > 0) {
            state_ += n_readers_;
            n_readers_ = 0;
            phase_++;
            readers_.notify_all();
        }
        open_if_empty();
    }
    void open_if_empty() {
        if (n_readers_ == 0 && n_came_ == n_served_) state_ &= ~kQueue;
    }

    std::atomic<std::uint32_t> state_ = 0;  // the two flags, and how many read
    std::mutex mutex_;                      // of what follows
    std::condition_variable readers_, writers_;
    std::uint32_t n_readers_ = 0;              // waiting
    std::uint64_t phase_ = 0;                  // counts the times that readers who waited were let in
    std::uint64_t n_came_ = 0, n_served_ = 0;  // writers who had to wait, and who of them got their turn
};

// A turn that the thread has, until the end of the block. A turn inside a turn of the same thread waits for nobody.
class Turn {
public:
    // wait(call) calls `call`, which may take long. `settles`: what is written changes nothing that another can see, and so a
    // closed turn allows it.
    template <class Wait>
    Turn(Turns& turns, bool writes, Wait&& wait, bool settles = false) : turns_(turns), writes_(writes), outer_(innermost_) {
        is_own_ = writes ? turns.try_write() : turns.try_read();
        if (!is_own_ && !is_inside(settles)) {
            wait([&] { writes ? turns.write() : turns.read(); });
            is_own_ = true;
        }
        innermost_ = this;
    }
    // Has this thread a turn, and none to write?
    static bool only_reads(const Turns& turns) {
        bool reads = false;
        for (const Turn* turn = innermost_; turn; turn = turn->outer_) {
            if (&turn->turns_ != &turns) continue;
            if (turn->writes_) return false;
            reads = true;
        }
        return reads;
    }
    // Lets a forked process go on: called once, when the module is loaded.
    static void survive_forks() {
        pthread_atfork(&Turns::before_fork, &Turns::after_fork_in_parent, [] {
            Turns::after_fork_in_child([](const Turns& turns) {
                std::pair<bool, std::uint32_t> own = {false, 0};
                for (const Turn* turn = innermost_; turn; turn = turn->outer_)
                    if (turn->is_own_ && &turn->turns_ == &turns) turn->writes_ ? own.first = true : (own.second++, false);
                return own;
            });
        });
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { end(); }
    // While the objects of a caller are read, code of theirs may run (`__eq__`, `__float__`): a closed turn lets it look at
    // what this turn guards, but not write.
    void close() { is_closed_ = true; }
    void open() { is_closed_ = false; }
    // Goes on with the turn just outside of this one, which is over with that.
    void take_over(Turn& outer) {
        is_own_ = outer.is_own_;
        outer_ = outer.outer_;
        outer.is_own_ = false;
        outer.is_over_ = true;
    }
    void end() {
        if (is_over_) return;
        is_over_ = true;
        innermost_ = outer_;
        if (is_own_) writes_ ? turns_.end_write() : turns_.end_read();
    }

private:
    bool is_inside(bool settles) const {
        bool reads = false;
        for (const Turn* turn = outer_; turn; turn = turn->outer_) {
            if (&turn->turns_ != &turns_) continue;
            if (writes_ && turn->is_closed_ && !settles) throw std::logic_error("a model cannot learn while it reads a row");
            if (turn->writes_ || !writes_) return true;
            reads = true;
        }
        if (reads) throw std::logic_error("a model cannot learn while the same thread looks at it");
        return false;
    }

#ifdef __GLIBC__  // which has room for a few such variables of libraries that are loaded late: one instruction, not a call
    [[gnu::tls_model("initial-exec")]]
#endif
    static inline constinit thread_local const Turn* innermost_ = nullptr;
    Turns& turns_;
    const bool writes_;
    bool is_own_ = false, is_over_ = false, is_closed_ = false;
    const Turn* outer_;
};

}  // namespace driftree
