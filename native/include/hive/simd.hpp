// Compiles the loops over blocks once per instruction set; the choice is made when the module loads.
//
// HIVE_SIMD before a function makes the compiler emit it for AVX-512, for AVX2 and for the baseline. The dynamic loader
// picks the best version for the processor, so one wheel serves all. The results are bit-identical: no loop leaves the
// order of a floating-point sum to the compiler, and products are not fused with sums (-ffp-contract=off), so every
// version rounds the same operations in the same order. It is off with sanitizers, which start after the loader's
// choice, and with C libraries other than glibc, which do not support it.
//
// HIVE_INDEPENDENT before a loop asserts that no iteration reads the output of another one. The compiler may then
// vectorise a loop whose output is its input, element by element, where __restrict would assert too much.
#pragma once

#include <cstddef>  // also defines __GLIBC__ if the C library is glibc

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define HIVE_SANITIZED
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define HIVE_SANITIZED
#endif

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(HIVE_SANITIZED) && defined(__has_attribute)
#if __has_attribute(target_clones)
#define HIVE_SIMD __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef HIVE_SIMD
#define HIVE_SIMD
#endif

#if defined(__clang__)
#define HIVE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define HIVE_INDEPENDENT _Pragma("GCC ivdep")
#endif
