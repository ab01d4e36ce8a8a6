// Sines and cosines with exactly the bits of the C library's `sin` and `cos`.
//
// A compiler that sees both of one angle calls `sincos` instead, and it replaces pow(x, 2) by x * x. Neither need have
// the same last bit, so these functions hide from it which function they call.
#pragma once

#include <math.h>  // the functions of C, which are not overloaded

#include <cstddef>

namespace hive {

using RealFunction = double (*)(double);

inline double exact_sin(double x) {
  static const RealFunction volatile function = ::sin;
  return function(x);
}

inline double exact_cos(double x) {
  static const RealFunction volatile function = ::cos;
  return function(x);
}

inline double exact_square(double x) {  // as `x ** 2` of a Python or NumPy number
  static double (*const volatile function)(double, double) = ::pow;
  return function(x, 2.0);
}

inline float exact_square(float x) {  // as `x ** 2` of a NumPy float32
  static float (*const volatile function)(float, float) = ::powf;
  return function(x, 2.0F);
}

// Whether small angles are computed in a vector loop, several times as fast. It depends on processor and C library.
bool vector_sines();

// Writes the sines and cosines of `count` angles.
void sines_cosines(const double* angles, std::size_t count, double* sines, double* cosines);

}  // namespace hive
