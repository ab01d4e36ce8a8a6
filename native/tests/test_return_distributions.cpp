// Distributions of returns with few and many atoms: masses are kept, and nothing outside of the arrays is touched.
#include "hive/return_distributions.hpp"

#include <cmath>
#include <vector>

#include "check.hpp"

namespace {

using Numbers = std::vector<float>;

void test(std::size_t rows, std::size_t actions, std::size_t atoms) {
  const hive::ReturnSizes sizes{actions, atoms};
  Numbers columns(rows * actions * atoms), outputs(columns.size()), slopes(columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i) columns[i] = static_cast<float>(i * 7 % 11) - 5.0F;
  hive::log_softmax(atoms, columns, outputs);
  Numbers support(atoms), returns(rows, 0.7F), discounts(rows, 0.5F), targets(rows * atoms), errors(rows);
  for (std::size_t i = 0; i < atoms; ++i) support[i] = static_cast<float>(i) - 1.0F;
  CHECK(hive::categorical_targets(sizes, support, outputs, outputs, returns, discounts, targets) == -1);
  for (std::size_t row = 0; row < rows; ++row) {
    double mass = 0.0;
    for (std::size_t i = 0; i < atoms; ++i) mass += static_cast<double>(targets[row * atoms + i]);
    CHECK(std::fabs(mass - 1.0) < 1e-5);
  }
  const std::vector<std::int64_t> taken(rows, static_cast<std::int64_t>(actions - 1));
  const hive::QLoss loss = hive::categorical_loss(sizes, support, outputs, taken, targets, {}, errors, slopes);
  CHECK(loss.total >= 0.0 && std::isfinite(loss.total));
  for (const float error : errors) CHECK(error >= 0.0F);
  hive::log_softmax_back(atoms, outputs, slopes, slopes);
  for (const float slope : slopes) CHECK(std::isfinite(slope));
  hive::quantile_targets(sizes, outputs, outputs, returns, discounts, targets);
}

}  // namespace

int main() {
  for (const std::size_t rows : {0, 1, 5}) {
    for (const std::size_t atoms : {2, 7, 8, 9, 51}) test(rows, 3, atoms);
  }
}
