// One-pass reduction of K gradients: weighted sum, global norm and finite check together.
//
// A gradient is a flat block: usually a slot in shared memory that the learner has adopted, or a round of a
// GradAccumulator. K separate loops `sum += g` move 12 K bytes per float32 parameter through the memory bus, and the
// norm and the finite check read the sum twice more. Here up to eight blocks are read side by side:
//
//     sixteen elements: s = w0 g0 + w1 g1 + ...; out = s / divisor; squares of out     <- s stays in registers, so
//     the next sixteen: the same, ...                                                     each byte crosses once: 4 K + 4
//
// A large result is written past the caches, which saves reading the old contents of its memory. More than eight blocks
// are read in groups of eight, tile by tile, with the sums of one tile in the first-level cache.
//
// Order. Every element is summed as ((w0 g0 + w1 g1) + w2 g2) + ... in float32 (float64 gradients in float64). The sum
// is divided once and, for 16-bit types, rounded once. Squares are summed by tiles of 1024, in the type of the sums:
// element i of a tile goes to lane i mod 16, and the lanes are added as a binary tree. A tile whose sum overflows
// float32, or is below 1e-28 and so loses precision, is summed again in the same order in float64. Tiles are added in
// float64, from first to last. This file fixes both orders, not the instruction set, so the results are bit-identical
// everywhere. A lane of a tile makes 64 additions, so the relative error of the norm is at most 2e-6. float64
// throughout would be exact but much slower when the blocks come from the caches: widening the squares is more work
// than summing the gradients.
//
// Finite check. A NaN or infinity in an input of non-zero weight always reaches its sum, and squares of float32 cannot
// overflow a double. So a finite norm proves every element of the result finite, at no extra cost. Only if the norm is
// not finite, the inputs are searched, in order, for the first bad one. There is none if squares of float64 overflowed.
//
// Adopted rounds. reduce_adopted() is the learner's reduction, over gradients that stay in the slots of shared memory
// where gradient workers wrote them, as float32 or compressed (codec.hpp). It computes the weights from the samples,
// left to right in float64, and rounds them to float32 once:
//
//     w_i = n_i / (n_0 + n_1 + ...) * factor_i        Float16: w_i / scale_i
//
// It does not clip (the optimizers multiply by the clip factor), and it uses no threads (one core nearly saturates the
// memory).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "hive/half.hpp"

namespace hive {

// The type in which gradients of type T are summed.
template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
struct Weighted {
  std::span<const T> values;
  SumOf<T> weight;  // zero: the values are not read, so they may hold NaN
};
using WeightedGradient = Weighted<float>;

struct Reduction {
  double norm;              // Euclidean norm of the result; NaN or infinite if the result is not finite
  bool finite;              // no NaN, no infinity in the result
  std::int64_t bad_input;   // index of the first gradient with a NaN or infinity; -1: none
  std::int64_t bad_index;   // its first such element, or the result's if finite inputs overflowed; -1: all are finite
};

// Writes the weighted sum, divided once by `divisor`, to `out`, which overlaps no gradient. All sizes equal out.size().
// Without a gradient of non-zero weight the result is zero.
Reduction reduce(std::span<const Weighted<float>> gradients, std::span<float> out, float divisor = 1);
Reduction reduce(std::span<const Weighted<double>> gradients, std::span<double> out, double divisor = 1);
Reduction reduce(std::span<const Weighted<BFloat16>> gradients, std::span<BFloat16> out, float divisor = 1);
Reduction reduce(std::span<const Weighted<Float16>> gradients, std::span<Float16> out, float divisor = 1);
// The same with a float32 result, for gradients that were narrowed only to be sent (codec.hpp).
Reduction reduce_wide(std::span<const Weighted<BFloat16>> gradients, std::span<float> out, float divisor = 1);
Reduction reduce_wide(std::span<const Weighted<Float16>> gradients, std::span<float> out, float divisor = 1);

// Adds one gradient of sums.size() elements to the running sums `sums`; without `onto` it starts them.
void add_weighted(const Weighted<float>& gradient, std::span<float> sums, bool onto);
void add_weighted(const Weighted<double>& gradient, std::span<double> sums, bool onto);
void add_weighted(const Weighted<BFloat16>& gradient, std::span<float> sums, bool onto);
void add_weighted(const Weighted<Float16>& gradient, std::span<float> sums, bool onto);
// Divides running sums. The result is bit-identical to reduce() over their terms; `bad_input` is -1.
Reduction finish(std::span<const float> sums, std::span<float> out, float divisor);
Reduction finish(std::span<const double> sums, std::span<double> out, double divisor);
Reduction finish(std::span<const float> sums, std::span<BFloat16> out, float divisor);
Reduction finish(std::span<const float> sums, std::span<Float16> out, float divisor);

// The encoding of a gradient in a slot.
enum class Coding : std::uint8_t { kFloat32, kBFloat16, kFloat16, kTopK };

struct AdoptedRound {
  const void* values;            // [count] float32, BFloat16 or Float16
  const std::uint32_t* indices;  // of top-k [count], null otherwise
  const double* scale;           // Float16 only: the factor by which the gradient was multiplied; null otherwise
  std::size_t count;             // number of values: the size of the result, for top-k at most that
  std::int64_t samples;          // zero: the values are not read, so they may hold NaN
  double factor;
};

// Writes the mean of adopted rounds, none of which `out` overlaps. Without any sample the result is zero. A
// round with an index beyond `out`, or a weight that is not finite in float32, is a bad input.
Reduction reduce_adopted(Coding coding, std::span<const AdoptedRound> rounds, std::span<float> out);

// Adds weight * value at each index to `out`, in order. Stops and returns false at an index beyond its end.
bool scatter(std::span<const float> values, std::span<const std::uint32_t> indices, float weight, std::span<float> out);

// The norm of one block, in the same order as reduce(); finite exactly if the block is.
double norm(std::span<const float> block);

}  // namespace hive
