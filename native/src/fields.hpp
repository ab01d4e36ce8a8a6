// The keys of a dictionary from Python, and the memory behind its objects.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "hive/blocks.hpp"
#include "hive/slots.hpp"

namespace hive {

namespace py = pybind11;

template <typename T>
T field(const py::dict& from, const char* name) {
  if (!from.contains(name)) throw py::value_error(std::string("`") + name + "` is missing");
  return from[name].cast<T>();
}

inline py::object object(const py::dict& from, const char* name) { return field<py::object>(from, name); }

inline Owner owner_of(const py::dict& from, const char* name) {
  const auto given = field<std::pair<std::uint32_t, std::uint32_t>>(from, name);
  return {given.first, given.second};
}

// A base of what refers to the memory of Python objects, which it keeps alive.
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
