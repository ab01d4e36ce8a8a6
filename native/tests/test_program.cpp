// Steps of programs: each against the functions that it calls, and what ends a gradient.
#include "hive/program.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "check.hpp"
#include "hive/philox.hpp"
#include "hive/program_agents.hpp"
#include "hive/program_values.hpp"
#include "hive/return_distributions.hpp"

namespace {

using namespace hive;

constexpr std::size_t kRows = 3, kInputs = 2, kActions = 2, kAtoms = 3, kColumns = kActions * kAtoms;
constexpr std::size_t kParameters = 16 + 16;  // a weight and a bias, each padded
const std::vector<float> kSupport{-1.0F, 0.0F, 1.0F};
const float kInfinity = std::numeric_limits<float>::infinity();

DenseNetwork network() { return DenseNetwork({{DenseLayer{kInputs, kColumns, 0, 16}}}, kParameters); }

// The parameters, a batch and the memory of one gradient.
struct Gradient {
  Gradient() : weights(kParameters), slopes(kParameters), errors(kRows), statistics(4) {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 0.2F * std::sin(static_cast<float>(i));
    fill(rows, kRows * kInputs, kInputs);
    fill(next, kRows * kColumns, kColumns);
    fill(to_outputs, kRows * kColumns, kColumns);
    fill(returns, kRows, 1);
    fill(discounts, kRows, 1);
    const auto actions = taken.write<std::int64_t>(kRows, 1);
    for (std::size_t row = 0; row < kRows; ++row) actions[row] = static_cast<std::int64_t>(row % kActions);
    call.weights = weights;
    call.gradient = slopes;
    call.errors = errors;
    call.statistics = statistics;
    call.samples = kRows;
  }

  static void fill(Register& to, std::size_t count, std::size_t width) {
    const auto numbers = to.write<float>(count / width, width);
    for (std::size_t i = 0; i < count; ++i) numbers[i] = std::cos(static_cast<float>(i));
  }

  std::vector<float> weights, slopes, errors;
  std::vector<double> statistics;
  Register rows, next, to_outputs, returns, discounts, taken, outputs, targets, to_values;
  GradientCall call;
};

void a_head_of_log_probabilities_is_that_of_its_functions() {
  Gradient of;
  const BranchHeads heads{{kColumns, -1, false, false, kAtoms, &of.outputs, &of.to_outputs}};
  Forward forward(network(), {heads}, of.rows, false, true);
  forward.run(of.call);
  forward.differentiate(of.call);

  DenseNetwork plain = network();
  std::vector<float> columns(kRows * kColumns), to_columns(columns.size()), slopes(kParameters);
  float* const to = columns.data();
  plain.forward(of.weights, of.rows.view<float>(), kRows, std::span<float* const>(&to, 1), true);
  log_softmax(kAtoms, columns, columns);
  log_softmax_back(kAtoms, columns, of.to_outputs.view<float>(), to_columns);
  const float* const from = to_columns.data();
  plain.backward(of.weights, of.rows.view<float>(), std::span<const float* const>(&from, 1), slopes, {});
  const auto found = of.outputs.view<float>();
  CHECK(std::vector<float>(found.begin(), found.end()) == columns);
  CHECK(of.slopes == slopes);
}

void forbidden_actions_have_their_output_and_no_slope() {
  Gradient of, all;
  std::vector<std::byte> stored(kRows * 5, std::byte{1});
  stored[5 * 1 + 3 + 1] = std::byte{0};  // of row 1, the second action
  Register masks;
  masks.refer(stored.data(), kRows, 5);
  const auto pass = [&](Gradient& by, bool masked) {
    const BranchHeads heads{{kColumns, -1, false, masked, 0, &by.outputs, &by.to_outputs}};
    Forward forward(network(), {heads}, by.rows, false, true, nullptr, Masks{masks, {3, kActions}});
    forward.run(by.call);
    forward.differentiate(by.call);
  };
  const auto slopes = all.to_outputs.written<float>();
  std::fill_n(slopes.begin() + kColumns + kAtoms, kAtoms, 0.0F);
  pass(of, true);
  pass(all, false);
  const auto found = of.outputs.view<float>(), plain = all.outputs.view<float>();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool forbidden = i >= kColumns + kAtoms && i < 2 * kColumns;
    CHECK(found[i] == (forbidden ? kForbidden : plain[i]));
  }
  CHECK(of.slopes == all.slopes);
}

void passes_through_noisy_layers_take_the_next_words() {
  // The layer of `network`, with noise: means and deviations of its weight and bias, 16 floats each.
  const std::size_t all = 4 * 16;
  const NoisyLayer noisy{kInputs, kColumns, 0, 16, 32, 48, 0, 16};
  const DerivedWeights weights({}, {noisy}, {}, all, kParameters);
  Gradient of;
  of.weights.assign(all, 0.25F);
  of.slopes.assign(all, 0.0F);
  of.call.weights = of.weights;
  of.call.gradient = of.slopes;
  const std::vector<std::int64_t> words{11, 12};
  of.call.words = words;
  const BranchHeads heads{{kColumns, -1, false, false, 0, &of.outputs, &of.to_outputs}};
  const auto pass = [&](bool keep) {
    return Forward(network(), {heads}, of.rows, false, keep,
                   std::make_unique<DerivedPass>(weights, std::vector<Range>{{0, kInputs + kColumns}}));
  };
  Forward first = pass(false), second = pass(true);
  first.run(of.call);
  second.run(of.call);
  second.differentiate(of.call);
  CHECK(of.call.words_taken == 2);

  std::vector<float> factors(weights.factors()), block(kParameters), columns(kRows * kColumns), slopes(all);
  std::vector<float> to_block(kParameters);
  philox_factors(12, 0, factors);
  weights.forward(of.weights, factors, block);
  DenseNetwork plain = network();
  float* const to = columns.data();
  plain.forward(block, of.rows.view<float>(), kRows, std::span<float* const>(&to, 1), true);
  const float* const from = of.to_outputs.view<float>().data();
  plain.backward(block, of.rows.view<float>(), std::span<const float* const>(&from, 1), to_block, {});
  weights.backward(factors, to_block, slopes);
  const auto found = of.outputs.view<float>();
  CHECK(std::vector<float>(found.begin(), found.end()) == columns);
  CHECK(of.slopes == slopes);
}

void rows_are_normalised_by_statistics_that_count_some() {
  // A memory of two rows of one number each, and a block of weights with a count, a shift and a scale.
  const std::vector<float> numbers{3.0F, 50.0F}, rewards{4.0F, -9.0F};
  const std::vector<std::int64_t> actions(2), positions{0};
  const std::vector<std::uint8_t> no(2), yes(2, 1);
  const auto bytes = [](const auto& of) { return reinterpret_cast<const std::byte*>(of.data()); };
  ReplayRows memory{1, 2, 1, sizeof(float), sizeof(std::int64_t), bytes(numbers), bytes(numbers),
                    bytes(actions), {}, {}, {}, {}};
  memory.rewards = rewards.data();
  memory.terminated = memory.truncated = no.data();
  memory.valid = yes.data();
  std::vector<double> block{0.0, 0.0};
  float* const factors = reinterpret_cast<float*>(&block[1]);
  factors[0] = 1.0F;
  factors[1] = 0.5F;
  const StatisticPlaces places{0, 8, 12, 1};
  Gradient of;
  Register following, importance;
  const std::vector<std::uint32_t> leaves{1};
  of.call.block = std::as_bytes(std::span<const double>(block));
  of.call.rows = positions;
  of.call.leaves = leaves;
  of.call.least = 1;
  Gather step(memory, {1, 1, 0.9, 0.0, places, places, 10.0F},
              {&of.rows, &following, &of.taken, &of.returns, &of.discounts, &importance});
  step.run(of.call);
  CHECK(of.call.ended && of.call.samples == 0);
  block[0] = 2.0;
  of.call.ended = false;
  step.run(of.call);
  CHECK(!of.call.ended && of.call.samples == 1);
  CHECK(of.rows.view<float>()[0] == 1.0F && following.view<float>()[0] == 10.0F);  // the latter is clamped
  CHECK(of.returns.view<float>()[0] == 2.0F && importance.view<float>()[0] == 1.0F);
}

void returns_that_are_not_finite_end_a_gradient() {
  Gradient of;
  CategoricalTargets step(kSupport, {of.next, of.next, of.returns, of.discounts}, of.targets);
  step.run(of.call);
  CHECK(of.call.loss == 0.0);
  of.returns.write<float>(kRows, 1)[1] = kInfinity;
  step.run(of.call);
  CHECK(std::isnan(of.call.loss));
}

void a_policy_too_far_from_the_acting_one_ends_a_gradient() {
  Gradient of;
  Register values, to_values;
  Gradient::fill(values, kRows, 1);
  const std::vector<std::int64_t> actions(kRows, 1);
  const std::vector<float> log_probs(kRows, -0.5F), numbers(kRows, 1.0F);
  PPOBatch batch{};
  batch.actions.choices = actions;
  batch.behaviour_log_probs = log_probs;
  batch.advantages = batch.returns = numbers;
  const auto run = [&](double most) {
    of.call.ended = false;
    of.call.loss = 0.0;
    of.statistics.resize(5);
    of.call.statistics = of.statistics;
    PPOStep({{kColumns}, 0}, {0.2F, 0.5F, 0.0F, false, 0.0F, false}, batch, most, {}, of.next, values, of.to_outputs,
            to_values)
        .run(of.call);
    return !of.call.ended && std::isfinite(of.call.loss);
  };
  CHECK(run(0.0));
  const double divergence = of.statistics[3];
  CHECK(divergence > 0.0 && run(divergence) && !run(0.5 * divergence));
}

template <typename Loss>
void an_unknown_action_ends_a_gradient(std::size_t targets, Loss&& loss) {
  Gradient of;
  of.targets.write<float>(kRows, targets)[0] = 1.0F;
  const auto step = loss(ValueInputs{of.next, of.taken, of.targets, nullptr}, of.to_values);
  step->run(of.call);
  CHECK(std::isfinite(of.call.loss) && of.to_values.rows() == kRows);
  of.taken.write<std::int64_t>(kRows, 1)[2] = kColumns;
  step->run(of.call);
  CHECK(std::isnan(of.call.loss));
}

}  // namespace

int main() {
  a_head_of_log_probabilities_is_that_of_its_functions();
  forbidden_actions_have_their_output_and_no_slope();
  passes_through_noisy_layers_take_the_next_words();
  rows_are_normalised_by_statistics_that_count_some();
  returns_that_are_not_finite_end_a_gradient();
  a_policy_too_far_from_the_acting_one_ends_a_gradient();
  an_unknown_action_ends_a_gradient(kAtoms, [](ValueInputs inputs, Register& to) {
    return std::make_unique<CategoricalStep>(kSupport, inputs, to);
  });
  an_unknown_action_ends_a_gradient(kAtoms, [](ValueInputs inputs, Register& to) {
    return std::make_unique<QuantileStep>(kAtoms, inputs, to);
  });
  an_unknown_action_ends_a_gradient(1, [](ValueInputs inputs, Register& to) {  // the values of critics, of six actions
    return std::make_unique<CriticStep>(std::vector<const Register*>{&inputs.outputs}, std::vector<Register*>{&to},
                                        &inputs.actions, 1.0F, inputs.targets, inputs.outputs,
                                        std::vector<std::size_t>{0, 1, 2});
  });
}
