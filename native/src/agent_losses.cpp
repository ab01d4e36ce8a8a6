#include "hive/agent_losses.hpp"

#include <algorithm>
#include <cmath>

#include "hive/elementary.hpp"
#include "hive/masks.hpp"
#include "hive/simd.hpp"
#include "row_memory.hpp"

namespace hive {
namespace {

constexpr std::size_t kBlock = 256;  // elements whose functions are computed together
constexpr double kHalfLogTwoPi = 0.918938533204672742;

// The first of the critics' values at one place that is not larger than another. NaN is the least.
float least_of(CriticValues values, std::size_t at) {
  float least = values[0][at];
  for (std::size_t critic = 1; critic < values.size(); ++critic) {
    const float value = values[critic][at];
    least = value < least || value != value ? value : least;
  }
  return least;
}

// What `count` elements of a squashed Gaussian need: their means, log deviations and noise, as float64.
struct Elements {
  alignas(64) double means[kBlock], logs[kBlock], noise[kBlock];

  void gather(std::size_t dimensions, const float* outputs, const float* given, std::size_t first, std::size_t count) {
    std::size_t row = first / dimensions, d = first % dimensions;
    for (std::size_t i = 0; i < count; ++i) {
      const float* output = outputs + row * 2 * dimensions + d;
      means[i] = static_cast<double>(output[0]);
      logs[i] = static_cast<double>(output[dimensions]);
      noise[i] = static_cast<double>(given[first + i]);
      if (++d == dimensions) {
        d = 0;
        ++row;
      }
    }
  }
};

// Writes tanh(u), and for each element minus its part of the log density. Inlined, it would be the baseline's version.
HIVE_SIMD [[gnu::noinline]] void squash(const Elements& of, std::size_t count, float* actions, double* parts) {
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const double u = of.means[i] + exp_of(of.logs[i]) * of.noise[i], size = std::fabs(u);
    const double power = exp_of(-2.0 * size);
    const double log_slope = 2.0 * (elementary::kLn2 - size - log_of(1.0 + power));  // log(1 - tanh(u)^2)
    actions[i] = static_cast<float>(tanh_of(u));
    parts[i] = log_slope + of.logs[i] + (0.5 * of.noise[i] * of.noise[i] + kHalfLogTwoPi);
  }
}

HIVE_SIMD [[gnu::noinline]] void squash_back(const Elements& of, std::size_t count, const float* actions, const float* to_actions,
                           double to_log_prob, float* to_means, float* to_logs) {
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const double a = static_cast<double>(actions[i]);
    const double to_u = static_cast<double>(to_actions[i]) * (1.0 - a * a) + 2.0 * to_log_prob * a;
    to_means[i] = static_cast<float>(to_u);
    to_logs[i] = static_cast<float>(to_u * exp_of(of.logs[i]) * of.noise[i] - to_log_prob);
  }
}

// Log probabilities of the logits of one row.
HIVE_SIMD void log_softmax(std::size_t count, const float* logits, double* log_probs) {
  double largest = static_cast<double>(logits[0]), sum = 0.0;
  for (std::size_t j = 1; j < count; ++j) {
    const double logit = static_cast<double>(logits[j]);
    largest = logit > largest ? logit : largest;
  }
  for (std::size_t j = 0; j < count; ++j) sum += exp_of(static_cast<double>(logits[j]) - largest);
  const double log_sum = log_of(sum);
  for (std::size_t j = 0; j < count; ++j) log_probs[j] = static_cast<double>(logits[j]) - largest - log_sum;
}

}  // namespace

void clamp_deviations(std::size_t dimensions, std::span<const float> columns, std::span<float> outputs) {
  for (std::size_t row = 0; row < columns.size(); row += 2 * dimensions) {
    const float* from = columns.data() + row;
    float* to = outputs.data() + row;
    if (from != to) std::copy_n(from, dimensions, to);
    for (std::size_t d = dimensions; d < 2 * dimensions; ++d) {
      const float log = from[d];
      to[d] = log < kLeastLogDeviation ? kLeastLogDeviation : log > kMostLogDeviation ? kMostLogDeviation : log;
    }
  }
}

void clamp_deviations_back(std::size_t dimensions, std::span<const float> columns, std::span<const float> to_outputs,
                           std::span<float> to_columns) {
  for (std::size_t row = 0; row < columns.size(); row += 2 * dimensions) {
    const float* from = to_outputs.data() + row;
    float* to = to_columns.data() + row;
    if (from != to) std::copy_n(from, dimensions, to);
    for (std::size_t d = dimensions; d < 2 * dimensions; ++d) {
      const float log = columns[row + d];
      to[d] = log < kLeastLogDeviation || log > kMostLogDeviation ? 0.0F : from[d];
    }
  }
}

void squashed_sample(std::size_t dimensions, std::span<const float> outputs, std::span<const float> noise,
                     std::span<float> actions, std::span<float> log_probs) {
  Elements elements;
  alignas(64) double parts[kBlock];
  double sum = 0.0;
  std::size_t row = 0, d = 0;
  for (std::size_t first = 0; first < noise.size(); first += kBlock) {
    const std::size_t count = std::min(kBlock, noise.size() - first);
    elements.gather(dimensions, outputs.data(), noise.data(), first, count);
    squash(elements, count, actions.data() + first, parts);
    for (std::size_t i = 0; i < count; ++i) {
      sum -= parts[i];
      if (++d == dimensions) {
        log_probs[row++] = static_cast<float>(sum);
        sum = 0.0;
        d = 0;
      }
    }
  }
}

void squashed_slopes(std::size_t dimensions, std::span<const float> outputs, std::span<const float> noise,
                     std::span<const float> actions, std::span<const float> to_actions, float to_log_prob,
                     std::span<float> to_outputs) {
  Elements elements;
  alignas(64) float to_means[kBlock], to_logs[kBlock];
  std::size_t row = 0, d = 0;
  for (std::size_t first = 0; first < noise.size(); first += kBlock) {
    const std::size_t count = std::min(kBlock, noise.size() - first);
    elements.gather(dimensions, outputs.data(), noise.data(), first, count);
    squash_back(elements, count, actions.data() + first, to_actions.data() + first, static_cast<double>(to_log_prob),
                to_means, to_logs);
    for (std::size_t i = 0; i < count; ++i) {
      float* to = to_outputs.data() + row * 2 * dimensions + d;
      to[0] = to_means[i];
      to[dimensions] = to_logs[i];
      if (++d == dimensions) {
        d = 0;
        ++row;
      }
    }
  }
}

HIVE_SIMD void tanh_actions(std::span<const float> outputs, std::span<const float> noise, float deviation, float limit,
                            std::span<float> actions) {
  const std::size_t size = outputs.size();
  const float* const from = outputs.data();
  float* const to = actions.data();
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < size; ++i) to[i] = static_cast<float>(tanh_of(static_cast<double>(from[i])));
  const float* const drawn = noise.data();
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < noise.size(); ++i) {
    const float moved = drawn[i] * deviation;
    const float action = to[i] + (moved < -limit ? -limit : moved > limit ? limit : moved);
    to[i] = action < -1.0F ? -1.0F : action > 1.0F ? 1.0F : action;
  }
}

void tanh_slopes(std::span<const float> actions, std::span<const float> to_actions, std::span<float> to_outputs) {
  for (std::size_t i = 0; i < actions.size(); ++i) to_outputs[i] = to_actions[i] * (1.0F - actions[i] * actions[i]);
}

void soft_targets(CriticValues values, std::span<const float> log_probs, double temperature,
                  std::span<const float> returns, std::span<const float> discounts, std::span<float> targets) {
  const auto weight = static_cast<float>(temperature);
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const float value = least_of(values, row);
    targets[row] = returns[row] + discounts[row] * (log_probs.empty() ? value : value - weight * log_probs[row]);
  }
}

void soft_choice_targets(std::size_t count, std::span<const float> logits, CriticValues values, double temperature,
                         std::span<const float> returns, std::span<const float> discounts, std::span<float> targets) {
  double* log_probs = row_memory(count);
  for (std::size_t row = 0; row < targets.size(); ++row) {
    log_softmax(count, logits.data() + row * count, log_probs);
    double value = 0.0;
    for (std::size_t j = 0; j < count; ++j) {
      value += exp_of(log_probs[j]) * (static_cast<double>(least_of(values, row * count + j)) - temperature * log_probs[j]);
    }
    targets[row] = returns[row] + discounts[row] * static_cast<float>(value);
  }
}

CriticLoss critic_loss(std::size_t count, bool huber, float factor, CriticValues values,
                       std::span<const std::int64_t> actions, std::span<const float> targets,
                       std::span<const float> importance, std::span<float> errors, CriticSlopes to_values) {
  const std::size_t rows = targets.size(), critics = values.size();
  const float equal = factor / static_cast<float>(std::max<std::size_t>(rows, 1));
  if (!actions.empty()) {
    for (float* slopes : to_values) std::fill_n(slopes, rows * count, 0.0F);
  }
  CriticLoss sum{};
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t at = actions.empty() ? row : row * count + static_cast<std::size_t>(actions[row]);
    const float weight = importance[row] * equal;
    double absolute = 0.0;
    for (std::size_t critic = 0; critic < critics; ++critic) {
      const float value = values[critic][at], error = value - targets[row], size = std::fabs(error);
      const bool linear = huber && size > 1.0F;
      const float loss = linear ? size - 0.5F : (huber ? 0.5F : 1.0F) * error * error;
      to_values[critic][at] = (linear ? std::copysign(1.0F, error) : (huber ? 1.0F : 2.0F) * error) * weight;
      sum.total += static_cast<double>(weight) * static_cast<double>(loss);
      sum.mean += static_cast<double>(value);
      absolute += static_cast<double>(size);
    }
    sum.error += absolute;
    if (!errors.empty()) errors[row] = static_cast<float>(absolute / static_cast<double>(critics));
  }
  const double terms = static_cast<double>(std::max<std::size_t>(rows, 1) * critics);
  sum.mean /= terms;
  sum.error /= terms;
  return sum;
}

double least_values(CriticValues values, std::size_t rows, CriticSlopes to_values) {
  const float equal = -1.0F / static_cast<float>(std::max<std::size_t>(rows, 1));
  double sum = 0.0;
  for (std::size_t row = 0; row < rows; ++row) {
    const float least = least_of(values, row);
    std::size_t ties = 0;
    for (const float* of : values) ties += of[row] == least ? 1 : 0;
    const float share = ties ? equal / static_cast<float>(ties) : least;  // NaN without ties
    for (std::size_t critic = 0; critic < values.size(); ++critic) {
      to_values[critic][row] = !ties || values[critic][row] == least ? share : 0.0F;
    }
    sum += static_cast<double>(least);
  }
  return sum / static_cast<double>(std::max<std::size_t>(rows, 1));
}

SoftLoss soft_choice_loss(std::size_t count, std::span<const float> logits, CriticValues values, double temperature,
                          std::span<float> to_logits) {
  const std::size_t rows = logits.size() / count;
  const double weight = 1.0 / static_cast<double>(std::max<std::size_t>(rows, 1));
  double* log_probs = row_memory(count);
  SoftLoss sum{};
  std::size_t forbidden = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const own = logits.data() + row * count;
    const auto allowed = static_cast<std::size_t>(std::count_if(own, own + count, [](float x) { return x > kAllowed; }));
    forbidden += count - allowed;
    sum.greatest += std::log(static_cast<double>(std::max<std::size_t>(allowed, 1)));
    log_softmax(count, own, log_probs);
    double entropy = 0.0, value = 0.0;
    for (std::size_t j = 0; j < count; ++j) {
      const double chance = exp_of(log_probs[j]);
      entropy -= chance * log_probs[j];
      value += chance * static_cast<double>(least_of(values, row * count + j));
    }
    sum.total -= temperature * entropy + value;
    sum.mean -= entropy;
    // d/d logit k of sum p_j (temperature log p_j - q_j) is p_k times its term minus the mean of all terms.
    for (std::size_t j = 0; j < count; ++j) {
      const double term = temperature * (log_probs[j] + entropy) -
                          (static_cast<double>(least_of(values, row * count + j)) - value);
      to_logits[row * count + j] = static_cast<float>(exp_of(log_probs[j]) * term * weight);
    }
  }
  const double whole = std::log(static_cast<double>(count));  // its mean over rows would be rounded
  return {sum.total * weight, sum.mean * weight, forbidden == 0 ? whole : sum.greatest * weight};
}

double soft_temperature(double scale, double log) { return scale * exp_of(log); }

TemperatureLoss temperature_loss(float log, double mean_log_prob, double target_entropy) {
  const double slope = -(mean_log_prob + target_entropy);
  return {static_cast<double>(log) * slope, static_cast<float>(slope)};
}

}  // namespace hive
