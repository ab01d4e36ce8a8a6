// Python bindings of row words. The limits release the GIL.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "hive/row_words.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

std::uint64_t nanoseconds(double seconds) {
  if (!(seconds >= 0 && seconds <= 3600)) throw py::value_error("a limit is 0 to 3600 seconds");
  return static_cast<std::uint64_t>(seconds * 1e9);
}

template <typename Word>
struct Placed {
  Placed(const py::buffer& buffer, std::size_t index) : info(buffer.request(true)) {
    const auto bytes = static_cast<std::size_t>(info.size * info.itemsize);
    if (info.ndim != 1 || reinterpret_cast<std::uintptr_t>(info.ptr) % sizeof(Word) != 0 || index >= bytes / sizeof(Word))
      throw py::value_error("row words are in aligned memory that has room for them");
    word = static_cast<Word*>(info.ptr) + index;
  }
  py::buffer_info info;  // keeps the memory alive
  Word* word;
};

using PyRowWord = Placed<RowWord>;
using PyRowGate = Placed<RowGate>;

}  // namespace

void bind_row_words(py::module_& m) {
  m.attr("ROW_WORD_BYTES") = sizeof(RowWord);
  py::class_<PyRowWord>(m, "RowWord")
      .def(py::init<const py::buffer&, std::size_t>(), "memory"_a, "index"_a)
      .def("order", [](PyRowWord& self, std::uint32_t command) { self.word->order(command); }, "command"_a)
      .def("answer", [](PyRowWord& self, std::uint32_t code) { self.word->answer(code); }, "code"_a)
      .def("ordered", [](PyRowWord& self, double limit_s, bool spins) {
        const auto limit = nanoseconds(limit_s);
        const py::gil_scoped_release released;
        return self.word->ordered(limit, spins ? RowWord::kSpinNs : 0);
      }, "limit_s"_a, "spins"_a = true)
      .def("answered", [](PyRowWord& self, double limit_s, bool spins) {
        const auto limit = nanoseconds(limit_s);
        const py::gil_scoped_release released;
        return self.word->answered(limit, spins ? RowWord::kSpinNs : 0);
      }, "limit_s"_a, "spins"_a = true);
  py::class_<PyRowGate>(m, "RowGate")
      .def(py::init<const py::buffer&, std::size_t>(), "memory"_a, "index"_a)
      .def("expect", [](PyRowGate& self, std::int32_t arrivals) { self.word->expect(arrivals); }, "arrivals"_a)
      .def("arrive", [](PyRowGate& self) { self.word->arrive(); })
      .def("wait", [](PyRowGate& self, double limit_s, bool spins) {
        const auto limit = nanoseconds(limit_s);
        const py::gil_scoped_release released;
        return self.word->wait(limit, spins ? RowWord::kSpinNs : 0);
      }, "limit_s"_a, "spins"_a = true);
}

}  // namespace hive
