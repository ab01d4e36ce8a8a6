// A finite check for floats whose results vector loops can combine.
#pragma once

#include <bit>
#include <cstdint>

namespace hive {

// Returns 1 for NaN and the infinities, whose exponent is all ones. Unlike a sum of floats, integers may be combined in
// any order, so the compiler vectorises loops with `bad |= not_finite(x)`.
inline std::uint32_t not_finite(float x) {
  constexpr std::uint32_t kExponent = 0x7F800000;
  return (std::bit_cast<std::uint32_t>(x) & kExponent) == kExponent;
}

}  // namespace hive
