// Initial weights from the counter-based generator.
#include "common/counter_hash.hpp"
#include "common/functions.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
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
