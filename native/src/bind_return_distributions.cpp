// Python bindings of return_distributions.hpp.
#include <pybind11/stl.h>

#include <optional>

#include "arrays.hpp"
#include "hive/return_distributions.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

using Object = const py::object&;

void expect(std::size_t found, std::size_t expected, const char* what) {
  if (found == expected) return;
  throw py::value_error(std::string(what) + ": " + std::to_string(found) + ", expected " + std::to_string(expected));
}

// Distributions [N, A, K], and arrays of their rows and atoms.
struct Call {
  Arrays cubes{3}, tables{2}, rows{1}, atoms{1}, taken{1};

  ReturnSizes sizes() const {
    if (cubes.extent(1) == 0 || cubes.extent(2) == 0) throw py::value_error("distributions have no actions or atoms");
    return {cubes.extent(1), cubes.extent(2)};
  }

  void check_table() const {
    expect(tables.extent(0), cubes.extent(0), "rows of targets");
    expect(tables.extent(1), cubes.extent(2), "columns of targets");
  }

  std::span<const float> support(Object object) {
    const auto found = atoms.input<float>(object, "support");
    expect(found.size(), cubes.extent(2), "elements of support");
    if (found.size() < 2) throw py::value_error("support needs two elements or more");
    return found;
  }
};

void softmax(Object columns, Object outputs) {
  Arrays arrays(3);
  const auto from = arrays.input<float>(columns, "columns");
  const auto to = arrays.output<float>(outputs, "outputs", "columns");
  if (arrays.extent(2) == 0) throw py::value_error("columns has none along the last axis");
  const py::gil_scoped_release released;
  log_softmax(arrays.extent(2), from, to);
}

void softmax_back(Object outputs, Object to_outputs, Object to_columns) {
  Arrays arrays(3);
  const auto of = arrays.input<float>(outputs, "outputs"), slopes = arrays.input<float>(to_outputs, "to_outputs");
  const auto to = arrays.output<float>(to_columns, "to_columns", "to_outputs");
  if (arrays.extent(2) == 0) throw py::value_error("outputs has none along the last axis");
  const py::gil_scoped_release released;
  log_softmax_back(arrays.extent(2), of, slopes, to);
}

std::ptrdiff_t category_targets(Object support, Object chooses, Object outputs, Object returns, Object discounts,
                                Object targets) {
  Call call;
  const auto by = call.cubes.input<float>(chooses, "chooses"), of = call.cubes.input<float>(outputs, "outputs");
  const auto sums = call.rows.input<float>(returns, "returns"), factors = call.rows.input<float>(discounts, "discounts");
  const auto to = call.tables.output<float>(targets, "targets");
  const auto atoms = call.support(support);
  call.check_table();
  expect(sums.size(), call.cubes.extent(0), "elements of returns");
  const ReturnSizes sizes = call.sizes();
  const py::gil_scoped_release released;
  return categorical_targets(sizes, atoms, by, of, sums, factors, to);
}

void targets_of_quantiles(Object chooses, Object outputs, Object returns, Object discounts, Object targets) {
  Call call;
  const auto by = call.cubes.input<float>(chooses, "chooses"), of = call.cubes.input<float>(outputs, "outputs");
  const auto sums = call.rows.input<float>(returns, "returns"), factors = call.rows.input<float>(discounts, "discounts");
  const auto to = call.tables.output<float>(targets, "targets");
  call.check_table();
  expect(sums.size(), call.cubes.extent(0), "elements of returns");
  const ReturnSizes sizes = call.sizes();
  const py::gil_scoped_release released;
  quantile_targets(sizes, by, of, sums, factors, to);
}

py::tuple category_loss(Object support, Object outputs, Object actions, Object targets,
                        const std::optional<py::object>& importance, const std::optional<py::object>& errors,
                        Object to_outputs) {
  Call call;
  const auto of = call.cubes.input<float>(outputs, "outputs");
  const auto slopes = call.cubes.output<float>(to_outputs, "to_outputs");
  const auto wanted = call.tables.input<float>(targets, "targets");
  const auto chosen = call.taken.input<std::int64_t>(actions, "actions");
  const auto factors = importance ? call.rows.input<float>(*importance, "importance") : std::span<const float>{};
  const auto sizes = errors ? call.rows.output<float>(*errors, "errors") : std::span<float>{};
  const auto atoms = call.support(support);
  call.check_table();
  expect(chosen.size(), call.cubes.extent(0), "elements of actions");
  if (importance) expect(factors.size(), call.cubes.extent(0), "elements of importance");
  if (errors) expect(sizes.size(), call.cubes.extent(0), "elements of errors");
  const ReturnSizes shape = call.sizes();
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    if (chosen[row] < 0 || chosen[row] >= static_cast<std::int64_t>(shape.actions)) {
      throw py::value_error("the action of row " + std::to_string(row) + " does not exist");
    }
  }
  QLoss loss;
  {
    const py::gil_scoped_release released;
    loss = categorical_loss(shape, atoms, of, chosen, wanted, factors, sizes, slopes);
  }
  return py::make_tuple(loss.total, loss.mean, loss.largest, loss.error);
}

}  // namespace

void bind_return_distributions(py::module_& m) {
  m.def("log_softmax", &softmax, "columns"_a, "outputs"_a,
        "Write the logarithms of softmax over the last axis of columns [N, A, K]; may be in place.");
  m.def("log_softmax_back", &softmax_back, "outputs"_a, "to_outputs"_a, "to_columns"_a,
        "Write the gradient of the columns from that of the outputs of `log_softmax`; may be in place.");
  m.def("categorical_targets", &category_targets, "support"_a, "chooses"_a, "outputs"_a, "returns"_a, "discounts"_a,
        "targets"_a,
        "Write C51's targets [N, K]: the projection of the best action's distribution of log probabilities [N, A, K].\n\n"
        "support: float32 [K]; chooses: the distributions whose expected returns find the best action. Returns the first\n"
        "row whose returns are not finite, at which it stops, or -1.");
  m.def("quantile_targets", &targets_of_quantiles, "chooses"_a, "outputs"_a, "returns"_a, "discounts"_a, "targets"_a,
        "Write QR-DQN's targets [N, K]: returns + discounts * the quantiles of the best action, of [N, A, K].");
  m.def("categorical_loss", &category_loss, "support"_a, "outputs"_a, "actions"_a, "targets"_a, "importance"_a,
        "errors"_a, "to_outputs"_a,
        "Return (loss, mean expected return of the actions taken, mean of the largest, mean absolute difference between\n"
        "those of targets and predictions); write the gradient of the log probabilities. Source: Bellemare et al. 2017.\n\n"
        "outputs: float32 [N, A, K]; actions: int64 [N]; targets: float32 [N, K]; importance, errors: float32 [N] or\n"
        "None. errors receives the divergences KL(target || prediction).");
}

}  // namespace hive
