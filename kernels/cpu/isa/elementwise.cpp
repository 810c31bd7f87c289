// Copies, sums of two, fills: one pass over memory each.

#include "common/counter_hash.hpp"
#include "common/functions.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {

void add(DType to, void* y, DType from, const void* x, std::int64_t count) {
  with_type(to, [&](auto to_tag) {
    with_type(from, [&](auto from_tag) {
      auto* sum = static_cast<decltype(to_tag)*>(y);
      for_elements(
          count, sum, [](Vector value, Vector term) { return value + term; }, sum,
          static_cast<const decltype(from_tag)*>(x));
    });
  });
}

void scale(DType type, void* y, float factor, std::int64_t count) {
  with_type(type, [&](auto tag) {
    auto* values = static_cast<decltype(tag)*>(y);
    for_elements(
        count, values, [=](Vector value) { return value * factor; }, values);
  });
}

void convert(DType to, void* y, DType from, const void* x, std::int64_t count) {
  if (to == from) {
    const std::int64_t size = to == DType::f32 ? 4 : 2;
    for_pieces(count * size, [&](std::int64_t begin, std::int64_t end) {
      __builtin_memcpy(static_cast<char*>(y) + begin, static_cast<const char*>(x) + begin,
                       static_cast<std::size_t>(end - begin));
    });
    return;
  }
  with_type(to, [&](auto to_tag) {
    with_type(from, [&](auto from_tag) {
      for_elements(
          count, static_cast<decltype(to_tag)*>(y), [](Vector value) { return value; },
          static_cast<const decltype(from_tag)*>(x));
    });
  });
}

void zero(void* y, std::size_t bytes) {
  for_pieces(static_cast<std::int64_t>(bytes), [&](std::int64_t begin, std::int64_t end) {
    __builtin_memset(static_cast<char*>(y) + begin, 0, static_cast<std::size_t>(end - begin));
  });
}

void fill(DType type, void* y, float value, std::int64_t count) {
  with_type(type, [&](auto tag) {
    for_elements(count, static_cast<decltype(tag)*>(y), [=] { return splat(value); });
  });
}

// Initial weights from the counter-based generator.
namespace {

/// Written as plain loops over one vector's worth, which the compiler turns into vector code.
void normal_values(float* values, std::uint64_t offset, std::uint64_t first_index, double factor) {
  std::int32_t sums[lanes];
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    sums[lane] = centred_sum(hash_at(offset, first_index + static_cast<std::uint64_t>(lane)));
  }
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    values[lane] = static_cast<float>(static_cast<double>(sums[lane]) * factor);
  }
}

}  // namespace

void fill_normal(DType type, void* y, std::uint64_t seed, std::uint64_t tensor,
                 std::int64_t first_index, std::int64_t count, double standard_deviation) {
  const std::uint64_t offset = hash_offset(seed, tensor);
  const double factor = standard_deviation / deviation_of_sum;
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    T* values = static_cast<T*>(y);
    for_pieces(count, [&](std::int64_t begin, std::int64_t end) {
      for_vectors(begin, end, [&](std::int64_t i, auto extent) {
        float drawn[lanes];
        normal_values(drawn, offset, static_cast<std::uint64_t>(first_index + i), factor);
        store(values + i, load(drawn, Full{}), extent);
      });
    });
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
