// The kernels for AVX-512: 32 registers of 16 floats, of which a tile holds 6 x 4 sums.
#define HIVE_VECTOR_BYTES 64
#define HIVE_TILE_ROWS 6
#define HIVE_TILE_VECTORS 4
#define HIVE_KERNELS avx512_kernels
#define HIVE_KERNELS_NAME "avx512"
#include "kernel_code.hpp"
