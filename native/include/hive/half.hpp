// The two 16-bit floats of gradients.
//
//     BFloat16   sign 1, exponent 8, mantissa 7     the upper half of a float32
//     Float16    sign 1, exponent 5, mantissa 10    IEEE 754 binary16
//
// Both widen to float32 exactly and narrow by rounding to the nearest, ties to even, as torch does. The conversions use
// integer and float operations without branches, which also work on vectors. The compilers' built-in 16-bit floats call
// a library function on processors without an instruction for them.
#pragma once

#include <cstdint>

namespace hive {

struct BFloat16 {
  std::uint16_t bits;
};

struct Float16 {
  std::uint16_t bits;
};

// Below, Word is std::uint32_t and Float is float, or both are vectors of the same length.

template <typename Float, typename Word>
[[gnu::always_inline]] inline void widen_bfloat16(const Word& bits, Float& value) {
  value = __builtin_bit_cast(Float, bits << 16);
}

// A product with 2^112 changes the bias of the exponent from 15 to 127 and also normalises subnormal numbers. It maps
// infinity and NaN to 2^16 and more; these get float32's exponent of all ones.
template <typename Float, typename Word>
[[gnu::always_inline]] inline void widen_float16(const Word& bits, Float& value) {
  const Word magnitude = (bits & 0x7FFFU) << 13;
  const Float scaled = __builtin_bit_cast(Float, magnitude) * 0x1p112F;
  const Word special = magnitude >= 0x0F800000U ? Word{} + 0x7F800000U : Word{};
  value = __builtin_bit_cast(Float, __builtin_bit_cast(Word, scaled) | special | ((bits & 0x8000U) << 16));
}

template <typename Float, typename Word>
[[gnu::always_inline]] inline void narrow_bfloat16(const Float& value, Word& narrow) {
  const Word bits = __builtin_bit_cast(Word, value);
  const Word rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  narrow = (bits & 0x7FFFFFFFU) > 0x7F800000U ? Word{} + 0x7FC0U : rounded;
}

// Normal results are rounded as integers. Subnormal results are rounded by adding 1/2, because the last place of the
// sum is worth 2^-24, the spacing of Float16's subnormal numbers. Magnitudes from 65520 on become infinity.
template <typename Float, typename Word>
[[gnu::always_inline]] inline void narrow_float16(const Float& value, Word& narrow) {
  const Word bits = __builtin_bit_cast(Word, value);
  const Word magnitude = bits & 0x7FFFFFFFU;
  const Word normal = (magnitude - 0x38000000U + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
  const Word small = __builtin_bit_cast(Word, __builtin_bit_cast(Float, magnitude) + 0.5F) - 0x3F000000U;
  const Word finite = magnitude < 0x38800000U ? small : normal;
  const Word special = magnitude > 0x7F800000U ? Word{} + 0x7E00U : Word{} + 0x7C00U;
  narrow = ((bits >> 16) & 0x8000U) | (magnitude >= 0x477FF000U ? special : finite);
}

inline float widen(float value) { return value; }
inline double widen(double value) { return value; }
inline float widen(BFloat16 value) {
  float wide;
  widen_bfloat16(std::uint32_t{value.bits}, wide);
  return wide;
}
inline float widen(Float16 value) {
  float wide;
  widen_float16(std::uint32_t{value.bits}, wide);
  return wide;
}

inline void narrow(float value, float& to) { to = value; }
inline void narrow(double value, double& to) { to = value; }
inline void narrow(float value, BFloat16& to) {
  std::uint32_t bits;
  narrow_bfloat16(value, bits);
  to.bits = static_cast<std::uint16_t>(bits);
}
inline void narrow(float value, Float16& to) {
  std::uint32_t bits;
  narrow_float16(value, bits);
  to.bits = static_cast<std::uint16_t>(bits);
}

}  // namespace hive
