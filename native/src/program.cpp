#include "hive/program.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "hive/agent_losses.hpp"
#include "hive/philox.hpp"
#include "hive/priorities.hpp"

namespace hive {

void Pick::run(GradientCall& call) {
  if (call.rows.empty()) {
    into_.refer(source_, count_, width_);
    call.samples = count_;
    return;
  }
  const auto to = into_.write<std::byte>(call.rows.size(), width_);
  for (std::size_t row = 0; row < call.rows.size(); ++row) {
    std::memcpy(to.data() + row * width_, source_ + static_cast<std::size_t>(call.rows[row]) * width_, width_);
  }
  call.samples = call.rows.size();
}

void Gather::run(GradientCall& call) {
  const std::size_t count = call.rows.size();
  ReplayBatch batch{};
  batch.observations = into_.observations->write<std::byte>(count, memory_.observation_bytes).data();
  batch.next_observations = into_.next_observations->write<std::byte>(count, memory_.observation_bytes).data();
  batch.actions = into_.actions->write<std::byte>(count, memory_.action_bytes).data();
  batch.returns = into_.returns->write<float>(count, 1).data();
  batch.discounts = into_.discounts->write<float>(count, 1).data();
  gather_batch(memory_, call.rows, n_step_, discount_, 1, {}, batch);
  importance_weights(call.leaves, call.least, exponent_, into_.importance->write<float>(count, 1));
  call.samples = count;
}

void Forward::run(GradientCall& call) {
  const std::size_t rows = input_.rows();
  std::vector<float*> outputs;
  for (std::size_t branch = 0; branch < heads_.size(); ++branch) {
    if (direct(heads_[branch])) {
      const HeadColumns& head = heads_[branch].front();
      outputs.push_back(head.output->write<float>(rows, head.width).data());
      continue;
    }
    Floats& columns = columns_[branch];
    if (columns.size() < rows * network_.outputs(branch)) columns.resize(rows * network_.outputs(branch));
    outputs.push_back(columns.data());
  }
  network_.forward(of_target_ ? call.target : call.weights, input_.view<float>(), rows, outputs, keep_);
  for (std::size_t branch = 0; branch < heads_.size(); ++branch) {
    if (!direct(heads_[branch])) split(call, branch, outputs[branch]);
  }
}

void Forward::split(const GradientCall& call, std::size_t branch, const float* columns) const {
  const std::size_t rows = input_.rows(), width = network_.outputs(branch);
  const auto block = of_target_ ? call.target : call.weights;
  for (const HeadColumns& head : heads_[branch]) {
    const bool appends = head.deviations >= 0;
    const std::size_t all = appends ? 2 * head.width : head.width;
    const auto to = head.output->write<float>(rows, all);
    for (std::size_t row = 0; row < rows; ++row) {
      std::copy_n(columns + row * width, head.width, to.data() + row * all);
      if (appends) std::copy_n(block.data() + head.deviations, head.width, to.data() + row * all + head.width);
    }
    if (head.clamps) clamp_deviations(head.width / 2, to, to);
    columns += head.width;
  }
}

void Forward::differentiate(GradientCall& call, Register* to_rows) {
  std::vector<const float*> slopes;
  for (std::size_t branch = 0; branch < heads_.size(); ++branch) {
    const BranchHeads& heads = heads_[branch];
    slopes.push_back(direct(heads) ? heads.front().slopes->view<float>().data() : joined(call, branch));
  }
  const auto rows = input_.view<float>();
  if (to_rows == nullptr) {
    network_.backward(call.weights, rows, slopes, call.gradient, {});
  } else {
    network_.backward(call.weights, rows, slopes, {}, to_rows->write<float>(input_.rows(), network_.inputs()));
  }
}

// The slopes of a branch's columns, over the columns themselves.
const float* Forward::joined(GradientCall& call, std::size_t branch) {
  const std::size_t rows = input_.rows(), width = network_.outputs(branch);
  float* to = columns_[branch].data();
  std::vector<float> clamped;
  for (const HeadColumns& head : heads_[branch]) {
    const bool appends = head.deviations >= 0;
    const std::size_t all = appends ? 2 * head.width : head.width;
    auto from = head.slopes->view<float>();
    if (head.clamps) {  // the only head of its branch: its columns lie together
      clamped.resize(rows * all);
      clamp_deviations_back(head.width / 2, {to, rows * all}, from, clamped);
      from = clamped;
    }
    for (std::size_t row = 0; row < rows; ++row) std::copy_n(from.data() + row * all, head.width, to + row * width);
    if (appends) {
      column_sums(from, all, head.width, call.gradient.subspan(static_cast<std::size_t>(head.deviations), head.width));
    }
    to += head.width;
  }
  return columns_[branch].data();
}

void Bootstrap::run(GradientCall& call) {
  const std::size_t rows = call.samples;
  const auto chooses = chooses_.view<float>(), values = values_.view<float>();
  const auto returns = returns_.view<float>(), discounts = discounts_.view<float>();
  const std::size_t actions = chooses.size() / std::max<std::size_t>(rows, 1);
  const auto to = targets_.write<float>(rows, 1);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* each = chooses.data() + row * actions;
    const auto best = static_cast<std::size_t>(std::max_element(each, each + actions) - each);
    to[row] = returns[row] + discounts[row] * values[row * actions + best];
  }
}

void PPOStep::run(GradientCall& call) {
  const auto outputs = outputs_.view<float>(), values = values_.view<float>();
  const auto to_outputs = to_outputs_.write<float>(call.samples, policy_.width());
  const auto to_values = to_values_.write<float>(call.samples, 1);
  const PPOLoss loss =
      ppo_loss(policy_, settings_, outputs, values, batch_, call.rows, to_outputs, to_values);
  call.loss += loss.total;
  const double found[] = {loss.policy, loss.value, loss.entropy, loss.divergence, loss.clipped};
  std::copy(std::begin(found), std::end(found), call.statistics.begin());
  std::copy(fit_.begin(), fit_.end(), call.statistics.begin() + std::size(found));
}

void QStep::run(GradientCall& call) {
  const auto values = values_.view<float>();
  const std::size_t count = values_.width() / sizeof(float);
  const auto actions = actions_.view<std::int64_t>();
  const auto known = [count](std::int64_t action) { return action >= 0 && static_cast<std::size_t>(action) < count; };
  if (!std::all_of(actions.begin(), actions.end(), known)) {
    call.loss = std::numeric_limits<double>::quiet_NaN();  // so the path through Python makes it, and names the cause
    return;
  }
  const auto importance = importance_ ? importance_->view<float>() : std::span<const float>{};
  const QLoss loss =
      q_loss(count, huber_, values, actions, targets_.view<float>(), {}, importance,
             call.errors.first(std::min(call.errors.size(), call.samples)), to_values_.write<float>(call.samples, count));
  call.loss += loss.total;
  const double found[] = {loss.total, loss.mean, loss.largest, loss.error};
  std::copy(std::begin(found), std::end(found), call.statistics.begin());
}

void Unknown::run(GradientCall& call) {
  std::fill(call.statistics.begin(), call.statistics.end(), std::numeric_limits<double>::quiet_NaN());
}

void Noise::run(GradientCall& call) {
  constexpr std::uint64_t kUses = 2;
  philox_normals(call.seed, kUses * call.number + use_, 0, into_.write<float>(call.samples, width_));
}

void SquashedSample::run(GradientCall& call) {
  const auto noise = noise_.view<float>();
  const std::size_t width = noise.size() / std::max<std::size_t>(call.samples, 1);
  squashed_sample(width, outputs_.view<float>(), noise, actions_.write<float>(call.samples, width),
                  log_probs_.write<float>(call.samples, 1));
}

void TanhSample::run(GradientCall& call) {
  const auto outputs = outputs_.view<float>();
  const auto noise = noise_ == nullptr ? std::span<const float>{} : noise_->view<float>();
  tanh_actions(outputs, noise, deviation_, limit_,
               actions_.write<float>(call.samples, outputs.size() / std::max<std::size_t>(call.samples, 1)));
}

void Scale::run(GradientCall& call) {
  const auto from = actions_.view<float>();
  const std::size_t width = middle_.size();
  const auto to = into_.write<float>(call.samples, width);
  for (std::size_t at = 0; at < to.size(); ++at) to[at] = (from[at] - middle_[at % width]) / reach_[at % width];
}

void Join::run(GradientCall& call) {
  const auto observations = observations_.view<float>(), actions = actions_.view<float>();
  const std::size_t rows = call.samples, first = observations.size() / rows, second = actions.size() / rows;
  const auto to = into_.write<float>(rows, first + second);
  for (std::size_t row = 0; row < rows; ++row) {
    float* const out = to.data() + row * (first + second);
    std::copy_n(observations.data() + row * first, first, out + observations_at_);
    std::copy_n(actions.data() + row * second, second, out + actions_at_);
  }
}

double TemperatureValue::of(std::span<const float> weights) const {
  return log < 0 ? scale : soft_temperature(scale, static_cast<double>(weights[static_cast<std::size_t>(log)]));
}

namespace {

std::vector<const float*> data_of(const std::vector<const Register*>& registers) {
  std::vector<const float*> data;
  for (const Register* each : registers) data.push_back(each->view<float>().data());
  return data;
}

std::vector<float*> written(const std::vector<Register*>& registers, std::size_t rows) {
  std::vector<float*> data;
  for (Register* each : registers) data.push_back(each->write<float>(rows, 1).data());
  return data;
}

}  // namespace

void SoftTargets::run(GradientCall& call) {
  const auto log_probs = log_probs_ == nullptr ? std::span<const float>{} : log_probs_->view<float>();
  soft_targets(data_of(values_), log_probs, temperature_.of(call.weights), returns_.view<float>(),
               discounts_.view<float>(), targets_.write<float>(call.samples, 1));
}

void CriticStep::run(GradientCall& call) {
  const CriticLoss loss =
      critic_loss(1, false, factor_, data_of(values_), {}, targets_.view<float>(), importance_.view<float>(),
                  call.errors.first(call.samples), written(slopes_, call.samples));
  call.loss += loss.total;
  const double found[] = {loss.total, loss.mean, loss.error};
  for (std::size_t each = 0; each < places_.size(); ++each) call.statistics[places_[each]] = found[each];
}

void LeastValue::run(GradientCall& call) {
  call.value = least_values(data_of(values_), call.samples, written(slopes_, call.samples));
}

void ActorStep::run(GradientCall& call) {
  const auto actions = inputs_.actions->view<float>(), to_rows = inputs_.to_rows->view<float>();
  const std::size_t rows = call.samples, width = actions.size() / rows, all = to_rows.size() / rows;
  const auto to_actions = to_actions_.write<float>(rows, width);
  for (std::size_t row = 0; row < rows; ++row) {
    std::copy_n(to_rows.data() + row * all + inputs_.at, width, to_actions.data() + row * width);
  }
  const auto outputs = inputs_.outputs->view<float>();
  const auto slopes = slopes_.write<float>(rows, outputs.size() / rows);
  if (inputs_.log_probs == nullptr) {
    tanh_slopes(actions, to_actions, slopes);
    call.loss += -call.value;
    call.statistics[places_[0]] = -call.value;
    return;
  }
  const double temperature = temperature_.of(call.weights);
  const auto weight = static_cast<float>(temperature / static_cast<double>(rows));
  squashed_slopes(width, outputs, inputs_.noise->view<float>(), actions, to_actions, weight, slopes);
  call.log_density = mean(inputs_.log_probs->view<float>());
  const double total = temperature * call.log_density - call.value;
  call.loss += total;
  const double found[] = {total, -call.log_density, temperature};
  for (std::size_t each = 0; each < places_.size(); ++each) call.statistics[places_[each]] = found[each];
}

void TemperatureStep::run(GradientCall& call) {
  const TemperatureLoss loss = temperature_loss(call.weights[log_], call.log_density, target_entropy_);
  call.loss += loss.total;
  call.gradient[log_] = loss.slope;
}

}  // namespace hive
