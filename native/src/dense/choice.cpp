// The choice of kernels, once for a process. HIVE_DENSE names others, for tests and comparisons.
#include <cstdlib>
#include <string_view>

#include "kernels.hpp"

namespace hive::dense {
namespace {

const Kernels& best() {
#if defined(HIVE_DENSE_X86)
  const char* asked = std::getenv("HIVE_DENSE");
  const std::string_view most = asked ? asked : "avx512";
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && most != "plain";
  if (avx2 && most == "avx512" && __builtin_cpu_supports("avx512f")) return avx512_kernels();
  if (avx2) return avx2_kernels();
#endif
  return plain_kernels();
}

}  // namespace

const Kernels& chosen_kernels() {
  static const Kernels& chosen = best();
  return chosen;
}

}  // namespace hive::dense

namespace hive {

std::string dense_instructions() { return dense::chosen_kernels().name; }

}  // namespace hive
