#include "hive/program_agents.hpp"

#include <algorithm>
#include <limits>

#include "hive/agent_losses.hpp"
#include "hive/losses.hpp"
#include "hive/philox.hpp"

namespace hive {

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
  const std::size_t at = std::min(at_, first);
  const float* from = observations.data();
  float* to = into_.write<float>(rows, first + second).data();
  for (std::size_t row = 0; row < rows; ++row, from += first) {
    to = std::copy_n(from, at, to);
    to = std::copy_n(actions.data() + row * second, second, to);
    to = std::copy_n(from + at, first - at, to);
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

std::vector<float*> written(const std::vector<Register*>& registers, std::size_t rows, std::size_t columns = 1) {
  std::vector<float*> data;
  for (Register* each : registers) data.push_back(each->write<float>(rows, columns).data());
  return data;
}

}  // namespace

void SoftTargets::run(GradientCall& call) {
  const auto log_probs = log_probs_ == nullptr ? std::span<const float>{} : log_probs_->view<float>();
  soft_targets(data_of(values_), log_probs, temperature_.of(call.weights), returns_.view<float>(),
               discounts_.view<float>(), targets_.write<float>(call.samples, 1));
}

void SoftChoiceTargets::run(GradientCall& call) {
  soft_choice_targets(logits_.width() / sizeof(float), logits_.view<float>(), data_of(values_),
                      temperature_.of(call.weights), returns_.view<float>(), discounts_.view<float>(),
                      targets_.write<float>(call.samples, 1));
}

void CriticStep::run(GradientCall& call) {
  const std::size_t count = actions_ == nullptr ? 1 : values_.front()->width() / sizeof(float);
  const auto actions = actions_ == nullptr ? std::span<const std::int64_t>{} : actions_->view<std::int64_t>();
  if (!all_exist(actions, count)) return call.give_up();
  const CriticLoss loss =
      critic_loss(count, false, factor_, data_of(values_), actions, targets_.view<float>(), importance_.view<float>(),
                  call.errors.first(std::min(call.errors.size(), call.samples)), written(slopes_, call.samples, count));
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

void SoftChoiceStep::run(GradientCall& call) {
  const std::size_t count = logits_.width() / sizeof(float);
  const double temperature = temperature_.of(call.weights);
  const SoftLoss loss = soft_choice_loss(count, logits_.view<float>(), data_of(values_), temperature,
                                         slopes_.write<float>(call.samples, count));
  call.loss += loss.total;
  call.log_density = loss.mean;
  call.greatest_entropy = loss.greatest;
  const double found[] = {loss.total, -loss.mean, temperature};
  for (std::size_t each = 0; each < places_.size(); ++each) call.statistics[places_[each]] = found[each];
}

void TemperatureStep::run(GradientCall& call) {
  const double target = of_greatest_ ? target_ * call.greatest_entropy : target_;
  const TemperatureLoss loss = temperature_loss(call.weights[log_], call.log_density, target);
  call.loss += loss.total;
  call.gradient[log_] = loss.slope;
}

}  // namespace hive
