// Gymnasium's classic control: CartPole, Acrobot, MountainCar, MountainCarContinuous and Pendulum, bit-equal.
//
// Each computes what the Python class of the same name computes, in the same order of operations and with the same
// roundings, and draws the same random numbers (pcg64.hpp). Sines, cosines and powers are those of the C library, as
// NumPy's scalars and Python's `math` use it. tests/envs/test_classic_control.py compares a million steps, and
// hive.envs.vectors.compiled compares some with the installed Gymnasium and NumPy before "auto" chooses one of these.
//
// References: Barto, Sutton, Anderson 1983 (CartPole); Sutton 1996 (Acrobot); Moore 1990 (MountainCar).
#pragma once

#include <string_view>

#include "hive/env.h"

namespace hive {

// The environment of Gymnasium's entry point, such as "CartPoleEnv"; nullptr if there is none.
const hive_environment* classic_control(std::string_view name);

}  // namespace hive
