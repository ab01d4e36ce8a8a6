// Batches of transitions from a replay memory: rows of steps, in which the observation of a row is stored once.
//
//     rows   [S][R][B]  S sources (collectors), R rows of a ring, B environments; element (s, r, b) is at (s R + r) B + b
//            the row after (s, r, b) is (s, r + 1, b), and that after the last one is (s, 0, b)
//     finals            the true last observation of an episode that was truncated in this row; not read in others
//     valid             0: no step was made in this row. Its observation is the one that followed the row before it
//
// A row begins an episode if the row before it ended one or is not valid. Rows that were never written are zeros, so
// they are not valid.
//
// A batch has, for every position p of `positions`, with n the number of steps taken, at most `n_step`:
//
//     observations       the observation of p and the stack - 1 before it, oldest first; zeros before the episode began
//     returns            sum of discount^j reward[p + j], j = 0 ... n - 1
//     discounts          discount^n; 0 if the episode terminated in these steps
//     next_observations  what followed the last step, as a stack: the next row's, the final one where the episode was
//                        truncated, and the last step's own where it terminated, whose value counts 0 times
//
// The steps end early at the end of an episode, and before a row that is not valid. The caller passes only positions
// whose `n_step` following rows and `stack` - 1 rows before are written. Sums are float64, in the order of the steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hive {

struct ReplayRows {
  std::size_t sources, rows, columns;  // S, R, B
  std::size_t observation_bytes, action_bytes;
  const std::byte* observations;
  const std::byte* finals;
  const std::byte* actions;
  const float* rewards;
  const std::uint8_t* terminated;
  const std::uint8_t* truncated;
  const std::uint8_t* valid;

  std::size_t size() const { return sources * rows * columns; }
};

struct ReplayBatch {
  std::byte* observations;       // [n][stack][observation_bytes]
  std::byte* next_observations;  // the same
  std::byte* actions;            // [n][action_bytes]
  float* returns;                // [n]
  float* discounts;              // [n]
};

// Every position must be less than rows.size(); n_step and stack at least 1.
void gather_batch(const ReplayRows& rows, std::span<const std::int64_t> positions, std::size_t n_step, double discount,
                  std::size_t stack, const ReplayBatch& batch);

}  // namespace hive
