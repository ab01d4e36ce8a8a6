// Strata against 128-bit arithmetic at totals that no test can build from leaves; trees against plain sums, with totals
// beyond the integers of a double; and leaves of priorities by their hash, which is also in tests/experience/
// test_priorities.py: programs without SIMD and modules with it must agree.
#include "hive/priority_tree.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "check.hpp"
#include "hive/priorities.hpp"

namespace {

__extension__ using Wide = unsigned __int128;
constexpr std::uint64_t kMostTotal = 0 - (std::uint64_t{1} << 32);  // 2^32 leaves of 2^32 - 1: 2^64 - 2^32
constexpr std::uint32_t kMostLeaf = ~std::uint32_t{0};

// SplitMix64 (Steele et al. 2014), which compiles faster than <random>.
struct Generator {
  std::uint64_t state = 1;
  std::uint64_t operator()() {
    std::uint64_t z = state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }
};

void check_strata(std::uint64_t total, std::uint64_t n, Generator& generator) {
  hive::Strata strata(total, n);
  for (std::uint64_t k = 0; k < std::min<std::uint64_t>(n, 2000); ++k) {
    const std::uint64_t word = k % 3 == 0 ? ~std::uint64_t{0} : k % 3 == 1 ? 0 : generator();
    const std::uint64_t point = strata.next(word);
    CHECK(point == static_cast<std::uint64_t>((Wide{k} * total + (Wide{word} * total >> 64)) / n));
    CHECK(point < total);
    CHECK(Wide{point} * n <= Wide{k + 1} * total && (Wide{point} + 1) * n > Wide{k} * total);
  }
}

void check_tree(std::size_t size, Generator& generator) {
  std::vector<std::uint32_t> leaves(size);
  hive::PriorityTree tree(leaves);
  CHECK(tree.total() == 0);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::int64_t> positions(generator() % 40);
    std::vector<std::uint32_t> values(positions.size());
    for (auto& position : positions) position = static_cast<std::int64_t>(generator() % size);
    for (auto& value : values) value = generator() % 3 ? static_cast<std::uint32_t>(generator()) : 0;
    tree.write(positions, values);
    const std::size_t first = generator() % size;
    tree.fill(first, generator() % (size - first + 1), generator() % 2 ? kMostLeaf : 0);
    std::vector<std::uint32_t> copy = leaves;
    const hive::PriorityTree rebuilt(copy);
    CHECK(std::equal(tree.sums().begin(), tree.sums().end(), rebuilt.sums().begin(), rebuilt.sums().end()));
  }
}

// 2^22 leaves of 2^32 - 1 have a sum near 2^54. The point x lies in leaf x / (2^32 - 1).
void check_large_total() {
  constexpr std::size_t size = std::size_t{1} << 22, n = 1000;
  std::vector<std::uint32_t> leaves(size, kMostLeaf);
  const hive::PriorityTree tree(leaves);
  CHECK(tree.total() == std::uint64_t{size} * kMostLeaf);
  for (const std::uint64_t word : {std::uint64_t{0}, ~std::uint64_t{0}}) {
    const std::vector<std::uint64_t> words(n, word);
    std::vector<std::int64_t> positions(n);
    std::vector<std::uint32_t> drawn(n);
    CHECK(tree.draw(words, positions, drawn));
    hive::Strata strata(tree.total(), n);
    for (std::size_t k = 0; k < n; ++k) {
      CHECK(positions[k] == static_cast<std::int64_t>(strata.next(word) / kMostLeaf) && drawn[k] == kMostLeaf);
    }
  }
}

void check_leaves() {
  std::vector<float> priorities(200000);
  for (std::size_t i = 0; i < priorities.size(); ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(i) * 10007U;  // from 0 to 4e33
    std::memcpy(&priorities[i], &bits, sizeof bits);
  }
  std::vector<std::uint32_t> leaves(priorities.size());
  CHECK(hive::first_bad_priority(priorities) == -1);
  std::uint64_t hash = 0;
  for (const double alpha : {0.0, 0.4, 0.6, 1.0}) {
    hash = hash * 1000003 + hive::priority_leaves(priorities, alpha, leaves);
    for (const std::uint32_t leaf : leaves) hash = hash * 1000003 + leaf;
  }
  CHECK(hash == 18165434562237067309U);
}

}  // namespace

int main() {
  Generator generator;
  for (const std::uint64_t total : {std::uint64_t{1}, std::uint64_t{7}, (std::uint64_t{1} << 52) + 1, kMostTotal}) {
    for (const std::uint64_t n : {1, 2, 3, 8, 512, 1999}) check_strata(total, n, generator);
    check_strata(total, hive::PriorityTree::kMostDraws, generator);
  }
  for (const std::size_t size : {1, 7, 8, 9, 15, 16, 17, 64, 65, 128, 129, 1025}) check_tree(size, generator);
  check_large_total();
  check_leaves();
}
