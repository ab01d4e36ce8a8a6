#include "hive/philox.hpp"

#include <algorithm>
#include <cmath>

#include "hive/elementary.hpp"
#include "hive/simd.hpp"

namespace hive {
namespace {

constexpr std::uint64_t kLow = 0xFFFFFFFF;
constexpr std::uint64_t kFactor0 = 0xD2511F53, kFactor1 = 0xCD9E8D57;
constexpr std::uint64_t kStep0 = 0x9E3779B9, kStep1 = 0xBB67AE85;  // of the key, after each round
constexpr int kRounds = 10;

constexpr std::size_t kBlocks = 64;  // that are computed together
constexpr std::size_t kPairs = 2 * kBlocks, kNumbers = 2 * kPairs;

constexpr double kTwoPi = 0x1.921fb54442d18p+2;
constexpr double kTwo32 = 4294967296.0;

// A block of words, each in a 64-bit lane, so that their products are the products of lanes.
struct Words {
  std::uint64_t a, b, c, d;
};

[[gnu::always_inline]] inline Words mixed(std::uint64_t seed, std::uint64_t stream, std::uint64_t block) {
  Words words{block & kLow, block >> 32, stream & kLow, stream >> 32};
  std::uint64_t key0 = seed & kLow, key1 = seed >> 32;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t first = kFactor0 * words.a, second = kFactor1 * words.c;
    words = {(second >> 32) ^ words.b ^ key0, second & kLow, (first >> 32) ^ words.d ^ key1, first & kLow};
    key0 = (key0 + kStep0) & kLow;
    key1 = (key1 + kStep1) & kLow;
  }
  return words;
}

// Two normal numbers of two words: the root of -2 ln u, where u lies between 0 and 1, in the direction of `turn`.
[[gnu::always_inline]] inline void transform(std::uint64_t word, std::uint64_t turn, double& first, double& second) {
  const double size = std::sqrt(-2.0 * log_of((double_of(word) + 0.5) * (1.0 / kTwo32)));
  // The angle within an eighth of a turn of a multiple of a quarter, where short series are exact to 1e-11.
  const double x = ((double_of(turn & 0x3FFFFFFF) + 0.5) * (1.0 / kTwo32) - 0.125) * kTwoPi, square = x * x;
  double sine = -1.0 / 39916800.0;
  for (const double term : {1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0, 1.0}) sine = sine * square + term;
  sine *= x;
  double cosine = 1.0 / 479001600.0;
  for (const double term : {-1.0 / 3628800.0, 1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0}) {
    cosine = cosine * square + term;
  }
  const bool odd = (turn >> 30 & 1) != 0;
  const double sign = (turn >> 31) != 0 ? -size : size;
  first = (odd ? -sine : cosine) * sign;
  second = (odd ? cosine : sine) * sign;
}

// The normal numbers of the kBlocks blocks from `block` on.
HIVE_SIMD void fill(std::uint64_t seed, std::uint64_t stream, std::uint64_t block, float* to) {
  alignas(64) std::uint64_t words[kPairs], turns[kPairs];
  alignas(64) float first[kPairs], second[kPairs];
  for (std::size_t i = 0; i < kBlocks; ++i) {
    const Words found = mixed(seed, stream, block + i);
    words[i] = found.a;
    turns[i] = found.b;
    words[kBlocks + i] = found.c;
    turns[kBlocks + i] = found.d;
  }
  for (std::size_t i = 0; i < kPairs; ++i) {
    double left, right;
    transform(words[i], turns[i], left, right);
    first[i] = static_cast<float>(left);
    second[i] = static_cast<float>(right);
  }
  for (std::size_t i = 0; i < kBlocks; ++i) {
    to[4 * i] = first[i];
    to[4 * i + 1] = second[i];
    to[4 * i + 2] = first[kBlocks + i];
    to[4 * i + 3] = second[kBlocks + i];
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox_words(std::uint64_t seed, std::uint64_t stream, std::uint64_t block) {
  const Words words = mixed(seed, stream, block);
  const auto narrow = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  return {narrow(words.a), narrow(words.b), narrow(words.c), narrow(words.d)};
}

void philox_normals(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::span<float> to) {
  float numbers[kNumbers];
  std::size_t done = 0;
  std::size_t skipped = first % 4;
  for (std::uint64_t block = first / 4; done < to.size(); block += kBlocks, skipped = 0) {
    const std::size_t count = std::min(kNumbers - skipped, to.size() - done);
    fill(seed, stream, block, numbers);
    std::copy_n(numbers + skipped, count, to.data() + done);
    done += count;
  }
}

void philox_factors(std::uint64_t seed, std::uint64_t stream, std::span<float> to) {
  philox_normals(seed, stream, 0, to);
  for (float& number : to) number = std::copysign(std::sqrt(std::fabs(number)), number);
}

void stream_words(std::uint64_t seed, std::uint64_t purpose, std::uint64_t source, std::uint64_t sequence,
                  std::span<std::uint64_t> words) {
  __extension__ using Wide = unsigned __int128;
  constexpr std::uint64_t kWideFactor0 = 0xD2E7470EE14C6C93, kWideFactor1 = 0xCA5A826395121157;
  constexpr std::uint64_t kWideStep0 = 0x9E3779B97F4A7C15, kWideStep1 = 0xBB67AE8584CAA73B;
  for (std::size_t block = 0; 4 * block < words.size(); ++block) {
    std::array<std::uint64_t, 4> at{block + 1, 0, source, sequence};  // NumPy counts before it makes a block
    std::uint64_t key0 = seed, key1 = purpose;
    for (int round = 0; round < kRounds; ++round) {
      const Wide first = static_cast<Wide>(kWideFactor0) * at[0], second = static_cast<Wide>(kWideFactor1) * at[2];
      at = {static_cast<std::uint64_t>(second >> 64) ^ at[1] ^ key0, static_cast<std::uint64_t>(second),
            static_cast<std::uint64_t>(first >> 64) ^ at[3] ^ key1, static_cast<std::uint64_t>(first)};
      key0 += kWideStep0;
      key1 += kWideStep1;
    }
    for (std::size_t i = 4 * block; i < std::min(4 * block + 4, words.size()); ++i) words[i] = at[i % 4];
  }
}

}  // namespace hive
