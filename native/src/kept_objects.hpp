// A base of what refers to the memory of Python objects, which it keeps alive.
#pragma once

#include <pybind11/numpy.h>

#include <utility>
#include <vector>

#include "dict_fields.hpp"
#include "hive/blocks.hpp"
#include "hive/slots.hpp"

namespace hive {

inline Owner owner_of(const py::dict& from, const char* name) {
  const auto given = field<std::pair<std::uint32_t, std::uint32_t>>(from, name);
  return {given.first, given.second};
}

class KeptObjects {
 protected:
  template <typename T>
  T& bound(const py::dict& from, const char* name) {
    kept_.push_back(object(from, name));
    return kept_.back().cast<T&>();
  }

  // uint8 [blocks, bytes], writable.
  Blocks blocks(const py::dict& from, const char* name) {
    const auto array = object(from, name).cast<py::array>();
    kept_.push_back(array);
    return {static_cast<std::byte*>(const_cast<void*>(array.data())), static_cast<std::size_t>(array.strides(0))};
  }

 private:
  std::vector<py::object> kept_;
};

}  // namespace hive
