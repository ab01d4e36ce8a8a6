// Checks of the numpy arrays of one call, for the bindings of numeric units.
//
// Nothing is converted, because converting an array of another dtype or layout would copy it silently on every call.
// The first array determines the shape of all. Outputs must be writable and overlap no other array except the input
// that they replace (an in-place step). Errors name the argument: TypeError for another type or dtype, ValueError
// otherwise.
#pragma once

#include <pybind11/numpy.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hive {

class Arrays {
 public:
  explicit Arrays(int dimensions) : dimensions_(dimensions) {}

  template <typename T>
  std::span<const T> input(const pybind11::object& object, const std::string& name) {
    const pybind11::array array = checked<T>(object, name);
    add({array, name, false}, "");
    return {static_cast<const T*>(array.data()), static_cast<std::size_t>(array.size())};
  }

  // `in_place_of` names the input that may be the very same array.
  template <typename T>
  std::span<T> output(const pybind11::object& object, const std::string& name, const std::string& in_place_of = "") {
    pybind11::array array = checked<T>(object, name);
    if (!array.writeable()) throw pybind11::value_error(name + " is read-only");
    add({array, name, true}, in_place_of);
    return {static_cast<T*>(array.mutable_data()), static_cast<std::size_t>(array.size())};
  }

  std::size_t extent(int axis) const { return static_cast<std::size_t>(entries_.front().array.shape(axis)); }

 private:
  struct Entry {
    pybind11::array array;  // keeps the memory alive while the GIL is released
    std::string name;
    bool written;
    const char* begin() const { return static_cast<const char*>(array.data()); }
    const char* end() const { return begin() + array.nbytes(); }
  };

  template <typename T>
  pybind11::array checked(const pybind11::object& object, const std::string& name) const {
    if (!pybind11::isinstance<pybind11::array_t<T>>(object)) throw wrong_type<T>(object, name);
    auto array = pybind11::reinterpret_borrow<pybind11::array>(object);
    if (array.ndim() != dimensions_) {
      throw pybind11::value_error(name + " must be " + std::to_string(dimensions_) + "-dimensional, got shape " +
                                  shape_of(array));
    }
    const bool aligned = reinterpret_cast<std::uintptr_t>(array.data()) % alignof(T) == 0;
    if (!(array.flags() & pybind11::array::c_style) || !aligned) {
      throw pybind11::value_error(name + " must be contiguous and aligned");
    }
    return array;
  }

  template <typename T>
  static pybind11::type_error wrong_type(const pybind11::object& object, const std::string& name) {
    const bool is_array = pybind11::isinstance<pybind11::array>(object);
    const std::string wanted = pybind11::str(pybind11::dtype::of<T>());
    const std::string got =
        pybind11::str(is_array ? object.attr("dtype") : pybind11::type::of(object).attr("__name__"));
    return pybind11::type_error(name + " must be " + (is_array ? "" : "a numpy array of ") + wanted + ", got " + got);
  }

  void add(Entry entry, const std::string& in_place_of) {
    for (const Entry& other : entries_) {
      const bool overlap = entry.begin() < other.end() && other.begin() < entry.end();
      const bool same = entry.begin() == other.begin() && other.name == in_place_of;
      if (overlap && !same && (entry.written || other.written)) {
        throw pybind11::value_error(entry.name + " overlaps " + other.name);
      }
    }
    if (!entries_.empty()) check_shape(entry);
    entries_.push_back(std::move(entry));
  }

  void check_shape(const Entry& entry) const {
    const Entry& first = entries_.front();
    for (int axis = 0; axis < dimensions_; ++axis) {
      if (entry.array.shape(axis) != first.array.shape(axis)) {
        throw pybind11::value_error(entry.name + " and " + first.name + " must have the same shape, got " +
                                    shape_of(entry.array) + " and " + shape_of(first.array));
      }
    }
  }

  static std::string shape_of(const pybind11::array& array) { return pybind11::str(array.attr("shape")); }

  int dimensions_;
  std::vector<Entry> entries_;
};

}  // namespace hive
