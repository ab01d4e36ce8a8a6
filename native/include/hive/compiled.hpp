// Steps the environments of a hive_environment (hive/env.h) and keeps their episodes: one call per step of a batch.
//
// A step clips or checks the actions, lets the environment write observations, rewards and flags into the row, passes
// them to Episodes (rows.hpp), and handles the ends: the last observation of a truncated episode goes to the finals, and
// the environment is reset in the same step, so that the row holds the first observation of the next episode. So the
// rows are those of hive.envs.vectors.python_vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hive/env.h"
#include "hive/rows.hpp"

namespace hive {

// The options of a config, in the form of the C interface.
class Options {
 public:
  void add(std::string name, double number);
  void add(std::string name, std::string text);
  const hive_options* get();

 private:
  struct Entry {
    std::string name, text;
    double number;
    bool is_text;
  };
  std::vector<Entry> entries_;
  std::vector<hive_option> items_;
  hive_options options_{};
};

// Observations in memory of the caller: of environment b at `data` + b * `stride` bytes.
struct Observations {
  char* data = nullptr;
  std::ptrdiff_t stride = 0;
};

// The last observations of truncated episodes, contiguous; the first `count` are written.
struct Finals {
  char* data = nullptr;
  std::size_t capacity = 0;
  std::size_t count = 0;
};

// What went wrong in the last call. `environment` is the one at fault, -1 where that is not known.
struct Fault {
  enum Kind { none, failed, action, reward, observation, final_observation } kind = none;
  std::ptrdiff_t environment = -1;
  std::string text;
};

// Returns the sizes of an environment, or writes why it has none that can be used to `error`, which is else empty.
hive_description describe(const hive_environment& environment, Options& options, std::string& error);

// What is wrong with the structure that a library exports; "" for nothing.
std::string version_fault(const hive_environment& environment);

class CompiledVector {
 public:
  // `environment` and its code must outlive the vector. `description` is what `describe` returned for `options`. If
  // the environment cannot be created, fault() says why, and nothing else may be called.
  CompiledVector(const hive_environment& environment, const hive_description& description, Options& options,
                 std::size_t count);
  ~CompiledVector();
  CompiledVector(const CompiledVector&) = delete;
  CompiledVector& operator=(const CompiledVector&) = delete;

  std::size_t count() const { return episodes_.envs(); }
  std::size_t observation_bytes() const { return observation_bytes_; }
  std::size_t action_elements() const { return elements_; }
  bool observes_floats() const { return floats_; }
  bool continuous() const { return description_.action_kind == HIVE_CONTINUOUS; }
  const Fault& fault() const { return fault_; }

  // Starts an episode in every environment, environment b with `seeds[b]`. False if something went wrong.
  bool reset(const std::uint64_t* seeds, Observations observations);

  // Steps every environment: `actions` are int64 or float [B, elements]. False if something went wrong.
  bool step(const void* actions, const Row& row, Observations observations, Finals& finals);

  // The two halves of `step` for a caller that keeps the episodes itself: one environment is reset, with or without a
  // seed; all are stepped, and nothing but the environment's own results is written or checked.
  bool reset_one(std::size_t b, const std::uint64_t* seed, char* observation);
  bool step_all(const void* actions, const Row& row, Observations observations);

 private:
  bool fail(Fault::Kind kind, std::ptrdiff_t environment, std::string text = {});
  bool finite(const char* observation) const;
  const void* checked(const void* actions);
  bool end(std::size_t b, const Row& row, char* observation, Finals& finals);

  const hive_environment& environment_;
  hive_description description_;
  std::size_t elements_;
  std::size_t observation_bytes_;
  bool floats_;
  Episodes episodes_;
  std::vector<float> clipped_;
  void* state_ = nullptr;
  Fault fault_;
};

}  // namespace hive
