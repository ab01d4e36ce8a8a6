#include "hive/status.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>
#include <stdexcept>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hive {

void Notifier::notify() noexcept {
  word.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

bool Notifier::wait(std::uint32_t seen_word, std::uint64_t limit_ns, std::uint64_t spin_ns) noexcept {
  for (const auto until = monotonic_ns() + std::min(limit_ns, spin_ns); monotonic_ns() < until; sched_yield()) {
    if (seen() != seen_word) return true;
  }
  timespec limit{static_cast<time_t>(limit_ns / 1'000'000'000), static_cast<long>(limit_ns % 1'000'000'000)};
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen_word, &limit, nullptr, 0);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return seen() != seen_word;
}

void enter(Page& page, int phase) noexcept {
  constexpr auto relaxed = std::memory_order_relaxed;  // one writer; readers want a recent value, not an order
  const auto now = monotonic_ns();
  const auto since = page.since_ns.load(relaxed);
  auto& spent = page.phase_ns[page.phase.load(relaxed)];
  if (since != 0) spent.store(spent.load(relaxed) + (now - since), relaxed);
  page.phase.store(static_cast<std::uint32_t>(phase), relaxed);
  page.since_ns.store(now, relaxed);
  page.progress.store(page.progress.load(relaxed) + 1, relaxed);
}

// Both are read-modify-writes in one total order, so either the waiter sees the change or the writer sees set_waiting.
void set_waiting(Page& page) noexcept { page.waiting.exchange(1, std::memory_order_seq_cst); }

bool notify_all(Page& page) noexcept {
  page.notifier.notify();
  return page.waiting.load(std::memory_order_seq_cst) != 0 && page.waiting.exchange(0, std::memory_order_seq_cst) != 0;
}

// As in Dekker's algorithm: the waiter requests, then checks for a message; the writer commits, then checks for
// requests. The fences guarantee that at least one of them sees the other's store.
void request_wake(Page& page, std::uint32_t channel) noexcept {
  page.wake_request.store(channel, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool withdraw_wake(Page& page) noexcept { return page.wake_request.exchange(0, std::memory_order_seq_cst) == 0; }

bool picked(Page& page, std::uint32_t channel) noexcept {
  return page.wake_request.load(std::memory_order_seq_cst) == channel && page.wake_request.compare_exchange_strong(channel, 0, std::memory_order_seq_cst);
}

// The order of the stores: the values, then `which` (prepare), then the counters, then `which` = 0 (complete). A kill
// preserves all stores before it, so `which` != 0 means that the values are valid and the counters may need them.
void prepare(Page& page, int first, double by, int second, double by_second) noexcept {
  constexpr auto relaxed = std::memory_order_relaxed;
  page.change.values[0].store(page.counters[first].load(relaxed) + by, relaxed);
  page.change.values[1].store(page.counters[second].load(relaxed) + by_second, relaxed);
  page.change.which.store(static_cast<std::uint32_t>(first + 1) | static_cast<std::uint32_t>(second + 1) << 16,
                          std::memory_order_release);
}

void complete(Page& page) noexcept {
  const auto which = page.change.which.load(std::memory_order_acquire);
  if (which == 0) return;
  const std::uint32_t counters[] = {(which & 0xffff) - 1, (which >> 16) - 1};
  for (int i = 0; i < 2; ++i) {
    if (counters[i] < kCounters) page.counters[counters[i]].store(page.change.values[i].load(std::memory_order_relaxed), std::memory_order_release);
  }
  page.change.which.store(0, std::memory_order_release);
}

void add_both(Page& page, int first, double by, int second, double by_second) noexcept {
  prepare(page, first, by, second, by_second);
  complete(page);
}

namespace {
template <std::size_t N, std::size_t L>
int name_in(char (&names)[N][L], const std::string& name, const char* what) {
  if (name.empty() || name.size() >= L) throw std::length_error(std::string(what) + " name `" + name + "` must have 1 to " + std::to_string(L - 1) + " bytes");
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i][0] == '\0') {
      std::memcpy(names[i], name.c_str(), name.size() + 1);
      return static_cast<int>(i);
    }
    if (name == names[i]) return static_cast<int>(i);
  }
  throw std::length_error("a status page holds at most " + std::to_string(N) + " " + what + "s");
}
}  // namespace

int name_phase(Page& page, const std::string& name, Kind kind) {
  const int index = name_in(page.phase_name, name, "phase");
  page.kind[index] = static_cast<std::uint8_t>(kind);
  return index;
}

int name_counter(Page& page, const std::string& name) { return name_in(page.counter_name, name, "counter"); }

}  // namespace hive
