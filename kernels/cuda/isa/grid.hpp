#pragma once
/// The shape of a launch. Blocks and threads are numbered in one dimension; a second one of blocks
/// stands for pieces of the same row.

#include <cstddef>
#include <cstdint>

namespace dstune::kernels::cuda {

constexpr int warp_size = 32;
/// Every kernel is compiled for blocks of up to this many threads.
constexpr int max_threads = 256;
constexpr std::int64_t max_blocks_x = 2147483647;
constexpr std::int64_t max_blocks_y = 65535;
/// The shared memory that a block has without asking for more, and at most on compute capability
/// 8.0.
constexpr std::size_t default_shared_bytes = 49152;
constexpr std::size_t max_shared_bytes = 166912;

struct Grid {
  std::int64_t blocks = 1;  ///< in x
  int threads = max_threads;
  std::size_t shared_bytes = 0;
  std::int64_t pieces = 1;  ///< in y
};

/// Blocks of max_threads that a multiprocessor's registers are to hold at once: Kernel::min_blocks
/// where a kernel asks for some. Elsewhere the compiler decides, and takes fewer registers.
template <class Kernel>
constexpr int min_blocks_of() {
  if constexpr (requires { Kernel::min_blocks; }) {
    return Kernel::min_blocks;
  } else {
    return 0;
  }
}

/// Returns why no GPU could launch it, or null.
inline const char* problem_of(const Grid& grid) {
  if (grid.blocks < 1 || grid.pieces < 1 || grid.threads < 1) return "a launch of nothing";
  if (grid.blocks > max_blocks_x || grid.pieces > max_blocks_y) return "too many blocks";
  if (grid.threads > max_threads) return "too many threads in a block";
  if (grid.threads % warp_size != 0) return "a block of broken warps";
  if (grid.shared_bytes > max_shared_bytes) return "too much shared memory";
  return nullptr;
}

}  // namespace dstune::kernels::cuda
