// Python bindings of losses.hpp.
#include <pybind11/stl.h>

#include <optional>

#include "arrays.hpp"
#include "hive/losses.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

// The arrays of one call, of several shapes: those of the rows, flat, and tables with one column per output.
class Call {
 public:
  explicit Call(const Policy& policy) : policy_(policy) {}

  std::span<const float> outputs(const py::object& object) {
    const auto found = outputs_.input<float>(object, "outputs");
    expect(outputs_.extent(1), policy_.width(), "columns of outputs");
    return found;
  }

  std::span<float> to_outputs(const py::object& object) { return outputs_.output<float>(object, "to_outputs"); }

  std::span<const float> rows(const py::object& object, const char* name) { return rows_.input<float>(object, name); }
  std::span<float> to_rows(const py::object& object, const char* name) { return rows_.output<float>(object, name); }
  std::span<const float> acted(const py::object& object, const char* name) {
    return acted_.input<float>(object, name);
  }
  std::span<float> to_acted(const py::object& object, const char* name) { return acted_.output<float>(object, name); }

  // One action each of `rows` rows.
  Actions actions(const py::object& object, std::size_t rows) {
    Actions actions;
    const auto given = py::array::ensure(object);
    if (!given) throw py::type_error("actions must be a numpy array");
    Arrays& arrays = actions_.emplace_back(static_cast<int>(given.ndim()));
    if (policy_.gaussian()) {
      actions.numbers = arrays.input<float>(object, "actions");
      expect(actions.numbers.size(), rows * policy_.actions(), "elements of actions");
    } else {
      actions.choices = arrays.input<std::int64_t>(object, "actions");
      expect(actions.choices.size(), rows * policy_.actions(), "elements of actions");
    }
    if (const std::ptrdiff_t row = policy_.first_unknown(actions); row >= 0) {
      throw py::value_error("the action of row " + std::to_string(row) + " does not exist");
    }
    return actions;
  }

  static void expect(std::size_t found, std::size_t expected, const std::string& what) {
    if (found == expected) return;
    throw py::value_error(what + ": " + std::to_string(found) + ", expected " + std::to_string(expected));
  }

 private:
  const Policy& policy_;
  Arrays outputs_{2}, rows_{1}, acted_{1};
  std::vector<Arrays> actions_;
};

RowSizes sizes_of(const std::vector<std::int64_t>& sizes) {
  const bool even = sizes.size() % 2 == 0;
  const bool positive = std::all_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size >= 0; });
  if (!even || !positive) throw py::value_error("sizes has two numbers of at least 0 for each rollout");
  return {sizes};
}

void log_probs(const Policy& policy, const py::object& outputs, const py::object& actions,
               const std::vector<std::int64_t>& sizes, const py::object& to) {
  Call call(policy);
  const RowSizes rows = sizes_of(sizes);
  const auto given = call.outputs(outputs);
  Call::expect(given.size() / policy.width(), rows.all(), "rows of outputs");
  const auto taken = call.actions(actions, rows.acted());
  const auto found = call.to_acted(to, "log_probs");
  Call::expect(found.size(), rows.acted(), "elements of log_probs");
  log_probabilities(policy, given, taken, rows, found);
}

py::tuple actor_critic(const Policy& policy, const py::object& outputs, const py::object& values,
                       const py::object& actions, const std::vector<std::int64_t>& sizes,
                       const py::object& advantages, const py::object& returns, const py::object& weights,
                       float value_weight, float entropy_weight, const py::object& to_outputs,
                       const py::object& to_values) {
  Call call(policy);
  const RowSizes rows = sizes_of(sizes);
  const auto of_policy = call.outputs(outputs);
  const auto of_values = call.rows(values, "values");
  Call::expect(of_policy.size() / policy.width(), rows.all(), "rows of outputs");
  Call::expect(of_values.size(), rows.all(), "elements of values");
  const auto taken = call.actions(actions, rows.acted());
  const auto gains = call.acted(advantages, "advantages");
  Call::expect(gains.size(), rows.acted(), "elements of advantages");
  const auto targets = call.acted(returns, "returns");
  const auto by = call.acted(weights, "weights");
  const auto policy_slopes = call.to_outputs(to_outputs);
  const auto value_slopes = call.to_rows(to_values, "to_values");
  const ActorCriticLoss loss = actor_critic_loss(policy, of_policy, of_values, taken, rows, gains, targets, by,
                                                 value_weight, entropy_weight, policy_slopes, value_slopes);
  return py::make_tuple(loss.total, loss.policy, loss.value, loss.entropy, loss.mean_value);
}

py::tuple ppo(const Policy& policy, const py::object& outputs, const py::object& values, const py::object& actions,
              const py::object& behaviour_log_probs, const py::object& advantages, const py::object& returns,
              const std::optional<py::object>& behaviour_values, const std::optional<py::object>& rows, bool normalizes,
              float clip_range, float value_weight, float entropy_weight, float value_clip_range,
              const py::object& to_outputs, const py::object& to_values) {
  Call call(policy);
  const PPOSettings settings{clip_range,       value_weight, entropy_weight, behaviour_values.has_value(),
                             value_clip_range, normalizes};
  const auto of_policy = call.outputs(outputs);
  const auto of_values = call.rows(values, "values");
  Call::expect(of_values.size(), of_policy.size() / policy.width(), "elements of values");
  PPOBatch batch{};
  batch.behaviour_log_probs = call.acted(behaviour_log_probs, "behaviour_log_probs");
  const std::size_t count = batch.behaviour_log_probs.size();
  batch.actions = call.actions(actions, count);
  batch.advantages = call.acted(advantages, "advantages");
  batch.returns = call.acted(returns, "returns");
  if (behaviour_values) batch.behaviour_values = call.acted(*behaviour_values, "behaviour_values");
  Arrays picked(1);
  const auto numbers = rows ? picked.input<std::int64_t>(*rows, "rows") : std::span<const std::int64_t>{};
  Call::expect(of_values.size(), rows ? numbers.size() : count, "elements of values");
  for (const std::int64_t number : numbers) {
    if (number < 0 || static_cast<std::size_t>(number) >= count) {
      throw py::value_error("the batch has no row " + std::to_string(number));
    }
  }
  const auto policy_slopes = call.to_outputs(to_outputs);
  const auto value_slopes = call.to_rows(to_values, "to_values");
  const PPOLoss loss = ppo_loss(policy, settings, of_policy, of_values, batch, numbers, policy_slopes, value_slopes);
  return py::make_tuple(loss.total, loss.policy, loss.value, loss.entropy, loss.divergence, loss.clipped);
}

py::tuple q(const py::object& values, const py::object& actions, const py::object& targets,
            const std::optional<py::object>& weights, const std::optional<py::object>& importance,
            const std::optional<py::object>& errors, bool huber, const py::object& to_values) {
  Arrays tables(2), rows(1), taken(1);
  const auto of_values = tables.input<float>(values, "values");
  const std::size_t count = tables.extent(1);
  const auto slopes = tables.output<float>(to_values, "to_values");
  const auto to = rows.input<float>(targets, "targets");
  Call::expect(to.size(), tables.extent(0), "elements of targets");
  const auto by = weights ? rows.input<float>(*weights, "weights") : std::span<const float>{};
  const auto factors = importance ? rows.input<float>(*importance, "importance") : std::span<const float>{};
  const auto sizes = errors ? rows.output<float>(*errors, "errors") : std::span<float>{};
  const auto chosen = taken.input<std::int64_t>(actions, "actions");
  Call::expect(chosen.size(), to.size(), "elements of actions");
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    if (chosen[row] < 0 || chosen[row] >= static_cast<std::int64_t>(count)) {
      throw py::value_error("the action of row " + std::to_string(row) + " does not exist");
    }
  }
  const QLoss loss = q_loss(count, huber, of_values, chosen, to, by, factors, sizes, slopes);
  return py::make_tuple(loss.total, loss.mean, loss.largest, loss.error);
}

py::tuple quantiles(const py::object& outputs, const py::object& actions, const py::object& targets,
                    const std::optional<py::object>& importance, const std::optional<py::object>& errors,
                    const py::object& to_outputs) {
  Arrays cubes(3), tables(2), rows(1), taken(1);
  const auto given = cubes.input<float>(outputs, "outputs");
  const auto slopes = cubes.output<float>(to_outputs, "to_outputs");
  const auto wanted = tables.input<float>(targets, "targets");
  const auto chosen = taken.input<std::int64_t>(actions, "actions");
  const auto factors = importance ? rows.input<float>(*importance, "importance") : std::span<const float>{};
  const auto sizes = errors ? rows.output<float>(*errors, "errors") : std::span<float>{};
  Call::expect(tables.extent(0), cubes.extent(0), "rows of targets");
  Call::expect(chosen.size(), cubes.extent(0), "elements of actions");
  if (importance) Call::expect(factors.size(), cubes.extent(0), "elements of importance");
  if (errors) Call::expect(sizes.size(), cubes.extent(0), "elements of errors");
  const QuantileSizes shape{cubes.extent(1), cubes.extent(2), tables.extent(1)};
  if (shape.targets == 0) throw py::value_error("targets has no columns");
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    if (chosen[row] < 0 || chosen[row] >= static_cast<std::int64_t>(shape.actions)) {
      throw py::value_error("the action of row " + std::to_string(row) + " does not exist");
    }
  }
  QLoss loss;
  {
    const py::gil_scoped_release released;
    loss = quantile_loss(shape, given, chosen, wanted, factors, sizes, slopes);
  }
  return py::make_tuple(loss.total, loss.mean, loss.largest, loss.error);
}

}  // namespace

void bind_losses(py::module_& m) {
  py::class_<Policy>(m, "PolicyLosses",
                     "Losses of a policy, with their gradients with respect to its outputs.\n\n"
                     "choices: the sizes of its categorical actions, whose logits lie side by side; [] for a Gaussian of\n"
                     "`dimensions` dimensions, with outputs mean and log standard deviation. Actions are int64 [M] or\n"
                     "[M, choices], or float32 [M, ...]. Methods raise ValueError for arrays of other shapes and for\n"
                     "actions that do not exist.")
      .def(py::init<std::vector<std::size_t>, std::size_t>(), "choices"_a, "dimensions"_a = 0)
      .def("log_probs", &log_probs, "outputs"_a, "actions"_a, "sizes"_a, "log_probs"_a,
           "Write the log probabilities of the actions of acted rows, float32 [M]. sizes: as for `actor_critic`.")
      .def("actor_critic", &actor_critic, "outputs"_a, "values"_a, "actions"_a, "sizes"_a, "advantages"_a, "returns"_a,
           "weights"_a, "value_weight"_a, "entropy_weight"_a, "to_outputs"_a, "to_values"_a,
           "Return (loss, policy loss, value loss, entropy, mean value); write the gradients of the outputs.\n\n"
           "outputs: [N, width], values: [N]; sizes: for each rollout its acted rows, and those that only bootstrap;\n"
           "the rest is float32 [M], of acted rows. Source: Mnih et al. 2016.")
      .def("ppo", &ppo, "outputs"_a, "values"_a, "actions"_a, "behaviour_log_probs"_a, "advantages"_a, "returns"_a,
           "behaviour_values"_a, "rows"_a, "normalizes"_a, "clip_range"_a, "value_weight"_a, "entropy_weight"_a, "value_clip_range"_a,
           "to_outputs"_a, "to_values"_a,
           "Return (loss, policy loss, value loss, entropy, KL divergence, share clipped); write the gradients.\n\n"
           "outputs: [M, width], values: [M], of the rows of the batch that `rows`, int64 [M] or None for all, names.\n"
           "The batch is float32 [N]. behaviour_values: None: values are not clipped. normalizes: the advantages of\n"
           "these rows, to mean 0 and deviation 1. Source: Schulman et al. 2017.");
  m.def("q_loss", &q, "values"_a, "actions"_a, "targets"_a, "weights"_a, "importance"_a, "errors"_a, "huber"_a,
        "to_values"_a,
        "Return (loss, mean value taken, mean largest value, mean absolute error); write the gradient of the values.\n\n"
        "values: float32 [N, A]; actions: int64 [N]; others: float32 [N] or None. errors receives absolute errors.");
  m.def("mean", [](const py::object& numbers) {
          Arrays arrays(1);
          return mean(arrays.input<float>(numbers, "numbers"));
        }, "numbers"_a, "Return the mean of float32 [N] as a float64 sum in their order.");
  m.def("column_sums", [](const py::object& from, std::size_t first, const py::object& to) {
          Arrays table(2), sums(1);
          const auto given = table.input<float>(from, "from");
          const auto out = sums.output<float>(to, "to");
          if (first + out.size() > table.extent(1)) throw py::value_error("from has too few columns");
          column_sums(given, table.extent(1), first, out);
        }, "from_"_a, "first"_a, "to"_a,
        "Write the sums over the rows of columns of `from_`, float32 [N, W]: those from `first` on, as many as `to` has.");
  m.def("quantile_loss", &quantiles, "outputs"_a, "actions"_a, "targets"_a, "importance"_a, "errors"_a, "to_outputs"_a,
        "Return (loss, mean expected return of the actions taken, mean of the largest, mean absolute difference between\n"
        "expected returns and mean targets); write the gradient of the quantiles. Source: Dabney et al. 2018.\n\n"
        "outputs: float32 [N, A, quantiles]; actions: int64 [N]; targets: float32 [N, K]; importance, errors: float32\n"
        "[N] or None. errors receives the absolute differences.");
}

}  // namespace hive
