#include "hive/accumulator.hpp"

#include <algorithm>
#include <cmath>

#include "hive/simd.hpp"

namespace hive {
namespace {

// A page: stays in the first-level cache of any processor, and hardware prefetching ends at a page anyway.
constexpr std::size_t kTile = 1024;
// Lanes of the sum of squares: enough to hide the latency of an addition at every vector width.
constexpr std::size_t kLanes = 16;

HIVE_SIMD void set_scaled(float* __restrict out, const float* __restrict values, float weight, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out[i] = weight * values[i];
}

HIVE_SIMD void add_scaled(float* __restrict out, const float* __restrict values, float weight, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out[i] += weight * values[i];
}

HIVE_SIMD double sum_of_squares(const float* values, std::size_t size) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < size; ++i, ++lane) {
    const double value = values[i];
    lanes[lane] += value * value;
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

std::int64_t first_not_finite(std::span<const float> values) {
  const auto found = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  return found == values.end() ? -1 : found - values.begin();
}

Reduction blame(std::span<const WeightedGradient> gradients, std::span<const float> out, double norm) {
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    if (gradients[k].weight == 0.0F) continue;
    const std::int64_t index = first_not_finite(gradients[k].values);
    if (index >= 0) return {norm, false, static_cast<std::int64_t>(k), index};
  }
  return {norm, false, -1, first_not_finite(out)};
}

}  // namespace

Reduction reduce(std::span<const WeightedGradient> gradients, std::span<float> out) {
  double squares = 0.0;
  for (std::size_t begin = 0; begin < out.size(); begin += kTile) {
    const std::size_t size = std::min(kTile, out.size() - begin);
    float* tile = out.data() + begin;
    bool written = false;
    for (const WeightedGradient& gradient : gradients) {
      if (gradient.weight == 0.0F) continue;
      (written ? add_scaled : set_scaled)(tile, gradient.values.data() + begin, gradient.weight, size);
      written = true;
    }
    if (!written) std::fill_n(tile, size, 0.0F);
    squares += sum_of_squares(tile, size);
  }
  const double norm = std::sqrt(squares);
  return std::isfinite(norm) ? Reduction{norm, true, -1, -1} : blame(gradients, out, norm);
}

double norm(std::span<const float> block) {
  double squares = 0.0;
  for (std::size_t begin = 0; begin < block.size(); begin += kTile) {
    squares += sum_of_squares(block.data() + begin, std::min(kTile, block.size() - begin));
  }
  return std::sqrt(squares);
}

}  // namespace hive
