#pragma once

#include <cstdint>

namespace dstune::kernels::DSTUNE_ISA {

/// Of sum_of_squares() and sum_f32(), in the doubles behind their result.
constexpr std::int64_t max_partial_sums = 1024;

}  // namespace dstune::kernels::DSTUNE_ISA
