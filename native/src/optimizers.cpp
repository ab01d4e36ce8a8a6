#include "hive/optimizers.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "hive/finite.hpp"
#include "hive/simd.hpp"
#include "hive/team.hpp"

namespace hive {
namespace {

// The factors of the loops, in float32. They are passed by value: a loop that stores floats cannot keep factors behind
// a reference in registers, because the stores might alias them.
struct Factors {
  float gradient_scale = 1.0F;
  float l2 = 0.0F;               // decay that acts on the gradient
  float keep = 1.0F;             // 1 - decay that acts on the parameters
  float step = 0.0F;             // learning rate, with Adam's first correction
  float first = 0.0F;            // Adam: beta1. Others: momentum
  float first_rest = 0.0F;       // 1 - beta1
  float second = 0.0F;           // Adam: beta2. RMSprop: decay
  float second_rest = 0.0F;      // 1 - second
  float root_correction = 1.0F;  // square root of Adam's second correction
  float epsilon = 0.0F;
};

HIVE_SIMD bool adam(Factors by, std::size_t size, const float* parameters_in, float* parameters_out,
                    const float* gradient, const float* exp_avg_in, float* exp_avg_out, const float* exp_avg_sq_in,
                    float* exp_avg_sq_out) {
  std::uint32_t bad = 0;
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < size; ++i) {
    const float parameter = parameters_in[i];
    const float slope = by.gradient_scale * gradient[i] + by.l2 * parameter;
    const float mean = by.first * exp_avg_in[i] + by.first_rest * slope;
    const float square = by.second * exp_avg_sq_in[i] + by.second_rest * slope * slope;
    exp_avg_out[i] = mean;
    exp_avg_sq_out[i] = square;
    const float next = by.keep * parameter - by.step * mean / (std::sqrt(square) / by.root_correction + by.epsilon);
    parameters_out[i] = next;
    bad |= not_finite(next) | not_finite(mean) | not_finite(square);
  }
  return !bad;
}

HIVE_SIMD bool rmsprop(Factors by, std::size_t size, const float* parameters_in, float* parameters_out,
                       const float* gradient, const float* square_avg_in, float* square_avg_out,
                       const float* momentum_in, float* momentum_out) {
  const bool has_momentum = momentum_out != nullptr;
  std::uint32_t bad = 0;
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < size; ++i) {
    const float parameter = parameters_in[i];
    const float slope = by.gradient_scale * gradient[i] + by.l2 * parameter;
    const float square = by.second * square_avg_in[i] + by.second_rest * slope * slope;
    float direction = slope / (std::sqrt(square) + by.epsilon);
    square_avg_out[i] = square;
    if (has_momentum) {
      direction += by.first * momentum_in[i];
      momentum_out[i] = direction;
    }
    const float next = parameter - by.step * direction;
    parameters_out[i] = next;
    bad |= not_finite(next) | not_finite(direction) | not_finite(square);
  }
  return !bad;
}

HIVE_SIMD bool sgd(Factors by, std::size_t size, const float* parameters_in, float* parameters_out,
                   const float* gradient, const float* momentum_in, float* momentum_out) {
  const bool has_momentum = momentum_out != nullptr;
  std::uint32_t bad = 0;
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < size; ++i) {
    const float parameter = parameters_in[i];
    float direction = by.gradient_scale * gradient[i] + by.l2 * parameter;
    if (has_momentum) {
      direction += by.first * momentum_in[i];
      momentum_out[i] = direction;
    }
    const float next = parameter - by.step * direction;
    parameters_out[i] = next;
    bad |= not_finite(next) | not_finite(direction);
  }
  return !bad;
}

HIVE_SIMD void blend(float keep, float rate, std::size_t size, const float* target_in, const float* source,
                     float* target_out) {
  HIVE_INDEPENDENT
  for (std::size_t i = 0; i < size; ++i) target_out[i] = keep * target_in[i] + rate * source[i];
}

// Elements that are worth a part of their own: some 20 us.
constexpr std::size_t kPartElements = 16'384;

// Calls f(first, count) for parts of `size` elements, on the threads of the process; returns whether all calls did.
// Each element is computed alone, so the bytes do not depend on the parts.
template <typename F>
bool in_parts(std::size_t size, const F& f) {
  constexpr std::size_t kLine = 16;  // floats of one line of the cache
  const std::size_t parts = std::max<std::size_t>(1, std::min(threads(), size / kPartElements));
  const std::size_t each = (size / parts + kLine - 1) / kLine * kLine;
  std::atomic<bool> all{true};
  share(parts, [&](std::size_t part) {
    const std::size_t first = std::min(part * each, size);
    const std::size_t count = part + 1 == parts ? size - first : std::min(each, size - first);
    if (!f(first, count)) all.store(false, std::memory_order_relaxed);
  });
  return all.load(std::memory_order_relaxed);
}

float narrow(double factor) { return static_cast<float>(factor); }

// RAdam's rectification of step t, in [0, 1): how much of Adam's step the variance of its average of squares permits.
// 0: too few squares (a length of at most 5, as in torch), and the step is that of momentum alone.
double rectification(double beta2, double step) {
  const double decayed = std::pow(beta2, step);
  const double longest = 2.0 / (1.0 - beta2) - 1.0;
  const double length = longest - 2.0 * step * decayed / (1.0 - decayed);
  if (!(length > 5.0)) return 0.0;
  return std::sqrt((length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length));
}

}  // namespace

bool adam_step(const AdamSettings& settings, std::span<const float> parameters_in, std::span<float> parameters_out,
               std::span<const float> gradient, std::span<const float> exp_avg_in, std::span<float> exp_avg_out,
               std::span<const float> exp_avg_sq_in, std::span<float> exp_avg_sq_out) {
  const auto step = static_cast<double>(settings.step);
  const double correction = 1.0 - std::pow(settings.beta1, step);
  const double root_correction = std::sqrt(1.0 - std::pow(settings.beta2, step));
  const double rectified = settings.rectified ? rectification(settings.beta2, step) : 1.0;
  const bool divides = rectified > 0.0;
  // torch's RAdam adds epsilon before it corrects the root, so here epsilon is corrected too. Without a division the
  // root is divided by infinity and epsilon is 1, which makes the divisor 1.
  const double infinity = std::numeric_limits<double>::infinity();
  const double epsilon = settings.rectified ? settings.epsilon / root_correction : settings.epsilon;
  const Factors by{
      .gradient_scale = narrow(settings.gradient_scale),
      .l2 = narrow(settings.decoupled ? 0.0 : settings.weight_decay),
      .keep = narrow(settings.decoupled ? 1.0 - settings.learning_rate * settings.weight_decay : 1.0),
      .step = narrow(settings.learning_rate * (divides ? rectified : 1.0) / correction),
      .first = narrow(settings.beta1),
      .first_rest = narrow(1.0 - settings.beta1),
      .second = narrow(settings.beta2),
      .second_rest = narrow(1.0 - settings.beta2),
      .root_correction = narrow(divides ? root_correction : infinity),
      .epsilon = narrow(divides ? epsilon : 1.0),
  };
  return in_parts(parameters_out.size(), [&](std::size_t at, std::size_t count) {
    return adam(by, count, parameters_in.data() + at, parameters_out.data() + at, gradient.data() + at,
                exp_avg_in.data() + at, exp_avg_out.data() + at, exp_avg_sq_in.data() + at,
                exp_avg_sq_out.data() + at);
  });
}

bool rmsprop_step(const RmspropSettings& settings, std::span<const float> parameters_in,
                  std::span<float> parameters_out, std::span<const float> gradient,
                  std::span<const float> square_avg_in, std::span<float> square_avg_out,
                  std::span<const float> momentum_in, std::span<float> momentum_out) {
  const Factors by{
      .gradient_scale = narrow(settings.gradient_scale),
      .l2 = narrow(settings.weight_decay),
      .step = narrow(settings.learning_rate),
      .first = narrow(settings.momentum),
      .second = narrow(settings.decay),
      .second_rest = narrow(1.0 - settings.decay),
      .epsilon = narrow(settings.epsilon),
  };
  return rmsprop(by, parameters_out.size(), parameters_in.data(), parameters_out.data(), gradient.data(),
                 square_avg_in.data(), square_avg_out.data(), momentum_in.data(), momentum_out.data());
}

bool sgd_step(const SgdSettings& settings, std::span<const float> parameters_in, std::span<float> parameters_out,
              std::span<const float> gradient, std::span<const float> momentum_in, std::span<float> momentum_out) {
  const Factors by{
      .gradient_scale = narrow(settings.gradient_scale),
      .l2 = narrow(settings.weight_decay),
      .step = narrow(settings.learning_rate),
      .first = narrow(settings.momentum),
  };
  return sgd(by, parameters_out.size(), parameters_in.data(), parameters_out.data(), gradient.data(),
             momentum_in.data(), momentum_out.data());
}

void polyak(std::span<const float> target_in, std::span<const float> source, std::span<float> target_out,
            double rate) {
  if (rate == 1.0) {
    std::copy(source.begin(), source.end(), target_out.begin());
  } else {
    in_parts(target_out.size(), [&](std::size_t at, std::size_t count) {
      blend(narrow(1.0 - rate), narrow(rate), count, target_in.data() + at, source.data() + at,
            target_out.data() + at);
      return true;
    });
  }
}

}  // namespace hive
