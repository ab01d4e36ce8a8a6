// The encoders against plain loops and sorts, at sizes around the lanes.
#include "hive/codec.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "check.hpp"

namespace {

using Block = std::vector<float>;

constexpr std::size_t kSizes[] = {0, 1, 15, 16, 17, 1000, 70001};

Block random_block(std::size_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  Block block(size);
  for (float& value : block) value = normal(generator);
  return block;
}

void halves_are_rounded_one_by_one() {
  for (const std::size_t size : kSizes) {
    const Block block = random_block(size, 1);
    std::vector<hive::BFloat16> brain(size);
    std::vector<hive::Float16> half(size);
    const double brain_error = hive::encode(block, brain);
    const float scale = hive::scale_for(block);
    const double half_error = hive::encode(block, scale, half);
    for (std::size_t i = 0; i < size; ++i) {
      hive::BFloat16 expected;
      hive::narrow(block[i], expected);
      CHECK(brain[i].bits == expected.bits);
      CHECK(std::abs(hive::widen(half[i]) / scale - block[i]) <= std::abs(block[i]) * 0x1p-11F + 0x1p-24F);
    }
    CHECK(size == 0 || (brain_error >= 0.0 && brain_error < 0x1p-8));
    CHECK(half_error >= 0.0 && half_error < 0x1p-11);
  }
}

void scales_bring_any_size_into_range() {
  const float sizes[] = {1e-45F, 1e-30F, 1.0F, 65504.0F, 1e30F, 3e38F};
  for (const float size : sizes) {
    const Block block{0.0F, -size, size / 3};
    std::vector<hive::Float16> half(3);
    const float scale = hive::scale_for(block);
    CHECK(std::isnormal(scale) && std::isnormal(1.0F / scale));
    CHECK(hive::encode(block, scale, half) < 0.5);
    CHECK(std::isfinite(hive::widen(half[1])));
  }
  CHECK(hive::scale_for(Block(5)) == 1.0F);
}

void the_largest_are_those_that_a_sort_finds() {
  for (const std::size_t size : kSizes) {
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}, size / 10, size}) {
      if (k > size) continue;
      const Block block = random_block(size, 2);
      Block residual(size);
      Block values(k);
      std::vector<std::uint32_t> indices(k);
      hive::keep_largest(block, residual, values, indices);
      std::vector<std::uint32_t> order(size);
      std::iota(order.begin(), order.end(), 0U);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::uint32_t a, std::uint32_t b) { return std::abs(block[a]) > std::abs(block[b]); });
      order.resize(k);
      std::sort(order.begin(), order.end());
      CHECK(order == indices);
      Block sum = residual;
      for (std::size_t i = 0; i < k; ++i) sum[indices[i]] += values[i];
      CHECK(sum == block);
    }
  }
}

void equals_are_taken_from_the_front() {
  const Block block{1.0F, -2.0F, 2.0F, -2.0F, 1.0F};
  Block residual(5);
  Block values(2);
  std::vector<std::uint32_t> indices(2);
  const double error = hive::keep_largest(block, residual, values, indices);
  CHECK((indices == std::vector<std::uint32_t>{1, 2}));
  CHECK((residual == Block{1.0F, 0.0F, 0.0F, -2.0F, 1.0F}));
  CHECK(std::abs(error - std::sqrt(6.0 / 14.0)) < 1e-12);
}

}  // namespace

int main() {
  halves_are_rounded_one_by_one();
  scales_bring_any_size_into_range();
  the_largest_are_those_that_a_sort_finds();
  equals_are_taken_from_the_front();
}
