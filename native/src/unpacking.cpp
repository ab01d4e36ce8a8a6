#include "hive/unpacking.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace hive {
namespace {

void scale(const UnpackedPart& part, float* to) {
  if (part.factor.empty()) return;
  const bool each = part.factor.size() > 1;
  for (std::size_t i = 0; i < part.count; ++i) {
    const std::size_t at = each ? i : 0;
    const float value = part.shift.empty() ? to[i] : to[i] - part.shift[at];
    to[i] = value * part.factor[at];
  }
}

}  // namespace

Unpacking::Unpacking(std::size_t row_bytes, std::vector<UnpackedPart> parts)
    : row_bytes_(row_bytes), parts_(std::move(parts)) {
  for (const UnpackedPart& part : parts_) {
    const std::size_t width = part.is_float ? sizeof(float) : 1;
    const bool fits = part.offset <= row_bytes && part.count <= (row_bytes - part.offset) / width;
    const bool scaled = part.factor.size() <= 1 || part.factor.size() == part.count;
    const bool shifted = part.shift.empty() || part.shift.size() == part.factor.size();
    if (!fits || !scaled || !shifted || (part.is_float && part.offset % sizeof(float))) {
      throw std::invalid_argument("a part does not lie in a row");
    }
    inputs_ += part.count;
  }
}

void Unpacking::run(const std::byte* from, std::size_t rows, const RowScales& scales, float* to) const {
  for (std::size_t row = 0; row < rows; ++row, from += row_bytes_) {
    for (const UnpackedPart& part : parts_) {
      const std::byte* const values = from + part.offset;
      if (part.is_float) {
        std::memcpy(to, values, part.count * sizeof(float));
        const std::size_t first = part.offset / sizeof(float);
        for (std::size_t i = 0; i < part.count && first + i < scales.shift.size(); ++i) {
          const float value = (to[i] - scales.shift[first + i]) * scales.scale[first + i];
          to[i] = value < -scales.limit ? -scales.limit : value > scales.limit ? scales.limit : value;
        }
      } else {
        for (std::size_t i = 0; i < part.count; ++i) to[i] = static_cast<float>(std::to_integer<unsigned char>(values[i]));
      }
      scale(part, to);
      to += part.count;
    }
  }
}

}  // namespace hive
