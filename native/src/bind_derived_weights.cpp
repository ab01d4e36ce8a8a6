// Python bindings of derived_weights.hpp.
#include <pybind11/stl.h>

#include "arrays.hpp"
#include "hive/derived_weights.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

using Object = const py::object&;

std::size_t number(const py::dict& given, const char* name) { return given[name].cast<std::size_t>(); }

DerivedWeights weights_of(const std::vector<py::dict>& copies, const std::vector<py::dict>& noisy,
                          const std::vector<py::dict>& streams, std::size_t parameters, std::size_t size) {
  std::vector<CopiedArray> copied;
  for (const py::dict& each : copies) copied.push_back({number(each, "from"), number(each, "to"), number(each, "count")});
  std::vector<NoisyLayer> layers;
  for (const py::dict& each : noisy) {
    layers.push_back({number(each, "inputs"), number(each, "outputs"), number(each, "mean_weight"),
                      number(each, "mean_bias"), number(each, "weight_deviation"), number(each, "bias_deviation"),
                      number(each, "weight"), number(each, "bias")});
  }
  std::vector<DuelingStreams> joined;
  for (const py::dict& each : streams) {
    joined.push_back({number(each, "inputs"), each["apart"].cast<bool>(), number(each, "actions"), number(each, "atoms"),
                      number(each, "value_weight"), number(each, "value_bias"), number(each, "advantage_weight"),
                      number(each, "advantage_bias"), number(each, "weight"), number(each, "bias")});
  }
  return {std::move(copied), std::move(layers), std::move(joined), parameters, size};
}

void expect(std::size_t found, std::size_t expected, const char* what) {
  if (found == expected) return;
  throw py::value_error(std::string(what) + " has " + std::to_string(found) + " elements, expected " +
                        std::to_string(expected));
}

void forward(const DerivedWeights& weights, Object block, Object factors, Object derived) {
  Arrays blocks(1), noise(1), sized(1);
  const auto given = blocks.input<float>(block, "block"), drawn = noise.input<float>(factors, "factors");
  const auto to = sized.output<float>(derived, "derived");
  expect(given.size(), weights.parameters(), "block");
  expect(drawn.size(), weights.factors(), "factors");
  expect(to.size(), weights.size(), "derived");
  const py::gil_scoped_release released;
  weights.forward(given, drawn, to);
}

void backward(const DerivedWeights& weights, Object factors, Object to_derived, Object gradient) {
  Arrays blocks(1), noise(1), sized(1);
  const auto drawn = noise.input<float>(factors, "factors");
  const auto slopes = sized.output<float>(to_derived, "to_derived");
  const auto to = blocks.output<float>(gradient, "gradient");
  expect(drawn.size(), weights.factors(), "factors");
  expect(slopes.size(), weights.size(), "to_derived");
  expect(to.size(), weights.parameters(), "gradient");
  const py::gil_scoped_release released;
  weights.backward(drawn, slopes, to);
}

}  // namespace

void bind_derived_weights(py::module_& m) {
  py::class_<DerivedWeights>(m, "DerivedWeights",
                             "The weights of plain layers from those of noisy layers and of dueling streams.\n\n"
                             "Lists of dictionaries with the fields of CopiedArray, NoisyLayer and DuelingStreams, whose\n"
                             "offsets count floats. parameters, size: elements of the two blocks. Raises ValueError for\n"
                             "arrays outside of their block.")
      .def(py::init(&weights_of), "copies"_a, "noisy"_a, "streams"_a, "parameters"_a, "size"_a)
      .def_property_readonly("factors", &DerivedWeights::factors, "The number of factors of noise of all noisy layers.")
      .def("forward", &forward, "block"_a, "factors"_a, "derived"_a,
           "Write the derived block, float32 [size], from the parameters and the factors of noise, float32 each.")
      .def("backward", &backward, "factors"_a, "to_derived"_a, "gradient"_a,
           "Write the gradient of the parameters from that of the derived block, which is overwritten in part.");
}

}  // namespace hive
