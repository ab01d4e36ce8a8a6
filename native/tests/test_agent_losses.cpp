// The losses of actors and critics at the edges of their arrays: none, one, and more elements than one block.
#include "hive/agent_losses.hpp"

#include <cmath>
#include <vector>

#include "check.hpp"

namespace {

using Numbers = std::vector<float>;

Numbers ramp(std::size_t size, float least, float most) {
  Numbers numbers(size);
  for (std::size_t i = 0; i < size; ++i) numbers[i] = least + (most - least) * static_cast<float>(i) / static_cast<float>(size);
  return numbers;
}

void test_samples(std::size_t rows, std::size_t dimensions) {
  const std::size_t size = rows * dimensions;
  const Numbers outputs = ramp(2 * size, -3.0F, 2.0F), noise = ramp(size, -2.0F, 2.0F);
  Numbers actions(size), log_probs(rows), slopes(2 * size);
  hive::squashed_sample(dimensions, outputs, noise, actions, log_probs);
  for (std::size_t row = 0; row < rows; ++row) {
    double density = 0.0;
    for (std::size_t d = 0; d < dimensions; ++d) {
      const std::size_t i = row * dimensions + d;
      const double mean = outputs[row * 2 * dimensions + d], log = outputs[row * 2 * dimensions + dimensions + d];
      const double u = mean + std::exp(log) * noise[i];
      CHECK(std::fabs(actions[i] - std::tanh(u)) < 1e-6);
      density -= 0.5 * noise[i] * noise[i] + log + 0.918938533204672742 + 2.0 * (std::log(2.0) - u - std::log1p(std::exp(-2.0 * u)));
    }
    CHECK(std::fabs(log_probs[row] - density) < 1e-5 * (1.0 + std::fabs(density)));
  }
  hive::squashed_slopes(dimensions, outputs, noise, actions, noise, 0.1F, slopes);
  hive::clamp_deviations_back(dimensions, outputs, slopes, slopes);
  for (const float slope : slopes) CHECK(std::isfinite(slope));
  hive::tanh_actions(noise, noise, 0.2F, 0.5F, actions);
  for (const float action : actions) CHECK(action >= -1.0F && action <= 1.0F);
}

void test_critics(std::size_t rows) {
  const Numbers first = ramp(rows, -1.0F, 1.0F), second = ramp(rows, 1.0F, -1.0F), ones(rows, 1.0F);
  Numbers errors(rows), to_first(rows), to_second(rows), targets(rows);
  const float* values[] = {first.data(), second.data()};
  float* slopes[] = {to_first.data(), to_second.data()};
  hive::soft_targets(values, {}, 0.0, ones, ones, targets);
  for (std::size_t i = 0; i < rows; ++i) CHECK(targets[i] == 1.0F + std::fmin(first[i], second[i]));
  const hive::CriticLoss loss = hive::critic_loss(1, false, 1.0F, values, {}, targets, ones, errors, slopes);
  CHECK(loss.total >= 0.0 && std::isfinite(loss.total));
  CHECK(std::isfinite(hive::least_values(values, rows, slopes)));
}

}  // namespace

int main() {
  for (const std::size_t rows : {0, 1, 85, 86, 300}) {
    for (const std::size_t dimensions : {1, 3, 300}) test_samples(rows, dimensions);
    test_critics(rows);
  }
}
