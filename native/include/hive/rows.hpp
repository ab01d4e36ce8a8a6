// One step of B environments, as a vector returned it, becomes a row of a rollout: in one pass over the row instead of
// some twenty small array operations, which cost more than the pass.
//
// Episodes holds what lasts from step to step: the return and the length so far of the episode that each environment
// is in and, in a vector whose ended environments are reset by the step after (next-step autoreset), which these are.
// It can also cut episodes at a time limit, which spares a wrapper around each environment.
//
//     in the row before finish()   rewards, and terminated and truncated as returned: any value but 0 is true
//     in the row after             all of it, as hive/envs/rows.py tells: never both flags; valid = 0, reward 0 and no
//                                  flag in a step that only reset; the return and the length of an episode in the step
//                                  that ends it, else 0; final_index -1
//
// store() copies observations as float32 and says whether all are finite, in the same pass.
//
// What it does not do: know Python objects (bind_rows.cpp does), keep the last observations of truncated episodes, or
// say what is wrong with a reward or an observation: that is rare and left to Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hive {

// All of B elements.
struct Row {
  std::span<float> rewards;
  std::span<std::uint8_t> terminated;
  std::span<std::uint8_t> truncated;
  std::span<std::uint8_t> valid;
  std::span<float> episode_returns;
  std::span<std::int32_t> episode_lengths;
  std::span<std::int32_t> final_index;
};

class Episodes {
 public:
  // `limit`: an episode of so many steps is truncated with the last of them, whatever was returned; 0 for none.
  Episodes(std::size_t envs, bool resets_in_next_step, std::int64_t limit = 0);

  std::size_t envs() const { return returns_.size(); }

  // All environments begin an episode. Open ones are dropped.
  void reset();

  // The row as above; how many environments ended. -1 where a reward is not finite, in a step that only reset as well:
  // then nothing is changed.
  std::ptrdiff_t finish(const Row& row);

 private:
  std::vector<double> returns_;  // of float32 rewards, summed in float64
  std::vector<std::int32_t> lengths_;
  std::vector<std::uint8_t> resetting_;
  bool resets_in_next_step_;
  std::int64_t limit_;
};

// Where element (i, j) of a matrix lies: at data + i * row_step + j * column_step.
template <typename T>
struct Matrix {
  const T* data;
  std::size_t rows, columns;
  std::ptrdiff_t row_step, column_step;
};

// Writes the matrix to `to`, row after row. False where a number is not finite in float32; all are written even so.
bool store(const Matrix<float>& from, float* to);
bool store(const Matrix<double>& from, float* to);

}  // namespace hive
