// Python bindings of acting.hpp and sampling.hpp.
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "bound_acting.hpp"
#include "dict_fields.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

using Object = const py::object&;

Sampler::Kind kind_of(const std::string& name) {
  if (name == "choice") return Sampler::Kind::choice;
  if (name == "greedy") return Sampler::Kind::greedy;
  if (name == "gaussian") return Sampler::Kind::gaussian;
  if (name == "squashed") return Sampler::Kind::squashed;
  if (name == "noisy") return Sampler::Kind::noisy;
  throw py::value_error("kind is " + name + ", expected choice, greedy, gaussian, squashed or noisy");
}

Sampler sampler_of(const py::dict& given) {
  Sampler sampler;
  sampler.kind = kind_of(given["kind"].cast<std::string>());
  sampler.choices = given["choices"].cast<std::vector<std::size_t>>();
  sampler.dimensions = given["dimensions"].cast<std::size_t>();
  sampler.middle = given["middle"].cast<std::vector<float>>();
  sampler.reach = given["reach"].cast<std::vector<float>>();
  sampler.allowed = given["allowed"].cast<float>();
  sampler.deviation = given["deviation"].cast<float>();
  const bool bounded = !sampler.middle.empty() || !sampler.reach.empty();
  if (bounded && (sampler.middle.size() != sampler.dimensions || sampler.reach.size() != sampler.dimensions)) {
    throw py::value_error("middle and reach have as many numbers as actions have elements, or none");
  }
  if (sampler.elements() == 0 || std::count(sampler.choices.begin(), sampler.choices.end(), 0)) {
    throw py::value_error("an action has elements, and each has choices");
  }
  if (sampler.kind == Sampler::Kind::greedy && sampler.choices.size() != 1) {
    throw py::value_error("a greedy action is one choice");
  }
  return sampler;
}

std::unique_ptr<PyActing> acting_of(const std::vector<py::dict>& layers, std::size_t parameters, const py::dict& head,
                                    const py::dict& sampler, const std::optional<Unpacking>& unpacking,
                                    const std::optional<std::pair<std::size_t, std::size_t>>& mask) {
  const PolicyHead columns{head["width"].cast<std::size_t>(), head["deviations"].cast<std::ptrdiff_t>(),
                           head["clamps"].cast<bool>()};
  std::optional<MaskColumns> forbids;
  if (mask) forbids = {mask->first, mask->second};
  return std::make_unique<PyActing>(network_of({layers}, parameters), columns, sampler_of(sampler), unpacking, forbids);
}

Unpacking unpacking_of(std::size_t row_bytes, const std::vector<py::dict>& parts) {
  std::vector<UnpackedPart> found;
  for (const py::dict& part : parts) {
    found.push_back({field<bool>(part, "is_float"), field<std::size_t>(part, "offset"), field<std::size_t>(part, "count"),
                     field<std::vector<float>>(part, "shift"), field<std::vector<float>>(part, "factor")});
  }
  return {row_bytes, std::move(found)};
}

void unpacked(const Unpacking& unpacking, Object rows, Object to) {
  Arrays from(2), into(2);
  const auto bytes = from.input<std::uint8_t>(rows, "rows");
  const auto numbers = into.output<float>(to, "to");
  if (from.extent(1) != unpacking.row_bytes() || into.extent(1) != unpacking.inputs() || from.extent(0) != into.extent(0)) {
    throw py::value_error("rows or numbers have another shape");
  }
  unpacking.run(reinterpret_cast<const std::byte*>(bytes.data()), from.extent(0), {}, numbers.data());
}

void expect(std::size_t found, std::size_t expected, const char* what) {
  if (found == expected) return;
  throw py::value_error(std::string(what) + " has " + std::to_string(found) + " elements, expected " +
                        std::to_string(expected));
}

// Normalization of the numbers that a row begins with: their shift and scale, float32, and the limit of the result.
using Normalization = std::optional<std::tuple<py::object, py::object, float>>;

void begin(PyActing& acting, Object weights, Object observations, Object noise, Object actions,
           const std::optional<py::object>& outputs, std::vector<float> epsilons, const Normalization& normalization) {
  std::vector<Arrays> held;
  const auto input = [&](Object object, const char* name) { return held.emplace_back(1).input<float>(object, name); };
  const Sampler& sampler = acting.sampler();
  Arrays& two = held.emplace_back(3);
  const auto seen = two.input<std::uint8_t>(observations, "observations");  // [T + 1, B, bytes]
  if (two.extent(0) < 2) throw py::value_error("observations has no steps");
  ActingRollout rollout;
  rollout.steps = two.extent(0) - 1;
  rollout.envs = two.extent(1);
  expect(two.extent(2), acting.row_bytes(), "an observation");
  if (reinterpret_cast<std::uintptr_t>(seen.data()) % alignof(float)) throw py::value_error("observations are not aligned");
  rollout.weights = input(weights, "weights");
  expect(rollout.weights.size(), acting.parameters(), "weights");
  const std::size_t rows = rollout.steps * rollout.envs;
  const auto drawn = input(noise, "noise");
  expect(drawn.size(), rows * sampler.noise_width(), "noise");
  const std::size_t elements = rows * sampler.elements();
  if (sampler.is_box()) {
    const auto to = held.emplace_back(1).output<float>(actions, "actions");
    expect(to.size(), elements, "actions");
    rollout.actions = reinterpret_cast<std::byte*>(to.data());
  } else {
    const auto to = held.emplace_back(1).output<std::int64_t>(actions, "actions");
    expect(to.size(), elements, "actions");
    rollout.actions = reinterpret_cast<std::byte*>(to.data());
  }
  if (outputs) {
    const auto to = held.emplace_back(1).output<float>(*outputs, "outputs");
    expect(to.size(), rows * sampler.width(), "outputs");
    rollout.outputs = to.data();
  }
  if (sampler.kind == Sampler::Kind::greedy && epsilons.size() != 1) expect(epsilons.size(), rollout.envs, "epsilons");
  if (normalization) {
    RowScales& scales = rollout.scales;
    scales = {input(std::get<0>(*normalization), "shift"), input(std::get<1>(*normalization), "scale"),
              std::get<2>(*normalization)};
    if (scales.shift.size() * sizeof(float) > acting.row_bytes()) throw py::value_error("shift is longer than a row");
    expect(scales.scale.size(), scales.shift.size(), "scale");
  }
  rollout.observations = reinterpret_cast<const std::byte*>(seen.data());
  rollout.noise = drawn.data();
  acting.held = std::move(held);
  acting.sampler().epsilons = std::move(epsilons);
  acting.begin(rollout);
}

void act(PyActing& acting, std::size_t step) {
  if (step >= acting.rollout().steps) throw py::index_error("the rollout has no such step");
  acting.act(step);
}

void variables_of(Object outputs, Object noise, Object variables) {
  Arrays wide(2), narrow(2);
  const auto from = wide.input<float>(outputs, "outputs");
  const auto drawn = narrow.input<float>(noise, "noise");
  const auto to = narrow.output<float>(variables, "variables");
  expect(from.size(), 2 * drawn.size(), "outputs");
  gaussian_variables(narrow.extent(1), from, drawn, to);
}

void tangents_of(Object values, Object to) {
  Arrays arrays(1);
  const auto from = arrays.input<float>(values, "values");
  tangents(from, arrays.output<float>(to, "to", "values"));
}

}  // namespace

void bind_acting(py::module_& m) {
  py::class_<Unpacking>(m, "Unpacking", "Rows of observations as they are stored, as the numbers that a dense layer reads.")
      .def(py::init(&unpacking_of), "row_bytes"_a, "parts"_a,
           "parts: is_float, offset in bytes, count, shift and factor of each. Raises ValueError for one outside of a row.")
      .def_property_readonly("row_bytes", &Unpacking::row_bytes, "Bytes of a row.")
      .def_property_readonly("inputs", &Unpacking::inputs, "Numbers of a row.")
      .def("__call__", &unpacked, "rows"_a, "to"_a, "Write float32 [N, inputs] of rows uint8 [N, bytes].");
  py::class_<PyActing>(m, "Acting", "The actions of a rollout, by a dense policy and its distribution.")
      .def(py::init(&acting_of), "layers"_a, "parameters"_a, "head"_a, "sampler"_a, "unpacking"_a, "mask"_a,
           "layers, parameters: of one branch of a DenseNetwork. head: width, deviations, clamps. sampler: kind, choices,\n"
           "dimensions, middle, reach, allowed, deviation. unpacking: None: observations are float32 [B, inputs]. mask: the\n"
           "byte of an observation that its mask begins at, and its actions; None: all are allowed. Raises ValueError if\n"
           "they do not fit each other.")
      .def("begin", &begin, "weights"_a, "observations"_a, "noise"_a, "actions"_a, "outputs"_a, "epsilons"_a,
           "normalization"_a,
           "Begin a rollout of T steps of B environments, whose arrays are kept until the next.\n\n"
           "weights: float32 [parameters], which stay as they are meanwhile. observations: uint8 [T + 1, B, bytes].\n"
           "noise, actions, outputs: flat, as long as T B rows; outputs may be None. epsilons: one, or [B].\n"
           "normalization: shift, scale and limit of the numbers that a row begins with, or None.")
      .def("act", &act, "step"_a, "Write the actions of a step, and its outputs.");
  m.def("gaussian_variables", &variables_of, "outputs"_a, "noise"_a, "variables"_a,
        "Write mean + e^(log deviation) * noise, float32 [N, D], of outputs [N, 2 D].");
  m.def("tangents", &tangents_of, "values"_a, "to"_a, "Write the hyperbolic tangents of float32 [N]; may be in place.");
}

}  // namespace hive
