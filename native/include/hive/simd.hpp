// How the loops over blocks are compiled: once per instruction set, chosen when the module loads.
//
// HIVE_SIMD before a function makes the compiler emit it for AVX-512, for AVX2 and for the baseline; the dynamic
// loader takes the best one that the processor has, so one wheel serves all. It does not change results: the loops
// have no floating-point sum whose order is left to the compiler, and products are not fused with sums
// (-ffp-contract=off), so every path rounds the same operations in the same order and ends with the same bits.
// Sanitizers cannot run a loader-time choice (it happens before they start), other C libraries do not offer it.
//
// HIVE_INDEPENDENT before a loop promises that no iteration reads what another one wrote. It lets a loop whose output
// may be its input, element by element, be vectorised; __restrict would promise more than that.
#pragma once

#include <cstddef>  // also says whether the C library is glibc

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
