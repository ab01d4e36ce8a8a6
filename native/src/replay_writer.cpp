#include "hive/replay_writer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "hive/priorities.hpp"

namespace hive {
namespace {

// A memory is described for its readers; the writer alone changes it.
template <typename T>
T* writable(const T* memory) {
  return const_cast<T*>(memory);
}

std::size_t less(std::size_t one, std::size_t other) { return one > other ? one - other : 0; }

}  // namespace

ReplayWriter::ReplayWriter(const ReplayRows& rows, PriorityTree& tree, ReplayKept kept, double alpha, float epsilon,
                           LedgerPlaces places)
    : rows_(rows), tree_(tree), kept_(kept), alpha_(alpha), epsilon_(epsilon), places_(places) {}

void ReplayWriter::admit(const StoredRollout& rollout, const Ledger& ledger, std::uint32_t leaf) {
  const auto first = static_cast<std::size_t>(ledger.written[rollout.source]);
  const std::size_t end = append(rollout, first);
  let_draw(rollout.source, first, end, leaf);
  if (alpha_ != 0.0 && rollout.errors) prioritize(rollout, end);
  ledger.written[rollout.source] = static_cast<std::int64_t>(end);
  ledger.rollouts[rollout.source] = rollout.sequence + 1;
  count(rollout, ledger);
}

void ReplayWriter::put(std::byte* ring, std::size_t width, std::size_t first, const std::byte* rows, std::size_t count) const {
  const std::size_t start = first % rows_.rows, left = std::min(count, rows_.rows - start);
  std::memcpy(ring + start * width, rows, left * width);
  std::memcpy(ring, rows + left * width, (count - left) * width);
}

// Writes the rows of a rollout, of whose collector `written` rows are in the memory; returns their new number.
std::size_t ReplayWriter::append(const StoredRollout& rollout, std::size_t written) const {
  const std::size_t columns = rows_.columns, ring = rollout.source * rows_.rows * columns;
  struct Array {
    std::byte* ring;
    const std::byte* from;
    std::size_t width;
  };
  const auto array = [&](auto* memory, const auto* from, std::size_t bytes) {
    return Array{reinterpret_cast<std::byte*>(writable(memory)) + ring * bytes, reinterpret_cast<const std::byte*>(from),
                 columns * bytes};
  };
  const Array steps[] = {array(rows_.actions, rollout.actions, rows_.action_bytes),
                         array(rows_.rewards, rollout.rewards, sizeof(float)),
                         array(rows_.terminated, rollout.terminated, 1), array(rows_.truncated, rollout.truncated, 1),
                         array(rows_.valid, rollout.valid, 1)};
  if (written > 0 && rollout.begins) {  // a seam
    for (const Array& each : steps) std::memset(each.ring + written % rows_.rows * each.width, 0, each.width);
    written += 1;
  }
  const Array seen = array(rows_.observations, rollout.observations, rows_.observation_bytes);
  put(seen.ring, seen.width, written, seen.from, rollout.length + 1);
  for (const Array& each : steps) put(each.ring, each.width, written, each.from, rollout.length);
  std::memset(steps[4].ring + (written + rollout.length) % rows_.rows * columns, 0, columns);  // its step is not known yet
  for (std::size_t at = 0; at < rollout.length * columns; ++at) {
    if (rollout.final_index[at] < 0) continue;
    const std::size_t to = position(rollout.source, written + at / columns) + at % columns;
    std::memcpy(writable(rows_.finals) + to * rows_.observation_bytes,
                rollout.finals + static_cast<std::size_t>(rollout.final_index[at]) * rows_.observation_bytes,
                rows_.observation_bytes);
  }
  return written + rollout.length;
}

// Lets the steps be drawn that rows `first` to `end` - 1 have completed, and as many of the oldest no more.
void ReplayWriter::let_draw(std::size_t source, std::size_t first, std::size_t end, std::uint32_t leaf) const {
  const std::size_t before = less(first + 1, kept_.n_step), now = less(end + 1, kept_.n_step);
  const std::size_t oldest = less(before, kept_.rows), begin = less(now, kept_.rows);
  fill(source, oldest, std::min(begin, before), 0);
  const std::size_t fresh = std::max(begin, before);  // not those of a long rollout that are too old already
  fill(source, fresh, now, leaf);
  for (std::size_t row = fresh; row < now; ++row) {
    const std::size_t at = position(source, row);
    for (std::size_t column = 0; column < rows_.columns; ++column) {
      if (rows_.valid[at + column] == 0) tree_.fill(at + column, 1, 0);
    }
  }
}

// Sets the leaves of rows `first` to `end` - 1 of a collector, at most a ring of them.
void ReplayWriter::fill(std::size_t source, std::size_t first, std::size_t end, std::uint32_t leaf) const {
  while (first < end) {
    const std::size_t count = std::min(end - first, rows_.rows - first % rows_.rows);
    tree_.fill(position(source, first), count * rows_.columns, leaf);
    first += count;
  }
}

// Sets the priorities of the steps of a rollout, whose rows end before `end`, that can be drawn and whose errors are
// finite. The others get the first priority when the rows after them are written, though an end may make their errors
// known before.
void ReplayWriter::prioritize(const StoredRollout& rollout, std::size_t end) const {
  const std::size_t now = less(end + 1, kept_.n_step), first = end - rollout.length, columns = rows_.columns;
  std::vector<std::int64_t> positions;
  std::vector<float> priorities;
  for (std::size_t row = std::max(first, less(now, kept_.rows)); row < now; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const float error = rollout.errors[(row - first) * columns + column];
      if (!std::isfinite(error)) continue;
      positions.push_back(static_cast<std::int64_t>(position(rollout.source, row) + column));
      priorities.push_back(error + epsilon_);
    }
  }
  std::vector<std::uint32_t> leaves(positions.size());
  priority_leaves(priorities, alpha_, leaves);
  tree_.write(positions, leaves);
}

void ReplayWriter::count(const StoredRollout& rollout, const Ledger& ledger) const {
  const std::size_t steps = rollout.length * rows_.columns;
  std::int64_t& episodes = ledger.counters[places_.episodes];
  ledger.counters[places_.rollouts] += 1;
  for (std::size_t at = 0; at < steps; ++at) {
    ledger.counters[places_.env_steps] += rollout.valid[at] != 0;
    if (rollout.episode_lengths[at] <= 0) continue;
    const std::size_t place = static_cast<std::size_t>(episodes++) % ledger.kept;
    ledger.returns[place] = rollout.episode_returns[at];
    if (ledger.info_count == 0) continue;
    std::copy_n(rollout.infos + at * ledger.info_count, ledger.info_count, ledger.infos + place * ledger.info_count);
  }
}

}  // namespace hive
