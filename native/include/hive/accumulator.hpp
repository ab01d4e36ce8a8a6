// One-pass reduction of K gradients: weighted sum, global norm and finite check together.
//
// A gradient is a flat float32 block, usually a slot in shared memory that the learner has adopted. With P parameters,
// K separate `sum += g` move 12 K bytes per parameter through the memory bus, and the norm and the finite check read
// the sum twice more. Here the blocks are walked in tiles that fit the first-level cache:
//
//     tile 0: out = w0 g0; out += w1 g1; ...; squares of out     <- out stays in the cache meanwhile
//     tile 1: the same, ...                                         so each byte crosses the bus once: 4 K + 8
//
// Order. Every element is summed as ((w0 g0 + w1 g1) + w2 g2) + ... in float32. Squares are summed in float64: within a
// tile, element i goes to lane i mod 16 and the lanes are added as a binary tree; tiles are added from first to last.
// Both orders are fixed by this file, not by the instruction set, so the same gradients give the same bits everywhere.
//
// Finite check. A NaN or infinity in an input of non-zero weight always reaches its sum, and squares of floats cannot
// overflow a double; so the norm is finite exactly if every element of the result is, and clean data pay nothing for
// the check. Only when it fails are the inputs searched, in order, for who is to blame.
//
// What it does not do: decide the weights (mean, sum and mean by samples are the caller's choice of w), clip (the
// optimizers fold the factor in), or use threads (one core reads about as fast as its memory allows).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hive {

struct WeightedGradient {
  std::span<const float> values;
  float weight;  // zero: the values are not read, whatever they hold
};

struct Reduction {
  double norm;              // Euclidean norm of the result; NaN or infinite if the result is not finite
  bool finite;              // no NaN, no infinity in the result
  std::int64_t bad_input;   // the first gradient that holds a NaN or infinity; -1: none does
  std::int64_t bad_index;   // where it is; if finite inputs overflowed, where the result is infinite; -1: finite
};

// Writes the weighted sum to `out`, which overlaps no gradient. All sizes equal out.size().
// Without a gradient of non-zero weight the result is zero.
Reduction reduce(std::span<const WeightedGradient> gradients, std::span<float> out);

// The norm of one block, in the same order as reduce(); finite exactly if the block is.
double norm(std::span<const float> block);

}  // namespace hive
