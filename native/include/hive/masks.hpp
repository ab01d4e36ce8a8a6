// Action masks, and the outputs of actions that they forbid.
#pragma once

#include <algorithm>
#include <cstddef>

namespace hive {

// The output of an action that a mask forbids (hive.networks.rows.packed). Those of allowed actions lie above kAllowed.
inline constexpr float kForbidden = -1e8F, kAllowed = kForbidden / 2;

// The masks of rows as they are stored: a byte for each of `actions` actions, from `offset` on; 0: it is forbidden.
struct MaskColumns {
  std::size_t offset, actions;

  bool fits(std::size_t row_bytes, std::size_t width) const {
    return actions > 0 && offset <= row_bytes && actions <= row_bytes - offset && width % actions == 0;
  }

  // Replaces the values [rows, width] of forbidden actions. An action has as many columns as another one.
  void fill(const std::byte* stored, std::size_t row_bytes, std::size_t rows, std::size_t width, float with,
            float* values) const {
    const std::size_t each = width / actions;
    for (std::size_t row = 0; row < rows; ++row) {
      const std::byte* const allowed = stored + row * row_bytes + offset;
      for (std::size_t action = 0; action < actions; ++action) {
        if (allowed[action] == std::byte{0}) std::fill_n(values + row * width + action * each, each, with);
      }
    }
  }
};

}  // namespace hive
