// What a priority tree is in Python: it keeps its leaves alive.
#pragma once

#include <limits>
#include <string>
#include <utility>

#include "arrays.hpp"
#include "hive/priority_tree.hpp"

namespace hive {

namespace py = pybind11;
using namespace pybind11::literals;

// Throws ValueError if `index` is one of an element: `positions[3] is 17, expected 0 to 9`.
template <typename T>
inline void refuse(const char* name, std::span<const T> values, std::ptrdiff_t index, const std::string& expected) {
  if (index < 0) return;
  const std::string element = std::string(name) + "[" + std::to_string(index) + "]";
  const std::string value = py::str(py::cast(values[static_cast<std::size_t>(index)]));
  throw py::value_error(element + " is " + value + ", expected " + expected);
}

// A tree that keeps its leaves alive.
class BoundTree {
 public:
  explicit BoundTree(const py::object& leaves) : tree_(arrays_.output<std::uint32_t>(leaves, "leaves")) {}

  PriorityTree& tree() { return tree_; }
  std::size_t size() const { return tree_.leaves().size(); }
  std::uint64_t total() const { return tree_.total(); }

  static py::array sums(const py::object& self) {
    const std::span<const std::uint64_t> words = self.cast<const BoundTree&>().tree_.sums();
    py::array_t<std::uint64_t> view(static_cast<py::ssize_t>(words.size()), words.data(), self);
    view.attr("setflags")("write"_a = false);
    return std::move(view);
  }

  void rebuild() {
    const py::gil_scoped_release released;
    tree_.rebuild();
  }

  void write(const py::object& positions, const py::object& values) {
    Arrays arrays(1);
    const auto where = arrays.input<std::int64_t>(positions, "positions");
    const auto to = arrays.input<std::uint32_t>(values, "values");
    check_apart(where, "positions");
    check_apart(to, "values");
    refuse("positions", where, tree_.first_outside(where), "0 to " + std::to_string(size() - 1));
    const py::gil_scoped_release released;
    tree_.write(where, to);
  }

  void fill(std::int64_t first, std::int64_t count, std::int64_t value) {
    const auto most = static_cast<std::int64_t>(size());
    if (first < 0 || first > most) {
      throw py::value_error("first must be 0 to " + std::to_string(most) + ", got " + std::to_string(first));
    }
    if (count < 0 || count > most - first) {
      throw py::value_error("count must be 0 to " + std::to_string(most - first) + ", got " + std::to_string(count));
    }
    if (value < 0 || value > std::numeric_limits<std::uint32_t>::max()) {
      throw py::value_error("value must be 0 to 4294967295, got " + std::to_string(value));
    }
    const py::gil_scoped_release released;
    tree_.fill(static_cast<std::size_t>(first), static_cast<std::size_t>(count), static_cast<std::uint32_t>(value));
  }

  bool draw(const py::object& words, const py::object& positions, const py::object& leaves) const {
    Arrays arrays(1);
    const auto from = arrays.input<std::uint64_t>(words, "words");
    const auto where = arrays.output<std::int64_t>(positions, "positions");
    const auto drawn = arrays.output<std::uint32_t>(leaves, "leaves");
    check_apart<std::int64_t>(where, "positions");
    check_apart<std::uint32_t>(drawn, "leaves");
    if (from.size() > PriorityTree::kMostDraws) throw py::value_error("words must have at most 2^32 elements");
    if (total() == 0) return false;
    if (from.empty()) return true;
    bool consistent;
    {
      const py::gil_scoped_release released;
      consistent = tree_.draw(from, where, drawn);
    }
    if (!consistent) throw std::runtime_error("the tree's leaves were changed by other code: call rebuild()");
    return true;
  }

 private:
  template <typename T>
  void check_apart(std::span<const T> values, const char* name) const {
    const std::span<const std::byte> one = std::as_bytes(values), other = std::as_bytes(tree_.leaves());
    if (one.data() < other.data() + other.size() && other.data() < one.data() + one.size()) {
      throw py::value_error(std::string(name) + " overlaps the tree's leaves");
    }
  }

  Arrays arrays_{1};
  PriorityTree tree_;
};

}  // namespace hive
