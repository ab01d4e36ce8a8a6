#include "hive/priorities.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "hive/simd.hpp"

namespace hive {
namespace {

constexpr int kFractionBits = 52;  // of a float64
constexpr std::uint64_t kOne = 0x3FF0000000000000;       // the bits of 1.0
constexpr std::uint64_t kRootHalf = 0x3FE6A09E667F3BCD;  // the bits of the root of 1/2
constexpr double kTwo52 = 4503599627370496.0;            // adding 2^52 rounds a number below it to an integer
constexpr double kScaleLog2 = 20.0;                      // of a leaf, whose unit is 2^-20
constexpr double kMostLeaf = std::numeric_limits<std::uint32_t>::max();
constexpr float kLeastPriority = std::numeric_limits<float>::min();  // threads may treat smaller ones as 0

constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kTwoByLn2 = 0x1.71547652b82fep+1;

constexpr int kLogTerms = 11;   // the next term is below 1e-18 of the sum
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

// The binary logarithm of a normal number: of 2^k m, with m between the roots of 1/2 and 2, it is
// k + 2 / ln 2 (s + s^3 / 3 + s^5 / 5 + ..) with s = (m - 1) / (m + 1), so |s| < 0.172. That of 1 is exactly 0.
[[gnu::always_inline]] inline double log2_of(double value) {
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
  const double biased = exponent + (kTwo52 + 1023.0);  // rounds to 2^52 + k + 1023
  const double k = biased - (kTwo52 + 1023.0);
  const double x = (exponent - k) * kLn2;
  double series = kInverseFactorials[kPowerTerms - 1];
  for (std::size_t i = kPowerTerms - 1; i-- > 0;) series = series * x + kInverseFactorials[i];
  return series * std::bit_cast<double>(std::bit_cast<std::uint64_t>(biased) << kFractionBits);
}

}  // namespace

std::ptrdiff_t first_bad_priority(std::span<const float> priorities) {
  const auto bad = [](float priority) { return !(priority >= 0.0F && std::isfinite(priority)); };
  const auto found = std::find_if(priorities.begin(), priorities.end(), bad);
  return found == priorities.end() ? -1 : found - priorities.begin();
}

HIVE_SIMD std::size_t priority_leaves(std::span<const float> priorities, double alpha,
                                      std::span<std::uint32_t> leaves) {
  const std::size_t size = priorities.size();
  const float* const from = priorities.data();
  std::uint32_t* const to = leaves.data();
  const double of_zero = alpha == 0.0 ? 1 << 20 : 0.0;
  std::uint64_t saturated = 0;
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < size; ++i) {
    const bool zero = from[i] < kLeastPriority;
    const double power = exp2_of(alpha * log2_of(zero ? 1.0F : from[i]) + kScaleLog2);
    const double leaf = zero ? of_zero : power;
    saturated += leaf >= kMostLeaf + 0.5 ? 1 : 0;
    const double limited = leaf > kMostLeaf ? kMostLeaf : leaf < 1.0 ? 1.0 : leaf;
    to[i] = static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(limited + kTwo52));
  }
  return saturated;
}

std::ptrdiff_t first_bad_leaf(std::span<const std::uint32_t> leaves, std::uint32_t least) {
  const auto bad = [least](std::uint32_t leaf) { return leaf == 0 || leaf < least; };
  const auto found = std::find_if(leaves.begin(), leaves.end(), bad);
  return found == leaves.end() ? -1 : found - leaves.begin();
}

HIVE_SIMD void importance_weights(std::span<const std::uint32_t> leaves, std::uint32_t least, double beta,
                                  std::span<float> weights) {
  const std::size_t size = leaves.size();
  const std::uint32_t* const from = leaves.data();
  float* const to = weights.data();
  const double numerator = least;
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < size; ++i) {
    to[i] = static_cast<float>(exp2_of(beta * log2_of(numerator / static_cast<double>(from[i]))));
  }
}

}  // namespace hive
