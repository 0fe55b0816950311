// Loaded before all else (LD_PRELOAD): C++ runs out of memory at the n-th allocation, as the test says.
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local long countdown = 0;            // 0: nothing fails
std::atomic<long> countdown_elsewhere = 0;  // the same, in all other threads
thread_local bool is_here = false;

void* allocate(std::size_t n, std::size_t alignment) {
    if (countdown > 0 && --countdown == 0) throw std::bad_alloc();
    if (!is_here && countdown_elsewhere > 0 && --countdown_elsewhere == 0) throw std::bad_alloc();
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, n ? n : 1) != 0)
        throw std::bad_alloc();
    return memory;
}

}  // namespace

extern "C" void fail_at(long n) { countdown = n; }
extern "C" long failures_left() { return countdown; }
extern "C" void fail_elsewhere_at(long n) {
    is_here = true;
    countdown_elsewhere = n;
}

void* operator new(std::size_t n) { return allocate(n, alignof(std::max_align_t)); }
void* operator new(std::size_t n, std::align_val_t alignment) { return allocate(n, static_cast<std::size_t>(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
