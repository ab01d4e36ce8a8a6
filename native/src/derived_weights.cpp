#include "hive/derived_weights.hpp"

#include <algorithm>
#include <stdexcept>

#include "hive/simd.hpp"

namespace hive {
namespace {

HIVE_SIMD [[gnu::noinline]] void add_noise(std::size_t count, const float* means, const float* deviations, float factor,
                                           const float* factors, float* to) {
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) to[i] = means[i] + deviations[i] * (factor * factors[i]);
}

HIVE_SIMD [[gnu::noinline]] void noise_slopes(std::size_t count, const float* slopes, float factor, const float* factors,
                                              float* to_means, float* to_deviations) {
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    to_means[i] = slopes[i];
    to_deviations[i] = slopes[i] * (factor * factors[i]);
  }
}

// Joins `width` columns of the rows of two streams: to[a, k] = value[k] + advantage[a, k] - mean over actions. With
// `apart`, rows of `to` hold the columns of the value and then those of the advantage.
HIVE_SIMD [[gnu::noinline]] void join(const DuelingStreams& of, std::size_t width, const float* values,
                                      const float* advantages, float* to) {
  const std::size_t stride = of.apart ? 2 * width : width, shift = of.apart ? width : 0;
  const float share = 1.0F / static_cast<float>(of.actions);
  for (std::size_t k = 0; k < of.atoms; ++k) {
    const float* value = values + k * width;
    for (std::size_t i = 0; i < width; ++i) {
      float sum = 0.0F;
      for (std::size_t a = 0; a < of.actions; ++a) sum += advantages[(a * of.atoms + k) * width + i];
      const float mean = sum * share;
      for (std::size_t a = 0; a < of.actions; ++a) {
        const std::size_t row = a * of.atoms + k;
        const float advantage = advantages[row * width + i] - mean;
        to[row * stride + i] = of.apart ? value[i] : value[i] + advantage;
        if (of.apart) to[row * stride + shift + i] = advantage;
      }
    }
  }
}

HIVE_SIMD [[gnu::noinline]] void split(const DuelingStreams& of, std::size_t width, const float* slopes,
                                       float* to_values, float* to_advantages) {
  const std::size_t stride = of.apart ? 2 * width : width, shift = of.apart ? width : 0;
  const float share = 1.0F / static_cast<float>(of.actions);
  for (std::size_t k = 0; k < of.atoms; ++k) {
    for (std::size_t i = 0; i < width; ++i) {
      float value = 0.0F, sum = 0.0F;
      for (std::size_t a = 0; a < of.actions; ++a) {
        const float* row = slopes + (a * of.atoms + k) * stride;
        value += row[i];
        sum += row[shift + i];
      }
      to_values[k * width + i] = value;
      const float mean = sum * share;
      for (std::size_t a = 0; a < of.actions; ++a) {
        const std::size_t row = a * of.atoms + k;
        to_advantages[row * width + i] = slopes[row * stride + shift + i] - mean;
      }
    }
  }
}

// The biases of streams are joined as one column, which is never apart.
DuelingStreams biases_of(DuelingStreams streams) {
  streams.apart = false;
  return streams;
}

void check(bool inside) {
  if (!inside) throw std::invalid_argument("an array of derived weights lies outside its block");
}

}  // namespace

DerivedWeights::DerivedWeights(std::vector<CopiedArray> copies, std::vector<NoisyLayer> noisy,
                               std::vector<DuelingStreams> streams, std::size_t parameters, std::size_t size)
    : copies_(std::move(copies)),
      noisy_(std::move(noisy)),
      streams_(std::move(streams)),
      parameters_(parameters),
      size_(size) {
  const auto inside = [](std::size_t at, std::size_t count, std::size_t all) { return count <= all && at <= all - count; };
  for (const CopiedArray& each : copies_) {
    check(inside(each.from, each.count, parameters) && inside(each.to, each.count, size));
  }
  for (const NoisyLayer& layer : noisy_) {
    const std::size_t weights = layer.inputs * layer.outputs;
    for (const std::size_t at : {layer.mean_weight, layer.weight_deviation}) check(inside(at, weights, parameters));
    for (const std::size_t at : {layer.mean_bias, layer.bias_deviation}) check(inside(at, layer.outputs, parameters));
    check(inside(layer.weight, weights, size) && inside(layer.bias, layer.outputs, size));
    factors_ += layer.inputs + layer.outputs;
  }
  for (const DuelingStreams& each : streams_) {
    const std::size_t outputs = each.actions * each.atoms;
    check(outputs > 0);
    check(inside(each.value_weight, each.atoms * each.inputs, size) && inside(each.value_bias, each.atoms, size));
    check(inside(each.advantage_weight, outputs * each.inputs, size) && inside(each.advantage_bias, outputs, size));
    check(inside(each.weight, outputs * each.inputs * (each.apart ? 2 : 1), size) && inside(each.bias, outputs, size));
  }
}

void DerivedWeights::forward(std::span<const float> block, std::span<const float> factors,
                             std::span<float> derived) const {
  float* to = derived.data();
  for (const CopiedArray& each : copies_) std::copy_n(block.data() + each.from, each.count, to + each.to);
  const float* of_inputs = factors.data();
  for (const NoisyLayer& layer : noisy_) {
    const float* of_outputs = of_inputs + layer.inputs;
    for (std::size_t row = 0; row < layer.outputs; ++row) {
      const std::size_t at = row * layer.inputs;
      add_noise(layer.inputs, block.data() + layer.mean_weight + at, block.data() + layer.weight_deviation + at,
                of_outputs[row], of_inputs, to + layer.weight + at);
    }
    add_noise(layer.outputs, block.data() + layer.mean_bias, block.data() + layer.bias_deviation, 1.0F, of_outputs,
              to + layer.bias);
    of_inputs = of_outputs + layer.outputs;
  }
  for (const DuelingStreams& each : streams_) {
    join(each, each.inputs, to + each.value_weight, to + each.advantage_weight, to + each.weight);
    join(biases_of(each), 1, to + each.value_bias, to + each.advantage_bias, to + each.bias);
  }
}

void DerivedWeights::backward(std::span<const float> factors, std::span<float> to_derived,
                              std::span<float> gradient) const {
  float* slopes = to_derived.data();
  for (const DuelingStreams& each : streams_) {
    split(each, each.inputs, slopes + each.weight, slopes + each.value_weight, slopes + each.advantage_weight);
    split(biases_of(each), 1, slopes + each.bias, slopes + each.value_bias, slopes + each.advantage_bias);
  }
  for (const CopiedArray& each : copies_) std::copy_n(slopes + each.to, each.count, gradient.data() + each.from);
  const float* of_inputs = factors.data();
  for (const NoisyLayer& layer : noisy_) {
    const float* of_outputs = of_inputs + layer.inputs;
    for (std::size_t row = 0; row < layer.outputs; ++row) {
      const std::size_t at = row * layer.inputs;
      noise_slopes(layer.inputs, slopes + layer.weight + at, of_outputs[row], of_inputs,
                   gradient.data() + layer.mean_weight + at, gradient.data() + layer.weight_deviation + at);
    }
    noise_slopes(layer.outputs, slopes + layer.bias, 1.0F, of_outputs, gradient.data() + layer.mean_bias,
                 gradient.data() + layer.bias_deviation);
    of_inputs = of_outputs + layer.outputs;
  }
}

}  // namespace hive
