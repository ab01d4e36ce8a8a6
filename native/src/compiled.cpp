#include "hive/compiled.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "hive/finite.hpp"

namespace hive {
namespace {

std::size_t bytes_of(const hive_description& description) {
  std::size_t elements = 1;
  for (std::int32_t i = 0; i < description.observation_dimensions; ++i) {
    elements *= static_cast<std::size_t>(description.observation_shape[i]);
  }
  return elements * (description.observation_dtype == HIVE_FLOAT32 ? sizeof(float) : sizeof(std::uint8_t));
}

std::string observation_fault(const hive_description& found) {
  if (found.observation_dtype != HIVE_FLOAT32 && found.observation_dtype != HIVE_UINT8) {
    return "observation_dtype is " + std::to_string(found.observation_dtype) +
           ", expected HIVE_FLOAT32 (0) or HIVE_UINT8 (1)";
  }
  if (found.observation_dimensions < 0 || found.observation_dimensions > HIVE_MAX_DIMENSIONS) {
    return "observation_dimensions is " + std::to_string(found.observation_dimensions) + ", expected 0 to " +
           std::to_string(HIVE_MAX_DIMENSIONS);
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // elements of one observation; no product below overflows
  std::int64_t elements = 1;
  for (std::int32_t i = 0; i < found.observation_dimensions; ++i) {
    const std::int64_t size = found.observation_shape[i];
    if (size < 1 || size > kMost || elements * size > kMost) {
      return "observation_shape[" + std::to_string(i) + "] is " + std::to_string(size) +
             ", expected sizes whose product is from 1 to 2^30";
    }
    elements *= size;
  }
  return "";
}

std::string action_fault(const hive_description& found) {
  const bool continuous = found.action_kind == HIVE_CONTINUOUS;
  if (!continuous && found.action_kind != HIVE_DISCRETE) {
    return "action_kind is " + std::to_string(found.action_kind) + ", expected HIVE_DISCRETE (0) or HIVE_CONTINUOUS (1)";
  }
  if (found.action_elements < continuous || found.action_elements > HIVE_MAX_ACTIONS) {
    return "action_elements is " + std::to_string(found.action_elements) + ", expected " + (continuous ? "1" : "0") +
           " to " + std::to_string(HIVE_MAX_ACTIONS);
  }
  for (std::int32_t i = 0; i < std::max(found.action_elements, 1); ++i) {
    const std::string at = std::string("[").append(std::to_string(i)).append("]");
    if (!continuous && found.action_choices[i] < 1) {
      return "action_choices" + at + " is " + std::to_string(found.action_choices[i]) + ", expected at least 1";
    }
    if (continuous && !(found.action_low[i] <= found.action_high[i])) {
      return "action_low" + at + " is " + std::to_string(found.action_low[i]) + " and action_high" + at + " is " +
             std::to_string(found.action_high[i]) + ", expected numbers low <= high";
    }
  }
  return "";
}

// The text that a function of the environment wrote, up to its first zero.
std::string text_of(char (&error)[HIVE_ERROR_BYTES]) {
  error[HIVE_ERROR_BYTES - 1] = 0;
  return error[0] ? std::string(error) : std::string("without an explanation");
}

}  // namespace

void Options::add(std::string name, double number) { entries_.push_back({std::move(name), "", number, false}); }
void Options::add(std::string name, std::string text) {
  entries_.push_back({std::move(name), std::move(text), 0.0, true});
}

const hive_options* Options::get() {
  items_.clear();
  for (const Entry& entry : entries_) {
    items_.push_back({entry.name.c_str(), entry.is_text ? entry.text.c_str() : nullptr, entry.number});
  }
  options_ = {items_.data(), static_cast<std::int64_t>(items_.size())};
  return &options_;
}

std::string version_fault(const hive_environment& environment) {
  if (environment.version != HIVE_ENV_VERSION) {
    return "it was compiled for version " + std::to_string(environment.version) + " of hive/env.h, and this hive has " +
           std::to_string(HIVE_ENV_VERSION);
  }
  if (environment.size != sizeof(hive_environment)) {
    return "its structure has " + std::to_string(environment.size) + " bytes, expected " +
           std::to_string(sizeof(hive_environment));
  }
  const std::pair<bool, const char*> functions[] = {{environment.describe != nullptr, "describe"},
                                                    {environment.create != nullptr, "create"},
                                                    {environment.reset != nullptr, "reset"},
                                                    {environment.step != nullptr, "step"},
                                                    {environment.destroy != nullptr, "destroy"}};
  for (const auto& [present, name] : functions) {
    if (!present) return std::string("its function `") + name + "` is NULL";
  }
  return "";
}

hive_description describe(const hive_environment& environment, Options& options, std::string& error) {
  hive_description found{};
  char text[HIVE_ERROR_BYTES] = {};
  if (environment.describe(options.get(), &found, text)) {
    error = text_of(text);
    return found;
  }
  error = observation_fault(found);
  if (error.empty()) error = action_fault(found);
  if (error.empty() && found.max_episode_steps < 0) error = "max_episode_steps is negative";
  return found;
}

CompiledVector::CompiledVector(const hive_environment& environment, const hive_description& description,
                               Options& options, std::size_t count)
    : environment_(environment),
      description_(description),
      elements_(static_cast<std::size_t>(std::max(description.action_elements, 1))),
      observation_bytes_(bytes_of(description)),
      floats_(description.observation_dtype == HIVE_FLOAT32),
      episodes_(count, false, description.max_episode_steps),
      clipped_(description.action_kind == HIVE_CONTINUOUS ? count * elements_ : 0) {
  char text[HIVE_ERROR_BYTES] = {};
  state_ = environment_.create(options.get(), static_cast<std::int64_t>(count), text);
  if (!state_) fail(Fault::failed, -1, text_of(text));
}

CompiledVector::~CompiledVector() {
  if (state_) environment_.destroy(state_);
}

bool CompiledVector::reset(const std::uint64_t* seeds, Observations observations) {
  episodes_.reset();
  for (std::size_t b = 0; b < count(); ++b) {
    char* const observation = observations.data + static_cast<std::ptrdiff_t>(b) * observations.stride;
    if (!reset_one(b, seeds + b, observation)) return false;
    if (!finite(observation)) return fail(Fault::observation, static_cast<std::ptrdiff_t>(b));
  }
  return true;
}

bool CompiledVector::step(const void* actions, const Row& row, Observations observations, Finals& finals) {
  if (!step_all(actions, row, observations)) return false;
  const std::ptrdiff_t ended = episodes_.finish(row);
  if (ended < 0) return fail(Fault::reward, -1);
  if (ended > 0) {
    for (std::size_t b = 0; b < count(); ++b) {
      if (!(row.terminated[b] | row.truncated[b])) continue;
      if (!end(b, row, observations.data + static_cast<std::ptrdiff_t>(b) * observations.stride, finals)) return false;
    }
  }
  if (!floats_) return true;
  if (observations.stride == static_cast<std::ptrdiff_t>(observation_bytes_)) {  // one array, which vectorises
    const auto* const numbers = reinterpret_cast<const float*>(observations.data);
    std::uint32_t bad = 0;
    for (std::size_t i = 0; i < count() * observation_bytes_ / sizeof(float); ++i) bad |= not_finite(numbers[i]);
    return !bad || fail(Fault::observation, -1);
  }
  for (std::size_t b = 0; b < count(); ++b) {
    if (!finite(observations.data + static_cast<std::ptrdiff_t>(b) * observations.stride)) {
      return fail(Fault::observation, static_cast<std::ptrdiff_t>(b));
    }
  }
  return true;
}

bool CompiledVector::reset_one(std::size_t b, const std::uint64_t* seed, char* observation) {
  char text[HIVE_ERROR_BYTES] = {};
  if (!environment_.reset(state_, static_cast<std::int64_t>(b), seed, observation, text)) return true;
  return fail(Fault::failed, static_cast<std::ptrdiff_t>(b), "in reset: " + text_of(text));
}

bool CompiledVector::step_all(const void* actions, const Row& row, Observations observations) {
  actions = checked(actions);
  if (!actions) return false;
  std::fill(row.rewards.begin(), row.rewards.end(), 0.0F);
  std::fill(row.terminated.begin(), row.terminated.end(), std::uint8_t{0});
  std::fill(row.truncated.begin(), row.truncated.end(), std::uint8_t{0});
  const hive_rows rows{static_cast<std::int64_t>(count()), observations.data,        observations.stride,
                       row.rewards.data(),                 row.terminated.data(),    row.truncated.data()};
  char text[HIVE_ERROR_BYTES];
  text[0] = 0;
  if (!environment_.step(state_, actions, &rows, text)) return true;
  return fail(Fault::failed, -1, "in step: " + text_of(text));
}

bool CompiledVector::fail(Fault::Kind kind, std::ptrdiff_t environment, std::string text) {
  fault_ = {kind, environment, std::move(text)};
  return false;
}

bool CompiledVector::finite(const char* observation) const {
  if (!floats_) return true;
  const auto* const numbers = reinterpret_cast<const float*>(observation);
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < observation_bytes_ / sizeof(float); ++i) bad |= not_finite(numbers[i]);
  return !bad;
}

// Returns the actions that the environment gets: clipped, or as they are; nullptr if one is not among its choices.
const void* CompiledVector::checked(const void* actions) {
  if (continuous()) {
    const auto* from = static_cast<const float*>(actions);
    float* to = clipped_.data();
    for (std::size_t b = 0; b < count(); ++b) {
      for (std::size_t i = 0; i < elements_; ++i, ++from, ++to) {
        const float low = description_.action_low[i], high = description_.action_high[i];
        *to = *from < low ? low : *from > high ? high : *from;  // NaN stays, as with NumPy
      }
    }
    return clipped_.data();
  }
  const auto* const numbers = static_cast<const std::int64_t*>(actions);
  bool bad = false;
  if (elements_ == 1) {
    const auto choices = static_cast<std::uint64_t>(description_.action_choices[0]);
    for (std::size_t b = 0; b < count(); ++b) bad |= static_cast<std::uint64_t>(numbers[b]) >= choices;
    if (!bad) return actions;
  }
  for (std::size_t i = 0; i < count() * elements_; ++i) {
    const std::int64_t choices = description_.action_choices[i % elements_];
    if (numbers[i] >= 0 && numbers[i] < choices) continue;
    fail(Fault::action, static_cast<std::ptrdiff_t>(i / elements_),
         std::to_string(numbers[i]) + ", expected 0 to " + std::to_string(choices - 1));
    return nullptr;
  }
  return actions;
}

// Keeps the last observation of a truncated episode and starts the next one. Throws std::length_error without room.
bool CompiledVector::end(std::size_t b, const Row& row, char* observation, Finals& finals) {
  if (row.truncated[b]) {
    if (!finite(observation)) return fail(Fault::final_observation, static_cast<std::ptrdiff_t>(b));
    if (finals.count >= finals.capacity) throw std::length_error("no room for another final observation");
    std::memcpy(finals.data + finals.count * observation_bytes_, observation, observation_bytes_);
    row.final_index[b] = static_cast<std::int32_t>(finals.count++);
  }
  return reset_one(b, nullptr, observation);
}

}  // namespace hive
