#include "hive/program_values.hpp"

#include <algorithm>

#include "hive/return_distributions.hpp"

namespace hive {
namespace {

ReturnSizes sizes_of(const Register& outputs, std::size_t atoms) {
  return {outputs.width() / sizeof(float) / atoms, atoms};
}

}  // namespace

void Bootstrap::run(GradientCall& call) {
  const std::size_t rows = call.samples;
  const auto chooses = next_.chooses.view<float>(), values = next_.values.view<float>();
  const auto returns = next_.returns.view<float>(), discounts = next_.discounts.view<float>();
  const std::size_t actions = sizes_of(next_.chooses, 1).actions;
  const auto to = targets_.write<float>(rows, 1);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* each = chooses.data() + row * actions;
    const auto best = static_cast<std::size_t>(std::max_element(each, each + actions) - each);
    to[row] = returns[row] + discounts[row] * values[row * actions + best];
  }
}

void CategoricalTargets::run(GradientCall& call) {
  const std::size_t atoms = support_.size();
  const std::ptrdiff_t bad = categorical_targets(
      sizes_of(next_.values, atoms), support_, next_.chooses.view<float>(), next_.values.view<float>(),
      next_.returns.view<float>(), next_.discounts.view<float>(), targets_.write<float>(call.samples, atoms));
  if (bad >= 0) call.give_up();
}

void QuantileTargets::run(GradientCall& call) {
  quantile_targets(sizes_of(next_.values, atoms_), next_.chooses.view<float>(), next_.values.view<float>(),
                   next_.returns.view<float>(), next_.discounts.view<float>(),
                   targets_.write<float>(call.samples, atoms_));
}

void PPOStep::run(GradientCall& call) {
  const auto outputs = outputs_.view<float>(), values = values_.view<float>();
  const auto to_outputs = to_outputs_.write<float>(call.samples, policy_.width());
  const auto to_values = to_values_.write<float>(call.samples, 1);
  const PPOLoss loss =
      ppo_loss(policy_, settings_, outputs, values, batch_, call.rows, to_outputs, to_values);
  if (most_divergence_ > 0.0 && loss.divergence > most_divergence_) return call.give_up();
  call.loss += loss.total;
  const double found[] = {loss.policy, loss.value, loss.entropy, loss.divergence, loss.clipped};
  std::copy(std::begin(found), std::end(found), call.statistics.begin());
  std::copy(fit_.begin(), fit_.end(), call.statistics.begin() + std::size(found));
}

void ValueStep::run(GradientCall& call) {
  const std::size_t count = sizes_of(inputs_.outputs, atoms_).actions;
  const auto actions = inputs_.actions.view<std::int64_t>();
  if (!all_exist(actions, count)) return call.give_up();
  const QLoss of_rows = loss({count, atoms_, inputs_.outputs.view<float>(), actions, inputs_.targets.view<float>(),
                                 inputs_.importance ? inputs_.importance->view<float>() : std::span<const float>{},
                                 call.errors.first(std::min(call.errors.size(), call.samples)),
                                 slopes_.write<float>(call.samples, count * atoms_)});
  call.loss += of_rows.total;
  const double found[] = {of_rows.total, of_rows.mean, of_rows.largest, of_rows.error};
  std::copy(std::begin(found), std::end(found), call.statistics.begin());
}

QLoss QStep::loss(const Rows& rows) const {
  return q_loss(rows.actions, huber_, rows.outputs, rows.taken, rows.targets, {}, rows.importance, rows.errors,
                rows.slopes);
}

QLoss CategoricalStep::loss(const Rows& rows) const {
  return categorical_loss({rows.actions, rows.atoms}, support_, rows.outputs, rows.taken, rows.targets, rows.importance,
                          rows.errors, rows.slopes);
}

QLoss QuantileStep::loss(const Rows& rows) const {
  return quantile_loss({rows.actions, rows.atoms, rows.atoms}, rows.outputs, rows.taken, rows.targets, rows.importance,
                       rows.errors, rows.slopes);
}

}  // namespace hive
