// Python bindings of accumulator.hpp, except for the reductions, which GradAccumulator offers (bind_gather.cpp).
#include <pybind11/stl.h>

#include <cmath>

#include "arrays.hpp"
#include "hive/accumulator.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

std::pair<double, bool> norm_of_array(const py::object& block) {
  Arrays arrays(1);
  const std::span<const float> values = arrays.input<float>(block, "block");
  const py::gil_scoped_release released;
  const double result = norm(values);
  return {result, std::isfinite(result)};
}

}  // namespace

void bind_accumulator(py::module_& m) {
  py::class_<Reduction>(m, "Reduction", "The findings of a pass over gradients.")
      .def_readonly("norm", &Reduction::norm, "Euclidean norm of the result; NaN or infinite if it is not finite.")
      .def_readonly("finite", &Reduction::finite, "Whether the result holds no NaN and no infinity.")
      .def_readonly("bad_input", &Reduction::bad_input, "The first gradient that holds a NaN or infinity, or -1.")
      .def_readonly("bad_index", &Reduction::bad_index,
                    "The first bad element of that gradient, or of the result if finite gradients overflowed; or -1.");
  m.def("norm_and_finite", &norm_of_array, "block"_a,
        "Return the Euclidean norm of a float32 block [P], and whether every element is finite.");
}

}  // namespace hive
