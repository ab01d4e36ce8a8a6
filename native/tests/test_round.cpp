// Rounds: updates of a small network on boards and a slab, one call against many, what is committed, and what ends a call.
#include "hive/round.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "check.hpp"
#include "hive/program_values.hpp"

namespace {

using namespace hive;

constexpr std::size_t kRows = 5, kInputs = 3, kActions = 2, kParameters = 16 + 16;  // a weight and a bias, each padded
constexpr std::size_t kStatistics = 4, kWeightBytes = kParameters * sizeof(float);
constexpr std::uint32_t kBlocks = 3, kSlots = 2;

struct alignas(64) Line { std::byte bytes[64]; };

struct Memory {
  explicit Memory(std::size_t bytes) : lines((bytes + 63) / 64) {}
  std::byte* data() { return lines.front().bytes; }
  std::size_t size() const { return lines.size() * sizeof(Line); }
  std::vector<Line> lines;
};

struct Places {
  static constexpr SlotFields slot{0, 64, 128, 192, 192 + kWeightBytes, 384, 448, 2, kStatistics, 0};
  static constexpr std::size_t slot_bytes = 512;
  static constexpr std::size_t target = kWeightBytes + 64, weight_bytes = target + kWeightBytes;
  static constexpr OptimizerFields state{256 + 2 * kWeightBytes, 0, 128, 256, 2, 0};
  static constexpr CounterPlaces counts{0, 5, 6, 8, 9, 11, 12, 13, 14};
};

// A learner and a worker whose network maps three numbers to the values of two actions, with a target network.
class World {
 public:
  World()
      : weight_words(Board::control_bytes(kBlocks, 1)), state_words(Board::control_bytes(kBlocks, 1)),
        slab_words(Slab::control_bytes(kSlots)), weights(kBlocks * Places::weight_bytes),
        states(kBlocks * Places::state.bytes), slots(kSlots * Places::slot_bytes), pages(2 * kPageBytes) {
    Board::format(weight_words.data(), kBlocks, 1, 1);
    Board::format(state_words.data(), kBlocks, 1, 1);
    Slab::format(slab_words.data(), kSlots);
    state_board = std::make_unique<Board>(state_words.data(), state_words.size());
    weight_board = std::make_unique<Board>(weight_words.data(), weight_words.size(), state_board.get());
    slab = std::make_unique<Slab>(slab_words.data(), slab_words.size());
    const int block = weight_board->begin(), state = state_board->begin();
    float* const first = at(weights, block * Places::weight_bytes);
    for (std::size_t i = 0; i < kParameters; ++i) first[i] = 0.1F * static_cast<float>(i % 7) - 0.3F;
    std::memcpy(weights.data() + block * Places::weight_bytes + Places::target, first, kWeightBytes);
    weight_board->seal(block, 0);
    state_board->seal(state, 0);
    state_board->publish(0);
    for (std::size_t i = 0; i < observations.size(); ++i) observations[i] = std::sin(static_cast<float>(i));
  }

  static float* at(Memory& memory, std::size_t offset) { return reinterpret_cast<float*>(memory.data() + offset); }

  RoundMemory memory() {
    RoundMemory memory{};
    memory.weights = weight_board.get();
    memory.optimizer = state_board.get();
    memory.weight_blocks = {weights.data(), Places::weight_bytes};
    memory.optimizer_blocks = {states.data(), Places::state.bytes};
    memory.slab = slab.get();
    memory.slots = {slots.data(), Places::slot_bytes};
    memory.slot = Places::slot;
    memory.weight = {kParameters, kWeightBytes, Places::target, {{20, 2}}};
    memory.state = Places::state;
    memory.counts = Places::counts;
    memory.groups = {{{0, kParameters}, {0, 2}}};
    auto* const page = reinterpret_cast<Page*>(pages.data());
    memory.actors = {{0, 0}, {1, 0}, page, page + 1, 0, 0, 0, 0, 0};
    return memory;
  }

  Program program() {
    Program steps;
    const auto pick = [&](const auto& source, std::size_t width, Register& into) {
      steps.push_back(std::make_unique<Pick>(reinterpret_cast<const std::byte*>(source.data()), kRows, width, into));
    };
    pick(observations, kInputs * sizeof(float), rows);
    pick(actions, sizeof(std::int64_t), taken);
    pick(targets, sizeof(float), wanted);
    const DenseLayer layer{kInputs, kActions, 0, 16};
    steps.push_back(std::make_unique<Forward>(DenseNetwork({{layer}}, kParameters),
                                              std::vector<BranchHeads>{{{kActions, -1, false, false, 0, &values, &to_values}}}, rows,
                                              false, true));
    auto& forward = static_cast<Forward&>(*steps.back());
    steps.push_back(std::make_unique<QStep>(true, ValueInputs{values, taken, wanted, nullptr}, to_values));
    steps.push_back(std::make_unique<Backward>(forward));
    return steps;
  }

  std::size_t run(const Program& program, std::size_t updates, Ended& ended) {
    RoundCall call{};
    call.turn = state_board->latest();
    call.learning_rates = {0.01};
    call.clip_gradients = 0.5;
    call.optimizer = {Optimizer::Kind::adam, 0.9, 0.999, 1e-8, 0, 0, 0.1, true, false};
    call.target_interval = 2;
    call.target_rate = 0.5;
    call.programs = {&program};
    call.masks = {mask};
    call.kinds.assign(updates, 0);
    call.words.assign(updates, {});
    call.limit_ns = 1'000'000'000;
    const std::vector<std::int64_t> picked{4, 1, 2};
    const std::vector<std::span<const std::int64_t>> batches(updates, picked);
    std::vector<UpdateReport> reports;
    std::vector<double> statistics(updates * kStatistics);
    const std::size_t made = Round(memory()).run(call, batches, reports, statistics, ended);
    CHECK(reports.size() == made);
    return made;
  }

  std::vector<std::byte> newest() {
    const int block = weight_board->find(state_board->latest());
    CHECK(block >= 0);
    const std::byte* const first = weights.data() + static_cast<std::size_t>(block) * Places::weight_bytes;
    return {first, first + Places::weight_bytes};
  }

  std::int64_t count(std::size_t place) {
    const int block = state_board->find(state_board->latest());
    return reinterpret_cast<const std::int64_t*>(states.data() + static_cast<std::size_t>(block) * Places::state.bytes)[place];
  }

  Memory weight_words, state_words, slab_words, weights, states, slots, pages;
  std::unique_ptr<Board> weight_board, state_board;
  std::unique_ptr<Slab> slab;
  std::vector<float> observations = std::vector<float>(kRows * kInputs);
  std::vector<float> targets{1.0F, -1.0F, 0.5F, 0.0F, 2.0F};
  std::vector<std::int64_t> actions{0, 1, 1, 0, 1};
  std::vector<std::uint8_t> mask{1, 1};
  Register rows, taken, wanted, values, to_values;
};

void one_call_equals_many() {
  World one, many;
  const Program program = one.program(), same = many.program();
  Ended ended;
  CHECK(one.run(program, 6, ended) == 6 && ended == Ended::all);
  for (int update = 0; update < 6; ++update) CHECK(many.run(same, 1, ended) == 1);
  CHECK(one.newest() == many.newest());
  for (const std::size_t place : {0u, 11u, 12u, 13u}) CHECK(one.count(place) == 6);
  CHECK(one.count(Places::counts.target_updates) == 3);
  const SlabCounts counts = one.slab->counts();
  CHECK(counts.produced == 6 && counts.retired[0] == 6 && counts.in_flight == 0);
}

void frozen_parameters_stay() {
  World world;
  const auto before = world.newest();
  const Program program = world.program();
  Ended ended;
  CHECK(world.run(program, 4, ended) == 4);
  const auto after = world.newest();
  CHECK(std::memcmp(before.data() + 80, after.data() + 80, 8) == 0);
  CHECK(std::memcmp(before.data(), after.data(), 64) != 0);
}

void a_gradient_without_samples_changes_nothing() {
  World world;
  const Program program = world.program(), none;
  Ended ended;
  CHECK(world.run(program, 3, ended) == 3);  // the target follows the second and the fourth update
  const auto before = world.newest();
  CHECK(world.run(none, 2, ended) == 2 && ended == Ended::all);
  CHECK(world.newest() == before && world.state_board->latest() == 5);
  for (const std::size_t place : {0u, 11u, 12u, 13u}) CHECK(world.count(place) == 3);
  CHECK(world.count(Places::counts.target_updates) == 1);
  CHECK(world.slab->counts().retired[0] == 5);
  CHECK(world.run(program, 1, ended) == 1 && world.count(Places::counts.target_updates) == 2);
}

void what_is_not_finite_is_not_committed() {
  World world;
  const Program program = world.program();
  Ended ended;
  CHECK(world.run(program, 2, ended) == 2);
  const auto before = world.newest();
  world.targets[4] = std::numeric_limits<float>::infinity();
  CHECK(world.run(program, 3, ended) == 0 && ended == Ended::not_finite);
  world.targets[4] = 2.0F;
  world.actions[1] = 7;  // an action that does not exist
  CHECK(world.run(program, 3, ended) == 0 && ended == Ended::not_finite);
  CHECK(world.state_board->latest() == 2 && world.newest() == before);
  CHECK(world.slab->counts().in_flight == 0 && world.slab->state(0) == SlotState::free);
  world.actions[1] = 1;
  CHECK(world.run(program, 1, ended) == 1 && world.state_board->latest() == 3);
}

void a_full_slab_ends_a_call() {
  World world;
  const Program program = world.program();
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    const int reserved = world.slab->reserve({0, 0});
    world.slab->commit(reserved, {0, 0});
  }
  Ended ended;
  CHECK(world.run(program, 1, ended) == 0 && ended == Ended::no_slot);
}

}  // namespace

int main() {
  one_call_equals_many();
  frozen_parameters_stay();
  a_gradient_without_samples_changes_nothing();
  what_is_not_finite_is_not_committed();
  a_full_slab_ends_a_call();
}
