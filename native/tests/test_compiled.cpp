// Compiled environments: the rows of every number of environments are those of single ones, with any stride, and
// a step without room for its final observations throws; every fault is found. Vector sines have the bits of the C library's.
#include "hive/compiled.hpp"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "hive/classic_control.hpp"
#include "hive/sines.hpp"
#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

namespace {

constexpr const char* kClassic[] = {"CartPoleEnv", "AcrobotEnv", "MountainCarEnv", "Continuous_MountainCarEnv",
                                    "PendulumEnv"};

struct Arrays {
  explicit Arrays(std::size_t envs)
      : rewards(envs), returns(envs), terminated(envs), truncated(envs), valid(envs), lengths(envs), final_index(envs) {}
  hive::Row row() { return {rewards, terminated, truncated, valid, returns, lengths, final_index}; }
  std::vector<float> rewards, returns;
  std::vector<std::uint8_t> terminated, truncated, valid;
  std::vector<std::int32_t> lengths, final_index;
};

// One vector with its memory: observations lie `gap` bytes apart.
struct Played {
  Played(const hive_environment& environment, hive::Options options, std::size_t envs, std::size_t gap, std::size_t room)
      : description(describe(environment, options)), vector(environment, description, options, envs), arrays(envs),
        stride(vector.observation_bytes() + gap), observations(envs * stride), kept(room * vector.observation_bytes()) {
    CHECK(vector.fault().kind == hive::Fault::none);
    finals = {kept.data(), room, 0};
  }
  static hive_description describe(const hive_environment& environment, hive::Options& options) {
    std::string error;
    const hive_description found = hive::describe(environment, options, error);
    CHECK(error.empty());
    return found;
  }
  bool step(const void* actions) { return vector.step(actions, arrays.row(), where(), finals); }
  hive::Observations where() { return {observations.data(), static_cast<std::ptrdiff_t>(stride)}; }
  const char* observation(std::size_t b) const { return observations.data() + b * stride; }

  hive_description description;
  hive::CompiledVector vector;
  Arrays arrays;
  std::size_t stride;
  std::vector<char> observations, kept;
  hive::Finals finals;
};

hive::Options limited(double steps) {
  hive::Options options;
  options.add("max_episode_steps", steps);
  return options;
}

// A vector of `envs` environments, and as many vectors of one, get the same seeds and actions.
void check_batches(const char* name, std::size_t envs, std::size_t gap) {
  const hive_environment& environment = *hive::classic_control(name);
  Played all(environment, limited(17), envs, gap, envs);
  const std::size_t bytes = all.vector.observation_bytes();
  std::vector<std::uint64_t> seeds(envs);
  for (std::size_t b = 0; b < envs; ++b) seeds[b] = b * b * 0x100000001ULL;
  CHECK(all.vector.reset(seeds.data(), all.where()));
  std::vector<std::unique_ptr<Played>> each;
  for (std::size_t b = 0; b < envs; ++b) {
    each.push_back(std::make_unique<Played>(environment, limited(17), 1, 0, 1));
    CHECK(each[b]->vector.reset(&seeds[b], each[b]->where()));
  }
  std::mt19937 generator(3);
  std::normal_distribution<float> normal;
  for (int t = 0; t < 60; ++t) {
    std::vector<std::int64_t> choices(envs);
    std::vector<float> pushes(envs);
    for (std::size_t b = 0; b < envs; ++b) choices[b] = generator() % 2, pushes[b] = 2 * normal(generator);
    const bool continuous = all.vector.continuous();
    all.finals.count = 0;
    CHECK(all.step(continuous ? static_cast<const void*>(pushes.data()) : choices.data()));
    std::size_t truncated = 0;
    for (std::size_t b = 0; b < envs; ++b) {
      Played& one = *each[b];
      one.finals.count = 0;
      CHECK(one.step(continuous ? static_cast<const void*>(&pushes[b]) : &choices[b]));
      CHECK(!std::memcmp(all.observation(b), one.observation(0), bytes));
      CHECK(all.arrays.rewards[b] == one.arrays.rewards[0] && all.arrays.valid[b] == 1);
      CHECK(all.arrays.terminated[b] == one.arrays.terminated[0]);
      CHECK(all.arrays.truncated[b] == one.arrays.truncated[0]);
      CHECK(all.arrays.returns[b] == one.arrays.returns[0] && all.arrays.lengths[b] == one.arrays.lengths[0]);
      CHECK((all.arrays.final_index[b] >= 0) == (one.arrays.truncated[0] != 0));
      if (!one.arrays.truncated[0]) continue;
      CHECK(!std::memcmp(&all.kept[truncated * bytes], one.kept.data(), bytes));
      ++truncated;
    }
    CHECK(all.finals.count == truncated);
  }
}

void check_room() {
  Played played(*hive::classic_control("CartPoleEnv"), limited(1), 1, 0, 1);
  const std::uint64_t seed = 3;
  const std::int64_t action = 0;
  CHECK(played.vector.reset(&seed, played.where()));
  CHECK(played.step(&action) && played.finals.count == 1);
  bool refused = false;
  try {
    played.step(&action);
  } catch (const std::length_error&) {
    refused = true;
  }
  CHECK(refused && played.finals.count == 1);
}

void check_sines() {
  std::mt19937_64 generator(5);
  for (const double largest : {1e-9, 1e-3, 0.13, 0.2148, 0.3, 10.0}) {
    std::uniform_real_distribution<double> uniform(-largest, largest);
    for (const std::size_t count : {0, 1, 7, 64, 65, 100'000}) {
      std::vector<double> angles(count), sines(count + 1, 7.0), cosines(count + 1, 7.0);
      for (double& angle : angles) angle = uniform(generator);
      if (count > 2) angles[1] = -0.0, angles[2] = 0.21875;
      hive::sines_cosines(angles.data(), count, sines.data(), cosines.data());
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(sines[i] == hive::exact_sin(angles[i]) && cosines[i] == hive::exact_cos(angles[i]));
        CHECK(std::signbit(sines[i]) == std::signbit(angles[i]) || std::fabs(angles[i]) > 3);
      }
      CHECK(sines[count] == 7.0 && cosines[count] == 7.0);
    }
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  double sine = 0, cosine = 0;
  hive::sines_cosines(&nan, 1, &sine, &cosine);
  CHECK(std::isnan(sine) && std::isnan(cosine));
#if defined(__x86_64__) && defined(__GLIBC__)
  const bool known = std::string(gnu_get_libc_version()) == "2.36" && !std::getenv("GLIBC_TUNABLES");
  if (known && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) CHECK(hive::vector_sines());
#endif
}

// An environment of one number that does what its option `fault` says in its second step.
int describe_one(const hive_options* options, hive_description* found, char*) {
  found->observation_dimensions = static_cast<int>(hive_number(options, "dimensions", 0));
  found->action_choices[0] = 2;
  found->max_episode_steps = 2;
  return 0;
}
void* create_one(const hive_options* options, std::int64_t, char*) {
  return new std::pair<std::string, int>(hive_text(options, "fault", ""), 0);
}
int reset_one(void* state, std::int64_t, const std::uint64_t* seed, void* observation, char* error) {
  const auto& [fault, steps] = *static_cast<std::pair<std::string, int>*>(state);
  *static_cast<float*>(observation) = 1;
  std::memset(error, 'x', fault == "long" && !seed ? HIVE_ERROR_BYTES : 0);  // without a terminating zero
  return !seed && (fault == "reset" || fault == "long");
}
int step_one(void* state, const void*, const hive_rows* rows, char* error) {
  auto& [fault, steps] = *static_cast<std::pair<std::string, int>*>(state);
  const bool wrong = ++steps == 2;
  *static_cast<float*>(hive_observation(rows, 0)) = wrong && fault == "observation" ? INFINITY : 2;
  rows->rewards[0] = wrong && fault == "reward" ? NAN : 1;
  return wrong && fault == "step" ? hive_fail(error, "stuck") : 0;
}
void destroy_one(void* state) { delete static_cast<std::pair<std::string, int>*>(state); }
constexpr hive_environment kOne{HIVE_ENV_VERSION, sizeof(hive_environment), describe_one, create_one,
                                reset_one,        step_one,                 destroy_one};

void check_fault(const std::string& fault, hive::Fault::Kind kind, const std::string& text) {
  hive::Options options;
  options.add("fault", fault);
  Played played(kOne, options, 1, 0, 1);
  const std::uint64_t seed = 1;
  const std::int64_t action = 1;
  CHECK(played.vector.reset(&seed, played.where()));
  CHECK(played.step(&action));
  CHECK(!played.step(&action));
  CHECK(played.vector.fault().kind == kind && played.vector.fault().text == text);
}

}  // namespace

int main() {
  for (const char* const name : kClassic) {
    for (const std::size_t envs : {1, 3, 64, 130}) {
      for (const std::size_t gap : {0, 8}) check_batches(name, envs, gap);
    }
  }
  CHECK(!hive::classic_control("LunarLander"));
  check_room();
  check_sines();
  check_fault("reward", hive::Fault::reward, "");
  check_fault("observation", hive::Fault::final_observation, "");
  check_fault("step", hive::Fault::failed, "in step: stuck");
  check_fault("reset", hive::Fault::failed, "in reset: without an explanation");
  check_fault("long", hive::Fault::failed, "in reset: " + std::string(HIVE_ERROR_BYTES - 1, 'x'));
  hive::Options negative;
  negative.add("dimensions", -1.0);
  std::string error;
  hive::describe(kOne, negative, error);
  CHECK(error == "observation_dimensions is -1, expected 0 to 8");
  hive_environment other = kOne;
  CHECK(hive::version_fault(other).empty());
  other.step = nullptr;
  CHECK(hive::version_fault(other) == "its function `step` is NULL");
}
