// Python bindings of dense.hpp.
#include <pybind11/stl.h>

#include <optional>

#include "arrays.hpp"
#include "bound_dense.hpp"
#include "hive/team.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

// The arrays of one call. Their shapes are compared with those of the network.
class Call {
 public:
  explicit Call(const DenseNetwork& network) : network_(network) {}

  std::span<const float> block(const py::object& object, const char* name) {
    const auto found = flat_.input<float>(object, name);
    check_size(found.size(), name);
    return found;
  }

  std::span<float> gradient(const py::object& object) {
    const auto found = flat_.output<float>(object, "gradient");
    check_size(found.size(), "gradient");
    return found;
  }

  std::span<const float> observations(const py::object& object) {
    Arrays& arrays = tables_.emplace_back(2);
    const auto found = arrays.input<float>(object, "observations");
    rows = arrays.extent(0);
    check_columns(arrays.extent(1), network_.inputs(), "observations");
    return found;
  }

  template <typename T>
  T* outputs(const py::object& object, std::size_t branch, const std::string& name) {
    Arrays& arrays = tables_.emplace_back(2);
    T* found;
    if constexpr (std::is_const_v<T>) {
      found = arrays.input<float>(object, name).data();
    } else {
      found = arrays.output<float>(object, name).data();
    }
    check_columns(arrays.extent(1), branch == kInputs ? network_.inputs() : network_.outputs(branch), name);
    if (arrays.extent(0) != rows) {
      throw py::value_error(name + " has " + std::to_string(arrays.extent(0)) + " rows, expected " +
                            std::to_string(rows));
    }
    return found;
  }

  static constexpr std::size_t kInputs = static_cast<std::size_t>(-1);
  std::size_t rows = 0;

 private:
  void check_size(std::size_t size, const std::string& name) const {
    if (size == network_.parameters()) return;
    throw py::value_error(name + " has " + std::to_string(size) + " elements, expected " +
                          std::to_string(network_.parameters()));
  }

  static void check_columns(std::size_t found, std::size_t expected, const std::string& name) {
    if (found == expected) return;
    throw py::value_error(name + " has " + std::to_string(found) + " columns, expected " + std::to_string(expected));
  }

  const DenseNetwork& network_;
  Arrays flat_{1};
  std::vector<Arrays> tables_;
};

void forward(DenseNetwork& network, const py::object& block, const py::object& observations, const py::list& outputs,
             bool keep) {
  Call call(network);
  const auto weights = call.block(block, "block");
  const auto seen = call.observations(observations);
  if (outputs.empty() || outputs.size() > network.branches()) {
    throw py::value_error("outputs has " + std::to_string(outputs.size()) + " arrays, expected 1 to " +
                          std::to_string(network.branches()));
  }
  std::vector<float*> to;
  for (const py::handle output : outputs) {
    to.push_back(call.outputs<float>(py::reinterpret_borrow<py::object>(output), to.size(), "outputs"));
  }
  const py::gil_scoped_release released;
  network.forward(weights, seen, call.rows, to, keep);
}

void backward(DenseNetwork& network, const py::object& block, const py::object& observations, const py::list& to_outputs,
              const std::optional<py::object>& gradient, const std::optional<py::object>& to_observations) {
  Call call(network);
  const auto weights = call.block(block, "block");
  const auto out = gradient ? call.gradient(*gradient) : std::span<float>{};
  const auto seen = call.observations(observations);
  if (call.rows != network.kept_rows()) {
    throw py::value_error("observations has " + std::to_string(call.rows) + " rows, the last pass with keep had " +
                          std::to_string(network.kept_rows()));
  }
  if (to_outputs.size() > network.branches()) throw py::value_error("to_outputs has more arrays than branches");
  std::vector<const float*> slopes;
  for (const py::handle each : to_outputs) {
    const std::size_t branch = slopes.size();
    slopes.push_back(each.is_none() ? nullptr
                                    : call.outputs<const float>(py::reinterpret_borrow<py::object>(each), branch,
                                                                "to_outputs"));
  }
  std::span<float> inputs;
  if (to_observations) {
    inputs = {call.outputs<float>(*to_observations, Call::kInputs, "to_observations"), call.rows * network.inputs()};
  }
  const py::gil_scoped_release released;
  network.backward(weights, seen, slopes, out, inputs);
}

}  // namespace

void bind_dense(py::module_& m) {
  m.def("dense_instructions", &dense_instructions,
        "Return the instructions that dense networks use: \"avx512\", \"avx2\" or \"plain\".");
  m.def("set_threads", &set_threads, "count"_a, "spin_us"_a = 20,
        "Set how many threads of this process compute large passes of dense networks: 1, the default, to 256.\n\n"
        "spin_us: how long the others look for the next pass before they sleep. No result depends on either. Raises\n"
        "ValueError for other counts.");
  m.def("threads", &threads, "Return the number of threads that `set_threads` has set.");
  py::class_<DenseNetwork>(m, "DenseNetwork",
                           "Forward and backward passes of branches of linear layers over a flat block of weights.\n\n"
                           "branches: for each its layers, dictionaries with inputs, outputs, weight, bias (offsets in\n"
                           "floats), activation (\"none\", \"tanh\", \"relu\", \"silu\") and for a layer norm scale,\n"
                           "shift, epsilon. parameters: elements of the block. Raises ValueError for layers that do not\n"
                           "fit each other or the block. A pass with `keep` and its backward pass belong to one thread.")
      .def(py::init(&network_of), "branches"_a, "parameters"_a)
      .def("forward", &forward, "block"_a, "observations"_a, "outputs"_a, py::kw_only(), "keep"_a = false,
           "Write the outputs, float32 [N, width] each, of as many branches as `outputs` has arrays.\n\n"
           "block: float32 [parameters]. observations: float32 [N, inputs]. keep: what `backward` needs.")
      .def("backward", &backward, "block"_a, "observations"_a, "to_outputs"_a, "gradient"_a, py::kw_only(),
           "to_observations"_a = py::none(),
           "Write the gradients of the layers into `gradient`, float32 [parameters], from those of the outputs.\n\n"
           "block, observations: those of the last forward pass with keep. to_outputs: for each branch float32\n"
           "[N, width], or None if it has none; its layers' gradients then stay as they are. gradient: None: only\n"
           "`to_observations` is computed, float32 [N, inputs], the gradient of the observations.");
}

}  // namespace hive
