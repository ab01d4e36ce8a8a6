// Gathers the gradients of one backward pass, which torch leaves in separate tensors, into one block.
//
//     block | field 0 | pad | field 1 | pad | .. of the first type |  field | pad | .. of the next type | ..
//
// A field is the gradient of one parameter. It begins at a multiple of 64 bytes and the padding is zero, so all fields
// of one type form one array for the reduction. Gathering reads and writes each gradient once and checks in the same
// pass whether it is finite. Alternatively the gradients are added to a block of running sums, which has the same
// fields in float32 (float64 fields in float64).
//
// Addresses are not checked: each must point to as many elements as its field has, or be null for a gradient of zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hive {

enum class Type : std::uint8_t { kFloat32, kFloat64, kBFloat16, kFloat16 };

std::size_t size_of(Type type);
Type sum_of(Type type);

struct Field {
  Type type;
  std::size_t count;
  std::size_t offset;      // bytes, in a block
  std::size_t sum_offset;  // bytes, in a block of sums
};

// All fields of one type: an array of `count` elements, including padding.
struct Section {
  Type type;
  std::size_t count;
  std::size_t offset;
  std::size_t sum_offset;
};

struct FieldLayout {
  std::vector<Field> fields;  // in the order of the parameters
  std::vector<Section> sections;
  std::size_t bytes = 0;
  std::size_t sum_bytes = 0;
};

FieldLayout lay_out(std::span<const Type> types, std::span<const std::size_t> counts);

// Copies every gradient into `block`; returns the first field that is not finite, or -1.
std::int64_t gather(const FieldLayout& layout, std::span<const std::uint64_t> addresses, std::byte* block);

// Returns the first field whose gradient is not finite, or -1.
std::int64_t first_bad_field(const FieldLayout& layout, std::span<const std::uint64_t> addresses);

// sums = weight * gradient; with `onto`, sums += weight * gradient.
void add(const FieldLayout& layout, std::span<const std::uint64_t> addresses, double weight, std::byte* sums, bool onto);

}  // namespace hive
