// Consecutive updates of a run in one call: gradient, optimizer's step, target network and commit of each, as a gradient
// worker and a learner of one process make them one by one through Python (hive.training.gradient, hive.training.update).
//
//     reserve a gradient slot -> program -> norm
//     begin the next blocks of both boards -> clip and step, keep frozen parameters and buffers, follow the target, count
//     commit the slot, claim it -> seal both blocks -> publish the optimizer state, which commits the update -> retire
//
// Memory, words and their order are those of the path through Python, so a process that is killed within a call loses one
// update, and its successor continues from the last committed one. The call ends before an update whose gradient or new
// weights are not finite: nothing of it is committed, and the path through Python makes it again and names the cause.
//
// A gradient without samples, such as that of a program without steps, changes no parameter and counts as no update: the
// next version has the weights, moments and target of this one.
//
// With a replay memory the plan of each update after the first is drawn here too, and the errors of a gradient become
// priorities before the commit. Where an exchange (exchange.hpp) can get the rollouts of the next round, the call goes on
// with its updates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hive/blocks.hpp"
#include "hive/boards.hpp"
#include "hive/exchange.hpp"
#include "hive/optimizers.hpp"
#include "hive/priority_tree.hpp"
#include "hive/program.hpp"
#include "hive/slots.hpp"
#include "hive/status.hpp"

namespace hive {

// Bytes from the start of a slot to its fields (hive.gradients.blocks). `errors`, `parameters`: their elements.
struct SlotFields {
  std::size_t header, moments, norm, gradient, mask, statistics, errors_at;
  std::size_t parameters, statistics_count, errors;
};

// A parameter group: its elements, and the parameters that belong to it, as the mask of a gradient numbers them.
struct Group {
  Range elements;
  Range parameters;
};

// The blocks of weights (hive.networks.weights.state). Sizes in bytes.
struct WeightFields {
  std::size_t parameter_elements, weight_bytes, target;  // target: the offset of its block, 0 without one
  std::vector<Range> frozen;                             // of the parameters
};

// The blocks of the optimizer state (hive.training.update.learner). Offsets in bytes. group_updates: 0: one group.
struct OptimizerFields {
  std::size_t bytes, counters, applied, moments, moment_blocks, group_updates;
};

// Positions in the counters (hive.training.update.learner.Count).
struct CounterPlaces {
  std::size_t updates, first_ns, last_ns, largest_leaf, saturated, adopted, reduced, applied, target_updates;
};

struct Optimizer {
  enum class Kind : std::uint8_t { adam, rmsprop, sgd } kind;
  double beta1 = 0, beta2 = 0, epsilon = 0, decay = 0, momentum = 0, weight_decay = 0;
  bool decoupled = false, rectified = false;
};

// The plans and priorities of a replay memory (hive.training.update.replay_memory), of one worker.
struct ReplayFields {
  Board* plans = nullptr;
  Blocks plan_blocks;
  std::size_t header, positions, leaves, batch;  // of a plan: bytes, and rows
  std::int64_t per_batch = 1;                    // gradients of each plan, one after the other
  PriorityTree* tree = nullptr;
  double alpha = 0.0;
  float epsilon = 0.0F;
  std::uint32_t first_leaf = 0;
  std::uint64_t draws_purpose = 0;  // the stream of draws (hive.experience.streams)
};

struct Actors {
  Owner worker, learner;
  Page *worker_page, *learner_page;
  int gather_phase, gradient_phase, worker_runtime, update_phase, learner_runtime;
};

struct RoundMemory {
  Board *weights, *optimizer;
  Blocks weight_blocks, optimizer_blocks;
  Slab* slab;
  Blocks slots;
  SlotFields slot;
  WeightFields weight;
  OptimizerFields state;
  CounterPlaces counts;
  std::vector<Group> groups;
  Actors actors;
  std::uint64_t seed = 0, noise_purpose = 0;  // of the run; the stream of the noise of gradients
  std::optional<ReplayFields> replay;
};

// The rounds after that of the first update, if the call may go on with them.
struct FollowingRounds {
  Exchange* exchange = nullptr;    // null: it may not
  std::int64_t updates = 0;        // of a round, which ends at multiples of this
  std::int64_t rounds = 0;         // that a version of the behaviour policy serves
  std::int64_t last_env_steps = 0;  // no round begins after so many
};

// What a call is given. kinds, words: one of each update; the rest holds for all of them.
struct RoundCall {
  std::int64_t turn;  // the version of the state that the first update reads
  std::vector<double> learning_rates;  // of each group
  double clip_gradients;               // 0: no limit
  Optimizer optimizer;
  std::int64_t target_interval;  // 0: no target network
  double target_rate;
  std::int64_t first_ns;                     // see the counter
  std::int64_t now_ns;                       // the time at the call, by the learner's clock
  std::vector<const Program*> programs;      // the kinds of gradients
  std::vector<std::span<const std::uint8_t>> masks;  // of the parameters that each kind writes
  std::vector<std::size_t> kinds;            // of each update
  std::vector<std::span<const std::int64_t>> words;  // of the noise of each update's layers
  std::vector<Range> collected;              // bytes of the optimizer state that every update copies from `ledger`
  std::vector<const std::byte*> ledger;
  std::span<const std::byte> buffers;        // of the network, in every next version; empty: they stay as they are
  std::uint64_t limit_ns;                    // no update begins later than this after the first
  FollowingRounds following;
};

// What one update reports.
struct UpdateReport {
  double norm;
  std::size_t samples;
};

// round: the next round has no rollouts yet, or the learner has other work before it. no_slot: no slot is free, or the
// version is not on the boards any more.
enum class Ended : std::uint8_t { all, time, not_finite, no_slot, empty_plan, round };

class Round {
 public:
  explicit Round(RoundMemory memory) : memory_(std::move(memory)) {}

  // Makes one update for each of call.kinds. batches: without a replay memory the rows of each. Returns how many it has
  // made; `ended` says why not all.
  // statistics: [updates][statistics].
  std::size_t run(const RoundCall& call, std::span<const std::span<const std::int64_t>> batches,
                  std::vector<UpdateReport>& reports, std::span<double> statistics, Ended& ended);

  const RoundMemory& memory() const { return memory_; }

 private:
  struct Versions {
    const std::byte *weights, *optimizer;
    std::byte *next_weights, *next_optimizer;
  };

  std::optional<UpdateReport> update(const RoundCall& call, std::size_t number, std::span<const std::int64_t> rows,
                                     std::span<double> statistics, Ended& ended);
  void clear(std::byte* slot, std::int64_t version, std::uint64_t sequence) const;
  bool next_round(const RoundCall& call, std::int64_t turn, std::size_t& updates, std::size_t made);
  void draw(std::int64_t number);
  bool read_plan(std::int64_t number, GradientCall& gradient) const;  // false: no rows were drawn
  bool apply(const RoundCall& call, std::span<const std::uint8_t> mask, const Versions& versions,
             const GradientCall& gradient, double norm) const;
  std::int64_t time_of(const RoundCall& call) const;
  bool step(const RoundCall& call, const Versions& versions, std::span<const float> gradient, const Group& group,
            double norm, std::int64_t number, double rate) const;
  void copy_rest(const RoundCall& call, const Versions& versions) const;
  void follow(const Versions& versions, double rate, std::int64_t version) const;
  void learn(const GradientCall& gradient, std::int64_t* counters) const;

  RoundMemory memory_;
  std::uint64_t began_ns_ = 0;  // of the call, by the machine's clock
  std::vector<const std::byte*> ledger_;  // what of the newest ledger every update copies
  std::vector<std::uint64_t> words_;
};

}  // namespace hive
