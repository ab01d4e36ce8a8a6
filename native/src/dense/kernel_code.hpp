// The code of kernels.hpp for vectors of HIVE_VECTOR_BYTES, as GCC and Clang know them on every processor. It is compiled
// once for each instruction set, in a namespace of its own, with products and sums fused where the processor can.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels.hpp"

namespace hive::dense {
namespace {

constexpr std::size_t kWidth = HIVE_VECTOR_BYTES / sizeof(float);
constexpr std::size_t kTileRows = HIVE_TILE_ROWS;
constexpr std::size_t kTileVectors = HIVE_TILE_VECTORS;
constexpr std::size_t kLanes = 16;  // of sums over a row: the same for every width of vectors

using Vector = float __attribute__((vector_size(HIVE_VECTOR_BYTES)));
using Unaligned = float __attribute__((vector_size(HIVE_VECTOR_BYTES), aligned(4), may_alias));
using Integers = std::int32_t __attribute__((vector_size(HIVE_VECTOR_BYTES)));

inline Vector load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
inline void store(float* to, Vector value) { *reinterpret_cast<Unaligned*>(to) = value; }
inline Vector all(float value) { return value - Vector{}; }

inline void store_some(float* to, Vector value, std::size_t count) {
  if (count >= kWidth) {
    store(to, value);
  } else {
    std::memcpy(to, &value, count * sizeof(float));
  }
}

// Comparisons with NaN are false, so all of these let NaN pass.
inline Vector at_most(Vector value, float limit) { return value > all(limit) ? all(limit) : value; }
inline Vector at_least(Vector value, float limit) { return value < all(limit) ? all(limit) : value; }

// tanh x = x P(x^2) / Q(x^2), fitted to a relative error of 2.1e-8 for |x| <= 9.02, beyond which tanh x rounds to 1.
// The rounding of its steps adds up to 3.3e-7.
inline Vector tanh_of(Vector x) {
  const Vector clamped = at_least(at_most(x, 9.02F), -9.02F);
  const Vector square = clamped * clamped;
  Vector above = all(1.331903806e-08F);
  above = above * square + 2.058345615e-05F;
  above = above * square + 3.494033021e-03F;
  above = above * square + 1.337971665e-01F;
  above = above * square + 9.999999790e-01F;
  Vector below = all(7.762005353e-07F);
  below = below * square + 3.283090328e-04F;
  below = below * square + 2.587106735e-02F;
  below = below * square + 4.671303188e-01F;
  below = below * square + 1.0F;
  return at_least(at_most(clamped * above / below, 1.0F), -1.0F);
}

// e^x: x = n ln 2 + r, e^r = 1 + r + r^2 P(r), fitted to 3.1e-9 for |r| <= ln(2) / 2. Relative error 1.2e-7 for
// -87 <= x <= 88; beyond these bounds the result is that of the bound.
inline Vector exp_of(Vector given) {
  const Vector x = at_least(at_most(given, 88.0F), -87.0F);
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer, in the low bits
  const Vector shifted = x * 1.44269504F + kRound;
  const Vector n = shifted - kRound;
  Vector r = x - n * 0.693359375F;
  r = r + n * 2.12194440e-4F;
  Vector p = all(1.381422253e-03F);
  p = p * r + 8.368898741e-03F;
  p = p * r + 4.166840572e-02F;
  p = p * r + 1.666651913e-01F;
  p = p * r + 4.999999335e-01F;
  const Vector base = r * r * p + r + 1.0F;
  const Integers power = (reinterpret_cast<Integers>(shifted) << 23) + (127 << 23);
  const Vector scaled = base * reinterpret_cast<Vector>(power);
  return given == given ? scaled : given;
}

inline Vector sigmoid_of(Vector x) { return 1.0F / (1.0F + exp_of(-x)); }

template <Activation kind>
inline Vector activated(Vector x) {
  if constexpr (kind == Activation::tanh) return tanh_of(x);
  if constexpr (kind == Activation::relu) return at_least(x, 0.0F);
  if constexpr (kind == Activation::silu) return x * sigmoid_of(x);
  return x;
}

template <Activation kind>
inline Vector slope(Vector result, Vector argument, Vector above) {
  if constexpr (kind == Activation::tanh) return above * (1.0F - result * result);
  if constexpr (kind == Activation::relu) return result <= Vector{} ? Vector{} : above;
  if constexpr (kind == Activation::silu) {
    const Vector gate = sigmoid_of(argument);
    return above * (gate * (1.0F + argument * (1.0F - gate)));
  }
  return above;
}

template <std::size_t kRows, std::size_t kVectors>
void tile(const Product& by, std::size_t row, std::size_t column) {
  Vector sums[kRows][kVectors];
  for (std::size_t m = 0; m < kRows; ++m) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t at = column + v * kWidth;
      if (!by.add) {
        sums[m][v] = by.start ? load(by.start + at) : Vector{};
      } else {
        Vector old{};
        std::memcpy(&old, by.c + (row + m) * by.c_row + at, std::min(kWidth, by.columns - at) * sizeof(float));
        sums[m][v] = old;
      }
    }
  }
  const float* a = by.a + row * by.a_row;
  const float* b = by.b + column;
  for (std::size_t k = 0; k < by.depth; ++k, a += by.a_depth, b += by.b_depth) {
    Vector columns[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) columns[v] = load(b + v * kWidth);
    for (std::size_t m = 0; m < kRows; ++m) {
      const Vector factor = all(a[m * by.a_row]);
      for (std::size_t v = 0; v < kVectors; ++v) sums[m][v] += factor * columns[v];
    }
  }
  for (std::size_t m = 0; m < kRows; ++m) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t at = column + v * kWidth;
      store_some(by.c + (row + m) * by.c_row + at, sums[m][v], by.columns - at);
    }
  }
}

template <std::size_t kVectors, std::size_t kRows = kTileRows>
void rows_left(const Product& by, std::size_t row, std::size_t left, std::size_t column) {
  if constexpr (kRows > 0) {
    if (left == kRows) {
      tile<kRows, kVectors>(by, row, column);
    } else {
      rows_left<kVectors, kRows - 1>(by, row, left, column);
    }
  }
}

template <std::size_t kVectors>
void column_block(const Product& by, std::size_t column) {
  for (std::size_t row = 0; row < by.rows; row += kTileRows) {
    rows_left<kVectors>(by, row, std::min(kTileRows, by.rows - row), column);
  }
}

template <std::size_t kVectors = kTileVectors>
void columns_left(const Product& by, std::size_t vectors, std::size_t column) {
  if constexpr (kVectors > 0) {
    if (vectors == kVectors) {
      column_block<kVectors>(by, column);
    } else {
      columns_left<kVectors - 1>(by, vectors, column);
    }
  }
}

void product(const Product& by) {
  for (std::size_t column = 0; column < by.columns; column += kTileVectors * kWidth) {
    const std::size_t vectors = std::min(kTileVectors, (by.columns - column + kWidth - 1) / kWidth);
    columns_left(by, vectors, column);
  }
}

template <std::size_t kVectors>
void combine_at(Entries entries, const Product& by, std::size_t row, std::size_t column) {
  Vector sums[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) sums[v] = load(by.start + column + v * kWidth);
  for (const auto& entry : entries) {
    const float* b = by.b + entry.place * by.b_depth + column;
    const Vector factor = all(entry.value);
    for (std::size_t v = 0; v < kVectors; ++v) sums[v] += factor * load(b + v * kWidth);
  }
  for (std::size_t v = 0; v < kVectors; ++v) {
    const std::size_t at = column + v * kWidth;
    store_some(by.c + row * by.c_row + at, sums[v], by.columns - at);
  }
}

void combine(Entries entries, const Product& by, std::size_t row) {
  constexpr std::size_t kVectors = 4;
  std::size_t column = 0;
  for (; column + kVectors * kWidth <= by.columns; column += kVectors * kWidth) {
    combine_at<kVectors>(entries, by, row, column);
  }
  for (; column < by.columns; column += kWidth) combine_at<1>(entries, by, row, column);
}

void scatter(Entries entries, const float* from, std::size_t columns, float* c, std::size_t c_row) {
  for (const auto& entry : entries) {
    float* to = c + entry.place * c_row;
    const Vector factor = all(entry.value);
    for (std::size_t n = 0; n < columns; n += kWidth) {
      Vector sums = load(to + n);
      sums += factor * load(from + n);
      store(to + n, sums);
    }
  }
}

template <Activation kind>
void activate_as(Rows shape, const float* in, float* out) {
  for (std::size_t m = 0; m < shape.rows; ++m) {
    const std::size_t row = m * shape.stride;
    for (std::size_t n = 0; n < shape.columns; n += kWidth) store(out + row + n, activated<kind>(load(in + row + n)));
  }
}

void activate(Activation activation, Rows shape, const float* in, float* out) {
  switch (activation) {
    case Activation::none:
      if (in != out) std::copy_n(in, shape.rows * shape.stride, out);
      return;
    case Activation::tanh:
      return activate_as<Activation::tanh>(shape, in, out);
    case Activation::relu:
      return activate_as<Activation::relu>(shape, in, out);
    case Activation::silu:
      return activate_as<Activation::silu>(shape, in, out);
  }
}

template <Activation kind>
void differentiate_as(Rows shape, const float* result, const float* argument, float* slopes) {
  for (std::size_t m = 0; m < shape.rows; ++m) {
    const std::size_t row = m * shape.stride;
    for (std::size_t n = row; n < row + shape.columns; n += kWidth) {
      store(slopes + n, slope<kind>(load(result + n), load(argument + n), load(slopes + n)));
    }
  }
}

void differentiate(Activation activation, Rows shape, const float* result, const float* argument, float* slopes) {
  switch (activation) {
    case Activation::none:
      return;
    case Activation::tanh:
      return differentiate_as<Activation::tanh>(shape, result, argument, slopes);
    case Activation::relu:
      return differentiate_as<Activation::relu>(shape, result, argument, slopes);
    case Activation::silu:
      return differentiate_as<Activation::silu>(shape, result, argument, slopes);
  }
}

void sum(Rows shape, const float* a, float* sums) {
  for (std::size_t n = 0; n < shape.columns; n += kWidth) {
    const std::size_t count = std::min(kWidth, shape.columns - n);
    Vector total{};
    std::memcpy(&total, sums + n, count * sizeof(float));
    for (std::size_t m = 0; m < shape.rows; ++m) total += load(a + m * shape.stride + n);
    store_some(sums + n, total, count);
  }
}

// The sum of f(n) over n < count, in sixteen sums that are added in order.
template <typename F>
inline float sum_of(std::size_t count, const F& f) {
  float lanes[kLanes] = {};
  std::size_t n = 0;
  for (; n + kLanes <= count; n += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += f(n + lane);
  }
  for (std::size_t lane = 0; n + lane < count; ++lane) lanes[lane] += f(n + lane);
  float total = 0.0F;
  for (const float lane : lanes) total += lane;
  return total;
}

void normalize(Rows shape, float epsilon, const float* scale, const float* shift, const float* in, float* normalised,
               float* inverse, float* out) {
  const auto count = static_cast<float>(shape.columns);
  for (std::size_t m = 0; m < shape.rows; ++m) {
    const float* x = in + m * shape.stride;
    float* z = normalised + m * shape.stride;
    float* y = out + m * shape.stride;
    const float mean = sum_of(shape.columns, [x](std::size_t n) { return x[n]; }) / count;
    const float variance =
        sum_of(shape.columns, [x, mean](std::size_t n) { return (x[n] - mean) * (x[n] - mean); }) / count;
    const float factor = 1.0F / std::sqrt(variance + epsilon);
    inverse[m] = factor;
    for (std::size_t n = 0; n < shape.columns; ++n) {
      const float standard = (x[n] - mean) * factor;
      z[n] = standard;
      y[n] = standard * scale[n] + shift[n];
    }
  }
}

void normalize_back(Rows shape, const float* scale, const float* normalised, const float* inverse, float* slopes,
                    float* to_scale, float* to_shift) {
  const auto count = static_cast<float>(shape.columns);
  for (std::size_t m = 0; m < shape.rows; ++m) {
    const float* z = normalised + m * shape.stride;
    float* d = slopes + m * shape.stride;
    for (std::size_t n = 0; to_scale && n < shape.columns; ++n) {
      to_scale[n] += d[n] * z[n];
      to_shift[n] += d[n];
    }
    for (std::size_t n = 0; n < shape.columns; ++n) d[n] *= scale[n];
    const float mean = sum_of(shape.columns, [d](std::size_t n) { return d[n]; }) / count;
    const float along = sum_of(shape.columns, [d, z](std::size_t n) { return d[n] * z[n]; }) / count;
    for (std::size_t n = 0; n < shape.columns; ++n) d[n] = inverse[m] * (d[n] - mean - z[n] * along);
  }
}

Pull pull(float quantile, float tau, const float* targets, std::size_t count) {
  constexpr std::size_t kVectors = kLanes / kWidth;
  Vector losses[kVectors] = {}, slopes[kVectors] = {};
  const Vector below = all(1.0F - tau), above = all(tau);
  const auto add = [&](std::size_t v, Vector errors, Vector counted) {
    const Vector bounded = at_least(at_most(errors, 1.0F), -1.0F);
    const Vector side = (errors < Vector{} ? below : above) * counted;
    losses[v] += side * (bounded * (errors - 0.5F * bounded));
    slopes[v] -= side * bounded;
  };
  std::size_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    for (std::size_t v = 0; v < kVectors; ++v) add(v, load(targets + at + v * kWidth) - quantile, all(1.0F));
  }
  if (at < count) {
    float rest[kLanes], counted[kLanes] = {};
    std::fill_n(rest, kLanes, quantile);
    for (std::size_t lane = 0; at + lane < count; ++lane) {
      rest[lane] = targets[at + lane];
      counted[lane] = 1.0F;
    }
    for (std::size_t v = 0; v < kVectors; ++v) add(v, load(rest + v * kWidth) - quantile, load(counted + v * kWidth));
  }
  float lanes[2][kLanes];
  for (std::size_t v = 0; v < kVectors; ++v) {
    store(lanes[0] + v * kWidth, losses[v]);
    store(lanes[1] + v * kWidth, slopes[v]);
  }
  Pull sum{};
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    sum.loss += lanes[0][lane];
    sum.slope += lanes[1][lane];
  }
  const float share = 1.0F / static_cast<float>(count);
  return {sum.loss * share, sum.slope * share};
}

}  // namespace

const Kernels& HIVE_KERNELS() {
  static constexpr Kernels kernels{HIVE_KERNELS_NAME, product,   combine,        scatter, activate, differentiate,
                                   sum,               normalize, normalize_back, pull};
  return kernels;
}

}  // namespace hive::dense
