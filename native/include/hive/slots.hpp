// A slab: S slots of one producer in shared memory, and the words that say whose each slot is.
//
//                 reserve            commit                  claim               retire(reason)
//        FREE ------------> FILLING -------> COMMITTING -> FULL -----> CLAIMED ---------> RETIRING -> FREE
//
// The word of a slot is the truth. It is 64 bits, changed only by compare-and-swap:
//
//        63      56 55       46 45         38 37    32 31             0
//        | state  |  owner    | incarnation | epoch  |   sequence     |
//
// `owner` is the actor that holds the slot now (the producer while FILLING to FULL, the consumer from CLAIMED on).
// `sequence` counts the commits of this producer and is given at commit; it survives restarts of the producer.
//
// Two states are half states. A transition that counts enters the half state, writes its count, then completes:
//   COMMITTING   `produced` becomes sequence + 1
//   RETIRING     the slot's tally for `reason` goes up by one
// so a process that is killed anywhere leaves either nothing to do or a half state, which the supervisor completes in
// `recover`. Completing twice is harmless: `produced` is stored, not incremented, and a tally carries the sequence
// that it counted last in the same 64 bits as the count.
//
// At every quiescent point  produced == sum of tallies + in flight,  where in flight is counted from the words.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hive {

enum class SlotState : std::uint8_t { free = 0, filling = 1, committing = 2, full = 3, claimed = 4, retiring = 5 };

// Why a slot was retired, as an index; 0 is consumed, the only one that is no loss. While RETIRING, the state field
// holds retiring + reason, so that a half state names its tally.
constexpr int kReasons = 8;

struct Owner {
  std::uint32_t actor;        // index in the topology, below 1024
  std::uint32_t incarnation;  // of that actor, modulo 256
};

struct SlabCounts {
  std::uint64_t produced;
  std::array<std::uint64_t, kReasons> retired;  // [0] is consumed, the others are drops by reason
  std::uint64_t in_flight;                      // FULL, CLAIMED and half states, counted from the words
};

struct alignas(64) SlotHeader {
  std::atomic<std::uint64_t> word;
  std::array<std::atomic<std::uint64_t>, kReasons> tally;  // count in the high half, last sequence + 1 in the low
};

struct alignas(64) SlabHeader {
  std::uint64_t magic;
  std::uint32_t slots;
  std::uint32_t epoch;
  std::uint64_t first;  // the sequence that the first commit gets: not 0 in a resumed run
  std::atomic<std::uint64_t> produced;
};

// A view of a slab's control part. Does not own the memory.
class Slab {
 public:
  static std::size_t control_bytes(std::uint32_t slots) noexcept;
  // Lays out an empty slab in zeroed memory.
  static void format(void* memory, std::uint32_t slots, std::uint64_t first = 0);
  // Throws std::invalid_argument when the memory holds no slab or is too small for it.
  Slab(void* memory, std::size_t bytes);

  std::uint32_t slots() const noexcept { return header_->slots; }
  std::uint64_t produced() const noexcept { return header_->produced.load(std::memory_order_acquire); }

  // Producer. A free slot, now FILLING, or -1; with `only` that one or none. At most one at a time per producer.
  int reserve(Owner owner, int only = -1) noexcept;
  // FILLING -> FULL; returns the slot's sequence. Throws std::logic_error when the slot is not the caller's.
  std::uint64_t commit(int slot, Owner owner);
  // FILLING -> FREE, uncounted: what was never full was never produced.
  void abandon(int slot, Owner owner);

  // Consumer. The FULL slot of exactly this sequence, or with sequence < 0 the oldest; now CLAIMED. Or -1.
  int claim(Owner owner, std::int64_t sequence) noexcept;
  // The first sequence that nobody has claimed: of a slot that is full or becoming so, or the next one to be committed.
  std::uint64_t first_left() const noexcept;
  // CLAIMED -> FREE, counted under `reason`. Throws std::logic_error when the slot is not the caller's.
  void retire(int slot, Owner owner, int reason);

  // Supervisor, after the confirmed death of `owner`. Frees what it was filling, completes its half states, and its
  // claimed slots are offered again (`reoffer`) or retired under `reason`. Returns how many claimed slots it held.
  int recover(Owner owner, bool reoffer, int reason) noexcept;
  // Supervisor, when nobody uses the slab any more: every slot in flight is retired under `reason`.
  int drain(int reason) noexcept;

  SlabCounts counts() const noexcept;
  SlotState state(int slot) const noexcept;
  Owner owner(int slot) const noexcept;
  std::int64_t sequence(int slot) const noexcept;

 private:
  bool swap(int slot, std::uint64_t expected, std::uint64_t desired) noexcept;
  void complete_commit(int slot, std::uint64_t word) noexcept;
  void complete_retire(int slot, std::uint64_t word) noexcept;
  std::uint64_t checked(int slot, SlotState state, Owner owner, const char* verb) const;

  SlabHeader* header_;
  SlotHeader* slot_;
};

}  // namespace hive
