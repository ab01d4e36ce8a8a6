// The random numbers that Gymnasium's environments draw from `np_random`: NumPy's PCG64, seeded as
// gymnasium.utils.seeding does.
//
// SeedSequence hashes the seed to the 256 bits of the first state (O'Neill 2015, "Developing a seed_seq alternative");
// PCG64 is the generator PCG XSL RR 128/64 (O'Neill 2014). Numbers are bit-identical to NumPy's, which promises not to
// change these streams (NEP 19).
#pragma once

#include <array>
#include <cstdint>

namespace hive {

class Pcg64 {
 public:
  Pcg64() : Pcg64(0) {}

  // The generator of numpy.random.PCG64(numpy.random.SeedSequence(seed)).
  explicit Pcg64(std::uint64_t seed) {
    const std::array<std::uint64_t, 4> words = hashed(seed);
    const Number start = Number{words[0]} << 64 | words[1];
    increment_ = (Number{words[2]} << 64 | words[3]) << 1 | 1;
    state_ = 0;
    advance();
    state_ += start;
    advance();
  }

  std::uint64_t next() {
    advance();
    const auto bits = static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
    const auto turn = static_cast<unsigned>(state_ >> 122);
    return bits >> turn | bits << (-turn & 63U);
  }

  // Generator.uniform(low, high).
  double uniform(double low, double high) {
    const double range = high - low;
    return low + range * (static_cast<double>(next() >> 11) * (1.0 / 9007199254740992.0));
  }

 private:
  __extension__ using Number = unsigned __int128;

  void advance() {
    constexpr Number kFactor = Number{2549297995355413924ULL} << 64 | 4865540595714422341ULL;
    state_ = state_ * kFactor + increment_;
  }

  // SeedSequence(seed).generate_state(4, uint64): a pool of four words is mixed, then hashed to eight.
  static std::array<std::uint64_t, 4> hashed(std::uint64_t seed) {
    std::array<std::uint32_t, 4> pool{};
    std::uint32_t constant = 0x43b0d7e5U;
    const auto hash = [&constant](std::uint32_t value) {
      value ^= constant;
      constant *= 0x931e8875U;
      value *= constant;
      return value ^ value >> 16;
    };
    const std::array<std::uint32_t, 2> entropy{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
    for (unsigned i = 0; i < 4; ++i) pool[i] = hash(i < 2 ? entropy[i] : 0U);
    for (unsigned from = 0; from < 4; ++from) {
      for (unsigned to = 0; to < 4; ++to) {
        if (from == to) continue;
        const std::uint32_t mixed = 0xca01f9ddU * pool[to] - 0x4973f715U * hash(pool[from]);
        pool[to] = mixed ^ mixed >> 16;
      }
    }
    std::array<std::uint64_t, 4> words{};
    constant = 0x8b51f9ddU;
    for (unsigned i = 0; i < 8; ++i) {
      std::uint32_t value = pool[i % 4] ^ constant;
      constant *= 0x58f38dedU;
      value *= constant;
      value ^= value >> 16;
      words[i / 2] |= std::uint64_t{value} << 32 * (i % 2);
    }
    return words;
  }

  Number state_ = 0;
  Number increment_ = 1;
};

}  // namespace hive
