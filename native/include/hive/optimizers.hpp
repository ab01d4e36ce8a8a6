// Optimizer steps as single out-of-place passes over flat float32 blocks.
//
// The learner's weights lie in versioned blocks: a step reads block v and writes block v+1, so readers of v are never
// disturbed and a learner killed half-way has lost nothing. Adam reads four blocks and writes three, 28 bytes per
// parameter, each once; the clip factor (`gradient_scale`, min(1, limit / norm)) is multiplied in on the way, so
// clipping costs no pass of its own.
//
//     parameters v   gradient   moments v    ->    parameters v+1   moments v+1
//
// Semantics are those of torch.optim: Adam, AdamW (`decoupled`), RMSprop (not centred) and SGD (no dampening, no
// Nesterov). Factors are computed in float64 and rounded to float32 once, elements are float32, as torch does it.
// An output may be the input of its own name (an in-place step), and overlaps nothing else. Sizes are equal.
//
// Momentum buffers are optional. They start as zero, which makes the first step equal torch's; an empty span leaves
// momentum out.
//
// A step says whether all that it wrote is finite: a gradient that is (accumulator.hpp sees to that) can still be too
// big for the weights. The check is gathered on the way and costs no pass; nothing was lost, since v is as it was.
//
// What it does not do: schedules (the caller passes this step's learning rate), parameter groups (one call for each
// range of the block).
#pragma once

#include <cstdint>
#include <span>

namespace hive {

struct AdamSettings {
  std::int64_t step;  // of this step; the first is 1
  double learning_rate;
  double beta1;
  double beta2;
  double epsilon;
  double weight_decay;
  bool decoupled;  // true: AdamW, the decay acts on the parameters; false: on the gradient
  double gradient_scale;
};

struct RmspropSettings {
  double learning_rate;
  double decay;  // torch's alpha
  double epsilon;
  double momentum;
  double weight_decay;
  double gradient_scale;
};

struct SgdSettings {
  double learning_rate;
  double momentum;
  double weight_decay;
  double gradient_scale;
};

// Kingma and Ba 2015; Loshchilov and Hutter 2019 where decoupled.
bool adam_step(const AdamSettings& settings, std::span<const float> parameters_in, std::span<float> parameters_out,
               std::span<const float> gradient, std::span<const float> exp_avg_in, std::span<float> exp_avg_out,
               std::span<const float> exp_avg_sq_in, std::span<float> exp_avg_sq_out);

// Tieleman and Hinton 2012. Epsilon is added outside the root.
bool rmsprop_step(const RmspropSettings& settings, std::span<const float> parameters_in,
                  std::span<float> parameters_out, std::span<const float> gradient,
                  std::span<const float> square_avg_in, std::span<float> square_avg_out,
                  std::span<const float> momentum_in, std::span<float> momentum_out);

bool sgd_step(const SgdSettings& settings, std::span<const float> parameters_in, std::span<float> parameters_out,
              std::span<const float> gradient, std::span<const float> momentum_in, std::span<float> momentum_out);

// The soft target update, target = (1 - rate) target + rate source. A rate of 1 is an exact copy.
void polyak(std::span<const float> target_in, std::span<const float> source, std::span<float> target_out, double rate);

}  // namespace hive
