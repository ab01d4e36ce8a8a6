// Exponentials, logarithms and hyperbolic tangents of float64 numbers, from IEEE operations in a fixed order.
//
// The C library's functions differ between versions and machines, and no compiler computes several of them at once. These
// have the same bits everywhere where products are not fused with sums (-ffp-contract=off), and loops over them become
// vector code. Their relative error is below 1e-14: the nearest float32 number but for rare ties.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace hive {

namespace elementary {

constexpr int kFractionBits = 52;                        // of a float64
constexpr std::uint64_t kOne = 0x3FF0000000000000;       // the bits of 1.0
constexpr std::uint64_t kRootHalf = 0x3FE6A09E667F3BCD;  // the bits of the root of 1/2
constexpr double kTwo52 = 4503599627370496.0;            // adding 2^52 rounds a number below it to an integer

constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kInverseLn2 = 0x1.71547652b82fep+0;
constexpr double kTwoByLn2 = 0x1.71547652b82fep+1;

constexpr int kLogTerms = 11;    // the next term is below 1e-18 of the sum
constexpr int kPowerTerms = 14;  // likewise

constexpr std::array<double, kPowerTerms> kInverseFactorials = [] {
  std::array<double, kPowerTerms> values{};
  double factorial = 1.0;
  for (int i = 0; i < kPowerTerms; ++i) {
    if (i > 0) factorial *= i;
    values[static_cast<std::size_t>(i)] = 1.0 / factorial;
  }
  return values;
}();

}  // namespace elementary

// The integer `value` below 2^52 as a float64, by a conversion that every instruction set has.
[[gnu::always_inline]] inline double double_of(std::uint64_t value) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(elementary::kTwo52) | value) - elementary::kTwo52;
}

// The binary logarithm of a normal number: of 2^k m, with m between the roots of 1/2 and 2, it is
// k + 2 / ln 2 (s + s^3 / 3 + s^5 / 5 + ..) with s = (m - 1) / (m + 1), so |s| < 0.172. That of 1 is exactly 0.
[[gnu::always_inline]] inline double log2_of(double value) {
  using namespace elementary;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t shifted = bits - kRootHalf + kOne;  // its exponent is that of m 2^k, relative to 1: k + 1023
  const std::uint64_t exponent = shifted >> kFractionBits;
  const double m = std::bit_cast<double>(bits - (exponent << kFractionBits) + kOne);
  // The conversion of an integer below 2^52 that every instruction set has: as the last bits of 2^52 + k + 1023.
  const double k = std::bit_cast<double>(std::bit_cast<std::uint64_t>(kTwo52) | exponent) - (kTwo52 + 1023.0);
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;
  double series = 1.0 / (2 * kLogTerms - 1);
  for (int i = kLogTerms - 2; i >= 0; --i) series = series * square + 1.0 / (2 * i + 1);
  return k + kTwoByLn2 * s * series;
}

// 2^exponent for |exponent| < 1000: with its nearest integer k, it is 2^k e^(ln 2 (exponent - k)).
[[gnu::always_inline]] inline double exp2_of(double exponent) {
  using namespace elementary;
  const double biased = exponent + (kTwo52 + 1023.0);  // rounds to 2^52 + k + 1023
  const double k = biased - (kTwo52 + 1023.0);
  const double x = (exponent - k) * kLn2;
  double series = kInverseFactorials[kPowerTerms - 1];
  for (std::size_t i = kPowerTerms - 1; i-- > 0;) series = series * x + kInverseFactorials[i];
  return series * std::bit_cast<double>(std::bit_cast<std::uint64_t>(biased) << kFractionBits);
}

// The natural logarithm of a normal number.
[[gnu::always_inline]] inline double log_of(double value) { return log2_of(value) * elementary::kLn2; }

// e^x. Beyond +-690, where no float32 is finite or positive, it is that of the nearest bound. NaN stays NaN.
[[gnu::always_inline]] inline double exp_of(double x) {
  const double limited = x > 690.0 ? 690.0 : x < -690.0 ? -690.0 : x;
  return exp2_of(limited * elementary::kInverseLn2);
}

// tanh x, from e^(-2|x|), and by its series around 0, where the difference of this and 1 has few digits.
[[gnu::always_inline]] inline double tanh_of(double x) {
  const double size = std::fabs(x), power = exp_of(-2.0 * size), square = x * x;
  const double large = (1.0 - power) / (1.0 + power);
  const double small = size * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0)));
  return std::copysign(size < 1e-3 ? small : large, x);
}

}  // namespace hive
