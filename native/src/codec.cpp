#include "hive/codec.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "hive/simd.hpp"

namespace hive {
namespace {

constexpr std::size_t kLanes = 16;  // lanes of the sums of squares: enough for every vector width
constexpr std::uint32_t kMagnitude = 0x7FFFFFFF;
constexpr unsigned kBucketShift = 15;  // the upper 16 of 31 bits of magnitude choose the bucket
constexpr int kTopExponent = 14;       // exponent of the largest element in a Float16, whose range ends at 2^16
constexpr int kMostShift = 126;        // largest exponent of scale for which scale and 1 / scale are both normal

// The sums of squares of the encoding error and of the gradient, in an order that no instruction set changes.
struct Squares {
  double missing[kLanes] = {};
  double wanted[kLanes] = {};

  double error() const {
    double missed = 0.0;
    double all = 0.0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      missed += missing[lane];
      all += wanted[lane];
    }
    return all > 0.0 ? std::sqrt(missed / all) : 0.0;
  }
};

template <typename T>
[[gnu::always_inline]] inline void encode_one(float value, float scale, float back, T& to, double& missing,
                                              double& wanted) {
  narrow(value * scale, to);
  const double gone = static_cast<double>(widen(to) * back) - value;
  missing += gone * gone;
  wanted += static_cast<double>(value) * value;
}

// `back` is 1 / scale.
template <typename T>
[[gnu::always_inline]] inline double encode_all(const float* from, std::size_t size, float scale, float back, T* to) {
  Squares squares;
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      encode_one(from[i + lane], scale, back, to[i + lane], squares.missing[lane], squares.wanted[lane]);
    }
  }
  for (std::size_t lane = 0; i < size; ++i, ++lane) {
    encode_one(from[i], scale, back, to[i], squares.missing[lane], squares.wanted[lane]);
  }
  return squares.error();
}

HIVE_SIMD double encode_bfloat16(const float* from, std::size_t size, BFloat16* to) {
  return encode_all(from, size, 1.0F, 1.0F, to);
}

HIVE_SIMD double encode_float16(const float* from, std::size_t size, float scale, float back, Float16* to) {
  return encode_all(from, size, scale, back, to);
}

HIVE_SIMD std::uint32_t largest_magnitude(const float* from, std::size_t size) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < size; ++i) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(from[i]) & kMagnitude);
  }
  return largest;
}

std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & kMagnitude; }

struct Cut {
  std::uint32_t at;    // the k-th largest magnitude
  std::size_t equals;  // number of elements of exactly this magnitude among the k
};

Cut cut_for(std::span<const float> values, std::size_t k) {
  std::vector<std::size_t> buckets(std::size_t{1} << (31 - kBucketShift));
  for (const float value : values) ++buckets[magnitude(value) >> kBucketShift];
  std::size_t above = 0;  // number of elements in buckets above that of the k-th
  std::size_t bucket = buckets.size() - 1;
  while (above + buckets[bucket] < k) above += buckets[bucket--];
  std::vector<std::uint32_t> close;
  close.reserve(buckets[bucket]);
  for (const float value : values) {
    if (magnitude(value) >> kBucketShift == bucket) close.push_back(magnitude(value));
  }
  const auto kth = close.begin() + static_cast<std::ptrdiff_t>(k - above - 1);
  std::nth_element(close.begin(), kth, close.end(), std::greater<>());
  const std::uint32_t at = *kth;
  const auto larger = std::count_if(close.begin(), close.end(), [at](std::uint32_t one) { return one > at; });
  return {at, k - above - static_cast<std::size_t>(larger)};
}

}  // namespace

float scale_for(std::span<const float> gradient) {
  const float largest = std::bit_cast<float>(largest_magnitude(gradient.data(), gradient.size()));
  if (largest == 0.0F || !std::isfinite(largest)) return 1.0F;
  return std::ldexp(1.0F, std::clamp(kTopExponent - std::ilogb(largest), -kMostShift, kMostShift));
}

double encode(std::span<const float> gradient, std::span<BFloat16> out) {
  return encode_bfloat16(gradient.data(), gradient.size(), out.data());
}

double encode(std::span<const float> gradient, float scale, std::span<Float16> out) {
  return encode_float16(gradient.data(), gradient.size(), scale, 1.0F / scale, out.data());
}

double keep_largest(std::span<const float> gradient, std::span<float> residual, std::span<float> values,
                    std::span<std::uint32_t> indices) {
  for (std::size_t i = 0; i < gradient.size(); ++i) residual[i] += gradient[i];
  if (values.empty()) return 0.0;
  const Cut cut = cut_for(residual, values.size());
  std::size_t equals = cut.equals;
  std::size_t sent = 0;
  double missing = 0.0;
  double wanted = 0.0;
  for (std::size_t i = 0; i < residual.size(); ++i) {
    const double square = static_cast<double>(residual[i]) * residual[i];
    const std::uint32_t size = magnitude(residual[i]);
    wanted += square;
    if (size < cut.at || (size == cut.at && equals == 0)) {
      missing += square;
      continue;
    }
    if (size == cut.at) --equals;
    values[sent] = residual[i];
    indices[sent++] = static_cast<std::uint32_t>(i);
    residual[i] = 0.0F;
  }
  return wanted > 0.0 ? std::sqrt(missing / wanted) : 0.0;
}

}  // namespace hive
