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

}  // namespace hive
