#include "hive/acting.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "hive/agent_losses.hpp"

namespace hive {

Acting::Acting(DenseNetwork network, PolicyHead head, Sampler sampler, std::optional<Unpacking> unpacking,
               std::optional<MaskColumns> mask)
    : network_(std::move(network)), head_(head), sampler_(std::move(sampler)), unpacking_(std::move(unpacking)),
      mask_(mask) {
  if (unpacking_ && unpacking_->inputs() != network_.inputs()) {
    throw std::invalid_argument("the numbers of a row are not the inputs of the network");
  }
  const std::size_t outputs = head.deviations < 0 ? head.width : 2 * head.width;
  const std::size_t end = static_cast<std::size_t>(std::max<std::ptrdiff_t>(head.deviations, 0)) + head.width;
  if (head.width > network_.outputs(0) || outputs != sampler_.width() || end > network_.parameters()) {
    throw std::invalid_argument("the outputs of the policy do not fit its actions");
  }
  if (mask_ && !(mask_->fits(row_bytes(), outputs) && !sampler_.is_box())) {
    throw std::invalid_argument("the mask of actions does not fit a row");
  }
}

void Acting::begin(const ActingRollout& rollout) {
  rollout_ = rollout;
  network_.pack(rollout.weights, 1);
  columns_.resize(rollout.envs * network_.outputs(0));
  if (!rollout.outputs) outputs_.resize(rollout.envs * sampler_.width());
  if (!unpacking_ && !rollout.scales.shift.empty()) {
    unpacking_.emplace(row_bytes(), std::vector<UnpackedPart>{{true, 0, network_.inputs(), {}, {}}});
  }
  if (unpacking_) seen_.resize(rollout.envs * network_.inputs());
}

const float* Acting::seen(const std::byte* observations) {
  if (!unpacking_) return reinterpret_cast<const float*>(observations);
  unpacking_->run(observations, rollout_.envs, rollout_.scales, seen_.data());
  return seen_.data();
}

void Acting::act(std::size_t step) {
  const std::size_t envs = rollout_.envs, width = sampler_.width(), all = network_.outputs(0);
  const float* const rows = seen(rollout_.observations + step * envs * row_bytes());
  float* const outputs = rollout_.outputs ? rollout_.outputs + step * envs * width : outputs_.data();
  const bool direct = all == width && head_.deviations < 0;
  float* const columns = direct ? outputs : columns_.data();
  network_.forward(rollout_.weights, {rows, envs * network_.inputs()}, envs, std::span<float* const>{&columns, 1}, false, true);
  for (std::size_t row = 0; row < envs && !direct; ++row) {
    std::copy_n(columns + row * all, head_.width, outputs + row * width);
    if (head_.deviations < 0) continue;
    std::copy_n(rollout_.weights.data() + head_.deviations, head_.width, outputs + row * width + head_.width);
  }
  if (mask_) {
    mask_->fill(rollout_.observations + step * envs * row_bytes(), row_bytes(), envs, width, kForbidden, outputs);
  }
  if (head_.clamps) clamp_deviations(width / 2, {outputs, envs * width}, {outputs, envs * width});
  const std::size_t element = sampler_.is_box() ? sizeof(float) : sizeof(std::int64_t);
  sample(sampler_, envs, outputs, rollout_.noise + step * envs * sampler_.noise_width(),
         rollout_.actions + step * envs * sampler_.elements() * element);
}

}  // namespace hive
