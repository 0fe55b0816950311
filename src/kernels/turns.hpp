// Turns: a fair readers-writer lock. A writer that has finished admits the waiting readers; readers that come later queue
// behind the waiting writers.
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
    // `tears`: what the lock guards is broken in a process that is forked while another thread writes.
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

    // ---- fork: in the child only the thread that forked goes on. It keeps its locks; those of other threads are free. If
    // one of them was learning, the child's copy of the model is in the middle of a step.
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
    static inline constinit std::mutex all_mutex_;  // guards the list of all locks
    static inline Turns* all_ = nullptr;
    Turns *before_ = nullptr, *next_ = nullptr;
    const bool tears_;
    bool is_torn_ = false;
    static constexpr std::uint32_t kWriter = 1u << 31;  // there is a writer
    static constexpr std::uint32_t kQueue = 1u << 30;   // threads are waiting: newcomers must take the mutex

    // Passes the free lock to waiting threads, which hold it before they wake up: no other thread can come in between.
    void pass_on(bool to_writer) {
        if (state_ & ~kQueue) return;  // another thread was faster
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

    std::atomic<std::uint32_t> state_ = 0;  // the two flags, and the number of readers
    std::mutex mutex_;                      // guards the fields below
    std::condition_variable readers_, writers_;
    std::uint32_t n_readers_ = 0;              // waiting readers
    std::uint64_t phase_ = 0;                  // number of times that waiting readers were admitted
    std::uint64_t n_came_ = 0, n_served_ = 0;  // writers that had to wait, and how many of them were admitted
};

// A turn: holds the lock until the end of the block. A turn nested in one of the same thread does not wait.
class Turn {
public:
    // wait(call) runs `call`, which may block. `settles`: the write changes nothing visible, so that a closed turn allows
    // it.
    template <class Wait>
    Turn(Turns& turns, bool writes, Wait&& wait, bool settles = false) : turns_(turns), writes_(writes), outer_(innermost_) {
        is_own_ = writes ? turns.try_write() : turns.try_read();
        if (!is_own_ && !is_inside(settles)) {
            wait([&] { writes ? turns.write() : turns.read(); });
            is_own_ = true;
        }
        innermost_ = this;
    }
    // Whether this thread holds the lock only for reading.
    static bool only_reads(const Turns& turns) {
        bool reads = false;
        for (const Turn* turn = innermost_; turn; turn = turn->outer_) {
            if (&turn->turns_ != &turns) continue;
            if (turn->writes_) return false;
            reads = true;
        }
        return reads;
    }
    // Resets the locks in a forked process; called once, when the module is loaded.
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
    // Reading a caller's objects may run their code (`__eq__`, `__float__`): a closed turn lets it read what this turn
    // guards, but not write.
    void close() { is_closed_ = true; }
    void open() { is_closed_ = false; }
    // Takes over the lock of the next outer turn, which ends with that.
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

#ifdef __GLIBC__  // it reserves room for a few such variables of libraries loaded late: one instruction instead of a call
    [[gnu::tls_model("initial-exec")]]
#endif
    static inline constinit thread_local const Turn* innermost_ = nullptr;
    Turns& turns_;
    const bool writes_;
    bool is_own_ = false, is_over_ = false, is_closed_ = false;
    const Turn* outer_;
};

}  // namespace driftree
