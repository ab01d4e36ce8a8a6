#include "hive/slots.hpp"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

namespace hive {

namespace {

constexpr std::uint64_t kMagic = 0x6869766573'6c6162;  // "hiveslab"
constexpr std::uint32_t kMaxSlots = 4096;              // maximum slots of a slab; bounds a corrupt header

// State and reason share the word's top byte: RETIRING + reason, so that a half state names its tally.
constexpr std::uint64_t pack(SlotState state, int reason, Owner owner, std::uint32_t maker, std::uint64_t sequence) {
  return (static_cast<std::uint64_t>(state) + static_cast<std::uint64_t>(reason)) << 56 |
         (std::uint64_t{owner.actor} & 0x3ff) << 46 | (std::uint64_t{owner.incarnation} & 0xff) << 38 |
         (std::uint64_t{maker} & 0x3f) << 32 | (sequence & 0xffffffff);
}
SlotState state_of(std::uint64_t word) {
  const auto top = word >> 56;
  return top >= static_cast<std::uint64_t>(SlotState::retiring) ? SlotState::retiring : static_cast<SlotState>(top);
}
int reason_of(std::uint64_t word) {
  return static_cast<int>(word >> 56) - static_cast<int>(SlotState::retiring);
}
Owner owner_of(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> 46 & 0x3ff), static_cast<std::uint32_t>(word >> 38 & 0xff)};
}
std::uint32_t maker_of(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32 & 0x3f); }
std::uint64_t sequence_of(std::uint64_t word) { return word & 0xffffffff; }
bool same(Owner a, Owner b) {
  return (a.actor & 0x3ff) == (b.actor & 0x3ff) && (a.incarnation & 0xff) == (b.incarnation & 0xff);
}

}  // namespace

std::size_t Slab::control_bytes(std::uint32_t slots) noexcept {
  return sizeof(SlabHeader) + slots * sizeof(SlotHeader);
}

void Slab::format(void* memory, std::uint32_t slots, std::uint64_t first) {
  if (slots == 0 || slots > kMaxSlots) throw std::invalid_argument("a slab has 1 to 4096 slots");
  auto* header = new (memory) SlabHeader{};
  header->slots = slots;
  header->first = first;
  header->produced.store(first);
  auto* slot = reinterpret_cast<SlotHeader*>(header + 1);
  for (std::uint32_t i = 0; i < slots; ++i) new (slot + i) SlotHeader{};
  header->magic = kMagic;
}

Slab::Slab(void* memory, std::size_t bytes)
    : header_(static_cast<SlabHeader*>(memory)), slot_(reinterpret_cast<SlotHeader*>(header_ + 1)) {
  if (reinterpret_cast<std::uintptr_t>(memory) % 64 != 0) throw std::invalid_argument("a slab starts at a multiple of 64 bytes");
  if (bytes < sizeof(SlabHeader) || header_->magic != kMagic) throw std::invalid_argument("this memory holds no slab");
  if (header_->slots > kMaxSlots || bytes < control_bytes(header_->slots)) throw std::invalid_argument("this memory is too small for its slab");
}

bool Slab::swap(int slot, std::uint64_t expected, std::uint64_t desired) noexcept {
  return slot_[slot].word.compare_exchange_strong(expected, desired, std::memory_order_acq_rel, std::memory_order_acquire);
}

int Slab::reserve(Owner owner, int only) noexcept {
  const int end = only < 0 ? static_cast<int>(slots()) : only + 1;
  for (int i = only < 0 ? 0 : only; i < end && i < static_cast<int>(slots()); ++i) {
    const auto word = slot_[i].word.load(std::memory_order_acquire);
    if (state_of(word) == SlotState::free && swap(i, word, pack(SlotState::filling, 0, owner, owner.incarnation, 0))) return i;
  }
  return -1;
}

std::uint64_t Slab::checked(int slot, SlotState state, Owner owner, const char* verb) const {
  if (slot < 0 || slot >= static_cast<int>(slots())) throw std::out_of_range("no such slot: " + std::to_string(slot));
  const auto word = slot_[slot].word.load(std::memory_order_acquire);
  if (state_of(word) != state || !same(owner_of(word), owner)) {
    throw std::logic_error("cannot " + std::string(verb) + " slot " + std::to_string(slot) + ": it is in state " +
                           std::to_string(static_cast<int>(state_of(word))) + ", held by actor " +
                           std::to_string(owner_of(word).actor));
  }
  return word;
}

std::uint64_t Slab::commit(int slot, Owner owner) {
  const auto word = checked(slot, SlotState::filling, owner, "commit");
  const auto sequence = produced();
  const auto half = pack(SlotState::committing, 0, owner, maker_of(word), sequence);
  if (!swap(slot, word, half)) throw std::logic_error("slot " + std::to_string(slot) + " changed hands during commit");
  complete_commit(slot, half);
  return sequence;
}

void Slab::complete_commit(int slot, std::uint64_t word) noexcept {
  const auto made = header_->produced.load(std::memory_order_acquire);
  if ((made & 0xffffffff) == sequence_of(word)) header_->produced.store(made + 1, std::memory_order_release);
  swap(slot, word, pack(SlotState::full, 0, owner_of(word), maker_of(word), sequence_of(word)));
}

void Slab::abandon(int slot, Owner owner) {
  const auto word = checked(slot, SlotState::filling, owner, "abandon");
  swap(slot, word, 0);
}

int Slab::claim(Owner owner, std::int64_t sequence) noexcept {
  while (true) {
    // Sequences wrap at 2^32, so age is the distance from the number of commits. A slot that was committed after that
    // number was read is skipped: a slot that the loop has already passed may hold an older sequence.
    const auto made = static_cast<std::uint32_t>(produced());
    int best = -1;
    std::uint64_t best_word = 0;
    std::int32_t best_age = 0;
    for (int i = 0; i < static_cast<int>(slots()); ++i) {
      const auto word = slot_[i].word.load(std::memory_order_acquire);
      if (state_of(word) != SlotState::full) continue;
      const auto age = static_cast<std::int32_t>(made - static_cast<std::uint32_t>(sequence_of(word)));
      if (sequence < 0 ? age <= 0 : sequence_of(word) != (static_cast<std::uint64_t>(sequence) & 0xffffffff)) continue;
      if (best < 0 || age > best_age) best = i, best_word = word, best_age = age;
    }
    if (best < 0) return -1;
    const auto claimed = pack(SlotState::claimed, 0, owner, maker_of(best_word), sequence_of(best_word));
    if (swap(best, best_word, claimed)) return best;  // else another consumer claimed it first: try again
  }
}

std::uint64_t Slab::first_left() const noexcept {
  const auto made = produced();  // read first, as in claim: later commits are not older than this number
  std::int32_t oldest = 0;
  for (int i = 0; i < static_cast<int>(slots()); ++i) {
    const auto word = slot_[i].word.load(std::memory_order_acquire);
    if (state_of(word) != SlotState::full && state_of(word) != SlotState::committing) continue;
    oldest = std::max(oldest, static_cast<std::int32_t>(static_cast<std::uint32_t>(made) - static_cast<std::uint32_t>(sequence_of(word))));
  }
  return made - static_cast<std::uint64_t>(oldest);
}

void Slab::retire(int slot, Owner owner, int reason) {
  if (reason < 0 || reason >= kReasons) throw std::invalid_argument("no such reason: " + std::to_string(reason));
  const auto word = checked(slot, SlotState::claimed, owner, "retire");
  const auto half = pack(SlotState::retiring, reason, owner, maker_of(word), sequence_of(word));
  if (!swap(slot, word, half)) throw std::logic_error("slot " + std::to_string(slot) + " changed hands during retire");
  complete_retire(slot, half);
}

void Slab::complete_retire(int slot, std::uint64_t word) noexcept {
  auto& tally = slot_[slot].tally[static_cast<std::size_t>(reason_of(word))];
  const auto before = tally.load(std::memory_order_acquire);
  const auto mark = (sequence_of(word) + 1) & 0xffffffff;
  if ((before & 0xffffffff) != mark || before == 0) tally.store(((before >> 32) + 1) << 32 | mark, std::memory_order_release);
  swap(slot, word, 0);
}

int Slab::recover(Owner dead, bool reoffer, int reason) noexcept {
  int held = 0;
  for (int i = 0; i < static_cast<int>(slots()); ++i) {
    const auto word = slot_[i].word.load(std::memory_order_acquire);
    if (!same(owner_of(word), dead)) continue;
    switch (state_of(word)) {
      case SlotState::filling: swap(i, word, 0); break;
      case SlotState::committing: complete_commit(i, word); break;
      case SlotState::retiring: complete_retire(i, word); break;
      case SlotState::claimed: {
        ++held;
        const auto next = reoffer ? pack(SlotState::full, 0, dead, maker_of(word), sequence_of(word))
                                  : pack(SlotState::retiring, reason, dead, maker_of(word), sequence_of(word));
        if (swap(i, word, next) && !reoffer) complete_retire(i, next);
        break;
      }
      case SlotState::free:
      case SlotState::full: break;
    }
  }
  return held;
}

int Slab::withdraw(int reason, std::uint64_t sequence) noexcept {
  int dropped = 0;
  auto next = produced();
  while (true) {  // newest first, so that `next` descends over the withdrawn ones
    int newest = -1;
    std::uint64_t newest_word = 0;
    for (int i = 0; i < static_cast<int>(slots()); ++i) {
      const auto word = slot_[i].word.load(std::memory_order_acquire);
      if (state_of(word) != SlotState::full) continue;
      if (static_cast<std::int32_t>(static_cast<std::uint32_t>(sequence_of(word)) - static_cast<std::uint32_t>(sequence)) < 0) continue;
      const auto later = static_cast<std::int32_t>(static_cast<std::uint32_t>(sequence_of(word)) - static_cast<std::uint32_t>(sequence_of(newest_word)));
      if (newest < 0 || later > 0) newest = i, newest_word = word;
    }
    if (newest < 0) return dropped;
    const auto half = pack(SlotState::retiring, reason, owner_of(newest_word), maker_of(newest_word), sequence_of(newest_word));
    if (!swap(newest, newest_word, half)) continue;  // a consumer claimed it first
    // Not complete_retire, which counts a sequence once: this one may be committed and withdrawn again.
    slot_[newest].tally[static_cast<std::size_t>(reason)].fetch_add(std::uint64_t{1} << 32, std::memory_order_acq_rel);
    swap(newest, half, 0);
    ++dropped;
    if (((next - 1) & 0xffffffff) == sequence_of(newest_word)) {
      --next;
      header_->withdrawn.fetch_add(1, std::memory_order_acq_rel);
      header_->produced.store(next, std::memory_order_release);
    }
  }
}

int Slab::drain(int reason) noexcept {
  int dropped = 0;
  for (int i = 0; i < static_cast<int>(slots()); ++i) {
    auto word = slot_[i].word.load(std::memory_order_acquire);
    if (state_of(word) == SlotState::committing) complete_commit(i, word);
    if (state_of(word) == SlotState::retiring) complete_retire(i, word);
    word = slot_[i].word.load(std::memory_order_acquire);
    if (state_of(word) == SlotState::filling) swap(i, word, 0);
    if (state_of(word) != SlotState::full && state_of(word) != SlotState::claimed) continue;
    const auto half = pack(SlotState::retiring, reason, owner_of(word), maker_of(word), sequence_of(word));
    if (swap(i, word, half)) complete_retire(i, half), ++dropped;
  }
  return dropped;
}

SlabCounts Slab::counts() const noexcept {
  // Tallies before `produced`: a reader of a running slab then never counts more retired than produced.
  SlabCounts counts{};
  for (std::uint32_t i = 0; i < slots(); ++i) {
    for (std::size_t r = 0; r < kReasons; ++r) counts.retired[r] += slot_[i].tally[r].load(std::memory_order_acquire) >> 32;
    const auto state = state_of(slot_[i].word.load(std::memory_order_acquire));
    counts.in_flight += state != SlotState::free && state != SlotState::filling;
  }
  counts.produced = produced() - header_->first + header_->withdrawn.load(std::memory_order_acquire);
  return counts;
}

SlotState Slab::state(int slot) const noexcept { return state_of(slot_[slot].word.load(std::memory_order_acquire)); }
Owner Slab::owner(int slot) const noexcept { return owner_of(slot_[slot].word.load(std::memory_order_acquire)); }
int Slab::maker(int slot) const noexcept { return static_cast<int>(maker_of(slot_[slot].word.load(std::memory_order_acquire))); }
std::int64_t Slab::sequence(int slot) const noexcept {
  return static_cast<std::int64_t>(sequence_of(slot_[slot].word.load(std::memory_order_acquire)));
}

}  // namespace hive
