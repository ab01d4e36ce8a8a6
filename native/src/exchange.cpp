#include "hive/exchange.hpp"

#include <algorithm>
#include <cstring>

#include "hive/clock.hpp"

namespace hive {
namespace {

constexpr int kConsumed = 0;  // reason to retire a slot (hive.runtime.memory.segments.REASONS)
constexpr int kRecorder = 0;  // the reader of the ledger that pins what it writes to a checkpoint

// Positions in the header of a rollout (hive.experience.rollouts.HEADER).
enum Header : std::size_t { kVersion, kLength, kFinals, kSource, kSequence, kBegins };

template <typename T>
const T* at(const std::byte* block, std::size_t offset) {
  return reinterpret_cast<const T*>(block + offset);
}

template <typename T>
T* at(std::byte* block, std::size_t offset) {
  return reinterpret_cast<T*>(block + offset);
}

}  // namespace

Exchange::Result Exchange::next(const std::byte* weights, std::int64_t version, std::int64_t updates, std::uint32_t leaf,
                                std::uint64_t until_ns) {
  publish(weights, version);
  const std::int64_t admitted = memory_.ledger->latest();
  const std::int64_t sequence = admitted / static_cast<std::int64_t>(memory_.lines.size());
  enter(*memory_.page, memory_.wait_phase);
  const bool came = await(sequence, until_ns);
  enter(*memory_.page, memory_.runtime);
  if (!came) return Result::late;
  if (memory_.ledger->pins(kRecorder)) return Result::saving;
  for (const RolloutLine& line : memory_.lines) {
    const StoredRollout rollout = rollout_of(line.slots.at(full_slot(line, sequence)));
    if (!memory_.writer->fits(rollout.length)) return Result::refused;
  }
  enter(*memory_.page, memory_.replay_phase);
  std::vector<int> slots;
  for (const RolloutLine& line : memory_.lines) {
    const int slot = line.slab->claim(memory_.learner, sequence);
    if (slot < 0) return Result::late;  // the run ends: its slots are drained
    slots.push_back(slot);
  }
  const std::byte* const before = ledger();
  const int block = memory_.ledger->begin();
  std::byte* const after = memory_.ledger_blocks.at(block);
  std::memcpy(after, before, memory_.fields.bytes);
  const LedgerBlock& fields = memory_.fields;
  const Ledger views{at<std::int64_t>(after, fields.counters), at<std::int64_t>(after, fields.written),
                     at<std::int64_t>(after, fields.rollouts), at<float>(after, fields.returns),
                     at<float>(after, fields.infos), fields.kept, fields.info_count};
  for (std::size_t each = 0; each < slots.size(); ++each) {
    memory_.writer->admit(rollout_of(memory_.lines[each].slots.at(slots[each])), views, leaf);
  }
  ended_episodes_ = counters(before)[memory_.counts.episodes] != counters(after)[memory_.counts.episodes];
  if (ended_episodes_) {
    ended_ = EndedEpisodes{{}, {}, {}, {}, updates, counters(after)[memory_.counts.env_steps]};
    for (std::size_t each = 0; each < slots.size(); ++each) list_ended(rollout_of(memory_.lines[each].slots.at(slots[each])));
  }
  const std::int64_t now = admitted + static_cast<std::int64_t>(slots.size());
  memory_.ledger->seal(block, now);
  memory_.ledger->publish(now);
  for (std::size_t each = 0; each < slots.size(); ++each) {
    memory_.lines[each].slab->retire(slots[each], memory_.learner, kConsumed);
    notify_all(*memory_.lines[each].page);  // after the slot is free: the collector may be waiting for it
  }
  enter(*memory_.page, memory_.runtime);
  return Result::admitted;
}

void Exchange::list_ended(const StoredRollout& rollout) {
  const std::size_t columns = memory_.writer->columns(), infos = memory_.fields.info_count;
  for (std::size_t at = 0; at < rollout.length * columns; ++at) {
    if (rollout.episode_lengths[at] <= 0) continue;
    ended_->returns.push_back(rollout.episode_returns[at]);
    ended_->lengths.push_back(rollout.episode_lengths[at]);
    ended_->columns.push_back(static_cast<std::int32_t>(rollout.source * columns + at % columns));
    ended_->infos.insert(ended_->infos.end(), rollout.infos + at * infos, rollout.infos + (at + 1) * infos);
  }
}

void Exchange::publish(const std::byte* weights, std::int64_t version) const {
  if (version <= memory_.behaviour->latest()) return;
  const int block = memory_.behaviour->begin();
  std::memcpy(memory_.behaviour_blocks.at(block), weights, memory_.behaviour_bytes);
  memory_.behaviour->seal(block, version);
  memory_.behaviour->publish(version);
  for (const RolloutLine& line : memory_.lines) notify_all(*line.page);
}

// Waits until every collector has committed the rollout of this number.
bool Exchange::await(std::int64_t sequence, std::uint64_t until_ns) const {
  const auto complete = [&] {
    return std::all_of(memory_.lines.begin(), memory_.lines.end(),
                       [&](const RolloutLine& line) { return full_slot(line, sequence) >= 0; });
  };
  while (true) {
    const std::uint32_t seen = memory_.page->notifier.seen();
    if (complete()) return true;
    const std::uint64_t now = monotonic_ns();
    if (now >= until_ns) return false;
    memory_.page->notifier.wait(seen, until_ns - now);
  }
}

int Exchange::full_slot(const RolloutLine& line, std::int64_t sequence) const {
  for (int slot = 0; slot < static_cast<int>(line.slab->slots()); ++slot) {
    if (line.slab->state(slot) == SlotState::full && line.slab->sequence(slot) == sequence) return slot;
  }
  return -1;
}

StoredRollout Exchange::rollout_of(const std::byte* slot) const {
  const RolloutPlaces& places = memory_.rollout;
  const std::int64_t* header = at<std::int64_t>(slot, places.header);
  return {static_cast<std::size_t>(header[kSource]),
          static_cast<std::size_t>(header[kLength]),
          header[kSequence],
          header[kBegins] != 0,
          slot + places.observations,
          slot + places.actions,
          slot + places.finals,
          at<float>(slot, places.rewards),
          at<float>(slot, places.episode_returns),
          places.errors ? at<float>(slot, places.errors) : nullptr,
          places.infos ? at<float>(slot, places.infos) : nullptr,
          at<std::uint8_t>(slot, places.terminated),
          at<std::uint8_t>(slot, places.truncated),
          at<std::uint8_t>(slot, places.valid),
          at<std::int32_t>(slot, places.final_index),
          at<std::int32_t>(slot, places.episode_lengths)};
}

}  // namespace hive
