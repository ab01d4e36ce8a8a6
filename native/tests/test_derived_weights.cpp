// Derived weights against their formulas, and the gradient against the definition of a linear map's.
#include "hive/derived_weights.hpp"

#include <cmath>
#include <stdexcept>
#include <vector>

#include "check.hpp"

namespace {

using Numbers = std::vector<float>;

Numbers waves(std::size_t size) {
  Numbers numbers(size);
  for (std::size_t i = 0; i < size; ++i) numbers[i] = std::sin(static_cast<float>(i) + 0.5F);
  return numbers;
}

double product(const Numbers& left, const Numbers& right) {
  double sum = 0.0;
  for (std::size_t i = 0; i < left.size(); ++i) sum += static_cast<double>(left[i]) * static_cast<double>(right[i]);
  return sum;
}

// The derived block is linear in the parameters, so <slopes, derived(p)> = <gradient, p>.
void test(bool apart, std::size_t inputs, std::size_t actions, std::size_t atoms) {
  const std::size_t outputs = actions * atoms, width = apart ? 2 * inputs : inputs;
  std::vector<hive::NoisyLayer> noisy;
  std::size_t parameters = 0, size = 0;
  for (const std::size_t rows : {atoms, outputs}) {  // the streams
    hive::NoisyLayer layer{inputs, rows, parameters, 0, 0, 0, size, 0};
    layer.mean_bias = layer.mean_weight + inputs * rows;
    layer.weight_deviation = layer.mean_bias + rows;
    layer.bias_deviation = layer.weight_deviation + inputs * rows;
    parameters = layer.bias_deviation + rows;
    layer.bias = size + inputs * rows;
    size = layer.bias + rows;
    noisy.push_back(layer);
  }
  const hive::CopiedArray copied{parameters, size, 5};
  parameters += 5;
  size += 5;
  const hive::DuelingStreams streams{inputs, apart, actions, atoms, noisy[0].weight, noisy[0].bias, noisy[1].weight,
                                     noisy[1].bias, size, size + outputs * width};
  size = streams.bias + outputs;
  const hive::DerivedWeights weights({copied}, noisy, {streams}, parameters, size);
  CHECK(weights.factors() == 2 * inputs + atoms + outputs);
  const Numbers block = waves(parameters), factors = waves(weights.factors());
  Numbers derived(size), slopes(size), gradient(parameters);
  weights.forward(block, factors, derived);
  // Values less their mean over actions are advantages less theirs; the mean itself is the value.
  for (std::size_t k = 0; k < atoms; ++k) {
    double mean = 0.0;
    for (std::size_t a = 0; a < actions; ++a) mean += static_cast<double>(derived[streams.bias + a * atoms + k]);
    CHECK(std::fabs(mean / static_cast<double>(actions) - static_cast<double>(derived[noisy[0].bias + k])) < 1e-5);
  }
  for (std::size_t i = streams.weight; i < size; ++i) slopes[i] = std::cos(static_cast<float>(i));
  for (std::size_t i = 0; i < copied.count; ++i) slopes[copied.to + i] = 1.0F;
  const double expected = product(slopes, derived);
  weights.backward(factors, slopes, gradient);
  CHECK(std::fabs(product(gradient, block) - expected) < 1e-4 * (1.0 + std::fabs(expected)));
}

void test_bounds() {
  bool refused = false;
  try {
    hive::DerivedWeights({{0, 1, 8}}, {}, {}, 8, 8);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}

}  // namespace

int main() {
  for (const bool apart : {false, true}) {
    for (const std::size_t inputs : {1, 15, 64}) test(apart, inputs, 3, 7);
    test(apart, 4, 1, 1);
  }
  test_bounds();
}
