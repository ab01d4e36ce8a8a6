#include "hive/priority_tree.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "hive/simd.hpp"

namespace hive {
namespace {

constexpr std::size_t kRow = 16;       // leaves of one sum: a cache line of uint32
constexpr std::size_t kFan = 8;        // sums of one sum of the next level: a cache line of uint64
constexpr std::size_t kAhead = 16;     // writes between the prefetch of a leaf and its use
constexpr std::size_t kTogether = 32;  // draws that descend level by level, so that their cache misses overlap

constexpr std::size_t divided(std::size_t count, std::size_t by) { return (count + by - 1) / by; }
constexpr std::size_t padded(std::size_t count) { return divided(count, kFan) * kFan; }

// Sums rows of `Width` elements, of which the last row may have fewer.
template <std::size_t Width, typename T>
[[gnu::always_inline]] inline void sum_rows(const T* __restrict from, std::size_t size, std::uint64_t* __restrict to,
                                            std::size_t first, std::size_t end) {
  const std::size_t whole = std::min(end, size / Width);
  for (std::size_t row = first; row < whole; ++row) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < Width; ++i) sum += from[row * Width + i];
    to[row] = sum;
  }
  if (end == whole) return;
  std::uint64_t sum = 0;
  for (std::size_t i = whole * Width; i < size; ++i) sum += from[i];
  to[whole] = sum;
}

HIVE_SIMD void sum_leaves(const std::uint32_t* from, std::size_t size, std::uint64_t* to, std::size_t first,
                          std::size_t end) {
  sum_rows<kRow>(from, size, to, first, end);
}

HIVE_SIMD void sum_sums(const std::uint64_t* from, std::size_t size, std::uint64_t* to, std::size_t first,
                        std::size_t end) {
  sum_rows<kFan>(from, size, to, first, end);
}

// Returns the element of `row` that contains the point `rest`, and subtracts the elements before it. Without branches,
// which no processor could predict. At most `width - 1`, even if the point is beyond the sum.
template <typename T>
[[gnu::always_inline]] inline std::size_t find(const T* row, std::size_t width, std::uint64_t& rest) {
  std::size_t found = 0;
  std::uint64_t sum = 0, before = 0;
  for (std::size_t i = 0; i + 1 < width; ++i) {
    sum += row[i];
    const bool passed = rest >= sum;
    found += passed;
    before = passed ? sum : before;
  }
  rest -= before;
  return found;
}

}  // namespace

PriorityTree::PriorityTree(std::span<std::uint32_t> leaves) : leaves_(leaves) {
  if (leaves.empty() || leaves.size() > kMostLeaves) {
    throw std::invalid_argument("leaves must have 1 to 2^32 elements, got " + std::to_string(leaves.size()));
  }
  std::array<std::size_t, kMostLevels> begins{};
  std::size_t size = divided(leaves.size(), kRow);
  for (;; size = divided(size, kFan)) {
    levels_[depth_].size = size;
    begins[depth_++] = words_;
    words_ += padded(size);
    if (size == 1) break;
  }
  memory_.reset(new (std::align_val_t{kAlignment}) std::uint64_t[words_]());
  for (std::size_t k = 0; k < depth_; ++k) levels_[k].sums = memory_.get() + begins[k];
  rebuild();
}

void PriorityTree::rebuild() noexcept { refresh(0, levels_[0].size); }

// Computes the sums of these rows of leaves, and all sums of which those are part.
void PriorityTree::refresh(std::size_t first_row, std::size_t end_row) noexcept {
  sum_leaves(leaves_.data(), leaves_.size(), levels_[0].sums, first_row, end_row);
  for (std::size_t k = 1; k < depth_; ++k) {
    first_row /= kFan;
    end_row = divided(end_row, kFan);
    sum_sums(levels_[k - 1].sums, levels_[k - 1].size, levels_[k].sums, first_row, end_row);
  }
}

std::ptrdiff_t PriorityTree::first_outside(std::span<const std::int64_t> positions) const noexcept {
  const std::uint64_t size = leaves_.size();
  const auto outside = [size](std::int64_t position) { return static_cast<std::uint64_t>(position) >= size; };
  const auto found = std::find_if(positions.begin(), positions.end(), outside);
  return found == positions.end() ? -1 : found - positions.begin();
}

void PriorityTree::write(std::span<const std::int64_t> positions, std::span<const std::uint32_t> values) noexcept {
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (i + kAhead < positions.size()) {
      const auto later = static_cast<std::size_t>(positions[i + kAhead]);
      __builtin_prefetch(&leaves_[later], 1);
      __builtin_prefetch(&levels_[0].sums[later / kRow], 1);
    }
    const auto position = static_cast<std::size_t>(positions[i]);
    const std::uint64_t change = std::uint64_t{values[i]} - leaves_[position];  // modulo 2^64
    leaves_[position] = values[i];
    std::size_t node = position / kRow;
    for (std::size_t k = 0; k < depth_; ++k, node /= kFan) levels_[k].sums[node] += change;
  }
}

void PriorityTree::fill(std::size_t first, std::size_t count, std::uint32_t value) noexcept {
  if (count == 0) return;
  std::fill_n(leaves_.begin() + static_cast<std::ptrdiff_t>(first), count, value);
  refresh(first / kRow, divided(first + count, kRow));
}

bool PriorityTree::draw(std::span<const std::uint64_t> words, std::span<std::int64_t> positions,
                        std::span<std::uint32_t> leaves) const noexcept {
  Strata strata(total(), words.size());
  bool consistent = true;
  for (std::size_t first = 0; first < words.size(); first += kTogether) {
    const std::size_t count = std::min(kTogether, words.size() - first);
    std::array<std::uint64_t, kTogether> rest;
    std::array<std::size_t, kTogether> node{};
    for (std::size_t j = 0; j < count; ++j) rest[j] = strata.next(words[first + j]);
    for (std::size_t k = depth_ - 1; k-- > 0;) {
      const Level& level = levels_[k];
      for (std::size_t j = 0; j < count; ++j) {
        const std::size_t found = kFan * node[j] + find(level.sums + kFan * node[j], kFan, rest[j]);
        node[j] = std::min(found, level.size - 1);
        if (k > 0) {
          __builtin_prefetch(levels_[k - 1].sums + kFan * node[j]);
        } else {
          __builtin_prefetch(leaves_.data() + kRow * node[j]);
        }
      }
    }
    for (std::size_t j = 0; j < count; ++j) {
      const std::size_t begin = kRow * node[j], left = leaves_.size() - begin;
      const std::uint32_t* const row = leaves_.data() + begin;
      const std::size_t found = left >= kRow ? find(row, kRow, rest[j]) : find(row, left, rest[j]);
      positions[first + j] = static_cast<std::int64_t>(begin + found);
      leaves[first + j] = row[found];
      consistent &= rest[j] < row[found];
    }
  }
  return consistent;
}

}  // namespace hive
