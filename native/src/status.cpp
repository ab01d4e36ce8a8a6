#include "hive/status.hpp"

#include <cstring>
#include <stdexcept>

namespace hive {

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

// Both are read-modify-writes in one order with everybody's: either the waiter sees the change, or the ringer the doze.
void doze(Page& page) noexcept { page.dozing.exchange(1, std::memory_order_seq_cst); }

bool rouse(Page& page) noexcept {
  page.bell.ring();
  return page.dozing.load(std::memory_order_seq_cst) != 0 && page.dozing.exchange(0, std::memory_order_seq_cst) != 0;
}

// Dekker's: the waiter asks, then looks; the ringer commits, then looks who asks. The fences keep both from seeing neither.
void ask(Page& page, std::uint32_t channel) noexcept {
  page.asks.store(channel, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool unask(Page& page) noexcept { return page.asks.exchange(0, std::memory_order_seq_cst) == 0; }

bool picked(Page& page, std::uint32_t channel) noexcept {
  return page.asks.load(std::memory_order_seq_cst) == channel && page.asks.compare_exchange_strong(channel, 0, std::memory_order_seq_cst);
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
