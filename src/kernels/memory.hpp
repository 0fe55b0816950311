// Memory: vectors aligned to cache lines, and vectors that grow by less than doubling.
#pragma once
#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

namespace driftree {

template <class T>
struct LineAllocator {
    using value_type = T;
    static constexpr std::align_val_t line{64};
    LineAllocator() = default;
    template <class U>
    LineAllocator(const LineAllocator<U>&) {}
    T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), line)); }
    void deallocate(T* memory, std::size_t) { ::operator delete(memory, line); }
    template <class U>
    bool operator==(const LineAllocator<U>&) const {
        return true;
    }
};

template <class T>
using Lines = std::vector<T, LineAllocator<T>>;

constexpr int kRowsTogether = 16;  // rows predicted together, so that no read has to wait for a recent store

// Uninitialised memory for n numbers during a call, on the stack if there are few.
class Room {
public:
    explicit Room(std::size_t n) : many_(n > kFew ? n : 0) {}
    double* data() { return many_.empty() ? few_ : many_.data(); }

private:
    static constexpr std::size_t kFew = 256;
    alignas(64) double few_[kFew];
    Lines<double> many_;
};

// Makes room for n items in total. Capacity grows by at least half, so that making room one by one is cheap.
template <class Values>
void make_capacity(Values& values, std::size_t n) {
    if (n > values.capacity()) values.reserve(std::max(n, values.capacity() + values.capacity() / 2));
}

// Makes room for n more items: a quarter more than needed, but not beyond `most` items.
template <class Values>
void make_room(Values& values, std::size_t n, std::size_t most) {
    const std::size_t needed = values.size() + n;
    if (needed > values.capacity()) values.reserve(std::max(needed, std::min(needed + needed / 4, most)));
}

}  // namespace driftree
