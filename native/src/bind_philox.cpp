// Python bindings of philox.hpp.
#include <pybind11/stl.h>

#include "arrays.hpp"
#include "hive/philox.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {

void bind_philox(py::module_& m) {
  m.def("philox_words", &philox_words, "seed"_a, "stream"_a, "block"_a,
        "Return the four 32-bit words of a block of Philox 4x32-10.");
  m.def(
      "philox_normals",
      [](std::uint64_t seed, std::uint64_t stream, const py::object& to, std::uint64_t first) {
        Arrays arrays(1);
        philox_normals(seed, stream, first, arrays.output<float>(to, "to"));
      },
      "seed"_a, "stream"_a, "to"_a, "first"_a = 0,
      "Write the normal numbers of a stream from number `first` on into `to`, float32 [N].\n\n"
      "They are a function of (seed, stream, number), with the same bytes on every machine.");
  m.def(
      "philox_factors",
      [](std::uint64_t seed, std::uint64_t stream, const py::object& to) {
        Arrays arrays(1);
        philox_factors(seed, stream, arrays.output<float>(to, "to"));
      },
      "seed"_a, "stream"_a, "to"_a,
      "Write sign(e) sqrt|e| of the normal numbers e of a stream into `to`, float32 [N].");
  m.def(
      "stream_words",
      [](std::uint64_t seed, std::uint64_t purpose, std::uint64_t source, std::uint64_t sequence, const py::object& words) {
        Arrays arrays(1);
        stream_words(seed, purpose, source, sequence, arrays.output<std::uint64_t>(words, "words"));
      },
      "seed"_a, "purpose"_a, "source"_a, "sequence"_a, "words"_a,
      "Write the raw words at the beginning of a stream of hive.experience.streams, uint64 [N].");
}

}  // namespace hive
