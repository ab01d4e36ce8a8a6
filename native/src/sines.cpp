// The vector loop does what glibc's `sin` and `cos` do for small angles (IBM Accurate Mathematical Library; Gal and
// Bachelis 1991): a table of sines and cosines of k / 128, and short polynomials for the rest. It fuses the products that
// GCC fuses in glibc's build for processors with FMA. Another C library, another version or another processor may round
// otherwise. Therefore the loop is used only after it has given the bits of `sin` and `cos` for some thousand angles.
#include "hive/sines.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>


#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HIVE_TARGET(features) __attribute__((target(features)))
#endif

namespace hive {
namespace {

constexpr std::size_t kBlock = 64;        // angles whose parts lie on the stack
constexpr int kEntries = 28;              // of the table: angles up to 27.5 / 128
constexpr double kLargest = 27.5 / 128;   // CartPole's pole has fallen at 0.21
constexpr double kTaylor = 0.126;         // below, the sine needs no table
constexpr double kTiny = 0x1p-26;         // below, the sine is the angle
constexpr int kProbes = 8192;

// The sine and cosine of k / 128 as the unevaluated sums sine + sine_rest and cosine + cosine_rest.
struct Entry {
  double sine, sine_rest, cosine, cosine_rest;
};

__extension__ using Fixed = __int128;     // with kFraction bits after the point
constexpr int kFraction = 118;

double rounded(Fixed value) {             // to a number whose absolute error the caller can subtract
  return std::ldexp(static_cast<double>(value), -kFraction);
}

// The sum of the Taylor series that begins with `term`, the n-th power over n!, for the angle k / 128.
Fixed series(Fixed term, int n, int k) {
  Fixed sum = 0;
  for (; term != 0; n += 2) {
    sum += term;
    term = -(term * k / 128 * k / (Fixed{128} * (n + 1) * (n + 2)));
  }
  return sum;
}

std::array<Entry, kEntries> make_table() {
  constexpr Fixed kOne = Fixed{1} << kFraction;
  std::array<Entry, kEntries> table{};
  for (int k = 0; k < kEntries; ++k) {
    const Fixed sine = series(kOne / 128 * k, 1, k), cosine = series(kOne, 0, k);
    Entry& entry = table[static_cast<std::size_t>(k)];
    entry.sine = rounded(sine);
    entry.sine_rest = rounded(sine - static_cast<Fixed>(std::ldexp(entry.sine, kFraction)));
    entry.cosine = rounded(cosine);
    entry.cosine_rest = rounded(cosine - static_cast<Fixed>(std::ldexp(entry.cosine, kFraction)));
  }
  // The last bits of the C library's table, where they are not those of the nearest number.
  table[2].sine_rest = -0x1.2ab639a9f0777p-63;
  table[10].sine_rest = -0x1.921915299468cp-58;
  table[23].sine_rest = -0x1.32c5c8b81c940p-66;
  table[26].cosine_rest = 0x1.e3a0d3e03b1d5p-57;
  table[27].sine_rest = -0x1.9883b57d6cdebp-58;
  return table;
}

const std::array<Entry, kEntries> kTable = make_table();

// Writes the sines and cosines of at most kBlock angles. False if an angle is larger than kLargest or NaN, for which the
// results are wrong. Each pass is a vector loop.
__attribute__((always_inline)) inline bool small_block(const double* __restrict angles, std::size_t count,
                                                       double* __restrict sines, double* __restrict cosines) {
  std::int64_t large = 0;
  constexpr double kRound = 0x1.8p45;  // adding it rounds to a multiple of 1 / 128, which lies in the lowest bits
  alignas(64) double rest[kBlock], sine[kBlock], sine_rest[kBlock], cosine[kBlock], cosine_rest[kBlock];
  alignas(64) std::int64_t index[kBlock];
  for (std::size_t i = 0; i < count; ++i) {
    const double size = std::fabs(angles[i]), sum = size + kRound;
    rest[i] = size - (sum - kRound);
    const bool fits = size < kLargest;
    index[i] = fits ? std::bit_cast<std::int64_t>(sum) - std::bit_cast<std::int64_t>(kRound) : 0;
    large |= fits ? 0 : 1;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Entry& entry = kTable[static_cast<std::size_t>(index[i])];
    sine[i] = entry.sine;
    sine_rest[i] = entry.sine_rest;
    cosine[i] = entry.cosine;
    cosine_rest[i] = entry.cosine_rest;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const double r = rest[i], square = r * r;
    const double s = __builtin_fma(r * square, __builtin_fma(square, 0x1.11110e829872fp-7, -0x1.5555555555515p-3), r);
    double p = __builtin_fma(square, 0x1.6c16bedd9e239p-10, -0x1.5555555555535p-5);
    p = square * __builtin_fma(square, p, 0.5);
    double c = __builtin_fma(-sine_rest[i], s, cosine_rest[i]);
    c = __builtin_fma(-p, cosine[i], c);
    cosines[i] = cosine[i] + __builtin_fma(-s, sine[i], c);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const double r = rest[i], square = r * r, x = angles[i], x2 = x * x;
    const double s = r + r * square * __builtin_fma(square, 0x1.11110e829872fp-7, -0x1.5555555555515p-3);
    double p = __builtin_fma(square, 0x1.6c16bedd9e239p-10, -0x1.5555555555535p-5);
    p = square * __builtin_fma(square, p, 0.5);
    double t = __builtin_fma(cosine_rest[i], s, sine_rest[i]);
    t = __builtin_fma(-p, sine[i], t);
    const double of_table = std::copysign(sine[i] + __builtin_fma(s, cosine[i], t), x);
    double q = __builtin_fma(-0x1.addffc2fcdf59p-26, x2, 0x1.71de27b9a7ed9p-19);
    q = __builtin_fma(q, x2, -0x1.a01a019db08b8p-13);
    q = __builtin_fma(q, x2, 0x1.1111111110ecep-7);
    q = __builtin_fma(q, x2, -0x1.5555555555555p-3);
    const double of_series = x + x2 * (q * x);
    const double size = std::fabs(x);
    sines[i] = size < kTiny ? x : size < kTaylor ? of_series : of_table;
  }
  return large == 0;
}

using Loop = bool (*)(const double*, std::size_t, double*, double*);

#if defined(HIVE_TARGET)
#if defined(__clang__)  // which takes 512 bits unless the processor is named, and knows no such attribute
HIVE_TARGET("avx512f,avx512dq,avx512vl,fma")
#else
HIVE_TARGET("avx512f,avx512dq,avx512vl,fma,prefer-vector-width=512")
#endif
bool small_avx512(const double* angles, std::size_t count, double* sines, double* cosines) {
  return small_block(angles, count, sines, cosines);
}

HIVE_TARGET("avx2,fma")
bool small_avx2(const double* angles, std::size_t count, double* sines, double* cosines) {
  return small_block(angles, count, sines, cosines);
}

Loop fastest() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return small_avx512;
  }
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? small_avx2 : nullptr;
}
#elif defined(__aarch64__)
bool small_neon(const double* angles, std::size_t count, double* sines, double* cosines) {
  return small_block(angles, count, sines, cosines);
}

Loop fastest() { return small_neon; }
#else
Loop fastest() { return nullptr; }
#endif

// The vector loop if it has the bits of `sin` and `cos`, otherwise nullptr.
Loop equal_loop() {
  const Loop loop = fastest();
  if (!loop) return nullptr;
  std::array<double, kBlock> angles{}, sines{}, cosines{};
  for (int first = 0; first < kProbes; first += static_cast<int>(kBlock)) {
    for (int i = 0; i < static_cast<int>(kBlock); ++i) {
      // Places between the ends, each a little off a multiple of a power of two.
      const double place = (first + i + 0.4142135623730951) / kProbes;
      angles[static_cast<std::size_t>(i)] = (2 * place - 1) * kLargest * 0.999;
    }
    loop(angles.data(), kBlock, sines.data(), cosines.data());
    for (std::size_t i = 0; i < kBlock; ++i) {
      if (sines[i] != exact_sin(angles[i]) || cosines[i] != exact_cos(angles[i])) return nullptr;
    }
  }
  return loop;
}

Loop chosen_loop() {
  static const Loop loop = equal_loop();
  return loop;
}

}  // namespace

bool vector_sines() { return chosen_loop() != nullptr; }

void sines_cosines(const double* angles, std::size_t count, double* sines, double* cosines) {
  const Loop loop = chosen_loop();
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t size = std::min(kBlock, count - first);
    if (loop && loop(angles + first, size, sines + first, cosines + first)) continue;
    for (std::size_t i = first; i < first + size; ++i) {
      sines[i] = exact_sin(angles[i]);
      cosines[i] = exact_cos(angles[i]);
    }
  }
}

}  // namespace hive
