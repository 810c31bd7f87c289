#pragma once
/// How many threads a kernel takes. Plain functions, safe to call from code of any instruction set.

#include <cstdint>

namespace dstune::kernels {

/// The threads that pay off for work of about so many elements: 1 … cpu_threads().
int threads_for(std::int64_t elements);

}  // namespace dstune::kernels
