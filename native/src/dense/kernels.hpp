// The inner loops of dense.hpp, one table of functions for each instruction set. dense/kernel_code.hpp has the code.
#pragma once

#include <cstddef>
#include <span>

#include "hive/dense.hpp"

namespace hive::dense {

inline constexpr std::size_t kPad = 16;  // floats in 64 bytes; rows of work arrays have a multiple of it

inline constexpr std::size_t padded(std::size_t count) { return (count + kPad - 1) / kPad * kPad; }

// c[m][n] = start[n] + sum over k of a[m][k] * b[k][n], summed in the order of k. Distances count floats. Rows of b are
// readable, and `start` too, up to a multiple of 16 columns; c is only written at its columns.
struct Product {
  std::size_t rows, columns, depth;
  const float* a;
  std::size_t a_row, a_depth;
  const float* b;
  std::size_t b_depth;
  float* c;
  std::size_t c_row;
  const float* start = nullptr;  // null: zeros
  bool add = false;              // start from c instead
};

using Entries = std::span<const Selected::Entry>;

// `rows` rows of `columns` floats, `stride` apart, a multiple of 16.
struct Rows {
  std::size_t rows, columns, stride;
};

// The mean over targets of |tau - [u < 0]| huber(u), u = target - quantile, and its derivative by the quantile.
struct Pull {
  float loss, slope;
};

struct Kernels {
  const char* name;
  void (*product)(const Product& product);
  // A row of a product with a start, from the numbers of that row of a that are not zero, and the rows of b at their
  // places: the same bytes, for finite b.
  void (*combine)(Entries entries, const Product& product, std::size_t row);
  // c[place] += value * from, for each entry: that row's part of a product of the transpose of a, [columns] floats each.
  void (*scatter)(Entries entries, const float* from, std::size_t columns, float* c, std::size_t c_row);
  // out = activation of in; may be the same array.
  void (*activate)(Activation activation, Rows shape, const float* in, float* out);
  // to_in = to_out * derivative, from the activation's result, or for silu from its argument; may be in place.
  void (*differentiate)(Activation activation, Rows shape, const float* result, const float* argument, float* slopes);
  // sums[n] += sum over rows of a[m][n], in the order of rows.
  void (*sum)(Rows shape, const float* a, float* sums);
  // in -> normalised (kept), out = scale * normalised + shift, inverse deviations of each row.
  void (*normalize)(Rows shape, float epsilon, const float* scale, const float* shift, const float* in,
                    float* normalised, float* inverse, float* out);
  // slopes of out -> slopes of in, in place; adds the gradients of scale and shift, unless these are null.
  void (*normalize_back)(Rows shape, const float* scale, const float* normalised, const float* inverse, float* slopes,
                         float* to_scale, float* to_shift);
  // The pull of `count` targets on a quantile of probability tau; Huber's loss has delta 1.
  Pull (*pull)(float quantile, float tau, const float* targets, std::size_t count);
};

const Kernels& avx512_kernels();
const Kernels& avx2_kernels();
const Kernels& plain_kernels();
const Kernels& chosen_kernels();

}  // namespace hive::dense
