#include "hive/program.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "hive/priorities.hpp"

namespace hive {

void Pick::run(GradientCall& call) {
  if (call.rows.empty()) {
    into_.refer(source_, count_, width_);
    call.samples = count_;
    return;
  }
  const auto to = into_.write<std::byte>(call.rows.size(), width_);
  for (std::size_t row = 0; row < call.rows.size(); ++row) {
    std::memcpy(to.data() + row * width_, source_ + static_cast<std::size_t>(call.rows[row]) * width_, width_);
  }
  call.samples = call.rows.size();
}

void Gather::run(GradientCall& call) {
  const std::size_t count = call.rows.size();
  ReplayBatch batch{};
  batch.observations = into_.observations->write<std::byte>(count, memory_.observation_bytes).data();
  batch.next_observations = into_.next_observations->write<std::byte>(count, memory_.observation_bytes).data();
  batch.actions = into_.actions->write<std::byte>(count, memory_.action_bytes).data();
  batch.returns = into_.returns->write<float>(count, 1).data();
  batch.discounts = into_.discounts->write<float>(count, 1).data();
  gather_batch(memory_, call.rows, n_step_, discount_, 1, {}, batch);
  importance_weights(call.leaves, call.least, exponent_, into_.importance->write<float>(count, 1));
  call.samples = count;
}

void Forward::run(GradientCall& call) {
  const std::size_t rows = input_.rows();
  std::vector<float*> outputs;
  for (std::size_t branch = 0; branch < heads_.size(); ++branch) {
    const BranchHeads& heads = heads_[branch];
    if (heads.size() == 1 && heads.front().deviations < 0) {
      outputs.push_back(heads.front().output->write<float>(rows, heads.front().width).data());
      continue;
    }
    Floats& columns = columns_[branch];
    if (columns.size() < rows * network_.outputs(branch)) columns.resize(rows * network_.outputs(branch));
    outputs.push_back(columns.data());
  }
  const auto block = of_target_ ? call.target : call.weights;
  network_.forward(block, input_.view<float>(), rows, outputs, keep_);
  for (std::size_t branch = 0; branch < heads_.size(); ++branch) {
    const BranchHeads& heads = heads_[branch];
    if (heads.size() == 1 && heads.front().deviations < 0) continue;
    const std::size_t width = network_.outputs(branch);
    const float* from = outputs[branch];
    for (const HeadColumns& head : heads) {
      const bool appends = head.deviations >= 0;
      const std::size_t all = appends ? 2 * head.width : head.width;
      const auto to = head.output->write<float>(rows, all);
      for (std::size_t row = 0; row < rows; ++row) {
        std::copy_n(from + row * width, head.width, to.data() + row * all);
        if (appends) {
          std::copy_n(block.data() + head.deviations, head.width, to.data() + row * all + head.width);
        }
      }
      from += head.width;
    }
  }
}

void Forward::differentiate(GradientCall& call) {
  const std::size_t rows = input_.rows();
  std::vector<const float*> slopes;
  for (std::size_t branch = 0; branch < heads_.size(); ++branch) {
    const BranchHeads& heads = heads_[branch];
    if (heads.size() == 1 && heads.front().deviations < 0) {
      slopes.push_back(heads.front().slopes->view<float>().data());
      continue;
    }
    const std::size_t width = network_.outputs(branch);
    float* to = columns_[branch].data();
    slopes.push_back(to);
    for (const HeadColumns& head : heads) {
      const bool appends = head.deviations >= 0;
      const std::size_t all = appends ? 2 * head.width : head.width;
      const auto from = head.slopes->view<float>();
      for (std::size_t row = 0; row < rows; ++row) std::copy_n(from.data() + row * all, head.width, to + row * width);
      if (appends) {
        const auto place = static_cast<std::size_t>(head.deviations);
        column_sums(from, all, head.width, call.gradient.subspan(place, head.width));
      }
      to += head.width;
    }
  }
  network_.backward(call.weights, input_.view<float>(), slopes, call.gradient, {});
}

void Bootstrap::run(GradientCall& call) {
  const std::size_t rows = call.samples;
  const auto chooses = chooses_.view<float>(), values = values_.view<float>();
  const auto returns = returns_.view<float>(), discounts = discounts_.view<float>();
  const std::size_t actions = chooses.size() / std::max<std::size_t>(rows, 1);
  const auto to = targets_.write<float>(rows, 1);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* each = chooses.data() + row * actions;
    const auto best = static_cast<std::size_t>(std::max_element(each, each + actions) - each);
    to[row] = returns[row] + discounts[row] * values[row * actions + best];
  }
}

void PPOStep::run(GradientCall& call) {
  const auto outputs = outputs_.view<float>(), values = values_.view<float>();
  const auto to_outputs = to_outputs_.write<float>(call.samples, policy_.width());
  const auto to_values = to_values_.write<float>(call.samples, 1);
  const PPOLoss loss =
      ppo_loss(policy_, settings_, outputs, values, batch_, call.rows, to_outputs, to_values);
  call.loss = loss.total;
  const double found[] = {loss.policy, loss.value, loss.entropy, loss.divergence, loss.clipped};
  std::copy(std::begin(found), std::end(found), call.statistics.begin());
  std::copy(fit_.begin(), fit_.end(), call.statistics.begin() + std::size(found));
}

void QStep::run(GradientCall& call) {
  const auto values = values_.view<float>();
  const std::size_t count = values_.width() / sizeof(float);
  const auto actions = actions_.view<std::int64_t>();
  const auto known = [count](std::int64_t action) { return action >= 0 && static_cast<std::size_t>(action) < count; };
  if (!std::all_of(actions.begin(), actions.end(), known)) {
    call.loss = std::numeric_limits<double>::quiet_NaN();  // so the path through Python makes it, and names the cause
    return;
  }
  const auto importance = importance_ ? importance_->view<float>() : std::span<const float>{};
  const QLoss loss =
      q_loss(count, huber_, values, actions, targets_.view<float>(), {}, importance,
             call.errors.first(std::min(call.errors.size(), call.samples)), to_values_.write<float>(call.samples, count));
  call.loss = loss.total;
  const double found[] = {loss.total, loss.mean, loss.largest, loss.error};
  std::copy(std::begin(found), std::end(found), call.statistics.begin());
}

}  // namespace hive
