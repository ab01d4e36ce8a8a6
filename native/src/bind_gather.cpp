// Python bindings of gather.hpp and of the reductions over gathered blocks and adopted slots: the C++ part of both
// accumulators, that of a run (hive.gradients) and that of scripts (hive.compat.rlpack).
#include <pybind11/stl.h>

#include <cmath>
#include <optional>

#include "arrays.hpp"
#include "hive/accumulator.hpp"
#include "hive/gather.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace hive {
namespace {

Type type_named(const std::string& name) {
  if (name == "float32") return Type::kFloat32;
  if (name == "float64") return Type::kFloat64;
  if (name == "bfloat16") return Type::kBFloat16;
  if (name == "float16") return Type::kFloat16;
  throw py::value_error("types are float32, float64, bfloat16 and float16, got " + name);
}

Coding coding_named(const std::string& name) {
  if (name == "none") return Coding::kFloat32;
  if (name == "bf16") return Coding::kBFloat16;
  if (name == "fp16") return Coding::kFloat16;
  if (name == "top-k") return Coding::kTopK;
  throw py::value_error("compressions are none, bf16, fp16 and top-k, got " + name);
}

using Blocks = std::vector<const std::byte*>;

class GradAccumulator {
 public:
  void lay_out_fields(const std::vector<std::string>& names, const std::vector<std::size_t>& counts) {
    if (names.size() != counts.size()) throw py::value_error("types and counts must be as many");
    std::vector<Type> types;
    for (const std::string& name : names) types.push_back(type_named(name));
    layout_ = lay_out(types, counts);
  }

  std::vector<std::size_t> offsets() const {
    std::vector<std::size_t> offsets;
    for (const Field& field : layout_.fields) offsets.push_back(field.offset);
    return offsets;
  }

  std::size_t bytes() const { return layout_.bytes; }
  std::size_t sum_bytes() const { return layout_.sum_bytes; }

  std::int64_t gather_into(const std::vector<std::uint64_t>& addresses, const py::object& block) const {
    check_count(addresses);
    Arrays arrays(1);
    std::byte* const to = writable(arrays, block, "block", layout_.bytes);
    const py::gil_scoped_release released;
    return gather(layout_, addresses, to);
  }

  std::int64_t bad_field(const std::vector<std::uint64_t>& addresses) const {
    check_count(addresses);
    const py::gil_scoped_release released;
    return first_bad_field(layout_, addresses);
  }

  void add_into(const std::vector<std::uint64_t>& addresses, double weight, const py::object& sums, bool onto) const {
    check_count(addresses);
    Arrays arrays(1);
    std::byte* const to = writable(arrays, sums, "sums", layout_.sum_bytes);
    const py::gil_scoped_release released;
    add(layout_, addresses, weight, to, onto);
  }

  Reduction reduce_into(const std::vector<py::object>& blocks, const std::vector<double>& weights, double divisor,
                        const py::object& out) const {
    if (blocks.size() != weights.size()) throw py::value_error("blocks and weights must be as many");
    Arrays arrays(1);
    std::byte* const to = writable(arrays, out, "out", layout_.bytes);
    Blocks from;
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      from.push_back(readable(arrays, blocks[k], "blocks[" + std::to_string(k) + "]", layout_.bytes));
    }
    const py::gil_scoped_release released;
    return over_sections([&](const Section& section) { return reduce_section(section, from, weights, divisor, to); });
  }

  Reduction finish_into(const py::object& sums, double divisor, const py::object& out) const {
    Arrays sums_arrays(1);
    Arrays out_arrays(1);
    const std::byte* const from = readable(sums_arrays, sums, "sums", layout_.sum_bytes);
    std::byte* const to = writable(out_arrays, out, "out", layout_.bytes);
    const py::gil_scoped_release released;
    return over_sections([&](const Section& section) { return finish_section(section, from, divisor, to); });
  }

  void lay_out_slots(std::size_t elements, const std::string& compression) {
    if (elements * sizeof(float) > layout_.bytes) throw py::value_error("the fields have fewer elements than a slot");
    coding_ = coding_named(compression);
    elements_ = elements;
  }

  void adopt(const py::object& slot, std::int64_t samples, double factor) {
    if (samples < 0) throw py::value_error("samples must be at least 0, got " + std::to_string(samples));
    if (!std::isfinite(static_cast<float>(factor))) throw py::value_error("factor must be finite in float32");
    AdoptedRound round{nullptr, nullptr, nullptr, elements_, samples, factor};
    const std::size_t alive = alive_.size();
    try {
      look_into(slot, round);
      rounds_.push_back(round);
    } catch (...) {
      alive_.resize(alive);
      throw;
    }
  }

  Reduction reduce_slots(const py::object& out) const {
    Arrays arrays(1);
    const std::span<float> result = arrays.output<float>(out, "out");
    check_elements(result.size(), "out");
    for (std::size_t k = 0; k < rounds_.size(); ++k) check_apart(rounds_[k], k, result);
    // Copies, because another thread may release the rounds while this one reads them without the GIL.
    const std::vector<AdoptedRound> rounds = rounds_;
    const std::vector<py::object> alive = alive_;
    Reduction found{};
    {
      const py::gil_scoped_release released;
      found = reduce_adopted(coding_, rounds, result);
    }
    if (found.bad_index >= 0) found.bad_index = field_at(static_cast<std::size_t>(found.bad_index) * sizeof(float));
    return found;
  }

  void release() {
    rounds_.clear();
    alive_.clear();
  }

 private:
  // Sets the pointers of `round` to the arrays of a slot and keeps the arrays alive.
  void look_into(const py::object& slot, AdoptedRound& round) {
    switch (coding_) {
      case Coding::kFloat32: round.values = field<float>(slot, gradient_, "gradient", elements_); return;
      case Coding::kBFloat16: round.values = field<std::uint16_t>(slot, gradient_, "gradient", elements_); return;
      case Coding::kFloat16:
        round.values = field<std::uint16_t>(slot, gradient_, "gradient", elements_);
        round.scale = field<double>(slot, scaling_, "coding", 2);
        return;
      case Coding::kTopK: break;
    }
    round.count = py::len(slot[values_]);
    if (round.count > elements_) throw py::value_error("values has more elements than the gradient");
    round.values = field<float>(slot, values_, "values", round.count);
    round.indices = field<std::uint32_t>(slot, indices_, "indices", round.count);
  }

  template <typename T>
  const T* field(const py::object& slot, const py::str& key, const char* name, std::size_t size) {
    const py::object object = slot[key];
    Arrays arrays(1);
    const std::span<const T> values = arrays.input<T>(object, name);
    if (values.size() != size) {
      throw py::value_error(std::string(name) + " must have " + std::to_string(size) + " elements, got " +
                            std::to_string(values.size()));
    }
    alive_.push_back(object);
    return values.data();
  }

  void check_elements(std::size_t size, const std::string& name) const {
    if (size == elements_) return;
    throw py::value_error(name + " must have " + std::to_string(elements_) + " elements, got " + std::to_string(size));
  }

  void check_apart(const AdoptedRound& round, std::size_t k, std::span<const float> out) const {
    const bool halves = coding_ == Coding::kBFloat16 || coding_ == Coding::kFloat16;
    const std::size_t width = halves ? sizeof(std::uint16_t) : sizeof(float);
    if (overlap(round.values, round.count * width, out) ||
        (round.indices && overlap(round.indices, round.count * sizeof(std::uint32_t), out))) {
      throw py::value_error("out overlaps adopted round " + std::to_string(k));
    }
  }

  static bool overlap(const void* from, std::size_t bytes, std::span<const float> out) {
    const auto* const begin = static_cast<const std::byte*>(from);
    const auto* const result = reinterpret_cast<const std::byte*>(out.data());
    return begin < result + out.size_bytes() && result < begin + bytes;
  }

  void check_count(const std::vector<std::uint64_t>& addresses) const {
    if (addresses.size() != layout_.fields.size()) {
      throw py::value_error("there are " + std::to_string(layout_.fields.size()) + " fields, got " +
                            std::to_string(addresses.size()) + " addresses");
    }
  }

  template <typename Span>
  static Span checked(Span bytes, const std::string& name, std::size_t size) {
    if (bytes.size() != size) {
      throw py::value_error(name + " must have " + std::to_string(size) + " bytes, got " + std::to_string(bytes.size()));
    }
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % sizeof(double) != 0) {
      throw py::value_error(name + " must be aligned to 8 bytes");
    }
    return bytes;
  }

  static const std::byte* readable(Arrays& arrays, const py::object& object, const std::string& name,
                                   std::size_t size) {
    return reinterpret_cast<const std::byte*>(checked(arrays.input<std::uint8_t>(object, name), name, size).data());
  }

  static std::byte* writable(Arrays& arrays, const py::object& object, const std::string& name, std::size_t size) {
    return reinterpret_cast<std::byte*>(checked(arrays.output<std::uint8_t>(object, name), name, size).data());
  }

  template <typename T>
  static Reduction reduce_as(const Section& section, const Blocks& blocks, const std::vector<double>& weights,
                             double divisor, std::byte* out) {
    std::vector<Weighted<T>> weighted;
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      const std::span values{reinterpret_cast<const T*>(blocks[k] + section.offset), section.count};
      weighted.push_back({values, static_cast<SumOf<T>>(weights[k])});
    }
    const std::span result{reinterpret_cast<T*>(out + section.offset), section.count};
    return reduce(std::span<const Weighted<T>>(weighted), result, static_cast<SumOf<T>>(divisor));
  }

  static Reduction reduce_section(const Section& section, const Blocks& blocks, const std::vector<double>& weights,
                                  double divisor, std::byte* out) {
    switch (section.type) {
      case Type::kFloat32: return reduce_as<float>(section, blocks, weights, divisor, out);
      case Type::kFloat64: return reduce_as<double>(section, blocks, weights, divisor, out);
      case Type::kBFloat16: return reduce_as<BFloat16>(section, blocks, weights, divisor, out);
      case Type::kFloat16: break;
    }
    return reduce_as<Float16>(section, blocks, weights, divisor, out);
  }

  template <typename T>
  static Reduction finish_as(const Section& section, const std::byte* sums, double divisor, std::byte* out) {
    const std::span values{reinterpret_cast<const SumOf<T>*>(sums + section.sum_offset), section.count};
    const std::span result{reinterpret_cast<T*>(out + section.offset), section.count};
    return finish(values, result, static_cast<SumOf<T>>(divisor));
  }

  static Reduction finish_section(const Section& section, const std::byte* sums, double divisor, std::byte* out) {
    switch (section.type) {
      case Type::kFloat32: return finish_as<float>(section, sums, divisor, out);
      case Type::kFloat64: return finish_as<double>(section, sums, divisor, out);
      case Type::kBFloat16: return finish_as<BFloat16>(section, sums, divisor, out);
      case Type::kFloat16: break;
    }
    return finish_as<Float16>(section, sums, divisor, out);
  }

  // Computes one norm over all sections; `bad_index` becomes the first field that is not finite.
  template <typename Pass>
  Reduction over_sections(Pass pass) const {
    Reduction all{0.0, true, -1, -1};
    for (const Section& section : layout_.sections) {
      const Reduction one = pass(section);
      all.norm = layout_.sections.size() == 1 ? one.norm : std::hypot(all.norm, one.norm);
      if (!one.finite && all.finite) {
        all.bad_input = one.bad_input;
        all.bad_index = field_at(section.offset + static_cast<std::size_t>(one.bad_index) * size_of(section.type));
      }
      all.finite = all.finite && one.finite;
    }
    return all;
  }

  std::int64_t field_at(std::size_t offset) const {
    for (std::size_t i = 0; i < layout_.fields.size(); ++i) {
      const Field& field = layout_.fields[i];
      if (offset >= field.offset && offset < field.offset + field.count * size_of(field.type)) {
        return static_cast<std::int64_t>(i);
      }
    }
    return -1;
  }

  FieldLayout layout_;
  Coding coding_ = Coding::kFloat32;
  std::size_t elements_ = 0;  // elements of the gradient in a slot
  std::vector<AdoptedRound> rounds_;
  std::vector<py::object> alive_;  // the arrays that the rounds point into
  py::str gradient_{"gradient"}, scaling_{"coding"}, values_{"values"}, indices_{"indices"};
};

}  // namespace

void bind_gather(py::module_& m) {
  py::class_<GradAccumulator>(m, "GradAccumulator", "Gathers and reduces gradients; hive.gradients is its face.")
      .def(py::init<>())
      .def("lay_out", &GradAccumulator::lay_out_fields, "types"_a, "counts"_a,
           "Declare the types and sizes of the gradients.")
      .def_property_readonly("offsets", &GradAccumulator::offsets, "The byte offset of each gradient in a block.")
      .def_property_readonly("bytes", &GradAccumulator::bytes, "The size of a block in bytes.")
      .def_property_readonly("sum_bytes", &GradAccumulator::sum_bytes, "The size of a block of running sums in bytes.")
      .def("gather", &GradAccumulator::gather_into, "addresses"_a, "block"_a,
           "Copy the gradients into a block; return the first that is not finite, or -1. Address 0 gives zeros.")
      .def("first_bad", &GradAccumulator::bad_field, "addresses"_a,
           "Return the first gradient that is not finite, or -1.")
      .def("add", &GradAccumulator::add_into, "addresses"_a, "weight"_a, "sums"_a, "onto"_a,
           "Add the weighted gradients to a block of running sums; without `onto` overwrite it.")
      .def("reduce", &GradAccumulator::reduce_into, "blocks"_a, "weights"_a, "divisor"_a, "out"_a,
           "Write the weighted sum of blocks, divided once, to `out`. `bad_index` counts gradients.")
      .def("finish", &GradAccumulator::finish_into, "sums"_a, "divisor"_a, "out"_a,
           "Write running sums, divided once, to `out`.")
      .def("lay_out_slots", &GradAccumulator::lay_out_slots, "elements"_a, "compression"_a,
           "Declare the encoding of gradients in slots, after `lay_out` of float32 fields.")
      .def("adopt", &GradAccumulator::adopt, "slot"_a, "samples"_a, "factor"_a,
           "Add a slot as a round, without reading or copying it. It is kept alive until `release`.")
      .def("reduce_adopted", &GradAccumulator::reduce_slots, "out"_a,
           "Write the mean of the adopted rounds to `out`, float32. `bad_index` counts fields.")
      .def("release", &GradAccumulator::release, "Release the adopted rounds.");
}

}  // namespace hive
