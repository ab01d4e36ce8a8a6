// Python bindings of agent_losses.hpp.
#include <pybind11/stl.h>

#include <optional>

#include "arrays.hpp"
#include "hive/agent_losses.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

using Object = const py::object&;

void expect(std::size_t found, std::size_t expected, const char* what) {
  if (found == expected) return;
  throw py::value_error(std::string(what) + ": " + std::to_string(found) + ", expected " + std::to_string(expected));
}

// The arrays of each critic, one list of them for reading or writing, all of one shape.
template <typename T>
std::vector<T*> critics_of(Arrays& arrays, const py::sequence& given, const char* name) {
  std::vector<T*> found;
  for (const py::handle each : given) {
    const auto array = py::reinterpret_borrow<py::object>(each);
    if constexpr (std::is_const_v<T>) {
      found.push_back(arrays.input<float>(array, name).data());
    } else {
      found.push_back(arrays.output<float>(array, name).data());
    }
  }
  if (found.empty()) throw py::value_error(std::string(name) + " has no arrays");
  return found;
}

// The shape of a Gaussian: rows and dimensions of [N, D] arrays, which outputs [N, 2 D] fit.
struct Gaussian {
  Arrays wide{2}, narrow{2};

  std::size_t dimensions() const {
    expect(wide.extent(0), narrow.extent(0), "rows of outputs");
    expect(wide.extent(1), 2 * narrow.extent(1), "columns of outputs");
    if (narrow.extent(1) == 0) throw py::value_error("noise has no columns");
    return narrow.extent(1);
  }
};

std::size_t half_of(const Arrays& columns) {
  if (columns.extent(1) == 0 || columns.extent(1) % 2) throw py::value_error("columns must be of an even number");
  return columns.extent(1) / 2;
}

void clamp(Object columns, Object outputs) {
  Arrays arrays(2);
  const auto from = arrays.input<float>(columns, "columns");
  clamp_deviations(half_of(arrays), from, arrays.output<float>(outputs, "outputs", "columns"));
}

void clamp_back(Object columns, Object to_outputs, Object to_columns) {
  Arrays arrays(2);
  const auto from = arrays.input<float>(columns, "columns"), slopes = arrays.input<float>(to_outputs, "to_outputs");
  clamp_deviations_back(half_of(arrays), from, slopes, arrays.output<float>(to_columns, "to_columns", "to_outputs"));
}

void sample(Object outputs, Object noise, Object actions, Object log_probs) {
  Gaussian of;
  Arrays rows(1);
  const auto given = of.wide.input<float>(outputs, "outputs"), drawn = of.narrow.input<float>(noise, "noise");
  const auto to = of.narrow.output<float>(actions, "actions"), logs = rows.output<float>(log_probs, "log_probs");
  const std::size_t dimensions = of.dimensions();
  expect(logs.size(), of.narrow.extent(0), "elements of log_probs");
  const py::gil_scoped_release released;
  squashed_sample(dimensions, given, drawn, to, logs);
}

void sample_slopes(Object outputs, Object noise, Object actions, Object to_actions, float to_log_prob,
                   Object to_outputs) {
  Gaussian of;
  const auto given = of.wide.input<float>(outputs, "outputs"), drawn = of.narrow.input<float>(noise, "noise");
  const auto taken = of.narrow.input<float>(actions, "actions"), slopes = of.narrow.input<float>(to_actions, "to_actions");
  const auto to = of.wide.output<float>(to_outputs, "to_outputs");
  const std::size_t dimensions = of.dimensions();
  const py::gil_scoped_release released;
  squashed_slopes(dimensions, given, drawn, taken, slopes, to_log_prob, to);
}

void smoothed(Object outputs, const std::optional<py::object>& noise, float deviation, float limit, Object actions) {
  Arrays arrays(2);
  const auto from = arrays.input<float>(outputs, "outputs");
  const auto drawn = noise ? arrays.input<float>(*noise, "noise") : std::span<const float>{};
  const auto to = arrays.output<float>(actions, "actions");
  const py::gil_scoped_release released;
  tanh_actions(from, drawn, deviation, limit, to);
}

void smoothed_slopes(Object actions, Object to_actions, Object to_outputs) {
  Arrays arrays(2);
  const auto taken = arrays.input<float>(actions, "actions"), slopes = arrays.input<float>(to_actions, "to_actions");
  tanh_slopes(taken, slopes, arrays.output<float>(to_outputs, "to_outputs", "to_actions"));
}

void targets_of(const py::sequence& values, const std::optional<py::object>& log_probs, double temperature, Object returns,
                Object discounts, Object targets) {
  Arrays rows(1);
  const auto of = critics_of<const float>(rows, values, "values");
  const auto logs = log_probs ? rows.input<float>(*log_probs, "log_probs") : std::span<const float>{};
  const auto sums = rows.input<float>(returns, "returns"), factors = rows.input<float>(discounts, "discounts");
  soft_targets(of, logs, temperature, sums, factors, rows.output<float>(targets, "targets"));
}

void choice_targets(Object logits, const py::sequence& values, double temperature, Object returns, Object discounts,
                    Object targets) {
  Arrays tables(2), rows(1);
  const auto given = tables.input<float>(logits, "logits");
  const auto of = critics_of<const float>(tables, values, "values");
  const auto sums = rows.input<float>(returns, "returns"), factors = rows.input<float>(discounts, "discounts");
  const auto to = rows.output<float>(targets, "targets");
  expect(to.size(), tables.extent(0), "elements of targets");
  if (tables.extent(1) == 0) throw py::value_error("logits has no columns");
  const py::gil_scoped_release released;
  soft_choice_targets(tables.extent(1), given, of, temperature, sums, factors, to);
}

py::tuple loss_of_critics(const py::sequence& values, const std::optional<py::object>& actions, Object targets,
                          Object importance, Object errors, const py::sequence& to_values, float factor, bool huber) {
  Arrays tables(actions ? 2 : 1), rows(1), taken(1);
  const auto of = critics_of<const float>(tables, values, "values");
  const auto to = critics_of<float>(tables, to_values, "to_values");
  expect(to.size(), of.size(), "arrays of to_values");
  const auto wanted = rows.input<float>(targets, "targets"), factors = rows.input<float>(importance, "importance");
  const auto sizes = rows.output<float>(errors, "errors");
  expect(wanted.size(), tables.extent(0), "elements of targets");
  const auto chosen = actions ? taken.input<std::int64_t>(*actions, "actions") : std::span<const std::int64_t>{};
  const std::size_t count = actions ? tables.extent(1) : 1;
  if (actions) expect(chosen.size(), tables.extent(0), "elements of actions");
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    if (chosen[row] < 0 || chosen[row] >= static_cast<std::int64_t>(count)) {
      throw py::value_error("the action of row " + std::to_string(row) + " does not exist");
    }
  }
  const CriticLoss loss = critic_loss(count, huber, factor, of, chosen, wanted, factors, sizes, to);
  return py::make_tuple(loss.total, loss.mean, loss.error);
}

double least_of_critics(const py::sequence& values, const py::sequence& to_values) {
  Arrays rows(1);
  const auto of = critics_of<const float>(rows, values, "values");
  const auto to = critics_of<float>(rows, to_values, "to_values");
  expect(to.size(), of.size(), "arrays of to_values");
  return least_values(of, rows.extent(0), to);
}

py::tuple loss_of_choices(Object logits, const py::sequence& values, double temperature, Object to_logits) {
  Arrays tables(2);
  const auto given = tables.input<float>(logits, "logits");
  const auto of = critics_of<const float>(tables, values, "values");
  const auto to = tables.output<float>(to_logits, "to_logits");
  if (tables.extent(1) == 0) throw py::value_error("logits has no columns");
  SoftLoss loss;
  {
    const py::gil_scoped_release released;
    loss = soft_choice_loss(tables.extent(1), given, of, temperature, to);
  }
  return py::make_tuple(loss.total, loss.mean, loss.greatest);
}

}  // namespace

void bind_agent_losses(py::module_& m) {
  m.def("clamp_deviations", &clamp, "columns"_a, "outputs"_a,
        "Write columns [N, 2 D] with their second half, log standard deviations, clamped; may be in place.");
  m.def("clamp_deviations_back", &clamp_back, "columns"_a, "to_outputs"_a, "to_columns"_a,
        "Write the gradient of the columns from that of the outputs of `clamp_deviations`; may be in place.");
  m.def("squashed_sample", &sample, "outputs"_a, "noise"_a, "actions"_a, "log_probs"_a,
        "Write actions [N, D] of a Gaussian squashed by tanh, outputs [N, 2 D], and their log densities [N].");
  m.def("squashed_slopes", &sample_slopes, "outputs"_a, "noise"_a, "actions"_a, "to_actions"_a, "to_log_prob"_a,
        "to_outputs"_a, "Write the gradient of the outputs of `squashed_sample` from those of its results.");
  m.def("tanh_actions", &smoothed, "outputs"_a, "noise"_a, "deviation"_a, "limit"_a, "actions"_a,
        "Write tanh(outputs) [N, D]; with noise plus clip(deviation * noise, -limit, limit), clipped to -1 .. 1.");
  m.def("tanh_slopes", &smoothed_slopes, "actions"_a, "to_actions"_a, "to_outputs"_a,
        "Write the gradient of the outputs of `tanh_actions` without noise; may be in place.");
  m.def("soft_targets", &targets_of, "values"_a, "log_probs"_a, "temperature"_a, "returns"_a, "discounts"_a, "targets"_a,
        "Write returns + discounts * (least of the critics' values - temperature * log_probs), float32 [N] each.\n\n"
        "log_probs: None: without the second term.");
  m.def("soft_choice_targets", &choice_targets, "logits"_a, "values"_a, "temperature"_a, "returns"_a, "discounts"_a,
        "targets"_a, "Write the targets in expectation over discrete actions; logits, values: float32 [N, A] each.");
  m.def("critic_loss", &loss_of_critics, "values"_a, "actions"_a, "targets"_a, "importance"_a, "errors"_a,
        "to_values"_a, "factor"_a, "huber"_a,
        "Return (loss, mean value, mean absolute error); write errors [N] and the gradients of the critics' values.\n\n"
        "values: of each critic float32 [N], or with actions, int64 [N], float32 [N, A].");
  m.def("least_values", &least_of_critics, "values"_a, "to_values"_a,
        "Return the mean of the critics' least values; write the gradients of minus this mean.");
  m.def("soft_choice_loss", &loss_of_choices, "logits"_a, "values"_a, "temperature"_a, "to_logits"_a,
        "Return (loss, mean log probability, mean greatest entropy that masks allow) of SAC's policy over discrete\n"
        "actions; write the gradient of the logits.");
  m.def("soft_temperature", &soft_temperature, "scale"_a, "log"_a, "Return scale * e^log.");
  m.def(
      "temperature_loss",
      [](float log, double mean_log_prob, double target_entropy) {
        const TemperatureLoss loss = temperature_loss(log, mean_log_prob, target_entropy);
        return py::make_tuple(loss.total, loss.slope);
      },
      "log"_a, "mean_log_prob"_a, "target_entropy"_a,
      "Return (-log * (mean log probability + target entropy), its derivative by log).");
}

}  // namespace hive
