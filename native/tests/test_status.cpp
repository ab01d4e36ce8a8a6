// Status pages: names, times, notifiers, wake requests, and counters that change together even if their actor is killed.
// The optional argument multiplies the length of the hammers.
#include "hive/status.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"

namespace {

using hive::kEvery;
using hive::Kind;
using hive::Page;

constexpr std::uint64_t kMinute = 60'000'000'000;

std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }

std::unique_ptr<Page> blank() { return std::make_unique<Page>(); }

template <class Error, class Work>
bool raises(Work&& work) {
  try {
    work();
  } catch (const Error&) {
    return true;
  }
  return false;
}

void names_are_given_once() {
  const auto page = blank();
  CHECK(hive::name_phase(*page, "runtime", Kind::runtime) == 0 && hive::name_phase(*page, "step", Kind::busy) == 1);
  CHECK(hive::name_phase(*page, "runtime", Kind::runtime) == 0);
  CHECK(std::strcmp(page->phase_name[1], "step") == 0 && page->kind[0] == static_cast<std::uint8_t>(Kind::runtime));
  for (int i = 0; i < hive::kCounters; ++i) CHECK(hive::name_counter(*page, "counter " + std::to_string(i)) == i);
  CHECK(raises<std::length_error>([&] { hive::name_counter(*page, "one more"); }));
  CHECK(raises<std::length_error>([&] { hive::name_phase(*page, "", Kind::busy); }));
  CHECK(raises<std::length_error>([&] { hive::name_phase(*page, std::string(24, 'x'), Kind::busy); }));
  CHECK(hive::name_phase(*page, std::string(23, 'x'), Kind::busy) == 2);
}

void time_goes_to_the_phase_that_was() {
  const auto page = blank();
  hive::enter(*page, 1);
  CHECK(page->phase_ns[0] == 0 && page->phase_ns[1] == 0 && page->progress == 1);
  const std::uint64_t since = page->since_ns;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  hive::enter(*page, 2);
  CHECK(page->phase_ns[1] >= 2'000'000 && page->phase_ns[1] == page->since_ns - since);
  CHECK(page->phase_ns[2] == 0 && page->phase == 2 && page->progress == 2);
}

// Two threads that take turns: one lost wake-up and a wait runs into its limit. (It may end early for nothing.)
void the_bell_wakes(int turns) {
  hive::Notifier notifiers[2]{};
  CHECK(!notifiers[0].wait(notifiers[0].seen(), 1));
  CHECK(notifiers[0].wait(notifiers[0].seen() - 1, kMinute));
  std::atomic<int> turn{0};
  const auto play = [&](int me) {
    for (int mine = me; mine < turns; mine += 2) {
      for (auto seen = notifiers[me].seen(); turn.load() != mine; seen = notifiers[me].seen()) {
        const auto begin = now();
        if (turn.load() != mine) CHECK(notifiers[me].wait(seen, kMinute) || now() - begin < std::chrono::seconds(30));
      }
      turn.store(mine + 1);
      notifiers[1 - me].notify();
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  CHECK(notifiers[0].sleepers == 0 && notifiers[1].sleepers == 0);
}

// A waiter that waits is sent one message, however many change something, and misses nothing that changed.
void a_doze_is_ended_once_and_never_missed(int changes) {
  constexpr int kRingers = 3;
  const auto page = blank();
  std::atomic<int> changed{0}, sent{0};
  std::vector<std::thread> writers;
  for (int i = 0; i < kRingers; ++i) {
    writers.emplace_back([&] {
      for (int n = 0; n < changes; ++n) {
        changed.fetch_add(1);
        if (hive::notify_all(*page)) sent.fetch_add(1), sent.notify_one();
      }
    });
  }
  int naps = 0;
  for (int heard = 0; changed.load() < kRingers * changes;) {
    hive::set_waiting(*page);
    const int before = changed.load();
    if (before == kRingers * changes) break;
    // Every later change sends a message; otherwise this loop would never end.
    sent.wait(heard);
    CHECK(changed.load() > before || sent.load() > heard);
    heard = sent.load();
    ++naps;
  }
  for (auto& writer : writers) writer.join();
  CHECK(sent.load() <= naps + 2);
}

// Several consumers compete for the items of one channel, and each sleeps on the notifier of its page. No item may remain
// unclaimed while a consumer sleeps, although each commit wakes only one consumer, and although a consumer that has an
// item works until all other items are claimed, so that it does not check for the item for which it was picked.
struct Pool {
  static constexpr int kConsumers = 4, kProducers = 2;
  static constexpr std::uint32_t kChannel = 5;

  explicit Pool(int count) : each(count) {
    for (auto& page : pages) page = blank();
  }

  void committed(std::size_t first) {
    hive::notify_one(kConsumers, first, kChannel, [this](std::size_t i) -> Page& { return *pages[i]; }, [](std::size_t) {});
  }

  bool take() {
    for (int n = items.load(); n > 0;) {
      if (items.compare_exchange_weak(n, n - 1)) return true;
    }
    return false;
  }

  void produce(unsigned seed) {
    std::minstd_rand random(seed);
    for (int n = 0; n < each; ++n) {
      if (random() % 4 != 0) {
        while (items.load() > 0) std::this_thread::yield();  // the next commit would wake one more, and hide what was lost
      }
      items.fetch_add(1);
      committed(random() % kConsumers);
    }
  }

  // As hive.runtime.carriers.waiting.Waiter.until does it.
  bool next(int me, std::minstd_rand& random) {
    if (take()) return true;
    Page& page = *pages[me];
    bool taken = false;
    while (!taken && eaten.load() < each * kProducers) {
      const auto seen = page.notifier.seen();
      hive::request_wake(page, random() % 8 == 0 ? kChannel | kEvery : kChannel);
      taken = take();
      if (taken || eaten.load() == each * kProducers) break;
      const auto begin = now();
      if (!page.notifier.wait(seen, kMinute)) CHECK(now() - begin < std::chrono::seconds(30));  // no consumer may miss an item
    }
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));  // here it may be picked in vain
    if (hive::withdraw_wake(page)) committed(static_cast<std::size_t>(me + 1) % kConsumers);
    return taken;
  }

  void consume(int me) {
    std::minstd_rand random(static_cast<unsigned>(100 + me));
    while (next(me, random)) {
      working.fetch_add(1);
      while (items.load() > 0 && working.load() < kConsumers) std::this_thread::yield();
      working.fetch_sub(1);
      if (eaten.fetch_add(1) + 1 == each * kProducers) {
        for (auto& page : pages) page->notifier.notify();  // all items are consumed: wake all consumers, so that they end
      }
    }
  }

  void run() {
    std::vector<std::thread> threads;
    for (int i = 0; i < kConsumers; ++i) threads.emplace_back([this, i] { consume(i); });
    for (int i = 0; i < kProducers; ++i) threads.emplace_back([this, i] { produce(static_cast<unsigned>(i)); });
    for (auto& thread : threads) thread.join();
    CHECK(eaten == each * kProducers && items == 0);
    for (auto& page : pages) CHECK(page->notifier.sleepers == 0);
  }

  int each;
  std::unique_ptr<Page> pages[kConsumers];
  std::atomic<int> items{0}, eaten{0}, working{0};
};

// Which pages a commit rouses, from a known state.
void one_who_asks_is_picked_and_all_who_want_everything() {
  std::unique_ptr<Page> pages[5];
  for (auto& page : pages) page = blank();
  const auto notified = [&](std::size_t first) {
    std::uint32_t before[5];
    std::string found;
    for (int i = 0; i < 5; ++i) before[i] = pages[i]->notifier.seen();
    hive::notify_one(5, first, 7, [&](std::size_t i) -> Page& { return *pages[i]; }, [](std::size_t) {});
    for (int i = 0; i < 5; ++i) found += pages[i]->notifier.seen() != before[i] ? static_cast<char>('0' + i) : '-';
    return found;
  };
  CHECK(notified(0) == "-----");
  for (int i : {1, 3}) hive::request_wake(*pages[i], 7);
  hive::request_wake(*pages[0], 7 | kEvery);
  hive::request_wake(*pages[2], 8);
  hive::request_wake(*pages[4], kEvery);
  CHECK(notified(2) == "0--34");
  CHECK(notified(2) == "01--4");
  CHECK(notified(2) == "0---4");
  CHECK(hive::withdraw_wake(*pages[1]) && hive::withdraw_wake(*pages[3]));
  CHECK(!hive::withdraw_wake(*pages[0]) && !hive::withdraw_wake(*pages[2]) && !hive::withdraw_wake(*pages[4]));
  hive::request_wake(*pages[1], 7);
  CHECK(!hive::withdraw_wake(*pages[1]) && notified(0) == "-----");
}

// --- two counters that change together

struct Pair {
  Pair() : page(blank()) {
    page->counters[3] = 10.0;
    page->counters[63] = 5.0;
  }
  bool is(double first, double second) const { return page->counters[3] == first && page->counters[63] == second; }
  std::unique_ptr<Page> page;
};

void a_death_at_any_store_leaves_both_or_neither() {
  Pair whole;
  hive::add_both(*whole.page, 3, 2.0, 63, -2.0);
  CHECK(whole.is(12.0, 3.0) && whole.page->change.which == 0);
  hive::complete(*whole.page);
  CHECK(whole.is(12.0, 3.0));
  Pair values;  // only the values are there, not yet that they are meant
  values.page->change.values[0] = 99.0;
  hive::complete(*values.page);
  CHECK(values.is(10.0, 5.0));
  for (int stored = 0; stored < 3; ++stored) {
    Pair half;
    hive::prepare(*half.page, 3, 2.0, 63, -2.0);
    CHECK(half.is(10.0, 5.0));
    if (stored > 0) half.page->counters[3] = 12.0;
    if (stored > 1) half.page->counters[63] = 3.0;
    hive::complete(*half.page);
    CHECK(half.is(12.0, 3.0) && half.page->change.which == 0);
    hive::complete(*half.page);
    CHECK(half.is(12.0, 3.0));
  }
  Pair torn;  // a corrupt page: `complete` must not write beyond it
  torn.page->change.which = 0xffffffff;
  hive::complete(*torn.page);
  CHECK(torn.is(10.0, 5.0) && torn.page->change.which == 0);
}

// A process that only changes the pair is killed again and again, at whatever it is.
void a_killed_process_leaves_a_pair_that_adds_up(int kills) {
  void* memory = mmap(nullptr, hive::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  Page& page = *new (memory) Page{};
  std::minstd_rand random(1);
  double last = 0.0;
  for (int n = 0; n < kills; ++n) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      for (;;) hive::add_both(page, 0, 1.0, 1, -1.0);
    }
    while (page.counters[0].load() == last) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, nullptr, 0) == child);
    hive::complete(page);
    CHECK(page.counters[0] > last && page.counters[0] + page.counters[1] == 0.0);
    last = page.counters[0];
  }
  munmap(memory, hive::kPageBytes);
}

}  // namespace

int main(int argc, char** argv) {
  const double scale = argc > 1 ? std::atof(argv[1]) : 1;
  names_are_given_once();
  time_goes_to_the_phase_that_was();
  a_death_at_any_store_leaves_both_or_neither();
  a_killed_process_leaves_a_pair_that_adds_up(200 * scale);
  one_who_asks_is_picked_and_all_who_want_everything();
  the_bell_wakes(2000 * scale);
  a_doze_is_ended_once_and_never_missed(20000 * scale);
  Pool(4000 * scale).run();
}
