// A sum tree over the priorities of a replay memory, in integers (prioritized replay: Schaul et al. 2016).
//
//     leaves    uint32 [N], in the caller's memory; a leaf of 0 is never drawn
//     level 0   uint64, one sum for each row of 16 leaves
//     level 1   uint64, one sum for each 8 sums of level 0
//     ..        until a level has one sum, the total
//
// Rows of leaves and groups of 8 sums are cache lines, if the leaves begin at a multiple of 64 bytes. Integers make the
// sums exact in every order of writes: a tree that is rebuilt from its leaves has the same bytes as one that was
// written to. So the leaves are the whole state. N is at most 2^32; then no sum overflows, because 2^32 leaves of
// 2^32 - 1 have the sum 2^64 - 2^32.
//
// Every write is `leaf := value`, so repeating writes changes nothing. If a process is killed within a call, a tree
// over the same leaves that repeats the call is as if the first call had completed.
//
// One thread at a time may use a tree. If others change the leaves, the tree is wrong until rebuild(): draws then
// return wrong leaves or false, but never read or write outside of the arrays.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

namespace hive {

// Maps the k-th of n words to the k-th of n equal parts of [0, total), for k = 0, 1, .., n - 1:
//     point = floor((k total + floor(word total / 2^64)) / n)
// A part may begin within a unit and may be smaller than one. Over all n words each unit of [0, total) is hit n / total
// times in expectation, up to the granularity of 2^64 words, and every point is below the total.
// Both arguments are at least 1, and total + n at most 2^64.
class Strata {
 public:
  Strata(std::uint64_t total, std::uint64_t n) noexcept
      : total_(total), n_(n), quotient_(total / n), remainder_(total % n) {}

  std::uint64_t next(std::uint64_t word) noexcept {
    const auto inside = static_cast<std::uint64_t>(static_cast<Wide>(word) * total_ >> 64);
    const std::uint64_t point = begin_ + (carry_ + inside) / n_;
    begin_ += quotient_;
    carry_ += remainder_;
    const bool whole = carry_ >= n_;
    begin_ += whole;
    carry_ -= whole ? n_ : 0;
    return point;
  }

 private:
  __extension__ using Wide = unsigned __int128;

  std::uint64_t total_, n_, quotient_, remainder_;
  std::uint64_t begin_ = 0, carry_ = 0;  // k total = begin n + carry
};

class PriorityTree {
 public:
  static constexpr std::uint64_t kMostLeaves = std::uint64_t{1} << 32;
  static constexpr std::uint64_t kMostDraws = std::uint64_t{1} << 32;  // of one call, see Strata

  // Attaches to the leaves, which outlive the tree, and builds the sums. Throws std::invalid_argument for no leaves and
  // for more than kMostLeaves.
  explicit PriorityTree(std::span<std::uint32_t> leaves);

  std::span<const std::uint32_t> leaves() const noexcept { return leaves_; }
  // All levels, the lowest first. Each is padded with zeros to a multiple of 8 sums.
  std::span<const std::uint64_t> sums() const noexcept { return {memory_.get(), words_}; }
  std::uint64_t total() const noexcept { return *levels_[depth_ - 1].sums; }

  // Computes all sums from the leaves.
  void rebuild() noexcept;

  // Returns the first index whose position is not in [0, N), or -1.
  std::ptrdiff_t first_outside(std::span<const std::int64_t> positions) const noexcept;

  // Sets leaves[positions[i]] = values[i] in order, so that of equal positions the last one counts. The spans have the
  // same size and all positions are in [0, N).
  void write(std::span<const std::int64_t> positions, std::span<const std::uint32_t> values) noexcept;

  // Sets leaves[first .. first + count) = value, without a search of the tree for each. first + count <= N.
  void fill(std::size_t first, std::size_t count, std::uint32_t value) noexcept;

  // Draws one leaf for each word, by its point in Strata: leaf i has the points [leaves before i, leaves up to i).
  // Writes positions, which ascend, and leaves. The spans have the same size, at most kMostDraws, and the total is not
  // 0. Returns false, with undefined outputs, if it found that the leaves do not fit the sums.
  [[nodiscard]] bool draw(std::span<const std::uint64_t> words, std::span<std::int64_t> positions,
                          std::span<std::uint32_t> leaves) const noexcept;

 private:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kMostLevels = 11;  // of 2^32 leaves
  struct Free {
    void operator()(std::uint64_t* words) const noexcept { ::operator delete[](words, std::align_val_t{kAlignment}); }
  };
  struct Level {
    std::uint64_t* sums;
    std::size_t size;
  };

  void refresh(std::size_t first_row, std::size_t end_row) noexcept;

  std::span<std::uint32_t> leaves_;
  std::size_t words_ = 0;
  std::unique_ptr<std::uint64_t[], Free> memory_;
  std::array<Level, kMostLevels> levels_{};
  std::size_t depth_ = 0;
};

}  // namespace hive
