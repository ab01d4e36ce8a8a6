// One-pass reduction of K gradients: weighted sum, global norm and finite check together.
//
// A gradient is a flat block, usually a slot in shared memory that the learner has adopted, or a round of a
// GradAccumulator. With P parameters of 4 bytes, K separate `sum += g` move 12 K bytes per parameter through the memory
// bus, and the norm and the finite check read the sum twice more. Here up to eight blocks are read side by side:
//
//     sixteen elements: s = w0 g0 + w1 g1 + ...; out = s / divisor; squares of out     <- s stays in registers, so
//     the next sixteen: the same, ...                                                     each byte crosses once: 4 K + 4
//
// A large result is written past the caches, which saves reading what is overwritten. More than eight blocks are taken
// in groups of eight, tile by tile, with the sums of one tile in the first-level cache.
//
// Order. Every element is summed as ((w0 g0 + w1 g1) + w2 g2) + ... in float32, of float64 in float64; then it is
// divided once and, for 16-bit types, rounded once. Squares are summed by tiles of 1024, in the type of the sums:
// element i of a tile goes to lane i mod 16, and the lanes are added as a binary tree. A tile whose sum float32 cannot
// hold in full precision, as it overflows or is below 1e-28, is summed again in the same order in float64. Tiles are
// added in float64, from first to last. Both orders are fixed by this file, not by the instruction set, so the same
// gradients give the same bits everywhere. A lane of a tile makes 64 additions: the norm is off by at most 2e-6 of
// itself. In float64 throughout it would be exact, and the pass much slower where the blocks come from the caches:
// widening the squares is more work than summing the gradients.
//
// Finite check. A NaN or infinity in an input of non-zero weight always reaches its sum, and squares of float32 cannot
// overflow a double; so if the norm is finite, every element of the result is, and clean data pay nothing for the check.
// Only when it is not, the inputs are searched, in order, for who is to blame (or nobody, where squares of float64
// overflowed).
//
// Adopted rounds. reduce_adopted() is the learner's reduction: of gradients that stay in the slots of shared memory where
// gradient workers wrote them, as float32 or compressed (codec.hpp). It makes the weights by samples, from left to right
// in float64, and rounds them to float32 once:
//
//     mean: w_i = n_i / (n_0 + n_1 + ...) * factor_i        sum: w_i = n_i * factor_i        Float16: w_i / scale_i
//
// What it does not do: clip (the optimizers fold the factor in), or use threads (one core reads about as fast as its
// memory allows).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "hive/half.hpp"

namespace hive {

// What gradients of type T are summed in.
template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
struct Weighted {
  std::span<const T> values;
  SumOf<T> weight;  // zero: the values are not read, whatever they hold
};
using WeightedGradient = Weighted<float>;

struct Reduction {
  double norm;              // Euclidean norm of the result; NaN or infinite if the result is not finite
  bool finite;              // no NaN, no infinity in the result
  std::int64_t bad_input;   // the first gradient that holds a NaN or infinity; -1: none does
  std::int64_t bad_index;   // where it is; if finite inputs overflowed, where the result is infinite; -1: finite
};

// Writes the weighted sum, divided once by `divisor`, to `out`, which overlaps no gradient. All sizes equal out.size().
// Without a gradient of non-zero weight the result is zero.
Reduction reduce(std::span<const Weighted<float>> gradients, std::span<float> out, float divisor = 1);
Reduction reduce(std::span<const Weighted<double>> gradients, std::span<double> out, double divisor = 1);
Reduction reduce(std::span<const Weighted<BFloat16>> gradients, std::span<BFloat16> out, float divisor = 1);
Reduction reduce(std::span<const Weighted<Float16>> gradients, std::span<Float16> out, float divisor = 1);
// The same to float32, of gradients that were narrowed for their way only (codec.hpp).
Reduction reduce_wide(std::span<const Weighted<BFloat16>> gradients, std::span<float> out, float divisor = 1);
Reduction reduce_wide(std::span<const Weighted<Float16>> gradients, std::span<float> out, float divisor = 1);

// A sum that is kept while it grows: adds one gradient to `sums`, or without `onto` begins them. Its size is sums.size().
void add_weighted(const Weighted<float>& gradient, std::span<float> sums, bool onto);
void add_weighted(const Weighted<double>& gradient, std::span<double> sums, bool onto);
void add_weighted(const Weighted<BFloat16>& gradient, std::span<float> sums, bool onto);
void add_weighted(const Weighted<Float16>& gradient, std::span<float> sums, bool onto);
// The end of such a sum: the same bits as reduce() over its terms. Nobody is to blame.
Reduction finish(std::span<const float> sums, std::span<float> out, float divisor);
Reduction finish(std::span<const double> sums, std::span<double> out, double divisor);
Reduction finish(std::span<const float> sums, std::span<BFloat16> out, float divisor);
Reduction finish(std::span<const float> sums, std::span<Float16> out, float divisor);

// How a gradient lies in a slot.
enum class Coding : std::uint8_t { kFloat32, kBFloat16, kFloat16, kTopK };

struct AdoptedRound {
  const void* values;            // [count] float32, BFloat16 or Float16
  const std::uint32_t* indices;  // of top-k [count], null otherwise
  const double* scale;           // of Float16: its values are the gradient times this; null otherwise
  std::size_t count;             // as many as the result has, of top-k at most as many
  std::int64_t samples;          // zero: nothing of it is read, whatever it holds
  double factor;
};

// Writes the mean or the sum of adopted rounds, none of which `out` overlaps. Without any sample the result is zero.
// An index beyond `out`, and a weight that float32 does not hold, make a round a bad input.
Reduction reduce_adopted(Coding coding, std::span<const AdoptedRound> rounds, bool mean, std::span<float> out);

// Adds weight * value at each index to `out`, in order. False, with nothing more added, at an index beyond its end.
bool scatter(std::span<const float> values, std::span<const std::uint32_t> indices, float weight, std::span<float> out);

// The norm of one block, in the same order as reduce(); finite exactly if the block is.
double norm(std::span<const float> block);

}  // namespace hive
