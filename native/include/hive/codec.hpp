// Gradients made smaller on their way to a learner: 16-bit floats, or the largest elements only.
//
//     bf16    float32 -> BFloat16                    the same range, 8 bits of precision
//     fp16    float32 * scale -> Float16             11 bits; scale is a power of two that brings the largest element
//                                                    to 2^14 .. 2^15, so nothing overflows and the scaling is exact
//     top-k   float32 + residual -> k (index, value) the k largest by magnitude; what is not sent stays in the residual
//                                                    and is added to the next gradient (error feedback: Stich et al.
//                                                    2018, "Sparsified SGD with memory")
//
// Top-k selects by a histogram of the upper 16 bits of the magnitudes, whose order as integers is theirs as floats, and
// sorts only the bucket that the k-th falls into: two passes. Of equal magnitudes the first elements are taken, indices
// ascend, so the same gradients give the same bytes everywhere.
//
// Each encoder returns its error: the norm of what is missing over the norm of what was to be sent, 0 of a zero
// gradient. The reductions of encoded gradients are in accumulator.hpp. It finds no NaN: encode finite gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hive/half.hpp"

namespace hive {

// The power of two for encode(..., Float16).
float scale_for(std::span<const float> gradient);

// Both write as many elements as they read.
double encode(std::span<const float> gradient, std::span<BFloat16> out);
double encode(std::span<const float> gradient, float scale, std::span<Float16> out);

// Sends the values.size() largest of gradient + residual and leaves the rest in `residual`, which is as long as the
// gradient. values.size() == indices.size() <= gradient.size().
double keep_largest(std::span<const float> gradient, std::span<float> residual, std::span<float> values,
                    std::span<std::uint32_t> indices);

}  // namespace hive
