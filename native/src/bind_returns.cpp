// Python bindings of returns.hpp.
#include "arrays.hpp"
#include "hive/returns.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

struct Call {
  Arrays arrays{2};
  Rollout rollout{};
  std::span<float> advantages;
  std::span<float> targets;

  Call(const py::object& rewards, const py::object& values, const py::object& next_values, const py::object& terminated,
       const py::object& truncated, const py::object& valid, const py::object& to_advantages,
       const py::object& to_targets) {
    rollout.rewards = arrays.input<float>(rewards, "rewards");
    rollout.steps = arrays.extent(0);
    rollout.envs = arrays.extent(1);
    rollout.values = arrays.input<float>(values, "values");
    rollout.next_values = arrays.input<float>(next_values, "next_values");
    rollout.terminated = arrays.input<std::uint8_t>(terminated, "terminated");
    rollout.truncated = arrays.input<std::uint8_t>(truncated, "truncated");
    rollout.valid = arrays.input<std::uint8_t>(valid, "valid");
    advantages = arrays.output<float>(to_advantages, "advantages");
    targets = arrays.output<float>(to_targets, "targets");
  }
};

void gae_arrays(const py::object& rewards, const py::object& values, const py::object& next_values,
                const py::object& terminated, const py::object& truncated, const py::object& valid,
                const py::object& advantages, const py::object& targets, double discount, double gae_lambda) {
  const Call call(rewards, values, next_values, terminated, truncated, valid, advantages, targets);
  const py::gil_scoped_release released;
  gae(call.rollout, discount, gae_lambda, call.advantages, call.targets);
}

void n_step_arrays(const py::object& rewards, const py::object& values, const py::object& next_values,
                   const py::object& terminated, const py::object& truncated, const py::object& valid,
                   const py::object& advantages, const py::object& targets, double discount, std::int64_t n) {
  if (n < 1) throw py::value_error("n must be at least 1");
  const Call call(rewards, values, next_values, terminated, truncated, valid, advantages, targets);
  const py::gil_scoped_release released;
  n_step_returns(call.rollout, discount, static_cast<std::size_t>(n), call.advantages, call.targets);
}

void vtrace_arrays(const py::object& rewards, const py::object& values, const py::object& next_values,
                   const py::object& log_ratios, const py::object& terminated, const py::object& truncated,
                   const py::object& valid, const py::object& advantages, const py::object& targets, double discount,
                   double gae_lambda, double rho_clip, double c_clip) {
  Call call(rewards, values, next_values, terminated, truncated, valid, advantages, targets);
  const auto ratios = call.arrays.input<float>(log_ratios, "log_ratios");
  const py::gil_scoped_release released;
  vtrace(call.rollout, ratios, discount, gae_lambda, rho_clip, c_clip, call.advantages, call.targets);
}

// Keeps the GIL, because it takes microseconds.
py::tuple value_fit_arrays(const py::object& values, const py::object& targets, const py::object& weights) {
  Arrays arrays{1};
  const auto of_values = arrays.input<float>(values, "values");
  const auto of_targets = arrays.input<float>(targets, "targets");
  const ValueFit fit = value_fit(of_values, of_targets, arrays.input<float>(weights, "weights"));
  return py::make_tuple(fit.explained_variance, fit.target_rms);
}

}  // namespace

void bind_returns(py::module_& m) {
  m.def("gae", &gae_arrays, "rewards"_a, "values"_a, "next_values"_a, "terminated"_a, "truncated"_a, "valid"_a,
        "advantages"_a, "targets"_a, py::kw_only(), "discount"_a, "gae_lambda"_a,
        "Write generalised advantage estimates, and targets = advantages + values (lambda-returns).\n\n"
        "Arrays are [T, B], masks uint8, the rest float32. Source: Schulman et al. 2016.");
  m.def("n_step_returns", &n_step_arrays, "rewards"_a, "values"_a, "next_values"_a, "terminated"_a, "truncated"_a,
        "valid"_a, "advantages"_a, "targets"_a, py::kw_only(), "discount"_a, "n"_a,
        "Write n-step returns to `targets` and targets - values to `advantages`; arrays as for gae.\n\n"
        "Source: Sutton and Barto 2018, section 7.1.");
  m.def("vtrace", &vtrace_arrays, "rewards"_a, "values"_a, "next_values"_a, "log_ratios"_a, "terminated"_a,
        "truncated"_a, "valid"_a, "advantages"_a, "targets"_a, py::kw_only(), "discount"_a, "gae_lambda"_a,
        "rho_clip"_a, "c_clip"_a,
        "Write V-trace targets and the advantages of their policy gradient; arrays as for gae.\n\n"
        "`log_ratios` is float32: the log probability of each action under the current minus the behaviour policy.\n"
        "Source: Espeholt et al. 2018, equation 1.");
  m.def("value_fit", &value_fit_arrays, "values"_a, "targets"_a, "weights"_a,
        "Return (explained variance, root mean square of the targets) of values that predict targets.\n\n"
        "Arrays are float32 [M]; the weights have the sum 1. The explained variance is at least -1, and NaN if all\n"
        "targets are equal.");
}

}  // namespace hive
