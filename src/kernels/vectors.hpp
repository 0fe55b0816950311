// Vectors of eight doubles: sums in a fixed order of lanes, exponential and logarithm.
//
// Only for files that are compiled once per instruction set, hence all internal. Without fused multiply-add and functions of
// the C library, every build gives the same bits.
#pragma once
#include <cmath>
#include <cstdint>
#include <type_traits>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "simple_models.hpp"

namespace driftree {
namespace {

// Eight lanes in registers of the instruction set. One GNU vector of 64 bytes would be equivalent, but where no register is
// as wide, GCC keeps it in memory and stores it piece by piece.
#if defined(__AVX512F__)
constexpr int kWidth = 8;
#elif defined(__AVX2__)
constexpr int kWidth = 4;
#else
constexpr int kWidth = 2;
#endif
constexpr int kParts = kLanes / kWidth;
typedef double Part __attribute__((vector_size(8 * kWidth), aligned(8), may_alias));
typedef std::int64_t Bits __attribute__((vector_size(8 * kWidth), aligned(8), may_alias));
typedef float Singles __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));

// clang-format off
// always_inline: a call costs more than any of these, and in large functions GCC would generate calls.
#define DRIFTREE_INLINE inline __attribute__((always_inline))
#define DRIFTREE_HOT __attribute__((always_inline))  // the same, for a lambda
#define DRIFTREE_EACH_PART for (int i = 0; i < kParts; i++)

struct __attribute__((may_alias)) Mask {  // result of a comparison: -1 where true, 0 elsewhere
    Bits part[kParts];
    friend DRIFTREE_INLINE Mask operator~(Mask a) { DRIFTREE_EACH_PART a.part[i] = ~a.part[i]; return a; }
    friend DRIFTREE_INLINE Mask operator^(Mask a, const Mask& b) { DRIFTREE_EACH_PART a.part[i] ^= b.part[i]; return a; }
    friend DRIFTREE_INLINE Mask operator&(Mask a, const Mask& b) { DRIFTREE_EACH_PART a.part[i] &= b.part[i]; return a; }
};

struct __attribute__((may_alias)) Vector {
    using Piece = Part;
    Part part[kParts];
    Vector() = default;
    Vector(const Vector&) = default;
    // Part by part: GCC copies a whole struct through memory, eight bytes at a time. Self-assignment is safe.
    // NOLINTNEXTLINE(bugprone-unhandled-self-assignment)
    DRIFTREE_INLINE Vector& operator=(const Vector& b) { DRIFTREE_EACH_PART part[i] = b.part[i]; return *this; }
    DRIFTREE_INLINE double operator[](int lane) const { return part[lane / kWidth][lane % kWidth]; }
#define DRIFTREE_OPERATOR(op)                                                                                          \
    friend DRIFTREE_INLINE Vector operator op(Vector a, const Vector& b) { DRIFTREE_EACH_PART a.part[i] = a.part[i] op b.part[i]; return a; } \
    friend DRIFTREE_INLINE Vector operator op(Vector a, double b) { DRIFTREE_EACH_PART a.part[i] = a.part[i] op b; return a; }         \
    friend DRIFTREE_INLINE Vector operator op(double a, Vector b) { DRIFTREE_EACH_PART b.part[i] = a op b.part[i]; return b; }         \
    DRIFTREE_INLINE Vector& operator op##=(const Vector& b) { return *this = *this op b; }                                            \
    DRIFTREE_INLINE Vector& operator op##=(double b) { return *this = *this op b; }
    DRIFTREE_OPERATOR(+) DRIFTREE_OPERATOR(-) DRIFTREE_OPERATOR(*) DRIFTREE_OPERATOR(/)
#define DRIFTREE_COMPARISON(op)                                                                                        \
    friend DRIFTREE_INLINE Mask operator op(const Vector& a, const Vector& b) { Mask m; DRIFTREE_EACH_PART m.part[i] = a.part[i] op b.part[i]; return m; } \
    friend DRIFTREE_INLINE Mask operator op(const Vector& a, double b) { Mask m; DRIFTREE_EACH_PART m.part[i] = a.part[i] op b; return m; }
    DRIFTREE_COMPARISON(<) DRIFTREE_COMPARISON(>) DRIFTREE_COMPARISON(<=) DRIFTREE_COMPARISON(>=)
    friend DRIFTREE_INLINE Vector operator-(Vector a) { DRIFTREE_EACH_PART a.part[i] = -a.part[i]; return a; }
};

DRIFTREE_INLINE Vector& at(double* p) { return *reinterpret_cast<Vector*>(p); }
DRIFTREE_INLINE const Vector& at(const double* p) { return *reinterpret_cast<const Vector*>(p); }
DRIFTREE_INLINE Vector all(double x) { Vector v; DRIFTREE_EACH_PART v.part[i] = Part{} + x; return v; }
DRIFTREE_INLINE Vector choose(const Mask& mask, Vector yes, const Vector& no) {
    DRIFTREE_EACH_PART yes.part[i] = mask.part[i] ? yes.part[i] : no.part[i];
    return yes;
}
DRIFTREE_INLINE Vector choose(const Mask& mask, const Vector& yes, double no) { return choose(mask, yes, all(no)); }
DRIFTREE_INLINE Vector root(Vector v) {
    DRIFTREE_EACH_PART {
#if defined(__AVX512F__)
        v.part[i] = reinterpret_cast<Part>(_mm512_sqrt_pd(reinterpret_cast<__m512d>(v.part[i])));
#elif defined(__AVX2__)
        v.part[i] = reinterpret_cast<Part>(_mm256_sqrt_pd(reinterpret_cast<__m256d>(v.part[i])));
#else
        for (int lane = 0; lane < kWidth; lane++) v.part[i][lane] = std::sqrt(v.part[i][lane]);
#endif
    }
    return v;
}

// The same for a single lane, for the rest of a row after its last eight: `Number` is Vector or double.
template <class Number> DRIFTREE_INLINE Number& at(double* p) { return *reinterpret_cast<Number*>(p); }
template <class Number> DRIFTREE_INLINE const Number& at(const double* p) { return *reinterpret_cast<const Number*>(p); }
template <class Number> DRIFTREE_INLINE Number all(double x) {
    if constexpr (std::is_same_v<Number, double>) return x;
    else return all(x);
}
DRIFTREE_INLINE double choose(bool mask, double yes, double no) { return mask ? yes : no; }
DRIFTREE_INLINE double root(double x) { return std::sqrt(x); }
// clang-format on

// Eight floats, in the widest registers that they fill.
// clang-format off
#if defined(__AVX2__)
constexpr int kSingleWidth = 8;
#else
constexpr int kSingleWidth = 4;
#endif
constexpr int kSingleParts = kLanes / kSingleWidth;
typedef float SinglePart __attribute__((vector_size(4 * kSingleWidth), aligned(4), may_alias));
#define DRIFTREE_EACH_SINGLE for (int i = 0; i < kSingleParts; i++)

struct __attribute__((may_alias)) SingleVector {
    using Piece = SinglePart;
    SinglePart part[kSingleParts];
    SingleVector() = default;
    SingleVector(const SingleVector&) = default;
    // NOLINTNEXTLINE(bugprone-unhandled-self-assignment)
    DRIFTREE_INLINE SingleVector& operator=(const SingleVector& b) { DRIFTREE_EACH_SINGLE part[i] = b.part[i]; return *this; }
    friend DRIFTREE_INLINE SingleVector operator-(SingleVector a, const SingleVector& b) { DRIFTREE_EACH_SINGLE a.part[i] -= b.part[i]; return a; }
    friend DRIFTREE_INLINE SingleVector operator*(float a, SingleVector b) { DRIFTREE_EACH_SINGLE b.part[i] = a * b.part[i]; return b; }
    DRIFTREE_INLINE SingleVector& operator+=(const SingleVector& b) { DRIFTREE_EACH_SINGLE part[i] += b.part[i]; return *this; }
    DRIFTREE_INLINE SingleVector& operator-=(const SingleVector& b) { DRIFTREE_EACH_SINGLE part[i] -= b.part[i]; return *this; }
};
DRIFTREE_INLINE SingleVector& at(float* p) { return *reinterpret_cast<SingleVector*>(p); }
DRIFTREE_INLINE const SingleVector& at(const float* p) { return *reinterpret_cast<const SingleVector*>(p); }
// clang-format on

DRIFTREE_INLINE Vector widened(const SingleVector& v) {
    Vector out;
#if defined(__AVX512F__)
    out.part[0] = __builtin_convertvector(v.part[0], Part);
#elif defined(__AVX2__)
    const __m256 all = reinterpret_cast<__m256>(v.part[0]);
    out.part[0] = reinterpret_cast<Part>(_mm256_cvtps_pd(_mm256_castps256_ps128(all)));
    out.part[1] = reinterpret_cast<Part>(_mm256_cvtps_pd(_mm256_extractf128_ps(all, 1)));
#else
    for (int i = 0; i < kLanes; i++)
        out.part[i / kWidth][i % kWidth] = static_cast<double>(v.part[i / kSingleWidth][i % kSingleWidth]);
#endif
    return out;
}
DRIFTREE_INLINE SingleVector narrowed(const Vector& v) {
    SingleVector out;
#if defined(__AVX512F__)
    out.part[0] = __builtin_convertvector(v.part[0], SinglePart);
#elif defined(__AVX2__)
    out.part[0] = reinterpret_cast<SinglePart>(_mm256_set_m128(_mm256_cvtpd_ps(reinterpret_cast<__m256d>(v.part[1])),
                                                               _mm256_cvtpd_ps(reinterpret_cast<__m256d>(v.part[0]))));
#else
    for (int i = 0; i < kLanes; i++)
        out.part[i / kSingleWidth][i % kSingleWidth] = static_cast<float>(v.part[i / kWidth][i % kWidth]);
#endif
    return out;
}

// Eight numbers of either precision: in registers as they are, or as doubles.
template <class Cell>
using VectorOf = std::conditional_t<std::is_same_v<Cell, float>, SingleVector, Vector>;
template <class Cell>
using PartOf = typename VectorOf<Cell>::Piece;
template <class Cell>
DRIFTREE_INLINE VectorOf<Cell> zeros() {
    return {};
}
DRIFTREE_INLINE Vector wide_at(const double* p) { return at(p); }
DRIFTREE_INLINE Vector wide_at(const float* p) { return widened(at(p)); }
DRIFTREE_INLINE void store(double* p, const Vector& v) { at(p) = v; }
DRIFTREE_INLINE void store(float* p, const Vector& v) { at(p) = narrowed(v); }

typedef double Two __attribute__((vector_size(16), aligned(8)));
typedef double Four __attribute__((vector_size(32), aligned(8)));
typedef double Eight __attribute__((vector_size(64), aligned(8)));
inline double sum_of(const Two& v) { return v[0] + v[1]; }
inline double sum_of(const Four& v) {
    Two half[2];
    __builtin_memcpy(half, &v, sizeof half);
    return sum_of(half[0] + half[1]);
}
inline double sum_of(const Eight& v) {
    Four half[2];
    __builtin_memcpy(half, &v, sizeof half);
    return sum_of(half[0] + half[1]);
}
// ((v0 + v4) + (v2 + v6)) + ((v1 + v5) + (v3 + v7)): adds one half of the lanes to the other, and so on.
DRIFTREE_INLINE double total(Vector v) {
    for (int half = kParts / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) v.part[i] += v.part[i + half];
    return sum_of(v.part[0]);
}

DRIFTREE_INLINE double total(const SingleVector& v) { return total(widened(v)); }

template <class A, class B>
DRIFTREE_INLINE double dot(const A* a, const B* b, int n) {
    Vector sum = all(0.0);
    for (int i = 0; i < n; i += kLanes) sum += wide_at(a + i) * wide_at(b + i);
    return total(sum);
}

// 2^k x, where the last bits of `shifted` are the integer k.
DRIFTREE_INLINE Vector times_power_of_two(Vector x, const Vector& shifted) {
    DRIFTREE_EACH_PART x.part[i] =
        reinterpret_cast<Part>(reinterpret_cast<Bits>(x.part[i]) + (reinterpret_cast<Bits>(shifted.part[i]) << 52));
    return x;
}

// e^x for x <= 0 (0 below -708). Cody and Waite: x = k log 2 + r, with the Taylor series of e^r up to r^13.
DRIFTREE_INLINE Vector exp_negative(const Vector& given) {
    const Mask is_tiny = ~(given > -708.0);
    const Vector x = choose(is_tiny, all(0.0), given);
    const double round = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
    const Vector shifted = x * 1.4426950408889634 + round, k = shifted - round;
    const Vector r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    const Vector r2 = r * r, r4 = r2 * r2;
    const Vector a = (1.0 + r) + r2 * (0.5 + r * (1.0 / 6.0));
    const Vector b = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0));
    const Vector c = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + r2 * (1.0 / 3628800.0 + r * (1.0 / 39916800.0));
    const Vector d = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0);
    const Vector sum = (a + r4 * b) + (r4 * r4) * (c + r4 * d);
    return choose(is_tiny, all(0.0), times_power_of_two(sum, shifted));
}

// Natural logarithm of positive, normal numbers: x = 2^k m with m near 1, and fdlibm's series of log m.
DRIFTREE_INLINE Vector log_positive(const Vector& x) {
    Vector m, k;
    DRIFTREE_EACH_PART {
        const Bits bits = reinterpret_cast<Bits>(x.part[i]);
        m.part[i] = reinterpret_cast<Part>((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000);
        k.part[i] = reinterpret_cast<Part>((bits >> 52) | 0x4330000000000000);  // 2^52 + the exponent
    }
    k -= 4503599627370496.0 + 1023.0;
    const Mask is_large = m > 1.4142135623730951;
    m = choose(is_large, m * 0.5, m);
    k = choose(is_large, k + 1.0, k);
    const Vector f = m - 1.0, s = f / (2.0 + f), z = s * s, w = z * z, half = 0.5 * f * f;
    const Vector even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    const Vector odd = z * (6.666666666666735130e-01 +
                            w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    const Vector rest = s * (half + (even + odd)) + k * 1.90821492927058770002e-10;
    return k * 6.93147180369123816490e-01 - ((half - rest) - f);
}

// A loss for eight rows: log(ratio) + hinge, since logarithms are slow and often only a difference is needed.
struct Slopes {
    Vector ratio, hinge, residual, curvature;
    DRIFTREE_INLINE Vector loss() const { return log_positive(ratio) + hinge; }
};

// 1 / (sqrt(x) + 1e-8) in single precision: the length of a step need not be more exact.
DRIFTREE_INLINE Vector inverse_root(Vector x) {
#if defined(__AVX2__) && !defined(__AVX512F__)  // eight at once: roots and quotients of four take as long
    const __m256 root = _mm256_sqrt_ps(_mm256_set_m128(_mm256_cvtpd_ps(reinterpret_cast<__m256d>(x.part[1])),
                                                       _mm256_cvtpd_ps(reinterpret_cast<__m256d>(x.part[0]))));
    const __m256 inverse = _mm256_div_ps(_mm256_set1_ps(1.0f), _mm256_add_ps(root, _mm256_set1_ps(1e-8f)));
    x.part[0] = reinterpret_cast<Part>(_mm256_cvtps_pd(_mm256_castps256_ps128(inverse)));
    x.part[1] = reinterpret_cast<Part>(_mm256_cvtps_pd(_mm256_extractf128_ps(inverse, 1)));
    return x;
#else
    DRIFTREE_EACH_PART {
        Singles root = __builtin_convertvector(x.part[i], Singles);
        for (int lane = 0; lane < kWidth; lane++) root[lane] = std::sqrt(root[lane]);
        x.part[i] = __builtin_convertvector(1.0f / (root + 1e-8f), Part);
    }
    return x;
#endif
}

}  // namespace
}  // namespace driftree
