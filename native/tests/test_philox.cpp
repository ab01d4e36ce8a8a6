// Philox's words against the known answers of its reference implementation, and the normal numbers of these words.
#include "hive/philox.hpp"

#include <cmath>
#include <vector>

#include "check.hpp"

namespace {

using Words = std::array<std::uint32_t, 4>;

void test_known_answers() {  // kat_vectors of Random123, philox 4x32 10
  CHECK(hive::philox_words(0, 0, 0) == (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  CHECK(hive::philox_words(kAll, kAll, kAll) == (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  CHECK(hive::philox_words(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88) ==
        (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

void test_normals_are_those_of_the_words() {
  std::vector<float> found(1000);
  hive::philox_normals(7, 3, 0, found);
  for (std::size_t pair = 0; pair < found.size() / 2; ++pair) {
    const Words words = hive::philox_words(7, 3, pair / 2);
    const double size = std::sqrt(-2.0 * std::log((words[2 * (pair % 2)] + 0.5) / 4294967296.0));
    const std::uint32_t turn = words[2 * (pair % 2) + 1];
    const double quarter = turn >> 30, rest = ((turn & 0x3FFFFFFF) + 0.5) / 4294967296.0 - 0.125;
    const double angle = 2 * 3.14159265358979323846 * (rest + quarter / 4);
    CHECK(std::fabs(found[2 * pair] - size * std::cos(angle)) < 5e-7);
    CHECK(std::fabs(found[2 * pair + 1] - size * std::sin(angle)) < 5e-7);
  }
}

void test_positions() {
  std::vector<float> all(700), part(300);
  hive::philox_normals(1, 2, 0, all);
  for (const std::size_t first : {0, 1, 2, 3, 255, 256, 257, 400}) {
    hive::philox_normals(1, 2, first, part);
    for (std::size_t i = 0; i < part.size(); ++i) CHECK(part[i] == all[first + i]);
  }
  hive::philox_normals(1, 2, 5, {});
}

}  // namespace

int main() {
  test_known_answers();
  test_normals_are_those_of_the_words();
  test_positions();
}
