// Loops over the paper's candidates (see candidates.hpp, candidate_step.hpp), as part of simple_models.cpp compiled once per
// instruction set.
#pragma once
#include <cmath>

#include "simple_models.hpp"
#include "vectors.hpp"

namespace driftree {
namespace {

void norms(const double* left, const double* sum, int n, double* left_norm, double* right_norm) {
    Vector l = all(0.0), r = all(0.0);
    for (int i = 0; i < n; i += 8) {
        const Vector a = at(left + i), b = at(sum + i) - a;
        l += a * a;
        r += b * b;
    }
    *left_norm = total(l);
    *right_norm = total(r);
}

// ---------------------------------------------------------------- gradients of rows
void weigh(const Shape& s, const Rows& rows, const Visit& visit, const double* residual, const double* loss,
           double* weighted, RowSums* sums) {
    for (int i = 0; i < visit.n; i++) {
        const int row = visit.rows[i];
        const double weight = rows.weights[row];
        for (int k = 0; k < s.outputs; k++) {
            const long place = static_cast<long>(i) * s.outputs + k;
            weighted[place] = weight * residual[place];
        }
        sums[i] = {weight, weight * loss[i], 0.0, 0.0};
    }
}

void measure(const Shape& s, const Gradients& g, const double* whole, double n_rows, int n, RowSums* sums) {
    const double all_norm = dot(whole, whole, s.outputs * s.stride);
    for (int i = 0; i < n; i++) {
        const double* z = g.inputs + static_cast<long>(g.rows[i]) * s.stride;
        const double share = sums[i].n / n_rows;
        double residuals = 0.0, product = 0.0;
        for (int k = 0; k < s.outputs; k++) {
            const double r = g.residual[static_cast<long>(i) * s.outputs + k];
            residuals += r * r;
            product += r * dot(z, whole + k * s.stride, s.stride);
        }
        const double own = residuals * dot(z, z, s.stride), shared = share * share * all_norm;
        const double squares = own - 2.0 * share * product + shared + 1e-12 * (own + shared);  // never too small
        sums[i].length = std::sqrt(squares);
        sums[i].energy = squares / sums[i].n;
    }
}

// Adds to a few vectors of the sum, which stay in registers.
template <int vectors>
inline void add_block(const Shape& s, const Gradients& g, const std::int32_t* places, int n, int output, int column,
                      double* sum) {
    Vector held[vectors];
    for (int v = 0; v < vectors; v++) held[v] = at(sum + 8 * v);
    for (int i = 0; i < n; i++) {
        const long place = places ? places[i] : i;
        const double r = g.residual[place * s.outputs + output];
        const double* z = g.inputs + static_cast<long>(g.rows[place]) * s.stride + column;
        for (int v = 0; v < vectors; v++) held[v] += r * at(z + 8 * v);
    }
    for (int v = 0; v < vectors; v++) at(sum + 8 * v) = held[v];
}

void add_gradients(const Shape& s, const Gradients& g, const std::int32_t* places, int n, double* sum) {
    for (int k = 0; k < s.outputs; k++) {
        int c = 0;
        for (; c + 64 <= s.stride; c += 64) add_block<8>(s, g, places, n, k, c, sum + k * s.stride + c);
        double* rest = sum + k * s.stride + c;
        switch ((s.stride - c) / 8) {
            case 1:
                add_block<1>(s, g, places, n, k, c, rest);
                break;
            case 2:
                add_block<2>(s, g, places, n, k, c, rest);
                break;
            case 3:
                add_block<3>(s, g, places, n, k, c, rest);
                break;
            case 4:
                add_block<4>(s, g, places, n, k, c, rest);
                break;
            case 5:
                add_block<5>(s, g, places, n, k, c, rest);
                break;
            case 6:
                add_block<6>(s, g, places, n, k, c, rest);
                break;
            case 7:
                add_block<7>(s, g, places, n, k, c, rest);
                break;
            default:
                break;  // nothing is left
        }
    }
}

void scan(const Shape& s, const Gradients& g, const double* whole, const std::int32_t* places, int n, double* left,
          double* left_norms, double* right_norms) {
    for (int i = 0; i < n; i++) {
        const long place = places[i];
        const double* z = g.inputs + static_cast<long>(g.rows[place]) * s.stride;
        Vector l = all(0.0), r = all(0.0);
        for (int k = 0; k < s.outputs; k++) {
            const double residual = g.residual[place * s.outputs + k];
            double* line = left + k * s.stride;
            for (int c = 0; c < s.stride; c += 8) {
                const Vector a = at(line + c) + residual * at(z + c), b = at(whole + k * s.stride + c) - a;
                at(line + c) = a;
                l += a * a;
                r += b * b;
            }
        }
        left_norms[i] = total(l);
        right_norms[i] = total(r);
    }
}

// ---------------------------------------------------------------- buckets
BucketRange codes(const double* values, int n, int n_buckets, std::uint8_t* out) {
    Vector lows = all(HUGE_VAL), highs = all(-HUGE_VAL);
    int i = 0;
    for (; i + 8 <= n; i += 8) {  // comparisons with a missing value are false
        const Vector v = at(values + i);
        lows = choose(v < lows, v, lows);
        highs = choose(v > highs, v, highs);
    }
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (int lane = 0; lane < 8; lane++) {
        low = lows[lane] < low ? lows[lane] : low;
        high = highs[lane] > high ? highs[lane] : high;
    }
    for (; i < n; i++) {
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
    }
    const double width = high - low, factor = n_buckets / width;
    const bool is_usual = width < HUGE_VAL && factor < HUGE_VAL;  // otherwise all values are in the first bucket
    const BucketRange range = {low, high, is_usual ? low : 0.0, is_usual ? factor : 0.0};
    for (i = 0; i < n; i++) {
        const int bucket = static_cast<int>((values[i] - range.origin) * range.factor);
        const int inside = bucket < n_buckets - 1 ? bucket : n_buckets - 1;
        out[i] = static_cast<std::uint8_t>(values[i] == values[i] ? inside : n_buckets);
    }
    return range;
}

// If T is the sum of all gradients and D that of the left ones minus their share of T, (7) is |T|^2 / n + |D|^2 / n_left +
// |D|^2 / n_right. Inside a bucket D is bounded by the triangle inequality, and a term by |a + b|^2 / (n + k) <= |a|^2 / n +
// |b|^2 / k.
void bound_gains(Buckets& s, double all_norm, double n, double gain_step) {
    const double base = all_norm / n, least = 1e-9 * n;
    double squares[kMostBuckets + 1], lengths[kMostBuckets + 1];  // of D at the borders, lower bounds
    for (int b = 0; b <= s.n; b++) {
        const double n_left = s.rows[b], n_right = n - n_left;
        const double gain = s.left_norm[b] / n_left + s.right_norm[b] / n_right;
        const double above = (gain - base > 0.0 ? gain - base : 0.0) + 1e-12 * gain;
        squares[b] = n_left > least && n_right > least ? above * (n_left * n_right / n) : 0.0;
        lengths[b] = std::sqrt(squares[b]);
    }
    for (int b = 0; b < s.n; b++) {
        const double n_left = s.rows[b], n_right = n - s.rows[b + 1];
        const double left = n_left > least ? 1.0 / n_left : HUGE_VAL;
        const double right = n_right > least ? 1.0 / n_right : HUGE_VAL;
        const double near_left = n_left > least ? squares[b] * left : 0.0;
        const double near_right = n_right > least ? squares[b + 1] * right : 0.0;
        const double most_left = near_left + s.energy[b], most_right = near_right + s.energy[b];
        const double far = 0.5 * (lengths[b] + lengths[b + 1] + s.length[b]);
        const double far_left = far * far * left, far_right = far * far * right;
        const double apart =
            (far_left < most_left ? far_left : most_left) + (far_right < most_right ? far_right : most_right);
        const double both = near_left + most_right, most = base + (apart < both ? apart : both);
        s.bound[b] = s.is_level[b] ? -HUGE_VAL : gain_step * (1.0 + 1e-9) * most;
    }
}

// The sum of the fullest bucket is the total minus all others: for a rare level, only its own rows are added.
void sum_buckets(const Shape& s, const Gradients& g, const double* whole, double n_rows, double gain_step,
                 const std::int32_t* places, Buckets& buckets, double* prefix) {
    const int size = s.outputs * s.stride;
    const std::int32_t* begin = buckets.begin;
    int fullest = 0;
    for (int b = 1; b <= buckets.n; b++)
        if (begin[b + 1] - begin[b] > begin[fullest + 1] - begin[fullest]) fullest = b;
    double* rest = prefix + static_cast<long>(fullest + 1) * size;
    for (int c = 0; c < size; c++) prefix[c] = 0.0;
    for (int c = 0; c < size; c++) rest[c] = whole[c];
    for (int b = 0; b <= buckets.n; b++) {
        if (b == fullest) continue;
        double* sum = prefix + static_cast<long>(b + 1) * size;
        for (int c = 0; c < size; c++) sum[c] = 0.0;
        add_gradients(s, g, places + begin[b], begin[b + 1] - begin[b], sum);
        for (int c = 0; c < size; c += 8) at(rest + c) -= at(sum + c);
    }
    double rows = 0.0, loss = 0.0;
    for (int b = 0; b <= buckets.n; b++) {
        const double* left = prefix + static_cast<long>(b) * size;
        double* next = prefix + static_cast<long>(b + 1) * size;
        RowSums own = {};
        for (int i = begin[b]; i < begin[b + 1]; i++) {
            const RowSums& row = g.sums[places[i]];
            own = {own.n + row.n, own.loss + row.loss, own.length + row.length, own.energy + row.energy};
        }
        buckets.rows[b] = rows;
        buckets.loss[b] = loss;
        buckets.length[b] = own.length;
        buckets.energy[b] = own.energy;
        Vector l = all(0.0), r = all(0.0);
        for (int c = 0; c < size; c += 8) {
            const Vector a = at(left + c), other = at(whole + c) - a;
            l += a * a;
            r += other * other;
            at(next + c) += a;
        }
        buckets.left_norm[b] = total(l);
        buckets.right_norm[b] = total(r);
        rows += own.n;
        loss += own.loss;
    }
    bound_gains(buckets, dot(whole, whole, size), n_rows, gain_step);
}

// ---------------------------------------------------------------- row by row
void settle(double* left, const double* before, const double* whole, int size, const double* waiting, std::uint64_t bits,
            double* norms) {
    Vector l = all(0.0), r = all(0.0);
    for (int c = 0; c < size; c += 8) {
        Vector a = at(left + c);
        for (std::uint64_t rest = bits; rest; rest &= rest - 1)
            a += at(waiting + static_cast<long>(__builtin_ctzll(rest)) * size + c);
        const Vector b = (at(whole + c) - at(before + c)) - a;
        if (bits) at(left + c) = a;
        l += a * a;
        r += b * b;
    }
    norms[0] = total(l);
    norms[1] = total(r);
}

// The loop over candidates is written once, for eight candidates and for each of the remaining few.
inline void pick(const double* from, const std::int32_t* places, Vector& to) {
    for (int lane = 0; lane < kLanes; lane++) to.part[lane / kWidth][lane % kWidth] = from[places[lane]];
}
inline void pick(const double* from, const std::int32_t* places, double& to) { to = from[*places]; }
inline void mark(std::uint64_t* to, const Mask& where, std::uint64_t bit) {
    DRIFTREE_EACH_PART reinterpret_cast<Bits*>(to)[i] |= where.part[i] & static_cast<std::int64_t>(bit);
}
inline void mark(std::uint64_t* to, bool where, std::uint64_t bit) { *to |= where ? bit : 0; }

// For eight candidates (Number is Vector) or one (double) from k on: the side of the row, and (7) with the shortest and the
// longest possible gradients.
template <class Number>
inline void add_row_to(const CandidateColumns& s, int k, const CandidateRow& row, double n, double gain_step, Number& lowest,
                       Number& highest) {
    const auto get = [&](const double* from) { return at<Number>(from + k); };
    Number x;
    pick(row.x, s.feature + k, x);
    const Number zero = {};
    const auto is_left = (get(s.low) <= x) & (x <= get(s.value));
    const Number n_left = get(s.n_left) + choose(is_left, zero + row.weight, zero);
    const Number left_reach = get(s.left_reach) + choose(is_left, zero + row.reach, zero);
    const Number right_reach = get(s.right_reach) + choose(is_left, zero, zero + row.reach);
    at<Number>(s.n_left + k) = n_left;
    at<Number>(s.loss_left + k) = get(s.loss_left) + choose(is_left, zero + row.loss, zero);
    at<Number>(s.left_reach + k) = left_reach;
    at<Number>(s.right_reach + k) = right_reach;
    mark(s.is_left + k, is_left, std::uint64_t{1} << row.place);

    const Number all_rows = n - get(s.n_before), n_right = all_rows - n_left;
    const Number left = choose(n_left > 0.0, 1.0 / n_left, zero);
    const Number right = choose(n_right > 1e-9 * all_rows, 1.0 / n_right, zero);
    const Number left_length = get(s.left_length), right_length = get(s.right_length);
    const Number a = left_length + left_reach, b = right_length + right_reach;
    const Number c = choose(left_length > left_reach, left_length - left_reach, zero);
    const Number d = choose(right_length > right_reach, right_length - right_reach, zero);
    const Number most = (1.0 + 1e-9) * gain_step * (a * a * left + b * b * right);
    const Number least = (1.0 - 1e-9) * gain_step * (c * c * left + d * d * right);
    at<Number>(s.most + k) = most;
    at<Number>(s.least + k) = least;
    lowest = choose(least < lowest, least, lowest);
    highest = choose(most > highest, most, highest);
}

GainBounds add_row(const CandidateColumns& s, const CandidateRow& row, double n, double gain_step) {
    Vector lowest = all(HUGE_VAL), highest = all(0.0);
    GainBounds bounds = {HUGE_VAL, 0.0};
    int k = 0;
    for (; k + kLanes <= s.n; k += kLanes) add_row_to(s, k, row, n, gain_step, lowest, highest);
    for (; k < s.n; k++) add_row_to(s, k, row, n, gain_step, bounds.lowest, bounds.highest);
    for (int lane = 0; lane < kLanes; lane++) {
        bounds.lowest = lowest[lane] < bounds.lowest ? lowest[lane] : bounds.lowest;
        bounds.highest = highest[lane] > bounds.highest ? highest[lane] : bounds.highest;
    }
    return bounds;
}

}  // namespace
}  // namespace driftree
