// Python bindings of replay.hpp.
#include "bound_replay.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
void bind_replay(py::module_& m) {
  py::class_<BoundReplay>(m, "ReplayRows")
      .def(py::init<const py::object&, const py::object&, const py::object&, const py::object&, const py::object&,
                    const py::object&, const py::object&>(),
           "observations"_a, "finals"_a, "actions"_a, "rewards"_a, "terminated"_a, "truncated"_a, "valid"_a)
      .def_property_readonly("size", &BoundReplay::size)
      .def("gather", &BoundReplay::gather, "positions"_a, "n_step"_a, "discount"_a, "observations"_a, "next_observations"_a,
           "actions"_a, "returns"_a, "discounts"_a, "shift"_a, "scale"_a, "reward_scale"_a, "limit"_a);
}

}  // namespace hive
