#pragma once
/// The words of kernels/cuda/native/execution.hpp for kernels that are done where they are
/// launched.

#include <cstring>

#include "block.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

template <class Kernel>
void launch(const cuda::Grid& grid, const Kernel& kernel) {
  dstune::test::launch(grid, [&](dstune::test::EmulatedThread& thread) { kernel(Block(thread)); });
}

inline void set_to_zero(void* data, std::size_t bytes) {
  std::memset(data, 0, bytes);
}
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
