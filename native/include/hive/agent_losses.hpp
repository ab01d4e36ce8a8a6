// Samples, targets and losses of an actor with critics: SAC, TD3 and DDPG, with their gradients. hive.algorithms.sac,
// td3 and ddpg have the formulas. Actions are scaled to -1 ... 1.
//
//     next observations ─ actor ─> squashed_sample or tanh_actions ─ target critics ─> soft_targets ─> critic_loss
//     observations      ─ actor ─> squashed_sample ─ critics ─> least_values ─ backward pass ─> squashed_slopes
//
// N rows; a Gaussian of D dimensions has outputs [N, 2 D], means and then log standard deviations. `values` are those of
// each critic, [N], or of discrete actions [N, A]. Sums over rows are float64, in the order of the rows. Exponentials and
// logarithms are those of elementary.hpp, so all results have the same bytes on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hive {

using CriticValues = std::span<const float* const>;
using CriticSlopes = std::span<float* const>;

// Log standard deviations outside of these bounds are clamped, and have no gradient (Haarnoja et al. 2018).
inline constexpr float kLeastLogDeviation = -20.0F, kMostLogDeviation = 2.0F;

// columns [N, 2 D] of the last layer -> outputs, with clamped deviations; may be in place.
void clamp_deviations(std::size_t dimensions, std::span<const float> columns, std::span<float> outputs);

// Gradients of the outputs -> gradients of the columns; may be in place.
void clamp_deviations_back(std::size_t dimensions, std::span<const float> columns, std::span<const float> to_outputs,
                           std::span<float> to_columns);

// tanh(mean + deviation * noise) [N, D], and the log densities [N] of these actions. Finite for any argument of tanh.
void squashed_sample(std::size_t dimensions, std::span<const float> outputs, std::span<const float> noise,
                     std::span<float> actions, std::span<float> log_probs);

// The gradient of the outputs, from that of the actions [N, D] and `to_log_prob`, that of each log density.
void squashed_slopes(std::size_t dimensions, std::span<const float> outputs, std::span<const float> noise,
                     std::span<const float> actions, std::span<const float> to_actions, float to_log_prob,
                     std::span<float> to_outputs);

// tanh(outputs) [N, D]. With noise, which is not empty: plus clip(deviation * noise, -limit, limit), clipped to -1 .. 1.
void tanh_actions(std::span<const float> outputs, std::span<const float> noise, float deviation, float limit,
                  std::span<float> actions);

// The gradient of the arguments of tanh, from the actions and their gradients; may be in place.
void tanh_slopes(std::span<const float> actions, std::span<const float> to_actions, std::span<float> to_outputs);

// returns + discounts * (least value - temperature * log_probs). Empty log_probs: without the second term.
void soft_targets(CriticValues values, std::span<const float> log_probs, double temperature,
                  std::span<const float> returns, std::span<const float> discounts, std::span<float> targets);

// The same for `count` discrete actions, in expectation over the policy of these logits [N, count].
void soft_choice_targets(std::size_t count, std::span<const float> logits, CriticValues values, double temperature,
                         std::span<const float> returns, std::span<const float> discounts, std::span<float> targets);

struct CriticLoss {
  double total, mean, error;  // the loss; means over critics and rows of values, and of absolute errors
};

// Mean over rows of factor * importance * squared error (or Huber's loss, delta 1), summed over the critics.
// count, actions: values are of so many discrete actions, and those taken; 1 and empty: one value per row.
// errors: receives absolute errors [N], means over the critics; empty: they are not written.
CriticLoss critic_loss(std::size_t count, bool huber, float factor, CriticValues values,
                       std::span<const std::int64_t> actions, std::span<const float> targets,
                       std::span<const float> importance, std::span<float> errors, CriticSlopes to_values);

// The mean over rows of the least value, and the gradients of minus this mean. Equal values share that of their row.
double least_values(CriticValues values, std::size_t rows, CriticSlopes to_values);

struct SoftLoss {
  double total, mean;  // mean of temperature * log pi - value, and mean log probability
  double greatest;     // mean log of the number of allowed actions: the greatest entropy
};

// SAC's loss of a policy over `count` discrete actions, logits [N, count], with the gradient of the logits.
SoftLoss soft_choice_loss(std::size_t count, std::span<const float> logits, CriticValues values, double temperature,
                          std::span<float> to_logits);

// scale * e^log, the temperature whose learned part is `log`.
double soft_temperature(double scale, double log);

struct TemperatureLoss {
  double total;
  float slope;  // of log
};

// -log * (mean log probability + target entropy).
TemperatureLoss temperature_loss(float log, double mean_log_prob, double target_entropy);

}  // namespace hive
