// Turns one step of B environments, as a vector returned it, into a row of a rollout. One pass over the row costs less
// than some twenty small array operations.
//
// Episodes holds the state between steps: return and length so far of each environment's episode and, with next-step
// autoreset (the step after the end of an episode resets the environment), the environments that have ended. It can
// also truncate episodes at a time limit, which saves a wrapper around each environment.
//
//     in the row before finish()   rewards, and terminated and truncated as returned: any value but 0 is true
//     in the row after             all fields, as in hive/envs/vectors/rows.py: never both flags; valid = 0, reward 0 and no
//                                  flag in a step that only reset; the return and the length of an episode in the step
//                                  that ends it, else 0; final_index -1
//
// store() copies observations as float32 and returns whether all are finite, in the same pass.
//
// bind_rows.cpp reads Python objects. Python code keeps the last observations of truncated episodes and, since that is
// rare, describes invalid rewards and observations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hive {

// All spans have B elements.
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
  // `limit`: maximum steps of an episode, which is truncated by the last of them; 0 for no limit.
  Episodes(std::size_t envs, bool resets_in_next_step, std::int64_t limit = 0);

  std::size_t envs() const { return returns_.size(); }

  // Starts an episode in every environment and discards the current ones.
  void reset();

  // Fills the row as above and returns how many environments ended. Returns -1 and changes nothing if a reward is not
  // finite, even in a step that only reset.
  std::ptrdiff_t finish(const Row& row);

 private:
  std::vector<double> returns_;  // running returns: float32 rewards summed in float64
  std::vector<std::int32_t> lengths_;
  std::vector<std::uint8_t> resetting_;
  bool resets_in_next_step_;
  std::int32_t limit_;
};

// A matrix whose element (i, j) lies at data + i * row_step + j * column_step.
template <typename T>
struct Matrix {
  const T* data;
  std::size_t rows, columns;
  std::ptrdiff_t row_step, column_step;
};

// Writes the matrix to `to`, row after row. Returns false if a number is not finite in float32; all are written anyway.
bool store(const Matrix<float>& from, float* to);
bool store(const Matrix<double>& from, float* to);

}  // namespace hive
