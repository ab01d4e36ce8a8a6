// A gradient as a description: a sequence of steps over registers, which one call runs without Python.
//
//     pick, gather        rows of a batch                      -> registers
//     forward             a register                           -> the outputs of a network's heads, one register each
//     bootstrap           values of the next observations      -> targets
//     ppo_loss, q_loss    outputs and what belongs to the rows -> slopes of the outputs, statistics
//     backward            slopes                               -> the gradient
//
// A register holds the rows of one array. Each step calls the function that the path through Python calls for the same
// work, on the same numbers, so both make the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hive/dense.hpp"
#include "hive/losses.hpp"
#include "hive/replay.hpp"

namespace hive {

// Rows of one type, in memory of its own that grows to the largest batch, or in an array that outlives the program.
class Register {
 public:
  std::size_t rows() const { return rows_; }
  std::size_t width() const { return width_; }  // bytes of a row

  template <typename T>
  std::span<const T> view() const {
    return {reinterpret_cast<const T*>(data_), rows_ * width_ / sizeof(T)};
  }

  template <typename T>
  std::span<T> write(std::size_t rows, std::size_t columns) {
    rows_ = rows;
    width_ = columns * sizeof(T);
    if (memory_.size() < rows_ * width_) memory_.resize(rows_ * width_);
    data_ = memory_.data();
    return {reinterpret_cast<T*>(memory_.data()), rows_ * columns};
  }

  void refer(const std::byte* data, std::size_t rows, std::size_t width) {
    data_ = data;
    rows_ = rows;
    width_ = width;
  }

 private:
  std::vector<std::byte, AlignedAllocator<std::byte>> memory_;
  const std::byte* data_ = nullptr;
  std::size_t rows_ = 0, width_ = 0;
};

// What one gradient is made of, and what it becomes.
struct GradientCall {
  std::span<const float> weights, target;  // the parameters of the learner and of the target network
  std::span<const std::int64_t> rows;      // of the batch; of `pick` none: all of them, in order
  std::span<const std::uint32_t> leaves;   // the priorities that the rows were drawn by, if they were
  std::uint32_t least = 0;                 // the least leaf of all that were drawn for this update
  std::span<float> gradient;               // zeros at first
  std::span<double> statistics;
  std::span<float> errors;                 // of the rows, may be empty
  double loss = 0.0;
  std::size_t samples = 0;
};

class Step {
 public:
  virtual ~Step() = default;
  virtual void run(GradientCall& call) = 0;
};

using Program = std::vector<std::unique_ptr<Step>>;

// Rows of an array [count][width].
class Pick final : public Step {
 public:
  Pick(const std::byte* source, std::size_t count, std::size_t width, Register& into)
      : source_(source), count_(count), width_(width), into_(into) {}
  void run(GradientCall& call) override;

 private:
  const std::byte* source_;
  std::size_t count_, width_;
  Register& into_;
};

// Transitions of a replay memory, without a stack and as they are. importance_exponent: Schaul et al. 2016, beta.
struct Transitions {
  Register *observations, *next_observations, *actions, *returns, *discounts, *importance;
};
class Gather final : public Step {
 public:
  Gather(const ReplayRows& memory, std::size_t n_step, double discount, double importance_exponent, Transitions into)
      : memory_(memory), n_step_(n_step), discount_(discount), exponent_(importance_exponent), into_(into) {}
  void run(GradientCall& call) override;

 private:
  ReplayRows memory_;
  std::size_t n_step_;
  double discount_, exponent_;
  Transitions into_;
};

// An output of a network: `width` columns of a branch, and with `deviations` (an offset of the parameters; -1: none) as
// many that are the same in every row, the logarithm of a Gaussian's deviation.
struct HeadColumns {
  std::size_t width;
  std::ptrdiff_t deviations;
  Register* output;
  Register* slopes;  // null: this output is not learned from
};
using BranchHeads = std::vector<HeadColumns>;

class Forward final : public Step {
 public:
  Forward(DenseNetwork network, std::vector<BranchHeads> heads, const Register& input, bool of_target, bool keep)
      : network_(std::move(network)), heads_(std::move(heads)), input_(input), of_target_(of_target), keep_(keep),
        columns_(heads_.size()) {}
  void run(GradientCall& call) override;
  // Writes the gradient of the last pass with `keep`, from the registers `slopes`.
  void differentiate(GradientCall& call);

 private:
  DenseNetwork network_;
  std::vector<BranchHeads> heads_;
  const Register& input_;
  bool of_target_, keep_;
  std::vector<Floats> columns_;
};

class Backward final : public Step {
 public:
  explicit Backward(Forward& forward) : forward_(forward) {}
  void run(GradientCall& call) override { forward_.differentiate(call); }

 private:
  Forward& forward_;
};

// targets = returns + discounts * value of the best next action, by `chooses`, a register of values [rows, actions].
class Bootstrap final : public Step {
 public:
  Bootstrap(const Register& chooses, const Register& values, const Register& returns, const Register& discounts,
            Register& targets)
      : chooses_(chooses), values_(values), returns_(returns), discounts_(discounts), targets_(targets) {}
  void run(GradientCall& call) override;

 private:
  const Register &chooses_, &values_, &returns_, &discounts_;
  Register& targets_;
};

// fit: statistics that follow those of the loss.
class PPOStep final : public Step {
 public:
  PPOStep(Policy policy, PPOSettings settings, PPOBatch batch, std::vector<double> fit, const Register& outputs,
          const Register& values, Register& to_outputs, Register& to_values)
      : policy_(std::move(policy)), settings_(settings), batch_(batch), fit_(std::move(fit)), outputs_(outputs),
        values_(values), to_outputs_(to_outputs), to_values_(to_values) {}
  void run(GradientCall& call) override;

 private:
  Policy policy_;
  PPOSettings settings_;
  PPOBatch batch_;
  std::vector<double> fit_;
  const Register &outputs_, &values_;
  Register &to_outputs_, &to_values_;
};

// importance: null: all rows count equally.
class QStep final : public Step {
 public:
  QStep(bool huber, const Register& values, const Register& actions, const Register& targets,
        const Register* importance, Register& to_values)
      : huber_(huber), values_(values), actions_(actions), targets_(targets), importance_(importance),
        to_values_(to_values) {}
  void run(GradientCall& call) override;

 private:
  bool huber_;
  const Register &values_, &actions_, &targets_;
  const Register* importance_;
  Register& to_values_;
};

}  // namespace hive
