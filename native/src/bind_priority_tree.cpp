// Python bindings of priority_tree.hpp and priorities.hpp.
#include <limits>

#include "arrays.hpp"
#include "hive/priorities.hpp"
#include "hive/priority_tree.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

// Throws ValueError if `index` is one of an element: `positions[3] is 17, expected 0 to 9`.
template <typename T>
void refuse(const char* name, std::span<const T> values, std::ptrdiff_t index, const std::string& expected) {
  if (index < 0) return;
  const std::string element = std::string(name) + "[" + std::to_string(index) + "]";
  const std::string value = py::str(py::cast(values[static_cast<std::size_t>(index)]));
  throw py::value_error(element + " is " + value + ", expected " + expected);
}

void check_exponent(double value, const char* name) {
  if (!(value >= 0.0 && value <= 1.0)) throw py::value_error(std::string(name) + " must be in [0, 1]");
}

// A tree that keeps its leaves alive.
class BoundTree {
 public:
  explicit BoundTree(const py::object& leaves) : tree_(arrays_.output<std::uint32_t>(leaves, "leaves")) {}

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

std::size_t leaves_of(const py::object& priorities, double alpha, const py::object& leaves) {
  check_exponent(alpha, "alpha");
  Arrays arrays(1);
  const auto from = arrays.input<float>(priorities, "priorities");
  const auto to = arrays.output<std::uint32_t>(leaves, "leaves");
  refuse("priorities", from, first_bad_priority(from), "a finite number of at least 0");
  const py::gil_scoped_release released;
  return priority_leaves(from, alpha, to);
}

void weights_of(const py::object& leaves, std::int64_t least, double beta, const py::object& weights) {
  check_exponent(beta, "beta");
  if (least < 1 || least > std::numeric_limits<std::uint32_t>::max()) {
    throw py::value_error("least must be 1 to 4294967295, got " + std::to_string(least));
  }
  Arrays arrays(1);
  const auto from = arrays.input<std::uint32_t>(leaves, "leaves");
  const auto to = arrays.output<float>(weights, "weights");
  const auto limit = static_cast<std::uint32_t>(least);
  refuse("leaves", from, first_bad_leaf(from, limit), "at least " + std::to_string(least) + ", the least leaf");
  const py::gil_scoped_release released;
  importance_weights(from, limit, beta, to);
}

}  // namespace

void bind_priority_tree(py::module_& m) {
  py::class_<BoundTree>(m, "PriorityTree", "A sum tree over leaves uint32 [N]; hive.experience is its face.")
      .def(py::init<const py::object&>(), "leaves"_a)
      .def("__len__", &BoundTree::size)
      .def_property_readonly("total", &BoundTree::total, "The sum of all leaves.")
      .def_property_readonly("sums", &BoundTree::sums, "The sums of all levels, lowest first, uint64, read-only.")
      .def("rebuild", &BoundTree::rebuild, "Compute all sums from the leaves.")
      .def("write", &BoundTree::write, "positions"_a, "values"_a,
           "Set leaves[positions[i]] = values[i] in order. An error changes nothing.")
      .def("fill", &BoundTree::fill, "first"_a, "count"_a, "value"_a, "Set `count` leaves from `first` on to a value.")
      .def("draw", &BoundTree::draw, "words"_a, "positions"_a, "leaves"_a,
           "Draw one leaf for each word, in ascending order; False, without draws, if the total is 0.");
  m.def("priority_leaves", &leaves_of, "priorities"_a, "alpha"_a, "leaves"_a,
        "Write round(priority^alpha * 2^20) in [1, 2^32 - 1]; return the number of those above the limit.");
  m.def("importance_weights", &weights_of, "leaves"_a, "least"_a, "beta"_a, "weights"_a,
        "Write (least / leaf)^beta in float32.");
}

}  // namespace hive
