// The actions of a rollout: what lies between the observations of a step and its actions, in one call.
//
//     observations [B, inputs] -> normalized -> the network's first output -> sampled with prepared noise -> actions
//
// The weights are those of the whole rollout, so they are packed once. Each function is the one that a step through
// Python calls, so both give the same bytes.
#pragma once

#include <cstddef>
#include <span>

#include "hive/dense.hpp"
#include "hive/sampling.hpp"

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
  const float* observations = nullptr;
  const float* noise = nullptr;
  std::byte* actions = nullptr;
  float* outputs = nullptr;                    // may be null
  std::span<const float> shift, scale;         // of normalized observations; empty: they are read as they are
  float limit = 0.0F;                          // of normalized observations
};

class Acting {
 public:
  // Throws std::invalid_argument unless the head has as many outputs as the sampler reads.
  Acting(DenseNetwork network, PolicyHead head, Sampler sampler);

  std::size_t inputs() const { return network_.inputs(); }
  std::size_t parameters() const { return network_.parameters(); }
  Sampler& sampler() { return sampler_; }
  const ActingRollout& rollout() const { return rollout_; }

  void begin(const ActingRollout& rollout);
  void act(std::size_t step);  // of the rollout that has begun

 private:
  const float* seen(const float* observations);

  DenseNetwork network_;
  PolicyHead head_;
  Sampler sampler_;
  ActingRollout rollout_;
  Floats normalized_, columns_, outputs_;
};

}  // namespace hive
