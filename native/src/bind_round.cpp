// Python bindings of round.hpp. A round keeps everything alive that it refers to.
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "arrays.hpp"
#include "bound_exchange.hpp"
#include "bound_program.hpp"
#include "kept_objects.hpp"
#include "hive/round.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

Range range_of(const std::pair<std::size_t, std::size_t>& given) { return {given.first, given.second}; }

class BoundRound : KeptObjects {
 public:
  explicit BoundRound(const py::dict& given) : round_(memory_of(given)) {}

  py::tuple run(const py::dict& given) {
    RoundCall call;
    call.turn = field<std::int64_t>(given, "turn");
    call.learning_rates = field<std::vector<double>>(given, "learning_rates");
    call.clip_gradients = field<double>(given, "clip_gradients");
    call.optimizer = optimizer_of(field<py::dict>(given, "optimizer"));
    call.target_interval = field<std::int64_t>(given, "target_interval");
    call.target_rate = field<double>(given, "target_rate");
    call.first_ns = field<std::int64_t>(given, "first_ns");
    call.now_ns = field<std::int64_t>(given, "now_ns");
    call.limit_ns = static_cast<std::uint64_t>(field<double>(given, "limit_s") * 1e9);
    std::vector<std::unique_ptr<Arrays>> arrays;
    std::vector<const BoundProgram*> programs;
    for (const auto& [program, mask] : field<std::vector<std::pair<const BoundProgram*, py::object>>>(given, "kinds")) {
      program->check_places(round_.memory().slot.statistics_count, round_.memory().weight.parameter_elements,
                            round_.memory().weight.weight_bytes);
      programs.push_back(program);
      call.programs.push_back(&program->program());
      call.masks.push_back(arrays.emplace_back(std::make_unique<Arrays>(1))->input<std::uint8_t>(mask, "mask"));
      if (call.masks.back().size() != round_.memory().slot.parameters) throw py::value_error("mask has another size");
    }
    call.kinds = field<std::vector<std::size_t>>(given, "which");
    if (call.learning_rates.size() != round_.memory().groups.size()) throw py::value_error("a group has no learning rate");
    for (const auto& [place, array] : field<std::vector<std::pair<std::size_t, py::array>>>(given, "collected")) {
      const Range range{place, static_cast<std::size_t>(array.nbytes())};
      if (range.first + range.count > round_.memory().state.moments) throw py::value_error("collected lies outside");
      call.collected.push_back(range);
      call.ledger.push_back(static_cast<const std::byte*>(array.data()));
    }
    if (const py::object buffers = object(given, "buffers"); !buffers.is_none()) {
      call.buffers = std::as_bytes(arrays.emplace_back(std::make_unique<Arrays>(1))->input<std::uint8_t>(buffers, "buffers"));
      const WeightFields& weight = round_.memory().weight;
      if (call.buffers.size() != weight.weight_bytes - weight.parameter_elements * sizeof(float)) {
        throw py::value_error("buffers have another size");
      }
    }
    std::vector<std::span<const std::int64_t>> batches;
    for (const py::object& batch : field<std::vector<py::object>>(given, "batches")) {
      Arrays& own = *arrays.emplace_back(std::make_unique<Arrays>(1));
      batches.push_back(batch.is_none() ? std::span<const std::int64_t>{} : own.input<std::int64_t>(batch, "rows"));
      for (const BoundProgram* program : programs) program->check_rows(batches.back());
    }
    const std::size_t updates = call.kinds.size();
    const auto known = [&](std::size_t kind) { return kind < programs.size(); };
    const auto noise = field<std::vector<py::object>>(given, "noise_words");
    if ((!round_.memory().replay && batches.size() != updates) || noise.size() != updates ||
        !std::all_of(call.kinds.begin(), call.kinds.end(), known)) {
      throw py::value_error("each update needs a kind, a batch and words of noise");
    }
    if (const py::object following = object(given, "following"); !following.is_none()) {
      const auto rounds = following.cast<py::dict>();
      call.following = {&field<BoundExchange&>(rounds, "exchange").exchange(), field<std::int64_t>(rounds, "updates"),
                        field<std::int64_t>(rounds, "rounds"), field<std::int64_t>(rounds, "last_env_steps")};
      if (!round_.memory().replay || call.following.updates < 1 || call.following.rounds < 1) {
        throw py::value_error("rounds that follow have updates, and a replay memory");
      }
    }
    for (std::size_t update = 0; update < updates; ++update) {
      Arrays& own = *arrays.emplace_back(std::make_unique<Arrays>(1));
      call.words.push_back(own.input<std::int64_t>(noise[update], "noise_words"));
      if (call.words.back().size() != programs[call.kinds[update]]->noise_words()) {
        throw py::value_error("words of noise of another number");
      }
    }
    const std::size_t columns = round_.memory().slot.statistics_count;
    py::array_t<double> statistics({updates, columns});
    std::vector<UpdateReport> reports;
    Ended ended;
    const std::span<double> means{statistics.mutable_data(), updates * columns};
    std::size_t made;
    {
      const py::gil_scoped_release released;
      made = round_.run(call, batches, reports, means, ended);
    }
    std::vector<std::pair<double, std::size_t>> found;
    for (const UpdateReport& report : reports) found.emplace_back(report.norm, report.samples);
    static constexpr const char* kNames[] = {"all", "time", "not finite", "no slot", "empty plan",
                                             "round"};
    return py::make_tuple(made, kNames[static_cast<std::size_t>(ended)], found, statistics);
  }

 private:
  static Optimizer optimizer_of(const py::dict& given) {
    const auto name = field<std::string>(given, "name");
    Optimizer optimizer{};
    optimizer.kind = name == "rmsprop" ? Optimizer::Kind::rmsprop
                     : name == "sgd"   ? Optimizer::Kind::sgd
                                       : Optimizer::Kind::adam;
    optimizer.beta1 = field<double>(given, "beta1");
    optimizer.beta2 = field<double>(given, "beta2");
    optimizer.epsilon = field<double>(given, "epsilon");
    optimizer.decay = field<double>(given, "decay");
    optimizer.momentum = field<double>(given, "momentum");
    optimizer.weight_decay = field<double>(given, "weight_decay");
    optimizer.decoupled = name == "adamw";
    optimizer.rectified = name == "radam";
    return optimizer;
  }

  RoundMemory memory_of(const py::dict& given) {
    RoundMemory memory{};
    memory.weights = &bound<PyBoard>(given, "weights");
    memory.optimizer = &bound<PyBoard>(given, "optimizer_state");
    memory.slab = &bound<PySlab>(given, "gradients");
    memory.weight_blocks = blocks(given, "weight_blocks");
    memory.optimizer_blocks = blocks(given, "optimizer_blocks");
    memory.slots = blocks(given, "slots");
    const auto slot = field<py::dict>(given, "slot");
    memory.slot = {field<std::size_t>(slot, "header"),     field<std::size_t>(slot, "moments"),
                   field<std::size_t>(slot, "norm"),       field<std::size_t>(slot, "gradient"),
                   field<std::size_t>(slot, "mask"),       field<std::size_t>(slot, "statistics"),
                   field<std::size_t>(slot, "errors_at"),  field<std::size_t>(slot, "parameters"),
                   field<std::size_t>(slot, "statistics_count"), field<std::size_t>(slot, "errors")};
    const auto weight = field<py::dict>(given, "weight");
    memory.weight = {field<std::size_t>(weight, "parameter_elements"), field<std::size_t>(weight, "weight_bytes"),
                     field<std::size_t>(weight, "target"), {}};
    for (const auto& range : field<std::vector<std::pair<std::size_t, std::size_t>>>(weight, "frozen")) {
      memory.weight.frozen.push_back(range_of(range));
    }
    const auto state = field<py::dict>(given, "state");
    memory.state = {field<std::size_t>(state, "bytes"),   field<std::size_t>(state, "counters"),
                    field<std::size_t>(state, "applied"), field<std::size_t>(state, "moments"),
                    field<std::size_t>(state, "moment_blocks"), field<std::size_t>(state, "group_updates")};
    const auto counts = field<py::dict>(given, "counts");
    memory.counts = {field<std::size_t>(counts, "updates"),   field<std::size_t>(counts, "first_ns"),
                     field<std::size_t>(counts, "last_ns"),   field<std::size_t>(counts, "largest_leaf"),
                     field<std::size_t>(counts, "saturated"), field<std::size_t>(counts, "adopted"),
                     field<std::size_t>(counts, "reduced"),   field<std::size_t>(counts, "applied"),
                     field<std::size_t>(counts, "target_updates")};
    using Pair = std::pair<std::size_t, std::size_t>;
    for (const auto& [elements, parameters] : field<std::vector<std::pair<Pair, Pair>>>(given, "groups")) {
      memory.groups.push_back({range_of(elements), range_of(parameters)});
    }
    const auto actors = field<py::dict>(given, "actors");
    memory.actors = {owner_of(actors, "worker"),
                     owner_of(actors, "learner"),
                     bound<PyPage>(actors, "worker_page").page,
                     bound<PyPage>(actors, "learner_page").page,
                     field<int>(actors, "gather_phase"),
                     field<int>(actors, "gradient_phase"),
                     field<int>(actors, "worker_runtime"),
                     field<int>(actors, "update_phase"),
                     field<int>(actors, "learner_runtime")};
    memory.seed = field<std::uint64_t>(given, "seed");
    memory.noise_purpose = field<std::uint64_t>(given, "noise_purpose");
    if (!object(given, "replay").is_none()) memory.replay = replay_of(field<py::dict>(given, "replay"));
    return memory;
  }

  ReplayFields replay_of(const py::dict& given) {
    ReplayFields replay{};
    replay.plans = &bound<PyBoard>(given, "plans");
    replay.plan_blocks = blocks(given, "plan_blocks");
    replay.header = field<std::size_t>(given, "header");
    replay.positions = field<std::size_t>(given, "positions");
    replay.leaves = field<std::size_t>(given, "leaves");
    replay.batch = field<std::size_t>(given, "batch");
    replay.per_batch = field<std::int64_t>(given, "per_batch");
    if (replay.per_batch < 1) throw py::value_error("per_batch must be at least 1");
    replay.tree = &bound<BoundTree>(given, "tree").tree();
    replay.alpha = field<double>(given, "alpha");
    replay.epsilon = field<float>(given, "epsilon");
    replay.first_leaf = field<std::uint32_t>(given, "first_leaf");
    replay.draws_purpose = field<std::uint64_t>(given, "draws_purpose");
    return replay;
  }

  Round round_;
};

}  // namespace

void bind_round(py::module_& m) {
  py::class_<BoundExchange>(m, "Exchange", "What a learner does between two rounds; see include/hive/exchange.hpp.")
      .def(py::init<const py::dict&>(), "memory"_a)
      .def("take_ended", &BoundExchange::take_ended,
           "Return the episodes of the last round in which some ended, once: (returns, lengths, columns, infos [n K], updates\n"
           "before the round, env_steps with it); None if there are none.");
  py::class_<BoundRound>(m, "Round", "Consecutive updates in one call; see include/hive/round.hpp.")
      .def(py::init<const py::dict&>(), "memory"_a)
      .def("run", &BoundRound::run, "call"_a,
           "Make updates; return (how many, why it ended, [(norm, samples)], statistics float64 [updates, S]).");
}

}  // namespace hive
