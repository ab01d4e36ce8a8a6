#include "hive/round.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "hive/accumulator.hpp"
#include "hive/clock.hpp"
#include "hive/philox.hpp"
#include "hive/priorities.hpp"

namespace hive {
namespace {

constexpr int kConsumed = 0;   // reason to retire a slot (hive.runtime.memory.segments.REASONS)
constexpr double kMargin = 1e-6;  // added to the norm before clipping (hive.networks.weights.optimizers.MARGIN)

// Positions in the header of a gradient (hive.gradients.blocks.HEADER).
enum Header : std::size_t { kVersion, kSamples, kEpisodes, kEnvSteps, kRollouts, kPolicy, kSequence, kCause };

template <typename T>
T* at(std::byte* block, std::size_t offset) {
  return reinterpret_cast<T*>(block + offset);
}
template <typename T>
const T* at(const std::byte* block, std::size_t offset) {
  return reinterpret_cast<const T*>(block + offset);
}

double clip_factor(double norm, double limit) { return limit == 0.0 ? 1.0 : std::min(1.0, limit / (norm + kMargin)); }

void copy(const float* from, float* to, Range range) { std::copy_n(from + range.first, range.count, to + range.first); }

}  // namespace

std::size_t Round::run(const RoundCall& call, std::span<const std::span<const std::int64_t>> batches,
                       std::vector<UpdateReport>& reports, std::span<double> statistics, Ended& ended) {
  std::size_t updates = call.kinds.size(), made = 0;
  began_ns_ = monotonic_ns();
  ledger_ = call.ledger;
  ended = Ended::all;
  for (; made < updates; ++made) {
    if (made > 0 && monotonic_ns() - began_ns_ >= call.limit_ns) {
      ended = Ended::time;
      break;
    }
    const std::int64_t turn = call.turn + static_cast<std::int64_t>(made);
    if (made > 0 && !next_round(call, turn, updates, made)) {
      ended = Ended::round;
      break;
    }
    const auto row = statistics.subspan(made * memory_.slot.statistics_count, memory_.slot.statistics_count);
    if (memory_.replay) draw(turn / memory_.replay->per_batch);
    const auto report = update(call, made, memory_.replay ? std::span<const std::int64_t>{} : batches[made], row, ended);
    if (!report) break;
    reports.push_back(*report);
  }
  return made;
}

// Gets the rollouts of the round that begins with `turn`, if one does; false: the call ends. After a round in which an
// episode has ended the learner has other work, and `updates` become those up to its end.
bool Round::next_round(const RoundCall& call, std::int64_t turn, std::size_t& updates, std::size_t made) {
  const FollowingRounds& following = call.following;
  if (!following.exchange || turn % following.updates != 0) return true;
  Exchange& exchange = *following.exchange;
  if (exchange.env_steps() >= following.last_env_steps) return false;
  const std::int64_t per_version = following.updates * following.rounds;
  const std::byte* const state = memory_.optimizer_blocks.at(memory_.optimizer->find(turn));
  const auto* const counters = at<std::int64_t>(state, memory_.state.counters);
  const auto leaf = static_cast<std::uint32_t>(counters[memory_.counts.largest_leaf]);
  const std::byte* const before = exchange.ledger();
  const auto found = exchange.next(memory_.weight_blocks.at(memory_.weights->find(turn)), turn / per_version,
                                   counters[memory_.counts.updates], leaf ? leaf : memory_.replay->first_leaf, began_ns_ + call.limit_ns);
  if (found != Exchange::Result::admitted) return false;
  const std::byte* const now = exchange.ledger();
  for (const std::byte*& part : ledger_) part = now + (part - before);
  if (exchange.ended_episodes() || exchange.env_steps() >= following.last_env_steps) {
    updates = std::min(updates, made + static_cast<std::size_t>(following.updates));
  }
  return true;
}

void Round::draw(std::int64_t number) {
  const ReplayFields& replay = *memory_.replay;
  if (replay.plans->latest() >= number) return;
  words_.resize(replay.batch);
  stream_words(memory_.seed, replay.draws_purpose, 0, static_cast<std::uint64_t>(number), words_);
  const int block = replay.plans->begin();
  std::byte* plan = replay.plan_blocks.at(block);
  const std::span<std::int64_t> positions{at<std::int64_t>(plan, replay.positions), replay.batch};
  const std::span<std::uint32_t> leaves{at<std::uint32_t>(plan, replay.leaves), replay.batch};
  std::int64_t* header = at<std::int64_t>(plan, replay.header);
  const bool drawn = replay.tree->total() > 0 && replay.tree->draw(words_, positions, leaves);
  header[0] = drawn ? static_cast<std::int64_t>(replay.batch) : 0;
  header[1] = drawn ? *std::min_element(leaves.begin(), leaves.end()) : 0;
  replay.plans->seal(block, number);
  replay.plans->publish(number);
}

bool Round::read_plan(std::int64_t number, GradientCall& gradient) const {
  const ReplayFields& replay = *memory_.replay;
  const int block = replay.plans->find(number);
  if (block < 0) return false;
  const std::byte* plan = replay.plan_blocks.at(block);
  const std::int64_t* header = at<std::int64_t>(plan, replay.header);
  if (header[0] != static_cast<std::int64_t>(replay.batch)) return false;
  gradient.rows = {at<std::int64_t>(plan, replay.positions), replay.batch};
  gradient.leaves = {at<std::uint32_t>(plan, replay.leaves), replay.batch};
  gradient.least = static_cast<std::uint32_t>(header[1]);
  return true;
}

void Round::clear(std::byte* slot, std::int64_t version, std::uint64_t sequence) const {
  const SlotFields& fields = memory_.slot;
  std::int64_t* header = at<std::int64_t>(slot, fields.header);
  std::fill_n(header, 8, 0);
  header[kVersion] = version;
  header[kPolicy] = -1;
  header[kSequence] = static_cast<std::int64_t>(sequence);
  std::fill_n(at<double>(slot, fields.moments), 3, 0.0);
  *at<double>(slot, fields.norm) = 0.0;
  std::fill_n(at<std::uint8_t>(slot, fields.mask), fields.parameters, std::uint8_t{0});
  std::fill_n(at<double>(slot, fields.statistics), fields.statistics_count, 0.0);
  std::fill_n(at<float>(slot, fields.errors_at), fields.errors, std::numeric_limits<float>::quiet_NaN());
  std::fill_n(at<float>(slot, fields.gradient), memory_.weight.parameter_elements, 0.0F);
}

std::optional<UpdateReport> Round::update(const RoundCall& call, std::size_t number, std::span<const std::int64_t> rows,
                                          std::span<double> statistics, Ended& ended) {
  const std::int64_t turn = call.turn + static_cast<std::int64_t>(number);
  const Program& program = *call.programs[call.kinds[number]];
  const auto mask = call.masks[call.kinds[number]];
  const Actors& actors = memory_.actors;
  const SlotFields& fields = memory_.slot;
  const int slot = memory_.slab->reserve(actors.worker);
  if (slot < 0) {
    ended = Ended::no_slot;
    return std::nullopt;
  }
  const auto refuse = [&](Ended why) {
    memory_.slab->abandon(slot, actors.worker);
    enter(*actors.worker_page, actors.worker_runtime);
    enter(*actors.learner_page, actors.learner_runtime);
    ended = why;
    return std::nullopt;
  };
  std::byte* const out = memory_.slots.at(slot);
  const std::uint64_t sequence = memory_.slab->produced();
  const int held = memory_.weights->find(turn), held_state = memory_.optimizer->find(turn);
  if (held < 0 || held_state < 0) return refuse(Ended::no_slot);
  const std::byte* const weights = memory_.weight_blocks.at(held);
  const std::size_t elements = memory_.weight.parameter_elements;

  GradientCall gradient;
  enter(*actors.worker_page, memory_.replay ? actors.gather_phase : actors.gradient_phase);
  clear(out, turn, sequence);
  gradient.weights = {at<float>(weights, 0), elements};
  gradient.block = {weights, memory_.weight.weight_bytes};
  if (memory_.weight.target > 0) gradient.target = {at<float>(weights, memory_.weight.target), elements};
  gradient.rows = rows;
  std::uint64_t word;
  stream_words(memory_.seed, memory_.noise_purpose, 0, static_cast<std::uint64_t>(turn), {&word, 1});
  gradient.seed = word >> 1;
  gradient.words = call.words[number];
  gradient.number = static_cast<std::uint64_t>(turn);
  gradient.gradient = {at<float>(out, fields.gradient), elements};
  gradient.statistics = {at<double>(out, fields.statistics), fields.statistics_count};
  gradient.errors = {at<float>(out, fields.errors_at), fields.errors};
  if (memory_.replay && !read_plan(turn / memory_.replay->per_batch, gradient)) return refuse(Ended::empty_plan);
  for (std::size_t step = 0; step < program.size() && !gradient.ended; ++step) {
    if (step == 1 && memory_.replay) enter(*actors.worker_page, actors.gradient_phase);
    program[step]->run(gradient);
  }
  const double norm = hive::norm(gradient.gradient);
  if (!std::isfinite(gradient.loss) || !std::isfinite(norm)) return refuse(Ended::not_finite);
  at<std::int64_t>(out, fields.header)[kSamples] = static_cast<std::int64_t>(gradient.samples);
  *at<double>(out, fields.norm) = norm;
  std::copy(mask.begin(), mask.end(), at<std::uint8_t>(out, fields.mask));
  std::copy(gradient.statistics.begin(), gradient.statistics.end(), statistics.begin());
  enter(*actors.worker_page, actors.worker_runtime);

  enter(*actors.learner_page, actors.update_phase);
  const int next_weights = memory_.weights->begin(), next_state = memory_.optimizer->begin();
  const Versions versions{weights, memory_.optimizer_blocks.at(held_state),
                          memory_.weight_blocks.at(next_weights), memory_.optimizer_blocks.at(next_state)};
  if (!apply(call, mask, versions, gradient, norm)) return refuse(Ended::not_finite);
  at<std::int64_t>(versions.next_optimizer, memory_.state.applied)[0] = static_cast<std::int64_t>(sequence) + 1;
  memory_.slab->commit(slot, actors.worker);
  memory_.slab->claim(actors.learner, static_cast<std::int64_t>(sequence));
  memory_.weights->seal(next_weights, turn + 1);
  memory_.optimizer->seal(next_state, turn + 1);
  memory_.optimizer->publish(turn + 1);  // the commit: a process killed before it leaves the state unchanged
  memory_.slab->retire(slot, actors.learner, kConsumed);
  enter(*actors.learner_page, actors.learner_runtime);
  return UpdateReport{norm, gradient.samples};
}

bool Round::apply(const RoundCall& call, std::span<const std::uint8_t> mask, const Versions& versions,
                  const GradientCall& gradient, double norm) const {
  const OptimizerFields& state = memory_.state;
  const CounterPlaces& places = memory_.counts;
  std::memcpy(versions.next_optimizer, versions.optimizer, state.moments);
  for (std::size_t each = 0; each < call.collected.size(); ++each) {
    std::memcpy(versions.next_optimizer + call.collected[each].first, ledger_[each], call.collected[each].count);
  }
  std::int64_t* const counters = at<std::int64_t>(versions.next_optimizer, state.counters);
  const bool grouped = memory_.groups.size() > 1;
  const std::int64_t* const done =
      grouped ? at<std::int64_t>(versions.optimizer, state.group_updates) : counters + places.updates;
  std::int64_t* const now =
      grouped ? at<std::int64_t>(versions.next_optimizer, state.group_updates) : counters + places.updates;
  const bool learns = gradient.samples > 0;
  bool finite = true;
  const std::int64_t first_before = done[0];
  std::vector<std::int64_t> numbers;
  for (std::size_t each = 0; each < memory_.groups.size(); ++each) {
    const Group& group = memory_.groups[each];
    const auto part = mask.subspan(group.parameters.first, group.parameters.count);
    const bool steps = learns && (!grouped || std::any_of(part.begin(), part.end(), [](std::uint8_t has) { return has != 0; }));
    const auto own = gradient.gradient.subspan(group.elements.first, group.elements.count);
    const double own_norm = grouped && steps && call.clip_gradients != 0.0 ? hive::norm(own) : norm;
    numbers.push_back(steps ? done[each] + 1 : 0);
    finite &= step(call, versions, own, group, own_norm, numbers.back(), call.learning_rates[each]);
  }
  if (!finite) return false;
  copy_rest(call, versions);
  for (std::size_t each = 0; each < numbers.size(); ++each) {
    if (grouped) now[each] = done[each] + (numbers[each] > 0);
  }
  for (const std::size_t place : {places.updates, places.adopted, places.reduced, places.applied}) {
    counters[place] += learns;
  }
  if (call.target_interval > 0) {
    const std::int64_t followed = grouped ? now[0] : counters[places.updates];
    const bool due = followed > first_before && followed % call.target_interval == 0;
    follow(versions, due ? call.target_rate : 0.0, counters[places.updates] + 1);
    counters[places.target_updates] += due;
  }
  if (memory_.replay) learn(gradient, counters);
  counters[places.first_ns] = call.first_ns;
  counters[places.last_ns] = time_of(call);
  return true;
}

std::int64_t Round::time_of(const RoundCall& call) const {
  return call.now_ns + static_cast<std::int64_t>(monotonic_ns() - began_ns_);
}

bool Round::step(const RoundCall& call, const Versions& versions, std::span<const float> gradient, const Group& group,
                 double norm, std::int64_t number, double rate) const {
  const std::size_t first = group.elements.first, count = group.elements.count;
  const std::size_t all = memory_.weight.parameter_elements;
  const std::span<const float> from{at<float>(versions.weights, 0) + first, count};
  const std::span<float> to{at<float>(versions.next_weights, 0) + first, count};
  std::span<const float> moments[2];
  std::span<float> next_moments[2];
  for (std::size_t each = 0; each < memory_.state.moment_blocks; ++each) {
    moments[each] = {at<float>(versions.optimizer, memory_.state.moments) + each * all + first, count};
    next_moments[each] = {at<float>(versions.next_optimizer, memory_.state.moments) + each * all + first, count};
  }
  if (number == 0) {  // a group without a gradient is kept
    std::copy(from.begin(), from.end(), to.begin());
    for (std::size_t each = 0; each < memory_.state.moment_blocks; ++each) {
      std::copy(moments[each].begin(), moments[each].end(), next_moments[each].begin());
    }
    return true;
  }
  const Optimizer& by = call.optimizer;
  const double scale = clip_factor(norm, call.clip_gradients);
  switch (by.kind) {
    case Optimizer::Kind::adam:
      return adam_step({number, rate, by.beta1, by.beta2, by.epsilon, by.weight_decay, by.decoupled, by.rectified, scale},
                       from, to, gradient, moments[0], next_moments[0], moments[1], next_moments[1]);
    case Optimizer::Kind::rmsprop:
      return rmsprop_step({rate, by.decay, by.epsilon, by.momentum, by.weight_decay, scale}, from, to, gradient,
                          moments[0], next_moments[0], moments[1], next_moments[1]);
    case Optimizer::Kind::sgd:
      return sgd_step({rate, by.momentum, by.weight_decay, scale}, from, to, gradient, moments[0], next_moments[0]);
  }
  return false;
}

// Copies frozen parameters with their moments, buffers, and the advantage moments behind the weights.
void Round::copy_rest(const RoundCall& call, const Versions& versions) const {
  const WeightFields& weight = memory_.weight;
  const std::size_t all = weight.parameter_elements, bytes = all * sizeof(float);
  for (const Range& range : weight.frozen) {
    copy(at<float>(versions.weights, 0), at<float>(versions.next_weights, 0), range);
    for (std::size_t each = 0; each < memory_.state.moment_blocks; ++each) {
      copy(at<float>(versions.optimizer, memory_.state.moments) + each * all,
           at<float>(versions.next_optimizer, memory_.state.moments) + each * all, range);
    }
  }
  constexpr std::size_t kAdvantageMoments = 2 * sizeof(double);
  const std::byte* const buffers = call.buffers.empty() ? versions.weights + bytes : call.buffers.data();
  std::memcpy(versions.next_weights + bytes, buffers, weight.weight_bytes - bytes);
  std::memcpy(versions.next_weights + weight.weight_bytes, versions.weights + weight.weight_bytes, kAdvantageMoments);
}

// See StateLayout.follow: a block that already holds the target of this version is not written again.
void Round::follow(const Versions& versions, double rate, std::int64_t version) const {
  const WeightFields& weight = memory_.weight;
  const std::size_t size = weight.weight_bytes, count = weight.parameter_elements, bytes = count * sizeof(float);
  const std::size_t word = size + 2 * sizeof(double);
  volatile std::int64_t* const held = at<std::int64_t>(versions.next_weights, word);
  const std::byte* const source = versions.next_weights;
  const std::byte* const before = versions.weights + weight.target;
  std::byte* const target = versions.next_weights + weight.target;
  if (rate == 0.0) version = *at<std::int64_t>(versions.weights, word);
  if (rate == 0.0 && *held == version) return;
  *held = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (rate == 0.0 || rate == 1.0) {
    std::memcpy(target, rate == 0.0 ? before : source, size);
  } else {
    const float *old = at<float>(before, 0), *from = at<float>(source, 0);
    polyak({old, count}, {from, count}, {at<float>(target, 0), count}, rate);
    for (const Range& range : weight.frozen) {  // equal parameters stay equal, in every bit
      if (std::memcmp(old + range.first, from + range.first, range.count * sizeof(float)) == 0) {
        copy(from, at<float>(target, 0), range);
      }
    }
    std::memcpy(target + bytes, source + bytes, size - bytes);
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  *held = version;
}

void Round::learn(const GradientCall& gradient, std::int64_t* counters) const {
  const ReplayFields& replay = *memory_.replay;
  std::int64_t& largest = counters[memory_.counts.largest_leaf];
  largest = std::max(largest, static_cast<std::int64_t>(replay.first_leaf));
  if (replay.alpha == 0.0) return;
  std::vector<std::int64_t> positions;
  std::vector<float> priorities;
  for (std::size_t row = 0; row < gradient.rows.size(); ++row) {
    const std::int64_t position = gradient.rows[row];
    if (!std::isfinite(gradient.errors[row]) || replay.tree->leaves()[static_cast<std::size_t>(position)] == 0) continue;
    positions.push_back(position);
    priorities.push_back(gradient.errors[row] + replay.epsilon);
  }
  std::vector<std::uint32_t> leaves(positions.size());
  counters[memory_.counts.saturated] += static_cast<std::int64_t>(priority_leaves(priorities, replay.alpha, leaves));
  replay.tree->write(positions, leaves);
  for (const std::uint32_t leaf : leaves) largest = std::max(largest, static_cast<std::int64_t>(leaf));
}

}  // namespace hive
