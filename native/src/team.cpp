#include "hive/team.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "hive/futex.hpp"

namespace hive {
namespace {

constexpr std::uint64_t kSleepNs = 1'000'000'000;  // the limit of one sleep; the condition is then checked again

std::atomic<std::uint64_t> spin_ns{20'000};

// Waits until `ready()`.
template <typename Ready>
void await(Notifier& notifier, const Ready& ready) {
  while (true) {
    const std::uint32_t seen = notifier.seen();
    if (ready()) return;
    notifier.wait(seen, kSleepNs, spin_ns.load(std::memory_order_relaxed));
  }
}

// One pass: its number, how many parts it has, and how many are taken, in one word. So who takes a part knows that its
// pass is not over, and may then read `part` and `work`: these change only after all parts of a pass are done.
struct Ticket {
  std::uint32_t pass;
  std::uint16_t parts;
  std::uint16_t taken;

  static Ticket of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint16_t>(word >> 16),
            static_cast<std::uint16_t>(word)};
  }
  std::uint64_t word() const { return std::uint64_t{pass} << 32 | std::uint64_t{parts} << 16 | taken; }
  bool has_parts() const { return taken < parts; }
};

class Team {
 public:
  std::size_t awake() const {
    const std::size_t asleep = begun_.sleepers.load(std::memory_order_relaxed);
    return helpers_ > asleep ? helpers_ - asleep : 0;
  }

  void run(std::size_t parts, std::size_t wanted, team::Part part, void* work) {
    grow(wanted);
    part_ = part;
    work_ = work;
    done_.store(0, std::memory_order_relaxed);
    tickets_.store(Ticket{++pass_, static_cast<std::uint16_t>(parts), 0}.word(), std::memory_order_release);
    begun_.notify();
    compute();
    const auto all = static_cast<std::uint32_t>(parts);
    await(ended_, [this, all] { return done_.load(std::memory_order_acquire) == all; });
  }

 private:
  // Starts helpers until there are `wanted` threads. A machine that has no more threads to give is no error: the caller
  // computes what no helper takes.
  void grow(std::size_t wanted) {
    if (helpers_ + 1 >= wanted) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the thread that runs Python
    try {
      for (; helpers_ + 1 < wanted; ++helpers_) std::thread([this] { help(); }).detach();
    } catch (const std::system_error&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  [[noreturn]] void help() {
    while (true) {
      await(begun_, [this] { return Ticket::of(tickets_.load(std::memory_order_acquire)).has_parts(); });
      compute();
    }
  }

  // Takes and computes parts until none is left.
  void compute() {
    std::uint64_t word = tickets_.load(std::memory_order_acquire);
    while (Ticket::of(word).has_parts()) {
      if (!tickets_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      const Ticket mine = Ticket::of(word);
      part_(work_, mine.taken);
      // The last part wakes the caller. `mine` is a copy: after this addition the next pass may begin.
      if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == mine.parts) ended_.notify();
      word = tickets_.load(std::memory_order_acquire);
    }
  }

  std::size_t helpers_ = 0;
  std::uint32_t pass_ = 0;
  team::Part part_ = nullptr;
  void* work_ = nullptr;
  alignas(64) std::atomic<std::uint64_t> tickets_{0};
  Notifier begun_{};
  alignas(64) std::atomic<std::uint32_t> done_{0};
  Notifier ended_{};
};

std::atomic<std::size_t> wanted{1};
std::atomic<bool> busy{false};
Team* team_of_process = nullptr;  // only touched by the thread that made `busy` true; never freed, as helpers use it

// In a forked process the helpers are gone, and so may be the thread that was busy.
void forget() {
  team_of_process = nullptr;
  busy.store(false, std::memory_order_relaxed);
}

}  // namespace

void set_threads(std::size_t count, std::size_t spin_us) {
  if (count < 1 || count > kMostThreads) throw std::invalid_argument("the number of threads is 1 to 256");
  wanted.store(count, std::memory_order_relaxed);
  spin_ns.store(1000 * std::uint64_t{spin_us}, std::memory_order_relaxed);
}

std::size_t threads() { return wanted.load(std::memory_order_relaxed); }

std::size_t threads_awake() {
  if (threads() == 1 || busy.exchange(true, std::memory_order_acquire)) return 1;
  const std::size_t helpers = team_of_process ? team_of_process->awake() : 0;
  busy.store(false, std::memory_order_release);
  return std::min(1 + helpers, threads());
}

void team::run(std::size_t parts, Part part, void* work) {
  if (parts > kMostThreads || threads() == 1 || busy.exchange(true, std::memory_order_acquire)) {
    for (std::size_t each = 0; each < parts; ++each) part(work, each);
    return;
  }
  if (!team_of_process) {
    [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, forget);
    team_of_process = new Team;
  }
  team_of_process->run(parts, threads(), part, work);
  busy.store(false, std::memory_order_release);
}

}  // namespace hive
