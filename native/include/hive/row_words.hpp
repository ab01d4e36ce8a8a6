// A row word: with it one process orders steps from another, and waits for them.
//
//   collector   order(command)                          answered(limit): the code, or none yet
//   helper      ordered(limit): the command, or none    answer(code)
//
// What an order is about lies in memory that both share; the word only says that it is there. A notifier of each side
// (futex.hpp) makes the writes before `order` and `answer` visible to the other side. One order is open at a time.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>

#include "hive/futex.hpp"

namespace hive {

struct alignas(64) RowWord {
  Notifier orders;
  Notifier answers;
  std::atomic<std::uint32_t> command;
  std::atomic<std::uint32_t> code;

  void order(std::uint32_t given) noexcept {
    command.store(given, std::memory_order_relaxed);
    orders.notify();
  }

  void answer(std::uint32_t given) noexcept {
    code.store(given, std::memory_order_relaxed);
    answers.notify();
  }

  bool open() const noexcept { return orders.seen() != answers.seen(); }

  std::optional<std::uint32_t> ordered(std::uint64_t limit_ns, std::uint64_t spin_ns) noexcept {
    if (!open()) orders.wait(answers.seen(), limit_ns, spin_ns);
    if (!open()) return std::nullopt;
    return command.load(std::memory_order_relaxed);
  }

  std::optional<std::uint32_t> answered(std::uint64_t limit_ns, std::uint64_t spin_ns) noexcept {
    const auto seen = answers.seen();
    if (open()) answers.wait(seen, limit_ns, spin_ns);
    if (open()) return std::nullopt;
    return code.load(std::memory_order_relaxed);
  }

  // How long a side looks for the other before it sleeps, where each has a core of its own. Longer than a small policy
  // takes for its actions, so that a helper need not be woken for each step.
  static constexpr std::uint64_t kSpinNs = 50'000;
};

static_assert(sizeof(RowWord) == 64);

// A gate behind the words of several processes: the collector sleeps there once until all of them have answered, instead
// of once for each. Arrivals are only counted: the words decide what was answered, so one too many or too few, as after
// the death of a process, wakes the collector early or late and has no other effect.
struct alignas(64) RowGate {
  Notifier all;
  std::atomic<std::int32_t> left;

  void expect(std::int32_t arrivals) noexcept { left.store(arrivals, std::memory_order_seq_cst); }

  void arrive() noexcept {
    if (left.fetch_sub(1, std::memory_order_seq_cst) == 1) all.notify();
  }

  bool wait(std::uint64_t limit_ns, std::uint64_t spin_ns) noexcept {
    const auto seen = all.seen();
    if (left.load(std::memory_order_seq_cst) > 0) all.wait(seen, limit_ns, spin_ns);
    return left.load(std::memory_order_seq_cst) <= 0;
  }
};

static_assert(sizeof(RowGate) == sizeof(RowWord));

}  // namespace hive
