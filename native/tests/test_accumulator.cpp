// reduce() and reduce_adopted() against plain loops, at sizes around the lanes and tiles and at addresses that are not aligned.
#include "hive/accumulator.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"

namespace {

constexpr std::size_t kSizes[] = {0, 1, 7, 15, 16, 64, 1023, 1024, 1025, 1000003};
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Block = std::vector<float>;

Block random_block(std::size_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  Block block(size);
  for (float& value : block) value = uniform(generator);
  return block;
}

// The documented order of the squares of a tile, element by element.
template <typename Sum>
Sum reference_squares(std::span<const float> tile) {
  Sum lanes[16] = {};
  for (std::size_t i = 0; i < tile.size(); ++i) {
    const Sum value = tile[i];
    lanes[i % 16] += value * value;
  }
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

double reference_norm(std::span<const float> block) {
  double total = 0.0;
  for (std::size_t begin = 0; begin < block.size(); begin += 1024) {
    const std::span<const float> tile = block.subspan(begin, std::min<std::size_t>(1024, block.size() - begin));
    const float sum = reference_squares<float>(tile);
    total += sum >= 1e-28F && std::isfinite(sum) ? sum : reference_squares<double>(tile);
  }
  return std::sqrt(total);
}

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

void sums_in_order_with_the_same_bits() {
  const float weights[] = {0.1F, 0.7F, 0.2F};
  for (const std::size_t size : kSizes) {
    std::vector<Block> blocks;
    for (unsigned k = 0; k < 3; ++k) blocks.push_back(random_block(size + 1, k));
    Block out(size + 3, 5.0F);
    std::vector<hive::WeightedGradient> gradients;
    for (std::size_t k = 0; k < 3; ++k) gradients.push_back({std::span(blocks[k]).subspan(1), weights[k]});
    const std::span<float> result = std::span(out).subspan(2, size);
    const hive::Reduction reduction = hive::reduce(gradients, result);
    for (std::size_t i = 0; i < size; ++i) {
      float expected = weights[0] * blocks[0][i + 1];
      for (std::size_t k = 1; k < 3; ++k) expected += weights[k] * blocks[k][i + 1];
      CHECK(result[i] == expected);
    }
    CHECK(out[0] == 5.0F && out[1] == 5.0F && out[size + 2] == 5.0F);
    CHECK(same_bits(reduction.norm, reference_norm(result)));
    CHECK(same_bits(hive::norm(result), reduction.norm));
    CHECK(reduction.finite && reduction.bad_input == -1 && reduction.bad_index == -1);
  }
}

void weight_one_copies() {
  const Block block = random_block(1000, 1);
  Block out(block.size());
  const hive::WeightedGradient gradient{block, 1.0F};
  hive::reduce({&gradient, 1}, out);
  CHECK(out == block);
}

void weight_zero_is_not_read() {
  const Block clean = random_block(2000, 1);
  const Block poisoned(2000, kNaN);
  Block out(2000, kNaN);
  const hive::WeightedGradient gradients[] = {{poisoned, 0.0F}, {clean, 1.0F}, {poisoned, 0.0F}};
  CHECK(hive::reduce(gradients, out).finite);
  CHECK(out == clean);
  const hive::WeightedGradient nothing[] = {{poisoned, 0.0F}};
  const hive::Reduction reduction = hive::reduce(nothing, out);
  CHECK(reduction.finite && reduction.norm == 0.0);
  CHECK(out == Block(2000, 0.0F));
  CHECK(hive::reduce({}, out).norm == 0.0);
}

void names_the_first_bad_input() {
  for (const float bad : {kNaN, kInfinity, -kInfinity}) {
    for (const std::size_t index : {std::size_t{0}, std::size_t{1023}, std::size_t{5000}, std::size_t{9999}}) {
      std::vector<Block> blocks(4, Block(10000, 0.5F));
      blocks[2][index] = bad;
      blocks[3][0] = -bad;
      blocks[0][0] = bad;  // of weight zero: does no harm, gets no blame
      Block out(10000);
      std::vector<hive::WeightedGradient> gradients;
      for (const Block& block : blocks) gradients.push_back({block, gradients.empty() ? 0.0F : 0.25F});
      const hive::Reduction reduction = hive::reduce(gradients, out);
      CHECK(!reduction.finite && !std::isfinite(reduction.norm));
      CHECK(reduction.bad_input == 2);
      CHECK(reduction.bad_index == static_cast<std::int64_t>(index));
    }
  }
}

void overflow_blames_nobody() {
  Block large(100, 1.0F);
  large[60] = 3e38F;
  Block out(100);
  const hive::WeightedGradient gradients[] = {{large, 1.0F}, {large, 1.0F}};
  const hive::Reduction reduction = hive::reduce(gradients, out);
  CHECK(!reduction.finite && reduction.bad_input == -1 && reduction.bad_index == 60);
  // Large but finite: the squares do not overflow either.
  const hive::Reduction alone = hive::reduce({gradients, 1}, out);
  CHECK(alone.finite && std::abs(alone.norm / double{3e38F} - 1.0) < 1e-12);
}

// More blocks than are read side by side, a divisor, and the sum kept while it grew: the same bits for every type.
template <typename T>
void types_and_groups_agree(T (*narrowed)(hive::SumOf<T>)) {
  using Sum = hive::SumOf<T>;
  for (const std::size_t count : {1U, 2U, 3U, 4U, 8U, 9U, 17U}) {
    const std::size_t size = 1101;
    std::vector<std::vector<T>> blocks;
    std::vector<hive::Weighted<T>> gradients;
    for (unsigned k = 0; k < count; ++k) {
      std::vector<T> block;
      for (const float value : random_block(size, k)) block.push_back(narrowed(static_cast<Sum>(value)));
      blocks.push_back(block);
    }
    for (std::size_t k = 0; k < count; ++k) gradients.push_back({blocks[k], static_cast<Sum>(0.3 * double(k + 1))});
    std::vector<Sum> sums(size);
    for (std::size_t i = 0; i < size; ++i) {
      sums[i] = gradients[0].weight * hive::widen(blocks[0][i]);
      for (std::size_t k = 1; k < count; ++k) sums[i] += gradients[k].weight * hive::widen(blocks[k][i]);
    }
    std::vector<T> out(size);
    std::vector<T> finished(size);
    const hive::Reduction reduction = hive::reduce(std::span<const hive::Weighted<T>>(gradients), std::span<T>(out), 3);
    const hive::Reduction end = hive::finish(std::span<const Sum>(sums), std::span<T>(finished), 3);
    for (std::size_t i = 0; i < size; ++i) {
      CHECK(hive::widen(out[i]) == hive::widen(narrowed(sums[i] / 3)));
      CHECK(hive::widen(finished[i]) == hive::widen(out[i]));
    }
    CHECK(reduction.finite && end.finite && same_bits(reduction.norm, end.norm));
  }
}

// Tiles whose squares float32 cannot hold, beside one of zeros and one that is as gradients are.
void norms_of_any_size_are_near_the_exact_one() {
  for (const float scale : {1e-42F, 1e-30F, 1e-18F, 1e-14F, 1e-3F, 1.0F, 1e10F, 1e18F, 1e30F, 3e38F}) {
    Block block = random_block(4 * 1024 + 5, 8);
    for (std::size_t i = 0; i < 1024; ++i) block[i] *= scale;
    for (std::size_t i = 1024; i < 2048; ++i) block[i] = 0.0F;
    const std::span<const float> scaled = std::span(block).first(1024);
    for (const std::span<const float> part : {std::span<const float>(block), scaled}) {
      double squares = 0.0;
      for (const double value : part) squares += value * value;
      const double found = hive::norm(part);
      CHECK(same_bits(found, reference_norm(part)));
      CHECK(std::abs(found / std::sqrt(squares) - 1.0) < 2e-6);
      Block out(part.size());
      const hive::WeightedGradient gradient{part, 1.0F};
      CHECK(same_bits(hive::reduce({&gradient, 1}, out).norm, found));
    }
  }
  CHECK(hive::norm(Block(3000, 0.0F)) == 0.0);
}

void large_results_are_the_same() {
  const std::size_t size = (std::size_t{1} << 22) + 77;  // more than 48 MiB with the blocks
  const Block block = random_block(size, 3);
  Block out(size + 1);
  const hive::WeightedGradient gradients[] = {{block, 0.5F}, {block, 0.25F}};
  for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {  // one of the two is not aligned
    const std::span<float> result = std::span(out).subspan(shift, size);
    const hive::Reduction reduction = hive::reduce(gradients, result);
    CHECK(same_bits(reduction.norm, reference_norm(result)));
    for (std::size_t i = 0; i < size; ++i) CHECK(result[i] == 0.5F * block[i] + 0.25F * block[i]);
  }
}

void squares_of_doubles_may_overflow() {
  const std::vector<double> large(3, 1e200);
  std::vector<double> out(3);
  const hive::Weighted<double> gradient{large, 1.0};
  const hive::Reduction reduction = hive::reduce({&gradient, 1}, std::span<double>(out));
  CHECK(std::isinf(reduction.norm) && reduction.finite && reduction.bad_index == -1);
}

template <typename T>
T narrowed(hive::SumOf<T> value) {
  T to;
  hive::narrow(value, to);
  return to;
}

hive::AdoptedRound adopted(const Block& block, std::int64_t samples, double factor = 1.0) {
  return {block.data(), nullptr, nullptr, block.size(), samples, factor};
}

void adopted_rounds_weigh_by_their_samples() {
  const Block one = random_block(1003, 1);
  const Block other = random_block(1003, 2);
  const Block poisoned(1003, kNaN);
  const hive::AdoptedRound rounds[] = {adopted(one, 10), adopted(poisoned, 0), adopted(other, 20, 0.25)};
  Block out(1003);
  const hive::Reduction mean = hive::reduce_adopted(hive::Coding::kFloat32, rounds, out);
  const auto first = static_cast<float>(10.0 / 30.0 * 1.0);
  const auto second = static_cast<float>(20.0 / 30.0 * 0.25);
  for (std::size_t i = 0; i < out.size(); ++i) CHECK(out[i] == first * one[i] + second * other[i]);
  CHECK(mean.finite && same_bits(mean.norm, reference_norm(out)));
  const hive::Reduction nothing = hive::reduce_adopted(hive::Coding::kFloat32, {&rounds[1], 1}, out);
  CHECK(nothing.finite && nothing.norm == 0.0 && out == Block(1003));
}

void adopted_halves_are_scaled_back() {
  const std::vector<hive::Float16> halves(100, narrowed<hive::Float16>(3.0F));
  const double scale = 8.0;
  const double broken = 0.0;
  hive::AdoptedRound rounds[] = {{halves.data(), nullptr, &scale, 100, 1, 1.0},
                                 {halves.data(), nullptr, &broken, 100, 0, 1.0}};
  Block out(100);
  CHECK(hive::reduce_adopted(hive::Coding::kFloat16, rounds, out).finite);
  CHECK(out == Block(100, 0.375F));
  rounds[1].samples = 1;
  const hive::Reduction found = hive::reduce_adopted(hive::Coding::kFloat16, rounds, out);
  CHECK(!found.finite && found.bad_input == 1);
}

void adopted_top_k_rounds_add_where_they_belong() {
  const Block values{1.0F, 2.0F};
  const Block bad{1.0F, kNaN};
  const std::vector<std::uint32_t> indices{0, 2};
  const std::vector<std::uint32_t> beyond{1, 3};
  const auto round = [](const Block& block, const std::vector<std::uint32_t>& where, std::int64_t samples) {
    return hive::AdoptedRound{block.data(), where.data(), nullptr, block.size(), samples, 1.0};
  };
  Block out(3, kNaN);
  const hive::AdoptedRound good[] = {round(values, indices, 3), round(bad, beyond, 0), round(values, indices, 1)};
  const hive::Reduction found = hive::reduce_adopted(hive::Coding::kTopK, good, out);
  CHECK(found.finite && (out == Block{1.0F, 0.0F, 2.0F}) && same_bits(found.norm, std::sqrt(5.0)));
  const hive::AdoptedRound outside[] = {good[0], round(values, beyond, 1), round(bad, indices, 1)};
  const hive::Reduction first = hive::reduce_adopted(hive::Coding::kTopK, outside, out);
  CHECK(!first.finite && first.bad_input == 1 && first.bad_index == -1);
  const hive::AdoptedRound poisoned[] = {good[0], round(bad, indices, 1)};
  const hive::Reduction second = hive::reduce_adopted(hive::Coding::kTopK, poisoned, out);
  CHECK(!second.finite && second.bad_input == 1 && second.bad_index == 2);
}

void indices_beyond_the_end_are_refused() {
  Block out(3);
  CHECK(!hive::scatter(Block{1.0F, 1.0F}, std::vector<std::uint32_t>{2, 3}, 1.0F, out));
  CHECK((out == Block{0.0F, 0.0F, 1.0F}));
}

}  // namespace

int main() {
  sums_in_order_with_the_same_bits();
  weight_one_copies();
  weight_zero_is_not_read();
  names_the_first_bad_input();
  overflow_blames_nobody();
  norms_of_any_size_are_near_the_exact_one();
  types_and_groups_agree<float>(narrowed<float>);
  types_and_groups_agree<double>(narrowed<double>);
  types_and_groups_agree<hive::BFloat16>(narrowed<hive::BFloat16>);
  types_and_groups_agree<hive::Float16>(narrowed<hive::Float16>);
  large_results_are_the_same();
  squares_of_doubles_may_overflow();
  adopted_rounds_weigh_by_their_samples();
  adopted_halves_are_scaled_back();
  adopted_top_k_rounds_add_where_they_belong();
  indices_beyond_the_end_are_refused();
}
