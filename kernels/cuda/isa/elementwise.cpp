// Copies, sums of two, fills: one pass over memory each.
#include "common/counter_hash.hpp"
#include "common/functions.hpp"
#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct Addition {
  Output y;
  Input x;
  bool is_mixed;

  DSTUNE_DEVICE DType type() const { return y.type; }
  DSTUNE_DEVICE void assume(DType all) { y.type = x.type = all; }

  template <int N>
  DSTUNE_DEVICE void at(std::int64_t i) const {
    Values<N> sum = y.load<N>(i);
    sum += x.load<N>(i);
    y.store(i, sum);
  }
};

struct Conversion {
  Output y;
  Input x;

  template <int N>
  DSTUNE_DEVICE void at(std::int64_t i) const {
    y.store(i, x.load<N>(i));
  }
};

struct Scaling {
  Output y;
  float factor;

  template <int N>
  DSTUNE_DEVICE void at(std::int64_t i) const {
    Values<N> values = y.load<N>(i);
    for (int k = 0; k < N; ++k) values.of[k] *= factor;
    y.store(i, values);
  }
};

struct Filling {
  Output y;
  float value;

  template <int N>
  DSTUNE_DEVICE void at(std::int64_t i) const {
    Values<N> values;
    for (int k = 0; k < N; ++k) values.of[k] = value;
    y.store(i, values);
  }
};

struct NormalFilling {
  Output y;
  std::uint64_t offset;
  std::uint64_t first_index;
  double factor;

  template <int N>
  DSTUNE_DEVICE void at(std::int64_t i) const {
    Values<N> values;
    for (int k = 0; k < N; ++k) {
      const std::uint64_t index = first_index + static_cast<std::uint64_t>(i + k);
      values.of[k] = static_cast<float>(centred_sum(hash_at(offset, index)) * factor);
    }
    y.store(i, values);
  }
};

}  // namespace

void add(DType to, void* y, DType from, const void* x, std::int64_t count) {
  for_elements(count, Addition{{y, to}, {x, from}, to != from}, are_packed(y, x));
}

void convert(DType to, void* y, DType from, const void* x, std::int64_t count) {
  if (count <= 0) return;
  if (to == from) return copy_bytes(y, x, static_cast<std::size_t>(count * size_of(to)));
  for_elements(count, Conversion{{y, to}, {x, from}}, are_packed(y, x));
}

void scale(DType type, void* y, float factor, std::int64_t count) {
  for_elements(count, Scaling{{y, type}, factor}, are_packed(y));
}

void zero(void* y, std::size_t bytes) {
  if (bytes > 0) set_to_zero(y, bytes);
}

void fill(DType type, void* y, float value, std::int64_t count) {
  for_elements(count, Filling{{y, type}, value}, are_packed(y));
}

void fill_normal(DType type, void* y, std::uint64_t seed, std::uint64_t tensor,
                 std::int64_t first_index, std::int64_t count, double standard_deviation) {
  const NormalFilling body{{y, type},
                           hash_offset(seed, tensor),
                           static_cast<std::uint64_t>(first_index),
                           standard_deviation / deviation_of_sum};
  for_elements(count, body, are_packed(y));
}

}  // namespace dstune::kernels::DSTUNE_ISA
