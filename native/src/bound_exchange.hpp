// What an exchange of weights for rollouts is in Python: it keeps alive whatever it refers to.
#pragma once

#include <pybind11/numpy.h>

#include <optional>
#include <utility>
#include <vector>

#include "bound_memory.hpp"
#include "bound_replay.hpp"
#include "bound_tree.hpp"
#include "kept_objects.hpp"
#include "hive/exchange.hpp"

namespace hive {

class BoundExchange : KeptObjects {
 public:
  explicit BoundExchange(const py::dict& given)
      : counts_(counts_of(field<py::dict>(given, "counts"))), writer_(writer_of(field<py::dict>(given, "replay"))),
        exchange_(memory_of(given)) {}

  Exchange& exchange() { return exchange_; }

  // (returns [n], lengths [n], columns [n], infos [n * K], updates, env_steps), or None.
  py::object take_ended() {
    const std::optional<EndedEpisodes> ended = exchange_.take_ended();
    if (!ended) return py::none();
    return py::make_tuple(array(ended->returns), array(ended->lengths), array(ended->columns), array(ended->infos),
                          ended->updates, ended->env_steps);
  }

 private:
  template <typename T>
  static py::array_t<T> array(const std::vector<T>& values) {
    return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
  }

  static LedgerPlaces counts_of(const py::dict& given) {
    return {field<std::size_t>(given, "rollouts"), field<std::size_t>(given, "env_steps"),
            field<std::size_t>(given, "episodes")};
  }

  ReplayWriter writer_of(const py::dict& given) {
    const ReplayRows& rows = bound<BoundReplay>(given, "rows").rows();
    PriorityTree& tree = bound<BoundTree>(given, "tree").tree();
    return {rows, tree, {field<std::size_t>(given, "kept"), field<std::size_t>(given, "n_step")},
            field<double>(given, "alpha"), field<float>(given, "epsilon"), counts_};
  }

  ExchangeMemory memory_of(const py::dict& given) {
    ExchangeMemory memory{};
    for (const auto& [slab, slots, page] : field<std::vector<std::tuple<py::object, py::object, py::object>>>(given, "lines")) {
      const py::dict line("slab"_a = slab, "slots"_a = slots, "page"_a = page);
      memory.lines.push_back({&bound<PySlab>(line, "slab"), blocks(line, "slots"), bound<PyPage>(line, "page").page});
    }
    if (memory.lines.empty()) throw py::value_error("an exchange has lines");
    const auto rollout = field<py::dict>(given, "rollout");
    const auto place = [&](const char* name) { return field<std::size_t>(rollout, name); };
    memory.rollout = {place("header"),     place("observations"), place("actions"),     place("final_observations"),
                      place("rewards"),    place("episode_returns"), place("errors"),   place("infos"),
                      place("terminated"), place("truncated"),    place("valid"),       place("final_index"),
                      place("episode_lengths")};
    memory.ledger = &bound<PyBoard>(given, "ledger");
    memory.ledger_blocks = blocks(given, "ledger_blocks");
    const auto fields = field<py::dict>(given, "ledger_fields");
    const auto at = [&](const char* name) { return field<std::size_t>(fields, name); };
    memory.fields = {at("bytes"), at("counters"), at("written"), at("rollouts"), at("returns"), at("infos"), at("kept"), at("info_count")};
    memory.behaviour = &bound<PyBoard>(given, "behaviour");
    memory.behaviour_blocks = blocks(given, "behaviour_blocks");
    memory.behaviour_bytes = field<std::size_t>(given, "behaviour_bytes");
    memory.writer = &writer_;
    memory.counts = counts_;
    memory.learner = owner_of(given, "learner");
    memory.page = bound<PyPage>(given, "page").page;
    memory.wait_phase = field<int>(given, "wait_phase");
    memory.replay_phase = field<int>(given, "replay_phase");
    memory.runtime = field<int>(given, "runtime");
    return memory;
  }

  LedgerPlaces counts_;
  ReplayWriter writer_;
  Exchange exchange_;
};

}  // namespace hive
