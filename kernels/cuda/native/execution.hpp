#pragma once
/// CUDA's execution model as the kernels see it: a Block's threads, barrier, shuffles and shared
/// memory, memory that a thread moves at once, and launches on the calling thread's stream. The
/// tests compile the same kernels against another header of this name, which emulates it.

#include <cstdint>
#include <stdexcept>

#include <cuda_runtime.h>

#include "common/function.hpp"
#include "isa/grid.hpp"
#include "stream.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// The value there, at a multiple of the Chunk's alignment: a GPU that is asked for it elsewhere is
/// lost to the process.
template <class Chunk>
DSTUNE_FUNCTION const Chunk& at_once(const void* place) {
  return *static_cast<const Chunk*>(place);
}
template <class Chunk>
DSTUNE_FUNCTION Chunk& at_once(void* place) {
  return *static_cast<Chunk*>(place);
}

/// Shared memory as an array of T.
template <class T>
using Shared = T*;

class Block {
 public:
  DSTUNE_DEVICE int thread() const { return static_cast<int>(threadIdx.x); }
  DSTUNE_DEVICE int threads() const { return static_cast<int>(blockDim.x); }
  DSTUNE_DEVICE std::int64_t index() const { return blockIdx.x; }
  DSTUNE_DEVICE std::int64_t blocks() const { return gridDim.x; }
  DSTUNE_DEVICE std::int64_t piece() const { return blockIdx.y; }

  /// Barrier of the block. Every thread must come.
  DSTUNE_DEVICE void sync() const { __syncthreads(); }
  /// The value of the lane whose number differs in the bits of `mask`. Every lane must come.
  template <class T>
  DSTUNE_DEVICE T shuffle_xor(T value, int mask) const {
    return __shfl_xor_sync(0xffffffffU, value, mask);
  }
  /// The lanes for which it holds, one bit each. Every lane must come.
  DSTUNE_DEVICE std::uint32_t ballot(bool holds) const { return __ballot_sync(0xffffffffU, holds); }
  /// The launch's shared memory from this byte on.
  template <class T>
  DSTUNE_DEVICE Shared<T> shared(std::int64_t first_byte = 0) const {
    extern __shared__ double2 memory[];
    return reinterpret_cast<T*>(reinterpret_cast<char*>(memory) + first_byte);
  }
};

template <class Kernel>
__global__ void __launch_bounds__(cuda::max_threads, cuda::min_blocks_of<Kernel>())
    run(const Kernel kernel) {
  kernel(Block{});
}

/// Each kernel that this program launches is known before it does.
template <class Kernel>
struct Known {
  static inline const bool is = cuda::know(reinterpret_cast<const void*>(run<Kernel>));
};

/// Enqueues kernel(block) for each thread of the grid. Throws std::runtime_error where CUDA
/// refuses.
template <class Kernel>
void launch(const cuda::Grid& grid, const Kernel& kernel) {
  if (const char* problem = cuda::problem_of(grid)) throw std::logic_error(problem);
  static_cast<void>(&Known<Kernel>::is);  // so that it is made
  if (grid.shared_bytes > cuda::default_shared_bytes) {
    cuda::check(cudaFuncSetAttribute(run<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(grid.shared_bytes)));
  }
  const dim3 blocks(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.pieces));
  run<<<blocks, static_cast<unsigned>(grid.threads), grid.shared_bytes, cuda::stream()>>>(kernel);
  cuda::check(cudaGetLastError());
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
