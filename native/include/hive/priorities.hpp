// Priorities of a replay memory as the integer leaves of a sum tree (priority_tree.hpp), and the weights that correct
// the loss for drawing by them (Schaul et al. 2016, sections 3.3 and 3.4).
//
//     leaf   = round(priority^alpha * 2^20), ties to even, at least 1 and at most 2^32 - 1
//     weight = (least / leaf)^beta
//
// Leaves determine which rows are drawn, so they must not depend on the machine. The C library's pow does: its last
// bits differ between processors with and without fused multiply-add. These powers are therefore computed here, by
// additions, multiplications and divisions of IEEE 754 float64 in a fixed order, and by integer operations. The results
// have the same bytes with every compiler and processor. Before it is rounded, priority^alpha * 2^20 differs from the
// exact value by less than 0.0001 wherever it is below 2^32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hive {

// Returns the first index whose priority is not finite or is below 0, or -1.
std::ptrdiff_t first_bad_priority(std::span<const float> priorities);

// Writes the leaves of finite priorities >= 0, and returns the number of those above 2^32 - 1 before the limit. alpha is
// in [0, 1]; with 0 every leaf is 2^20, also that of a priority of 0. Priorities below 2^-126, which some threads treat
// as 0, always count as 0. The spans have the same size.
std::size_t priority_leaves(std::span<const float> priorities, double alpha, std::span<std::uint32_t> leaves);

// Returns the first index whose leaf is 0 or below `least`, or -1.
std::ptrdiff_t first_bad_leaf(std::span<const std::uint32_t> leaves, std::uint32_t least);

// Writes the weights of leaves >= least >= 1. beta is in [0, 1]. The spans have the same size.
void importance_weights(std::span<const std::uint32_t> leaves, std::uint32_t least, double beta,
                        std::span<float> weights);

}  // namespace hive
