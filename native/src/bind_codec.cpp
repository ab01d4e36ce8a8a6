// Python face of codec.hpp, and of the reductions of what it made.
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "arrays.hpp"
#include "hive/accumulator.hpp"
#include "hive/codec.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

using Objects = std::vector<py::object>;
using Words = std::span<const std::uint16_t>;

// 16-bit floats travel as uint16: numpy has no BFloat16.
template <typename T>
std::span<const T> floats_in(Words words) {
  return {reinterpret_cast<const T*>(words.data()), words.size()};
}

template <typename T>
std::span<T> floats_in(std::span<std::uint16_t> words) {
  return {reinterpret_cast<T*>(words.data()), words.size()};
}

struct Halved {
  Arrays arrays{1};
  std::span<const float> gradient;
  std::span<std::uint16_t> out;

  Halved(const py::object& from, const py::object& to)
      : gradient(arrays.input<float>(from, "gradient")), out(arrays.output<std::uint16_t>(to, "out")) {}
};

double encode_bf16(const py::object& gradient, const py::object& out) {
  const Halved halved(gradient, out);
  const py::gil_scoped_release released;
  return encode(halved.gradient, floats_in<BFloat16>(halved.out));
}

std::pair<float, double> encode_fp16(const py::object& gradient, const py::object& out) {
  const Halved halved(gradient, out);
  const py::gil_scoped_release released;
  const float scale = scale_for(halved.gradient);
  return {scale, encode(halved.gradient, scale, floats_in<Float16>(halved.out))};
}

double encode_top_k(const py::object& gradient, const py::object& residual, const py::object& values,
                    const py::object& indices) {
  Arrays whole(1);
  Arrays part(1);
  const std::span<const float> from = whole.input<float>(gradient, "gradient");
  const std::span<float> rest = whole.output<float>(residual, "residual");
  const std::span<float> kept = part.output<float>(values, "values");
  const std::span<std::uint32_t> where = part.output<std::uint32_t>(indices, "indices");
  if (kept.size() > from.size()) throw py::value_error("values has more elements than gradient");
  const py::gil_scoped_release released;
  return keep_largest(from, rest, kept, where);
}

float weight_of(double weight, std::size_t k) {
  const auto narrow = static_cast<float>(weight);
  if (!std::isfinite(narrow)) throw py::value_error("weights[" + std::to_string(k) + "] must be finite in float32");
  return narrow;
}

void check_as_many(std::size_t gradients, std::size_t weights) {
  if (gradients == weights) return;
  throw py::value_error("gradients and weights must be as many, got " + std::to_string(gradients) + " and " +
                        std::to_string(weights));
}

template <typename T>
Reduction reduce_half(const Objects& gradients, const std::vector<double>& weights, const py::object& out) {
  check_as_many(gradients.size(), weights.size());
  Arrays arrays(1);
  const std::span<float> result = arrays.output<float>(out, "out");
  std::vector<Weighted<T>> weighted;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    const Words words = arrays.input<std::uint16_t>(gradients[k], "gradients[" + std::to_string(k) + "]");
    weighted.push_back({floats_in<T>(words), weight_of(weights[k], k)});
  }
  const py::gil_scoped_release released;
  return reduce_wide(weighted, result);
}

Reduction reduce_top_k(const Objects& values, const Objects& indices, const std::vector<double>& weights,
                       const py::object& out) {
  check_as_many(values.size(), weights.size());
  check_as_many(indices.size(), weights.size());
  Arrays whole(1);
  Arrays parts(1);
  const std::span<float> result = whole.output<float>(out, "out");
  std::vector<std::pair<std::span<const float>, std::span<const std::uint32_t>>> sparse;
  std::vector<float> factors;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    const std::string index = "[" + std::to_string(k) + "]";
    const std::span<const float> kept = parts.input<float>(values[k], "values" + index);
    sparse.emplace_back(kept, parts.input<std::uint32_t>(indices[k], "indices" + index));
    factors.push_back(weight_of(weights[k], k));
  }
  const py::gil_scoped_release released;
  std::fill(result.begin(), result.end(), 0.0F);
  std::int64_t bad = -1;
  for (std::size_t k = 0; k < sparse.size(); ++k) {
    if (factors[k] == 0.0F) continue;
    const bool fits = scatter(sparse[k].first, sparse[k].second, factors[k], result);
    const bool finite =
        std::ranges::all_of(sparse[k].first, [](float value) { return std::isfinite(value); });
    if (bad < 0 && !(fits && finite)) bad = static_cast<std::int64_t>(k);
  }
  const double size = bad < 0 ? norm(result) : std::numeric_limits<double>::quiet_NaN();
  return {size, std::isfinite(size), bad, -1};
}

}  // namespace

void bind_codec(py::module_& m) {
  m.def("encode_bf16", &encode_bf16, "gradient"_a, "out"_a,
        "Narrow a finite float32 gradient [P] to bfloat16, as uint16 [P]; the relative error.");
  m.def("encode_fp16", &encode_fp16, "gradient"_a, "out"_a,
        "Narrow a finite float32 gradient [P] times a power of two to float16, as uint16 [P]; (that scale, error).");
  m.def("encode_top_k", &encode_top_k, "gradient"_a, "residual"_a, "values"_a, "indices"_a,
        "Write the largest of gradient + residual [P] to `values` and `indices` [k]; the rest stays in `residual`.");
  m.def("reduce_bf16", &reduce_half<BFloat16>, "gradients"_a, "weights"_a, "out"_a,
        "`reduce` of bfloat16 gradients, uint16 [P], to float32.");
  m.def("reduce_fp16", &reduce_half<Float16>, "gradients"_a, "weights"_a, "out"_a,
        "`reduce` of float16 gradients, uint16 [P], to float32.");
  m.def("reduce_top_k", &reduce_top_k, "values"_a, "indices"_a, "weights"_a, "out"_a,
        "`reduce` of sparse gradients. An index beyond `out` counts as not finite.");
}

}  // namespace hive
