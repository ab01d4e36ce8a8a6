// The numbers of rows that are not zero, where these are few: what one-hot rows select of a matrix.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace hive {

class Selected {
 public:
  struct Entry {
    std::uint32_t place;  // of its column: among all, or with `find(.., true)` among `columns()`
    float value;
  };

  // Whether the last `find` found few.
  bool few() const { return few_; }
  // The columns that have entries, in order, if `find` was asked for them.
  std::span<const std::uint32_t> columns() const { return columns_; }
  std::span<const Entry> row(std::size_t number) const {
    return std::span(entries_).subspan(starts_[number], starts_[number + 1] - starts_[number]);
  }
  // Those of them in the places [begin, end).
  std::span<const Entry> row(std::size_t number, std::size_t begin, std::size_t end) const {
    const auto all = row(number);
    const auto before = [](const Entry& entry, std::size_t place) { return entry.place < place; };
    return {std::lower_bound(all.begin(), all.end(), begin, before), std::lower_bound(all.begin(), all.end(), end, before)};
  }

  // Finds the numbers of `rows` [count, width] that are not zero, unless they are too many. compact: number their columns.
  void find(const float* rows, std::size_t count, std::size_t width, bool compact) {
    entries_.clear();
    columns_.clear();
    starts_.assign(1, 0);
    few_ = width >= kShare && count > 0;
    for (std::size_t row = 0; few_ && row < count; ++row, rows += width) {
      add(rows, width);
      few_ = entries_.size() * kShare <= (row + 1) * width;
      starts_.push_back(entries_.size());
    }
    if (few_ && compact) number(width);
  }

 private:
  // Looking up one number takes as long as this many products, which a pass makes in vectors. So few are worth it.
  static constexpr std::size_t kShare = 8;
  static constexpr std::size_t kStep = 16;  // numbers that are compared with zero at once

  void add(const float* row, std::size_t width) {
    std::size_t at = 0;
    for (; at + kStep <= width; at += kStep) {
      std::uint32_t bits[kStep], any = 0;
      std::memcpy(bits, row + at, sizeof(bits));
      for (const std::uint32_t each : bits) any |= each;
      if (any != 0) add_some(row, at, at + kStep);
    }
    add_some(row, at, width);
  }

  void add_some(const float* row, std::size_t first, std::size_t end) {
    for (std::size_t at = first; at < end; ++at) {
      if (!(row[at] == 0.0F)) entries_.push_back({static_cast<std::uint32_t>(at), row[at]});
    }
  }

  void number(std::size_t width) {
    places_.assign(width, 0);
    for (const Entry& entry : entries_) places_[entry.place] = 1;
    for (std::uint32_t column = 0; column < width; ++column) {
      if (places_[column] == 0) continue;
      places_[column] = static_cast<std::uint32_t>(columns_.size());
      columns_.push_back(column);
    }
    for (Entry& entry : entries_) entry.place = places_[entry.place];
  }

  bool few_ = false;
  std::vector<Entry> entries_;
  std::vector<std::size_t> starts_;
  std::vector<std::uint32_t> columns_, places_;
};

}  // namespace hive
