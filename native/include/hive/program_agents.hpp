// Steps of a program (program.hpp): an actor with critics, as SAC, TD3 and DDPG have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "hive/program.hpp"

namespace hive {

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

// Observations with the actions before column `at`, or after the last one.
class Join final : public Step {
 public:
  Join(const Register& observations, const Register& actions, std::size_t at, Register& into)
      : observations_(observations), actions_(actions), at_(at), into_(into) {}
  void run(GradientCall& call) override;

 private:
  const Register &observations_, &actions_;
  std::size_t at_;
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

// The targets of critics of discrete actions, in expectation over the policy of these logits.
class SoftChoiceTargets final : public Step {
 public:
  SoftChoiceTargets(std::vector<const Register*> values, const Register& logits, TemperatureValue temperature,
                    const Register& returns, const Register& discounts, Register& targets)
      : values_(std::move(values)), logits_(logits), temperature_(temperature), returns_(returns),
        discounts_(discounts), targets_(targets) {}
  void run(GradientCall& call) override;

 private:
  std::vector<const Register*> values_;
  const Register& logits_;
  TemperatureValue temperature_;
  const Register &returns_, &discounts_;
  Register& targets_;
};

// The loss of critics. actions: those taken, of values of all discrete actions; null: values are of one action. It is NaN
// for an action that does not exist. places: of the statistics loss, mean value and mean absolute error.
class CriticStep final : public Step {
 public:
  CriticStep(std::vector<const Register*> values, std::vector<Register*> slopes, const Register* actions, float factor,
             const Register& targets, const Register& importance, std::vector<std::size_t> places)
      : values_(std::move(values)), slopes_(std::move(slopes)), actions_(actions), factor_(factor), targets_(targets),
        importance_(importance), places_(std::move(places)) {}
  void run(GradientCall& call) override;

 private:
  std::vector<const Register*> values_;
  std::vector<Register*> slopes_;
  const Register* actions_;
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

// The loss of a policy of discrete actions, of logits. places: as for ActorStep.
class SoftChoiceStep final : public Step {
 public:
  SoftChoiceStep(const Register& logits, std::vector<const Register*> values, TemperatureValue temperature,
                 Register& slopes, std::vector<std::size_t> places)
      : logits_(logits), values_(std::move(values)), temperature_(temperature), slopes_(slopes),
        places_(std::move(places)) {}
  void run(GradientCall& call) override;

 private:
  const Register& logits_;
  std::vector<const Register*> values_;
  TemperatureValue temperature_;
  Register& slopes_;
  std::vector<std::size_t> places_;
};

// target: the entropy at which the policy is held; of_greatest: as a share of the greatest one.
class TemperatureStep final : public Step {
 public:
  TemperatureStep(std::size_t log, double target, bool of_greatest)
      : log_(log), target_(target), of_greatest_(of_greatest) {}
  void run(GradientCall& call) override;

 private:
  std::size_t log_;
  double target_;
  bool of_greatest_;
};

}  // namespace hive
