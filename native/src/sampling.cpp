#include "hive/sampling.hpp"

#include <algorithm>
#include <numeric>

#include "hive/elementary.hpp"
#include "hive/simd.hpp"

namespace hive {
namespace {

// The first of the largest values, or the first NaN.
std::size_t largest(const float* values, const float* added, std::size_t count) {
  std::size_t best = 0;
  float most = values[0] + (added ? added[0] : 0.0F);
  for (std::size_t i = 1; i < count && most == most; ++i) {
    const float value = values[i] + (added ? added[i] : 0.0F);
    if (value > most || value != value) best = i, most = value;
  }
  return best;
}

void choose(const Sampler& sampler, std::size_t rows, const float* outputs, const float* noise, std::int64_t* actions) {
  for (std::size_t row = 0; row < rows; ++row) {
    for (const std::size_t count : sampler.choices) {
      *actions++ = static_cast<std::int64_t>(largest(outputs, noise, count));
      outputs += count;
      noise += count;
    }
  }
}

// A uniform choice among the allowed actions by the number `uniform` in [0, 1).
std::size_t drawn(const Sampler& sampler, const float* values, std::size_t count, float uniform) {
  const auto allows = [&](float value) { return value > sampler.allowed; };
  const auto allowed = static_cast<std::size_t>(std::count_if(values, values + count, allows));
  auto number = static_cast<std::size_t>(uniform * static_cast<float>(allowed));
  if (allowed == count) return number;
  for (std::size_t i = 0; i < count; ++i) {
    if (allows(values[i]) && number-- == 0) return i;
  }
  return 0;
}

void choose_greedily(const Sampler& sampler, std::size_t rows, const float* outputs, const float* noise,
                     std::int64_t* actions) {
  const std::size_t count = sampler.choices.front();
  for (std::size_t row = 0; row < rows; ++row, outputs += count, noise += 2) {
    const float epsilon = sampler.epsilons[sampler.epsilons.size() == 1 ? 0 : row];
    const std::size_t action =
        noise[0] < epsilon ? drawn(sampler, outputs, count, noise[1]) : largest(outputs, nullptr, count);
    actions[row] = static_cast<std::int64_t>(action);
  }
}

void put_between_bounds(const Sampler& sampler, std::span<float> actions) {
  if (sampler.middle.empty()) return;
  for (std::size_t at = 0; at < actions.size(); ++at) {
    const std::size_t column = at % sampler.dimensions;
    actions[at] = sampler.middle[column] + sampler.reach[column] * actions[at];
  }
}

}  // namespace

std::size_t Sampler::width() const {
  if (is_box()) return kind == Kind::noisy ? dimensions : 2 * dimensions;
  return std::accumulate(choices.begin(), choices.end(), std::size_t{0});
}

std::size_t Sampler::noise_width() const {
  if (is_box()) return dimensions;
  return kind == Kind::greedy ? 2 : width();
}

void sample(const Sampler& sampler, std::size_t rows, const float* outputs, const float* noise, void* actions) {
  if (sampler.kind == Sampler::Kind::choice) {
    return choose(sampler, rows, outputs, noise, static_cast<std::int64_t*>(actions));
  }
  if (sampler.kind == Sampler::Kind::greedy) {
    return choose_greedily(sampler, rows, outputs, noise, static_cast<std::int64_t*>(actions));
  }
  const std::size_t count = rows * sampler.dimensions;
  const std::span<float> to{static_cast<float*>(actions), count};
  if (sampler.kind == Sampler::Kind::noisy) {
    tangents({outputs, count}, to);
    for (std::size_t at = 0; at < count; ++at) {
      const float moved = to[at] + sampler.deviation * noise[at];
      to[at] = moved < -1.0F ? -1.0F : moved > 1.0F ? 1.0F : moved;
    }
  } else {
    gaussian_variables(sampler.dimensions, {outputs, 2 * count}, {noise, count}, to);
    if (sampler.kind == Sampler::Kind::squashed) tangents(to, to);
  }
  put_between_bounds(sampler, to);
}

HIVE_SIMD void gaussian_variables(std::size_t dimensions, std::span<const float> outputs,
                                        std::span<const float> noise, std::span<float> variables) {
  const std::size_t rows = dimensions ? noise.size() / dimensions : 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const means = outputs.data() + 2 * row * dimensions;
    HIVE_INDEPENDENT
    for (std::size_t i = 0; i < dimensions; ++i) {
      const std::size_t at = row * dimensions + i;
      const auto deviation = static_cast<float>(exp_of(static_cast<double>(means[dimensions + i])));
      variables[at] = means[i] + deviation * noise[at];
    }
  }
}

HIVE_SIMD void tangents(std::span<const float> values, std::span<float> to) {
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < values.size(); ++i) {
    to[i] = static_cast<float>(tanh_of(static_cast<double>(values[i])));
  }
}

}  // namespace hive
