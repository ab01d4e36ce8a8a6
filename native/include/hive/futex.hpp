// A notifier: a 32-bit word in shared memory on which threads sleep until a writer changes it.
//
//   sleeper:  seen = notifier.seen();  check the shared state;  nothing there?  wait(seen)
//   writer:   change the shared state;  notify()
//
// A notify between `seen` and `wait` changes the word, so the kernel refuses to sleep and no wake-up is lost.
// `sleepers` only saves the writer a system call while no thread sleeps. A sleeper that is killed inside `wait` leaves
// the count one too high forever, which only costs superfluous system calls. Every wait has a limit all the same.
#pragma once
#include <atomic>
#include <cstdint>

namespace hive {

struct Notifier {
  std::atomic<std::uint32_t> word;
  std::atomic<std::uint32_t> sleepers;

  std::uint32_t seen() const noexcept { return word.load(std::memory_order_seq_cst); }
  void notify() noexcept;
  // Sleeps until the word differs from `seen` or `limit_ns` have passed; returns whether it was notified. May return
  // early, after a signal or a delayed wake-up of an earlier notify: the caller checks its condition again.
  // Spins for `spin_ns` first: if a peer is about to notify, sleeping and waking costs more, above all in a virtual
  // machine. 100 us is longer than copying a megabyte takes.
  bool wait(std::uint32_t seen, std::uint64_t limit_ns, std::uint64_t spin_ns = 100'000) noexcept;
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace hive
