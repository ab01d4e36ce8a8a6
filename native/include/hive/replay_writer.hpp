// Appends rollouts to a replay memory (replay.hpp), and counts them in its ledger.
//
//     rollout of a collector -> rows of its ring -> leaves of the rows that are now complete, 0 for the oldest -> ledger
//
// hive.training.update.replay_memory has the order of these steps, and why a call that was cut short may be repeated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hive/priority_tree.hpp"
#include "hive/replay.hpp"

namespace hive {

// The arrays of a rollout of `length` steps (hive.experience.rollouts). errors, infos: may be null.
struct StoredRollout {
  std::size_t source, length;
  std::int64_t sequence;
  bool begins;
  const std::byte *observations, *actions, *finals;
  const float *rewards, *episode_returns, *errors, *infos;
  const std::uint8_t *terminated, *truncated, *valid;
  const std::int32_t *final_index, *episode_lengths;
};

// The arrays of a ledger. kept: episodes whose returns it holds, as a ring. info_count: values of each.
struct Ledger {
  std::int64_t *counters, *written, *rollouts;
  float *returns, *infos;
  std::size_t kept, info_count;
};

// Positions in the counters (hive.training.update.learner.Count).
struct LedgerPlaces {
  std::size_t rollouts, env_steps, episodes;
};

struct ReplayKept {
  std::size_t rows, n_step;  // of each collector that can be drawn; of a transition
};

class ReplayWriter {
 public:
  // The memory of `rows` is written.
  ReplayWriter(const ReplayRows& rows, PriorityTree& tree, ReplayKept kept, double alpha, float epsilon, LedgerPlaces places);

  // Whether a rollout of so many steps fits into a ring.
  bool fits(std::size_t length) const { return length + 2 <= rows_.rows; }

  std::size_t columns() const { return rows_.columns; }

  // `ledger` becomes that after the rollout. leaf: of rows that can be drawn now.
  void admit(const StoredRollout& rollout, const Ledger& ledger, std::uint32_t leaf);

 private:
  std::size_t append(const StoredRollout& rollout, std::size_t written) const;
  void put(std::byte* ring, std::size_t width, std::size_t first, const std::byte* rows, std::size_t count) const;
  void let_draw(std::size_t source, std::size_t first, std::size_t end, std::uint32_t leaf) const;
  void fill(std::size_t source, std::size_t first, std::size_t end, std::uint32_t leaf) const;
  void prioritize(const StoredRollout& rollout, std::size_t end) const;
  void count(const StoredRollout& rollout, const Ledger& ledger) const;
  std::size_t position(std::size_t source, std::size_t row) const { return (source * rows_.rows + row % rows_.rows) * rows_.columns; }

  ReplayRows rows_;
  PriorityTree& tree_;
  ReplayKept kept_;
  double alpha_;
  float epsilon_;
  LedgerPlaces places_;
};

}  // namespace hive
