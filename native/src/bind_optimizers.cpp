// Python bindings of optimizers.hpp.
#include <pybind11/stl.h>

#include "arrays.hpp"
#include "hive/optimizers.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

void check_fraction(double value, const char* name) {
  if (!(value >= 0.0 && value < 1.0)) throw py::value_error(std::string(name) + " must be in [0, 1)");
}

struct Momentum {
  std::span<const float> in;
  std::span<float> out;
};

Momentum momentum_of(Arrays& arrays, const py::object& in, const py::object& out, double momentum) {
  if (in.is_none() != out.is_none()) throw py::value_error("momentum_in and momentum_out must be given together");
  if (in.is_none()) {
    if (momentum != 0.0) throw py::value_error("momentum needs momentum_in and momentum_out");
    return {};
  }
  const std::span<const float> before = arrays.input<float>(in, "momentum_in");
  return {before, arrays.output<float>(out, "momentum_out", "momentum_in")};
}

bool adam(const py::object& parameters_in, const py::object& parameters_out, const py::object& gradient,
          const py::object& exp_avg_in, const py::object& exp_avg_out, const py::object& exp_avg_sq_in,
          const py::object& exp_avg_sq_out, std::int64_t step, double learning_rate, double beta1, double beta2,
          double epsilon, double weight_decay, bool decoupled, bool rectified, double gradient_scale) {
  if (step < 1) throw py::value_error("step must be at least 1, the number of this step");
  check_fraction(beta1, "beta1");
  check_fraction(beta2, "beta2");
  Arrays arrays(1);
  const auto from = arrays.input<float>(parameters_in, "parameters_in");
  const auto to = arrays.output<float>(parameters_out, "parameters_out", "parameters_in");
  const auto slope = arrays.input<float>(gradient, "gradient");
  const auto mean = arrays.input<float>(exp_avg_in, "exp_avg_in");
  const auto next_mean = arrays.output<float>(exp_avg_out, "exp_avg_out", "exp_avg_in");
  const auto square = arrays.input<float>(exp_avg_sq_in, "exp_avg_sq_in");
  const auto next_square = arrays.output<float>(exp_avg_sq_out, "exp_avg_sq_out", "exp_avg_sq_in");
  const py::gil_scoped_release released;
  return adam_step({step, learning_rate, beta1, beta2, epsilon, weight_decay, decoupled, rectified, gradient_scale},
                   from, to, slope, mean, next_mean, square, next_square);
}

bool rmsprop(const py::object& parameters_in, const py::object& parameters_out, const py::object& gradient,
             const py::object& square_avg_in, const py::object& square_avg_out, const py::object& momentum_in,
             const py::object& momentum_out, double learning_rate, double decay, double epsilon, double momentum,
             double weight_decay, double gradient_scale) {
  Arrays arrays(1);
  const auto from = arrays.input<float>(parameters_in, "parameters_in");
  const auto to = arrays.output<float>(parameters_out, "parameters_out", "parameters_in");
  const auto slope = arrays.input<float>(gradient, "gradient");
  const auto square = arrays.input<float>(square_avg_in, "square_avg_in");
  const auto next_square = arrays.output<float>(square_avg_out, "square_avg_out", "square_avg_in");
  const Momentum buffers = momentum_of(arrays, momentum_in, momentum_out, momentum);
  const py::gil_scoped_release released;
  return rmsprop_step({learning_rate, decay, epsilon, momentum, weight_decay, gradient_scale}, from, to, slope,
                      square, next_square, buffers.in, buffers.out);
}

bool sgd(const py::object& parameters_in, const py::object& parameters_out, const py::object& gradient,
         const py::object& momentum_in, const py::object& momentum_out, double learning_rate, double momentum,
         double weight_decay, double gradient_scale) {
  Arrays arrays(1);
  const auto from = arrays.input<float>(parameters_in, "parameters_in");
  const auto to = arrays.output<float>(parameters_out, "parameters_out", "parameters_in");
  const auto slope = arrays.input<float>(gradient, "gradient");
  const Momentum buffers = momentum_of(arrays, momentum_in, momentum_out, momentum);
  const py::gil_scoped_release released;
  return sgd_step({learning_rate, momentum, weight_decay, gradient_scale}, from, to, slope, buffers.in, buffers.out);
}

void polyak_arrays(const py::object& target_in, const py::object& source, const py::object& target_out, double rate) {
  if (!(rate >= 0.0 && rate <= 1.0)) throw py::value_error("rate must be in [0, 1]");
  Arrays arrays(1);
  const auto from = arrays.input<float>(target_in, "target_in");
  const auto towards = arrays.input<float>(source, "source");
  const auto to = arrays.output<float>(target_out, "target_out", "target_in");
  const py::gil_scoped_release released;
  polyak(from, towards, to, rate);
}

}  // namespace

void bind_optimizers(py::module_& m) {
  m.def("adam_step", &adam, "parameters_in"_a, "parameters_out"_a, "gradient"_a, "exp_avg_in"_a, "exp_avg_out"_a,
        "exp_avg_sq_in"_a, "exp_avg_sq_out"_a, py::kw_only(), "step"_a, "learning_rate"_a, "beta1"_a, "beta2"_a,
        "epsilon"_a, "weight_decay"_a, "decoupled"_a, "rectified"_a, "gradient_scale"_a,
        "Make one step of Adam over float32 blocks [P]; `step` counts from 1. `decoupled`: AdamW. `rectified`: RAdam.\n\n"
        "Returns whether all outputs are finite.");
  m.def("rmsprop_step", &rmsprop, "parameters_in"_a, "parameters_out"_a, "gradient"_a, "square_avg_in"_a,
        "square_avg_out"_a, "momentum_in"_a, "momentum_out"_a, py::kw_only(), "learning_rate"_a, "decay"_a,
        "epsilon"_a, "momentum"_a, "weight_decay"_a, "gradient_scale"_a,
        "Make one step of RMSprop over float32 blocks [P]; `decay` is torch's alpha.\n\n"
        "Both momentum buffers are None if momentum is 0. Returns whether all outputs are finite.");
  m.def("sgd_step", &sgd, "parameters_in"_a, "parameters_out"_a, "gradient"_a, "momentum_in"_a, "momentum_out"_a,
        py::kw_only(), "learning_rate"_a, "momentum"_a, "weight_decay"_a, "gradient_scale"_a,
        "Make one step of SGD over float32 blocks [P]. Both momentum buffers are None if momentum is 0.\n\n"
        "Returns whether all outputs are finite.");
  m.def("polyak", &polyak_arrays, "target_in"_a, "source"_a, "target_out"_a, "rate"_a,
        "Write (1 - rate) * target + rate * source over float32 blocks [P]; a rate of 1 copies `source` exactly.");
}

}  // namespace hive
