// dense.hpp against plain loops in float64: outputs, gradients of weights and of inputs, over layers whose sizes are no
// multiple of a vector, a tile or a block of rows. Under AddressSanitizer it shows that no pass leaves its arrays.
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "hive/dense.hpp"
#include "hive/team.hpp"

using hive::Activation;
using hive::Branch;
using hive::DenseLayer;
using hive::DenseNetwork;

namespace {

std::uint64_t state = 1;

float draw() {  // from -1 to 1
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return static_cast<float>(static_cast<double>(state >> 33) / 1073741824.0 - 1.0);
}

std::ptrdiff_t add(std::vector<float>& block, std::size_t count) {
  const auto offset = static_cast<std::ptrdiff_t>(block.size());
  block.resize(block.size() + (count + 15) / 16 * 16);
  for (std::size_t i = 0; i < count; ++i) block[static_cast<std::size_t>(offset) + i] = draw();
  return offset;
}

Branch branch(std::vector<float>& block, const std::vector<std::size_t>& widths, Activation activation, bool norm) {
  Branch made;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool last = i + 2 == widths.size();
    DenseLayer layer{};
    layer.inputs = widths[i];
    layer.outputs = widths[i + 1];
    layer.weight = add(block, widths[i] * widths[i + 1]);
    layer.bias = add(block, widths[i + 1]);
    if (norm && !last) {
      layer.scale = add(block, widths[i + 1]);
      layer.shift = add(block, widths[i + 1]);
    }
    layer.activation = last ? Activation::none : activation;
    made.push_back(layer);
  }
  return made;
}

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::tanh:
      return std::tanh(x);
    case Activation::relu:
      return x < 0.0 ? 0.0 : x;
    case Activation::silu:
      return x / (1.0 + std::exp(-x));
    case Activation::none:
      return x;
  }
  return x;
}

// The outputs of one row.
std::vector<double> outputs_of(const Branch& layers, const std::vector<double>& block, std::vector<double> row) {
  for (const DenseLayer& layer : layers) {
    std::vector<double> next(layer.outputs);
    double mean = 0.0, variance = 0.0;
    for (std::size_t o = 0; o < layer.outputs; ++o) {
      next[o] = block[static_cast<std::size_t>(layer.bias) + o];
      for (std::size_t i = 0; i < layer.inputs; ++i) {
        next[o] += block[static_cast<std::size_t>(layer.weight) + o * layer.inputs + i] * row[i];
      }
      mean += next[o] / static_cast<double>(layer.outputs);
    }
    for (const double x : next) variance += (x - mean) * (x - mean) / static_cast<double>(layer.outputs);
    for (std::size_t o = 0; o < layer.outputs; ++o) {
      if (layer.scale >= 0) {
        const double standard = (next[o] - mean) / std::sqrt(variance + static_cast<double>(layer.epsilon));
        next[o] = standard * block[static_cast<std::size_t>(layer.scale) + o] +
                  block[static_cast<std::size_t>(layer.shift) + o];
      }
      next[o] = activated(layer.activation, next[o]);
    }
    row = next;
  }
  return row;
}

bool close(double found, double expected, double size) { return std::fabs(found - expected) <= 2e-5 * (size + 1.0); }

// Compares directional derivatives, which are central differences in float64, with the gradient.
void check_gradient(const std::vector<Branch>& branches, const std::vector<float>& block,
                    const std::vector<float>& rows, std::size_t count, const std::vector<std::vector<float>>& slopes,
                    const std::vector<float>& gradient, const std::vector<float>& to_rows) {
  const std::size_t inputs = branches.front().front().inputs;
  for (int trial = 0; trial < 3; ++trial) {
    std::vector<double> along(block.size()), along_rows(rows.size());
    double expected = 0.0, size = 0.0;
    for (std::size_t i = 0; i < block.size(); ++i) {
      along[i] = static_cast<double>(draw());
      expected += along[i] * static_cast<double>(gradient[i]);
      size += std::fabs(static_cast<double>(gradient[i]));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      along_rows[i] = static_cast<double>(draw());
      expected += along_rows[i] * static_cast<double>(to_rows[i]);
      size += std::fabs(static_cast<double>(to_rows[i]));
    }
    const auto total = [&](double step) {
      std::vector<double> moved(block.begin(), block.end());
      for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += step * along[i];
      double sum = 0.0;
      for (std::size_t n = 0; n < count; ++n) {
        std::vector<double> row(inputs);
        for (std::size_t i = 0; i < inputs; ++i) {
          row[i] = static_cast<double>(rows[n * inputs + i]) + step * along_rows[n * inputs + i];
        }
        for (std::size_t b = 0; b < branches.size(); ++b) {
          const std::vector<double> found = outputs_of(branches[b], moved, row);
          for (std::size_t o = 0; o < found.size(); ++o) {
            sum += static_cast<double>(slopes[b][n * found.size() + o]) * found[o];
          }
        }
      }
      return sum;
    };
    constexpr double kStep = 1e-6;
    const double found = (total(kStep) - total(-kStep)) / (2.0 * kStep);
    CHECK(std::fabs(found - expected) <= 1e-4 * (std::sqrt(size) + 1.0));
  }
}

// one_in: of how many numbers of a row about one is not zero.
void compare(const std::vector<std::vector<std::size_t>>& widths, Activation activation, bool norm, std::size_t count,
             std::size_t one_in = 1) {
  std::vector<float> block;
  std::vector<Branch> branches;
  for (const auto& each : widths) branches.push_back(branch(block, each, activation, norm));
  DenseNetwork network(branches, block.size());
  std::vector<float> rows(count * widths.front().front());
  for (std::size_t i = 0; i < rows.size(); i += one_in) rows[i] = draw();
  std::vector<std::vector<float>> outputs, slopes;
  std::vector<float*> to;
  std::vector<const float*> from;
  for (const auto& each : widths) {
    outputs.emplace_back(count * each.back());
    slopes.emplace_back(count * each.back());
    for (float& number : slopes.back()) number = draw();
  }
  for (std::size_t b = 0; b < widths.size(); ++b) {
    to.push_back(outputs[b].data());
    from.push_back(slopes[b].data());
  }
  network.forward(block, rows, count, to, true);
  const std::vector<double> exact(block.begin(), block.end());
  for (std::size_t b = 0; b < widths.size(); ++b) {
    for (std::size_t n = 0; n < count; ++n) {
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(n * widths[b].front());
      const std::vector<double> expected =
          outputs_of(branches[b], exact, {first, first + static_cast<std::ptrdiff_t>(widths[b].front())});
      for (std::size_t o = 0; o < expected.size(); ++o) {
        CHECK(close(outputs[b][n * expected.size() + o], expected[o], std::fabs(expected[o])));
      }
    }
  }
  std::vector<float> gradient(block.size()), to_rows(rows.size()), again(rows.size());
  network.backward(block, rows, from, gradient, to_rows);
  check_gradient(branches, block, rows, count, slopes, gradient, to_rows);
  network.backward(block, rows, from, {}, again);
  CHECK(again == to_rows);
}

// The outputs and gradients of a network whose passes are large enough for several parts.
std::vector<std::vector<float>> results(std::size_t threads) {
  hive::set_threads(threads);
  state = 7;
  constexpr std::size_t kRows = 611;
  std::vector<float> block;
  const std::vector<Branch> branches{branch(block, {37, 130, 120, 3}, Activation::tanh, false),
                                     branch(block, {37, 90, 1}, Activation::silu, false)};
  DenseNetwork network(branches, block.size());
  std::vector<float> rows(kRows * 37), to_rows(rows.size()), gradient(block.size());
  std::vector<float> slopes(kRows * 3), values(kRows), out(kRows * 3), out_values(kRows);
  for (auto* each : {&rows, &slopes, &values}) {
    for (float& number : *each) number = draw();
  }
  const std::vector<float*> to{out.data(), out_values.data()};
  const std::vector<const float*> from{slopes.data(), values.data()};
  network.forward(block, rows, kRows, to, true);
  network.backward(block, rows, from, gradient, to_rows);
  return {out, out_values, gradient, to_rows};
}

// The outputs and the gradient of rows that are zero but for one number in eleven, alone, and before `more` others whose
// slopes are zero: these are no such rows, so all of them are multiplied.
std::vector<std::vector<float>> looked_up(std::size_t threads, std::size_t more) {
  hive::set_threads(threads);
  state = 9;
  constexpr std::size_t kRows = 420, kInputs = 45;
  std::vector<float> block;
  const std::vector<Branch> branches{branch(block, {kInputs, 130, 3}, Activation::tanh, false),
                                     branch(block, {kInputs, 200, 3}, Activation::relu, false)};
  DenseNetwork network(branches, block.size());
  std::vector<float> rows(kRows * kInputs), slopes(kRows * 3), out(kRows * 3), other(kRows * 3);
  for (std::size_t i = 0; i < rows.size(); i += 11) rows[i] = draw();
  for (float& number : slopes) number = draw();
  rows.resize(rows.size() + more * kInputs, 1.0F);
  for (auto* each : {&slopes, &out, &other}) each->resize(each->size() + more * 3);
  const std::vector<float*> to{out.data(), other.data()};
  const std::vector<const float*> from{slopes.data(), slopes.data()};
  std::vector<float> gradient(block.size());
  network.forward(block, rows, kRows + more, to, true);
  network.backward(block, rows, from, gradient, {});
  for (auto* each : {&out, &other}) each->resize(kRows * 3);
  return {out, other, gradient};
}

template <typename F>
bool refuses(const F& f) {
  try {
    f();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

}  // namespace

int main() {
  for (const Activation activation : {Activation::tanh, Activation::relu, Activation::silu}) {
    compare({{4, 20, 3}}, activation, false, 7);
    compare({{4, 20, 3}, {4, 33, 17, 1}}, activation, true, 13);
    compare({{17, 16, 32, 2}, {17, 5}}, activation, false, 99);
  }
  compare({{1, 1}}, Activation::none, false, 1);
  compare({{48, 16, 48}}, Activation::tanh, true, 193);
  const auto alone = results(1);
  for (const std::size_t threads : {2, 3, 7}) CHECK(results(threads) == alone);
  const auto multiplied = looked_up(1, 120);
  for (const std::size_t threads : {1, 2, 7}) {
    CHECK(looked_up(threads, 0) == multiplied);
    CHECK(looked_up(threads, 120) == multiplied);
  }
  compare({{40, 20, 3}, {40, 33, 17, 1}}, Activation::silu, true, 99, 9);
  compare({{500, 16, 48}}, Activation::tanh, false, 193, 499);
  compare({{16, 3}}, Activation::none, false, 5, 20);
  hive::set_threads(3);
  compare({{40, 130, 120, 3}, {40, 64, 1}}, Activation::tanh, false, 293);
  const DenseLayer layer{.inputs = 2, .outputs = 3, .weight = 0, .bias = 16};
  CHECK(!refuses([&] { DenseNetwork({{layer}}, 32); }));
  CHECK(refuses([&] { DenseNetwork({{layer}}, 31); }));
  CHECK(refuses([&] { DenseNetwork({{layer, layer}}, 32); }));
  CHECK(refuses([&] { DenseNetwork({}, 32); }));
}
