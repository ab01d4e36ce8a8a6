// The threads of a process that compute the parts of one pass together.
//
//     share(parts, [&](std::size_t part) { .. });     // returns when all parts are done
//
// The caller computes parts too, so nothing waits for a thread that has not woken yet. A part may be computed by any
// thread, so it writes only what no other part reads or writes. Helpers are started by the first pass that has parts for
// them, look for more parts for some microseconds after each pass, and then sleep. Where another thread of the process is inside `share`, the caller computes all parts itself.
//
// A process that was forked has no helpers and starts its own.
#pragma once

#include <cstddef>
#include <type_traits>

namespace hive {

inline constexpr std::size_t kMostThreads = 256;  // the number of parts fits the 16 bits that a ticket has for it

// How many threads compute a pass, the caller's included: 1 to kMostThreads; 1 until set_threads is called. Throws
// std::invalid_argument for others. spin_us: how long a helper looks for the next pass before it sleeps. The shares of
// one pass follow each other within microseconds; until the next pass others may need the core.
void set_threads(std::size_t count, std::size_t spin_us = 20);
std::size_t threads();

// How many threads would begin with the parts of a pass at once: the caller, and helpers that look for parts now.
std::size_t threads_awake();

namespace team {

using Part = void (*)(void* work, std::size_t part);

void run(std::size_t parts, Part part, void* work);

}  // namespace team

// Calls work(part) for every part < parts. `work` must not throw.
template <typename Work>
void share(std::size_t parts, Work&& work) {
  using Plain = std::remove_reference_t<Work>;
  if (parts == 1) {
    work(std::size_t{0});
    return;
  }
  team::run(parts, [](void* given, std::size_t part) { (*static_cast<Plain*>(given))(part); }, &work);
}

}  // namespace hive
