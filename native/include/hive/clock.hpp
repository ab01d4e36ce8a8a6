// The clock of status pages and waits: CLOCK_MONOTONIC in nanoseconds, the same in every process of the machine.
#pragma once
#include <cstdint>
#include <ctime>

namespace hive {

inline std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace hive
