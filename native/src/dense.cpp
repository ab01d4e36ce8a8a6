#include <algorithm>
#include <stdexcept>

#include "dense/kernels.hpp"

namespace hive {

using dense::chosen_kernels;
using dense::kPad;
using dense::padded;
using dense::Product;
using dense::Rows;

namespace {

// Rows that pass through all layers together, so that what lies between layers stays in the cache. A multiple of the
// rows of a tile.
constexpr std::size_t kBlock = 96;

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
  scratch_.resize(3 * kBlock * padded(widest_));
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

void DenseNetwork::pack(std::span<const float> block, std::size_t branches) {
  for (std::size_t branch = 0; branch < branches; ++branch) {
    for (const Layer& layer : branches_[branch]) {
      transpose(block.data() + layer.weight, layer.outputs, layer.inputs, layer.inputs, packed_.data() + layer.packed,
                layer.stride);
    }
  }
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
                           std::span<float* const> outputs, bool keep) {
  const std::lock_guard<std::mutex> held(*mutex_);
  pack(block, outputs.size());
  if (keep) {
    reserve(rows);
    kept_rows_ = rows;
  }
  for (std::size_t first = 0; first < rows; first += kBlock) {
    const std::size_t count = std::min(kBlock, rows - first);
    for (std::size_t branch = 0; branch < outputs.size(); ++branch) {
      forward_rows(branches_[branch], block.data(), observations.data(), first, count, outputs[branch], keep);
    }
  }
}

void DenseNetwork::forward_rows(Layers& layers, const float* block, const float* observations, std::size_t first,
                                std::size_t rows, float* output, bool keep) {
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
                      : (keep ? layer.results.data() + at : scratch_.data() + (turn++ % 2) * area);
    float* argument = keep && layer.keeps_sums ? layer.sums.data() + at : out;
    const std::size_t out_stride = last ? layer.outputs : layer.stride;
    kernels.product({.rows = rows, .columns = layer.outputs, .depth = layer.inputs, .a = in, .a_row = in_stride,
                     .a_depth = 1, .b = packed_.data() + layer.packed, .b_depth = layer.stride, .c = argument,
                     .c_row = out_stride, .start = block + layer.bias});
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

void DenseNetwork::backward(std::span<const float> block, std::span<const float> observations,
                            std::span<const float* const> to_outputs, std::span<float> gradient,
                            std::span<float> to_observations) {
  const std::lock_guard<std::mutex> held(*mutex_);
  for (std::size_t branch = 0; branch < to_outputs.size(); ++branch) {
    if (!to_outputs[branch]) continue;
    for (Layer& layer : branches_[branch]) {
      if (!gradient.empty()) {
        std::fill_n(gradient.data() + layer.weight, layer.inputs * layer.outputs, 0.0F);
        for (const std::ptrdiff_t offset : {layer.bias, layer.scale, layer.shift}) {
          if (offset >= 0) std::fill_n(gradient.data() + offset, layer.outputs, 0.0F);
        }
        if (layer.swaps) layer.transposed.assign(layer.inputs * layer.stride, 0.0F);
      }
      const bool passes_on = &layer != &branches_[branch].front() || !to_observations.empty();
      if (passes_on && layer.inputs % kPad) {
        layer.weight_rows.resize(layer.outputs * padded(layer.inputs));
        copy_rows(block.data() + layer.weight, layer.outputs, layer.inputs, layer.weight_rows.data(),
                  padded(layer.inputs));
      }
    }
  }
  for (std::size_t first = 0; first < kept_rows_; first += kBlock) {
    const std::size_t count = std::min(kBlock, kept_rows_ - first);
    bool add = false;
    for (std::size_t branch = 0; branch < to_outputs.size(); ++branch) {
      if (!to_outputs[branch]) continue;
      backward_rows(branches_[branch], block.data(), observations.data(), first, count, to_outputs[branch],
                    gradient.empty() ? nullptr : gradient.data(),
                    to_observations.empty() ? nullptr : to_observations.data(), add);
      add = true;
    }
  }
  if (gradient.empty()) return;
  for (std::size_t branch = 0; branch < to_outputs.size(); ++branch) {
    if (!to_outputs[branch]) continue;
    for (const Layer& layer : branches_[branch]) {
      if (!layer.swaps) continue;
      transpose(layer.transposed.data(), layer.inputs, layer.outputs, layer.stride, gradient.data() + layer.weight,
                layer.inputs);
    }
  }
}

void DenseNetwork::backward_rows(Layers& layers, const float* block, const float* observations, std::size_t first,
                                 std::size_t rows, const float* to_output, float* gradient, float* to_observations,
                                 bool add) {
  const dense::Kernels& kernels = chosen_kernels();
  const std::size_t area = kBlock * padded(widest_);
  float* slopes = scratch_.data();
  float* below = slopes + area;
  copy_rows(to_output + first * layers.back().outputs, rows, layers.back().outputs, slopes, layers.back().stride);
  for (std::size_t number = layers.size(); number-- > 0;) {
    Layer& layer = layers[number];
    const std::size_t at = first * layer.stride;
    const Rows shape{rows, layer.outputs, layer.stride};
    if (number + 1 < layers.size()) {
      const float* result = layer.results.data() + at;
      kernels.differentiate(layer.activation, shape, result, layer.keeps_sums ? layer.sums.data() + at : result, slopes);
    }
    if (layer.has_norm) {
      kernels.normalize_back(shape, block + layer.scale, layer.normalised.data() + at, layer.inverse.data() + first,
                             slopes, gradient ? gradient + layer.scale : nullptr,
                             gradient ? gradient + layer.shift : nullptr);
    }
    if (gradient) {
      kernels.sum(shape, slopes, gradient + layer.bias);
      weight_gradient(layer, slopes, number ? &layers[number - 1] : nullptr, observations, first, rows, gradient);
    }
    if (number == 0 && !to_observations) return;
    const bool plain = layer.inputs % kPad == 0;
    kernels.product({.rows = rows, .columns = layer.inputs, .depth = layer.outputs, .a = slopes,
                     .a_row = layer.stride, .a_depth = 1, .b = plain ? block + layer.weight : layer.weight_rows.data(),
                     .b_depth = padded(layer.inputs), .c = number ? below : to_observations + first * layer.inputs,
                     .c_row = number ? padded(layer.inputs) : layer.inputs, .add = !number && add});
    std::swap(slopes, below);
  }
}

void DenseNetwork::weight_gradient(Layer& layer, const float* slopes, const Layer* before, const float* observations,
                                   std::size_t first, std::size_t rows, float* gradient) {
  const dense::Kernels& kernels = chosen_kernels();
  std::size_t stride = before ? before->stride : layer.inputs;
  const float* in = before ? before->results.data() + first * stride : observations + first * stride;
  if (layer.swaps) {
    kernels.product({.rows = layer.inputs, .columns = layer.outputs, .depth = rows, .a = in, .a_row = 1,
                     .a_depth = stride, .b = slopes, .b_depth = layer.stride, .c = layer.transposed.data(),
                     .c_row = layer.stride, .add = true});
    return;
  }
  if (stride % kPad) {  // rows of b are read up to a multiple of 16 columns
    stride = padded(layer.inputs);
    float* padded_rows = scratch_.data() + 2 * kBlock * padded(widest_);
    copy_rows(in, rows, layer.inputs, padded_rows, stride);
    in = padded_rows;
  }
  kernels.product({.rows = layer.outputs, .columns = layer.inputs, .depth = rows, .a = slopes, .a_row = 1,
                   .a_depth = layer.stride, .b = in, .b_depth = stride, .c = gradient + layer.weight,
                   .c_row = layer.inputs, .add = true});
}

}  // namespace hive
