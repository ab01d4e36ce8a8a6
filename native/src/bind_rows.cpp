// Python bindings of rows.hpp, which read the results of environments in their usual forms.
//
// Usual are aligned arrays of float32, float64, uint8 and bool, and tuples of plain Python and NumPy numbers.
// Everything else, including invalid values, is refused without an error: slower Python code then converts the values
// or raises. The only code of an environment that runs here is the conversion of its flags to bool.
#include <algorithm>
#include <array>
#include <cstring>

#include "checked_row.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

// A double holds every integer up to this one. The conversion of a larger one by NumPy depends on the other rewards.
constexpr long long kExactInteger = 1LL << 53;

// Whether the elements have type T and are aligned to their size.
template <typename T>
bool holds(const py::array& array) {
  static_assert(alignof(T) == sizeof(T));
  // Compares the descriptor object, because a type of the other byte order has the same number.
  return array.dtype().is(py::dtype::of<T>()) && (array.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_);
}

template <typename T>
bool store_array(const py::array& array, float* to) {
  const auto* data = static_cast<const T*>(array.data());
  if (array.flags() & py::array::c_style) {  // any number of dimensions
    return store({data, 1, static_cast<std::size_t>(array.size()), 0, 1}, to);
  }
  const auto extent = [&](py::ssize_t axis) { return static_cast<std::size_t>(array.shape(axis)); };
  const auto step = [&](py::ssize_t axis) { return array.strides(axis) / static_cast<py::ssize_t>(sizeof(T)); };
  if (array.ndim() == 1) return store({data, extent(0), 1, step(0), 1}, to);
  return array.ndim() == 2 && store({data, extent(0), extent(1), step(0), step(1)}, to);
}

// Copies an array to `to`, which has the same size, as float32 or else uint8. False if it is not usual or not finite.
bool store_any(const py::array& array, char* to, bool as_floats) {
  if (!as_floats) {
    if (!holds<std::uint8_t>(array) || !(array.flags() & py::array::c_style)) return false;
    std::memcpy(to, array.data(), static_cast<std::size_t>(array.nbytes()));
    return true;
  }
  if (holds<float>(array)) return store_array<float>(array, reinterpret_cast<float*>(to));
  return holds<double>(array) && store_array<double>(array, reinterpret_cast<float*>(to));
}

bool same_shape(const py::array& array, const py::array& out, py::ssize_t out_begin) {
  if (array.ndim() != out.ndim() - out_begin) return false;
  return std::equal(array.shape(), array.shape() + array.ndim(), out.shape() + out_begin);
}

// Whether each row out[b] is contiguous. The rows themselves may lie apart, as parts of longer rows.
bool rows_are_contiguous(const py::array& out) {
  if (out.size() == 0) return true;  // NumPy gives such arrays any strides
  py::ssize_t bytes = out.itemsize();
  for (py::ssize_t axis = out.ndim() - 1; axis > 0; --axis) {
    if (out.shape(axis) != 1 && out.strides(axis) != bytes) return false;
    bytes *= out.shape(axis);
  }
  return true;
}

bool is_array(const PyObject* object) { return py::isinstance<py::array>(py::handle(const_cast<PyObject*>(object))); }

bool store_observations(const py::object& observations, py::array& out) {
  const bool floats = holds<float>(out);
  if (!out.writeable() || out.ndim() == 0 || !rows_are_contiguous(out) || !(floats || holds<std::uint8_t>(out))) {
    return false;
  }
  auto* to = static_cast<char*>(out.mutable_data());
  if (is_array(observations.ptr())) {
    const auto array = py::reinterpret_borrow<py::array>(observations);
    return (out.flags() & py::array::c_style) && same_shape(array, out, 0) && store_any(array, to, floats);
  }
  const bool sequence = PyTuple_Check(observations.ptr()) || PyList_Check(observations.ptr());
  if (!sequence || PySequence_Fast_GET_SIZE(observations.ptr()) != out.shape(0)) return false;
  PyObject* const* items = PySequence_Fast_ITEMS(observations.ptr());
  for (py::ssize_t b = 0; b < out.shape(0); ++b, to += out.strides(0)) {
    if (!is_array(items[b])) return false;
    const auto array = py::reinterpret_borrow<py::array>(items[b]);
    if (!same_shape(array, out, 1) || !store_any(array, to, floats)) return false;
  }
  return true;
}

// Whether reading its value runs no code of users: Python's integers, and NumPy's.
bool is_integer(PyObject* object) {
  static const auto* const numbers = new py::object(py::module_::import("numpy").attr("integer"));
  return PyLong_Check(object) || PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(numbers->ptr()));
}

// Writes float32 [B, n]: 1 for the value of each of B integers, counted from `first`. False for other objects.
bool store_choices(const py::object& values, long long first, py::array& out) {
  const bool sequence = PyTuple_Check(values.ptr()) || PyList_Check(values.ptr());
  if (!sequence || !holds<float>(out) || !out.writeable() || out.ndim() != 2 || !rows_are_contiguous(out)) return false;
  if (PySequence_Fast_GET_SIZE(values.ptr()) != out.shape(0)) return false;
  const auto count = static_cast<unsigned long long>(out.shape(1));
  PyObject* const* items = PySequence_Fast_ITEMS(values.ptr());
  auto* row = static_cast<char*>(out.mutable_data());
  for (py::ssize_t b = 0; b < out.shape(0); ++b, row += out.strides(0)) {
    if (!is_integer(items[b])) return false;
    const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(items[b]));
    if (!number) throw py::error_already_set();
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    const auto place = static_cast<unsigned long long>(value) - static_cast<unsigned long long>(first);
    if (overflow || value < first || place >= count) return false;
    auto* const to = reinterpret_cast<float*>(row);
    std::fill_n(to, count, 0.0F);
    to[place] = 1.0F;
  }
  return true;
}

// Reads a Python number; NumPy's float64 is a subclass of float. False for other objects.
bool read_number(PyObject* object, float& to) {
  if (PyFloat_Check(object)) {
    to = static_cast<float>(PyFloat_AS_DOUBLE(object));
    return true;
  }
  if (!PyLong_Check(object)) return false;
  int overflow = 0;
  const long long integer = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow || integer > kExactInteger || integer < -kExactInteger) return false;
  to = static_cast<float>(integer);
  return true;
}

bool read_rewards(const py::object& rewards, std::span<float> to) {
  const auto envs = static_cast<py::ssize_t>(to.size());
  if (PyTuple_Check(rewards.ptr())) {
    if (PyTuple_GET_SIZE(rewards.ptr()) != envs) return false;
    for (py::ssize_t b = 0; b < envs; ++b) {
      if (!read_number(PyTuple_GET_ITEM(rewards.ptr(), b), to[static_cast<std::size_t>(b)])) return false;
    }
    return true;
  }
  if (!is_array(rewards.ptr())) return false;
  const auto array = py::reinterpret_borrow<py::array>(rewards);
  return array.ndim() == 1 && array.shape(0) == envs && store_any(array, reinterpret_cast<char*>(to.data()), true);
}

bool read_flags(const py::object& flags, std::span<std::uint8_t> to) {
  const auto envs = static_cast<py::ssize_t>(to.size());
  if (PyTuple_Check(flags.ptr())) {
    if (PyTuple_GET_SIZE(flags.ptr()) != envs) return false;
    for (py::ssize_t b = 0; b < envs; ++b) {
      const int truth = PyObject_IsTrue(PyTuple_GET_ITEM(flags.ptr(), b));
      if (truth < 0) throw py::error_already_set();
      to[static_cast<std::size_t>(b)] = static_cast<std::uint8_t>(truth);
    }
    return true;
  }
  if (!is_array(flags.ptr())) return false;
  const auto array = py::reinterpret_borrow<py::array>(flags);
  if (array.ndim() != 1 || array.shape(0) != envs || !holds<bool>(array)) return false;
  const auto* from = static_cast<const char*>(array.data());
  for (std::uint8_t& flag : to) {
    flag = *from != 0;
    from += array.strides(0);
  }
  return true;
}

// [(observation, reward, terminated, truncated, info), ...] -> (observations, rewards, terminated, truncated), each a
// tuple; None if a result is not a tuple of five. Equals zip(*results) without passing B arguments.
py::object columns(const py::list& results) {
  constexpr py::ssize_t kValues = 5, kKept = 4;
  const py::ssize_t envs = PyList_GET_SIZE(results.ptr());
  const std::array<py::tuple, kKept> kept{py::tuple(envs), py::tuple(envs), py::tuple(envs), py::tuple(envs)};
  for (py::ssize_t b = 0; b < envs; ++b) {
    PyObject* result = PyList_GET_ITEM(results.ptr(), b);
    if (!PyTuple_Check(result) || PyTuple_GET_SIZE(result) != kValues) return py::none();
    for (py::ssize_t k = 0; k < kKept; ++k) {
      PyTuple_SET_ITEM(kept[static_cast<std::size_t>(k)].ptr(), b, Py_NewRef(PyTuple_GET_ITEM(result, k)));
    }
  }
  return py::make_tuple(kept[0], kept[1], kept[2], kept[3]);
}

py::object finish(Episodes& episodes, const py::object& rewards, const py::object& terminated,
                  const py::object& truncated, const CheckedRow& checked) {
  const Row& row = checked.row;
  if (row.rewards.size() != episodes.envs()) {
    throw py::value_error("the row is of " + std::to_string(row.rewards.size()) + " environments, expected " +
                          std::to_string(episodes.envs()));
  }
  if (!read_rewards(rewards, row.rewards) || !read_flags(terminated, row.terminated) ||
      !read_flags(truncated, row.truncated)) {
    return py::none();
  }
  const std::ptrdiff_t count = episodes.finish(row);
  if (count < 0) return py::none();
  py::list ended, cut;
  for (std::size_t b = 0; count > 0 && b < episodes.envs(); ++b) {
    if (row.terminated[b] || row.truncated[b]) ended.append(b);
    if (row.truncated[b]) cut.append(b);
  }
  return py::make_tuple(std::move(ended), std::move(cut));
}

}  // namespace

void bind_rows(py::module_& m) {
  using Object = const py::object&;
  py::class_<CheckedRow>(m, "Row", "A row of B environments; arrays but the last two are [B].")
      .def(py::init<Object, Object, Object, Object, Object, Object, Object, Object, Object>(), "rewards"_a,
           "terminated"_a, "truncated"_a, "valid"_a, "episode_returns"_a, "episode_lengths"_a, "final_index"_a,
           "observations"_a = py::none(), "finals"_a = py::none());
  py::class_<Episodes>(m, "Episodes", "The current episodes of B environments.")
      .def(py::init<std::size_t, bool, std::int64_t>(), "envs"_a, "resets_in_next_step"_a, "limit"_a = 0)
      .def("reset", &Episodes::reset, "Start an episode in every environment and discard the current ones.")
      .def("finish", &finish, "rewards"_a, "terminated"_a, "truncated"_a, "row"_a,
           "Write a row from the results of one step; return (environments that ended, those of them truncated).\n\n"
           "Returns None, with the row undefined and the episodes unchanged, if the results do not have a usual form\n"
           "or a reward is not finite.");
  m.def("columns", &columns, "results"_a,
        "Return tuples of the observations, rewards, terminated and truncated of single environments' results.\n\n"
        "None if a result is not a tuple of five.");
  m.def("store_observations", &store_observations, "observations"_a, "out"_a,
        "Copy observations to `out` [B, ...], float32 or uint8. False, with `out` undefined, if they do not have a\n"
        "usual form and the shape of `out`, or a number is not finite.");
  m.def("store_choices", &store_choices, "values"_a, "first"_a, "out"_a,
        "Write float32 [B, n] with 1 for each of B integers, counted from `first`. False, with `out` undefined, for\n"
        "anything but a list or tuple of integers in this range.");
}

}  // namespace hive
