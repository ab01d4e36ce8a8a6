// Advantages and return targets over rollouts, time-major: element (t, b) of a [T, B] array is at t * B + b.
//
//     values[t]       V(observation t)
//     next_values[t]  V(the true successor of observation t): row t+1, or the final observation of an episode that was
//                     truncated at t. Not read where terminated
//     terminated[t]   the episode ended: its value after t is 0, so there is no bootstrap
//     truncated[t]    the episode was interrupted: bootstrap from next_values[t]; later rows do not affect row t
//     valid[t]        0: not a step of an episode, such as the reset step of a next-step-autoreset vector or the unused
//                     end of a partial rollout. Its advantage is 0, its target is values[t], its reward is not read,
//                     and the step before it bootstraps as the last of a rollout does
//
// The last row bootstraps from next_values. Masks are bytes; any value but 0 is true. Values that are not read may be
// NaN. Each row is one loop over B, in float32, from the last row to the first.
//
// The algorithms compute the values, and normalise advantages over a whole round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hive {

struct Rollout {
  std::size_t steps;  // T
  std::size_t envs;   // B
  std::span<const float> rewards;
  std::span<const float> values;
  std::span<const float> next_values;
  std::span<const std::uint8_t> terminated;
  std::span<const std::uint8_t> truncated;
  std::span<const std::uint8_t> valid;
};

// Generalised advantage estimation (Schulman et al. 2016):
//     delta[t]     = reward[t] + discount next_value[t] - value[t]
//     advantage[t] = delta[t] + discount lambda advantage[t+1]        targets = advantages + values
// without the terms that the masks above exclude.
void gae(const Rollout& rollout, double discount, double lambda, std::span<float> advantages,
         std::span<float> targets);

// n-step returns (Sutton and Barto 2018, 7.1): the discounted rewards of up to n steps, then the value of the next
// observation; fewer steps if the episode, the valid steps or the rollout end first. The targets are the returns, and
// advantages = targets - values. n >= 1; with n >= T they reach to the end of the rollout, which is GAE with lambda =
// 1.
void n_step_returns(const Rollout& rollout, double discount, std::size_t n, std::span<float> advantages,
                    std::span<float> targets);

// V-trace (Espeholt et al. 2018, equation 1, with the lambda of its remark 2), for actions that another policy took.
// log_ratios[t] = log pi(action t) - log mu(action t), where pi is the current policy and mu the behaviour policy; not
// read where the step is not valid.
//     rho[t]       = min(rho_clip, e^log_ratio[t])        c[t] = lambda min(c_clip, e^log_ratio[t])
//     error[t]     = reward[t] + discount next_value[t] - value[t]
//     target[t]    = value[t] + rho[t] error[t] + discount c[t] excess[t+1]
//     advantage[t] = rho[t] (error[t] + discount excess[t+1])
// with excess[t] = target[t] - value[t], and without the terms that the masks above exclude. Where the episode
// continues, next_value[t] is value[t+1], so next_value + excess is target[t+1]: the advantage is the paper's rho (r +
// discount v[t+1] - V[t]). With ratios of 1 and clips >= 1 the targets are bit-identical to those of gae(), and with
// lambda = 1 so are the advantages.
void vtrace(const Rollout& rollout, std::span<const float> log_ratios, double discount, double lambda, double rho_clip,
            double c_clip, std::span<float> advantages, std::span<float> targets);

// How well values predict their targets, over the rows with a weight; the weights have the sum 1. In float64.
//     explained_variance  1 - Var(targets - values) / Var(targets): 1 for a perfect prediction up to a constant, 0 for
//                         a constant one. At least -1, so that one batch of nearly equal targets does not outweigh
//                         many others in a mean. NaN if all targets are equal: then there is nothing to explain
//     target_rms          root mean square of the targets
// Rows of weight 0 are not read and may be NaN.
struct ValueFit {
  double explained_variance;
  double target_rms;
};
ValueFit value_fit(std::span<const float> values, std::span<const float> targets, std::span<const float> weights);

}  // namespace hive
