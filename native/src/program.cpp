#include "hive/program.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "hive/agent_losses.hpp"
#include "hive/losses.hpp"
#include "hive/philox.hpp"
#include "hive/priorities.hpp"
#include "hive/return_distributions.hpp"

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

// What normalizes rows by the statistics of this block; none: these count no row.
std::optional<ReplayScales> Gather::scales(std::span<const std::byte> block) const {
  const auto numbers = [&](std::size_t at) { return reinterpret_cast<const float*>(block.data() + at); };
  ReplayScales scales;
  scales.limit = settings_.limit;
  for (const auto& each : {settings_.observed, settings_.rewarded}) {
    if (each && *reinterpret_cast<const double*>(block.data() + each->seen) == 0.0) return std::nullopt;
  }
  if (const auto& each = settings_.observed) {
    scales.shift = {numbers(each->shift), each->numbers};
    scales.scale = {numbers(each->scale), each->numbers};
  }
  if (settings_.rewarded) scales.reward_scale = *numbers(settings_.rewarded->scale);
  return scales;
}

void Gather::run(GradientCall& call) {
  const auto scales = this->scales(call.block);
  if (!scales) return call.give_none();
  const std::size_t count = call.rows.size(), bytes = settings_.stack * memory_.observation_bytes;
  ReplayBatch batch{};
  batch.observations = into_.observations->write<std::byte>(count, bytes).data();
  batch.next_observations = into_.next_observations->write<std::byte>(count, bytes).data();
  batch.actions = into_.actions->write<std::byte>(count, memory_.action_bytes).data();
  batch.returns = into_.returns->write<float>(count, 1).data();
  batch.discounts = into_.discounts->write<float>(count, 1).data();
  gather_batch(memory_, call.rows, settings_.n_step, settings_.discount, settings_.stack, *scales, batch);
  importance_weights(call.leaves, call.least, settings_.importance_exponent, into_.importance->write<float>(count, 1));
  call.samples = count;
}

void Unpack::run(GradientCall&) {
  const std::size_t rows = from_.rows();
  if (from_.width() != unpacking_.row_bytes()) throw std::invalid_argument("observations have another length");
  unpacking_.run(from_.view<std::byte>().data(), rows, {}, into_.write<float>(rows, unpacking_.inputs()).data());
}

void DerivedPass::derive(GradientCall& call, std::span<const float> parameters) {
  for (const Range& layer : drawing_) {
    const auto word = static_cast<std::uint64_t>(call.words[call.words_taken++]);
    philox_factors(word, 0, std::span(factors_).subspan(layer.first, layer.count));
  }
  weights_.forward(parameters, factors_, block_);
}

std::span<float> DerivedPass::slopes() {
  std::fill(slopes_.begin(), slopes_.end(), 0.0F);
  return slopes_;
}

void Forward::run(GradientCall& call) {
  const std::size_t rows = input_.rows();
  if (input_.width() != network_.inputs() * sizeof(float)) {
    throw std::invalid_argument("a pass reads rows of another length than its network's");
  }
  std::vector<float*> outputs;
  for (std::size_t branch = 0; branch < heads_.size(); ++branch) {
    if (direct(heads_[branch])) {
      const HeadColumns& head = heads_[branch].front();
      outputs.push_back(head.output->write<float>(rows, head.width).data());
      continue;
    }
    Floats& columns = columns_[branch];
    if (columns.size() < rows * network_.outputs(branch)) columns.resize(rows * network_.outputs(branch));
    outputs.push_back(columns.data());
  }
  auto weights = of_target_ ? call.target : call.weights;
  if (derived_) {
    derived_->derive(call, weights);
    weights = derived_->block();
  }
  network_.forward(weights, input_.view<float>(), rows, outputs, keep_);
  for (std::size_t branch = 0; branch < heads_.size(); ++branch) {
    if (!direct(heads_[branch])) split(call, branch, outputs[branch]);
  }
  fill_forbidden(&HeadColumns::output, kForbidden);
}

void Forward::fill_forbidden(Register* HeadColumns::*of, float with) const {
  if (!masks_) return;
  const std::size_t rows = input_.rows(), row_bytes = masks_->rows.width();
  for (const BranchHeads& heads : heads_) {
    for (const HeadColumns& head : heads) {
      if (!head.masked) continue;
      if (masks_->rows.rows() != rows || !masks_->columns.fits(row_bytes, head.width)) {
        throw std::invalid_argument("the masks of actions do not fit their rows");
      }
      masks_->columns.fill(masks_->rows.view<std::byte>().data(), row_bytes, rows, head.width, with,
                           (head.*of)->written<float>().data());
    }
  }
}

void Forward::split(const GradientCall& call, std::size_t branch, const float* columns) const {
  const std::size_t rows = input_.rows(), width = network_.outputs(branch);
  const auto block = of_target_ ? call.target : call.weights;
  for (const HeadColumns& head : heads_[branch]) {
    const bool appends = head.deviations >= 0;
    const std::size_t all = appends ? 2 * head.width : head.width;
    const auto to = head.output->write<float>(rows, all);
    for (std::size_t row = 0; row < rows; ++row) {
      std::copy_n(columns + row * width, head.width, to.data() + row * all);
      if (appends) std::copy_n(block.data() + head.deviations, head.width, to.data() + row * all + head.width);
    }
    if (head.clamps) clamp_deviations(head.width / 2, to, to);
    if (head.softmax > 0) log_softmax(head.softmax, to, to);
    columns += head.width;
  }
}

void Forward::differentiate(GradientCall& call, Register* to_rows) {
  fill_forbidden(&HeadColumns::slopes, 0.0F);
  std::vector<const float*> slopes;
  for (std::size_t branch = 0; branch < heads_.size(); ++branch) {
    const BranchHeads& heads = heads_[branch];
    slopes.push_back(direct(heads) ? heads.front().slopes->view<float>().data()
                                    : joined(call, branch, to_rows == nullptr));
  }
  const auto rows = input_.view<float>();
  const auto weights = derived_ ? derived_->block() : call.weights;
  if (to_rows != nullptr) {
    network_.backward(weights, rows, slopes, {}, to_rows->write<float>(input_.rows(), network_.inputs()));
  } else if (derived_) {
    network_.backward(weights, rows, slopes, derived_->slopes(), {});
    derived_->spread(call.gradient);
  } else {
    network_.backward(weights, rows, slopes, call.gradient, {});
  }
}

// The slopes of a branch's columns, over the columns themselves. learns: whether parameters that are appended get theirs.
const float* Forward::joined(GradientCall& call, std::size_t branch, bool learns) {
  const std::size_t rows = input_.rows(), width = network_.outputs(branch);
  float* to = columns_[branch].data();
  std::vector<float> mapped;
  for (const HeadColumns& head : heads_[branch]) {
    const bool appends = head.deviations >= 0;
    const std::size_t all = appends ? 2 * head.width : head.width;
    auto from = head.slopes->view<float>();
    if (head.clamps || head.softmax > 0) {
      mapped.resize(rows * all);
      if (head.clamps) {  // the only head of its branch: its columns lie together
        clamp_deviations_back(head.width / 2, {to, rows * all}, from, mapped);
      } else {
        log_softmax_back(head.softmax, head.output->view<float>(), from, mapped);
      }
      from = mapped;
    }
    for (std::size_t row = 0; row < rows; ++row) std::copy_n(from.data() + row * all, head.width, to + row * width);
    if (appends && learns) {
      column_sums(from, all, head.width, call.gradient.subspan(static_cast<std::size_t>(head.deviations), head.width));
    }
    to += head.width;
  }
  return columns_[branch].data();
}
}  // namespace hive
