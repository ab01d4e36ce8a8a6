// Acting: actions of all kinds, what a policy's outputs are, and that packed weights and one call a step change no byte.
#include "hive/acting.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include "check.hpp"

namespace {

using namespace hive;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<std::int64_t> chosen(const Sampler& sampler, std::size_t rows, const std::vector<float>& outputs,
                                 const std::vector<float>& noise) {
  std::vector<std::int64_t> actions(rows * sampler.elements());
  sample(sampler, rows, outputs.data(), noise.data(), actions.data());
  return actions;
}

void choices() {
  Sampler one;
  one.choices = {3};
  CHECK(chosen(one, 2, {0, 2, 2, 5, 4, 4.5F}, {0, 0, 0, 0, 0, 1}) == (std::vector<std::int64_t>{1, 2}));
  CHECK(chosen(one, 1, {1, kNaN, 9}, {0, 0, 0}) == std::vector<std::int64_t>{1});  // as NumPy's argmax
  Sampler several;
  several.choices = {2, 3};
  CHECK(several.width() == 5 && several.elements() == 2);
  CHECK(chosen(several, 1, {0, 1, 7, 0, 0}, {0, 0, 0, 0, 0}) == (std::vector<std::int64_t>{1, 0}));
}

void greedy() {
  Sampler sampler;
  sampler.kind = Sampler::Kind::greedy;
  sampler.choices = {4};
  sampler.allowed = -1e9F;
  sampler.epsilons = {0.5F};
  const std::vector<float> values{0, 3, 1, 2};
  CHECK(chosen(sampler, 1, values, {0.5F, 0.9F}) == std::vector<std::int64_t>{1});   // not below epsilon
  CHECK(chosen(sampler, 1, values, {0.49F, 0.9F}) == std::vector<std::int64_t>{3});
  const std::vector<float> some{-2e9F, 3, -2e9F, 2};
  CHECK(chosen(sampler, 1, some, {0.0F, 0.4F}) == std::vector<std::int64_t>{1});  // the first that is allowed
  CHECK(chosen(sampler, 1, some, {0.0F, 0.6F}) == std::vector<std::int64_t>{3});
  sampler.epsilons = {0.0F, 1.0F};  // of each row
  CHECK(chosen(sampler, 2, {0, 3, 1, 2, 0, 3, 1, 2}, {0, 0, 0, 0}) == (std::vector<std::int64_t>{1, 0}));
}

void boxes() {
  Sampler sampler;
  sampler.kind = Sampler::Kind::gaussian;
  sampler.dimensions = 2;
  const std::vector<float> outputs{1, -1, 0, std::log(2.0F)}, noise{0.5F, -3};
  std::vector<float> actions(2);
  sample(sampler, 1, outputs.data(), noise.data(), actions.data());
  CHECK(std::fabs(actions[0] - 1.5F) < 1e-6F && std::fabs(actions[1] + 7.0F) < 1e-5F);
  sampler.kind = Sampler::Kind::squashed;
  sampler.middle = {10, 0};
  sampler.reach = {2, 1};
  sample(sampler, 1, outputs.data(), noise.data(), actions.data());
  CHECK(std::fabs(actions[0] - (10 + 2 * std::tanh(1.5F))) < 1e-5F && std::fabs(actions[1] + 1.0F) < 1e-5F);
  sampler.kind = Sampler::Kind::noisy;
  sampler.deviation = 10;
  CHECK(sampler.width() == 2);
  sample(sampler, 1, outputs.data(), noise.data(), actions.data());
  CHECK(actions[0] == 12.0F && actions[1] == -1.0F);  // clipped to the bounds
}

// A policy of two inputs and one element, whose deviation is a parameter.
struct Small {
  std::vector<float> block = std::vector<float>(48);
  DenseNetwork network{{{DenseLayer{2, 1, 0, 16}}}, 48};

  Small() { block[0] = 2, block[1] = -1, block[16] = 0.5F, block[32] = std::log(3.0F); }
};

void policy() {
  Small small;
  Sampler sampler;
  sampler.kind = Sampler::Kind::gaussian;
  sampler.dimensions = 1;
  Acting acting(std::move(small.network), {1, 32, false}, sampler, std::nullopt);
  std::vector<float> observations{1, 1, 3, -8, 0, 0, 0, 0, 5, 5, 5, 5}, noise{0, 1, 0, 1}, outputs(8), actions(4);
  const std::vector<float> shift{1, 1}, scale{2, 2};
  ActingRollout rollout;
  rollout.weights = small.block;
  rollout.envs = rollout.steps = 2;
  rollout.observations = reinterpret_cast<const std::byte*>(observations.data());
  rollout.noise = noise.data();
  rollout.actions = reinterpret_cast<std::byte*>(actions.data());
  rollout.outputs = outputs.data();
  rollout.scales = {shift, scale, 10};
  acting.begin(rollout);
  acting.act(0);
  CHECK(outputs[0] == 0.5F);                   // both inputs are 0 when normalized
  CHECK(outputs[2] == 2 * 4 - 1 * -10 + 0.5F);  // the second is limited
  CHECK(outputs[1] == small.block[32] && actions[0] == outputs[0]);
  CHECK(std::fabs(actions[1] - (outputs[2] + 3)) < 1e-5F);
  CHECK(actions[2] == 0.0F);  // of the next step
  rollout.outputs = nullptr;
  rollout.scales = {};
  acting.begin(rollout);
  acting.act(1);
  CHECK(actions[2] == 0.5F && std::fabs(actions[3] - 3.5F) < 1e-6F);
}

void parts() {
  const Unpacking unpacking(12, {{false, 8, 2, {}, {0.5F}}, {true, 0, 2, {1, 2}, {3, 4}}});
  CHECK(unpacking.inputs() == 4 && unpacking.row_bytes() == 12);
  const float numbers[2] = {3, 5}, shift[2] = {1, 1}, scale[2] = {2, 2};
  std::byte row[12];
  std::memcpy(row, numbers, sizeof numbers);
  row[8] = std::byte{255}, row[9] = std::byte{4}, row[10] = row[11] = std::byte{0};
  float read[4];
  unpacking.run(row, 1, {}, read);
  CHECK(read[0] == 127.5F && read[1] == 2 && read[2] == (3 - 1) * 3 && read[3] == (5 - 2) * 4);
  unpacking.run(row, 1, {shift, scale, 6}, read);
  CHECK(read[0] == 127.5F && read[2] == (4 - 1) * 3 && read[3] == (6 - 2) * 4);  // the second is limited
}

template <typename Make>
bool refuses(Make make) {
  try {
    make();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

void refusals() {
  Small small;
  Sampler sampler;
  sampler.choices = {2};
  CHECK(refuses([&] { Acting(std::move(small.network), {1, -1, false}, sampler, std::nullopt); }));
  CHECK(refuses([] { Unpacking(12, {{true, 8, 2, {}, {}}}); }));           // ends behind the row
  CHECK(refuses([] { Unpacking(12, {{true, 2, 1, {}, {}}}); }));           // between two numbers
  CHECK(refuses([] { Unpacking(12, {{false, 13, 0, {}, {}}}); }));
  CHECK(refuses([] { Unpacking(12, {{false, 0, 3, {}, {1, 1}}}); }));      // a factor of two for three elements
  CHECK(refuses([] { Unpacking(12, {{false, 0, 2, {1}, {1, 1}}}); }));
}

}  // namespace

int main() {
  choices();
  greedy();
  boxes();
  policy();
  parts();
  refusals();
}
