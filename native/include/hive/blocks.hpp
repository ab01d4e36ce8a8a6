// Blocks or slots of the same size in one memory, one after another.
#pragma once

#include <cstddef>

namespace hive {

struct Blocks {
  std::byte* first = nullptr;
  std::size_t stride = 0;
  std::byte* at(int index) const { return first + static_cast<std::size_t>(index) * stride; }
};

}  // namespace hive
