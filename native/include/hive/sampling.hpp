// Actions from the outputs of a policy and from prepared noise, for N rows (hive.networks.act.distributions).
//
//     choice      the largest of logits + noise, of each part                     int64 [N, parts]
//     greedy      the action of the largest value, or with probability epsilon
//                 one of those whose values are not forbidden                     int64 [N]
//     gaussian    mean + e^(log deviation) * noise                                float [N, D]
//     squashed    tanh of the same                                                float [N, D]
//     noisy       tanh(output) + deviation * noise, clipped to -1 .. 1            float [N, D]
//
// The last three become middle + reach * action, if there are bounds. Exponentials and tangents are those of
// elementary.hpp, so actions have the same bytes on every machine. A row with NaN chooses the first NaN, as NumPy does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hive {

struct Sampler {
  enum class Kind : std::uint8_t { choice, greedy, gaussian, squashed, noisy } kind = Kind::choice;
  std::vector<std::size_t> choices;   // of each part, for the first two
  std::vector<float> middle, reach;   // [D], may be empty
  std::vector<float> epsilons;        // of all rows, or of each
  float allowed = 0.0F;               // values below it are forbidden
  float deviation = 0.0F;
  std::size_t dimensions = 0;         // D, for the last three

  bool is_box() const { return kind != Kind::choice && kind != Kind::greedy; }
  std::size_t width() const;          // outputs of a row
  std::size_t noise_width() const;    // noise of a row
  std::size_t elements() const { return is_box() ? dimensions : choices.size(); }  // actions of a row
};

// actions: int64 or float [rows, elements].
void sample(const Sampler& sampler, std::size_t rows, const float* outputs, const float* noise, void* actions);

// mean + e^(log deviation) * noise [N, D], of outputs [N, 2 D].
void gaussian_variables(std::size_t dimensions, std::span<const float> outputs, std::span<const float> noise,
                        std::span<float> variables);

// tanh of each number; may be in place.
void tangents(std::span<const float> values, std::span<float> to);

}  // namespace hive
