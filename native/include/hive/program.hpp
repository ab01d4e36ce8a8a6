// A gradient as a description: a sequence of steps over registers, which one call runs without Python.
//
//     pick, gather        rows of a batch                      -> registers
//     forward             a register                           -> the outputs of a network's heads, one register each
//     bootstrap           values of the next observations      -> targets
//     ppo, q              outputs and what belongs to the rows -> slopes of the outputs, statistics
//     backward            slopes                               -> the gradient, or the slopes of the input
//
// Those of an actor with critics, of SAC, TD3 and DDPG:
//
//     unknown             statistics that this kind of gradient does not have
//     noise               normal numbers
//     squashed_sample     outputs of the actor and noise       -> actions, and their log densities
//     tanh_sample         outputs of a deterministic actor     -> actions
//     scale, join         stored actions; both inputs          -> the rows of critics
//     soft_targets        values of the next actions           -> targets
//     critic_loss         values and targets                   -> slopes of the values
//     least_value         values of the actor's actions        -> slopes of these values
//     actor_loss          slopes of the critics' rows          -> slopes of the actor's outputs
//     temperature         the mean log density                 -> the gradient of the temperature
//
// A register holds the rows of one array. Each step calls the function that the path through Python calls for the same
// work, on the same numbers, so both make the same bytes. Registers belong to whoever makes the steps, and outlive them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
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
  std::span<const std::int64_t> rows;      // the batch's rows; empty: `pick` takes all rows in order
  std::span<const std::uint32_t> leaves;   // the priorities that the rows were drawn by, if they were
  std::uint32_t least = 0;                 // the least leaf of all that were drawn for this update
  std::span<float> gradient;               // zeros at first
  std::span<double> statistics;
  std::span<float> errors;                 // of the rows, may be empty
  std::uint64_t seed = 0;    // of the gradient's noise
  std::uint64_t number = 0;  // of the gradient
  double loss = 0.0;         // the sum of all losses
  double value = 0.0, log_density = 0.0;  // means over the rows of an actor's actions
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
// many that are the same in every row, the logarithm of a Gaussian's deviation. clamps: the second half of the columns are
// such logarithms, which are clamped (agent_losses.hpp).
struct HeadColumns {
  std::size_t width;
  std::ptrdiff_t deviations;
  bool clamps;
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
  // Writes the gradient of the last pass with `keep`, from the registers `slopes`; or that of its input, if not null.
  void differentiate(GradientCall& call, Register* to_rows = nullptr);

 private:
  static bool direct(const BranchHeads& heads) {
    return heads.size() == 1 && heads.front().deviations < 0 && !heads.front().clamps;
  }
  void split(const GradientCall& call, std::size_t branch, const float* columns) const;
  const float* joined(GradientCall& call, std::size_t branch);

  DenseNetwork network_;
  std::vector<BranchHeads> heads_;
  const Register& input_;
  bool of_target_, keep_;
  std::vector<Floats> columns_;
};

// to_rows: null: of the parameters; else of the rows alone.
class Backward final : public Step {
 public:
  explicit Backward(Forward& forward, Register* to_rows = nullptr) : forward_(forward), to_rows_(to_rows) {}
  void run(GradientCall& call) override { forward_.differentiate(call, to_rows_); }

 private:
  Forward& forward_;
  Register* to_rows_;
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

// The loss of PPO. fit: statistics that follow its own.
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

// The loss of action values. importance: null: all rows count equally.
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

// Statistics that no step of this gradient writes are NaN.
class Unknown final : public Step {
 public:
  void run(GradientCall& call) override;
};

// Normal noise [rows, width]. use: which of a gradient's streams (hive.algorithms.agents).
class Noise final : public Step {
 public:
  Noise(std::uint64_t use, std::size_t width, Register& into) : use_(use), width_(width), into_(into) {}
  void run(GradientCall& call) override;

 private:
  std::uint64_t use_;
  std::size_t width_;
  Register& into_;
};

// Actions of a squashed Gaussian and their log densities.
class SquashedSample final : public Step {
 public:
  SquashedSample(const Register& outputs, const Register& noise, Register& actions, Register& log_probs)
      : outputs_(outputs), noise_(noise), actions_(actions), log_probs_(log_probs) {}
  void run(GradientCall& call) override;

 private:
  const Register &outputs_, &noise_;
  Register &actions_, &log_probs_;
};

// Actions of a deterministic policy. noise: null: none.
class TanhSample final : public Step {
 public:
  TanhSample(const Register& outputs, const Register* noise, float deviation, float limit, Register& actions)
      : outputs_(outputs), noise_(noise), deviation_(deviation), limit_(limit), actions_(actions) {}
  void run(GradientCall& call) override;

 private:
  const Register& outputs_;
  const Register* noise_;
  float deviation_, limit_;
  Register& actions_;
};

// Stored actions in the scale of the policy, (action - middle) / reach.
class Scale final : public Step {
 public:
  Scale(const Register& actions, std::vector<float> middle, std::vector<float> reach, Register& into)
      : actions_(actions), middle_(std::move(middle)), reach_(std::move(reach)), into_(into) {}
  void run(GradientCall& call) override;

 private:
  const Register& actions_;
  std::vector<float> middle_, reach_;
  Register& into_;
};

// Observations and actions side by side; `at`: their first columns.
class Join final : public Step {
 public:
  Join(const Register& observations, std::size_t observations_at, const Register& actions, std::size_t actions_at,
       Register& into)
      : observations_(observations), actions_(actions), observations_at_(observations_at), actions_at_(actions_at),
        into_(into) {}
  void run(GradientCall& call) override;

 private:
  const Register &observations_, &actions_;
  std::size_t observations_at_, actions_at_;
  Register& into_;
};

// The weight of the entropy: a number, times e^log of a parameter, if it is learned.
struct TemperatureValue {
  double scale = 0.0;
  std::ptrdiff_t log = -1;  // offset of the parameter; -1: none
  double of(std::span<const float> weights) const;
};

// The targets of critics. log_probs: null: without an entropy.
class SoftTargets final : public Step {
 public:
  SoftTargets(std::vector<const Register*> values, const Register* log_probs, TemperatureValue temperature,
              const Register& returns, const Register& discounts, Register& targets)
      : values_(std::move(values)), log_probs_(log_probs), temperature_(temperature), returns_(returns),
        discounts_(discounts), targets_(targets) {}
  void run(GradientCall& call) override;

 private:
  std::vector<const Register*> values_;
  const Register* log_probs_;
  TemperatureValue temperature_;
  const Register &returns_, &discounts_;
  Register& targets_;
};

// The loss of critics. places: of the statistics loss, mean value and mean absolute error.
class CriticStep final : public Step {
 public:
  CriticStep(std::vector<const Register*> values, std::vector<Register*> slopes, float factor, const Register& targets,
             const Register& importance, std::vector<std::size_t> places)
      : values_(std::move(values)), slopes_(std::move(slopes)), factor_(factor), targets_(targets),
        importance_(importance), places_(std::move(places)) {}
  void run(GradientCall& call) override;

 private:
  std::vector<const Register*> values_;
  std::vector<Register*> slopes_;
  float factor_;
  const Register &targets_, &importance_;
  std::vector<std::size_t> places_;
};

// The least value of each row, and the slopes of minus their mean.
class LeastValue final : public Step {
 public:
  LeastValue(std::vector<const Register*> values, std::vector<Register*> slopes)
      : values_(std::move(values)), slopes_(std::move(slopes)) {}
  void run(GradientCall& call) override;

 private:
  std::vector<const Register*> values_;
  std::vector<Register*> slopes_;
};

// An actor's loss, from the slopes of the critics' rows, of which the actions begin at column `at`. log_probs: null: a
// deterministic policy. places: of the statistics loss, entropy and temperature.
class ActorStep final : public Step {
 public:
  struct Inputs {
    const Register *outputs, *noise, *actions, *log_probs, *to_rows;
    std::size_t at;
  };
  ActorStep(Inputs inputs, TemperatureValue temperature, Register& slopes, std::vector<std::size_t> places)
      : inputs_(inputs), temperature_(temperature), slopes_(slopes), places_(std::move(places)) {}
  void run(GradientCall& call) override;

 private:
  Inputs inputs_;
  TemperatureValue temperature_;
  Register& slopes_;
  Register to_actions_;
  std::vector<std::size_t> places_;
};

class TemperatureStep final : public Step {
 public:
  TemperatureStep(std::size_t log, double target_entropy) : log_(log), target_entropy_(target_entropy) {}
  void run(GradientCall& call) override;

 private:
  std::size_t log_;
  double target_entropy_;
};

}  // namespace hive
