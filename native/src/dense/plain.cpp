// The kernels for any processor. With vectors of 4 floats these are NEON on ARM and SSE2 on x86.
#define HIVE_VECTOR_BYTES 16
#if defined(__aarch64__)
#define HIVE_TILE_ROWS 6
#define HIVE_TILE_VECTORS 4
#else
#define HIVE_TILE_ROWS 4
#define HIVE_TILE_VECTORS 2
#endif
#define HIVE_KERNELS plain_kernels
#define HIVE_KERNELS_NAME "plain"
#include "kernel_code.hpp"
