// A slab: S slots of one producer in shared memory, and the words that record which actor holds each slot.
//
//                 reserve            commit                  claim               retire(reason)
//        FREE ------------> FILLING -------> COMMITTING -> FULL -----> CLAIMED ---------> RETIRING -> FREE
//
// The word of a slot defines its state. It has 64 bits and is changed only by compare-and-swap:
//
//        63      56 55       46 45         38 37    32 31             0
//        | state  |  owner    | incarnation | maker  |   sequence     |
//
// `owner` is the actor that holds the slot (the producer from FILLING to FULL, the consumer from CLAIMED on).
// `sequence` is assigned at commit and counts the commits of this producer, across its restarts. `maker` is the
// incarnation of the producer that reserved the slot, modulo 64; later holders leave it as it is.
//
// Two states are half states. A transition that changes a count enters the half state, writes the count, then
// completes:
//   COMMITTING   `produced` becomes sequence + 1
//   RETIRING     the slot's tally for `reason` goes up by one
// so a process that is killed at any instruction leaves at most a half state, which the supervisor completes in
// `recover`. Completing twice is harmless: `produced` is stored, not incremented, and a tally holds the sequence that
// it counted last in the same 64 bits as the count.
//
// Whenever no transition is in progress,  commits == sum of tallies + in flight,  where in flight is counted from the
// words. The commits are the sequences given out so far, and those that were given out again.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hive {

enum class SlotState : std::uint8_t { free = 0, filling = 1, committing = 2, full = 3, claimed = 4, retiring = 5 };

// The number of reasons to retire a slot. Reason 0 is "consumed"; the others are drops. While RETIRING, the state field
// holds retiring + reason, so that a half state names its tally.
constexpr int kReasons = 8;

struct Owner {
  std::uint32_t actor;        // index in the topology, below 1024
  std::uint32_t incarnation;  // incarnation of that actor, modulo 256
};

struct SlabCounts {
  std::uint64_t produced;
  std::array<std::uint64_t, kReasons> retired;  // counts by reason: [0] consumed, the others drops
  std::uint64_t in_flight;                      // FULL, CLAIMED and half states, counted from the words
};

struct alignas(64) SlotHeader {
  std::atomic<std::uint64_t> word;
  std::array<std::atomic<std::uint64_t>, kReasons> tally;  // count in the high half, last sequence + 1 in the low
};

struct alignas(64) SlabHeader {
  std::uint64_t magic;
  std::uint32_t slots;
  std::uint32_t unused;
  std::uint64_t first;  // the sequence of the first commit: not 0 in a resumed run
  std::atomic<std::uint64_t> produced;
  std::atomic<std::uint64_t> withdrawn;  // commits whose sequence is given out again (see `withdraw`)
};

// A view of the slot words of a slab. Does not own the memory.
class Slab {
 public:
  static std::size_t control_bytes(std::uint32_t slots) noexcept;
  // Lays out an empty slab in zeroed memory.
  static void format(void* memory, std::uint32_t slots, std::uint64_t first = 0);
  // Throws std::invalid_argument when the memory holds no slab or is too small for it.
  Slab(void* memory, std::size_t bytes);

  std::uint32_t slots() const noexcept { return header_->slots; }
  std::uint64_t produced() const noexcept { return header_->produced.load(std::memory_order_acquire); }

  // Producer: FREE -> FILLING; returns the slot, or -1 if none is free. With `only`, that slot or none. A producer
  // holds at most one FILLING slot.
  int reserve(Owner owner, int only = -1) noexcept;
  // Producer: FILLING -> FULL; returns the slot's sequence. Throws std::logic_error unless the caller holds the slot.
  std::uint64_t commit(int slot, Owner owner);
  // Producer: FILLING -> FREE. Abandoned slots are not counted.
  void abandon(int slot, Owner owner);

  // Consumer: FULL -> CLAIMED for the slot of this sequence, or with sequence < 0 the oldest; returns it, or -1.
  int claim(Owner owner, std::int64_t sequence) noexcept;
  // Returns the first unclaimed sequence: of a slot that is FULL or COMMITTING, or else of the next commit.
  std::uint64_t first_left() const noexcept;
  // Consumer: CLAIMED -> FREE, counted under `reason`. Throws std::logic_error unless the caller holds the slot.
  void retire(int slot, Owner owner, int reason);

  // Supervisor, after the confirmed exit of `owner`: completes its half states, frees its FILLING slot, and makes its
  // CLAIMED slots FULL again (`reoffer`) or retires them under `reason`. Returns the number of its CLAIMED slots.
  int recover(Owner owner, bool reoffer, int reason) noexcept;
  // Supervisor, after the confirmed exit of the producer of a slab whose messages lie in the producer's own memory:
  // retires the FULL slots from `sequence` on under `reason`, and lets the next commits repeat the sequences at the end
  // that were retired. Returns the number of these slots.
  int withdraw(int reason, std::uint64_t sequence) noexcept;
  // Supervisor, when no process uses the slab: retires every slot in flight under `reason`; returns their number.
  int drain(int reason) noexcept;

  SlabCounts counts() const noexcept;
  SlotState state(int slot) const noexcept;
  Owner owner(int slot) const noexcept;
  std::int64_t sequence(int slot) const noexcept;
  int maker(int slot) const noexcept;

 private:
  bool swap(int slot, std::uint64_t expected, std::uint64_t desired) noexcept;
  void complete_commit(int slot, std::uint64_t word) noexcept;
  void complete_retire(int slot, std::uint64_t word) noexcept;
  std::uint64_t checked(int slot, SlotState state, Owner owner, const char* verb) const;

  SlabHeader* header_;
  SlotHeader* slot_;
};

}  // namespace hive
