// Compression of gradients for their transfer to a learner: 16-bit floats, or the largest elements only.
//
//     bf16    float32 -> BFloat16                    the same range, 8 bits of precision
//     fp16    float32 * scale -> Float16             11 bits; scale is a power of two that brings the largest element
//                                                    to 2^14 .. 2^15, so nothing overflows and the scaling is exact
//     top-k   float32 + residual -> k (index, value) the k largest by magnitude; the others stay in the residual and
//                                                    are added to the next gradient (error feedback: Stich et al.
//                                                    2018, "Sparsified SGD with memory")
//
// Top-k selects by a histogram of the upper 16 bits of the magnitudes, whose order as integers equals their order as
// floats, and sorts only the bucket of the k-th element: two passes. Of equal magnitudes the first are taken, and
// indices ascend, so the encoding is bit-identical everywhere.
//
// Each encoder returns its relative error: the norm of (gradient - decoded gradient) over the norm of the gradient, or
// 0 for a zero gradient. Gradients must be finite, because the encoders do not check for NaN. The reductions of encoded
// gradients are in accumulator.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hive/half.hpp"

namespace hive {

// Returns the power of two by which encode(..., Float16) multiplies.
float scale_for(std::span<const float> gradient);

// Both write as many elements as they read.
double encode(std::span<const float> gradient, std::span<BFloat16> out);
double encode(std::span<const float> gradient, float scale, std::span<Float16> out);

// Writes the values.size() largest elements of gradient + residual and leaves the others in `residual`, which is as
// long as the gradient. values.size() == indices.size() <= gradient.size().
double keep_largest(std::span<const float> gradient, std::span<float> residual, std::span<float> values,
                    std::span<std::uint32_t> indices);

}  // namespace hive
