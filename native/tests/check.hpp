// CHECK for tests that are plain programs: says where and what failed, and ends the program with a failure.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (false)
