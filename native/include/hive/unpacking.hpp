// Rows of observations as they are stored, and the numbers of them that the first dense layer reads.
//
//     row      | numbers, float32 | bytes |        parts lie in it in any order
//     inputs   | part 0 | part 1 | ..              each in the scale of its bounds, side by side
//
// The numbers with which a row begins may be normalized first. Each result has the bytes that torch gives: products and
// differences of float32 are rounded one by one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace hive {

// `count` numbers or bytes, `offset` bytes after the beginning of a row. Read as (value - shift) * factor: shift, factor:
// of each element, or one for all; shift empty: value * factor; both empty: as they are.
struct UnpackedPart {
  bool is_float;
  std::size_t offset, count;
  std::vector<float> shift, factor;
};

// What normalizes the numbers that a row begins with: (value - shift) * scale, within the limit. Empty: nothing does.
struct RowScales {
  std::span<const float> shift, scale;
  float limit = 0.0F;
};

class Unpacking {
 public:
  // Throws std::invalid_argument for parts that do not lie in a row of `row_bytes` bytes.
  Unpacking(std::size_t row_bytes, std::vector<UnpackedPart> parts);

  std::size_t row_bytes() const { return row_bytes_; }
  std::size_t inputs() const { return inputs_; }

  // Writes float32 [rows, inputs] for rows [rows, row_bytes].
  void run(const std::byte* from, std::size_t rows, const RowScales& scales, float* to) const;

 private:
  std::size_t row_bytes_, inputs_ = 0;
  std::vector<UnpackedPart> parts_;
};

}  // namespace hive
