// Memory of the thread for one row of numbers, of any width: losses allocate nothing once it is large enough.
#pragma once

#include <cstddef>
#include <vector>

namespace hive {

inline double* row_memory(std::size_t count) {
  thread_local std::vector<double> memory;
  if (memory.size() < count) memory.resize(count);
  return memory.data();
}

}  // namespace hive
