// Distributions of the returns of discrete actions: C51 (Bellemare et al. 2017) and the targets of QR-DQN (Dabney et al.
// 2018). hive.algorithms.c51 and qr_dqn have the formulas; quantile_loss is in losses.hpp.
//
//     next observations ─ target network ─> outputs [N, A, K] ─> targets [N, K] of the best action
//                       ─ online network ─> `chooses`, which finds that action with double Q-learning, otherwise outputs
//
// Outputs of C51 are log probabilities of `support`, K equally spaced returns; those of QR-DQN are quantiles. Sums over
// rows are float64 in the order of the rows, those over atoms in eight fixed lanes. Exponentials and logarithms are those
// of elementary.hpp, so all results have the same bytes on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hive/losses.hpp"

namespace hive {

struct ReturnSizes {
  std::size_t actions, atoms;
};

// The logarithm of softmax of each `count` columns; may be in place.
void log_softmax(std::size_t count, std::span<const float> columns, std::span<float> outputs);

// Gradients of the outputs -> gradients of the columns; may be in place.
void log_softmax_back(std::size_t count, std::span<const float> outputs, std::span<const float> to_outputs,
                      std::span<float> to_columns);

// Probabilities of `support` for the best action of each row, from the projection of returns + discounts * support
// (hive.networks.act.projection). Returns the first row whose returns are not finite, at which it stops, or -1.
std::ptrdiff_t categorical_targets(ReturnSizes sizes, std::span<const float> support, std::span<const float> chooses,
                                   std::span<const float> outputs, std::span<const float> returns,
                                   std::span<const float> discounts, std::span<float> targets);

// returns + discounts * the quantiles of the best action of each row.
void quantile_targets(ReturnSizes sizes, std::span<const float> chooses, std::span<const float> outputs,
                      std::span<const float> returns, std::span<const float> discounts, std::span<float> targets);

// Mean over rows of importance * the cross entropy of targets [N, K] and the distributions of the actions taken.
// Returns the loss, and means of the expected return taken, of the largest, and of the absolute differences between those
// of targets and predictions. importance: empty: 1. errors: receives the divergences KL(target || prediction); may be empty.
QLoss categorical_loss(ReturnSizes sizes, std::span<const float> support, std::span<const float> outputs,
                       std::span<const std::int64_t> actions, std::span<const float> targets,
                       std::span<const float> importance, std::span<float> errors, std::span<float> to_outputs);

}  // namespace hive
