// The kernels for AVX2 with FMA: 16 registers of 8 floats, of which a tile holds 6 x 2 sums.
#define HIVE_VECTOR_BYTES 32
#define HIVE_TILE_ROWS 6
#define HIVE_TILE_VECTORS 2
#define HIVE_KERNELS avx2_kernels
#define HIVE_KERNELS_NAME "avx2"
#include "kernel_code.hpp"
