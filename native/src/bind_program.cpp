// Python bindings of program.hpp and its steps.
#include "bound_program.hpp"

#include <algorithm>

#include "bound_dense.hpp"
#include "dict_fields.hpp"

using namespace pybind11::literals;

namespace hive {
namespace {

std::vector<float> support_of(const py::dict& from) {
  auto support = field<std::vector<float>>(from, "support");
  if (support.size() < 2) throw py::value_error("support needs two elements or more");
  return support;
}

}  // namespace

BoundProgram::BoundProgram(const std::vector<std::pair<std::string, py::dict>>& steps) {
  for (const auto& [name, given] : steps) {
    auto step = step_of(name, given);
    if (!step) step = value_step(name, given);
    if (!step) step = agent_step(name, given);
    if (!step) throw py::value_error("unknown step `" + name + "`");
    program_.push_back(std::move(step));
  }
}

void BoundProgram::check_places(std::size_t statistics, std::size_t parameters, std::size_t bytes) const {
  if (statistics_ > statistics || parameters_ > parameters || bytes_ > bytes) {
    throw py::value_error("a step reads or writes outside of its arrays");
  }
}

void BoundProgram::check_rows(std::span<const std::int64_t> rows) const {
  for (const std::int64_t row : rows) {
    if (row < 0 || static_cast<std::size_t>(row) >= rows_) {
      throw py::index_error("the batch has no row " + std::to_string(row) + " of " + std::to_string(rows_));
    }
  }
}

Register& BoundProgram::reg(const std::string& name) {
  return *registers_.try_emplace(name, std::make_unique<Register>()).first->second;
}

Register& BoundProgram::reg(const py::dict& from, const char* name) { return reg(field<std::string>(from, name)); }

BoundProgram::Table BoundProgram::table(const py::dict& from, const char* name) {
  const auto array = py::array::ensure(object(from, name));
  if (!array || array.ndim() < 1 || !(array.flags() & py::array::c_style)) {
    throw py::value_error(std::string(name) + " must be a contiguous array");
  }
  kept_.push_back(array);
  const auto count = static_cast<std::size_t>(array.shape(0));
  return {static_cast<const std::byte*>(array.data()), count,
          count == 0 ? 0 : static_cast<std::size_t>(array.nbytes()) / count};
}

std::span<const float> BoundProgram::floats(const py::dict& from, const char* name, std::size_t count) {
  const auto given = arrays_.emplace_back(std::make_unique<Arrays>(1))->input<float>(object(from, name), name);
  if (given.size() != count) throw py::value_error(std::string(name) + " has another number of rows than the batch");
  return given;
}

const Register* BoundProgram::maybe(const py::dict& from, const char* name) {
  const py::object given = object(from, name);
  return given.is_none() ? nullptr : &reg(given.cast<std::string>());
}

std::vector<const Register*> BoundProgram::inputs(const py::dict& from, const char* name) {
  std::vector<const Register*> found;
  for (const auto& each : field<std::vector<std::string>>(from, name)) found.push_back(&reg(each));
  return found;
}

std::vector<Register*> BoundProgram::outputs(const py::dict& from, const char* name) {
  std::vector<Register*> found;
  for (const auto& each : field<std::vector<std::string>>(from, name)) found.push_back(&reg(each));
  return found;
}

TemperatureValue BoundProgram::temperature(const py::dict& from) {
  const TemperatureValue value{field<double>(from, "temperature"), field<std::ptrdiff_t>(from, "log")};
  if (value.log >= 0) need_parameters(static_cast<std::size_t>(value.log) + 1);
  return value;
}

std::vector<std::size_t> BoundProgram::places(const py::dict& from, std::size_t count) {
  auto found = field<std::vector<std::size_t>>(from, "places");
  if (found.size() != count) throw py::value_error("places has another number of statistics");
  for (const std::size_t place : found) need_statistics(place + 1);
  return found;
}

std::unique_ptr<Step> BoundProgram::step_of(const std::string& name, const py::dict& given) {
  if (name == "pick") return pick(given);
  if (name == "gather") return gather(given);
  if (name == "unpack") {
    return std::make_unique<Unpack>(field<Unpacking>(given, "unpacking"), reg(given, "from"), reg(given, "into"));
  }
  if (name == "forward") return forward(given);
  if (name == "backward") {
    const auto of = passes_.find(field<std::string>(given, "of"));
    if (of == passes_.end()) throw py::value_error("a backward pass needs a forward pass that is kept");
    const py::object rows = object(given, "to_rows");
    return std::make_unique<Backward>(*of->second, rows.is_none() ? nullptr : &reg(rows.cast<std::string>()));
  }
  return nullptr;
}

ValueInputs BoundProgram::value_inputs(const py::dict& from) {
  need_statistics(4);
  return {reg(from, "values"), reg("actions"), reg("targets"), field<bool>(from, "importance") ? &reg("importance") : nullptr};
}

NextValues BoundProgram::next_values(const py::dict& from) {
  return {reg(from, "chooses"), reg(from, "values"), reg("returns"), reg("discounts")};
}

std::unique_ptr<Step> BoundProgram::value_step(const std::string& name, const py::dict& given) {
  if (name == "ppo") return ppo(given);
  if (name == "bootstrap") return std::make_unique<Bootstrap>(next_values(given), reg("targets"));
  if (name == "categorical_targets") {
    return std::make_unique<CategoricalTargets>(support_of(given), next_values(given), reg("targets"));
  }
  if (name == "quantile_targets") {
    return std::make_unique<QuantileTargets>(field<std::size_t>(given, "atoms"), next_values(given), reg("targets"));
  }
  if (name == "q") {
    return std::make_unique<QStep>(field<bool>(given, "huber"), value_inputs(given), reg(given, "slopes"));
  }
  if (name == "categorical_loss") {
    return std::make_unique<CategoricalStep>(support_of(given), value_inputs(given), reg(given, "slopes"));
  }
  if (name == "quantile_loss") {
    return std::make_unique<QuantileStep>(field<std::size_t>(given, "atoms"), value_inputs(given), reg(given, "slopes"));
  }
  return nullptr;
}

std::unique_ptr<Step> BoundProgram::agent_step(const std::string& name, const py::dict& given) {
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
    return std::make_unique<Join>(reg(given, "observations"), reg(given, "actions"), field<std::size_t>(given, "at"),
                                  reg(given, "into"));
  }
  if (name == "soft_targets") {
    return std::make_unique<SoftTargets>(inputs(given, "values"), maybe(given, "log_probs"), temperature(given),
                                         reg("returns"), reg("discounts"), reg("targets"));
  }
  if (name == "soft_choice_targets") {
    return std::make_unique<SoftChoiceTargets>(inputs(given, "values"), reg(given, "logits"), temperature(given),
                                               reg("returns"), reg("discounts"), reg("targets"));
  }
  if (name == "soft_choice_loss") {
    return std::make_unique<SoftChoiceStep>(reg(given, "logits"), inputs(given, "values"), temperature(given),
                                            reg(given, "slopes"), places(given, 3));
  }
  if (name == "critic_loss") {
    return std::make_unique<CriticStep>(inputs(given, "values"), outputs(given, "slopes"), maybe(given, "actions"),
                                        field<float>(given, "factor"), reg("targets"), reg("importance"),
                                        places(given, 3));
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
    need_parameters(log + 1);
    return std::make_unique<TemperatureStep>(log, field<double>(given, "target"), field<bool>(given, "of_greatest"));
  }
  return nullptr;
}

std::unique_ptr<Step> BoundProgram::pick(const py::dict& given) {
  const Table source = table(given, "source");
  if (rows_ != 0 && rows_ != source.count) throw py::value_error("the arrays to pick from differ in their rows");
  rows_ = source.count;
  return std::make_unique<Pick>(source.data, source.count, source.width, reg(given, "into"));
}

std::optional<StatisticPlaces> BoundProgram::statistics(const py::object& given) {
  if (given.is_none()) return std::nullopt;
  const auto keys = given.cast<py::dict>();
  const StatisticPlaces places{field<std::size_t>(keys, "seen"), field<std::size_t>(keys, "shift"),
                               field<std::size_t>(keys, "scale"), field<std::size_t>(keys, "numbers")};
  const std::size_t numbers = places.numbers * sizeof(float);
  bytes_ = std::max({bytes_, places.seen + sizeof(double), places.shift + numbers, places.scale + numbers});
  return places;
}

std::unique_ptr<Step> BoundProgram::gather(const py::dict& given) {
  kept_.push_back(object(given, "memory"));
  const auto& memory = kept_.back().cast<const BoundReplay&>();
  into_.observations = &reg("observations");
  into_.next_observations = &reg("next_observations");
  into_.actions = &reg("actions");
  into_.returns = &reg("returns");
  into_.discounts = &reg("discounts");
  into_.importance = &reg("importance");
  GatherSettings settings{field<std::size_t>(given, "stack"),
                          field<std::size_t>(given, "n_step"),
                          field<double>(given, "discount"),
                          field<double>(given, "importance_exponent"),
                          statistics(object(given, "observed")),
                          statistics(object(given, "rewarded")),
                          field<float>(given, "limit")};
  if (settings.observed && settings.observed->numbers * sizeof(float) > memory.rows().observation_bytes) {
    throw py::value_error("scale must fit into an observation");
  }
  if (settings.rewarded && settings.rewarded->numbers != 1) throw py::value_error("rewards have one scale");
  if (settings.stack < 1 || settings.n_step < 1) throw py::value_error("stack and n_step must be at least 1");
  return std::make_unique<Gather>(memory.rows(), settings, into_);
}

BranchHeads BoundProgram::heads_of(const std::vector<py::dict>& branch, std::size_t parameters) {
  BranchHeads heads;
  for (const py::dict& head : branch) {
    const py::object slopes = object(head, "slopes");
    heads.push_back({field<std::size_t>(head, "width"), field<std::ptrdiff_t>(head, "deviations"),
                     field<bool>(head, "clamps"), field<bool>(head, "masked"), field<std::size_t>(head, "softmax"),
                     &reg(head, "output"),
                     slopes.is_none() ? nullptr : &reg(slopes.cast<std::string>())});
    const HeadColumns& made = heads.back();
    const auto end = made.deviations + static_cast<std::ptrdiff_t>(made.width);
    if (end > static_cast<std::ptrdiff_t>(parameters)) throw py::value_error("deviations lie outside");
    if (made.clamps && (branch.size() > 1 || made.width % 2)) throw py::value_error("deviations are half of a branch");
    if (made.masked && made.deviations >= 0) throw py::value_error("a mask forbids actions, which have no deviations");
    if (made.softmax > 0 && made.width % made.softmax) throw py::value_error("the columns of a head have no such parts");
  }
  return heads;
}

std::unique_ptr<DerivedPass> BoundProgram::derived(const py::object& given) {
  if (given.is_none()) return nullptr;
  const auto keys = given.cast<py::dict>();
  const auto weights = field<DerivedWeights>(keys, "weights");
  std::vector<Range> drawing;
  for (const auto& [first, count] : field<std::vector<std::pair<std::size_t, std::size_t>>>(keys, "drawing")) {
    if (first + count > weights.factors()) throw py::value_error("noise of a layer lies outside");
    drawing.push_back({first, count});
  }
  noise_words_ += drawing.size();
  need_parameters(weights.parameters());
  return std::make_unique<DerivedPass>(weights, std::move(drawing));
}

std::unique_ptr<Step> BoundProgram::forward(const py::dict& given) {
  auto weights = derived(object(given, "derived"));
  const auto parameters = field<std::size_t>(given, "parameters");
  DenseNetwork network = network_of(field<std::vector<std::vector<py::dict>>>(given, "layers"),
                                    weights ? weights->block().size() : parameters);
  need_parameters(parameters);
  std::vector<BranchHeads> heads;
  for (const auto& branch : field<std::vector<std::vector<py::dict>>>(given, "heads")) {
    std::size_t columns = 0;
    for (const HeadColumns& head : heads.emplace_back(heads_of(branch, parameters))) columns += head.width;
    if (heads.size() > network.branches() || columns != network.outputs(heads.size() - 1)) {
      throw py::value_error("the heads of a branch do not fit its outputs");
    }
  }
  std::optional<Masks> masks;
  if (const py::object mask = object(given, "mask"); !mask.is_none()) {
    const auto keys = mask.cast<py::dict>();
    masks.emplace(Masks{reg(keys, "of"), {field<std::size_t>(keys, "offset"), field<std::size_t>(keys, "actions")}});
  }
  const bool keep = field<bool>(given, "keep"), of_target = field<bool>(given, "target");
  for (const BranchHeads& branch : heads) {
    const bool learns = std::all_of(branch.begin(), branch.end(), [](const HeadColumns& head) { return head.slopes; });
    if (keep && (of_target || !learns)) throw py::value_error("a pass that is kept has slopes, and is not the target's");
  }
  auto made = std::make_unique<Forward>(std::move(network), std::move(heads), reg(given, "input"), of_target, keep,
                                        std::move(weights), masks);
  if (keep) passes_[field<std::string>(given, "name")] = made.get();
  return made;
}

std::unique_ptr<Step> BoundProgram::ppo(const py::dict& given) {
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
  need_statistics(5 + field<std::vector<double>>(given, "fit").size());
  const bool clips = !object(given, "behaviour_values").is_none();
  if (clips) batch.behaviour_values = floats(given, "behaviour_values", actions.count);
  const PPOSettings settings{field<float>(given, "clip_range"), field<float>(given, "value_weight"),
                             field<float>(given, "entropy_weight"), clips, field<float>(given, "value_clip_range"),
                             field<bool>(given, "normalizes")};
  return std::make_unique<PPOStep>(policy, settings, batch, field<double>(given, "most_divergence"),
                                   field<std::vector<double>>(given, "fit"), reg("policy"), reg("values"),
                                   reg("to_policy"), reg("to_values"));
}

void bind_program(py::module_& m) {
  py::class_<BoundProgram>(m, "Program",
                           "The description of a gradient: (name, keys) of each step; hive.learning.described has them.")
      .def(py::init<const std::vector<std::pair<std::string, py::dict>>&>(), "steps"_a)
      .def_property_readonly("noise_words", &BoundProgram::noise_words,
                             "The words of noise that its layers take, for each gradient.");
}

}  // namespace hive
