// Python bindings of codec.hpp.
#include <pybind11/stl.h>

#include "arrays.hpp"
#include "hive/codec.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

// 16-bit floats are stored as uint16, because numpy has no BFloat16.
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

}  // namespace

void bind_codec(py::module_& m) {
  m.def("encode_bf16", &encode_bf16, "gradient"_a, "out"_a,
        "Narrow a finite float32 gradient [P] to bfloat16, as uint16 [P]; return the relative error.");
  m.def("encode_fp16", &encode_fp16, "gradient"_a, "out"_a,
        "Narrow a finite float32 gradient [P] times a power of two to float16, as uint16 [P]; return (scale, error).");
  m.def("encode_top_k", &encode_top_k, "gradient"_a, "residual"_a, "values"_a, "indices"_a,
        "Write the largest of gradient + residual [P] to `values` and `indices` [k]; the rest stays in `residual`.");
}

}  // namespace hive
