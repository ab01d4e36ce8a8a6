// Slabs: every transition, recovery from a death at every point, the wrap of sequences, and a hammer in which
// producers and consumers die at random. The optional argument multiplies the hammer's length.
#include "hive/slots.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.hpp"
#include "hive/futex.hpp"

namespace {

using hive::Owner;
using hive::Slab;
using hive::SlotState;

constexpr std::uint64_t kWrap = std::uint64_t{1} << 32;
constexpr Owner kMe{3, 7}, kOther{4, 7}, kLater{3, 8};
constexpr int kReason = 2, kDied = 4;
constexpr int kRetiring = static_cast<int>(SlotState::retiring);
constexpr SlotState kStates[] = {SlotState::free, SlotState::filling, SlotState::committing,
                                 SlotState::full, SlotState::claimed, SlotState::retiring};

// The word as slots.hpp draws it.
std::uint64_t word(int state, Owner owner, std::uint64_t sequence) {
  return std::uint64_t(state) << 56 | std::uint64_t{owner.actor} << 46 | std::uint64_t{owner.incarnation} << 38 |
         sequence % kWrap;
}
std::uint64_t word(SlotState state, Owner owner, std::uint64_t sequence) {
  return word(static_cast<int>(state) + (state == SlotState::retiring ? kReason : 0), owner, sequence);
}
// A tally that counted `count` slots, the last of them `sequence`.
std::uint64_t tally(std::uint64_t count, std::uint64_t sequence) { return count << 32 | (sequence + 1) % kWrap; }

struct alignas(64) Line { std::uint64_t words[8]; };

struct Memory {
  explicit Memory(std::uint32_t slots, std::uint64_t produced = 0) : lines(Slab::control_bytes(slots) / 64) {
    Slab::format(lines.data(), slots);
    header().produced = produced;
  }
  std::size_t bytes() const { return lines.size() * sizeof(Line); }
  Slab slab() { return {lines.data(), bytes()}; }
  hive::SlabHeader& header() { return *reinterpret_cast<hive::SlabHeader*>(lines.data()); }
  hive::SlotHeader& slot(int i) { return reinterpret_cast<hive::SlotHeader*>(&header() + 1)[i]; }
  bool equals(const std::vector<Line>& before) const { return std::memcmp(lines.data(), before.data(), bytes()) == 0; }
  std::vector<Line> lines;
};

// One slot in `state`, held by kMe, with sequence 5 where it has one; everything before was consumed.
struct OneSlot : Memory {
  explicit OneSlot(SlotState state) : Memory(1) {
    const bool numbered = state != SlotState::free && state != SlotState::filling;
    header().produced = numbered && state != SlotState::committing ? 6 : 5;
    slot(0).tally[0] = tally(5, 4);
    if (state != SlotState::free) slot(0).word = word(state, kMe, numbered ? 5 : 0);
  }
};

bool balanced(const hive::SlabCounts& counts) {
  std::uint64_t sum = counts.in_flight;
  for (const auto retired : counts.retired) sum += retired;
  return sum == counts.produced;
}

bool same(Owner a, Owner b) { return a.actor == b.actor && a.incarnation == b.incarnation; }

template <typename Error, typename Call>
bool throws(Call call) {
  try {
    call();
  } catch (const Error&) {
    return true;
  }
  return false;
}

template <typename Call>
bool accepted(Call call) {
  return !throws<std::logic_error>(call);
}

// Each legal transition of slot 0; `apply` says whether it was accepted.
const struct {
  SlotState before, after;
  bool holder_only;
  bool (*apply)(Slab&, Owner);
} kTransitions[] = {
    {SlotState::free, SlotState::filling, false, [](Slab& s, Owner o) { return s.reserve(o) == 0; }},
    {SlotState::filling, SlotState::full, true,
     [](Slab& s, Owner o) { return accepted([&] { CHECK(s.commit(0, o) == 5); }); }},
    {SlotState::filling, SlotState::free, true, [](Slab& s, Owner o) { return accepted([&] { s.abandon(0, o); }); }},
    {SlotState::full, SlotState::claimed, false, [](Slab& s, Owner o) { return s.claim(o, -1) == 0; }},
    {SlotState::full, SlotState::claimed, false, [](Slab& s, Owner o) { return s.claim(o, 5) == 0; }},
    {SlotState::claimed, SlotState::free, true,
     [](Slab& s, Owner o) { return accepted([&] { s.retire(0, o, kReason); }); }},
};

void one_slot_can_be_asked_for() {
  Memory memory(3);
  Slab slab = memory.slab();
  CHECK(slab.reserve(kMe, 1) == 1);
  CHECK(slab.reserve(kMe, 1) == -1);  // though others are free
  CHECK(slab.reserve(kMe, 3) == -1);  // there is none
  CHECK(slab.reserve(kMe, 0) == 0 && slab.reserve(kMe) == 2 && slab.reserve(kMe) == -1);
}

void the_legal_transitions_and_no_others() {
  for (const auto& row : kTransitions) {
    for (const SlotState state : kStates) {
      for (const Owner who : {kMe, kOther, kLater}) {
        OneSlot memory(state);
        const auto before = memory.lines;
        Slab slab = memory.slab();
        const bool legal = state == row.before && (!row.holder_only || same(who, kMe));
        CHECK(row.apply(slab, who) == legal);
        if (!legal) {
          CHECK(memory.equals(before));
          continue;
        }
        CHECK(slab.state(0) == row.after && balanced(slab.counts()));
        if (row.after == SlotState::free) CHECK(memory.slot(0).word == 0);
        else CHECK(same(slab.owner(0), who) && slab.sequence(0) == (row.after == SlotState::filling ? 0 : 5));
        CHECK(slab.counts().retired[kReason] == (state == SlotState::claimed));
      }
    }
  }
}

void wrong_arguments_change_nothing() {
  OneSlot memory(SlotState::claimed);
  const auto before = memory.lines;
  Slab slab = memory.slab();
  for (const int slot : {-1, 1}) {
    CHECK(throws<std::out_of_range>([&] { slab.commit(slot, kMe); }));
    CHECK(throws<std::out_of_range>([&] { slab.abandon(slot, kMe); }));
    CHECK(throws<std::out_of_range>([&] { slab.retire(slot, kMe, 0); }));
  }
  for (const int reason : {-1, hive::kReasons})
    CHECK(throws<std::invalid_argument>([&] { slab.retire(0, kMe, reason); }));
  CHECK(memory.equals(before));
  CHECK(OneSlot(SlotState::full).slab().claim(kMe, 4) == -1);

  for (const std::uint32_t slots : {0U, 4097U})
    CHECK(throws<std::invalid_argument>([&] { Slab::format(memory.lines.data(), slots); }));
  CHECK(throws<std::invalid_argument>([&] { Slab(memory.lines.data(), memory.bytes() - 64); }));
  CHECK(throws<std::invalid_argument>([&] { Slab(memory.lines.data(), 8); }));
  CHECK(throws<std::invalid_argument>([&] { Slab(memory.lines[0].words + 1, memory.bytes()); }));
  CHECK(throws<std::invalid_argument>([&] { Slab(memory.lines.data() + 1, memory.bytes()); }));
}

void recovery_and_draining_by_state() {
  for (const SlotState state : kStates) {
    const bool claimed = state == SlotState::claimed;
    for (const bool reoffer : {false, true}) {
      OneSlot memory(state);
      Slab slab = memory.slab();
      const auto before = memory.lines;
      CHECK(slab.recover(kOther, reoffer, kDied) == 0 && slab.recover(kLater, reoffer, kDied) == 0);
      CHECK(memory.equals(before));
      CHECK(slab.recover(kMe, reoffer, kDied) == claimed);
      const auto after = memory.lines;
      CHECK(slab.recover(kMe, reoffer, kDied) == 0 && memory.equals(after));
      const bool full = state == SlotState::committing || state == SlotState::full || (claimed && reoffer);
      CHECK(slab.state(0) == (full ? SlotState::full : SlotState::free));
      const auto counts = slab.counts();
      CHECK(balanced(counts) && counts.in_flight == full && counts.retired[0] == 5);
      CHECK(counts.retired[kDied] == (claimed && !reoffer));
      CHECK(counts.retired[kReason] == (state == SlotState::retiring));
      CHECK(slab.claim(kOther, 5) == (full ? 0 : -1));
    }
    OneSlot memory(state);
    Slab slab = memory.slab();
    const bool dropped = state == SlotState::committing || state == SlotState::full || claimed;
    CHECK(slab.drain(kDied) == dropped && slab.drain(kDied) == 0);
    const auto counts = slab.counts();
    CHECK(balanced(counts) && counts.in_flight == 0 && counts.retired[kDied] == dropped);
    CHECK(counts.retired[kReason] == (state == SlotState::retiring) && memory.slot(0).word == 0);
  }
}

// The contents of unclaimed slots are lost with their producer: they count as drops, and their numbers come again.
void withdrawing_gives_numbers_out_again() {
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{5}, kWrap - 3, kWrap - 1, kWrap, 5 * kWrap - 2}) {
    Memory memory(4, first);
    Slab slab = memory.slab();
    const auto commit = [&] { return slab.commit(slab.reserve(kMe), kMe); };
    for (std::uint64_t n = 0; n < 4; ++n) CHECK(commit() == first + n);
    const int held = slab.claim(kOther, static_cast<std::int64_t>((first + 1) % kWrap));
    CHECK(held >= 0 && slab.withdraw(kDied, first) == 3 && slab.withdraw(kDied, first) == 0);
    CHECK(slab.produced() == first + 2 && slab.first_left() == first + 2);
    CHECK(commit() == first + 2 && commit() == first + 3);
    CHECK(slab.withdraw(kDied, first + 3) == 1 && slab.produced() == first + 3 && commit() == first + 3);
    CHECK(slab.withdraw(kDied, first) == 2 && slab.produced() == first + 2);
    slab.retire(held, kOther, 0);
    const auto counts = slab.counts();
    CHECK(counts.retired[kDied] == 6 && counts.retired[0] == 1 && counts.in_flight == 0);
    CHECK(counts.produced == first + 7 && commit() == first + 2);
  }
  for (const SlotState state : kStates) {
    OneSlot memory(state);
    Slab slab = memory.slab();
    const auto before = memory.lines;
    CHECK(slab.withdraw(kDied, 0) == (state == SlotState::full));
    if (state != SlotState::full) CHECK(memory.equals(before));
  }
}

// A transition is three stores: half state, count, completion. The process may have died before or after each.
void death_at_every_point_counts_once() {
  for (const std::uint64_t sequence :
       {std::uint64_t{0}, std::uint64_t{5}, kWrap - 2, kWrap - 1, kWrap, kWrap + 1, 5 * kWrap - 1}) {
    for (int stores = 0; stores <= 3; ++stores) {
      Memory memory(2, stores < 2 ? sequence : sequence + 1);
      const SlotState states[] = {SlotState::filling, SlotState::committing, SlotState::committing, SlotState::full};
      memory.slot(1).word = word(states[stores], kMe, stores ? sequence : 0);
      Slab slab = memory.slab();
      for (int again = 0; again < 3; ++again) {
        CHECK(slab.recover(kMe, false, kDied) == 0);
        CHECK(slab.produced() == sequence + (stores > 0) && slab.counts().in_flight == (stores > 0));
        CHECK(slab.state(1) == (stores ? SlotState::full : SlotState::free));
      }
      CHECK(slab.reserve(kLater) == 0 && slab.commit(0, kLater) == sequence + (stores > 0));
    }
    for (int reason = 0; reason < hive::kReasons; ++reason) {
      // The tally may be untouched, or have counted the sequence before this one in the same slot.
      for (const std::uint64_t counted : {0, 9}) {
        for (int stores = 0; stores <= 3; ++stores) {
          Memory memory(2, sequence + 1);
          const std::uint64_t states[] = {word(SlotState::claimed, kMe, sequence), word(kRetiring + reason, kMe, sequence),
                                          word(kRetiring + reason, kMe, sequence), 0};
          memory.slot(1).word = states[stores];
          auto& count = memory.slot(1).tally[static_cast<std::size_t>(reason)];
          count = stores < 2 ? (counted ? tally(counted, sequence - 1) : 0) : tally(counted + 1, sequence);
          Slab slab = memory.slab();
          for (int again = 0; again < 3; ++again) {
            CHECK(slab.recover(kMe, false, reason) == (stores == 0 && again == 0));
            CHECK(count == tally(counted + 1, sequence) && memory.slot(1).word == 0);
            CHECK(slab.produced() == sequence + 1 && slab.counts().in_flight == 0);
          }
        }
      }
    }
  }
}

void sequences_wrap() {
  const std::uint64_t first = kWrap - 3;
  Memory memory(4, first);
  Slab slab = memory.slab();
  const int held = slab.reserve(kMe);  // stays claimed all the time: an old slot is not mistaken for a new one
  CHECK(slab.commit(held, kMe) == first && slab.claim(kOther, -1) == held);
  for (std::uint64_t s = first + 1; s < first + 10; ++s) {
    const int slot = slab.reserve(kMe);
    CHECK(slab.commit(slot, kMe) == s && slab.sequence(slot) == static_cast<std::int64_t>(s % kWrap));
    CHECK(slab.claim(kOther, static_cast<std::int64_t>(s)) == slot);
    slab.retire(slot, kOther, 0);
    CHECK(slab.counts().retired[0] == s - first);
  }
  CHECK(slab.recover(kOther, true, 0) == 1 && slab.claim(kOther, -1) == held);

  Memory mixed(4, kWrap + 2);
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t sequences[] = {kWrap - 1, kWrap, kWrap - 2, kWrap + 1};
    mixed.slot(i).word = word(SlotState::full, kMe, sequences[i]);
  }
  for (const int oldest : {2, 0, 1, 3}) CHECK(mixed.slab().claim(kOther, -1) == oldest);
}

// What a claim sees when two commits happen while it looks: the later of them, and not the earlier.
void a_commit_during_the_look_does_not_overtake() {
  Memory memory(3, 6);
  memory.slot(0).word = word(SlotState::full, kMe, 7);
  CHECK(memory.slab().claim(kOther, -1) == -1);
  memory.slot(1).word = word(SlotState::full, kMe, 5);
  CHECK(memory.slab().claim(kOther, -1) == 1);
  CHECK(memory.slab().claim(kOther, 7) == 0);
}

void the_first_that_is_left() {
  Memory empty(2, 6);
  CHECK(empty.slab().first_left() == 6);
  Memory memory(4, kWrap + 2);
  const auto left = [&](SlotState state, std::uint64_t sequence) {
    memory.slot(1).word = word(state, kMe, sequence);
    return memory.slab().first_left();
  };
  for (const auto state : {SlotState::free, SlotState::filling, SlotState::claimed, SlotState::retiring}) CHECK(left(state, kWrap - 1) == kWrap + 2);
  memory.slot(0).word = word(SlotState::full, kMe, kWrap + 1);
  CHECK(left(SlotState::full, kWrap - 1) == kWrap - 1 && left(SlotState::full, kWrap) == kWrap);
  CHECK(left(SlotState::committing, kWrap - 2) == kWrap - 2 && left(SlotState::committing, kWrap + 2) == kWrap + 1);
  memory.slot(0).word = 0;
  CHECK(left(SlotState::committing, kWrap + 2) == kWrap + 2);
  CHECK(left(SlotState::full, kWrap + 3) == kWrap + 2);  // two commits during the look, of which it sees the second
}

// No consumer claims, so the first sequence remains unclaimed at every check.
void what_comes_during_the_look_is_left(int rounds) {
  for (int round = 0; round < rounds; ++round) {
    Memory memory(4);
    std::atomic<bool> done{false};
    std::thread producer([&] {
      auto slab = memory.slab();
      for (int i = 0; i < 4; ++i) slab.commit(slab.reserve(kMe), kMe);
      done = true;
    });
    for (const auto slab = memory.slab(); !done;) CHECK(slab.first_left() == 0);
    producer.join();
  }
}

// As many claims as full slots: none may come back empty because another consumer was quicker.
void a_lost_race_is_not_an_empty_slab(int rounds) {
  constexpr int kThreads = 4, kEach = 64;
  for (int round = 0; round < rounds; ++round) {
    Memory memory(kThreads * kEach, kThreads * kEach);
    for (int i = 0; i < kThreads * kEach; ++i)
      memory.slot(i).word = word(SlotState::full, kMe, static_cast<std::uint64_t>(i));
    std::atomic<int> ready{0};
    const auto consume = [&](Owner me) {
      Slab slab = memory.slab();
      for (ready.fetch_add(1); ready.load() < kThreads;) std::this_thread::yield();
      for (std::int64_t i = 0, last = -1; i < kEach; ++i) {
        const int slot = slab.claim(me, -1);
        CHECK(slot >= 0 && slab.sequence(slot) > last);  // and each consumer's claims ascend
        last = slab.sequence(slot);
      }
    };
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < kThreads; ++i) threads.emplace_back(consume, Owner{i, 0});
    for (auto& thread : threads) thread.join();
  }
}

// The hammer. Goods are plain memory: ThreadSanitizer proves that the words alone order every access.
constexpr int kStreams = 3, kSlots = 5, kConsumers = 4, kGoods = 16;

struct Stream {
  explicit Stream(int count, std::uint64_t start)
      : memory(kSlots, start), first(start), ends(static_cast<std::size_t>(count)) {}
  Memory memory;
  std::uint64_t first;
  std::uint64_t goods[kSlots][kGoods]{};
  std::vector<std::atomic<int>> ends;  // how often each sequence came to an end
  std::atomic<std::uint64_t> retired[hive::kReasons]{};
};

// A thread with nothing to do sleeps, so that the others get the cores also on a loaded machine.
void rest() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

struct Life {
  Owner owner;
  std::atomic<bool> dead{false};
  void die() {
    dead.store(true, std::memory_order_release);
    while (dead.load(std::memory_order_acquire)) rest();
    owner.incarnation = (owner.incarnation + 1) % 256;
  }
};

struct Hammer {
  explicit Hammer(int sequences_of_a_stream) : count(sequences_of_a_stream), left(kStreams * count) {
    const std::uint64_t half = static_cast<std::uint64_t>(count) / 2;
    for (const std::uint64_t start : {std::uint64_t{0}, kWrap - half, 7 * kWrap - half})
      streams.push_back(std::make_unique<Stream>(count, start));
    for (std::uint32_t i = 0; i < kStreams + kConsumers; ++i) lives[i].owner = {i, 250};
  }

  static std::uint64_t good(const Stream& stream, std::uint64_t sequence, int i) {
    return (stream.first + sequence % kWrap) * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(i);
  }

  void ended(Stream& stream, std::int64_t sequence, int reason) {
    const auto index = static_cast<std::uint32_t>(static_cast<std::uint64_t>(sequence) - stream.first);
    CHECK(stream.ends.at(index).fetch_add(1) == 0);
    ++stream.retired[reason];
    --left;
  }

  void produce(Stream& stream, Life& me) {
    std::minstd_rand random(me.owner.actor + 1);
    Slab slab = stream.memory.slab();
    while (slab.produced() < stream.first + static_cast<std::uint64_t>(count)) {
      const int slot = slab.reserve(me.owner);
      if (slot < 0) {
        rest();
        continue;
      }
      const auto sequence = slab.produced();
      for (int i = 0; i < kGoods; ++i) stream.goods[slot][i] = good(stream, sequence, i);
      const auto fate = random() % 64;
      if (fate < 4) {
        slab.abandon(slot, me.owner);
      } else if (fate < 7) {  // killed while it fills, or in the half state, before or after the count
        if (fate > 4) stream.memory.slot(slot).word = word(SlotState::committing, me.owner, sequence);
        if (fate > 5) stream.memory.header().produced = sequence + 1;
        me.die();
      } else {
        CHECK(slab.commit(slot, me.owner) == sequence);
      }
    }
  }

  struct Held {
    Stream* stream;
    int slot;
    std::int64_t sequence;
  };

  void consume(Life& me) {
    std::minstd_rand random(me.owner.actor + 1);
    std::vector<Held> held;
    while (left.load() > 0) {
      Stream& stream = *streams[random() % kStreams];
      Slab slab = stream.memory.slab();
      const auto made = slab.produced();
      const bool exactly = made > kSlots && random() % 4 == 0;
      const auto wanted = exactly ? static_cast<std::int64_t>(made - random() % kSlots) : -1;
      const int slot = held.size() < 3 ? slab.claim(me.owner, wanted) : -1;
      if (slot >= 0) {
        const auto sequence = slab.sequence(slot);
        held.push_back({&stream, slot, sequence});
        CHECK(!exactly || sequence == wanted % static_cast<std::int64_t>(kWrap));
        for (int i = 0; i < kGoods; ++i)
          CHECK(stream.goods[slot][i] == good(stream, static_cast<std::uint64_t>(sequence), i));
      } else if (held.empty()) {
        rest();
        continue;
      }
      if (random() % 2) give_back(held, me, random);
      if (random() % 64 == 0) {
        me.die();
        held.clear();
      }
    }
  }

  // Retires one, or gets as far as the half state, before or after the count, and dies.
  void give_back(std::vector<Held>& held, Life& me, std::minstd_rand& random) {
    const auto [stream, slot, sequence] = held.back();
    held.pop_back();
    const int reason = static_cast<int>(random() % hive::kReasons);
    ended(*stream, sequence, reason);
    const auto fate = random() % 64;
    if (fate > 1) return stream->memory.slab().retire(slot, me.owner, reason);
    auto& header = stream->memory.slot(slot);
    auto& count_of_slot = header.tally[static_cast<std::size_t>(reason)];
    header.word = word(kRetiring + reason, me.owner, static_cast<std::uint64_t>(sequence));
    if (fate) count_of_slot = tally((count_of_slot >> 32) + 1, static_cast<std::uint64_t>(sequence));
    me.die();
    held.clear();
  }

  void bury(Life& life, bool reoffer) {
    for (auto& stream : streams) {
      Slab slab = stream->memory.slab();
      int claimed = 0;
      for (int i = 0; i < kSlots; ++i) {
        const auto found = stream->memory.slot(i).word.load();
        if (found >> 38 != word(SlotState::claimed, life.owner, 0) >> 38) continue;
        ++claimed;
        if (!reoffer) ended(*stream, static_cast<std::int64_t>(found % kWrap), kDied);
      }
      CHECK(slab.recover(life.owner, reoffer, kDied) == claimed);
      CHECK(slab.recover(life.owner, reoffer, kDied) == 0);
    }
    life.dead.store(false, std::memory_order_release);
  }

  void supervise() {
    for (unsigned turn = 0; !over.load(); ++turn) {
      for (Life& life : lives)
        if (life.dead.load(std::memory_order_acquire)) bury(life, turn % 2);
      for (auto& stream : streams) {  // what anyone may see at any time
        const auto counts = stream->memory.slab().counts();
        std::uint64_t gone = stream->first;
        for (const auto retired : counts.retired) gone += retired;
        CHECK(gone <= counts.produced && counts.in_flight <= kSlots);
      }
      rest();
    }
  }

  void run() {
    std::thread supervisor([this] { supervise(); });
    std::vector<std::thread> actors;
    for (int i = 0; i < kStreams; ++i) actors.emplace_back([this, i] { produce(*streams[i], lives[i]); });
    for (int i = kStreams; i < kStreams + kConsumers; ++i) actors.emplace_back([this, i] { consume(lives[i]); });
    for (auto& actor : actors) actor.join();
    over = true;
    supervisor.join();
    for (auto& stream : streams) {
      auto counts = stream->memory.slab().counts();
      for (int r = 0; r < hive::kReasons; ++r) CHECK(counts.retired[r] == stream->retired[r]);
      for (const auto& ends : stream->ends) CHECK(ends == 1);
      counts.produced -= stream->first;
      CHECK(balanced(counts) && counts.produced == static_cast<std::uint64_t>(count));
      for (int i = 0; i < kSlots; ++i) CHECK(stream->memory.slot(i).word == 0);
    }
  }

  int count;
  std::vector<std::unique_ptr<Stream>> streams;
  Life lives[kStreams + kConsumers];
  std::atomic<int> left;
  std::atomic<bool> over{false};
};

}  // namespace

int main(int argc, char** argv) {
  const double scale = argc > 1 ? std::atof(argv[1]) : 1;
  one_slot_can_be_asked_for();
  the_legal_transitions_and_no_others();
  wrong_arguments_change_nothing();
  recovery_and_draining_by_state();
  withdrawing_gives_numbers_out_again();
  death_at_every_point_counts_once();
  sequences_wrap();
  a_commit_during_the_look_does_not_overtake();
  the_first_that_is_left();
  what_comes_during_the_look_is_left(500 * scale);
  a_lost_race_is_not_an_empty_slab(20 * scale);
  Hammer(25000 * scale).run();
}
