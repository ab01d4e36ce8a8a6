/* The limit of the memory: reads K blocks side by side and writes one. No norm, no finite check, no order to keep.
   `bench accumulator` compiles it for the processor it runs on and compares every way with it. */
#include <stddef.h>

#define SUM(K)                                                                              \
  static void sum_##K(const float *const *blocks, float *restrict out, float factor, size_t size) { \
    const float *block[K];                                                                  \
    for (int k = 0; k < K; ++k) block[k] = blocks[k];                                       \
    for (size_t i = 0; i < size; ++i) {                                                     \
      float sum = block[0][i];                                                              \
      for (int k = 1; k < K; ++k) sum += block[k][i];                                       \
      out[i] = sum * factor;                                                                \
    }                                                                                       \
  }
SUM(2)
SUM(4)
SUM(8)

int plain_sum(const float *const *blocks, int count, float *out, float factor, size_t size) {
  if (count == 2) sum_2(blocks, out, factor, size);
  else if (count == 4) sum_4(blocks, out, factor, size);
  else if (count == 8) sum_8(blocks, out, factor, size);
  else return -1;
  return 0;
}
