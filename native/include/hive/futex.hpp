// A notifier: one 32-bit word in shared memory that sleepers wait on and anyone rings.
//
//   sleeper:  seen = notifier.load();  look at the shared state;  nothing there?  wait(seen)
//   ringer:   change the shared state;  notify()
//
// A notify between `seen` and `wait` changes the word, so the kernel refuses to sleep: no wake-up is lost. `sleepers`
// only spares the ringer a system call when nobody sleeps. A sleeper that is killed inside `wait` leaves it one too
// high for ever; that costs superfluous system calls and nothing else. Every wait has a limit all the same.
#pragma once
#include <atomic>
#include <cstdint>

namespace hive {

struct Notifier {
  std::atomic<std::uint32_t> word;
  std::atomic<std::uint32_t> sleepers;

  std::uint32_t seen() const noexcept { return word.load(std::memory_order_seq_cst); }
  void notify() noexcept;
  // Sleeps until the word differs from `seen` or `limit_ns` have passed; true when it was notified. A signal, or a ringer
  // that was late with the wake-up of an earlier notify, may end it before that: whoever waits looks again.
  bool wait(std::uint32_t seen, std::uint64_t limit_ns) noexcept;
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace hive
