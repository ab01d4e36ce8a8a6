// The values of a dictionary that Python passes, by name.
#pragma once

#include <pybind11/stl.h>

#include <string>

namespace hive {

namespace py = pybind11;

template <typename T>
T field(const py::dict& from, const char* name) {
  if (!from.contains(name)) throw py::value_error(std::string("`") + name + "` is missing");
  return from[name].cast<T>();
}

inline py::object object(const py::dict& from, const char* name) { return field<py::object>(from, name); }

}  // namespace hive
