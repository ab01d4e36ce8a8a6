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
// Rows are stored raw. With statistics of observations or rewards, a batch is normalised as it is gathered:
//
//     number             clamp((number - shift) * scale, -limit, limit): the float32 numbers that an observation begins with
//     reward             clamp(reward * reward_scale, -limit, limit), each before it is added to the sum
//
// in float32, the bits of torch's sub, mul and clamp.
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

// shift, scale: float32 [numbers]; none: observations as they are. reward_scale: 0: rewards as they are.
struct ReplayScales {
  std::span<const float> shift, scale;
  float reward_scale = 0.0F;
  float limit = 0.0F;
};

// Every position must be less than rows.size(); n_step and stack at least 1, and the numbers of
// `scales` must fit into an observation.
void gather_batch(const ReplayRows& rows, std::span<const std::int64_t> positions, std::size_t n_step, double discount,
                  std::size_t stack, const ReplayScales& scales, const ReplayBatch& batch);

}  // namespace hive
