// gather(), first_bad_field() and add() against plain loops, for every type.
#include "hive/gather.hpp"

#include <cstring>
#include <limits>
#include <vector>

#include "check.hpp"
#include "hive/half.hpp"

namespace {

using hive::Type;

std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

void types_lie_together() {
  const Type types[] = {Type::kFloat16, Type::kFloat64, Type::kFloat16, Type::kBFloat16};
  const std::size_t counts[] = {40, 3, 1, 1};
  const hive::FieldLayout layout = hive::lay_out(types, counts);
  CHECK(layout.fields[0].offset == 0 && layout.fields[2].offset == 128);
  CHECK(layout.fields[1].offset == 192 && layout.fields[3].offset == 256);
  CHECK(layout.bytes == 320 && layout.sections.size() == 3 && layout.sections[0].count == 96);
  CHECK(layout.fields[1].sum_offset == 4 * 96 && layout.fields[3].sum_offset == 4 * 96 + 64);
}

void gathers_and_finds() {
  const Type types[] = {Type::kFloat32, Type::kFloat32};
  const std::size_t counts[] = {3, 100};
  const hive::FieldLayout layout = hive::lay_out(types, counts);
  std::vector<float> first(3, 1.5F);
  std::vector<float> second(100, -2.0F);
  std::vector<std::byte> block(layout.bytes, std::byte{7});
  const std::uint64_t addresses[] = {address_of(first.data()), address_of(second.data())};
  CHECK(hive::gather(layout, addresses, block.data()) == -1);
  CHECK(std::memcmp(block.data(), first.data(), 12) == 0);
  CHECK(std::memcmp(block.data() + 64, second.data(), 400) == 0);
  CHECK(block[12] == std::byte{7});  // padding is the caller's
  second[99] = std::numeric_limits<float>::infinity();
  CHECK(hive::gather(layout, addresses, block.data()) == 1);
  CHECK(hive::first_bad_field(layout, addresses) == 1);
  first[0] = std::numeric_limits<float>::quiet_NaN();
  CHECK(hive::gather(layout, addresses, block.data()) == 0);
  const std::uint64_t none[] = {0, 0};
  CHECK(hive::gather(layout, none, block.data()) == -1 && hive::first_bad_field(layout, none) == -1);
  CHECK(block[0] == std::byte{0} && block[64 + 399] == std::byte{0});
}

template <typename T>
void adds(Type type, T one) {
  const std::size_t count = 77;
  const hive::FieldLayout layout = hive::lay_out({&type, 1}, {&count, 1});
  const std::vector<T> values(count, one);
  using Sum = decltype(hive::widen(one));
  std::vector<Sum> sums(layout.sum_bytes / sizeof(Sum), Sum{9});
  auto* const to = reinterpret_cast<std::byte*>(sums.data());
  const std::uint64_t address = address_of(values.data());
  hive::add(layout, {&address, 1}, 0.5, to, false);
  hive::add(layout, {&address, 1}, 2.0, to, true);
  for (std::size_t i = 0; i < count; ++i) CHECK(sums[i] == Sum{2.5});
  const std::uint64_t none = 0;
  hive::add(layout, {&none, 1}, 2.0, to, true);
  CHECK(sums[0] == Sum{2.5});
  hive::add(layout, {&none, 1}, 2.0, to, false);
  CHECK(sums[0] == Sum{0} && sums[count - 1] == Sum{0});
}

}  // namespace

int main() {
  types_lie_together();
  gathers_and_finds();
  adds(Type::kFloat32, 1.0F);
  adds(Type::kFloat64, 1.0);
  adds(Type::kBFloat16, hive::BFloat16{0x3F80});
  adds(Type::kFloat16, hive::Float16{0x3C00});
}
