#include "hive/returns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace hive {
namespace {

// Targets count as equal below this share of variance in their mean square: they differ by 1e-5 of their size, which is
// near the rounding of float32.
constexpr double kEqualTargets = 1e-10;

// One row of a rollout, t.
struct Row {
  const float* rewards;
  const float* values;
  const float* next_values;
  const std::uint8_t* terminated;
  const std::uint8_t* truncated;
  const std::uint8_t* valid;
};

Row row_of(const Rollout& rollout, std::size_t t) {
  const std::size_t begin = t * rollout.envs;
  return {rollout.rewards.data() + begin,     rollout.values.data() + begin,    rollout.next_values.data() + begin,
          rollout.terminated.data() + begin,  rollout.truncated.data() + begin, rollout.valid.data() + begin};
}

// `carry` holds the advantages of row t+1 and receives those of row t. An invalid row leaves 0 in it, so that later
// rows do not affect earlier ones across it.
void gae_row(Row row, std::size_t envs, float discount, float decay, float* __restrict carry,
                       float* __restrict advantages, float* __restrict targets) {
  for (std::size_t b = 0; b < envs; ++b) {
    const float value = row.values[b];
    const float bootstrap = discount * row.next_values[b];
    const float later = decay * carry[b];
    const float followed = row.rewards[b] - value + (row.terminated[b] ? 0.0F : bootstrap) +
                           (row.terminated[b] | row.truncated[b] ? 0.0F : later);
    const float advantage = row.valid[b] ? followed : 0.0F;
    carry[b] = advantage;
    advantages[b] = advantage;
    targets[b] = value + advantage;
  }
}

// `carry` holds the returns from row t+1 and receives those from row t.
void return_row(Row row, const std::uint8_t* next_valid, std::size_t envs, float discount,
                          float* __restrict carry) {
  for (std::size_t b = 0; b < envs; ++b) {
    const float later = carry[b];
    const float next_value = row.next_values[b];
    const float following = (row.truncated[b] | !next_valid[b]) ? next_value : later;
    carry[b] = row.rewards[b] + discount * (row.terminated[b] ? 0.0F : following);
  }
}

// Returns e^x, correct to float32, as (e^(x / 1024))^1024: six terms of the series, ten squarings. Unlike a C library's
// function it performs the same operations on every processor, so its results are bit-identical. Arguments beyond +-88
// are clamped, so it is never infinite. NaN gives NaN.
float exponential(float x) {
  const double small = std::clamp(static_cast<double>(x), -88.0, 88.0) / 1024.0;
  double power = 1.0;
  for (int term = 6; term > 0; --term) power = 1.0 + small / term * power;
  for (int squaring = 0; squaring < 10; ++squaring) power *= power;
  return static_cast<float>(power);
}

}  // namespace

void gae(const Rollout& rollout, double discount, double lambda, std::span<float> advantages,
         std::span<float> targets) {
  std::vector<float> carry(rollout.envs, 0.0F);
  for (std::size_t t = rollout.steps; t-- > 0;) {
    gae_row(row_of(rollout, t), rollout.envs, static_cast<float>(discount), static_cast<float>(discount * lambda),
            carry.data(), advantages.data() + t * rollout.envs, targets.data() + t * rollout.envs);
  }
}

void n_step_returns(const Rollout& rollout, double discount, std::size_t n, std::span<float> advantages,
                    std::span<float> targets) {
  const std::size_t envs = rollout.envs;
  const std::vector<std::uint8_t> nothing_follows(envs, 0);
  std::vector<float> carry(envs);
  std::size_t previous_end = rollout.steps + 1;
  for (std::size_t t = rollout.steps; t-- > 0;) {
    const std::size_t end = n < rollout.steps - t ? t + n : rollout.steps;
    // Rows whose returns end in the same row share one recursion; for other rows it restarts at their end.
    for (std::size_t row = end == previous_end ? t + 1 : end; row-- > t;) {
      const bool is_last = row + 1 == end;
      const std::uint8_t* next_valid = is_last ? nothing_follows.data() : rollout.valid.data() + (row + 1) * envs;
      return_row(row_of(rollout, row), next_valid, envs, static_cast<float>(discount), carry.data());
    }
    previous_end = end;
    const Row row = row_of(rollout, t);
    for (std::size_t b = 0; b < envs; ++b) {
      const float target = row.valid[b] ? carry[b] : row.values[b];
      targets[t * envs + b] = target;
      advantages[t * envs + b] = target - row.values[b];
    }
  }
}

void vtrace(const Rollout& rollout, std::span<const float> log_ratios, double discount, double lambda, double rho_clip,
            double c_clip, std::span<float> advantages, std::span<float> targets) {
  const auto gamma = static_cast<float>(discount);
  const auto decay = static_cast<float>(discount * lambda);
  const auto highest_rho = static_cast<float>(rho_clip);
  const auto highest_c = static_cast<float>(c_clip);
  std::vector<float> carry(rollout.envs, 0.0F);  // target - value of row t+1, then of row t; 0 in invalid rows
  for (std::size_t t = rollout.steps; t-- > 0;) {
    const Row row = row_of(rollout, t);
    for (std::size_t b = 0; b < rollout.envs; ++b) {
      const std::size_t i = t * rollout.envs + b;
      const float ratio = exponential(log_ratios[i]);
      const float rho = std::min(ratio, highest_rho);  // with this order of arguments NaN stays NaN
      const float value = row.values[b];
      const float error = row.rewards[b] - value + (row.terminated[b] ? 0.0F : gamma * row.next_values[b]);
      const float later = row.terminated[b] | row.truncated[b] ? 0.0F : carry[b];
      carry[b] = row.valid[b] ? rho * error + decay * std::min(ratio, highest_c) * later : 0.0F;
      advantages[i] = row.valid[b] ? rho * (error + gamma * later) : 0.0F;
      targets[i] = value + carry[b];
    }
  }
}

ValueFit value_fit(std::span<const float> values, std::span<const float> targets, std::span<const float> weights) {
  double mean = 0.0;
  double mean_error = 0.0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (weights[i] == 0.0F) continue;
    mean += weights[i] * static_cast<double>(targets[i]);
    mean_error += weights[i] * (static_cast<double>(targets[i]) - values[i]);
  }
  double variance = 0.0;
  double error_variance = 0.0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (weights[i] == 0.0F) continue;
    const double spread = targets[i] - mean;
    const double error = static_cast<double>(targets[i]) - values[i] - mean_error;
    variance += weights[i] * spread * spread;
    error_variance += weights[i] * error * error;
  }
  const double mean_square = variance + mean * mean;
  const bool equal = variance <= kEqualTargets * mean_square;
  const double explained = equal ? std::numeric_limits<double>::quiet_NaN() : 1.0 - error_variance / variance;
  return {explained < -1.0 ? -1.0 : explained, std::sqrt(mean_square)};
}

}  // namespace hive
