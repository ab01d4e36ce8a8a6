// Python bindings of compiled.hpp and classic_control.hpp, and the loader of shared libraries.
#include <dlfcn.h>

#include <pybind11/stl.h>

#include <limits>
#include <memory>

#include "bound_acting.hpp"
#include "bound_memory.hpp"
#include "checked_row.hpp"
#include "hive/classic_control.hpp"
#include "hive/compiled.hpp"
#include "hive/sines.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

constexpr py::ssize_t kFaulty = -1, kUnusual = -2;  // results of step() beside numbers of final observations

Options options_of(const py::dict& given) {
  Options options;
  for (const auto& [name, value] : given) {
    if (py::isinstance<py::str>(value)) {
      options.add(name.cast<std::string>(), value.cast<std::string>());
    } else {
      options.add(name.cast<std::string>(), value.cast<double>());
    }
  }
  return options;
}

// The structure of a library, which stays loaded until the process ends.
struct Environment {
  const hive_environment* structure;

  static Environment load(const std::string& path, const std::string& name) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw py::value_error(std::string("it cannot be loaded: ") + dlerror());
    void* const symbol = dlsym(library, name.c_str());
    if (!symbol) throw py::key_error(name);
    const Environment found{static_cast<const hive_environment*>(symbol)};
    if (const std::string fault = version_fault(*found.structure); !fault.empty()) throw py::value_error(fault);
    return found;
  }

  static py::object classic(const std::string& name) {
    const hive_environment* const found = classic_control(name);
    return found ? py::cast(Environment{found}) : py::none();
  }

  hive_description described(const py::dict& given) const {
    Options options = options_of(given);
    std::string error;
    const hive_description found = describe(*structure, options, error);
    if (!error.empty()) throw py::value_error(error);
    return found;
  }

  py::dict sizes(const py::dict& given) const {
    const hive_description found = described(given);
    const bool continuous = found.action_kind == HIVE_CONTINUOUS;
    py::list shape, choices, low, high;
    for (int i = 0; i < found.observation_dimensions; ++i) shape.append(found.observation_shape[i]);
    for (int i = 0; i < std::max(found.action_elements, 1); ++i) {
      if (!continuous) choices.append(found.action_choices[i]);
      if (continuous) low.append(found.action_low[i]), high.append(found.action_high[i]);
    }
    return py::dict("shape"_a = py::tuple(shape), "dtype"_a = found.observation_dtype ? "uint8" : "float32",
                    "elements"_a = found.action_elements, "choices"_a = choices, "low"_a = low, "high"_a = high,
                    "max_episode_steps"_a = found.max_episode_steps);
  }
};

class Vector {
 public:
  Vector(const Environment& environment, const py::dict& given, std::size_t count) {
    Options options = options_of(given);
    const hive_description found = environment.described(given);
    vector_ = std::make_unique<CompiledVector>(*environment.structure, found, options, count);
    if (vector_->fault().kind) throw py::value_error(vector_->fault().text);
  }

  bool reset(const py::array_t<std::uint64_t, py::array::c_style>& seeds, const py::object& observations) {
    const ObservationArray to(observations);
    if (static_cast<std::size_t>(seeds.size()) != vector_->count()) throw py::value_error("seeds must be one each");
    check(to, "observations", vector_->count());
    const std::uint64_t* const from = seeds.data();
    py::gil_scoped_release release;
    return vector_->reset(from, {to.data, to.stride});
  }

  // Returns the number of final observations after the step, kFaulty if `fault` says what went wrong, and kUnusual,
  // with nothing done, for actions of another type or layout.
  py::ssize_t step(const py::object& actions, const CheckedRow& row, std::size_t finals) {
    const void* const taken = actions_of(actions);
    if (!taken) return kUnusual;
    check(row);
    Finals kept{row.finals.data, row.finals.count, finals};
    bool done = false;
    {
      py::gil_scoped_release release;
      done = vector_->step(taken, row.row, {row.observations.data, row.observations.stride}, kept);
    }
    return done ? static_cast<py::ssize_t>(kept.count) : kFaulty;
  }

  // Makes all steps of the rollout that `acting` has begun; see bind_compiled.
  py::tuple collect(PyActing& acting, const std::vector<const CheckedRow*>& rows, const PyPage* page,
                    std::pair<int, int> phases) {
    const ActingRollout& rollout = acting.rollout();
    const Sampler& sampler = acting.sampler();
    if (rows.empty() || rows.size() != rollout.steps || rollout.envs != vector_->count()) {
      throw py::value_error("the rows are not those of the rollout that has begun");
    }
    if (sampler.is_box() != vector_->continuous() || sampler.elements() != vector_->action_elements() ||
        acting.row_bytes() != vector_->observation_bytes()) {
      throw py::value_error("the policy does not fit the environments");
    }
    for (const CheckedRow* row : rows) check(*row);
    const std::size_t bytes = rollout.envs * sampler.elements() * (sampler.is_box() ? sizeof(float) : sizeof(std::int64_t));
    Finals kept{rows.front()->finals.data, rows.front()->finals.count, 0};
    std::size_t step = 0;
    {
      py::gil_scoped_release release;
      for (; step < rows.size(); ++step) {
        if (page) enter(*page->page, phases.first);
        acting.act(step);
        if (page) enter(*page->page, phases.second);
        const CheckedRow& row = *rows[step];
        if (!vector_->step(rollout.actions + step * bytes, row.row, {row.observations.data, row.observations.stride}, kept)) break;
      }
    }
    return py::make_tuple(step, kept.count);
  }

  bool reset_one(std::size_t index, const py::object& seed, const py::object& observation) {
    const ObservationArray to(observation);
    check(to, "observation", 1);
    if (index >= vector_->count()) throw py::value_error("there is no such environment");
    const std::uint64_t number = seed.is_none() ? 0 : seed.cast<std::uint64_t>();
    const std::uint64_t* const given = seed.is_none() ? nullptr : &number;
    py::gil_scoped_release release;
    return vector_->reset_one(index, given, to.data);
  }

  py::ssize_t step_all(const py::object& actions, const CheckedRow& row) {
    const void* const taken = actions_of(actions);
    if (!taken) return kUnusual;
    check(row);
    py::gil_scoped_release release;
    return vector_->step_all(taken, row.row, {row.observations.data, row.observations.stride}) ? 0 : kFaulty;
  }

  py::tuple fault() const {
    constexpr const char* kNames[] = {"", "failed", "action", "reward", "observation", "final observation"};
    const Fault& found = vector_->fault();
    return py::make_tuple(kNames[found.kind], found.environment, found.text);
  }

 private:
  // The actions [B] or [B, elements], contiguous, as int64 or float32; nullptr for any other array.
  const void* actions_of(const py::object& object) const {
    if (!py::isinstance<py::array>(object)) return nullptr;
    const auto array = py::reinterpret_borrow<py::array>(object);
    const bool typed = vector_->continuous() ? array.dtype().is(py::dtype::of<float>())
                                             : array.dtype().is(py::dtype::of<std::int64_t>());
    const std::size_t size = vector_->count() * vector_->action_elements();
    const bool usual = (array.flags() & py::array::c_style) &&
                       (array.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_) && array.ndim() >= 1 &&
                       static_cast<std::size_t>(array.shape(0)) == vector_->count();
    return typed && usual && static_cast<std::size_t>(array.size()) == size ? array.data() : nullptr;
  }

  void check(const CheckedRow& row) const {
    if (row.row.rewards.size() != vector_->count()) throw py::value_error("the row is of another number of environments");
    check(row.observations, "observations", vector_->count());
    if (row.finals.count > 0) check(row.finals, "finals", row.finals.count);
    if (row.finals.stride != static_cast<std::ptrdiff_t>(row.finals.bytes) && row.finals.count > 1) {
      throw py::value_error("finals must be contiguous");
    }
  }

  void check(const ObservationArray& array, const std::string& name, std::size_t count) const {
    if (array.count == count && array.holds(vector_->observes_floats(), vector_->observation_bytes())) return;
    throw py::value_error(name + " must be a writable array of " + std::to_string(count) + " observations, each " +
                          std::to_string(vector_->observation_bytes()) + " contiguous bytes of " +
                          (vector_->observes_floats() ? "float32" : "uint8"));
  }

  std::unique_ptr<CompiledVector> vector_;
};

void sines_cosines_of(const py::object& angles, const py::object& sines, const py::object& cosines) {
  Arrays arrays{1};
  const auto from = arrays.input<double>(angles, "angles");
  const auto to_sines = arrays.output<double>(sines, "sines");
  const auto to_cosines = arrays.output<double>(cosines, "cosines");
  py::gil_scoped_release release;
  sines_cosines(from.data(), from.size(), to_sines.data(), to_cosines.data());
}

}  // namespace

void bind_compiled(py::module_& m) {
  m.attr("ENV_VERSION") = HIVE_ENV_VERSION;
  py::class_<Environment>(m, "CompiledEnvironment", "A hive_environment of hive/env.h.")
      .def_static("load", &Environment::load, "path"_a, "name"_a,
                  "Load a shared library. Raises KeyError if it has no such constant, ValueError if it cannot be used.")
      .def_static("classic_control", &Environment::classic, "name"_a,
                  "Return the environment of a class of Gymnasium's classic control, or None.")
      .def("describe", &Environment::sizes, "options"_a,
           "Return its sizes. Raises ValueError for options or sizes that cannot be used.");
  py::class_<Vector>(m, "CompiledVector", "Environments of a library, with their episodes.")
      .def(py::init<const Environment&, const py::dict&, std::size_t>(), "environment"_a, "options"_a, "count"_a)
      .def("reset", &Vector::reset, "seeds"_a, "observations"_a, "Start an episode in every environment.")
      .def("step", &Vector::step, "actions"_a, "row"_a, "finals"_a,
           "Step every environment and write the row; return the number of final observations, -1 or -2.")
      .def("collect", &Vector::collect, "acting"_a, "rows"_a, "page"_a, "phases"_a,
           "Make the steps of the rollout that `acting` has begun, and write a row for each.\n\n"
           "page, phases: where each step enters the phases of its policy and its environments; page may be None. Return\n"
           "(steps, finals): fewer steps than rows if the next one went wrong; the number of final observations.")
      .def("reset_one", &Vector::reset_one, "index"_a, "seed"_a, "observation"_a)
      .def("step_all", &Vector::step_all, "actions"_a, "row"_a)
      .def_property_readonly("fault", &Vector::fault, "What went wrong last: (kind, environment, text).");
  m.def("sines_cosines", &sines_cosines_of, "angles"_a, "sines"_a, "cosines"_a,
        "Write sines and cosines as the compiled environments compute them; arrays are float64 [N].");
}

}  // namespace hive
