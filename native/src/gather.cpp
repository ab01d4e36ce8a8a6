#include "hive/gather.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "hive/accumulator.hpp"
#include "hive/half.hpp"
#include "hive/simd.hpp"

namespace hive {
namespace {

// A cache line and the widest vector register.
constexpr std::size_t kAlignment = 64;

constexpr std::uint16_t kBFloat16Exponent = 0x7F80;
constexpr std::uint16_t kFloat16Exponent = 0x7C00;
constexpr std::uint32_t kFloat32Exponent = 0x7F800000;
constexpr std::uint64_t kFloat64Exponent = 0x7FF0000000000000;

// Copies words; returns whether one has an exponent of all ones, which is a NaN or an infinity.
template <typename Word>
[[gnu::always_inline]] inline bool copy_words(const Word* __restrict from, Word* __restrict to, std::size_t count,
                                              Word exponent) {
  Word bad = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Word word = from[i];
    to[i] = word;
    bad |= static_cast<Word>((word & exponent) == exponent);
  }
  return bad != 0;
}

template <typename Word>
[[gnu::always_inline]] inline bool find_words(const Word* from, std::size_t count, Word exponent) {
  Word bad = 0;
  for (std::size_t i = 0; i < count; ++i) bad |= static_cast<Word>((from[i] & exponent) == exponent);
  return bad != 0;
}

// One overload per type, because the attribute does not support templates.
#define HIVE_WORD(Word)                                                                         \
  HIVE_SIMD bool copy(const Word* from, Word* to, std::size_t count, Word exponent) {           \
    return copy_words(from, to, count, exponent);                                               \
  }                                                                                             \
  HIVE_SIMD bool find(const Word* from, std::size_t count, Word exponent) {                     \
    return find_words(from, count, exponent);                                                   \
  }
HIVE_WORD(std::uint16_t)
HIVE_WORD(std::uint32_t)
HIVE_WORD(std::uint64_t)
#undef HIVE_WORD

// Returns whether an element is not finite; with `to`, also copies.
template <typename Word>
bool take(const void* from, void* to, std::size_t count, Word exponent) {
  const auto* words = static_cast<const Word*>(from);
  return to ? copy(words, static_cast<Word*>(to), count, exponent) : find(words, count, exponent);
}

bool take(const Field& field, const void* from, void* to) {
  switch (field.type) {
    case Type::kFloat32: return take<std::uint32_t>(from, to, field.count, kFloat32Exponent);
    case Type::kFloat64: return take<std::uint64_t>(from, to, field.count, kFloat64Exponent);
    case Type::kBFloat16: return take<std::uint16_t>(from, to, field.count, kBFloat16Exponent);
    case Type::kFloat16: break;
  }
  return take<std::uint16_t>(from, to, field.count, kFloat16Exponent);
}

template <typename T>
void add_field(const Field& field, const void* from, void* sums, double weight, bool onto) {
  const auto factor = static_cast<SumOf<T>>(weight);
  const std::span to{static_cast<SumOf<T>*>(sums), field.count};
  add_weighted(Weighted<T>{{static_cast<const T*>(from), field.count}, factor}, to, onto);
}

const void* pointer(std::uint64_t address) { return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address)); }

}  // namespace

std::size_t size_of(Type type) {
  if (type == Type::kFloat64) return 8;
  return type == Type::kFloat32 ? 4 : 2;
}

Type sum_of(Type type) { return type == Type::kFloat64 ? type : Type::kFloat32; }

FieldLayout lay_out(std::span<const Type> types, std::span<const std::size_t> counts) {
  FieldLayout layout;
  layout.fields.resize(types.size());
  for (const Type type : types) {
    const auto known = std::find_if(layout.sections.begin(), layout.sections.end(),
                                    [type](const Section& section) { return section.type == type; });
    if (known != layout.sections.end()) continue;
    const std::size_t elements_in_line = kAlignment / size_of(type);
    Section section{type, 0, layout.bytes, layout.sum_bytes};
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (types[i] != type) continue;
      layout.fields[i] = {type, counts[i], section.offset + section.count * size_of(type),
                          section.sum_offset + section.count * size_of(sum_of(type))};
      section.count += (counts[i] + elements_in_line - 1) / elements_in_line * elements_in_line;
    }
    layout.bytes += section.count * size_of(type);
    layout.sum_bytes += section.count * size_of(sum_of(type));
    layout.sections.push_back(section);
  }
  return layout;
}

std::int64_t gather(const FieldLayout& layout, std::span<const std::uint64_t> addresses, std::byte* block) {
  std::int64_t bad = -1;
  for (std::size_t i = layout.fields.size(); i-- > 0;) {
    const Field& field = layout.fields[i];
    if (addresses[i] == 0) {
      std::memset(block + field.offset, 0, field.count * size_of(field.type));
    } else if (take(field, pointer(addresses[i]), block + field.offset)) {
      bad = static_cast<std::int64_t>(i);
    }
  }
  return bad;
}

std::int64_t first_bad_field(const FieldLayout& layout, std::span<const std::uint64_t> addresses) {
  for (std::size_t i = 0; i < layout.fields.size(); ++i) {
    if (addresses[i] != 0 && take(layout.fields[i], pointer(addresses[i]), nullptr)) return static_cast<std::int64_t>(i);
  }
  return -1;
}

void add(const FieldLayout& layout, std::span<const std::uint64_t> addresses, double weight, std::byte* sums, bool onto) {
  for (std::size_t i = 0; i < layout.fields.size(); ++i) {
    const Field& field = layout.fields[i];
    std::byte* const to = sums + field.sum_offset;
    if (addresses[i] == 0) {
      if (!onto) std::memset(to, 0, field.count * size_of(sum_of(field.type)));
      continue;
    }
    const void* const from = pointer(addresses[i]);
    switch (field.type) {
      case Type::kFloat32: add_field<float>(field, from, to, weight, onto); break;
      case Type::kFloat64: add_field<double>(field, from, to, weight, onto); break;
      case Type::kBFloat16: add_field<BFloat16>(field, from, to, weight, onto); break;
      case Type::kFloat16: add_field<Float16>(field, from, to, weight, onto); break;
    }
  }
}

}  // namespace hive
