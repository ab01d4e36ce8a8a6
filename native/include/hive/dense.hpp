// Dense networks over a flat block of weights: forward and backward passes of one or several branches of linear layers.
//
//     observations [N, inputs] -> branch 0: layer, layer, .., layer -> outputs [N, width 0]
//                              -> branch 1: ..                      -> outputs [N, width 1]
//
// A layer is a linear map, an optional layer norm (Ba et al. 2016) and an activation. Its weights [outputs, inputs] and
// biases are floats of the block of parameters, as FlatParameters lays them out: each array begins at a multiple of 64
// bytes, with zeros up to the next one. A gradient is written into a block of the same layout.
//
// Every sum has one order, that of the index it sums over, and no sum depends on how rows or columns are grouped. So the
// outputs of a row are the same in every batch, and a gradient has the same bytes in every process. Products are fused
// with sums, so processors without such an instruction give other last bits; those with it (AVX2 with FMA, AVX-512,
// NEON) give the same, whatever their vectors' width. The version is chosen when the module loads.
//
// NaN and infinities pass through as in torch.
//
// Where few of the numbers of the observations are not zero, as in one-hot rows, the first layers look up what these
// select: rows of the transposed weights forward, and rows of its gradient backward. The zeros that are left out change
// no byte, as products with finite weights.
//
// Large passes are shared among the threads of the process (team.hpp): rows are divided among them, and for the
// gradients of weights, which sum over all rows, the outputs of a layer. So the number of threads changes no byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "hive/selected.hpp"

namespace hive {

enum class Activation : std::uint8_t { none, tanh, relu, silu };

// Offsets count floats from the start of the block. `scale` and `shift` are those of a layer norm; -1: none.
struct DenseLayer {
  std::size_t inputs;
  std::size_t outputs;
  std::ptrdiff_t weight;
  std::ptrdiff_t bias;
  std::ptrdiff_t scale = -1;
  std::ptrdiff_t shift = -1;
  float epsilon = 1e-5F;
  Activation activation = Activation::none;
};

using Branch = std::vector<DenseLayer>;

// Allocates memory that begins at a multiple of 64 bytes, so that no vector lies in two lines of the cache.
template <typename T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <typename U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, std::align_val_t{64}); }
  bool operator==(const AlignedAllocator&) const = default;
};

using Floats = std::vector<float, AlignedAllocator<float>>;

// A network, and the memory for one pass through it. Calls from several threads follow each other; a pass with `keep` and
// its `backward` belong to one thread.
class DenseNetwork {
 public:
  // Throws std::invalid_argument unless layers fit each other and a block of `parameters` floats.
  DenseNetwork(std::vector<Branch> branches, std::size_t parameters);

  std::size_t branches() const { return branches_.size(); }
  std::size_t parameters() const { return parameters_; }
  std::size_t inputs() const { return branches_.front().front().inputs; }
  std::size_t outputs(std::size_t branch) const { return branches_[branch].back().outputs; }

  // Computes the outputs [rows, width] of the first `outputs.size()` branches for `observations` [rows, inputs]. With
  // `keep`, what `backward` needs is kept until the next such pass. packed: the weights are those of the last `pack`.
  void forward(std::span<const float> block, std::span<const float> observations, std::size_t rows,
               std::span<float* const> outputs, bool keep, bool packed = false);

  // Transposes the weights of the first `branches` branches for the passes that follow with `packed`. A pass of few rows
  // takes less time than that.
  void pack(std::span<const float> block, std::size_t branches);

  // Writes the gradients of all layers of the branches with a gradient of their outputs [rows, width] (others: null)
  // into `gradient`, a block of the layout of the parameters, for the last pass with `keep`; other floats of it stay.
  // Empty: only to_observations is computed.
  // to_observations: [rows, inputs], receives the gradient of the observations; empty: it is not computed.
  void backward(std::span<const float> block, std::span<const float> observations,
                std::span<const float* const> to_outputs, std::span<float> gradient, std::span<float> to_observations);

  // The rows of the last pass with `keep`.
  std::size_t kept_rows() const { return kept_rows_; }

 private:
  struct Layer : DenseLayer {
    std::size_t stride;             // floats between rows of its results
    std::size_t packed;             // offset of its transposed weight in packed_
    bool keeps_sums, has_norm;
    bool swaps;                     // the gradient of its weight is computed transposed
    Floats results;      // [rows, stride]: what its activation returned
    Floats sums;         // [rows, stride]: the argument of silu
    Floats normalised;   // [rows, stride]
    Floats inverse;      // [rows]: inverse deviations of a layer norm
    Floats slopes;       // [rows of a group, stride]: the gradient of its sums
    Floats transposed;   // [inputs, stride]: the gradient of its weight
    Floats weight_rows;  // [outputs, padded inputs]: its weight, where inputs are no multiple of 16
  };
  using Layers = std::vector<Layer>;

  // What a backward pass is given.
  struct Backward {
    const float* block;
    const float* observations;
    std::span<const float* const> to_outputs;
    float* gradient;         // may be null
    float* to_observations;  // may be null
  };

  Layer prepared(const DenseLayer& layer, bool last);
  void check(const DenseLayer& layer) const;
  std::size_t parts_for(std::size_t rows, std::size_t branches, const Selected& selected) const;
  void pack(std::span<const float> block, std::size_t branches, std::size_t part, std::size_t parts,
            const Selected& selected);
  void reserve(std::size_t rows);
  void reserve_back(const Backward& pass, std::size_t group);
  void forward_rows(Layers& layers, const float* block, const float* observations, std::size_t first, std::size_t rows,
                    float* output, float* scratch, bool keep);
  void backward_group(const Backward& pass, std::size_t first, std::size_t rows, std::size_t parts);
  void backward_rows(const Backward& pass, std::size_t branch, std::size_t group, std::size_t first, std::size_t rows,
                     bool add);
  void weight_gradients(const Backward& pass, Layers& layers, std::size_t first, std::size_t rows, std::size_t part,
                        std::size_t parts);
  void weight_gradient(const Backward& pass, Layer& layer, const Layer* before, std::size_t first, std::size_t rows,
                       std::size_t part, std::size_t parts);

  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();

  std::vector<Layers> branches_;
  std::size_t parameters_;
  std::size_t widest_ = 0;
  std::size_t kept_rows_ = 0;
  Selected selected_, kept_selected_;  // of the observations of the last pass, and of the last one with `keep`
  std::size_t capacity_ = 0;  // rows that the results have memory for
  Floats packed_;             // all weights, transposed: [inputs, padded outputs] each
  Floats scratch_;            // two blocks of rows for each part, [kBlock, padded widest] each
  Floats padded_rows_;        // [rows of a group, padded inputs]: the observations, where a product needs them so
};

// The instruction set that was chosen: "avx512", "avx2" or "plain".
std::string dense_instructions();

}  // namespace hive
