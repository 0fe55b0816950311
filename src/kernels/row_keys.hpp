// Keys by which the rows of a step are sorted: the sum of splitmix64 over the bits of a row's values.
#pragma once
#include <cstdint>

namespace driftree {
namespace {

void row_keys(const double* X, int n, int m, std::uint64_t salt, std::uint64_t* keys) {
    for (int i = 0; i < n; i++) {
        const double* x = X + static_cast<long>(i) * m;
        std::uint64_t key = 0;
        for (int j = 0; j < m; j++) {
            const double v = x[j] + 0.0;  // no negative zero
            std::uint64_t z = 0;
            __builtin_memcpy(&z, &v, sizeof z);
            z = (v == v ? z : 0x7ff8000000000000ull) + salt + 0x9E3779B97F4A7C15ull;
            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
            z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
            key += z ^ (z >> 31);
        }
        keys[i] = key;
    }
}

}  // namespace
}  // namespace driftree
