// gae(), n_step_returns(), vtrace() and value_fit() against their definitions.
#include "hive/returns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"

namespace {

constexpr double kDiscount = 0.97;
constexpr double kLambda = 0.9;

struct Data {
  Data(std::size_t steps, std::size_t envs, unsigned seed) : rollout{} {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    const std::size_t size = steps * envs;
    for (std::vector<float>* block : {&rewards, &values, &next_values}) {
      for (std::size_t i = 0; i < size; ++i) block->push_back(uniform(generator));
    }
    for (std::size_t i = 0; i < size; ++i) {
      terminated.push_back(generator() % 8 == 0);
      truncated.push_back(generator() % 8 == 0);
      valid.push_back(generator() % 8 != 0);
    }
    rollout = {steps, envs, rewards, values, next_values, terminated, truncated, valid};
  }
  std::vector<float> rewards, values, next_values;
  std::vector<std::uint8_t> terminated, truncated, valid;
  hive::Rollout rollout;
};

// Whether the episode of the valid step (t, b) has a step t+1 in the rollout.
bool goes_on(const Data& data, std::size_t t, std::size_t b) {
  const std::size_t i = t * data.rollout.envs + b;
  return t + 1 < data.rollout.steps && !data.terminated[i] && !data.truncated[i] &&
         data.valid[i + data.rollout.envs];
}

double expected_gae(const Data& data, std::size_t t, std::size_t b) {
  double sum = 0.0;
  double factor = 1.0;
  for (;; ++t, factor *= kDiscount * kLambda) {
    const std::size_t i = t * data.rollout.envs + b;
    const double bootstrap = data.terminated[i] ? 0.0 : kDiscount * data.next_values[i];
    sum += factor * (data.rewards[i] + bootstrap - data.values[i]);
    if (!goes_on(data, t, b)) return sum;
  }
}

double expected_return(const Data& data, std::size_t t, std::size_t b, std::size_t n) {
  double sum = 0.0;
  double factor = 1.0;
  for (std::size_t taken = 1;; ++t, ++taken) {
    const std::size_t i = t * data.rollout.envs + b;
    sum += factor * data.rewards[i];
    factor *= kDiscount;
    if (taken == n || !goes_on(data, t, b)) return sum + (data.terminated[i] ? 0.0 : factor * data.next_values[i]);
  }
}

constexpr double kRhoClip = 1.5;
constexpr double kCClip = 1.0;

// The target of V-trace without the value it starts from: every error times all c before it.
double expected_vtrace(const Data& data, const std::vector<float>& log_ratios, std::size_t t, std::size_t b) {
  double sum = 0.0;
  double factor = 1.0;
  for (;; ++t) {
    const std::size_t i = t * data.rollout.envs + b;
    const double ratio = std::exp(static_cast<double>(log_ratios[i]));
    const double bootstrap = data.terminated[i] ? 0.0 : kDiscount * data.next_values[i];
    sum += factor * std::min(kRhoClip, ratio) * (data.rewards[i] + bootstrap - data.values[i]);
    if (!goes_on(data, t, b)) return sum;
    factor *= kDiscount * kLambda * std::min(kCClip, ratio);
  }
}

void check_vtrace(const Data& data, unsigned seed) {
  const std::size_t size = data.rewards.size();
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> log_ratios;
  for (std::size_t i = 0; i < size; ++i) {
    log_ratios.push_back(data.valid[i] ? normal(generator) : std::numeric_limits<float>::quiet_NaN());
  }
  std::vector<float> advantages(size);
  std::vector<float> targets(size);
  hive::vtrace(data.rollout, log_ratios, kDiscount, kLambda, kRhoClip, kCClip, advantages, targets);
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t t = i / data.rollout.envs;
    const std::size_t b = i % data.rollout.envs;
    if (!data.valid[i]) {
      CHECK(advantages[i] == 0.0F && targets[i] == data.values[i]);
      continue;
    }
    CHECK(std::abs(targets[i] - (data.values[i] + expected_vtrace(data, log_ratios, t, b))) < 1e-4);
    const double excess = goes_on(data, t, b) ? expected_vtrace(data, log_ratios, t + 1, b) : 0.0;
    const double follows = data.terminated[i] ? 0.0 : kDiscount * (data.next_values[i] + excess);
    const double rho = std::min(kRhoClip, std::exp(static_cast<double>(log_ratios[i])));
    CHECK(std::abs(advantages[i] - rho * (data.rewards[i] + follows - data.values[i])) < 1e-4);
  }
}

// With the policy that acted, V-trace is gae() to the bit.
void check_on_policy(const Data& data) {
  const std::size_t size = data.rewards.size();
  const std::vector<float> log_ratios(size, 0.0F);
  std::vector<float> advantages(size), targets(size), expected_advantages(size), expected_targets(size);
  for (const double lambda : {kLambda, 1.0}) {
    hive::vtrace(data.rollout, log_ratios, kDiscount, lambda, 1.0, 1.0, advantages, targets);
    hive::gae(data.rollout, kDiscount, lambda, expected_advantages, expected_targets);
    CHECK(targets == expected_targets);
  }
  CHECK(advantages == expected_advantages);
}

template <typename Expected>
void compare(const Data& data, const std::vector<float>& advantages, const std::vector<float>& targets,
             Expected expected_advantage) {
  for (std::size_t i = 0; i < data.rewards.size(); ++i) {
    const std::size_t t = i / data.rollout.envs;
    const double advantage = data.valid[i] ? expected_advantage(t, i % data.rollout.envs, data.values[i]) : 0.0;
    CHECK(std::abs(advantages[i] - advantage) < 1e-5);
    CHECK(std::abs(targets[i] - (data.values[i] + advantage)) < 1e-5);
    CHECK(data.valid[i] || (advantages[i] == 0.0F && targets[i] == data.values[i]));
  }
}

void check_all(std::size_t steps, std::size_t envs, unsigned seed) {
  const Data data(steps, envs, seed);
  std::vector<float> advantages(steps * envs);
  std::vector<float> targets(steps * envs);
  hive::gae(data.rollout, kDiscount, kLambda, advantages, targets);
  compare(data, advantages, targets, [&](std::size_t t, std::size_t b, double) { return expected_gae(data, t, b); });
  for (const std::size_t n : {std::size_t{1}, std::size_t{3}, steps, steps + 5, std::size_t(-1)}) {
    hive::n_step_returns(data.rollout, kDiscount, n, advantages, targets);
    compare(data, advantages, targets,
            [&](std::size_t t, std::size_t b, double value) { return expected_return(data, t, b, n) - value; });
  }
  check_vtrace(data, seed);
  check_on_policy(data);
}

// A row of weight 0 holds NaN and is not read; without rows there is nothing to explain.
void check_fit() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values{1.0F, nan, 2.0F, 3.0F};
  const std::vector<float> targets{0.0F, nan, 4.0F, 6.0F};
  const std::vector<float> weights{0.25F, 0.0F, 0.25F, 0.5F};
  const hive::ValueFit fit = hive::value_fit(values, targets, weights);
  CHECK(std::abs(fit.explained_variance - (1.0 - 2.6875 / 6.0)) < 1e-9);
  CHECK(std::abs(fit.target_rms - std::sqrt(22.0)) < 1e-9);
  CHECK(std::isnan(hive::value_fit({}, {}, {}).explained_variance));
}

}  // namespace

int main() {
  check_fit();
  unsigned seed = 0;
  for (const std::size_t steps : {1, 2, 5, 40}) {
    for (const std::size_t envs : {0, 1, 7, 64}) check_all(steps, envs, ++seed);
  }
  check_all(0, 3, 0);
}
