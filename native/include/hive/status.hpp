// A status page: 4096 bytes that show what one actor does. Only the actor writes. Any process may read at any time,
// also when the actor hangs or has exited, and reading costs the actor nothing.
//
//      0  magic u64            8  notifier (word, sleepers)       16  pid u32 · incarnation u32
//     24  state u32 · phase u32                               32  since_ns u64  (CLOCK_MONOTONIC, start of the phase)
//     40  progress u64  (phase changes so far)                48  version i64 · lag i64
//     64  phase_ns[32] u64   time spent in each phase        320  counters[64] f64
//    832  name[48]                                           880  kind[32] u8   what each phase is (see Kind)
//    912  phase names [32][24]                              1680  counter names [64][32]
//   3728  pulse_ns u64  (CLOCK_MONOTONIC, when its event loop last ran)
//   3736  waiting u32  (the actor waits in its event loop for a change of shared memory: see set_waiting)
//   3740  wake_request u32  (the channel whose next message is to wake the actor: see request_wake)
//   3744  change: which u32 · values f64[2]  (two counters that change together: see add_both)
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

// The new values of two counters. `which` is 0, or  first + 1 | (second + 1) << 16  until both have been stored.
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
  std::atomic<std::uint32_t> wake_request;
  Change change;
  std::atomic<std::uint32_t> mail;
};
static_assert(sizeof(Page) <= kPageBytes);
static_assert(offsetof(Page, counter_name) == 1680 && offsetof(Page, pulse_ns) == 3728 && offsetof(Page, wake_request) == 3740);
static_assert(offsetof(Page, change) == 3744 && offsetof(Change, values) == 8 && offsetof(Page, mail) == 3768);

void enter(Page& page, int phase) noexcept;
// An actor that shares its process cannot sleep on the notifier: it awaits a Notify message in its event loop.
//
//   waiter:  set_waiting();  check the shared state;  nothing there?  await a message
//   writer:  change the shared state;  notify_all() returns true?  send the message
//
// notify_all returns true once per set_waiting, so only the first of several writers sends a message.
void set_waiting(Page& page) noexcept;
bool notify_all(Page& page) noexcept;
// Several consumers compete for the messages of a channel. Each message wakes one of them.
//
//   waiter:  request_wake(channel);  check for a message;  nothing there?  sleep          afterwards:  withdraw_wake()
//   writer:  commit;  notify the first waiter that is `picked`; the others sleep on
//
// A pick clears the request, so the next message wakes another waiter. If withdraw_wake returns that the actor was
// picked and it has not checked for a message since, it must notify another waiter in its place. An actor that waits
// for one particular message requests `channel | kEvery`: every message of the channel wakes it, and it is never
// picked. kEvery alone requests every message of every channel.
constexpr std::uint32_t kEvery = 1u << 31;
void request_wake(Page& page, std::uint32_t channel) noexcept;
bool withdraw_wake(Page& page) noexcept;  // whether the actor was picked since its last request
bool picked(Page& page, std::uint32_t channel) noexcept;
// The writer's part. Considers `count` pages page_at(i) in rotation, beginning with `first`, and calls waiting(i) for
// those whose actors need a Notify message.
template <class PageAt, class Waiting>
void notify_one(std::size_t count, std::size_t first, std::uint32_t channel, PageAt&& page_at, Waiting&& waiting) {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // orders the commit before the loads of the requests
  bool found = false;
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t i = (first + k) % count;
    Page& page = page_at(i);
    const auto request = page.wake_request.load(std::memory_order_relaxed);
    if (request != (channel | kEvery) && request != kEvery) {
      if (found || !picked(page, channel)) continue;
      found = true;
    }
    if (notify_all(page)) waiting(i);
  }
}
// Adds to two counters so that a kill leaves both changed or neither. The new values are stored first; after a kill the
// supervisor or the next incarnation stores them with `complete`, which may be repeated. A reader may see the first
// counter changed before the second.
void add_both(Page& page, int first, double by, int second, double by_second) noexcept;
void complete(Page& page) noexcept;
// The first half of add_both, after which a kill leaves the counters unchanged. For tests.
void prepare(Page& page, int first, double by, int second, double by_second) noexcept;
// Returns the index of the phase or counter `name`, adding it at first use. Throws std::length_error when the page is
// full or the name too long.
int name_phase(Page& page, const std::string& name, Kind kind);
int name_counter(Page& page, const std::string& name);

}  // namespace hive
