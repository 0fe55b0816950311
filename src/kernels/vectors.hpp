// Vectors of eight doubles: sums in a fixed order of lanes, exponential and logarithm.
//
// Only for files that are compiled once per instruction set: all is internal to them. No fused multiply-add and no
// function of the C library is used, so every build gives the same bits.
#pragma once
#include <cmath>
#include <cstdint>

#include "simple_models.hpp"

namespace driftree {
namespace {

typedef double Vector __attribute__((vector_size(64), aligned(8)));
typedef std::int64_t Mask __attribute__((vector_size(64), aligned(8)));  // of a comparison: -1 where it holds, else 0
typedef std::uint64_t Bits __attribute__((vector_size(64), aligned(8)));
typedef float Singles __attribute__((vector_size(32), aligned(4)));

inline Vector& at(double* p) { return *reinterpret_cast<Vector*>(p); }
inline const Vector& at(const double* p) { return *reinterpret_cast<const Vector*>(p); }
inline Vector all(double x) { return Vector{} + x; }

inline double total(const Vector& v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

inline double dot(const double* a, const double* b, int n) {
    Vector sum = {};
    for (int i = 0; i < n; i += kLanes) sum += at(a + i) * at(b + i);
    return total(sum);
}

// e^x for x <= 0 (0 below -708). Cody and Waite: x = k log 2 + r, and the Taylor series of e^r up to r^13.
inline Vector exp_negative(Vector x) {
    const Mask is_tiny = ~(x > -708.0);
    x = is_tiny ? Vector{} : x;
    const double round = 6755399441055744.0;  // 1.5 * 2^52: what is added to it loses its fraction
    const Vector shifted = x * 1.4426950408889634 + round, k = shifted - round;
    const Vector r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    const Vector r2 = r * r, r4 = r2 * r2;
    const Vector a = (1.0 + r) + r2 * (0.5 + r * (1.0 / 6.0));
    const Vector b = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0));
    const Vector c = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + r2 * (1.0 / 3628800.0 + r * (1.0 / 39916800.0));
    const Vector d = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0);
    const Vector sum = (a + r4 * b) + (r4 * r4) * (c + r4 * d);
    const Vector scaled = reinterpret_cast<Vector>(reinterpret_cast<Bits>(sum) + (reinterpret_cast<Bits>(shifted) << 52));
    return is_tiny ? Vector{} : scaled;
}

// 1 / (sqrt(x) + 1e-8), in single precision: a step's length need not be more exact.
inline Vector inverse_root(const Vector& x) {
    Singles root = __builtin_convertvector(x, Singles);
    for (int lane = 0; lane < kLanes; lane++) root[lane] = std::sqrt(root[lane]);
    return __builtin_convertvector(1.0f / (root + 1e-8f), Vector);
}

// The natural logarithm of positive, normal numbers: x = 2^k m with m about 1, and fdlibm's series of log m.
inline Vector log_positive(Vector x) {
    const Bits bits = reinterpret_cast<Bits>(x);
    Vector m = reinterpret_cast<Vector>((bits & 0x000FFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
    Vector k = reinterpret_cast<Vector>((bits >> 52) | 0x4330000000000000ull) - (4503599627370496.0 + 1023.0);
    const Mask is_large = m > 1.4142135623730951;
    m = is_large ? m * 0.5 : m;
    k = is_large ? k + 1.0 : k;
    const Vector f = m - 1.0, s = f / (2.0 + f), z = s * s, w = z * z, half = 0.5 * f * f;
    const Vector even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    const Vector odd = z * (6.666666666666735130e-01 +
                            w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    const Vector rest = s * (half + (even + odd)) + k * 1.90821492927058770002e-10;
    return k * 6.93147180369123816490e-01 - ((half - rest) - f);
}

}  // namespace
}  // namespace driftree
