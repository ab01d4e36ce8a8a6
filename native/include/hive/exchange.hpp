// What a learner with a replay memory does between two rounds, within one native call:
//
//     publish the weights that the next rollouts are made with -> wait for these rollouts -> append them -> publish the
//     ledger, which commits them -> retire their slots
//
// Memory, words and their order are those of the path through Python (hive.training.update.replay_learner). So a learner
// that is killed in between is followed by one that repeats its last step. Collectors have processes of their own: they
// wait on the notifiers of their pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "hive/blocks.hpp"
#include "hive/boards.hpp"
#include "hive/replay_writer.hpp"
#include "hive/slots.hpp"
#include "hive/status.hpp"

namespace hive {

// One collector: its slab, the memory of its slots, and its page.
struct RolloutLine {
  Slab* slab;
  Blocks slots;
  Page* page;
};

// Bytes from the start of a slot to the arrays of a rollout. errors, infos: 0 where it has none.
struct RolloutPlaces {
  std::size_t header, observations, actions, finals, rewards, episode_returns, errors, infos, terminated, truncated, valid,
      final_index, episode_lengths;
};

// The same of a ledger; infos: 0 where it has none.
struct LedgerBlock {
  std::size_t bytes, counters, written, rollouts, returns, infos, kept, info_count;
};

struct ExchangeMemory {
  std::vector<RolloutLine> lines;
  RolloutPlaces rollout;
  Board* ledger;
  Blocks ledger_blocks;
  LedgerBlock fields;
  Board* behaviour;
  Blocks behaviour_blocks;
  std::size_t behaviour_bytes;
  ReplayWriter* writer;
  LedgerPlaces counts;
  Owner learner;
  Page* page;  // the learner's
  int wait_phase, replay_phase, runtime;
};

// The episodes that ended in the rollouts of a round, by collector, step and environment. columns: collector * environments
// + environment. infos: [returns.size()][info_count]. updates: of the run before the round. env_steps: with the round.
struct EndedEpisodes {
  std::vector<float> returns, infos;
  std::vector<std::int32_t> lengths, columns;
  std::int64_t updates, env_steps;
};

class Exchange {
 public:
  explicit Exchange(ExchangeMemory memory) : memory_(std::move(memory)) {}

  // late: the rollouts had not come by `until_ns`. saving: the recorder reads what they would overwrite. refused: one does
  // not fit the memory; the path through Python says why.
  enum class Result : std::uint8_t { admitted, late, saving, refused };

  // Publishes `weights` as `version`, if it is newer than the last, and appends the next rollout of every collector.
  // updates: of the run so far. leaf: of their rows.
  Result next(const std::byte* weights, std::int64_t version, std::int64_t updates, std::uint32_t leaf, std::uint64_t until_ns);

  // The last ledger, and whether the rollouts that were appended last have ended an episode.
  const std::byte* ledger() const { return memory_.ledger_blocks.at(memory_.ledger->find(memory_.ledger->latest())); }
  bool ended_episodes() const { return ended_episodes_; }
  // Those of the last round in which an episode ended, once.
  std::optional<EndedEpisodes> take_ended() { return std::exchange(ended_, std::nullopt); }
  std::int64_t env_steps() const { return counters(ledger())[memory_.counts.env_steps]; }

 private:
  void publish(const std::byte* weights, std::int64_t version) const;
  bool await(std::int64_t sequence, std::uint64_t until_ns) const;
  int full_slot(const RolloutLine& line, std::int64_t sequence) const;
  StoredRollout rollout_of(const std::byte* slot) const;
  void list_ended(const StoredRollout& rollout);
  const std::int64_t* counters(const std::byte* ledger) const {
    return reinterpret_cast<const std::int64_t*>(ledger + memory_.fields.counters);
  }

  ExchangeMemory memory_;
  bool ended_episodes_ = false;
  std::optional<EndedEpisodes> ended_;
};

}  // namespace hive
