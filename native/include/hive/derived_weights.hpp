// The weights of plain layers from those of noisy layers and of dueling streams, so that one DenseNetwork computes both.
//
//     parameters ──> derived block ──> DenseNetwork ──> gradient of the derived block ──> gradient of the parameters
//
//     noisy layer      weight = mean + deviation * f_out f_in^T,  bias = mean + deviation * f_out   (Fortunato et al. 2018)
//     dueling streams  Q(s, a) = V(s) + A(s, a) - mean of A(s, .)                                   (Wang et al. 2016)
//
// Streams are linear maps, and so is their combination, hence one layer: its rows are those of V plus those of A of the
// action, less their mean. Streams may themselves be noisy: their arrays then lie in the derived block.
//
// Offsets count floats. Sums over actions are in the order of the actions; a gradient has one term per row and column.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace hive {

// An array that is the same in both blocks.
struct CopiedArray {
  std::size_t from, to, count;
};

struct NoisyLayer {
  std::size_t inputs, outputs;
  std::size_t mean_weight, mean_bias, weight_deviation, bias_deviation;  // in the block of parameters
  std::size_t weight, bias;                                              // in the derived block
};

// The streams of the value [atoms] and of the advantages [actions, atoms], all in the derived block.
struct DuelingStreams {
  std::size_t inputs;  // of each stream
  bool apart;          // whether the streams have inputs of their own, those of the value first; else the same
  std::size_t actions, atoms;
  std::size_t value_weight, value_bias, advantage_weight, advantage_bias;
  std::size_t weight, bias;  // of the layer [actions * atoms, inputs, or twice that]
};

class DerivedWeights {
 public:
  // Throws std::invalid_argument for arrays outside of a block of `parameters`, or of the derived one of `size`.
  DerivedWeights(std::vector<CopiedArray> copies, std::vector<NoisyLayer> noisy, std::vector<DuelingStreams> streams,
                 std::size_t parameters, std::size_t size);

  std::size_t parameters() const { return parameters_; }
  std::size_t size() const { return size_; }
  // The factors of noise: for each noisy layer those of its inputs and then of its outputs. Zeros: the means alone.
  std::size_t factors() const { return factors_; }

  // Writes the derived block. What lies between its arrays stays as it is: it should be zero.
  void forward(std::span<const float> block, std::span<const float> factors, std::span<float> derived) const;

  // Writes the gradient of all parameters that it reads, from that of the derived block, in which the gradients of the
  // streams are written on the way. Other floats of `gradient` stay.
  void backward(std::span<const float> factors, std::span<float> to_derived, std::span<float> gradient) const;

 private:
  std::vector<CopiedArray> copies_;
  std::vector<NoisyLayer> noisy_;
  std::vector<DuelingStreams> streams_;
  std::size_t parameters_, size_, factors_ = 0;
};

}  // namespace hive
