// Normal numbers that are a function of (seed, stream, position): Philox 4x32-10 (Salmon et al. 2011, "Parallel random
// numbers: as easy as 1, 2, 3") and the transform of Box and Muller (1958).
//
//     seed: the key, 64 bits        stream: words 2 and 3 of the counter        block: words 0 and 1
//
// A block of four words makes four normal numbers, two of each pair of words. There is no state, so any process draws the
// same numbers in any order. Logarithms, sines and cosines are IEEE operations (elementary.hpp), so the bytes are the
// same on every machine, for every instruction set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hive {

// The words of one block, those of the reference implementation (Random123) for this key and counter.
std::array<std::uint32_t, 4> philox_words(std::uint64_t seed, std::uint64_t stream, std::uint64_t block);

// Writes the normal numbers of a stream from number `first` on. They are at most 6.8 in size.
void philox_normals(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::span<float> to);

// sign(e) sqrt|e| of the normal numbers e of a stream: the factors of the noise in one noisy layer (Fortunato et al. 2018).
void philox_factors(std::uint64_t seed, std::uint64_t stream, std::span<float> to);

// Raw words of NumPy's Philox (4x64-10) at the beginning of a stream: those of hive.experience.streams.
void stream_words(std::uint64_t seed, std::uint64_t purpose, std::uint64_t source, std::uint64_t sequence,
                  std::span<std::uint64_t> words);

}  // namespace hive
