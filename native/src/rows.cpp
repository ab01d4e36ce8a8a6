#include "hive/rows.hpp"

#include <algorithm>
#include <limits>

#include "hive/finite.hpp"
#include "hive/simd.hpp"

namespace hive {
namespace {

template <typename T>
bool store_matrix(const Matrix<T>& from, float* to) {
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < from.rows; ++i, to += from.columns) {
    const T* row = from.data + static_cast<std::ptrdiff_t>(i) * from.row_step;
    if (from.column_step == 1) {
      for (std::size_t j = 0; j < from.columns; ++j) {
        to[j] = static_cast<float>(row[j]);
        bad |= not_finite(to[j]);
      }
    } else {
      for (std::size_t j = 0; j < from.columns; ++j) {
        to[j] = static_cast<float>(row[static_cast<std::ptrdiff_t>(j) * from.column_step]);
        bad |= not_finite(to[j]);
      }
    }
  }
  return !bad;
}

// What every step of an episode adds to it, before the ends are handled. Few types per loop, so that each vectorises.
HIVE_SIMD void count_step(const Row& row, double* returns, std::int32_t* lengths) {
  const std::size_t envs = row.rewards.size();
  const float* const rewards = row.rewards.data();
  HIVE_INDEPENDENT
  for (std::size_t b = 0; b < envs; ++b) returns[b] += static_cast<double>(rewards[b]);
  HIVE_INDEPENDENT
  for (std::size_t b = 0; b < envs; ++b) lengths[b] += 1;
}

// Makes both flags 0 or 1, never both, and truncates episodes of `limit` steps.
HIVE_SIMD void set_flags(const Row& row, const std::int32_t* lengths, std::int32_t limit) {
  const std::size_t envs = row.rewards.size();
  std::uint8_t *const terminated = row.terminated.data(), *const truncated = row.truncated.data();
  HIVE_INDEPENDENT
  for (std::size_t b = 0; b < envs; ++b) {
    const std::uint8_t cut = lengths[b] >= limit;
    truncated[b] = cut | (truncated[b] != 0);
  }
  HIVE_INDEPENDENT
  for (std::size_t b = 0; b < envs; ++b) {
    const std::uint8_t ends = terminated[b] != 0;
    terminated[b] = ends;
    truncated[b] = truncated[b] & (ends ^ 1);
  }
}

}  // namespace

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int32_t>::max();

Episodes::Episodes(std::size_t envs, bool resets_in_next_step, std::int64_t limit)
    : returns_(envs),
      lengths_(envs),
      resetting_(envs),
      resets_in_next_step_(resets_in_next_step),
      limit_(static_cast<std::int32_t>(limit > 0 ? std::min(limit, kUnlimited) : kUnlimited)) {}

void Episodes::reset() {
  std::fill(returns_.begin(), returns_.end(), 0.0);
  std::fill(lengths_.begin(), lengths_.end(), 0);
  std::fill(resetting_.begin(), resetting_.end(), std::uint8_t{0});
}

std::ptrdiff_t Episodes::finish(const Row& row) {
  std::uint32_t bad = 0;
  for (const float reward : row.rewards) bad |= not_finite(reward);
  if (bad) return -1;
  if (resets_in_next_step_) {
    for (std::size_t b = 0; b < envs(); ++b) {
      if (!resetting_[b]) continue;
      row.rewards[b] = 0.0F;
      row.terminated[b] = row.truncated[b] = 0;
      lengths_[b] = -1;  // this step is not counted
    }
  }
  count_step(row, returns_.data(), lengths_.data());
  set_flags(row, lengths_.data(), limit_);
  std::fill(row.valid.begin(), row.valid.end(), std::uint8_t{1});
  std::fill(row.episode_returns.begin(), row.episode_returns.end(), 0.0F);
  std::fill(row.episode_lengths.begin(), row.episode_lengths.end(), 0);
  std::fill(row.final_index.begin(), row.final_index.end(), -1);
  std::ptrdiff_t ended = 0;
  for (std::size_t b = 0; b < envs(); ++b) {
    if (resets_in_next_step_) {
      row.valid[b] = !resetting_[b];
      resetting_[b] = row.terminated[b] | row.truncated[b];
    }
    if (!(row.terminated[b] | row.truncated[b])) continue;
    row.episode_returns[b] = static_cast<float>(returns_[b]);
    row.episode_lengths[b] = lengths_[b];
    returns_[b] = 0.0;
    lengths_[b] = 0;
    ++ended;
  }
  return ended;
}

bool store(const Matrix<float>& from, float* to) { return store_matrix(from, to); }
bool store(const Matrix<double>& from, float* to) { return store_matrix(from, to); }

}  // namespace hive
