// Exchanges: weights for rollouts, what is appended, what the ledger counts, and what ends one before it has begun.
#include "hive/exchange.hpp"

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "check.hpp"

namespace {

using namespace hive;

constexpr std::size_t kSteps = 2, kRing = 8, kKept = 3, kCollectors = 2;
constexpr std::uint32_t kSlots = 2, kBlocks = 4;
constexpr std::uint64_t kForever = ~std::uint64_t{0};

struct alignas(64) Line { std::byte bytes[64]; };

struct Memory {
  explicit Memory(std::size_t bytes) : lines((bytes + 63) / 64) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(lines.data()); }
  std::size_t size() const { return lines.size() * sizeof(Line); }
  std::vector<Line> lines;
};

// Bytes of a rollout of two steps of one environment, whose observations and actions are one float.
constexpr RolloutPlaces kPlaces{0, 64, 96, 128, 160, 192, 0, 0, 224, 232, 240, 248, 256};
constexpr std::size_t kSlotBytes = 320;
constexpr LedgerBlock kLedger{192, 0, 64, 80, 96, 0, 4, 0};
constexpr LedgerPlaces kCounts{2, 1, 3};
constexpr Owner kLearner{5, 0};

class World {
 public:
  World() : ledger_words(Board::control_bytes(kBlocks, 1)), behaviour_words(Board::control_bytes(kBlocks, 2)),
            ledgers(kBlocks * kLedger.bytes), behaviours(kBlocks * 64), pages(3 * kPageBytes) {
    Board::format(ledger_words.data(), kBlocks, 1, 1);
    Board::format(behaviour_words.data(), kBlocks, 2, 1);
    ledger.emplace(ledger_words.data(), ledger_words.size());
    behaviour.emplace(behaviour_words.data(), behaviour_words.size());
    ledger->seal(ledger->begin(), 0);
    ledger->publish(0);
    behaviour->seal(behaviour->begin(), 0);
    behaviour->publish(0);
    rows = {kCollectors, kRing, 1, sizeof(float), sizeof(float), bytes(observations), bytes(finals), bytes(actions),
            rewards.data(), terminated.data(), truncated.data(), valid.data()};
    tree.emplace(leaves);
    writer.emplace(rows, *tree, ReplayKept{kKept, 1}, 0.0, 1e-6F, kCounts);
    ExchangeMemory memory{};
    for (std::size_t each = 0; each < kCollectors; ++each) {
      Memory& words = slab_words.emplace_back(Slab::control_bytes(kSlots));
      Slab::format(words.data(), kSlots);
      slabs.push_back(std::make_unique<Slab>(words.data(), words.size()));
      slots.emplace_back(kSlots * kSlotBytes);
    }
    for (std::size_t each = 0; each < kCollectors; ++each) {
      memory.lines.push_back({slabs[each].get(), {slots[each].data(), kSlotBytes}, page(1 + each)});
    }
    memory.rollout = kPlaces;
    memory.ledger = &*ledger;
    memory.ledger_blocks = {ledgers.data(), kLedger.bytes};
    memory.fields = kLedger;
    memory.behaviour = &*behaviour;
    memory.behaviour_blocks = {behaviours.data(), 64};
    memory.behaviour_bytes = 64;
    memory.writer = &*writer;
    memory.counts = kCounts;
    memory.learner = kLearner;
    memory.page = page(0);
    exchange.emplace(std::move(memory));
  }

  template <typename T>
  static std::byte* bytes(std::vector<T>& array) { return reinterpret_cast<std::byte*>(array.data()); }
  Page* page(std::size_t index) { return reinterpret_cast<Page*>(pages.data() + index * kPageBytes); }

  // Commits the next rollout of a collector, whose observations count up from `first`; its second step may end an episode.
  void commit(std::uint32_t collector, float first, bool begins, bool truncates, std::int64_t length = kSteps) {
    Slab& slab = *slabs[collector];
    const Owner owner{collector, 0};
    const int slot = slab.reserve(owner);
    CHECK(slot >= 0);
    std::byte* const at = slots[collector].data() + static_cast<std::size_t>(slot) * kSlotBytes;
    const std::int64_t header[] = {0, length, truncates, collector, static_cast<std::int64_t>(slab.produced()), begins};
    std::memcpy(at + kPlaces.header, header, sizeof(header));
    const float seen[] = {first, first + 1, first + 2}, taken[] = {-first, -first - 1}, last[] = {first + 100};
    const float gained[] = {1, 2}, returns[] = {0, truncates ? 3.0F : 0.0F};
    const std::uint8_t none[] = {0, 0}, end[] = {0, truncates}, all[] = {1, 1};
    const std::int32_t index[] = {-1, truncates ? 0 : -1}, lengths[] = {0, truncates ? 2 : 0};
    std::memcpy(at + kPlaces.observations, seen, sizeof(seen));
    std::memcpy(at + kPlaces.actions, taken, sizeof(taken));
    std::memcpy(at + kPlaces.finals, last, sizeof(last));
    std::memcpy(at + kPlaces.rewards, gained, sizeof(gained));
    std::memcpy(at + kPlaces.episode_returns, returns, sizeof(returns));
    std::memcpy(at + kPlaces.terminated, none, sizeof(none));
    std::memcpy(at + kPlaces.truncated, end, sizeof(end));
    std::memcpy(at + kPlaces.valid, all, sizeof(all));
    std::memcpy(at + kPlaces.final_index, index, sizeof(index));
    std::memcpy(at + kPlaces.episode_lengths, lengths, sizeof(lengths));
    slab.commit(slot, owner);
  }

  const std::int64_t* counters() { return reinterpret_cast<const std::int64_t*>(exchange->ledger()); }

  Memory ledger_words, behaviour_words, ledgers, behaviours, pages;
  std::vector<Memory> slab_words, slots;
  std::vector<std::unique_ptr<Slab>> slabs;
  std::optional<Board> ledger, behaviour;
  std::vector<float> observations = std::vector<float>(kCollectors * kRing), finals = observations, actions = observations,
                     rewards = observations;
  std::vector<std::uint8_t> terminated = std::vector<std::uint8_t>(kCollectors * kRing), truncated = terminated, valid = terminated;
  std::vector<std::uint32_t> leaves = std::vector<std::uint32_t>(kCollectors * kRing);
  ReplayRows rows{};
  std::optional<PriorityTree> tree;
  std::optional<ReplayWriter> writer;
  std::optional<Exchange> exchange;
  std::vector<std::byte> weights = std::vector<std::byte>(64, std::byte{7});
};

void rollouts_are_appended() {
  World world;
  world.commit(0, 10, true, false);
  CHECK(world.exchange->next(world.weights.data(), 1, 5, 9, 0) == Exchange::Result::late);  // one collector has not come
  CHECK(world.behaviour->latest() == 1 && world.ledger->latest() == 0);
  CHECK(std::memcmp(world.behaviours.data() + world.behaviour->find(1) * 64, world.weights.data(), 64) == 0);
  world.commit(1, 50, true, true);
  CHECK(world.exchange->next(world.weights.data(), 1, 5, 9, kForever) == Exchange::Result::admitted);
  CHECK(world.ledger->latest() == 2 && world.exchange->env_steps() == 4 && world.exchange->ended_episodes());
  CHECK(world.counters()[kCounts.rollouts] == 2 && world.counters()[kCounts.episodes] == 1);
  CHECK(reinterpret_cast<const float*>(world.exchange->ledger() + kLedger.returns)[0] == 3.0F);
  CHECK(world.observations[0] == 10 && world.observations[2] == 12 && world.observations[kRing + 2] == 52);
  CHECK(world.finals[kRing + 1] == 150 && world.actions[1] == -11);
  CHECK(world.leaves[0] == 9 && world.leaves[1] == 9 && world.leaves[2] == 0 && world.valid[2] == 0);
  const auto ended = world.exchange->take_ended();
  CHECK(ended && ended->returns == std::vector<float>{3} && ended->lengths == std::vector<std::int32_t>{2});
  CHECK(ended->columns == std::vector<std::int32_t>{1} && ended->updates == 5 && ended->env_steps == 4);
  CHECK(!world.exchange->take_ended());
  for (const auto& slab : world.slabs) CHECK(slab->counts().retired[0] == 1 && slab->counts().in_flight == 0);
}

void a_seam_lies_between_rollouts_that_do_not_continue() {
  World world;
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t each = 0; each < kCollectors; ++each) world.commit(each, 10.0F * round, each == 1 || round == 0, false);
    CHECK(world.exchange->next(world.weights.data(), 0, 5, 9, kForever) == Exchange::Result::admitted);
  }
  const auto* const written = reinterpret_cast<const std::int64_t*>(world.exchange->ledger() + kLedger.written);
  CHECK(written[0] == 4 && written[1] == 5);
  CHECK(world.leaves[0] == 0);  // of four steps the oldest is not among the three that are kept
  CHECK(world.leaves[kRing] == 0 && world.leaves[kRing + 2] == 0 && world.leaves[kRing + 3] == 9);  // the seam is never drawn
  CHECK(!world.exchange->ended_episodes());
}

void nothing_is_overwritten_that_is_being_saved() {
  World world;
  world.ledger->pin(0, 0);
  for (std::uint32_t each = 0; each < kCollectors; ++each) world.commit(each, 1, true, false);
  CHECK(world.exchange->next(world.weights.data(), 0, 5, 9, kForever) == Exchange::Result::saving);
  CHECK(world.ledger->latest() == 0 && world.slabs[0]->state(0) == SlotState::full);
}

void a_rollout_that_does_not_fit_is_left() {
  World world;
  for (std::uint32_t each = 0; each < kCollectors; ++each) world.commit(each, 1, true, false, kRing - 1);
  CHECK(world.exchange->next(world.weights.data(), 0, 5, 9, kForever) == Exchange::Result::refused);
  CHECK(world.slabs[0]->state(0) == SlotState::full);
}

}  // namespace

int main() {
  rollouts_are_appended();
  a_seam_lies_between_rollouts_that_do_not_continue();
  nothing_is_overwritten_that_is_being_saved();
  a_rollout_that_does_not_fit_is_left();
}
