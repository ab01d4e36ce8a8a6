// What the policy of a collector is in Python. It holds the arrays of the rollout that has begun.
#pragma once

#include <optional>

#include "arrays.hpp"
#include "bound_dense.hpp"
#include "hive/acting.hpp"

namespace hive {

struct PyActing : Acting {
  using Acting::Acting;
  std::vector<Arrays> held;  // keep the memory of the rollout alive
};

}  // namespace hive
