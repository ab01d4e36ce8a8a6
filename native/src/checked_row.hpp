// The arrays of one row of B environments (hive.envs.vectors.rows), checked once and kept alive.
#pragma once

#include "arrays.hpp"
#include "hive/rows.hpp"

namespace hive {

// Observations [B, ...] that a compiled environment can write or read: float32 or uint8, each one contiguous.
struct ObservationArray {
  pybind11::object array;  // keeps the memory alive
  char* data = nullptr;    // nullptr: the array has another form
  std::size_t count = 0;   // B
  std::size_t bytes = 0;   // of one observation
  std::ptrdiff_t stride = 0;
  bool floats = false;

  ObservationArray() = default;
  explicit ObservationArray(const pybind11::object& object) : array(object) {
    if (!pybind11::isinstance<pybind11::array>(object)) return;
    auto given = pybind11::reinterpret_borrow<pybind11::array>(object);
    floats = given.dtype().is(pybind11::dtype::of<float>());
    const bool known = floats || given.dtype().is(pybind11::dtype::of<std::uint8_t>());
    if (!known || given.ndim() < 1 || !given.writeable()) return;
    pybind11::ssize_t size = given.itemsize();
    for (pybind11::ssize_t axis = given.ndim() - 1; axis > 0; --axis) {
      if (given.shape(axis) != 1 && given.strides(axis) != size) return;
      size *= given.shape(axis);
    }
    stride = given.strides(0);
    const auto address = reinterpret_cast<std::uintptr_t>(given.data());
    if (floats && (address % alignof(float) || stride % static_cast<pybind11::ssize_t>(alignof(float)))) return;
    count = static_cast<std::size_t>(given.shape(0));
    bytes = static_cast<std::size_t>(size);
    data = static_cast<char*>(given.mutable_data());
  }

  // Whether the elements lie as observations of `size` bytes of the given kind.
  bool holds(bool as_floats, std::size_t size) const { return data && floats == as_floats && bytes == size; }
};

struct CheckedRow {
  Arrays arrays{1};
  Row row;
  ObservationArray observations, finals;

  CheckedRow(const pybind11::object& rewards, const pybind11::object& terminated, const pybind11::object& truncated,
             const pybind11::object& valid, const pybind11::object& episode_returns,
             const pybind11::object& episode_lengths, const pybind11::object& final_index,
             const pybind11::object& of_observations, const pybind11::object& of_finals)
      : row{arrays.output<float>(rewards, "rewards"),
            arrays.output<std::uint8_t>(terminated, "terminated"),
            arrays.output<std::uint8_t>(truncated, "truncated"),
            arrays.output<std::uint8_t>(valid, "valid"),
            arrays.output<float>(episode_returns, "episode_returns"),
            arrays.output<std::int32_t>(episode_lengths, "episode_lengths"),
            arrays.output<std::int32_t>(final_index, "final_index")},
        observations(of_observations),
        finals(of_finals) {}
};

}  // namespace hive
