// Python face of accumulator.hpp.
#include <pybind11/stl.h>

#include <cmath>

#include "arrays.hpp"
#include "hive/accumulator.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

Reduction reduce_arrays(const std::vector<py::object>& gradients, const std::vector<double>& weights,
                        const py::object& out) {
  if (gradients.size() != weights.size()) {
    throw py::value_error("gradients and weights must be as many, got " + std::to_string(gradients.size()) + " and " +
                          std::to_string(weights.size()));
  }
  Arrays arrays(1);
  const std::span<float> result = arrays.output<float>(out, "out");
  std::vector<WeightedGradient> weighted;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    const std::string index = std::to_string(k);
    const auto weight = static_cast<float>(weights[k]);
    if (!std::isfinite(weight)) throw py::value_error("weights[" + index + "] must be finite in float32");
    weighted.push_back({arrays.input<float>(gradients[k], "gradients[" + index + "]"), weight});
  }
  const py::gil_scoped_release released;
  return reduce(weighted, result);
}

std::pair<double, bool> norm_of_array(const py::object& block) {
  Arrays arrays(1);
  const std::span<const float> values = arrays.input<float>(block, "block");
  const py::gil_scoped_release released;
  const double result = norm(values);
  return {result, std::isfinite(result)};
}

}  // namespace

void bind_accumulator(py::module_& m) {
  py::class_<Reduction>(m, "Reduction", "What a pass over gradients found.")
      .def_readonly("norm", &Reduction::norm, "Euclidean norm of the result; NaN or infinite if it is not finite.")
      .def_readonly("finite", &Reduction::finite, "Whether the result holds no NaN and no infinity.")
      .def_readonly("bad_input", &Reduction::bad_input, "The first gradient that holds a NaN or infinity, or -1.")
      .def_readonly("bad_index", &Reduction::bad_index,
                    "The first bad element of that gradient; where finite gradients overflowed, of the result; or -1.");
  m.def("reduce", &reduce_arrays, "gradients"_a, "weights"_a, "out"_a,
        "Write the sum of weight * gradient to `out` [P], in order, with its norm, in one pass.\n\n"
        "Gradients are float32 [P] and may be read-only; one of weight zero is not read. Order and rounding do not\n"
        "depend on the processor.");
  m.def("norm_and_finite", &norm_of_array, "block"_a,
        "The Euclidean norm of a float32 block [P], and whether every element is finite.");
}

}  // namespace hive
