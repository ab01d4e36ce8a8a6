// The actions of a rollout: what lies between the observations of a step and its actions, in one call.
//
//     observations [B, bytes] -> normalized, unpacked [B, inputs] -> the network's first output, where actions
//     may be forbidden -> sampled with prepared noise -> actions
//
// The weights are those of the whole rollout, so they are packed once. Each function is the one that a step through
// Python calls, so both give the same bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "hive/dense.hpp"
#include "hive/masks.hpp"
#include "hive/sampling.hpp"
#include "hive/unpacking.hpp"

namespace hive {

// The output that the sampler reads: `width` columns of the first branch, and `deviations`, an offset of the parameters
// that are appended to every row, -1: none. clamps: as in agent_losses.hpp.
struct PolicyHead {
  std::size_t width;
  std::ptrdiff_t deviations;
  bool clamps;
};

// The memory of a rollout of B environments. Its arrays begin at step 0, and a step follows the one before it.
struct ActingRollout {
  std::span<const float> weights;
  std::size_t envs = 0, steps = 0;
  const std::byte* observations = nullptr;
  const float* noise = nullptr;
  std::byte* actions = nullptr;
  float* outputs = nullptr;                    // may be null
  RowScales scales;
};

class Acting {
 public:
  // unpacking: none: observations are the numbers that the network reads. mask: none: all actions are allowed. Throws
  // std::invalid_argument unless the head has as many outputs as the sampler reads, and the mask lies in a row.
  Acting(DenseNetwork network, PolicyHead head, Sampler sampler, std::optional<Unpacking> unpacking,
         std::optional<MaskColumns> mask = std::nullopt);

  std::size_t row_bytes() const { return unpacking_ ? unpacking_->row_bytes() : network_.inputs() * sizeof(float); }
  std::size_t parameters() const { return network_.parameters(); }
  Sampler& sampler() { return sampler_; }
  const ActingRollout& rollout() const { return rollout_; }

  void begin(const ActingRollout& rollout);
  void act(std::size_t step);  // of the rollout that has begun

 private:
  const float* seen(const std::byte* observations);

  DenseNetwork network_;
  PolicyHead head_;
  Sampler sampler_;
  std::optional<Unpacking> unpacking_;
  std::optional<MaskColumns> mask_;
  ActingRollout rollout_;
  Floats seen_, columns_, outputs_;
};

}  // namespace hive
