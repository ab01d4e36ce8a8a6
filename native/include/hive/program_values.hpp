// Steps of a program (program.hpp): targets and losses of policies and of the values of all actions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "hive/losses.hpp"
#include "hive/program.hpp"

namespace hive {

// What targets are made of: values [rows, actions] or distributions [rows, actions * atoms] for the next observation, of
// which `chooses` finds the best action.
struct NextValues {
  const Register &chooses, &values, &returns, &discounts;
};

// targets = returns + discounts * value of the best action.
class Bootstrap final : public Step {
 public:
  Bootstrap(NextValues next, Register& targets) : next_(next), targets_(targets) {}
  void run(GradientCall& call) override;

 private:
  NextValues next_;
  Register& targets_;
};

// The targets of C51. Its loss is NaN where returns are not finite.
class CategoricalTargets final : public Step {
 public:
  CategoricalTargets(std::vector<float> support, NextValues next, Register& targets)
      : support_(std::move(support)), next_(next), targets_(targets) {}
  void run(GradientCall& call) override;

 private:
  std::vector<float> support_;
  NextValues next_;
  Register& targets_;
};

// The targets of QR-DQN.
class QuantileTargets final : public Step {
 public:
  QuantileTargets(std::size_t atoms, NextValues next, Register& targets)
      : atoms_(atoms), next_(next), targets_(targets) {}
  void run(GradientCall& call) override;

 private:
  std::size_t atoms_;
  NextValues next_;
  Register& targets_;
};

// The loss of PPO. most_divergence: a gradient at a larger one ends the round, and is left to the path through Python; 0:
// none is. fit: statistics that follow its own.
class PPOStep final : public Step {
 public:
  PPOStep(Policy policy, PPOSettings settings, PPOBatch batch, double most_divergence, std::vector<double> fit,
          const Register& outputs, const Register& values, Register& to_outputs, Register& to_values)
      : policy_(std::move(policy)), settings_(settings), batch_(batch), most_divergence_(most_divergence),
        fit_(std::move(fit)), outputs_(outputs), values_(values), to_outputs_(to_outputs), to_values_(to_values) {}
  void run(GradientCall& call) override;

 private:
  Policy policy_;
  PPOSettings settings_;
  PPOBatch batch_;
  double most_divergence_;
  std::vector<double> fit_;
  const Register &outputs_, &values_;
  Register &to_outputs_, &to_values_;
};

// What a loss of the values or distributions of all actions reads. importance: null: all rows count equally.
struct ValueInputs {
  const Register &outputs, &actions, &targets;
  const Register* importance;
};

// A loss of the actions that were taken. It is NaN for an action that does not exist. A subclass calls its function.
class ValueStep : public Step {
 public:
  ValueStep(std::size_t atoms, ValueInputs inputs, Register& slopes)
      : atoms_(atoms), inputs_(inputs), slopes_(slopes) {}
  void run(GradientCall& call) final;

 protected:
  struct Rows {
    std::size_t actions, atoms;
    std::span<const float> outputs;
    std::span<const std::int64_t> taken;
    std::span<const float> targets, importance;
    std::span<float> errors, slopes;
  };
  virtual QLoss loss(const Rows& rows) const = 0;

 private:
  std::size_t atoms_;  // of each action
  ValueInputs inputs_;
  Register& slopes_;
};

// The loss of action values.
class QStep final : public ValueStep {
 public:
  QStep(bool huber, ValueInputs inputs, Register& slopes) : ValueStep(1, inputs, slopes), huber_(huber) {}

 private:
  QLoss loss(const Rows& rows) const override;

  bool huber_;
};

// The loss of C51.
class CategoricalStep final : public ValueStep {
 public:
  CategoricalStep(std::vector<float> support, ValueInputs inputs, Register& slopes)
      : ValueStep(support.size(), inputs, slopes), support_(std::move(support)) {}

 private:
  QLoss loss(const Rows& rows) const override;

  std::vector<float> support_;
};

// The loss of QR-DQN.
class QuantileStep final : public ValueStep {
 public:
  using ValueStep::ValueStep;

 private:
  QLoss loss(const Rows& rows) const override;
};

}  // namespace hive
