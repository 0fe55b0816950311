// Threads: a pool for the work of one call, cut into tasks that do not touch each other's numbers. The caller does the
// tasks, and helpers, threads that are created when first needed and shared by all models of the process, do some of them
// meanwhile.
//
// The caller never waits for a helper that has not started: if no core is free, it does all tasks itself. A task may be a call
// with tasks of its own, an inner job; a thread that waits for it helps with these. Which thread does a task does not change
// any bit of the result.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include <pthread.h>

namespace driftree {

// Work is in estimated nanoseconds on the machine of docs/speed.md.
constexpr double kLeastSaved = 20'000.0;      // least that helpers must save: more than it takes to wake one
constexpr double kLeastSavedAwake = 4'000.0;  // the same if a helper is still awake
constexpr double kLeastTask = 4'000.0;

class Threads {
public:
    // Never destroyed: helpers may still be waiting when the process ends.
    static Threads& all() {
        alignas(Threads) static std::byte room[sizeof(Threads)];
        static Threads& threads = *new (room) Threads;
        return threads;
    }
    // Resets the pool in a forked process, which has no helpers; called once, when the module is loaded.
    static void survive_forks() {
        all();
        pthread_atfork(nullptr, nullptr, [] {
            new (&all()) Threads;
            innermost_ = nullptr;
        });
    }

    // Whether calling helpers pays if they save so much. It does not if all cores are busy: none would join.
    bool pays(int n_threads, double saved) const {
        if (n_busy_ + (innermost_ ? 0 : 1) >= most_busy(n_threads)) return false;
        return saved >= (n_watching_ > 0 ? kLeastSavedAwake : kLeastSaved);
    }
    // Wakes helpers ahead of time: waking takes longer than the caller should wait.
    void wake(int n) {
        {
            const std::lock_guard guard(mutex_);
            n = call(n);
        }
        for (int i = 0; i < n; i++) called_.notify_one();
    }
    // Calls task(i, who) for each i < n in any order, on up to n_threads threads including the caller's; each has its own
    // `who` < n_threads. Throws the first exception of a task, after all threads have stopped.
    template <class Task>
    void run(int n_threads, int n, const Task& task) {
        if (std::min(n_threads, n) <= 1) {
            for (int i = 0; i < n; i++) task(i, 0);
            return;
        }
        Job job;
        job.task = &task;
        job.call = [](const void* own, int i, int who) { (*static_cast<const Task*>(own))(i, who); };
        job.n = n;
        job.n_threads = std::min(n_threads, n);
        share(job);
        if (job.error) std::rethrow_exception(job.error);
    }
    // Calls each(begin, end, who) for ranges of 0 .. n; all but the last are multiples of `unit`.
    template <class Each>
    void run_ranges(int n_threads, std::size_t n, std::size_t unit, double work_each, const Each& each) {
        const double work = work_each * static_cast<double>(n);
        if (n_threads <= 1 || !pays(n_threads, work - work / n_threads)) return each(std::size_t{0}, n, 0);
        const double parts = std::clamp(work / kLeastTask, 1.0, 8.0 * n_threads);  // several per thread: none waits long
        const std::size_t units = (n + unit - 1) / unit, length = std::max<std::size_t>(1, units / static_cast<int>(parts));
        run(n_threads, static_cast<int>((units + length - 1) / length), [&](int i, int who) {
            const std::size_t begin = i * length * unit;
            each(begin, std::min(n, begin + length * unit), who);
        });
    }

private:
    struct Job {
        const void* task;
        void (*call)(const void* task, int i, int who);
        int n, n_threads;
        std::atomic<int> next = 0;      // next task to be taken
        int n_joined = 1;               // threads that have ever joined
        std::atomic<int> n_inside = 0;  // helpers at work on it
        std::exception_ptr error;
        Job *older = nullptr, *outer = nullptr;
    };
    static constexpr std::chrono::microseconds kPatience{100};  // longer than it takes until the next step of a batch

    void share(Job& job) {
        int n = job.n_threads - 1;
        job.outer = innermost_;
        {
            const std::lock_guard guard(mutex_);
            make_helpers(n);
            job.older = newest_;
            newest_ = &job;
            if (!job.outer) n_busy_++;
            n_posted_++;
            n = call(n);
            if (n_waiting_ > 0) done_.notify_all();
        }
        for (int i = 0; i < n; i++) called_.notify_one();
        innermost_ = &job;
        work_on(job, 0);
        innermost_ = job.outer;
        std::unique_lock guard(mutex_);
        Job** place = &newest_;
        while (*place != &job) place = &(*place)->older;
        *place = job.older;  // no helper joins from here on
        n_busy_--;
        help_out(job, guard);
        if (job.outer) n_busy_++;
    }
    // Waits for the helpers of a job, and helps with their inner jobs meanwhile.
    void help_out(Job& job, std::unique_lock<std::mutex>& guard) {
        for (bool is_awake = true; job.n_inside > 0; is_awake = !is_awake) {
            if (Job* const inner = open_job(&job)) {
                join(*inner, guard);
                is_awake = false;
                continue;
            }
            const unsigned known = n_posted_;
            const auto has_news = [&] { return job.n_inside == 0 || n_posted_ != known; };
            if (is_awake) {
                look_out(has_news, guard);
            } else {
                n_waiting_++;
                done_.wait(guard, has_news);
                n_waiting_--;
            }
        }
    }
    void join(Job& job, std::unique_lock<std::mutex>& guard) {
        const int who = job.n_joined++;
        Job* const own = innermost_;
        job.n_inside++;
        n_busy_++;
        guard.unlock();
        innermost_ = &job;
        work_on(job, who);
        innermost_ = own;
        guard.lock();
        n_busy_--;
        if (--job.n_inside == 0) done_.notify_all();  // the job may be gone by now
    }
    void work_on(Job& job, int who) {
        try {
            for (int i; (i = job.next.fetch_add(1, std::memory_order_relaxed)) < job.n;) job.call(job.task, i, who);
        } catch (...) {
            job.next = job.n;
            const std::lock_guard guard(mutex_);
            if (!job.error) job.error = std::current_exception();
        }
    }
    // If a helper cannot be created, for lack of memory or by a limit of the system, the others do its tasks.
    void make_helpers(int n) {
        if (n_helpers_ >= n) return;
        sigset_t all_signals, before;
        sigfillset(&all_signals);
        pthread_sigmask(SIG_BLOCK, &all_signals, &before);  // signals are for Python's threads
        try {
            for (; n_helpers_ < n; n_helpers_++) std::thread([this] { help(); }).detach();
        } catch (const std::exception&) {
            n = n_helpers_;  // stop creating
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    // Number of sleeping helpers to notify so that n are awake.
    int call(int n) {
        n = std::max(0, std::min(n - n_watching_, n_sleeping_) - n_called_);
        n_called_ += n;
        return n;
    }
    // A helper looks for work, then watches for more for a while, then sleeps until it is notified.
    [[noreturn]] void help() {
        std::unique_lock guard(mutex_);
        for (bool is_awake = true;;) {
            if (Job* const job = open_job(nullptr)) {
                join(*job, guard);
                is_awake = true;
                continue;
            }
            if (is_awake) {
                const unsigned known = n_posted_;
                look_out([&] { return n_posted_ != known; }, guard);
            } else {
                n_sleeping_++;
                called_.wait(guard, [&] { return n_called_ > 0; });
                n_sleeping_--;
                n_called_--;
            }
            is_awake = !is_awake;
        }
    }
    // One that has work left and takes another thread, any or inside another. Callers are threads, too: models that learn side
    // by side leave each other the cores.
    Job* open_job(const Job* outer) const {
        for (Job* job = newest_; job; job = job->older)
            if (job->next < job->n && job->n_joined < job->n_threads && n_busy_ < most_busy(job->n_threads) &&
                is_inside(job, outer))
                return job;
        return nullptr;
    }
    static bool is_inside(const Job* job, const Job* outer) {
        while (job && job != outer) job = job->outer;
        return job == outer;
    }
    int most_busy(int n_threads) const { return std::max(n_cores_, n_threads); }
    template <class Condition>
    void look_out(const Condition& holds, std::unique_lock<std::mutex>& guard) {
        n_watching_++;
        guard.unlock();
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (!holds() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        guard.lock();
        n_watching_--;
    }

    const int n_cores_ = static_cast<int>(std::thread::hardware_concurrency());
    std::mutex mutex_;  // guards the fields below, and jobs except their atomic fields
    std::condition_variable called_, done_;
    Job* newest_ = nullptr;
    std::atomic<unsigned> n_posted_ = 0;
    std::atomic<int> n_watching_ = 0;
    int n_helpers_ = 0, n_sleeping_ = 0, n_called_ = 0;
    int n_waiting_ = 0;                                              // for the helpers of their jobs
    std::atomic<int> n_busy_ = 0;                                    // threads at work, callers included
    static inline constinit thread_local Job* innermost_ = nullptr;  // that the thread works on
};

}  // namespace driftree
