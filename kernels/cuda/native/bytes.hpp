#pragma once
/// Bytes that a kernel's caller sets or copies in the calling thread's stream.

#include <cstddef>

#include <cuda_runtime_api.h>

#include "stream.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

inline void set_to_zero(void* data, std::size_t bytes) {
  cuda::check(cudaMemsetAsync(data, 0, bytes, cuda::stream()));
}
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda::stream()));
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
