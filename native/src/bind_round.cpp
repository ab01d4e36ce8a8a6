// Python bindings of program.hpp and round.hpp. A program and a round keep everything alive that they refer to.
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "arrays.hpp"
#include "bound_dense.hpp"
#include "bound_exchange.hpp"
#include "fields.hpp"
#include "hive/round.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

// A contiguous array of any type, as bytes. count: rows; width: bytes of a row.
struct Table {
  const std::byte* data;
  std::size_t count, width;
};

class BoundProgram {
 public:
  explicit BoundProgram(const std::vector<std::pair<std::string, py::dict>>& steps) {
    for (const auto& [name, given] : steps) program_.push_back(step_of(name, given));
  }

  const Program& program() const { return program_; }

  // Throws ValueError if a step writes outside of so many statistics and parameters.
  void check_places(std::size_t statistics, std::size_t parameters) const {
    if (statistics_ > statistics || parameters_ > parameters) throw py::value_error("a step writes outside of its arrays");
  }

  // Throws IndexError for a row outside of the arrays that rows are picked from.
  void check_rows(std::span<const std::int64_t> rows) const {
    for (const std::int64_t row : rows) {
      if (row < 0 || static_cast<std::size_t>(row) >= rows_) {
        throw py::index_error("the batch has no row " + std::to_string(row) + " of " + std::to_string(rows_));
      }
    }
  }

 private:
  Register& reg(const std::string& name) { return *registers_.try_emplace(name, std::make_unique<Register>()).first->second; }
  Register& reg(const py::dict& from, const char* name) { return reg(field<std::string>(from, name)); }

  Table table(const py::dict& from, const char* name) {
    const auto array = py::array::ensure(object(from, name));
    if (!array || array.ndim() < 1 || !(array.flags() & py::array::c_style)) {
      throw py::value_error(std::string(name) + " must be a contiguous array");
    }
    kept_.push_back(array);
    const auto count = static_cast<std::size_t>(array.shape(0));
    return {static_cast<const std::byte*>(array.data()), count,
            count == 0 ? 0 : static_cast<std::size_t>(array.nbytes()) / count};
  }

  std::span<const float> floats(const py::dict& from, const char* name, std::size_t count) {
    const auto given = arrays_.emplace_back(std::make_unique<Arrays>(1))->input<float>(object(from, name), name);
    if (given.size() != count) throw py::value_error(std::string(name) + " has another number of rows than the batch");
    return given;
  }

  std::unique_ptr<Step> step_of(const std::string& name, const py::dict& given) {
    if (name == "pick") return pick(given);
    if (name == "gather") return gather(given);
    if (name == "forward") return forward(given);
    if (name == "bootstrap") {
      return std::make_unique<Bootstrap>(reg(given, "chooses"), reg(given, "values"), reg("returns"), reg("discounts"),
                                         reg(given, "targets"));
    }
    if (name == "ppo") return ppo(given);
    if (name == "q") {
      statistics_ = std::max<std::size_t>(statistics_, 4);
      const bool weighs = field<bool>(given, "importance");
      return std::make_unique<QStep>(field<bool>(given, "huber"), reg(given, "values"), reg("actions"), reg("targets"),
                                     weighs ? &reg("importance") : nullptr, reg(given, "slopes"));
    }
    if (name == "backward") {
      const auto of = passes_.find(field<std::string>(given, "of"));
      if (of == passes_.end()) throw py::value_error("a backward pass needs a forward pass that is kept");
      const py::object rows = object(given, "to_rows");
      return std::make_unique<Backward>(*of->second, rows.is_none() ? nullptr : &reg(rows.cast<std::string>()));
    }
    return agent_step(name, given);
  }

  std::unique_ptr<Step> agent_step(const std::string& name, const py::dict& given) {
    if (name == "unknown") return std::make_unique<Unknown>();
    if (name == "noise") {
      return std::make_unique<Noise>(field<std::uint64_t>(given, "use"), field<std::size_t>(given, "width"),
                                     reg(given, "into"));
    }
    if (name == "squashed_sample") {
      return std::make_unique<SquashedSample>(reg(given, "outputs"), reg(given, "noise"), reg(given, "actions"),
                                              reg(given, "log_probs"));
    }
    if (name == "tanh_sample") {
      return std::make_unique<TanhSample>(reg(given, "outputs"), maybe(given, "noise"), field<float>(given, "deviation"),
                                          field<float>(given, "limit"), reg(given, "actions"));
    }
    if (name == "scale") {
      auto middle = field<std::vector<float>>(given, "middle"), reach = field<std::vector<float>>(given, "reach");
      if (middle.empty() || middle.size() != reach.size()) throw py::value_error("middle and reach differ");
      return std::make_unique<Scale>(reg("actions"), std::move(middle), std::move(reach), reg(given, "into"));
    }
    if (name == "join") {
      return std::make_unique<Join>(reg(given, "observations"), field<std::size_t>(given, "observations_at"),
                                    reg(given, "actions"), field<std::size_t>(given, "actions_at"), reg(given, "into"));
    }
    if (name == "soft_targets") {
      return std::make_unique<SoftTargets>(inputs(given, "values"), maybe(given, "log_probs"), temperature(given),
                                           reg("returns"), reg("discounts"), reg("targets"));
    }
    if (name == "critic_loss") {
      return std::make_unique<CriticStep>(inputs(given, "values"), outputs(given, "slopes"), field<float>(given, "factor"),
                                          reg("targets"), reg("importance"), places(given, 3));
    }
    if (name == "least_value") {
      return std::make_unique<LeastValue>(inputs(given, "values"), outputs(given, "slopes"));
    }
    if (name == "actor_loss") {
      const Register* const log_probs = maybe(given, "log_probs");
      const ActorStep::Inputs from{&reg(given, "outputs"), maybe(given, "noise"), &reg(given, "actions"), log_probs,
                                   &reg(given, "to_rows"), field<std::size_t>(given, "at")};
      return std::make_unique<ActorStep>(from, temperature(given), reg(given, "slopes"),
                                         places(given, log_probs == nullptr ? 1 : 3));
    }
    if (name == "temperature") {
      const auto log = field<std::size_t>(given, "log");
      parameters_ = std::max(parameters_, log + 1);
      return std::make_unique<TemperatureStep>(log, field<double>(given, "target_entropy"));
    }
    throw py::value_error("unknown step `" + name + "`");
  }

  const Register* maybe(const py::dict& from, const char* name) {
    const py::object given = object(from, name);
    return given.is_none() ? nullptr : &reg(given.cast<std::string>());
  }

  std::vector<const Register*> inputs(const py::dict& from, const char* name) {
    std::vector<const Register*> found;
    for (const auto& each : field<std::vector<std::string>>(from, name)) found.push_back(&reg(each));
    return found;
  }

  std::vector<Register*> outputs(const py::dict& from, const char* name) {
    std::vector<Register*> found;
    for (const auto& each : field<std::vector<std::string>>(from, name)) found.push_back(&reg(each));
    return found;
  }

  TemperatureValue temperature(const py::dict& from) {
    const TemperatureValue value{field<double>(from, "temperature"), field<std::ptrdiff_t>(from, "log")};
    if (value.log >= 0) parameters_ = std::max(parameters_, static_cast<std::size_t>(value.log) + 1);
    return value;
  }

  std::vector<std::size_t> places(const py::dict& from, std::size_t count) {
    auto found = field<std::vector<std::size_t>>(from, "places");
    if (found.size() != count) throw py::value_error("places has another number of statistics");
    for (const std::size_t place : found) statistics_ = std::max(statistics_, place + 1);
    return found;
  }

  std::unique_ptr<Step> pick(const py::dict& given) {
    const Table source = table(given, "source");
    if (rows_ != 0 && rows_ != source.count) throw py::value_error("the arrays to pick from differ in their rows");
    rows_ = source.count;
    return std::make_unique<Pick>(source.data, source.count, source.width, reg(given, "into"));
  }

  std::unique_ptr<Step> gather(const py::dict& given) {
    kept_.push_back(object(given, "memory"));
    const auto& memory = kept_.back().cast<const BoundReplay&>();
    into_.observations = &reg("observations");
    into_.next_observations = &reg("next_observations");
    into_.actions = &reg("actions");
    into_.returns = &reg("returns");
    into_.discounts = &reg("discounts");
    into_.importance = &reg("importance");
    return std::make_unique<Gather>(memory.rows(), field<std::size_t>(given, "n_step"), field<double>(given, "discount"),
                                    field<double>(given, "importance_exponent"), into_);
  }

  std::unique_ptr<Step> forward(const py::dict& given) {
    DenseNetwork network = network_of(field<std::vector<std::vector<py::dict>>>(given, "layers"),
                                      field<std::size_t>(given, "parameters"));
    parameters_ = std::max(parameters_, network.parameters());
    std::vector<BranchHeads> heads;
    for (const auto& branch : field<std::vector<std::vector<py::dict>>>(given, "heads")) {
      BranchHeads& own = heads.emplace_back();
      std::size_t columns = 0;
      for (const py::dict& head : branch) {
        const py::object slopes = object(head, "slopes");
        own.push_back({field<std::size_t>(head, "width"), field<std::ptrdiff_t>(head, "deviations"),
                       field<bool>(head, "clamps"), &reg(head, "output"), slopes.is_none() ? nullptr : &reg(slopes.cast<std::string>())});
        columns += own.back().width;
        const auto end = own.back().deviations + static_cast<std::ptrdiff_t>(own.back().width);
        if (end > static_cast<std::ptrdiff_t>(network.parameters())) throw py::value_error("deviations lie outside");
      }
      if (heads.size() > network.branches() || columns != network.outputs(heads.size() - 1)) {
        throw py::value_error("the heads of a branch do not fit its outputs");
      }
    }
    const bool keep = field<bool>(given, "keep");
    auto made = std::make_unique<Forward>(std::move(network), std::move(heads), reg(given, "input"),
                                          field<bool>(given, "target"), keep);
    if (keep) passes_[field<std::string>(given, "name")] = made.get();
    return made;
  }

  std::unique_ptr<Step> ppo(const py::dict& given) {
    kept_.push_back(object(given, "policy"));
    const Policy& policy = kept_.back().cast<const Policy&>();
    PPOBatch batch{};
    const Table actions = table(given, "actions");
    const std::size_t numbers = actions.count * policy.actions();
    if (actions.width != policy.actions() * (policy.gaussian() ? sizeof(float) : sizeof(std::int64_t))) {
      throw py::value_error("actions do not fit the policy");
    }
    if (policy.gaussian()) {
      batch.actions.numbers = {reinterpret_cast<const float*>(actions.data), numbers};
    } else {
      batch.actions.choices = {reinterpret_cast<const std::int64_t*>(actions.data), numbers};
    }
    if (policy.first_unknown(batch.actions) >= 0) throw py::value_error("an action does not exist");
    batch.behaviour_log_probs = floats(given, "behaviour_log_probs", actions.count);
    batch.advantages = floats(given, "advantages", actions.count);
    batch.returns = floats(given, "returns", actions.count);
    statistics_ = std::max(statistics_, 5 + field<std::vector<double>>(given, "fit").size());
    const bool clips = !object(given, "behaviour_values").is_none();
    if (clips) batch.behaviour_values = floats(given, "behaviour_values", actions.count);
    const PPOSettings settings{field<float>(given, "clip_range"), field<float>(given, "value_weight"),
                               field<float>(given, "entropy_weight"), clips, field<float>(given, "value_clip_range"),
                               field<bool>(given, "normalizes")};
    return std::make_unique<PPOStep>(policy, settings, batch, field<std::vector<double>>(given, "fit"), reg("policy"),
                                     reg("values"), reg("to_policy"), reg("to_values"));
  }

  std::vector<py::object> kept_;
  std::vector<std::unique_ptr<Arrays>> arrays_;
  std::map<std::string, std::unique_ptr<Register>> registers_;
  Transitions into_;
  std::map<std::string, Forward*> passes_;  // those that are kept
  std::size_t rows_ = 0;
  std::size_t statistics_ = 0, parameters_ = 0;  // that the steps read and write at most
  Program program_;
};

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
      program->check_places(round_.memory().slot.statistics_count, round_.memory().weight.parameter_elements);
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
    std::vector<std::span<const std::int64_t>> batches;
    for (const py::object& batch : field<std::vector<py::object>>(given, "batches")) {
      Arrays& own = *arrays.emplace_back(std::make_unique<Arrays>(1));
      batches.push_back(batch.is_none() ? std::span<const std::int64_t>{} : own.input<std::int64_t>(batch, "rows"));
      for (const BoundProgram* program : programs) program->check_rows(batches.back());
    }
    const std::size_t updates = call.kinds.size();
    const auto known = [&](std::size_t kind) { return kind < programs.size(); };
    if ((!round_.memory().replay && batches.size() != updates) || !std::all_of(call.kinds.begin(), call.kinds.end(), known)) {
      throw py::value_error("each update needs a kind and a batch");
    }
    if (const py::object following = object(given, "following"); !following.is_none()) {
      const auto rounds = following.cast<py::dict>();
      call.following = {&field<BoundExchange&>(rounds, "exchange").exchange(), field<std::int64_t>(rounds, "updates"),
                        field<std::int64_t>(rounds, "rounds"), field<std::int64_t>(rounds, "last_env_steps")};
      if (!round_.memory().replay || call.following.updates < 1 || call.following.rounds < 1) {
        throw py::value_error("rounds that follow have updates, and a replay memory");
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
    replay.tree = &bound<BoundTree>(given, "tree").tree();
    replay.alpha = field<double>(given, "alpha");
    replay.epsilon = field<float>(given, "epsilon");
    replay.first_leaf = field<std::uint32_t>(given, "first_leaf");
    replay.seed = field<std::uint64_t>(given, "seed");
    replay.draws_purpose = field<std::uint64_t>(given, "draws_purpose");
    replay.noise_purpose = field<std::uint64_t>(given, "noise_purpose");
    return replay;
  }

  Round round_;
};

}  // namespace

void bind_round(py::module_& m) {
  py::class_<BoundExchange>(m, "Exchange", "What a learner does between two rounds; see include/hive/exchange.hpp.")
      .def(py::init<const py::dict&>(), "memory"_a);
  py::class_<BoundProgram>(m, "Program",
                           "The description of a gradient: (name, keys) of each step; hive.learning.description has them.")
      .def(py::init<const std::vector<std::pair<std::string, py::dict>>&>(), "steps"_a);
  py::class_<BoundRound>(m, "Round", "Consecutive updates in one call; see include/hive/round.hpp.")
      .def(py::init<const py::dict&>(), "memory"_a)
      .def("run", &BoundRound::run, "call"_a,
           "Make updates; return (how many, why it ended, [(norm, samples)], statistics float64 [updates, S]).");
}

}  // namespace hive
