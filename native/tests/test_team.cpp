// team.hpp: every part of every pass is computed once, whatever the threads do; callers that meet compute alone; a forked
// process has a team of its own. Under ThreadSanitizer it shows that the parts' writes are there when `share` returns.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.hpp"
#include "hive/team.hpp"

namespace {

constexpr int kPasses = 20'000;

// Passes whose parts add to plain numbers: a part that is lost, repeated or late gives another sum.
void hammer(std::size_t most_parts, int passes) {
  std::vector<long> sums(most_parts);
  std::vector<long> expected(most_parts);
  for (int pass = 0; pass < passes; ++pass) {
    const std::size_t parts = 1 + static_cast<std::size_t>(pass) % most_parts;
    hive::share(parts, [&](std::size_t part) { sums[part] += pass; });
    for (std::size_t part = 0; part < parts; ++part) expected[part] += pass;
    if (pass % 97 == 0) CHECK(sums == expected);
  }
  CHECK(sums == expected);
}

bool refuses(std::size_t count) {
  try {
    hive::set_threads(count);
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

// All parts wait for each other, so that they end only if as many threads compute them.
void meets(std::size_t parts) {
  std::atomic<std::size_t> here{0};
  hive::share(parts, [&](std::size_t) {
    ++here;
    while (here < parts) std::this_thread::yield();
  });
  CHECK(here == parts);
}

}  // namespace

int main() {
  CHECK(refuses(0));
  CHECK(refuses(hive::kMostThreads + 1));
  CHECK(hive::threads() == 1);
  hammer(5, 100);  // alone
  for (const std::size_t count : {2, 4}) {
    hive::set_threads(count);
    CHECK(hive::threads() == count);
    hammer(7, kPasses);
    meets(count);
  }
  std::thread other([] { hammer(3, kPasses); });
  hammer(3, kPasses);
  other.join();
#if !defined(__SANITIZE_THREAD__)  // which allows no threads after a fork
  const pid_t child = fork();
  if (child == 0) {
    hammer(7, 100);
    meets(4);
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#endif
  hammer(7, 100);
}
