#include "hive/accumulator.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "hive/simd.hpp"

// Inlined into each clone of the calling HIVE_SIMD function. Vectors are passed by reference, because passing them by
// value depends on the ABI of the instruction set.
#define HIVE_INLINE [[gnu::always_inline]] inline

namespace hive {
namespace {

// Elements of a tile, over which squares are summed.
constexpr std::size_t kTile = 1024;
// Lanes of the sum of squares: enough to hide the latency of an addition at every vector width.
constexpr std::size_t kLanes = 16;
// A smaller sum of squares of a tile is computed again in float64. Underflow costs at most the smallest normal number
// per element, 1e-35 per tile, which is then below the rounding error of float32.
constexpr float kLeastSquares = 1e-28F;
// Blocks read side by side: the number of streams that every processor can prefetch.
constexpr std::size_t kSideBySide = 8;
// If blocks and result together have this size, the result is written past the caches, which saves reading its memory
// first. Most of it would leave the last-level cache before the optimizer reads it; a smaller result may stay there.
constexpr std::size_t kStreamedBytes = std::size_t{48} << 20;

// Vectors of 32 bytes; the compiler makes two of one where registers have 16.
constexpr std::size_t kVectorBytes = 32;
using Words = std::uint32_t __attribute__((vector_size(kVectorBytes)));
using Shorts = std::uint16_t __attribute__((vector_size(kVectorBytes / 2)));
using Doubles = double __attribute__((vector_size(kVectorBytes)));
template <typename Sum>
struct VectorOf;
template <>
struct VectorOf<float> {
  using type = float __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<double> {
  using type = Doubles;
};
template <typename Sum>
using Vector = typename VectorOf<Sum>::type;
template <typename Sum>
constexpr std::size_t kWidth = kVectorBytes / sizeof(Sum);

template <typename Sum>
HIVE_INLINE void load(const Sum* from, Vector<Sum>& to) {
  std::memcpy(&to, from, sizeof(to));
}

HIVE_INLINE void load_words(const void* from, Words& to) {
  Shorts bits;
  std::memcpy(&bits, from, sizeof(bits));
  to = __builtin_convertvector(bits, Words);
}

HIVE_INLINE void load(const BFloat16* from, Vector<float>& to) {
  Words bits;
  load_words(from, bits);
  widen_bfloat16(bits, to);
}

HIVE_INLINE void load(const Float16* from, Vector<float>& to) {
  Words bits;
  load_words(from, bits);
  widen_float16(bits, to);
}

// `streamed`: `to` is aligned to 16 bytes.
template <typename Bits>
HIVE_INLINE void write(void* to, const Bits& bits, bool streamed) {
#if defined(__SSE2__)
  if (streamed) {
    __m128i parts[sizeof(bits) / sizeof(__m128i)];
    std::memcpy(parts, &bits, sizeof(bits));
    for (std::size_t i = 0; i < sizeof(bits) / sizeof(__m128i); ++i) {
      _mm_stream_si128(static_cast<__m128i*>(to) + i, parts[i]);
    }
    return;
  }
#endif
  static_cast<void>(streamed);
  std::memcpy(to, &bits, sizeof(bits));
}

// Rounds `value` to the type of `to` and writes it.
template <typename Sum>
HIVE_INLINE void store(Sum* to, Vector<Sum>& value, bool streamed) {
  write(to, value, streamed);
}

HIVE_INLINE void store(BFloat16* to, Vector<float>& value, bool streamed) {
  Words bits;
  narrow_bfloat16(value, bits);
  write(to, __builtin_convertvector(bits, Shorts), streamed);
  widen_bfloat16(bits, value);
}

HIVE_INLINE void store(Float16* to, Vector<float>& value, bool streamed) {
  Words bits;
  narrow_float16(value, bits);
  write(to, __builtin_convertvector(bits, Shorts), streamed);
  widen_float16(bits, value);
}

// The sum of squares of a tile, in the order that the header documents: lane i is lanes[i / width][i % width].
template <typename Sum>
struct Squares {
  Vector<Sum> lanes[kLanes / kWidth<Sum>] = {};

  HIVE_INLINE void add(const Vector<Sum>& value, std::size_t index) { lanes[index] += value * value; }

  // Returns the sum including the last values of a tile, fewer than the lanes.
  template <typename T>
  HIVE_INLINE Sum sum_with(const T* values, std::size_t size) const {
    Sum sums[kLanes];
    std::memcpy(sums, lanes, sizeof(sums));
    for (std::size_t lane = 0; lane < size; ++lane) {
      const Sum value = widen(values[lane]);
      sums[lane] += value * value;
    }
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
      for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
    }
    return sums[0];
  }
};

// The same in float64, for a tile whose squares are too large or too small for float32.
template <typename T>
HIVE_INLINE double sum_exactly(const T* values, std::size_t size) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = widen(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < size; ++i, ++lane) {
    const double value = widen(values[i]);
    lanes[lane] += value * value;
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// One overload per type, as for sum_tiles below, because the attribute does not support templates.
#define HIVE_EXACT(T) \
  HIVE_SIMD double exact_squares(const T* values, std::size_t size) { return sum_exactly(values, size); }
HIVE_EXACT(float)
HIVE_EXACT(BFloat16)
HIVE_EXACT(Float16)
#undef HIVE_EXACT

// Returns the sum of squares of a tile in float64, given `found`, the sum in the type of the sums.
template <typename T>
HIVE_INLINE double squares_of_tile(float found, const T* values, std::size_t size) {
  const bool held = found >= kLeastSquares && found <= std::numeric_limits<float>::max();
  return held ? double{found} : exact_squares(values, size);
}

HIVE_INLINE double squares_of_tile(double found, const double*, std::size_t) { return found; }

// Whether `value` is a power of two whose inverse has full precision.
template <typename Sum>
HIVE_INLINE bool is_power_of_two(Sum value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == Sum{0.5} && exponent > 0 && exponent < 100;
}

// Terms of a weighted sum, over `size` elements of their blocks from `begin`, the start of a tile.
template <typename In>
struct Terms {
  using Sum = decltype(widen(In{}));
  const In* const* blocks;
  const Sum* weights;
  std::size_t count;
  std::size_t begin;
  std::size_t size;
};

// out = ([onto] + w0 g0 + w1 g1 + ...) / divisor, from the left; `out` may be `onto`. Processes sixteen elements at a
// time: the sums stay in registers, and they are squared while the next elements load.
// kCount: the number of terms if it is known at compile time, else 0.
template <std::size_t kCount, typename In, typename Out, typename Sum>
struct Pass {
  // Local copies: no write to `out` can alias them, so the compiler keeps them in registers.
  const In* blocks[kSideBySide] = {};
  Sum weights[kSideBySide] = {};
  std::size_t given;
  const Sum* onto;
  Out* out;
  Sum divisor;
  bool streamed;
  bool divided = !is_power_of_two(divisor);  // else multiplying by the inverse is bit-identical and faster
  Sum factor = divided ? Sum{1} : Sum{1} / divisor;

  HIVE_INLINE Pass(const Terms<In>& terms, const Sum* onto, Out* out, Sum divisor, bool streamed)
      : given(terms.count), onto(onto), out(out), divisor(divisor), streamed(streamed) {
    for (std::size_t k = 0; k < count(); ++k) {
      blocks[k] = terms.blocks[k] + terms.begin;
      weights[k] = terms.weights[k];
    }
  }

  HIVE_INLINE std::size_t count() const { return kCount ? kCount : given; }

  HIVE_INLINE void lanes(std::size_t i, Squares<Sum>& squares) const {
    constexpr std::size_t kVectors = kLanes / kWidth<Sum>;
    Vector<Sum> sums[kVectors] = {};
    for (std::size_t k = 0; k < count(); ++k) {
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v) {
        Vector<Sum> term;
        load(blocks[k] + i + v * kWidth<Sum>, term);
        term *= weights[k];
        if (k > 0) {
          sums[v] += term;
        } else if (onto) {
          load(onto + i + v * kWidth<Sum>, sums[v]);
          sums[v] += term;
        } else {
          sums[v] = term;
        }
      }
    }
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      sums[v] *= factor;
      if (divided) sums[v] /= divisor;
      store(out + i + v * kWidth<Sum>, sums[v], streamed);
      squares.add(sums[v], v);
    }
  }

  HIVE_INLINE void element(std::size_t i) const {
    Sum sum = onto ? onto[i] : Sum{0};
    for (std::size_t k = 0; k < count(); ++k) {
      const Sum term = weights[k] * widen(blocks[k][i]);
      sum = k > 0 || onto ? sum + term : term;
    }
    narrow(sum / divisor, out[i]);
  }

  // Returns the sum of squares of the elements written.
  HIVE_INLINE double tile(std::size_t begin, std::size_t end) const {
    Squares<Sum> squares;
    std::size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) lanes(i, squares);
    const std::size_t whole = i;
    for (; i < end; ++i) element(i);
    return squares_of_tile(squares.sum_with(out + whole, end - whole), out + begin, end - begin);
  }
};

// All tiles in one call: a tile in the caches takes 0.1 us, and a call takes as long.
template <std::size_t kCount, typename In, typename Out, typename Sum>
HIVE_INLINE double sum_some(const Terms<In>& terms, const Sum* onto, Out* out, Sum divisor, bool streamed) {
  const Pass<kCount, In, Out, Sum> pass(terms, onto, out, divisor, streamed);
  double squares = 0.0;
  for (std::size_t begin = 0; begin < terms.size; begin += kTile) {
    squares += pass.tile(begin, std::min(begin + kTile, terms.size));
  }
  return squares;
}

// Usual counts of the usual type have separate loops, which are a tenth faster when the blocks come from the caches.
template <typename In, typename Out, typename Sum>
HIVE_INLINE double sum_any(const Terms<In>& terms, const Sum* onto, Out* out, Sum divisor, bool streamed) {
  if constexpr (std::is_same_v<In, float> && std::is_same_v<Out, float>) {
    if (terms.count == 2) return sum_some<2>(terms, onto, out, divisor, streamed);
    if (terms.count == 4) return sum_some<4>(terms, onto, out, divisor, streamed);
    if (terms.count == kSideBySide) return sum_some<kSideBySide>(terms, onto, out, divisor, streamed);
  }
  return sum_some<0>(terms, onto, out, divisor, streamed);
}

// One overload for each pair of types.
#define HIVE_SUM(In, Out, Sum)                                                                                   \
  HIVE_SIMD double sum_tiles(Terms<In> terms, const Sum* onto, Out* out, Sum divisor, bool streamed) {            \
    return sum_any(terms, onto, out, divisor, streamed);                                                         \
  }
HIVE_SUM(float, float, float)
HIVE_SUM(double, double, double)
HIVE_SUM(BFloat16, BFloat16, float)
HIVE_SUM(Float16, Float16, float)
HIVE_SUM(BFloat16, float, float)  // intermediate sums of a reduction
HIVE_SUM(Float16, float, float)
HIVE_SUM(float, BFloat16, float)  // running sums
HIVE_SUM(float, Float16, float)
#undef HIVE_SUM

HIVE_SIMD double squares_of(const float* values, std::size_t size) {
  Squares<float> squares;
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (std::size_t v = 0; v < kLanes / kWidth<float>; ++v) {
      Vector<float> value;
      load(values + i + v * kWidth<float>, value);
      squares.add(value, v);
    }
  }
  return squares_of_tile(squares.sum_with(values + i, size - i), values, size);
}

template <typename T>
std::int64_t first_not_finite(std::span<const T> values) {
  const auto found = std::find_if(values.begin(), values.end(), [](T value) { return !std::isfinite(widen(value)); });
  return found == values.end() ? -1 : found - values.begin();
}

template <typename In, typename Out>
Reduction blame(std::span<const Weighted<In>> gradients, std::span<const Out> out, double norm) {
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    if (gradients[k].weight == 0) continue;
    const std::int64_t index = first_not_finite<In>(gradients[k].values);
    if (index >= 0) return {norm, false, static_cast<std::int64_t>(k), index};
  }
  const std::int64_t index = first_not_finite<Out>(out);  // -1 if only the squares of float64 overflowed
  return {norm, index < 0, -1, index};
}

// Reads the blocks in groups, side by side; the last group writes the result.
template <typename In, typename Out, typename Sum>
double sum_blocks(std::span<const In* const> blocks, std::span<const Sum> weights, Sum divisor, std::span<Out> out) {
  const std::size_t moved = out.size_bytes() + blocks.size() * out.size() * sizeof(In);
  const bool streamed = moved >= kStreamedBytes && reinterpret_cast<std::uintptr_t>(out.data()) % 16 == 0;
  const std::size_t last = (blocks.size() - 1) / kSideBySide * kSideBySide;
  double squares = 0.0;
  if (last == 0) {
    squares = sum_tiles(Terms<In>{blocks.data(), weights.data(), blocks.size(), 0, out.size()},
                        static_cast<const Sum*>(nullptr), out.data(), divisor, streamed);
  } else {
    alignas(64) Sum sums[kTile];
    for (std::size_t begin = 0; begin < out.size(); begin += kTile) {
      const std::size_t size = std::min(kTile, out.size() - begin);
      const Sum* onto = nullptr;
      for (std::size_t first = 0; first < last; first += kSideBySide, onto = sums) {
        sum_tiles(Terms<In>{&blocks[first], &weights[first], kSideBySide, begin, size}, onto, sums, Sum{1}, false);
      }
      const Terms<In> rest{&blocks[last], &weights[last], blocks.size() - last, begin, size};
      squares += sum_tiles(rest, onto, out.data() + begin, divisor, streamed);
    }
  }
#if defined(__SSE2__)
  if (streamed) _mm_sfence();  // completes the writes past the caches before the caller publishes the result
#endif
  return std::sqrt(squares);
}

template <typename In, typename Out>
Reduction reduce_blocks(std::span<const Weighted<In>> gradients, SumOf<In> divisor, std::span<Out> out) {
  std::vector<const In*> blocks;
  std::vector<SumOf<In>> weights;
  for (const Weighted<In>& gradient : gradients) {
    if (gradient.weight == 0) continue;
    blocks.push_back(gradient.values.data());
    weights.push_back(gradient.weight);
  }
  if (blocks.empty()) {
    std::fill(out.begin(), out.end(), Out{});
    return {0.0, true, -1, -1};
  }
  const double norm = sum_blocks<In, Out, SumOf<In>>(blocks, weights, divisor, out);
  return std::isfinite(norm) ? Reduction{norm, true, -1, -1} : blame<In, Out>(gradients, out, norm);
}

template <typename T>
void add_block(const Weighted<T>& gradient, std::span<SumOf<T>> sums, bool onto) {
  const T* const block = gradient.values.data();
  const Terms<T> term{&block, &gradient.weight, 1, 0, sums.size()};
  sum_tiles(term, onto ? sums.data() : nullptr, sums.data(), SumOf<T>{1}, false);
}

template <typename T>
Reduction finish_block(std::span<const SumOf<T>> sums, SumOf<T> divisor, std::span<T> out) {
  const SumOf<T>* const block = sums.data();
  const SumOf<T> weight = 1;
  const double norm = sum_blocks<SumOf<T>, T, SumOf<T>>({&block, 1}, {&weight, 1}, divisor, out);
  return std::isfinite(norm) ? Reduction{norm, true, -1, -1} : blame<T, T>({}, out, norm);
}

float weight_of(const AdoptedRound& round, std::int64_t total) {
  if (round.samples == 0) return 0.0F;
  const double share = static_cast<double>(round.samples) / static_cast<double>(total);
  const double weight = share * round.factor;
  return static_cast<float>(weight != 0.0 && round.scale ? weight / *round.scale : weight);
}

template <typename T, typename Reduce>
Reduction reduce_dense(std::span<const AdoptedRound> rounds, std::span<const float> weights, Reduce reduce_all) {
  std::vector<Weighted<T>> weighted;
  weighted.reserve(rounds.size());
  for (std::size_t k = 0; k < rounds.size(); ++k) {
    weighted.push_back({{static_cast<const T*>(rounds[k].values), rounds[k].count}, weights[k]});
  }
  return reduce_all(std::span<const Weighted<T>>(weighted));
}

Reduction reduce_top_k(std::span<const AdoptedRound> rounds, std::span<const float> weights, std::span<float> out) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  std::fill(out.begin(), out.end(), 0.0F);
  Reduction found{0.0, true, -1, -1};
  for (std::size_t k = 0; k < rounds.size(); ++k) {
    if (weights[k] == 0.0F) continue;
    const std::span values{static_cast<const float*>(rounds[k].values), rounds[k].count};
    const std::span indices{rounds[k].indices, rounds[k].count};
    const bool fits = scatter(values, indices, weights[k], out);
    const std::int64_t bad = first_not_finite<float>(values);
    if ((fits && bad < 0) || !found.finite) continue;
    const auto where = bad < 0 ? std::int64_t{-1} : std::int64_t{indices[static_cast<std::size_t>(bad)]};
    found = {kNaN, false, static_cast<std::int64_t>(k), where};
  }
  if (!found.finite) return found;
  const double size = norm(out);
  return {size, std::isfinite(size), -1, std::isfinite(size) ? -1 : first_not_finite<float>(out)};
}

Reduction reduce_weighted(Coding coding, std::span<const AdoptedRound> rounds, std::span<const float> weights,
                          std::span<float> out) {
  switch (coding) {
    case Coding::kFloat32:
      return reduce_dense<float>(rounds, weights, [out](auto all) { return reduce(all, out); });
    case Coding::kBFloat16:
      return reduce_dense<BFloat16>(rounds, weights, [out](auto all) { return reduce_wide(all, out); });
    case Coding::kFloat16:
      return reduce_dense<Float16>(rounds, weights, [out](auto all) { return reduce_wide(all, out); });
    case Coding::kTopK: break;
  }
  return reduce_top_k(rounds, weights, out);
}

}  // namespace

#define HIVE_REDUCE(T)                                                                           \
  Reduction reduce(std::span<const Weighted<T>> gradients, std::span<T> out, SumOf<T> divisor) { \
    return reduce_blocks<T, T>(gradients, divisor, out);                                          \
  }                                                                                              \
  void add_weighted(const Weighted<T>& gradient, std::span<SumOf<T>> sums, bool onto) {          \
    add_block(gradient, sums, onto);                                                             \
  }                                                                                              \
  Reduction finish(std::span<const SumOf<T>> sums, std::span<T> out, SumOf<T> divisor) {         \
    return finish_block<T>(sums, divisor, out);                                                  \
  }
HIVE_REDUCE(float)
HIVE_REDUCE(double)
HIVE_REDUCE(BFloat16)
HIVE_REDUCE(Float16)
#undef HIVE_REDUCE

Reduction reduce_wide(std::span<const Weighted<BFloat16>> gradients, std::span<float> out, float divisor) {
  return reduce_blocks<BFloat16, float>(gradients, divisor, out);
}
Reduction reduce_wide(std::span<const Weighted<Float16>> gradients, std::span<float> out, float divisor) {
  return reduce_blocks<Float16, float>(gradients, divisor, out);
}

Reduction reduce_adopted(Coding coding, std::span<const AdoptedRound> rounds, std::span<float> out) {
  std::int64_t total = 0;
  for (const AdoptedRound& round : rounds) total += round.samples;
  std::vector<float> weights;
  weights.reserve(rounds.size());
  std::int64_t unweighable = -1;
  for (const AdoptedRound& round : rounds) {
    weights.push_back(weight_of(round, total));
    if (unweighable < 0 && !std::isfinite(weights.back())) unweighable = static_cast<std::int64_t>(weights.size()) - 1;
  }
  const Reduction found = reduce_weighted(coding, rounds, weights, out);
  if (unweighable < 0 || (found.bad_input >= 0 && found.bad_input < unweighable)) return found;
  return {std::numeric_limits<double>::quiet_NaN(), false, unweighable, -1};
}

bool scatter(std::span<const float> values, std::span<const std::uint32_t> indices, float weight,
             std::span<float> out) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t index = indices[i];
    if (index >= out.size()) return false;
    out[index] += weight * values[i];
  }
  return true;
}

double norm(std::span<const float> block) {
  double squares = 0.0;
  for (std::size_t begin = 0; begin < block.size(); begin += kTile) {
    squares += squares_of(block.data() + begin, std::min(kTile, block.size() - begin));
  }
  return std::sqrt(squares);
}

}  // namespace hive
