// What the rows of a replay memory are in Python: it keeps their arrays alive.
#pragma once

#include <string>

#include "arrays.hpp"
#include "hive/replay.hpp"

namespace hive {

namespace py = pybind11;

// The arrays of a replay memory, which it keeps alive. Each is checked once.
class BoundReplay {
 public:
  BoundReplay(const py::object& observations, const py::object& finals, const py::object& actions, const py::object& rewards,
              const py::object& terminated, const py::object& truncated, const py::object& valid) {
    const auto of_rewards = marks_.input<float>(rewards, "rewards");
    rows_.sources = marks_.extent(0);
    rows_.rows = marks_.extent(1);
    rows_.columns = marks_.extent(2);
    rows_.rewards = of_rewards.data();
    rows_.terminated = marks_.input<std::uint8_t>(terminated, "terminated").data();
    rows_.truncated = marks_.input<std::uint8_t>(truncated, "truncated").data();
    rows_.valid = marks_.input<std::uint8_t>(valid, "valid").data();
    if (rows_.size() == 0) throw py::value_error("rewards must not be empty");
    rows_.observations = bytes_of(observations_, observations, "observations", rows_.observation_bytes);
    rows_.finals = bytes_of(observations_, finals, "finals", rows_.observation_bytes);
    rows_.actions = bytes_of(actions_, actions, "actions", rows_.action_bytes);
  }

  const ReplayRows& rows() const { return rows_; }
  std::size_t size() const { return rows_.size(); }

  void gather(const py::object& positions, std::int64_t n_step, double discount, const py::object& observations,
              const py::object& next_observations, const py::object& actions, const py::object& returns,
              const py::object& discounts, const py::object& shift, const py::object& scale, float reward_scale,
              float limit) const {
    if (n_step < 1) throw py::value_error("n_step must be at least 1");
    Arrays vectors{1};
    Arrays stacks{3};
    Arrays taken{2};
    const auto where = vectors.input<std::int64_t>(positions, "positions");
    ReplayBatch batch{};
    batch.returns = vectors.output<float>(returns, "returns").data();
    batch.discounts = vectors.output<float>(discounts, "discounts").data();
    batch.observations = bytes(stacks.output<std::uint8_t>(observations, "observations"));
    const std::size_t stack = stacks.extent(1);
    check(stacks.extent(0) == where.size() && stacks.extent(2) == rows_.observation_bytes && stack > 0,
          "observations must be [positions, stack, bytes of an observation]");
    batch.next_observations = bytes(stacks.output<std::uint8_t>(next_observations, "next_observations"));
    batch.actions = bytes(taken.output<std::uint8_t>(actions, "actions"));
    check(taken.extent(0) == where.size() && taken.extent(1) == rows_.action_bytes,
          "actions must be [positions, bytes of an action]");
    for (const std::int64_t position : where) {
      if (position < 0 || static_cast<std::size_t>(position) >= rows_.size()) {
        throw py::index_error("position " + std::to_string(position) + " is outside of the " +
                              std::to_string(rows_.size()) + " rows");
      }
    }
    Arrays elements{1};
    ReplayScales scales;
    scales.shift = elements.input<float>(shift, "shift");
    scales.scale = elements.input<float>(scale, "scale");
    scales.reward_scale = reward_scale;
    scales.limit = limit;
    check(scales.scale.size() * sizeof(float) <= rows_.observation_bytes, "scale must fit into an observation");
    const py::gil_scoped_release released;
    gather_batch(rows_, where, static_cast<std::size_t>(n_step), discount, stack, scales, batch);
  }

 private:
  static std::byte* bytes(std::span<std::uint8_t> span) { return reinterpret_cast<std::byte*>(span.data()); }

  static void check(bool fits, const char* text) {
    if (!fits) throw py::value_error(text);
  }

  const std::byte* bytes_of(Arrays& arrays, const py::object& array, const char* name, std::size_t& each) const {
    const auto span = arrays.input<std::uint8_t>(array, name);
    check(arrays.extent(0) == rows_.sources && arrays.extent(1) == rows_.rows && arrays.extent(2) == rows_.columns,
          (std::string(name) + " must have the sources, rows and columns of the rewards").c_str());
    each = arrays.extent(3);
    return reinterpret_cast<const std::byte*>(span.data());
  }

  Arrays marks_{3};
  Arrays observations_{4};
  Arrays actions_{4};
  ReplayRows rows_{};
};

}  // namespace hive
