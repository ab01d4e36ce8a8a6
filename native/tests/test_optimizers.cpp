// Optimizer steps against plain loops, at unaligned sizes and addresses, out of place and in place.
// That the formulas are torch's is asserted from Python (tests/native/test_optimizers.py).
#include "hive/optimizers.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"

namespace {

constexpr std::size_t kSizes[] = {0, 1, 7, 64, 1000003};

using Block = std::vector<float>;

Block random_block(std::size_t size, unsigned seed, float low = -1.0F) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(low, 1.0F);
  Block block(size);
  for (float& value : block) value = uniform(generator);
  return block;
}

// A view that begins off the alignment of the vector loops.
std::span<float> tail(Block& block) { return std::span(block).subspan(1); }

bool close(float a, double b) { return std::abs(a - b) <= 1e-6 * (1.0 + std::abs(b)); }

struct State {
  explicit State(std::size_t size)
      : parameters(random_block(size + 1, 1)),
        gradient(random_block(size + 1, 2)),
        first(random_block(size + 1, 3)),
        second(random_block(size + 1, 4, 0.0F)) {}
  Block parameters, gradient, first, second;
};

void adam_is_the_formula(bool decoupled) {
  const hive::AdamSettings settings{3, 0.01, 0.9, 0.99, 1e-8, 0.1, decoupled, false, 0.5};
  for (const std::size_t size : kSizes) {
    State before(size);
    State after(size);
    hive::adam_step(settings, tail(before.parameters), tail(after.parameters), tail(before.gradient),
                    tail(before.first), tail(after.first), tail(before.second), tail(after.second));
    for (std::size_t i = 1; i <= size; ++i) {
      const double parameter = before.parameters[i];
      const double slope = 0.5 * before.gradient[i] + (decoupled ? 0.0 : 0.1 * parameter);
      const double mean = 0.9 * before.first[i] + 0.1 * slope;
      const double square = 0.99 * before.second[i] + 0.01 * slope * slope;
      const double root = std::sqrt(square / (1.0 - std::pow(0.99, 3))) + 1e-8;
      const double kept = decoupled ? parameter * (1.0 - 0.01 * 0.1) : parameter;
      CHECK(close(after.first[i], mean));
      CHECK(close(after.second[i], square));
      CHECK(close(after.parameters[i], kept - 0.01 * mean / (1.0 - std::pow(0.9, 3)) / root));
    }
    hive::adam_step(settings, tail(before.parameters), tail(before.parameters), tail(before.gradient),
                    tail(before.first), tail(before.first), tail(before.second), tail(before.second));
    CHECK(before.parameters == after.parameters && before.first == after.first && before.second == after.second);
  }
}

void rmsprop_is_the_formula(double momentum) {
  const hive::RmspropSettings settings{0.01, 0.9, 1e-5, momentum, 0.1, 0.5};
  for (const std::size_t size : kSizes) {
    State before(size);
    State after(size);
    const bool has_momentum = momentum != 0.0;
    hive::rmsprop_step(settings, tail(before.parameters), tail(after.parameters), tail(before.gradient),
                       tail(before.second), tail(after.second),
                       has_momentum ? tail(before.first) : std::span<float>{},
                       has_momentum ? tail(after.first) : std::span<float>{});
    for (std::size_t i = 1; i <= size; ++i) {
      const double slope = 0.5 * before.gradient[i] + 0.1 * before.parameters[i];
      const double square = 0.9 * before.second[i] + 0.1 * slope * slope;
      const double direction = momentum * before.first[i] + slope / (std::sqrt(square) + 1e-5);
      CHECK(close(after.second[i], square));
      CHECK(!has_momentum || close(after.first[i], direction));
      CHECK(close(after.parameters[i], before.parameters[i] - 0.01 * direction));
    }
  }
}

void sgd_is_the_formula(double momentum) {
  const hive::SgdSettings settings{0.01, momentum, 0.1, 0.5};
  for (const std::size_t size : kSizes) {
    State before(size);
    State after(size);
    const bool has_momentum = momentum != 0.0;
    hive::sgd_step(settings, tail(before.parameters), tail(after.parameters), tail(before.gradient),
                   has_momentum ? tail(before.first) : std::span<float>{},
                   has_momentum ? tail(after.first) : std::span<float>{});
    for (std::size_t i = 1; i <= size; ++i) {
      const double direction = 0.5 * before.gradient[i] + 0.1 * before.parameters[i] + momentum * before.first[i];
      CHECK(!has_momentum || close(after.first[i], direction));
      CHECK(close(after.parameters[i], before.parameters[i] - 0.01 * direction));
    }
  }
}

void polyak_blends() {
  for (const std::size_t size : kSizes) {
    State state(size);
    Block out(size + 1, 9.0F);
    hive::polyak(tail(state.parameters), tail(state.gradient), tail(out), 0.25);
    for (std::size_t i = 1; i <= size; ++i) {
      CHECK(close(out[i], 0.75 * state.parameters[i] + 0.25 * state.gradient[i]));
    }
    CHECK(out[0] == 9.0F);
    // An exact copy, whatever the target was.
    for (float& value : tail(out)) value = std::numeric_limits<float>::quiet_NaN();
    hive::polyak(tail(out), tail(state.gradient), tail(out), 1.0);
    for (std::size_t i = 1; i <= size; ++i) CHECK(out[i] == state.gradient[i]);
  }
}

}  // namespace

int main() {
  for (const bool decoupled : {false, true}) adam_is_the_formula(decoupled);
  for (const double momentum : {0.0, 0.8}) {
    rmsprop_is_the_formula(momentum);
    sgd_is_the_formula(momentum);
  }
  polyak_blends();
}
