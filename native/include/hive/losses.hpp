// Losses of policies and values, with their gradients with respect to the network's outputs, in one pass over the rows.
//
// A policy is described by its `choices`: the sizes of its categorical actions, whose logits lie side by side, or none
// for a Gaussian with outputs mean and log standard deviation, [rows, 2 D]. hive.algorithms.losses documents the formulas, and
// hive.networks.act.distributions the outputs. Sums of losses are float64, in the order of the rows; outputs and gradients
// float32.
//
// Rows may be of several rollouts: each has acted rows, which have actions and all that belongs to them, followed by
// rows that only bootstrap. Gradients of the latter are 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hive {

// Actions are int64 [M, choices] or, of a Gaussian, float32 [M, D].
struct Actions {
  std::span<const std::int64_t> choices;
  std::span<const float> numbers;
};

class Policy {
 public:
  // Throws std::invalid_argument for a choice without alternatives, and without choices for no dimension.
  Policy(std::vector<std::size_t> choices, std::size_t dimensions);

  std::size_t width() const { return width_; }                                              // outputs of a row
  std::size_t actions() const { return choices_.empty() ? dimensions_ : choices_.size(); }  // numbers of an action
  bool gaussian() const { return choices_.empty(); }

  // The first row with an action that does not exist, or -1.
  std::ptrdiff_t first_unknown(Actions actions) const;

  struct Terms {
    float log_probability, entropy;
  };

  Terms terms(const float* outputs, Actions actions, std::size_t row) const;

  // Writes d/d outputs of (to_log_probability * log probability + to_entropy * entropy) of a row.
  void slopes(const float* outputs, Actions actions, std::size_t row, Terms terms, float to_log_probability,
              float to_entropy, float* to_outputs) const;

 private:
  std::vector<std::size_t> choices_;
  std::size_t dimensions_;
  std::size_t width_ = 0;
};

// The rows of one or several rollouts: acted rows, rows that only bootstrap, and so on.
struct RowSizes {
  std::span<const std::int64_t> sizes;
  std::size_t acted() const;
  std::size_t all() const;
};

void log_probabilities(const Policy& policy, std::span<const float> outputs, Actions actions, RowSizes rows,
                       std::span<float> to);

// Means over rows, weighted: policy loss, value loss, entropy, value. `total` is the loss itself.
struct ActorCriticLoss {
  double total, policy, value, entropy, mean_value;
};

// Mnih et al. 2016. advantages, returns, weights: of acted rows. Rows of weight 0 have no influence.
ActorCriticLoss actor_critic_loss(const Policy& policy, std::span<const float> outputs, std::span<const float> values,
                                  Actions actions, RowSizes rows, std::span<const float> advantages,
                                  std::span<const float> returns, std::span<const float> weights, float value_weight,
                                  float entropy_weight, std::span<float> to_outputs, std::span<float> to_values);

struct PPOSettings {
  float clip_range, value_weight, entropy_weight;
  bool clips_values;
  float value_clip_range;
  bool normalizes;  // the advantages of the rows, to mean 0 and deviation 1
};

struct PPOLoss {
  double total, policy, value, entropy, divergence, clipped;
};

// What a round of PPO holds of its rows. behaviour_values is read if values are clipped.
struct PPOBatch {
  Actions actions;
  std::span<const float> behaviour_log_probs, advantages, returns, behaviour_values;
};

// Schulman et al. 2017, means over all rows of the outputs. rows: their numbers in the batch; empty: the batch in order.
PPOLoss ppo_loss(const Policy& policy, const PPOSettings& settings, std::span<const float> outputs,
                 std::span<const float> values, const PPOBatch& batch, std::span<const std::int64_t> rows,
                 std::span<float> to_outputs, std::span<float> to_values);

// The mean of numbers: a float64 sum in their order.
double mean(std::span<const float> numbers);

// Writes the sums over all rows of the columns [first, first + to.size()) of `from` [rows, width]: float32, in the order of
// the rows. They are the gradient of numbers that are added to every row.
void column_sums(std::span<const float> from, std::size_t width, std::size_t first, std::span<float> to);

struct QLoss {
  double total, mean, largest, error;
};

// Squared errors, or Huber's with delta 1, of the values of the actions taken. values, to_values: [rows, count].
// weights: of each row; empty: equal. importance: factors of the losses; empty: 1. errors: receives absolute errors;
// empty: they are not written.
QLoss q_loss(std::size_t count, bool huber, std::span<const float> values, std::span<const std::int64_t> actions,
             std::span<const float> targets, std::span<const float> weights, std::span<const float> importance,
             std::span<float> errors, std::span<float> to_values);

// Quantile regression with Huber's loss, delta 1 (Dabney et al. 2018): for each row the sum over its quantiles of the mean
// over its targets. Quantile i of `count` is that of (i + 1/2) / count.
struct QuantileSizes {
  std::size_t actions, quantiles, targets;
};

// outputs, to_outputs: [rows, actions, quantiles]; targets: [rows, targets]; others as for `q_loss`, equal weights. The
// errors are differences of means. Returns the loss, and means of the mean quantile taken, of the largest, of the errors.
QLoss quantile_loss(QuantileSizes sizes, std::span<const float> outputs, std::span<const std::int64_t> actions,
                    std::span<const float> targets, std::span<const float> importance, std::span<float> errors,
                    std::span<float> to_outputs);

}  // namespace hive
