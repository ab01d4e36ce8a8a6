// A program of native steps from the dictionaries that describe them in Python (hive.learning.described).
#pragma once

#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bound_replay.hpp"
#include "hive/program.hpp"
#include "hive/program_agents.hpp"
#include "hive/program_values.hpp"

namespace hive {

namespace py = pybind11;

// The steps and their registers. It keeps everything alive that they refer to.
class BoundProgram {
 public:
  // steps: (name, keys) of each. Throws ValueError for an unknown step, and for arrays that do not fit each other.
  explicit BoundProgram(const std::vector<std::pair<std::string, py::dict>>& steps);

  const Program& program() const { return program_; }

  // The words of noise that its layers take, for each gradient.
  std::size_t noise_words() const { return noise_words_; }

  // Throws ValueError if a step reads or writes outside of so many statistics and parameters, and bytes of weights.
  void check_places(std::size_t statistics, std::size_t parameters, std::size_t bytes) const;

  // Throws IndexError for a row outside of the arrays that rows are picked from.
  void check_rows(std::span<const std::int64_t> rows) const;

 private:
  // A contiguous array of any type, as bytes. count: rows; width: bytes of a row.
  struct Table {
    const std::byte* data;
    std::size_t count, width;
  };

  // Each returns null for a name that it does not know.
  std::unique_ptr<Step> step_of(const std::string& name, const py::dict& given);
  std::unique_ptr<Step> value_step(const std::string& name, const py::dict& given);
  std::unique_ptr<Step> agent_step(const std::string& name, const py::dict& given);

  std::unique_ptr<Step> pick(const py::dict& given);
  std::unique_ptr<Step> gather(const py::dict& given);
  std::unique_ptr<Step> forward(const py::dict& given);
  std::unique_ptr<Step> ppo(const py::dict& given);

  Register& reg(const std::string& name);
  Register& reg(const py::dict& from, const char* name);
  const Register* maybe(const py::dict& from, const char* name);
  std::vector<const Register*> inputs(const py::dict& from, const char* name);
  std::vector<Register*> outputs(const py::dict& from, const char* name);
  Table table(const py::dict& from, const char* name);
  std::span<const float> floats(const py::dict& from, const char* name, std::size_t count);
  std::unique_ptr<DerivedPass> derived(const py::object& given);
  std::optional<StatisticPlaces> statistics(const py::object& given);
  BranchHeads heads_of(const std::vector<py::dict>& branch, std::size_t parameters);
  ValueInputs value_inputs(const py::dict& from);
  NextValues next_values(const py::dict& from);
  TemperatureValue temperature(const py::dict& from);
  std::vector<std::size_t> places(const py::dict& from, std::size_t count);
  void need_statistics(std::size_t count) { statistics_ = std::max(statistics_, count); }
  void need_parameters(std::size_t count) { parameters_ = std::max(parameters_, count); }

  std::vector<py::object> kept_;
  std::vector<std::unique_ptr<Arrays>> arrays_;
  std::map<std::string, std::unique_ptr<Register>> registers_;
  Transitions into_;
  std::map<std::string, Forward*> passes_;  // those that are kept
  std::size_t rows_ = 0;
  std::size_t noise_words_ = 0;
  std::size_t statistics_ = 0, parameters_ = 0, bytes_ = 0;  // that the steps read and write at most
  Program program_;
};

}  // namespace hive
