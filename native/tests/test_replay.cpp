// gather_batch() against a walk over the rows, one observation at a time.
#include "hive/replay.hpp"

#include <cmath>
#include <random>
#include <vector>

#include "check.hpp"

namespace {

constexpr std::size_t kSources = 2;
constexpr std::size_t kRows = 7;
constexpr std::size_t kColumns = 3;
constexpr std::size_t kSize = kSources * kRows * kColumns;
constexpr double kDiscount = 0.9;

// Observations and actions are one byte: observation p is p, the final one of p is 100 + p, the action 200 - p.
struct Data {
  explicit Data(unsigned seed) {
    std::mt19937 generator(seed);
    for (std::size_t p = 0; p < kSize; ++p) {
      observations.push_back(static_cast<std::byte>(p));
      finals.push_back(static_cast<std::byte>(100 + p));
      actions.push_back(static_cast<std::byte>(200 - p));
      rewards.push_back(static_cast<float>(generator() % 9));
      terminated.push_back(generator() % 6 == 0);
      truncated.push_back(!terminated.back() && generator() % 6 == 0);
      valid.push_back(generator() % 5 != 0);
    }
    rows = {kSources, kRows, kColumns, 1, 1, observations.data(), finals.data(), actions.data(), rewards.data(),
            terminated.data(), truncated.data(), valid.data()};
  }
  std::vector<std::byte> observations, finals, actions;
  std::vector<float> rewards;
  std::vector<std::uint8_t> terminated, truncated, valid;
  hive::ReplayRows rows;
};

std::size_t moved(std::size_t p, std::size_t rows) {
  const std::size_t source = p / (kRows * kColumns);
  const std::size_t row = (p / kColumns + rows) % kRows;
  return (source * kRows + row) * kColumns + p % kColumns;
}

bool begins(const Data& data, std::size_t p) {
  const std::size_t last = moved(p, kRows - 1);
  return data.terminated[last] || data.truncated[last] || !data.valid[last];
}

// The observations of p and of those before it in its episode, newest first, at most `count`; then zeros.
std::vector<int> newest_first(const Data& data, std::size_t p, std::size_t count) {
  std::vector<int> found;
  for (bool first = false; found.size() < count;) {
    found.push_back(first ? 0 : static_cast<int>(data.observations[p]));
    first = first || begins(data, p);
    p = moved(p, kRows - 1);
  }
  return found;
}

void check_transition(const Data& data, std::size_t p, std::size_t n_step, std::size_t stack) {
  std::vector<std::byte> first(stack, std::byte{77}), next(stack, std::byte{77}), action(1);
  float total = 0;
  float factor = 0;
  const std::vector<std::int64_t> positions{static_cast<std::int64_t>(p)};
  hive::gather_batch(data.rows, positions, n_step, kDiscount, stack, {},
                     {first.data(), next.data(), action.data(), &total, &factor});
  double sum = 0;
  std::size_t last = p;
  std::size_t steps = 0;
  for (;; last = moved(last, 1)) {
    sum += std::pow(kDiscount, static_cast<double>(steps++)) * data.rewards[last];
    if (data.terminated[last] || data.truncated[last] || steps == n_step || !data.valid[moved(last, 1)]) break;
  }
  CHECK(std::abs(total - sum) < 1e-5);
  CHECK(std::abs(factor - (data.terminated[last] ? 0.0 : std::pow(kDiscount, static_cast<double>(steps)))) < 1e-6);
  CHECK(action[0] == data.actions[p]);
  std::vector<int> expected = newest_first(data, p, stack);
  for (std::size_t i = 0; i < stack; ++i) CHECK(static_cast<int>(first[stack - 1 - i]) == expected[i]);
  expected = newest_first(data, last, stack);
  const std::size_t following = data.terminated[last] ? last : moved(last, 1);
  CHECK(next[stack - 1] == (data.truncated[last] ? data.finals[last] : data.observations[following]));
  for (std::size_t i = 1; i < stack; ++i) CHECK(static_cast<int>(next[stack - 1 - i]) == expected[i - 1]);
}

}  // namespace

int main() {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const Data data(seed);
    for (std::size_t p = 0; p < kSize; ++p) {
      for (std::size_t n = 1; n <= 4; ++n) {
        for (std::size_t stack = 1; stack <= 3; ++stack) check_transition(data, p, n, stack);
      }
    }
  }
  return 0;
}
