// A status page: 4096 bytes in which one actor says how it is. Only the actor writes; anyone may read at any time,
// also when the actor hangs or is dead, and reading costs it nothing.
//
//      0  magic u64            8  notifier (word, sleepers)       16  pid u32 · incarnation u32
//     24  state u32 · phase u32                               32  since_ns u64  (CLOCK_MONOTONIC, start of the phase)
//     40  progress u64  (phase changes so far)                48  version i64 · lag i64
//     64  phase_ns[32] u64   time spent in each phase        320  counters[64] f64
//    832  name[48]                                           880  kind[32] u8   what each phase is (see Kind)
//    912  phase names [32][24]                              1680  counter names [64][32]
//   3728  pulse_ns u64  (CLOCK_MONOTONIC, when its event loop last ran)
//   3736  waiting u32  (it waits in its event loop for shared memory to change: see set_waiting)
//   3740  asks u32  (the channel of which it waits for a message of anybody: see ask)
//   3744  change: which u32 · values f64[2]  (of two counters that change together: see add_both)
//   3768  mail u32  (messages sent to the actor's process so far)
//
// `enter(phase)` is the hot call: one clock reading, one addition, three stores.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "hive/clock.hpp"
#include "hive/futex.hpp"

namespace hive {

constexpr int kPhases = 32, kCounters = 64;
constexpr std::size_t kPageBytes = 4096;

enum class Kind : std::uint8_t { busy = 0, wait_in = 1, wait_out = 2, runtime = 3 };

// Two counters and what they are to become. `which` is 0, or  first + 1 | (second + 1) << 16  while that has to be done.
struct Change {
  std::atomic<std::uint32_t> which;
  std::atomic<double> values[2];
};

struct alignas(64) Page {
  std::atomic<std::uint64_t> magic;
  Notifier notifier;
  std::atomic<std::uint32_t> pid, incarnation, state, phase;
  std::atomic<std::uint64_t> since_ns, progress;
  std::atomic<std::int64_t> version, lag;
  std::atomic<std::uint64_t> phase_ns[kPhases];
  std::atomic<double> counters[kCounters];
  char name[48];
  std::uint8_t kind[kPhases];
  char phase_name[kPhases][24];
  char counter_name[kCounters][32];
  std::atomic<std::uint64_t> pulse_ns;
  std::atomic<std::uint32_t> waiting;
  std::atomic<std::uint32_t> asks;
  Change change;
  std::atomic<std::uint32_t> mail;
};
static_assert(sizeof(Page) <= kPageBytes);
static_assert(offsetof(Page, counter_name) == 1680 && offsetof(Page, pulse_ns) == 3728 && offsetof(Page, asks) == 3740);
static_assert(offsetof(Page, change) == 3744 && offsetof(Change, values) == 8 && offsetof(Page, mail) == 3768);

void enter(Page& page, int phase) noexcept;
// An actor that shares its process cannot sleep on the notifier: it waits, and a message has to wake it.
//
//   waiter:  set_waiting();  look at the shared state;  nothing there?  await a message
//   ringer:  change the shared state;  notify_all()?  send the message
//
// Of many that change something meanwhile only the first is told to send it.
void set_waiting(Page& page) noexcept;
bool notify_all(Page& page) noexcept;
// Of many that wait for a message of a channel, whichever and from whomever, one is enough to wake.
//
//   waiter:  ask(channel);  look for a message;  nothing there?  sleep          once it goes on:  unask()
//   ringer:  commit;  the first page that is `picked` is roused, the others sleep on
//
// A pick takes the asking away, so the next message wakes somebody else. Whoever finds at `unask` that it was picked and
// has not looked since is to pick another in its place. Who waits for a message that not everybody can take asks for
// `channel | kEvery`: it is roused by every message and never picked; kEvery alone is every message of every channel.
constexpr std::uint32_t kEvery = 1u << 31;
void ask(Page& page, std::uint32_t channel) noexcept;
bool unask(Page& page) noexcept;  // whether it was picked since it asked last
bool picked(Page& page, std::uint32_t channel) noexcept;
// The ringer's part: looks at `count` pages, from the `first` on and around, as page_at(i); waiting(i) is told of those
// that are to be sent a message.
template <class PageAt, class Waiting>
void notify_one(std::size_t count, std::size_t first, std::uint32_t channel, PageAt&& page_at, Waiting&& waiting) {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // after the commit that this is about
  bool found = false;
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t i = (first + k) % count;
    Page& page = page_at(i);
    const auto asks = page.asks.load(std::memory_order_relaxed);
    if (asks != (channel | kEvery) && asks != kEvery) {
      if (found || !picked(page, channel)) continue;
      found = true;
    }
    if (notify_all(page)) waiting(i);
  }
}
// Adds to two counters as one: what is taken from the one is in the other, or nothing has happened. An actor that is
// killed within leaves word of what they were to become, and whoever speaks for it after its death `completes` that,
// which does no harm a second time. Somebody who looks meanwhile can see the first changed and the second not yet.
void add_both(Page& page, int first, double by, int second, double by_second) noexcept;
void complete(Page& page) noexcept;
// The half of it that a death can leave undone, for tests.
void prepare(Page& page, int first, double by, int second, double by_second) noexcept;
// Names a phase or counter; the same name gives the same index again. Throws std::length_error when the page is full
// or the name too long.
int name_phase(Page& page, const std::string& name, Kind kind);
int name_counter(Page& page, const std::string& name);

}  // namespace hive
