// Python bindings of priority_tree.hpp and priorities.hpp.
#include "bound_tree.hpp"
#include "hive/priorities.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

void check_exponent(double value, const char* name) {
  if (!(value >= 0.0 && value <= 1.0)) throw py::value_error(std::string(name) + " must be in [0, 1]");
}

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
