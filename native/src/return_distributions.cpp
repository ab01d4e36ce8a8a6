#include "hive/return_distributions.hpp"

#include <algorithm>
#include <cmath>

#include "hive/elementary.hpp"
#include "hive/masks.hpp"
#include "hive/simd.hpp"
#include "row_memory.hpp"

namespace hive {
namespace {

constexpr std::size_t kLanes = 8;

// The sum of numbers in lanes, which vector code adds side by side; the order is that of this function.
[[gnu::always_inline]] inline double sum_of(const double* numbers, std::size_t count) {
  double lanes[kLanes] = {};
  std::size_t first = 0;
  for (; first + kLanes <= count; first += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += numbers[first + lane];
  }
  for (std::size_t lane = 0; first + lane < count; ++lane) lanes[lane] += numbers[first + lane];
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

[[gnu::always_inline]] inline float largest_of(const float* numbers, std::size_t count) {
  float largest = numbers[0];
  for (std::size_t i = 1; i < count; ++i) largest = numbers[i] > largest ? numbers[i] : largest;
  return largest;
}

// Functions with HIVE_SIMD are not inlined: they would be the baseline's version.
HIVE_SIMD [[gnu::noinline]] void softmax_row(std::size_t count, const float* columns, double* powers, float* outputs) {
  const auto largest = static_cast<double>(largest_of(columns, count));
  for (std::size_t i = 0; i < count; ++i) powers[i] = exp_of(static_cast<double>(columns[i]) - largest);
  const double log_sum = log_of(sum_of(powers, count));
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    outputs[i] = static_cast<float>(static_cast<double>(columns[i]) - largest - log_sum);
  }
}

HIVE_SIMD [[gnu::noinline]] void softmax_row_back(std::size_t count, const float* outputs, const float* slopes,
                                                  double* terms, float* to_columns) {
  for (std::size_t i = 0; i < count; ++i) terms[i] = static_cast<double>(slopes[i]);
  const double sum = sum_of(terms, count);
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const double slope = static_cast<double>(slopes[i]);
    to_columns[i] = static_cast<float>(slope - exp_of(static_cast<double>(outputs[i])) * sum);
  }
}

// The expected return of one action, from log probabilities.
HIVE_SIMD [[gnu::noinline]] double expected_category(std::size_t count, const float* logs, const float* support,
                                                     double* terms) {
  for (std::size_t i = 0; i < count; ++i) {
    terms[i] = exp_of(static_cast<double>(logs[i])) * static_cast<double>(support[i]);
  }
  const double value = sum_of(terms, count);
  return static_cast<double>(largest_of(logs, count)) <= kForbidden ? kForbidden : value;
}

HIVE_SIMD [[gnu::noinline]] double expected_quantile(std::size_t count, const float* quantiles, double* terms) {
  for (std::size_t i = 0; i < count; ++i) terms[i] = static_cast<double>(quantiles[i]);
  return sum_of(terms, count) / static_cast<double>(count);
}

HIVE_SIMD [[gnu::noinline]] void probabilities_of(std::size_t count, const float* logs, double* probabilities) {
  for (std::size_t i = 0; i < count; ++i) probabilities[i] = exp_of(static_cast<double>(logs[i]));
}

// The cross entropy of targets and log probabilities; `entropy` receives that of the targets, `expected` their mean.
HIVE_SIMD [[gnu::noinline]] double cross_entropy(std::size_t count, const float* logs, const float* targets,
                                                 const float* support, double* terms, double& entropy,
                                                 double& expected) {
  for (std::size_t i = 0; i < count; ++i) {
    const double target = static_cast<double>(targets[i]);
    terms[i] = target > 0.0 ? target * log_of(target > 0.0 ? target : 1.0) : target;
  }
  entropy = -sum_of(terms, count);
  for (std::size_t i = 0; i < count; ++i) terms[i] = static_cast<double>(targets[i]) * static_cast<double>(support[i]);
  expected = sum_of(terms, count);
  for (std::size_t i = 0; i < count; ++i) terms[i] = static_cast<double>(targets[i]) * static_cast<double>(logs[i]);
  return -sum_of(terms, count);
}

// The first action of the largest value; NaN is the largest.
template <typename Value>
std::size_t best_action(std::size_t actions, const Value& value) {
  std::size_t best = 0;
  double largest = value(0);
  for (std::size_t action = 1; action < actions; ++action) {
    const double other = value(action);
    if (other > largest || (other != other && largest == largest)) {
      best = action;
      largest = other;
    }
  }
  return best;
}

}  // namespace

void log_softmax(std::size_t count, std::span<const float> columns, std::span<float> outputs) {
  double* powers = row_memory(count);
  for (std::size_t at = 0; at < columns.size(); at += count) {
    softmax_row(count, columns.data() + at, powers, outputs.data() + at);
  }
}

void log_softmax_back(std::size_t count, std::span<const float> outputs, std::span<const float> to_outputs,
                      std::span<float> to_columns) {
  double* terms = row_memory(count);
  for (std::size_t at = 0; at < outputs.size(); at += count) {
    const float* slopes = to_outputs.data() + at;
    float* to = to_columns.data() + at;
    if (std::all_of(slopes, slopes + count, [](float slope) { return slope == 0.0F; })) {  // an action not taken
      std::fill_n(to, count, 0.0F);
    } else {
      softmax_row_back(count, outputs.data() + at, slopes, terms, to);
    }
  }
}

std::ptrdiff_t categorical_targets(ReturnSizes sizes, std::span<const float> support, std::span<const float> chooses,
                                   std::span<const float> outputs, std::span<const float> returns,
                                   std::span<const float> discounts, std::span<float> targets) {
  const std::size_t count = sizes.atoms, area = sizes.actions * count, last = count - 1;
  const double bottom = static_cast<double>(support.front());
  const double spacing = (static_cast<double>(support.back()) - bottom) / static_cast<double>(last);
  double* mass = row_memory(2 * count);
  double* projected = mass + count;
  for (std::size_t row = 0; row < returns.size(); ++row) {
    const std::size_t best = best_action(sizes.actions, [&](std::size_t action) {
      return expected_category(count, chooses.data() + row * area + action * count, support.data(), mass);
    });
    probabilities_of(count, outputs.data() + row * area + best * count, mass);
    std::fill_n(projected, count, 0.0);
    for (std::size_t i = 0; i < count; ++i) {
      const float atom = returns[row] + discounts[row] * support[i];
      const double position = (static_cast<double>(atom) - bottom) / spacing;
      if (!std::isfinite(position)) return static_cast<std::ptrdiff_t>(row);
      const double inside = std::clamp(position, 0.0, static_cast<double>(last));
      const std::size_t below = std::min(static_cast<std::size_t>(inside), last - 1);
      const double above = inside - static_cast<double>(below);
      projected[below] += mass[i] * (1.0 - above);
      projected[below + 1] += mass[i] * above;
    }
    for (std::size_t i = 0; i < count; ++i) targets[row * count + i] = static_cast<float>(projected[i]);
  }
  return -1;
}

void quantile_targets(ReturnSizes sizes, std::span<const float> chooses, std::span<const float> outputs,
                      std::span<const float> returns, std::span<const float> discounts, std::span<float> targets) {
  const std::size_t count = sizes.atoms, area = sizes.actions * count;
  double* terms = row_memory(count);
  for (std::size_t row = 0; row < returns.size(); ++row) {
    const std::size_t best = best_action(sizes.actions, [&](std::size_t action) {
      return expected_quantile(count, chooses.data() + row * area + action * count, terms);
    });
    const float* quantiles = outputs.data() + row * area + best * count;
    for (std::size_t i = 0; i < count; ++i) targets[row * count + i] = returns[row] + discounts[row] * quantiles[i];
  }
}

QLoss categorical_loss(ReturnSizes sizes, std::span<const float> support, std::span<const float> outputs,
                       std::span<const std::int64_t> actions, std::span<const float> targets,
                       std::span<const float> importance, std::span<float> errors, std::span<float> to_outputs) {
  const std::size_t rows = actions.size(), count = sizes.atoms, area = sizes.actions * count;
  const float weight = 1.0F / static_cast<float>(std::max<std::size_t>(rows, 1));
  double* terms = row_memory(count);
  std::fill(to_outputs.begin(), to_outputs.end(), 0.0F);
  QLoss sum{};
  for (std::size_t row = 0; row < rows; ++row) {
    const auto taken = static_cast<std::size_t>(actions[row]);
    const float* output = outputs.data() + row * area;
    const float* wanted = targets.data() + row * count;
    const float factor = (importance.empty() ? 1.0F : importance[row]) * weight;
    double entropy = 0.0, expected = 0.0, value = 0.0, largest = 0.0;
    const double loss = cross_entropy(count, output + taken * count, wanted, support.data(), terms, entropy, expected);
    for (std::size_t action = 0; action < sizes.actions; ++action) {
      const double each = expected_category(count, output + action * count, support.data(), terms);
      if (action == taken) value = each;
      if (action == 0 || each > largest || each != each) largest = each;
    }
    float* slopes = to_outputs.data() + row * area + taken * count;
    for (std::size_t i = 0; i < count; ++i) slopes[i] = -wanted[i] * factor;
    // Rounding can make a divergence negative. NaN stays NaN.
    if (!errors.empty()) errors[row] = static_cast<float>(loss - entropy < 0.0 ? 0.0 : loss - entropy);
    sum.total += loss * static_cast<double>(factor);
    sum.mean += value;
    sum.largest += largest;
    sum.error += std::fabs(expected - value);
  }
  for (double* mean : {&sum.mean, &sum.largest, &sum.error}) *mean /= static_cast<double>(std::max<std::size_t>(rows, 1));
  return sum;
}

}  // namespace hive
