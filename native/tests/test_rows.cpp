// Episodes against a plain account of every environment's steps, over random rewards, flags and limits; store() of
// matrices that lie in memory in any way.
#include "hive/rows.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"

namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Arrays {
  explicit Arrays(std::size_t envs)
      : rewards(envs), episode_returns(envs, 7.0F), terminated(envs), truncated(envs), valid(envs, 7),
        episode_lengths(envs, 7), final_index(envs, 7) {}
  hive::Row row() {
    return {rewards, terminated, truncated, valid, episode_returns, episode_lengths, final_index};
  }
  std::vector<float> rewards, episode_returns;
  std::vector<std::uint8_t> terminated, truncated, valid;
  std::vector<std::int32_t> episode_lengths, final_index;
};

// One environment's open episode: its rewards, and whether the next step only resets.
struct Open {
  std::vector<float> rewards;
  bool resetting = false;
};

void check_row(const Arrays& before, const Arrays& after, std::vector<Open>& open, bool next_step, std::int64_t limit) {
  for (std::size_t b = 0; b < open.size(); ++b) {
    CHECK(after.final_index[b] == -1);
    CHECK(after.valid[b] == !open[b].resetting);
    if (open[b].resetting) {
      CHECK(after.rewards[b] == 0.0F && !after.terminated[b] && !after.truncated[b]);
      CHECK(after.episode_returns[b] == 0.0F && after.episode_lengths[b] == 0);
      open[b] = {};
      continue;
    }
    open[b].rewards.push_back(before.rewards[b]);
    const auto length = static_cast<std::int64_t>(open[b].rewards.size());
    const bool terminated = before.terminated[b] != 0;
    const bool cut = before.truncated[b] != 0 || (limit != 0 && length == limit);
    CHECK(after.rewards[b] == before.rewards[b]);
    CHECK(after.terminated[b] == terminated);
    CHECK(after.truncated[b] == (cut && !terminated));
    if (!terminated && !cut) {
      CHECK(after.episode_returns[b] == 0.0F && after.episode_lengths[b] == 0);
      continue;
    }
    double total = 0.0;
    for (const float reward : open[b].rewards) total += static_cast<double>(reward);
    CHECK(after.episode_returns[b] == static_cast<float>(total) && after.episode_lengths[b] == length);
    open[b] = {{}, next_step};
  }
}

void check_episodes(std::size_t envs, bool next_step, std::int64_t limit, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  hive::Episodes episodes(envs, next_step, limit);
  std::vector<Open> open(envs);
  CHECK(episodes.envs() == envs);
  for (int t = 0; t < 200; ++t) {
    if (t % 90 == 89) {
      episodes.reset();
      open.assign(envs, {});
    }
    Arrays before(envs);
    for (std::size_t b = 0; b < envs; ++b) {
      before.rewards[b] = normal(generator);
      before.terminated[b] = generator() % 9 == 0 ? 255 : 0;
      before.truncated[b] = generator() % 9 == 0;
    }
    if (envs > 0 && t % 7 == 3) {  // Refused, whatever else is in the row, and as if it had never been.
      Arrays bad = before;
      bad.rewards[generator() % envs] = t % 2 ? kNan : -kInfinite;
      const std::vector<std::uint8_t> terminated = bad.terminated;
      CHECK(episodes.finish(bad.row()) == -1);
      CHECK(bad.terminated == terminated && bad.valid == before.valid);
    }
    Arrays after = before;
    const std::ptrdiff_t ended = episodes.finish(after.row());
    check_row(before, after, open, next_step, limit);
    for (std::size_t b = 0; b < envs; ++b) CHECK(!(after.terminated[b] && after.truncated[b]));
    std::ptrdiff_t expected = 0;
    for (std::size_t b = 0; b < envs; ++b) expected += after.terminated[b] + after.truncated[b];
    CHECK(ended == expected);
  }
}

// A matrix of i + j / 8 whose elements lie `row_step` and `column_step` apart; between them only NaN.
template <typename T>
void check_store(std::size_t rows, std::size_t columns, std::ptrdiff_t row_step, std::ptrdiff_t column_step) {
  std::vector<T> memory(1000, std::numeric_limits<T>::quiet_NaN());
  T* const data = memory.data() + memory.size() / 2;
  const auto at = [&](std::size_t i, std::size_t j) -> T& {
    return data[static_cast<std::ptrdiff_t>(i) * row_step + static_cast<std::ptrdiff_t>(j) * column_step];
  };
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) at(i, j) = static_cast<T>(i) + static_cast<T>(j) / 8;
  }
  const hive::Matrix<T> matrix{data, rows, columns, row_step, column_step};
  std::vector<float> to(rows * columns);
  CHECK(hive::store(matrix, to.data()));
  for (std::size_t k = 0; k < to.size(); ++k) {
    CHECK(to[k] == static_cast<float>(k / columns) + static_cast<float>(k % columns) / 8);
  }
  for (std::size_t k = 0; k < to.size(); ++k) {
    for (const T bad : {static_cast<T>(kNan), static_cast<T>(kInfinite), static_cast<T>(-kInfinite)}) {
      const T good = at(k / columns, k % columns);
      at(k / columns, k % columns) = bad;
      CHECK(!hive::store(matrix, to.data()));
      at(k / columns, k % columns) = good;
    }
  }
}

}  // namespace

int main() {
  unsigned seed = 0;
  for (const std::size_t envs : {0, 1, 3, 64}) {
    for (const bool next_step : {false, true}) {
      for (const std::int64_t limit : {0, 1, 5}) check_episodes(envs, next_step, limit, ++seed);
    }
  }
  for (const std::size_t rows : {0, 1, 5}) {
    const auto tall = static_cast<std::ptrdiff_t>(rows);
    for (const std::size_t columns : {1, 4, 13}) {
      const auto wide = static_cast<std::ptrdiff_t>(columns);
      check_store<float>(rows, columns, wide, 1);
      check_store<double>(rows, columns, wide, 1);
      check_store<float>(rows, columns, 1, tall);        // Column after column.
      check_store<double>(rows, columns, 2 * wide, 2);   // Every other one.
      check_store<float>(rows, columns, -wide, 1);       // From last to first.
    }
  }
  // The largest and smallest numbers are finite; a float64 beyond float32 is not.
  const std::vector<float> extremes{std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(),
                                    std::numeric_limits<float>::denorm_min(), -0.0F};
  std::vector<float> to(extremes.size());
  CHECK(hive::store(hive::Matrix<float>{extremes.data(), 1, 4, 4, 1}, to.data()));
  CHECK(to == extremes && std::signbit(to[3]));
  const double beyond = 1e300;
  CHECK(!hive::store(hive::Matrix<double>{&beyond, 1, 1, 1, 1}, to.data()));
}
