// A gradient as a description: a sequence of steps over registers, which one call runs without Python.
//
//     pick, gather        rows of a batch                      -> registers
//     unpack              rows of observations                 -> what the first layer of a network reads of them
//     forward             a register                           -> the outputs of a network's heads, one register each;
//                         layers may be noisy, and heads have two streams
//     backward            slopes                               -> the gradient, or the slopes of the input
//
// Those of policies and of the values of all actions (program_values.hpp):
//
//     bootstrap           values of the next observations      -> targets
//     categorical_targets, quantile_targets                    the same of distributions of returns
//     ppo, q              outputs and what belongs to the rows -> slopes of the outputs, statistics
//     categorical_loss, quantile_loss                          the same of distributions of returns
//
// Those of an actor with critics, of SAC, TD3 and DDPG (program_agents.hpp):
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
//     soft_choice_targets, soft_choice_loss                    targets and loss of a policy of discrete actions
//     temperature         the mean log density                 -> the gradient of the temperature
//
// A register holds the rows of one array. Each step calls the function that the path through Python calls for the same
// work, on the same numbers, so both make the same bytes. Registers belong to whoever makes the steps, and outlive them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hive/dense.hpp"
#include "hive/derived_weights.hpp"
#include "hive/masks.hpp"
#include "hive/replay.hpp"
#include "hive/unpacking.hpp"

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

  // What `write` has written last, to change it.
  template <typename T>
  std::span<T> written() {
    return {reinterpret_cast<T*>(memory_.data()), rows_ * width_ / sizeof(T)};
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

struct Range {
  std::size_t first, count;
};

// What one gradient is made of, and what it becomes.
struct GradientCall {
  std::span<const float> weights, target;  // the parameters of the learner and of the target network
  std::span<const std::byte> block;        // the parameters of the learner, and buffers
  std::span<const std::int64_t> rows;      // the batch's rows; empty: `pick` takes all rows in order
  std::span<const std::uint32_t> leaves;   // the priorities that the rows were drawn by, if they were
  std::uint32_t least = 0;                 // the least leaf of all that were drawn for this update
  std::span<float> gradient;               // zeros at first
  std::span<double> statistics;
  std::span<float> errors;                 // of the rows, may be empty
  std::uint64_t seed = 0;    // of the gradient's noise
  std::span<const std::int64_t> words;  // of the noise of layers, of which so many are taken:
  std::size_t words_taken = 0;
  std::uint64_t number = 0;  // of the gradient
  double loss = 0.0;         // the sum of all losses
  double value = 0.0, log_density = 0.0;  // means over the rows of an actor's actions
  double greatest_entropy = 0.0;          // mean over the rows, of uniform allowed actions
  std::size_t samples = 0;
  bool ended = false;  // whether the steps that are left are not run

  // Leaves this gradient to the path through Python, which names the cause.
  void give_up() {
    loss = std::numeric_limits<double>::quiet_NaN();
    ended = true;
  }

  // Makes this a gradient without samples.
  void give_none() {
    samples = 0;
    ended = true;
  }
};

// Whether all of these are numbers of `count` actions.
inline bool all_exist(std::span<const std::int64_t> actions, std::size_t count) {
  return std::all_of(actions.begin(), actions.end(), [count](std::int64_t action) {
    return action >= 0 && static_cast<std::size_t>(action) < count;
  });
}

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

// The statistics of observations or rewards, as bytes from the start of a block of weights: their count, float64, and
// what normalizes `numbers` numbers, float32 (hive.networks.rows.normalization).
struct StatisticPlaces {
  std::size_t seen, shift, scale, numbers;
};

// How transitions are made of rows. importance_exponent: Schaul et al. 2016, beta. observed, rewarded: what normalizes
// them; none: they stay as they are. limit: of normalized numbers.
struct GatherSettings {
  std::size_t stack, n_step;
  double discount, importance_exponent;
  std::optional<StatisticPlaces> observed, rewarded;
  float limit;
};

struct Transitions {
  Register *observations, *next_observations, *actions, *returns, *discounts, *importance;
};

// Transitions of a replay memory. While statistics count no row, the gradient has no samples.
class Gather final : public Step {
 public:
  Gather(const ReplayRows& memory, GatherSettings settings, Transitions into)
      : memory_(memory), settings_(settings), into_(into) {}
  void run(GradientCall& call) override;

 private:
  std::optional<ReplayScales> scales(std::span<const std::byte> block) const;

  ReplayRows memory_;
  GatherSettings settings_;
  Transitions into_;
};

// The numbers of observations that a network reads. Throws std::invalid_argument for rows of another length.
class Unpack final : public Step {
 public:
  Unpack(Unpacking unpacking, const Register& from, Register& into)
      : unpacking_(std::move(unpacking)), from_(from), into_(into) {}
  void run(GradientCall& call) override;

 private:
  Unpacking unpacking_;
  const Register& from_;
  Register& into_;
};

// An output of a network: `width` columns of a branch, and with `deviations` (an offset of the parameters; -1: none) as
// many that are the same in every row, the logarithm of a Gaussian's deviation. clamps: the second half of the columns are
// such logarithms, which are clamped (agent_losses.hpp). softmax: the output is the logarithm of softmax of each so many
// columns (return_distributions.hpp); 0: it is the columns. masked: actions that the mask of a row forbids are kForbidden.
struct HeadColumns {
  std::size_t width;
  std::ptrdiff_t deviations;
  bool clamps, masked;
  std::size_t softmax;
  Register* output;
  Register* slopes;  // null: this output is not learned from
};
using BranchHeads = std::vector<HeadColumns>;

// The weights of one pass through noisy layers and dueling streams, and their gradient (derived_weights.hpp). drawing: the
// factors of each layer that draws noise, in the order of the words that it takes; other factors are zero.
class DerivedPass {
 public:
  DerivedPass(DerivedWeights weights, std::vector<Range> drawing)
      : weights_(std::move(weights)), drawing_(std::move(drawing)), factors_(weights_.factors()),
        block_(weights_.size()), slopes_(weights_.size()) {}

  std::size_t words() const { return drawing_.size(); }
  std::span<const float> block() const { return block_; }

  // Draws the noise of a pass, from the next words of the call, and writes the block.
  void derive(GradientCall& call, std::span<const float> parameters);
  // The memory for the gradient of the block, with zeros.
  std::span<float> slopes();
  // Writes the gradient of the parameters, from that of the block.
  void spread(std::span<float> gradient) { weights_.backward(factors_, slopes_, gradient); }

 private:
  DerivedWeights weights_;
  std::vector<Range> drawing_;
  std::vector<float> factors_;
  Floats block_, slopes_;
};

// The register whose rows have action masks, as observations are stored.
struct Masks {
  const Register& rows;
  MaskColumns columns;
};

// derived: null: the layers' weights are parameters.
class Forward final : public Step {
 public:
  Forward(DenseNetwork network, std::vector<BranchHeads> heads, const Register& input, bool of_target, bool keep,
          std::unique_ptr<DerivedPass> derived = nullptr, std::optional<Masks> masks = std::nullopt)
      : network_(std::move(network)), heads_(std::move(heads)), input_(input), of_target_(of_target), keep_(keep),
        derived_(std::move(derived)), masks_(masks), columns_(heads_.size()) {}
  void run(GradientCall& call) override;
  // Writes the gradient of the last pass with `keep`, from the registers `slopes`; or that of its input, if not null.
  void differentiate(GradientCall& call, Register* to_rows = nullptr);

 private:
  static bool direct(const BranchHeads& heads) {
    return heads.size() == 1 && heads.front().deviations < 0 && !heads.front().clamps && heads.front().softmax == 0;
  }
  void split(const GradientCall& call, std::size_t branch, const float* columns) const;
  void fill_forbidden(Register* HeadColumns::*of, float with) const;
  const float* joined(GradientCall& call, std::size_t branch, bool learns);

  DenseNetwork network_;
  std::vector<BranchHeads> heads_;
  const Register& input_;
  bool of_target_, keep_;
  std::unique_ptr<DerivedPass> derived_;
  std::optional<Masks> masks_;
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

}  // namespace hive
