#include "hive/losses.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "dense/kernels.hpp"

namespace hive {
namespace {

constexpr float kHalfLogTwoPi = 0.918938533204672742F;

// The logarithm of the sum of exponentials, and the largest logit.
struct Normaliser {
  float largest, log_sum;
  float log_probability(float logit) const { return logit - largest - log_sum; }
};

Normaliser normaliser(const float* logits, std::size_t count) {
  float largest = logits[0];
  // A NaN among the logits makes the sum NaN, whichever of them is the largest.
  for (std::size_t j = 1; j < count; ++j) largest = logits[j] > largest ? logits[j] : largest;
  float sum = 0.0F;
  for (std::size_t j = 0; j < count; ++j) sum += std::exp(logits[j] - largest);
  return {largest, std::log(sum)};
}

}  // namespace

Policy::Policy(std::vector<std::size_t> choices, std::size_t dimensions)
    : choices_(std::move(choices)), dimensions_(dimensions) {
  if (choices_.empty() && dimensions_ == 0) throw std::invalid_argument("a policy has choices or dimensions");
  for (const std::size_t count : choices_) {
    if (count == 0) throw std::invalid_argument("a choice has at least one alternative");
    width_ += count;
  }
  if (choices_.empty()) width_ = 2 * dimensions_;
}

std::ptrdiff_t Policy::first_unknown(Actions actions) const {
  if (gaussian()) return -1;
  for (std::size_t at = 0; at < actions.choices.size(); ++at) {
    const std::int64_t action = actions.choices[at];
    if (action < 0 || action >= static_cast<std::int64_t>(choices_[at % choices_.size()])) {
      return static_cast<std::ptrdiff_t>(at / choices_.size());
    }
  }
  return -1;
}

Policy::Terms Policy::terms(const float* outputs, Actions actions, std::size_t row) const {
  Terms sum{0.0F, 0.0F};
  if (gaussian()) {
    const float* action = actions.numbers.data() + row * dimensions_;
    for (std::size_t d = 0; d < dimensions_; ++d) {
      const float log_deviation = outputs[dimensions_ + d];
      const float scaled = (action[d] - outputs[d]) * std::exp(-log_deviation);
      sum.log_probability += -0.5F * scaled * scaled - log_deviation - kHalfLogTwoPi;
      sum.entropy += log_deviation + (0.5F + kHalfLogTwoPi);
    }
    return sum;
  }
  const std::int64_t* action = actions.choices.data() + row * choices_.size();
  for (const std::size_t count : choices_) {
    const Normaliser by = normaliser(outputs, count);
    sum.log_probability += by.log_probability(outputs[*action++]);
    for (std::size_t j = 0; j < count; ++j) {
      const float log_probability = by.log_probability(outputs[j]);
      sum.entropy -= std::exp(log_probability) * log_probability;
    }
    outputs += count;
  }
  return sum;
}

void Policy::slopes(const float* outputs, Actions actions, std::size_t row, Terms terms, float to_log_probability,
                    float to_entropy, float* to_outputs) const {
  if (gaussian()) {
    const float* action = actions.numbers.data() + row * dimensions_;
    for (std::size_t d = 0; d < dimensions_; ++d) {
      const float inverse = std::exp(-outputs[dimensions_ + d]);
      const float scaled = (action[d] - outputs[d]) * inverse;
      to_outputs[d] = to_log_probability * scaled * inverse;
      to_outputs[dimensions_ + d] = to_log_probability * (scaled * scaled - 1.0F) + to_entropy;
    }
    return;
  }
  const std::int64_t* action = actions.choices.data() + row * choices_.size();
  const bool single = choices_.size() == 1;
  for (const std::size_t count : choices_) {
    const Normaliser by = normaliser(outputs, count);
    float entropy = single ? terms.entropy : 0.0F;
    for (std::size_t j = 0; j < count; ++j) {
      const float log_probability = by.log_probability(outputs[j]);
      to_outputs[j] = log_probability;
      if (!single) entropy -= std::exp(log_probability) * log_probability;
    }
    for (std::size_t j = 0; j < count; ++j) {
      const float log_probability = to_outputs[j], probability = std::exp(log_probability);
      to_outputs[j] = -probability * (to_log_probability + to_entropy * (log_probability + entropy));
    }
    to_outputs[*action++] += to_log_probability;
    outputs += count;
    to_outputs += count;
  }
}

std::size_t RowSizes::acted() const {
  std::size_t sum = 0;
  for (std::size_t at = 0; at < sizes.size(); at += 2) sum += static_cast<std::size_t>(sizes[at]);
  return sum;
}

std::size_t RowSizes::all() const {
  std::size_t sum = 0;
  for (const std::int64_t size : sizes) sum += static_cast<std::size_t>(size);
  return sum;
}

namespace {

// Calls f(row of the outputs, row of the acted ones) for each acted row, and g(first, count) for the rows between.
template <typename F, typename G>
void each_acted(RowSizes rows, const F& f, const G& g) {
  std::size_t row = 0, acted = 0;
  for (std::size_t at = 0; at < rows.sizes.size(); ++at) {
    const auto count = static_cast<std::size_t>(rows.sizes[at]);
    if (at % 2 == 0) {
      for (std::size_t i = 0; i < count; ++i) f(row + i, acted++);
    } else {
      g(row, count);
    }
    row += count;
  }
}

}  // namespace

void log_probabilities(const Policy& policy, std::span<const float> outputs, Actions actions, RowSizes rows,
                       std::span<float> to) {
  each_acted(
      rows,
      [&](std::size_t row, std::size_t acted) {
        to[acted] = policy.terms(outputs.data() + row * policy.width(), actions, acted).log_probability;
      },
      [](std::size_t, std::size_t) {});
}

ActorCriticLoss actor_critic_loss(const Policy& policy, std::span<const float> outputs, std::span<const float> values,
                                  Actions actions, RowSizes rows, std::span<const float> advantages,
                                  std::span<const float> returns, std::span<const float> weights, float value_weight,
                                  float entropy_weight, std::span<float> to_outputs, std::span<float> to_values) {
  const std::size_t width = policy.width();
  ActorCriticLoss sum{};
  const auto nothing = [&](std::size_t first, std::size_t count) {
    std::fill_n(to_outputs.data() + first * width, count * width, 0.0F);
    std::fill_n(to_values.data() + first, count, 0.0F);
  };
  const auto row_loss = [&](std::size_t row, std::size_t acted) {
    const float weight = weights[acted];
    if (weight == 0.0F) return nothing(row, 1);
    const float* output = outputs.data() + row * width;
    const Policy::Terms terms = policy.terms(output, actions, acted);
    const float error = values[row] - returns[acted];
    sum.policy -= static_cast<double>(weight) * terms.log_probability * advantages[acted];
    sum.value += static_cast<double>(weight) * error * error;
    sum.entropy += static_cast<double>(weight) * terms.entropy;
    sum.mean_value += static_cast<double>(weight) * values[row];
    policy.slopes(output, actions, acted, terms, -advantages[acted] * weight, -entropy_weight * weight,
                  to_outputs.data() + row * width);
    to_values[row] = value_weight * 2.0F * error * weight;
  };
  each_acted(rows, row_loss, nothing);
  sum.total = sum.policy + static_cast<double>(value_weight) * sum.value -
              static_cast<double>(entropy_weight) * sum.entropy;
  return sum;
}

namespace {

// Keeps the normalisation of equal advantages finite.
constexpr double kEpsilon = 1e-8;

// advantage -> (advantage - mean) * factor, for those of some rows: to mean 0 and deviation 1, if there are two or more.
struct Normalisation {
  double mean = 0.0, factor = 1.0;

  template <typename Row>
  static Normalisation of(std::span<const float> advantages, std::size_t count, const Row& row) {
    if (count < 2) return {};
    double sum = 0.0, squares = 0.0;
    for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(advantages[row(i)]);
    const double mean = sum / static_cast<double>(count);
    for (std::size_t i = 0; i < count; ++i) {
      const double distance = static_cast<double>(advantages[row(i)]) - mean;
      squares += distance * distance;
    }
    return {mean, 1.0 / (std::sqrt(squares / static_cast<double>(count - 1)) + kEpsilon)};
  }

  float operator()(float advantage) const {
    return static_cast<float>((static_cast<double>(advantage) - mean) * factor);
  }
};

}  // namespace

PPOLoss ppo_loss(const Policy& policy, const PPOSettings& settings, std::span<const float> outputs,
                 std::span<const float> values, const PPOBatch& batch, std::span<const std::int64_t> rows,
                 std::span<float> to_outputs, std::span<float> to_values) {
  const std::size_t width = policy.width(), count = values.size();
  const float weight = 1.0F / static_cast<float>(std::max<std::size_t>(count, 1));
  const auto number = [rows](std::size_t i) { return rows.empty() ? i : static_cast<std::size_t>(rows[i]); };
  Normalisation normalised;
  if (settings.normalizes) normalised = Normalisation::of(batch.advantages, count, number);
  PPOLoss sum{};
  for (std::size_t row = 0; row < count; ++row) {
    const float* output = outputs.data() + row * width;
    const std::size_t of = number(row);
    const Policy::Terms terms = policy.terms(output, batch.actions, of);
    const float log_ratio = terms.log_probability - batch.behaviour_log_probs[of];
    const float ratio = std::exp(log_ratio);
    const float advantage = settings.normalizes ? normalised(batch.advantages[of]) : batch.advantages[of];
    const float clipped = std::clamp(ratio, 1.0F - settings.clip_range, 1.0F + settings.clip_range);
    // NaN compares false here and passes on through `ratio`.
    const bool bounded = clipped * advantage < ratio * advantage;
    float value = values[row], value_factor = 1.0F;
    if (settings.clips_values) {
      const float moved = value - batch.behaviour_values[of];
      const float limited = std::clamp(moved, -settings.value_clip_range, settings.value_clip_range);
      value_factor = limited == moved || moved != moved ? 1.0F : 0.0F;
      value = batch.behaviour_values[of] + limited;
    }
    const float error = value - batch.returns[of], change = ratio - 1.0F;
    sum.policy -= static_cast<double>(bounded ? clipped * advantage : ratio * advantage);
    sum.value += static_cast<double>(error) * error;
    sum.entropy += static_cast<double>(terms.entropy);
    sum.divergence += static_cast<double>(change - log_ratio);
    sum.clipped += std::fabs(change) > settings.clip_range ? 1.0 : 0.0;
    policy.slopes(output, batch.actions, of, terms, bounded ? 0.0F : -advantage * ratio * weight,
                  -settings.entropy_weight * weight, to_outputs.data() + row * width);
    to_values[row] = settings.value_weight * 2.0F * error * value_factor * weight;
  }
  for (double* mean : {&sum.policy, &sum.value, &sum.entropy, &sum.divergence, &sum.clipped}) {
    *mean *= static_cast<double>(weight);
  }
  sum.total = sum.policy + static_cast<double>(settings.value_weight) * sum.value -
              static_cast<double>(settings.entropy_weight) * sum.entropy;
  return sum;
}

double mean(std::span<const float> numbers) {
  double sum = 0.0;
  for (const float number : numbers) sum += static_cast<double>(number);
  return sum / static_cast<double>(numbers.size());
}

void column_sums(std::span<const float> from, std::size_t width, std::size_t first, std::span<float> to) {
  std::fill(to.begin(), to.end(), 0.0F);
  for (std::size_t row = first; row < from.size(); row += width) {
    for (std::size_t column = 0; column < to.size(); ++column) to[column] += from[row + column];
  }
}

QLoss q_loss(std::size_t count, bool huber, std::span<const float> values, std::span<const std::int64_t> actions,
             std::span<const float> targets, std::span<const float> weights, std::span<const float> importance,
             std::span<float> errors, std::span<float> to_values) {
  const std::size_t rows = targets.size();
  const float equal = 1.0F / static_cast<float>(std::max<std::size_t>(rows, 1));
  std::fill(to_values.begin(), to_values.end(), 0.0F);
  QLoss sum{};
  for (std::size_t row = 0; row < rows; ++row) {
    const float* value = values.data() + row * count;
    const auto taken = static_cast<std::size_t>(actions[row]);
    const float weight = weights.empty() ? equal : weights[row];
    const float factor = importance.empty() ? 1.0F : importance[row];
    const float error = value[taken] - targets[row], size = std::fabs(error);
    const bool linear = huber && size > 1.0F;
    const float loss = linear ? size - 0.5F : (huber ? 0.5F : 1.0F) * error * error;
    const float slope = linear ? std::copysign(1.0F, error) : (huber ? 1.0F : 2.0F) * error;
    float largest = value[0];
    for (std::size_t j = 1; j < count; ++j) largest = value[j] > largest || value[j] != value[j] ? value[j] : largest;
    if (!errors.empty()) errors[row] = size;
    to_values[row * count + taken] = slope * factor * weight;
    sum.total += static_cast<double>(weight) * loss * factor;
    sum.mean += static_cast<double>(weight) * value[taken];
    sum.largest += static_cast<double>(weight) * largest;
    sum.error += static_cast<double>(weight) * size;
  }
  return sum;
}

namespace {

double mean_of(const float* numbers, std::size_t count) {
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(numbers[i]);
  return sum / static_cast<double>(count);
}

}  // namespace

QLoss quantile_loss(QuantileSizes sizes, std::span<const float> outputs, std::span<const std::int64_t> actions,
                    std::span<const float> targets, std::span<const float> importance, std::span<float> errors,
                    std::span<float> to_outputs) {
  const std::size_t rows = actions.size(), count = sizes.quantiles, area = sizes.actions * count;
  const float weight = 1.0F / static_cast<float>(std::max<std::size_t>(rows, 1));
  std::fill(to_outputs.begin(), to_outputs.end(), 0.0F);
  QLoss sum{};
  for (std::size_t row = 0; row < rows; ++row) {
    const auto taken = static_cast<std::size_t>(actions[row]);
    const float* output = outputs.data() + row * area;
    const float* quantiles = output + taken * count;
    const float* wanted = targets.data() + row * sizes.targets;
    float* slopes = to_outputs.data() + row * area + taken * count;
    const float factor = importance.empty() ? 1.0F : importance[row];
    double loss = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
      const float tau = (static_cast<float>(i) + 0.5F) / static_cast<float>(count);
      const dense::Pull found = dense::chosen_kernels().pull(quantiles[i], tau, wanted, sizes.targets);
      loss += static_cast<double>(found.loss);
      slopes[i] = found.slope * factor * weight;
    }
    double largest = mean_of(output, count);
    for (std::size_t action = 1; action < sizes.actions; ++action) {
      const double value = mean_of(output + action * count, count);
      largest = value > largest || value != value ? value : largest;
    }
    const double value = mean_of(quantiles, count);
    const double error = std::fabs(mean_of(wanted, sizes.targets) - value);
    if (!errors.empty()) errors[row] = static_cast<float>(error);
    sum.total += loss * static_cast<double>(factor);
    sum.mean += value;
    sum.largest += largest;
    sum.error += error;
  }
  for (double* mean : {&sum.total, &sum.mean, &sum.largest, &sum.error}) *mean *= static_cast<double>(weight);
  return sum;
}

}  // namespace hive
