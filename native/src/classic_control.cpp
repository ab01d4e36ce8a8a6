#include "hive/classic_control.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numbers>
#include <type_traits>
#include <utility>
#include <vector>

#include "hive/pcg64.hpp"
#include "hive/simd.hpp"
#include "hive/sines.hpp"

namespace hive {
namespace {

constexpr double kPi = std::numbers::pi;

float* floats_of(const hive_rows* rows, std::size_t b) {
  return static_cast<float*>(hive_observation(rows, static_cast<std::int64_t>(b)));
}

template <std::size_t N>
void discrete(hive_description& found, std::int64_t choices) {
  found.observation_dimensions = 1;
  found.observation_shape[0] = N;
  found.action_kind = HIVE_DISCRETE;
  found.action_choices[0] = choices;
}

template <std::size_t N>
void continuous(hive_description& found, float limit) {
  found.observation_dimensions = 1;
  found.observation_shape[0] = N;
  found.action_kind = HIVE_CONTINUOUS;
  found.action_elements = 1;
  found.action_low[0] = -limit;
  found.action_high[0] = limit;
}

// numpy.clip of a float64.
double clipped(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

constexpr std::size_t kPoles = 64;  // environments of CartPole that are stepped together: their state is 2 KiB

struct Poles {
  double x[kPoles], x_dot[kPoles], theta[kPoles], theta_dot[kPoles];
};

// Moves `count` poles. With all of a block's numbers side by side, every pass is a vector loop in the fastest cache.
HIVE_SIMD void move_poles(Poles& poles, const double* sines, const double* cosines, const std::int64_t* actions,
                          std::size_t count, std::uint8_t* fallen) {
  constexpr double kGravity = 9.8, kPole = 0.1, kTotal = kPole + 1.0, kLength = 0.5, kPoleLength = kPole * kLength;
  constexpr double kForce = 10.0, kTau = 0.02, kFarthest = 2.4, kSteepest = 12 * 2 * kPi / 360;
  HIVE_INDEPENDENT
  for (std::size_t b = 0; b < count; ++b) {
    const double force = actions[b] == 1 ? kForce : -kForce;
    const double theta_dot = poles.theta_dot[b], sine = sines[b], cosine = cosines[b];
    const double temp = (force + kPoleLength * (theta_dot * theta_dot) * sine) / kTotal;
    const double theta_acc =
        (kGravity * sine - cosine * temp) / (kLength * (4.0 / 3.0 - kPole * (cosine * cosine) / kTotal));
    const double x_acc = temp - kPoleLength * theta_acc * cosine / kTotal;
    const double x = poles.x[b] + kTau * poles.x_dot[b], theta = poles.theta[b] + kTau * theta_dot;
    poles.x[b] = x;
    poles.x_dot[b] = poles.x_dot[b] + kTau * x_acc;
    poles.theta[b] = theta;
    poles.theta_dot[b] = theta_dot + kTau * theta_acc;
    fallen[b] = (x < -kFarthest) | (x > kFarthest) | (theta < -kSteepest) | (theta > kSteepest);
  }
}

HIVE_SIMD void observe_poles(const Poles& poles, std::size_t count, float* observations) {
  HIVE_INDEPENDENT
  for (std::size_t b = 0; b < count; ++b) {
    observations[4 * b] = static_cast<float>(poles.x[b]);
    observations[4 * b + 1] = static_cast<float>(poles.x_dot[b]);
    observations[4 * b + 2] = static_cast<float>(poles.theta[b]);
    observations[4 * b + 3] = static_cast<float>(poles.theta_dot[b]);
  }
}

class CartPole {
 public:
  static constexpr const char* kOptions[] = {"sutton_barto_reward", "max_episode_steps", nullptr};
  static void sizes(hive_description& found) { discrete<4>(found, 2); }

  CartPole(const hive_options* options, std::size_t count)
      : running_(hive_number(options, "sutton_barto_reward", 0) != 0 ? 0.0F : 1.0F),
        falling_(running_ == 0.0F ? -1.0F : 1.0F),
        count_(count),
        blocks_((count + kPoles - 1) / kPoles) {}

  void begin(std::size_t b, Pcg64& random, float* observation) {
    Poles& poles = blocks_[b / kPoles];
    std::size_t column = 0;
    for (double* values : {poles.x, poles.x_dot, poles.theta, poles.theta_dot}) {
      values[b % kPoles] = random.uniform(-0.05, 0.05);
      observation[column++] = static_cast<float>(values[b % kPoles]);
    }
  }

  void step(const void* actions, const hive_rows* rows) {
    double sines[kPoles], cosines[kPoles];
    for (std::size_t first = 0; first < count_; first += kPoles) {
      Poles& poles = blocks_[first / kPoles];
      const std::size_t count = std::min(kPoles, count_ - first);
      sines_cosines(poles.theta, count, sines, cosines);
      move_poles(poles, sines, cosines, static_cast<const std::int64_t*>(actions) + first, count,
                 rows->terminated + first);
      if (rows->observation_stride == 4 * sizeof(float)) {
        observe_poles(poles, count, floats_of(rows, first));
      } else {
        for (std::size_t i = 0; i < count; ++i) {
          const double seen[] = {poles.x[i], poles.x_dot[i], poles.theta[i], poles.theta_dot[i]};
          std::transform(seen, seen + 4, floats_of(rows, first + i), [](double x) { return static_cast<float>(x); });
        }
      }
    }
    for (std::size_t b = 0; b < count_; ++b) rows->rewards[b] = rows->terminated[b] ? falling_ : running_;
  }

 private:
  float running_, falling_;  // rewards of a step, and of the one that ends an episode
  std::size_t count_;
  std::vector<Poles> blocks_;
};

class Acrobot {
 public:
  static constexpr const char* kOptions[] = {"max_episode_steps", nullptr};
  static void sizes(hive_description& found) { discrete<6>(found, 3); }

  Acrobot(const hive_options*, std::size_t count) : states_(count) {}

  void begin(std::size_t b, Pcg64& random, float* observation) {
    std::array<float, 4> first{};  // Gymnasium's first state is float32, and so are its sines and cosines
    for (float& value : first) value = static_cast<float>(random.uniform(-0.1, 0.1));
    std::copy(first.begin(), first.end(), states_[b].begin());
    const std::array<float, 6> seen{cosine(first[0]), sine(first[0]), cosine(first[1]),
                                    sine(first[1]),   first[2],       first[3]};
    std::copy(seen.begin(), seen.end(), observation);
  }

  void step(const void* actions, const hive_rows* rows) {
    for (std::size_t b = 0; b < states_.size(); ++b) {
      State& s = states_[b];
      s = integrated(s, static_cast<double>(static_cast<const std::int64_t*>(actions)[b] - 1));
      s[0] = wrapped(s[0]);
      s[1] = wrapped(s[1]);
      s[2] = clipped(s[2], -4 * kPi, 4 * kPi);
      s[3] = clipped(s[3], -9 * kPi, 9 * kPi);
      const double cosine = exact_cos(s[0]);
      const bool terminated = -cosine - exact_cos(s[1] + s[0]) > 1.0;
      rows->terminated[b] = terminated;
      rows->rewards[b] = terminated ? 0.0F : -1.0F;
      const std::array<double, 6> seen{cosine, exact_sin(s[0]), exact_cos(s[1]), exact_sin(s[1]), s[2], s[3]};
      std::transform(seen.begin(), seen.end(), floats_of(rows, b), [](double x) { return static_cast<float>(x); });
    }
  }

 private:
  using State = std::array<double, 4>;  // both angles and their velocities

  // The derivatives of a state, with the constants of Gymnasium's class: all masses, lengths and moments are 1.
  static State derivatives(const State& s, double torque) {
    const double sine2 = exact_sin(s[1]), cosine2 = exact_cos(s[1]);
    const double d1 = 0.25 + (1.0 + 0.25 + cosine2) + 1.0 + 1.0;
    const double d2 = (0.25 + 0.5 * cosine2) + 1.0;
    const double phi2 = 0.5 * 9.8 * exact_cos(s[0] + s[1] - kPi / 2.0);
    const double phi1 = -0.5 * exact_square(s[3]) * sine2 - s[3] * s[2] * sine2 +
                        1.5 * 9.8 * exact_cos(s[0] - kPi / 2) + phi2;
    const double second =
        (torque + d2 / d1 * phi1 - 0.5 * exact_square(s[2]) * sine2 - phi2) / (0.25 + 1.0 - exact_square(d2) / d1);
    return {s[2], s[3], -(d2 * second + phi1) / d1, second};
  }

  // One step of the fourth-order Runge-Kutta method, of 0.2 s.
  static State integrated(const State& s, double torque) {
    const auto moved = [&s](double by, const State& along) {
      State to{};
      for (std::size_t i = 0; i < 4; ++i) to[i] = s[i] + by * along[i];
      return to;
    };
    const State k1 = derivatives(s, torque), k2 = derivatives(moved(0.2 / 2.0, k1), torque);
    const State k3 = derivatives(moved(0.2 / 2.0, k2), torque), k4 = derivatives(moved(0.2, k3), torque);
    State to{};
    for (std::size_t i = 0; i < 4; ++i) to[i] = s[i] + 0.2 / 6.0 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
    return to;
  }

  static double wrapped(double x) {
    while (x > kPi) x = x - 2 * kPi;
    while (x < -kPi) x = x + 2 * kPi;
    return x;
  }

  // NumPy's float32 polynomials with fused products for angles up to pi / 4.
  static float cosine(float x) {
    const float square = x * x;
    float y = std::fma(0x1.98e616p-16F, square, -0x1.6c06dcp-10F);
    y = std::fma(y, square, 0x1.55553cp-05F);
    y = std::fma(y, square, -0.5F);
    return std::fma(y, square, 1.0F);
  }

  static float sine(float x) {
    const float square = x * x;
    float y = std::fma(0x1.7d3bbcp-19F, square, -0x1.a06bbap-13F);
    y = std::fma(y, square, 0x1.11119ap-07F);
    y = std::fma(y, square, -0x1.555556p-03F);
    return std::fma(y * square, x, x);
  }

  std::vector<State> states_;
};

class MountainCar {
 public:
  static constexpr const char* kOptions[] = {"goal_velocity", "max_episode_steps", nullptr};
  static void sizes(hive_description& found) { discrete<2>(found, 3); }

  MountainCar(const hive_options* options, std::size_t count)
      : goal_velocity_(hive_number(options, "goal_velocity", 0)), cars_(count) {}

  void begin(std::size_t b, Pcg64& random, float* observation) {
    cars_[b] = {random.uniform(-0.6, -0.4), 0.0};
    observe(b, observation);
  }

  void step(const void* actions, const hive_rows* rows) {
    for (std::size_t b = 0; b < cars_.size(); ++b) {
      auto& [position, velocity] = cars_[b];
      const auto action = static_cast<double>(static_cast<const std::int64_t*>(actions)[b] - 1);
      velocity += action * 0.001 + exact_cos(3 * position) * -0.0025;
      velocity = clipped(velocity, -0.07, 0.07);
      position = clipped(position + velocity, -1.2, 0.6);
      if (position == -1.2 && velocity < 0) velocity = 0;
      rows->terminated[b] = position >= 0.5 && velocity >= goal_velocity_;
      rows->rewards[b] = -1.0F;
      observe(b, floats_of(rows, b));
    }
  }

 private:
  struct Car {
    double position, velocity;
  };

  void observe(std::size_t b, float* observation) const {
    observation[0] = static_cast<float>(cars_[b].position);
    observation[1] = static_cast<float>(cars_[b].velocity);
  }

  double goal_velocity_;
  std::vector<Car> cars_;
};

class MountainCarContinuous {
 public:
  static constexpr const char* kOptions[] = {"goal_velocity", "max_episode_steps", nullptr};
  static void sizes(hive_description& found) { continuous<2>(found, 1.0F); }

  MountainCarContinuous(const hive_options* options, std::size_t count)
      : goal_velocity_(hive_number(options, "goal_velocity", 0)), cars_(count) {}

  void begin(std::size_t b, Pcg64& random, float* observation) {
    cars_[b] = {random.uniform(-0.6, -0.4), 0.0, true};
    observation[0] = static_cast<float>(cars_[b].position);
    observation[1] = 0.0F;
  }

  // Gymnasium's state is float64 before the first step of an episode and float32 after it.
  void step(const void* actions, const hive_rows* rows) {
    for (std::size_t b = 0; b < cars_.size(); ++b) {
      const float action = static_cast<const float*>(actions)[b];
      const bool terminated = cars_[b].first ? moved<double>(cars_[b], action) : moved<float>(cars_[b], action);
      cars_[b].first = false;
      rows->terminated[b] = terminated;
      const double reward = terminated ? 100.0 : 0.0;
      rows->rewards[b] = static_cast<float>(reward - exact_square(static_cast<double>(action)) * 0.1);
      floats_of(rows, b)[0] = static_cast<float>(cars_[b].position);
      floats_of(rows, b)[1] = static_cast<float>(cars_[b].velocity);
    }
  }

 private:
  struct Car {
    double position, velocity;
    bool first;
  };

  // NumPy rounds the Python numbers in an expression to the type of its array's elements, T.
  template <typename T>
  bool moved(Car& car, float action) const {
    auto position = static_cast<T>(car.position), velocity = static_cast<T>(car.velocity);
    const double slope = exact_cos(static_cast<double>(T{3} * position));
    const float push = action * 0.0015F - static_cast<float>(0.0025 * slope);
    constexpr auto kFastest = static_cast<T>(0.07), kLeft = static_cast<T>(-1.2), kRight = static_cast<T>(0.6);
    velocity = velocity + static_cast<T>(push);
    if (velocity > kFastest) velocity = kFastest;
    if (velocity < -kFastest) velocity = -kFastest;
    position = position + velocity;
    if (position > kRight) position = kRight;
    if (position < kLeft) position = kLeft;
    if (position == kLeft && velocity < 0) velocity = 0;
    const bool terminated = position >= static_cast<T>(0.45) && velocity >= static_cast<T>(goal_velocity_);
    car.position = static_cast<double>(static_cast<float>(position));
    car.velocity = static_cast<double>(static_cast<float>(velocity));
    return terminated;
  }

  double goal_velocity_;
  std::vector<Car> cars_;
};

class Pendulum {
 public:
  static constexpr const char* kOptions[] = {"g", "max_episode_steps", nullptr};
  static void sizes(hive_description& found) { continuous<3>(found, 2.0F); }

  Pendulum(const hive_options* options, std::size_t count)
      : pull_(3 * hive_number(options, "g", 10.0) / (2 * 1.0)), states_(count) {}

  void begin(std::size_t b, Pcg64& random, float* observation) {
    states_[b].angle = random.uniform(-kPi, kPi);
    states_[b].velocity = random.uniform(-1.0, 1.0);
    observe(b, observation);
  }

  void step(const void* actions, const hive_rows* rows) {
    for (std::size_t b = 0; b < states_.size(); ++b) {
      const float torque = static_cast<const float*>(actions)[b];
      auto& [angle, velocity] = states_[b];
      const double cost = exact_square(normalized(angle)) + 0.1 * exact_square(velocity) +
                          static_cast<double>(0.001F * exact_square(torque));
      velocity = velocity + (pull_ * exact_sin(angle) + static_cast<double>(3.0F * torque)) * 0.05;
      velocity = clipped(velocity, -8.0, 8.0);
      angle = angle + velocity * 0.05;
      rows->rewards[b] = static_cast<float>(-cost);
      observe(b, floats_of(rows, b));
    }
  }

 private:
  struct State {
    double angle, velocity;
  };

  // ((x + pi) % (2 pi)) - pi, with Python's remainder.
  static double normalized(double x) {
    double rest = std::fmod(x + kPi, 2 * kPi);
    if (rest < 0) rest += 2 * kPi;
    return rest - kPi;
  }

  void observe(std::size_t b, float* observation) const {
    observation[0] = static_cast<float>(exact_cos(states_[b].angle));
    observation[1] = static_cast<float>(exact_sin(states_[b].angle));
    observation[2] = static_cast<float>(states_[b].velocity);
  }

  double pull_;
  std::vector<State> states_;
};

// The functions of hive/env.h for a class above, and the random numbers of its environments.
template <class T>
struct Interface {
  T physics;
  std::vector<Pcg64> random;

  static int describe(const hive_options* options, hive_description* found, char* error) {
    if (const char* const name = hive_unknown_option(options, T::kOptions, nullptr)) {
      std::snprintf(error, HIVE_ERROR_BYTES, "it has no number `%s` among its options", name);
      return 1;
    }
    T::sizes(*found);
    found->max_episode_steps = static_cast<std::int64_t>(hive_number(options, "max_episode_steps", 0));
    return 0;
  }

  static void* create(const hive_options* options, std::int64_t environments, char* error) try {
    const auto count = static_cast<std::size_t>(environments);
    return new Interface{T(options, count), std::vector<Pcg64>(count)};
  } catch (const std::exception& failure) {
    hive_fail(error, failure.what());
    return nullptr;
  }

  static int reset(void* state, std::int64_t environment, const std::uint64_t* seed, void* observation, char*) {
    auto& self = *static_cast<Interface*>(state);
    const auto b = static_cast<std::size_t>(environment);
    if (seed) self.random[b] = Pcg64(*seed);
    self.physics.begin(b, self.random[b], static_cast<float*>(observation));
    return 0;
  }

  static int step(void* state, const void* actions, const hive_rows* rows, char*) {
    static_cast<Interface*>(state)->physics.step(actions, rows);
    return 0;
  }

  static void destroy(void* state) { delete static_cast<Interface*>(state); }

  static constexpr hive_environment environment{
      HIVE_ENV_VERSION, sizeof(hive_environment), describe, create, reset, step, destroy};
};

constexpr std::pair<std::string_view, const hive_environment*> kAll[] = {
    {"CartPoleEnv", &Interface<CartPole>::environment},
    {"AcrobotEnv", &Interface<Acrobot>::environment},
    {"MountainCarEnv", &Interface<MountainCar>::environment},
    {"Continuous_MountainCarEnv", &Interface<MountainCarContinuous>::environment},
    {"PendulumEnv", &Interface<Pendulum>::environment},
};

}  // namespace

const hive_environment* classic_control(std::string_view name) {
  for (const auto& [known, environment] : kAll) {
    if (known == name) return environment;
  }
  return nullptr;
}

}  // namespace hive
