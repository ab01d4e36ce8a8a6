#include "hive/rows.hpp"

#include <algorithm>
#include <limits>

#include "hive/finite.hpp"

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

}  // namespace

Episodes::Episodes(std::size_t envs, bool resets_in_next_step, std::int64_t limit)
    : returns_(envs),
      lengths_(envs),
      resetting_(envs),
      resets_in_next_step_(resets_in_next_step),
      limit_(limit > 0 ? limit : std::numeric_limits<std::int64_t>::max()) {}

void Episodes::reset() {
  std::fill(returns_.begin(), returns_.end(), 0.0);
  std::fill(lengths_.begin(), lengths_.end(), 0);
  std::fill(resetting_.begin(), resetting_.end(), std::uint8_t{0});
}

std::ptrdiff_t Episodes::finish(const Row& row) {
  std::uint32_t bad = 0;
  for (const float reward : row.rewards) bad |= not_finite(reward);
  if (bad) return -1;
  std::ptrdiff_t ended = 0;
  for (std::size_t b = 0; b < envs(); ++b) {
    const bool valid = !resetting_[b];
    const std::int32_t length = lengths_[b] + valid;
    const bool terminated = valid && row.terminated[b];
    const bool truncated = valid && !terminated && (row.truncated[b] || length >= limit_);
    const bool ends = terminated || truncated;
    const float reward = valid ? row.rewards[b] : 0.0F;
    const double total = returns_[b] + static_cast<double>(reward);
    row.rewards[b] = reward;
    row.terminated[b] = terminated;
    row.truncated[b] = truncated;
    row.valid[b] = valid;
    row.episode_returns[b] = ends ? static_cast<float>(total) : 0.0F;
    row.episode_lengths[b] = ends ? length : 0;
    row.final_index[b] = -1;
    returns_[b] = ends ? 0.0 : total;
    lengths_[b] = ends ? 0 : length;
    resetting_[b] = ends && resets_in_next_step_;
    ended += ends;
  }
  return ended;
}

bool store(const Matrix<float>& from, float* to) { return store_matrix(from, to); }
bool store(const Matrix<double>& from, float* to) { return store_matrix(from, to); }

}  // namespace hive
