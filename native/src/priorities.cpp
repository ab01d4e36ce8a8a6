#include "hive/priorities.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "hive/elementary.hpp"
#include "hive/simd.hpp"

namespace hive {
namespace {

using elementary::kTwo52;

constexpr double kScaleLog2 = 20.0;  // of a leaf, whose unit is 2^-20
constexpr double kMostLeaf = std::numeric_limits<std::uint32_t>::max();
constexpr float kLeastPriority = std::numeric_limits<float>::min();  // threads may treat smaller ones as 0

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
