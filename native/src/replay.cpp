#include "hive/replay.hpp"

#include <algorithm>
#include <cstring>

namespace hive {
namespace {

class Gather {
 public:
  Gather(const ReplayRows& rows, std::size_t stack) : rows_(rows), stack_(stack) {}

  const std::byte* observation(std::size_t at) const { return rows_.observations + at * rows_.observation_bytes; }
  const std::byte* final_of(std::size_t at) const { return rows_.finals + at * rows_.observation_bytes; }

  std::size_t after(std::size_t at) const {
    return row_of(at) + 1 < rows_.rows ? at + rows_.columns : at - (rows_.rows - 1) * rows_.columns;
  }

  std::size_t before(std::size_t at) const {
    return row_of(at) > 0 ? at - rows_.columns : at + (rows_.rows - 1) * rows_.columns;
  }

  bool begins(std::size_t at) const {
    const std::size_t last = before(at);
    return rows_.terminated[last] || rows_.truncated[last] || !rows_.valid[last];
  }

  // Writes `newest` and, before it, the observations of `last` and of the rows before that, while the episode lasts.
  // Without `has_last` there are none.
  void write_stack(const std::byte* newest, std::size_t last, bool has_last, std::byte* to) const {
    const std::size_t bytes = rows_.observation_bytes;
    std::size_t frame = stack_ - 1;
    std::memcpy(to + frame * bytes, newest, bytes);
    while (has_last && frame > 0) {
      --frame;
      std::memcpy(to + frame * bytes, observation(last), bytes);
      has_last = !begins(last);
      last = before(last);
    }
    std::memset(to, 0, frame * bytes);
  }

 private:
  std::size_t row_of(std::size_t at) const { return at / rows_.columns % rows_.rows; }

  const ReplayRows& rows_;
  std::size_t stack_;
};

// Normalises the numbers of `frames` observations in place. Their bytes need not be aligned: a row of parts may have any
// length.
void normalize(const ReplayScales& scales, std::size_t frames, std::size_t bytes, std::byte* observations) {
  if (scales.scale.empty()) return;
  for (std::size_t frame = 0; frame < frames; ++frame) {
    std::byte* const numbers = observations + frame * bytes;
    for (std::size_t i = 0; i < scales.scale.size(); ++i) {
      float value;
      std::memcpy(&value, numbers + i * sizeof value, sizeof value);
      value = std::clamp((value - scales.shift[i]) * scales.scale[i], -scales.limit, scales.limit);
      std::memcpy(numbers + i * sizeof value, &value, sizeof value);
    }
  }
}

float learned(const ReplayScales& scales, float reward) {
  if (scales.reward_scale == 0.0F) return reward;
  return std::clamp(reward * scales.reward_scale, -scales.limit, scales.limit);
}

}  // namespace

void gather_batch(const ReplayRows& rows, std::span<const std::int64_t> positions, std::size_t n_step, double discount,
                  std::size_t stack, const ReplayScales& scales, const ReplayBatch& batch) {
  const Gather gather(rows, stack);
  const std::size_t stack_bytes = stack * rows.observation_bytes;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto first = static_cast<std::size_t>(positions[i]);
    gather.write_stack(gather.observation(first), gather.before(first), !gather.begins(first),
                       batch.observations + i * stack_bytes);
    std::memcpy(batch.actions + i * rows.action_bytes, rows.actions + first * rows.action_bytes, rows.action_bytes);
    double sum = 0.0;
    double factor = 1.0;
    std::size_t last = first;
    const std::byte* newest = nullptr;
    for (std::size_t taken = 1;; ++taken) {
      sum += factor * static_cast<double>(learned(scales, rows.rewards[last]));
      factor *= discount;
      const std::size_t next = gather.after(last);
      if (rows.terminated[last]) {
        factor = 0.0;
        newest = gather.observation(last);
      } else if (rows.truncated[last]) {
        newest = gather.final_of(last);
      } else if (taken == n_step || !rows.valid[next]) {
        newest = gather.observation(next);
      }
      if (newest != nullptr) break;
      last = next;
    }
    gather.write_stack(newest, last, true, batch.next_observations + i * stack_bytes);
    normalize(scales, stack, rows.observation_bytes, batch.observations + i * stack_bytes);
    normalize(scales, stack, rows.observation_bytes, batch.next_observations + i * stack_bytes);
    batch.returns[i] = static_cast<float>(sum);
    batch.discounts[i] = static_cast<float>(factor);
  }
}

}  // namespace hive
