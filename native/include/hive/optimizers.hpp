// Optimizer steps as single out-of-place passes over flat float32 blocks.
//
// The learner's weights lie in versioned blocks. A step reads block v and writes block v+1, so readers of v are not
// disturbed, and a learner that is killed within a step has lost nothing. Adam reads four blocks and writes three, 28
// bytes per parameter, each once. The clip factor (`gradient_scale`, min(1, limit / norm)) is applied in the same pass.
//
//     parameters v   gradient   moments v    ->    parameters v+1   moments v+1
//
// Semantics are those of torch.optim: Adam, AdamW (`decoupled`), RAdam (`rectified`), RMSprop (not centred) and SGD (no
// dampening, no Nesterov). As in torch, factors are computed in float64 and rounded to float32 once, and elements are float32. An
// output may be the input of the same name (an in-place step) and overlaps no other array. All sizes are equal.
//
// Momentum buffers are optional. They start as zero, which makes the first step equal torch's. An empty span means no
// momentum.
//
// A step returns whether all its outputs are finite: weights can overflow even with a finite gradient (which
// accumulator.hpp ensures). The check is part of the same pass. After a failure block v is unchanged.
//
// There are no schedules (the caller passes the learning rate of each step) and no parameter groups (one call for each
// range of the block).
#pragma once

#include <cstdint>
#include <span>

namespace hive {

struct AdamSettings {
  std::int64_t step;  // number of this step; the first is 1
  double learning_rate;
  double beta1;
  double beta2;
  double epsilon;
  double weight_decay;
  bool decoupled;  // true: AdamW, the decay acts on the parameters; false: on the gradient
  bool rectified;  // true: RAdam, steps shrink while too few squares are averaged
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

// Kingma and Ba 2015; with `decoupled` Loshchilov and Hutter 2019; with `rectified` Liu et al. 2020, algorithm 2.
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
