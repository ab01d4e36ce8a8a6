// Whether floats are finite, as something that loops can gather.
#pragma once

#include <bit>
#include <cstdint>

namespace hive {

// 1 for NaN and the infinities: the exponent is all ones. Integers, unlike a sum of floats, are gathered in any order,
// so loops with `bad |= not_finite(x)` become vector code.
inline std::uint32_t not_finite(float x) {
  constexpr std::uint32_t kExponent = 0x7F800000;
  return (std::bit_cast<std::uint32_t>(x) & kExponent) == kExponent;
}

}  // namespace hive
