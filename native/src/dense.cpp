#include <algorithm>
#include <stdexcept>

#include "dense/kernels.hpp"
#include "hive/team.hpp"

namespace hive {

using dense::chosen_kernels;
using dense::kPad;
using dense::padded;
using dense::Product;
using dense::Rows;

namespace {

// Rows that pass through all layers together, so that what lies between layers stays in the cache.
constexpr std::size_t kBlock = 96;
// Rows of a product are divided at multiples of this, which is one of the rows of every tile, and divides kBlock.
constexpr std::size_t kGrain = 12;
// Products of weights and inputs that are worth a part of their own: some 40 us, as long as it takes to wake a thread; and
// some 5 us for one that is awake, several times what it takes to hand it a part.
constexpr std::size_t kPartProducts = 2'000'000, kAwakeProducts = 250'000;

struct Range {
  std::size_t begin, end;
  std::size_t count() const { return end - begin; }
};

// The share of one part of `total`, divided at multiples of `grain`.
Range share_of(std::size_t total, std::size_t grain, std::size_t part, std::size_t parts) {
  const std::size_t units = (total + grain - 1) / grain;
  const auto at = [=](std::size_t each) { return std::min(units * each / parts * grain, total); };
  return {at(part), at(part + 1)};
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HIVE_SHUFFLES
#endif
#endif

#if defined(HIVE_SHUFFLES)
using Four = float __attribute__((vector_size(16)));
using UnalignedFour = float __attribute__((vector_size(16), aligned(4), may_alias));

// Transposes 4 x 4 floats in registers: one load, two shuffles and one store for each row.
void transpose_square(const float* from, std::size_t from_stride, float* to, std::size_t stride) {
  const auto row = [=](std::size_t i) -> Four { return *reinterpret_cast<const UnalignedFour*>(from + i * from_stride); };
  const Four a = row(0), b = row(1), c = row(2), d = row(3);
  const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four ef = __builtin_shufflevector(a, b, 2, 6, 3, 7), gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const auto put = [=](std::size_t i, Four value) { *reinterpret_cast<UnalignedFour*>(to + i * stride) = value; };
  put(0, __builtin_shufflevector(ab, cd, 0, 1, 4, 5));
  put(1, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
  put(2, __builtin_shufflevector(ef, gh, 0, 1, 4, 5));
  put(3, __builtin_shufflevector(ef, gh, 2, 3, 6, 7));
}
#endif

// The transpose of `from` [rows, columns] as `to` [columns, stride]. Sixteen rows at a time fill whole lines of the cache.
void transpose(const float* from, std::size_t rows, std::size_t columns, std::size_t from_stride, float* to,
               std::size_t stride) {
  for (std::size_t top = 0; top < rows; top += kPad) {
    const std::size_t bottom = std::min(top + kPad, rows);
    std::size_t left = 0;
#if defined(HIVE_SHUFFLES)
    for (; bottom == top + kPad && left + 4 <= columns; left += 4) {
      for (std::size_t row = top; row < bottom; row += 4) {
        transpose_square(from + row * from_stride + left, from_stride, to + left * stride + row, stride);
      }
    }
#endif
    for (; left < columns; ++left) {
      for (std::size_t row = top; row < bottom; ++row) to[left * stride + row] = from[row * from_stride + left];
    }
  }
}

void copy_rows(const float* from, std::size_t rows, std::size_t columns, float* to, std::size_t stride) {
  for (std::size_t row = 0; row < rows; ++row) {
    std::copy_n(from + row * columns, columns, to + row * stride);
    std::fill_n(to + row * stride + columns, stride - columns, 0.0F);
  }
}

}  // namespace

DenseNetwork::DenseNetwork(std::vector<Branch> branches, std::size_t parameters) : parameters_(parameters) {
  if (branches.empty()) throw std::invalid_argument("a network has at least one branch");
  for (const Branch& branch : branches) {
    if (branch.empty()) throw std::invalid_argument("a branch has at least one layer");
    if (branch.front().inputs != branches.front().front().inputs) {
      throw std::invalid_argument("all branches have the same inputs");
    }
    Layers& layers = branches_.emplace_back();
    for (const DenseLayer& layer : branch) {
      check(layer);
      if (!layers.empty() && layers.back().outputs != layer.inputs) {
        throw std::invalid_argument("the inputs of a layer are the outputs of the one before it");
      }
      layers.push_back(prepared(layer, &layer == &branch.back()));
    }
  }
}

void DenseNetwork::check(const DenseLayer& layer) const {
  const auto inside = [this](std::ptrdiff_t offset, std::size_t count) {
    return offset >= 0 && offset % static_cast<std::ptrdiff_t>(kPad) == 0 && padded(count) <= parameters_ &&
           static_cast<std::size_t>(offset) <= parameters_ - padded(count);
  };
  if (layer.inputs == 0 || layer.outputs == 0) throw std::invalid_argument("a layer has inputs and outputs");
  const bool norm = layer.scale >= 0 || layer.shift >= 0;
  if (!inside(layer.weight, layer.inputs * layer.outputs) || !inside(layer.bias, layer.outputs) ||
      (norm && (!inside(layer.scale, layer.outputs) || !inside(layer.shift, layer.outputs)))) {
    throw std::invalid_argument("an array of a layer lies outside the block, or is not aligned to 16 floats");
  }
}

DenseNetwork::Layer DenseNetwork::prepared(const DenseLayer& given, bool last) {
  Layer layer{};
  static_cast<DenseLayer&>(layer) = given;
  layer.has_norm = given.scale >= 0;
  if (last && (layer.has_norm || given.activation != Activation::none)) {
    throw std::invalid_argument("the last layer of a branch is linear");
  }
  layer.keeps_sums = given.activation == Activation::silu;
  layer.stride = padded(given.outputs);
  layer.swaps = given.inputs * padded(given.outputs) < given.outputs * padded(given.inputs);
  layer.packed = packed_.size();
  packed_.resize(packed_.size() + given.inputs * layer.stride);
  widest_ = std::max({widest_, given.inputs, given.outputs});
  return layer;
}

std::size_t DenseNetwork::parts_for(std::size_t rows, std::size_t branches, const Selected& selected) const {
  if (threads() == 1) return 1;
  std::size_t products = 0;
  for (std::size_t branch = 0; branch < branches; ++branch) {
    for (const Layer& layer : branches_[branch]) products += layer.inputs * layer.outputs;
    if (selected.few()) products -= inputs() * branches_[branch].front().outputs;
  }
  const std::size_t all = rows * products;
  const std::size_t worthwhile = std::max(std::min(threads(), all / kPartProducts),
                                          std::min(threads_awake(), all / kAwakeProducts));
  return std::max<std::size_t>(1, std::min(worthwhile, (rows + kGrain - 1) / kGrain));
}

// Of the first layers only the columns that are selected, if these are few.
void DenseNetwork::pack(std::span<const float> block, std::size_t branches, std::size_t part, std::size_t parts,
                        const Selected& selected) {
  for (std::size_t branch = 0; branch < branches; ++branch) {
    for (const Layer& layer : branches_[branch]) {
      if (selected.few() && &layer == &branches_[branch].front()) {
        const Range own = share_of(selected.columns().size(), 1, part, parts);
        for (std::size_t place = own.begin; place < own.end; ++place) {
          const float* const from = block.data() + layer.weight + selected.columns()[place];
          float* const to = packed_.data() + layer.packed + place * layer.stride;
          for (std::size_t output = 0; output < layer.outputs; ++output) to[output] = from[output * layer.inputs];
        }
        continue;
      }
      const Range own = share_of(layer.outputs, kPad, part, parts);
      transpose(block.data() + layer.weight + own.begin * layer.inputs, own.count(), layer.inputs, layer.inputs,
                packed_.data() + layer.packed + own.begin, layer.stride);
    }
  }
}

void DenseNetwork::pack(std::span<const float> block, std::size_t branches) {
  const std::lock_guard<std::mutex> held(*mutex_);
  pack(block, branches, 0, 1, {});
}

void DenseNetwork::reserve(std::size_t rows) {
  if (rows <= capacity_) return;
  capacity_ = rows;
  for (Layers& layers : branches_) {
    for (Layer& layer : layers) {
      if (&layer != &layers.back()) layer.results.resize(rows * layer.stride);
      if (layer.keeps_sums) layer.sums.resize(rows * layer.stride);
      if (layer.has_norm) {
        layer.normalised.resize(rows * layer.stride);
        layer.inverse.resize(rows);
      }
    }
  }
}

void DenseNetwork::forward(std::span<const float> block, std::span<const float> observations, std::size_t rows,
                           std::span<float* const> outputs, bool keep, bool packed) {
  const std::lock_guard<std::mutex> held(*mutex_);
  Selected& selected = keep ? kept_selected_ : selected_;
  selected.find(observations.data(), rows, inputs(), !packed);
  const std::size_t parts = parts_for(rows, outputs.size(), selected);
  if (keep) {
    reserve(rows);
    kept_rows_ = rows;
  }
  const std::size_t area = 2 * kBlock * padded(widest_);
  if (scratch_.size() < parts * area) scratch_.resize(parts * area);
  if (!packed) share(parts, [&](std::size_t part) { pack(block, outputs.size(), part, parts, selected); });
  share(parts, [&](std::size_t part) {
    const Range own = share_of(rows, kGrain, part, parts);
    for (std::size_t first = own.begin; first < own.end; first += kBlock) {
      const std::size_t count = std::min(kBlock, own.end - first);
      for (std::size_t branch = 0; branch < outputs.size(); ++branch) {
        forward_rows(branches_[branch], block.data(), observations.data(), first, count, outputs[branch],
                     scratch_.data() + part * area, keep);
      }
    }
  });
}

void DenseNetwork::forward_rows(Layers& layers, const float* block, const float* observations, std::size_t first,
                                std::size_t rows, float* output, float* scratch, bool keep) {
  const dense::Kernels& kernels = chosen_kernels();
  const std::size_t area = kBlock * padded(widest_);
  float inverse[kBlock];
  const float* in = observations + first * layers.front().inputs;
  std::size_t in_stride = layers.front().inputs;
  std::size_t turn = 0;
  for (Layer& layer : layers) {
    const bool last = &layer == &layers.back();
    const std::size_t at = first * layer.stride;
    float* out = last ? output + first * layer.outputs
                      : (keep ? layer.results.data() + at : scratch + (turn++ % 2) * area);
    float* argument = keep && layer.keeps_sums ? layer.sums.data() + at : out;
    const std::size_t out_stride = last ? layer.outputs : layer.stride;
    const dense::Product product{.rows = rows, .columns = layer.outputs, .depth = layer.inputs, .a = in,
                                 .a_row = in_stride, .a_depth = 1, .b = packed_.data() + layer.packed,
                                 .b_depth = layer.stride, .c = argument, .c_row = out_stride,
                                 .start = block + layer.bias};
    const Selected& selected = keep ? kept_selected_ : selected_;
    if (&layer == &layers.front() && selected.few()) {
      for (std::size_t row = 0; row < rows; ++row) kernels.combine(selected.row(first + row), product, row);
    } else {
      kernels.product(product);
    }
    const Rows shape{rows, layer.outputs, layer.stride};
    if (layer.has_norm) {
      kernels.normalize(shape, layer.epsilon, block + layer.scale, block + layer.shift, argument,
                        keep ? layer.normalised.data() + at : argument, keep ? layer.inverse.data() + first : inverse,
                        argument);
    }
    if (!last) kernels.activate(layer.activation, shape, argument, out);
    in = out;
    in_stride = layer.stride;
  }
}

void DenseNetwork::reserve_back(const Backward& pass, std::size_t group) {
  if (padded_rows_.size() < group * padded(inputs())) padded_rows_.resize(group * padded(inputs()));
  for (std::size_t branch = 0; branch < pass.to_outputs.size(); ++branch) {
    if (!pass.to_outputs[branch]) continue;
    for (Layer& layer : branches_[branch]) {
      if (layer.slopes.size() < group * layer.stride) layer.slopes.resize(group * layer.stride);
      if (pass.gradient) {
        for (const std::ptrdiff_t offset : {layer.bias, layer.scale, layer.shift}) {
          if (offset >= 0) std::fill_n(pass.gradient + offset, layer.outputs, 0.0F);
        }
        const bool looks_up = kept_selected_.few() && &layer == &branches_[branch].front();
        if (layer.swaps || looks_up) layer.transposed.resize(layer.inputs * layer.stride);
        if (kept_rows_ == 0 || looks_up) std::fill_n(pass.gradient + layer.weight, layer.inputs * layer.outputs, 0.0F);
      }
      const bool passes_on = &layer != &branches_[branch].front() || pass.to_observations;
      if (passes_on && layer.inputs % kPad) {
        layer.weight_rows.resize(layer.outputs * padded(layer.inputs));
        copy_rows(pass.block + layer.weight, layer.outputs, layer.inputs, layer.weight_rows.data(),
                  padded(layer.inputs));
      }
    }
  }
}

void DenseNetwork::backward(std::span<const float> block, std::span<const float> observations,
                            std::span<const float* const> to_outputs, std::span<float> gradient,
                            std::span<float> to_observations) {
  const std::lock_guard<std::mutex> held(*mutex_);
  const Backward pass{block.data(), observations.data(), to_outputs, gradient.empty() ? nullptr : gradient.data(),
                      to_observations.empty() ? nullptr : to_observations.data()};
  bool norms = false;  // the gradients of their scales and shifts sum over rows, within a part
  for (const Layers& layers : branches_) {
    for (const Layer& layer : layers) norms = norms || layer.has_norm;
  }
  const std::size_t parts = norms ? 1 : parts_for(kept_rows_, to_outputs.size(), kept_selected_);
  const std::size_t groups = std::max<std::size_t>(1, (kept_rows_ + kBlock * parts - 1) / (kBlock * parts));
  const std::size_t even = (kept_rows_ + groups - 1) / groups, unit = kGrain * parts;
  const std::size_t group = (even + unit - 1) / unit * unit;
  reserve_back(pass, group);
  for (std::size_t first = 0; first < kept_rows_; first += group) {
    backward_group(pass, first, std::min(group, kept_rows_ - first), parts);
  }
}

// A group is as many rows as its parts have room for. Its slopes are computed for parts of the rows, then the gradients
// of weights for parts of their outputs.
void DenseNetwork::backward_group(const Backward& pass, std::size_t group, std::size_t rows, std::size_t parts) {
  share(parts, [&](std::size_t part) {
    const Range own = share_of(rows, kGrain, part, parts);
    if (pass.gradient && inputs() % kPad && !kept_selected_.few()) {  // rows of b of a product are read up to a multiple of 16 columns
      copy_rows(pass.observations + (group + own.begin) * inputs(), own.count(), inputs(),
                padded_rows_.data() + own.begin * padded(inputs()), padded(inputs()));
    }
    bool add = false;
    for (std::size_t branch = 0; branch < pass.to_outputs.size(); ++branch) {
      if (!pass.to_outputs[branch] || own.count() == 0) continue;
      backward_rows(pass, branch, group, own.begin, own.count(), add);
      add = true;
    }
  });
  if (!pass.gradient) return;
  share(parts, [&](std::size_t part) {
    for (std::size_t branch = 0; branch < pass.to_outputs.size(); ++branch) {
      if (pass.to_outputs[branch]) weight_gradients(pass, branches_[branch], group, rows, part, parts);
    }
  });
}

// Computes the slopes of `rows` rows of one branch, which begin at `first` of the group.
void DenseNetwork::backward_rows(const Backward& pass, std::size_t branch, std::size_t group, std::size_t first,
                                 std::size_t rows, bool add) {
  const dense::Kernels& kernels = chosen_kernels();
  Layers& layers = branches_[branch];
  const Layer& top = layers.back();
  copy_rows(pass.to_outputs[branch] + (group + first) * top.outputs, rows, top.outputs,
            layers.back().slopes.data() + first * top.stride, top.stride);
  for (std::size_t number = layers.size(); number-- > 0;) {
    Layer& layer = layers[number];
    const std::size_t at = (group + first) * layer.stride;
    float* slopes = layer.slopes.data() + first * layer.stride;
    const Rows shape{rows, layer.outputs, layer.stride};
    if (number + 1 < layers.size()) {
      const float* result = layer.results.data() + at;
      kernels.differentiate(layer.activation, shape, result, layer.keeps_sums ? layer.sums.data() + at : result, slopes);
    }
    if (layer.has_norm) {
      kernels.normalize_back(shape, pass.block + layer.scale, layer.normalised.data() + at,
                             layer.inverse.data() + group + first, slopes,
                             pass.gradient ? pass.gradient + layer.scale : nullptr,
                             pass.gradient ? pass.gradient + layer.shift : nullptr);
    }
    if (number == 0 && !pass.to_observations) return;
    const bool plain = layer.inputs % kPad == 0;
    kernels.product({.rows = rows, .columns = layer.inputs, .depth = layer.outputs, .a = slopes,
                     .a_row = layer.stride, .a_depth = 1,
                     .b = plain ? pass.block + layer.weight : layer.weight_rows.data(), .b_depth = padded(layer.inputs),
                     .c = number ? layers[number - 1].slopes.data() + first * padded(layer.inputs)
                                 : pass.to_observations + (group + first) * layer.inputs,
                     .c_row = number ? padded(layer.inputs) : layer.inputs, .add = !number && add});
  }
}

// Adds the sums over the rows of a group to this part's share of the gradients of weights and biases.
void DenseNetwork::weight_gradients(const Backward& pass, Layers& layers, std::size_t group, std::size_t rows,
                                    std::size_t part, std::size_t parts) {
  for (std::size_t number = 0; number < layers.size(); ++number) {
    Layer& layer = layers[number];
    const Range own = share_of(layer.outputs, kPad, part, parts);
    if (own.count()) {
      chosen_kernels().sum({rows, own.count(), layer.stride}, layer.slopes.data() + own.begin,
                           pass.gradient + layer.bias + own.begin);
    }
    weight_gradient(pass, layer, number ? &layers[number - 1] : nullptr, group, rows, part, parts);
  }
}

void DenseNetwork::weight_gradient(const Backward& pass, Layer& layer, const Layer* before, std::size_t group,
                                   std::size_t rows, std::size_t part, std::size_t parts) {
  const bool looks_up = !before && kept_selected_.few(), swaps = layer.swaps || looks_up;
  const Range own = share_of(looks_up ? kept_selected_.columns().size() : swaps ? layer.inputs : layer.outputs, kGrain,
                             part, parts);
  if (own.count() == 0) return;
  const dense::Kernels& kernels = chosen_kernels();
  const bool add = group > 0;
  std::size_t stride = before ? before->stride : inputs();
  const float* in = before ? before->results.data() + group * stride : pass.observations + group * stride;
  if (!swaps) {
    if (stride % kPad) {
      stride = padded(layer.inputs);
      in = padded_rows_.data();
    }
    kernels.product({.rows = own.count(), .columns = layer.inputs, .depth = rows, .a = layer.slopes.data() + own.begin,
                     .a_row = 1, .a_depth = layer.stride, .b = in, .b_depth = stride,
                     .c = pass.gradient + layer.weight + own.begin * layer.inputs, .c_row = layer.inputs, .add = add});
    return;
  }
  float* transposed = layer.transposed.data() + own.begin * layer.stride;
  if (looks_up) {
    if (!add) std::fill_n(transposed, own.count() * layer.stride, 0.0F);
    for (std::size_t row = 0; row < rows; ++row) {
      kernels.scatter(kept_selected_.row(group + row, own.begin, own.end), layer.slopes.data() + row * layer.stride,
                      layer.outputs, layer.transposed.data(), layer.stride);
    }
  } else {
    kernels.product({.rows = own.count(), .columns = layer.outputs, .depth = rows, .a = in + own.begin, .a_row = 1,
                     .a_depth = stride, .b = layer.slopes.data(), .b_depth = layer.stride, .c = transposed,
                     .c_row = layer.stride, .add = add});
  }
  if (group + rows < kept_rows_) return;
  float* const to = pass.gradient + layer.weight;
  if (!looks_up) return transpose(transposed, own.count(), layer.outputs, layer.stride, to + own.begin, layer.inputs);
  for (std::size_t place = own.begin; place < own.end; ++place) {
    const float* const from = layer.transposed.data() + place * layer.stride;
    const std::size_t column = kept_selected_.columns()[place];
    for (std::size_t output = 0; output < layer.outputs; ++output) to[output * layer.inputs + column] = from[output];
  }
}

}  // namespace hive
