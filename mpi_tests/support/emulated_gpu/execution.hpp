#pragma once
/// The words of kernels/cuda/native/execution.hpp for kernels that the emulator does when their
/// turn comes in the calling thread's stream.

#include <cuda_runtime_api.h>

#include "block.hpp"
#include "calls.hpp"
#include "native/stream.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

template <class Kernel>
void run(const cuda::Grid& grid, const Kernel& kernel) {
  dstune::test::launch(grid, [&](dstune::test::EmulatedThread& thread) { kernel(Block(thread)); });
}

template <class Kernel>
struct Known {
  static inline const bool is = cuda::know(reinterpret_cast<const void*>(run<Kernel>));
};

template <class Kernel>
void launch(const cuda::Grid& grid, const Kernel& kernel) {
  if (const char* problem = cuda::problem_of(grid)) throw std::logic_error(problem);
  static_cast<void>(&Known<Kernel>::is);  // so that it is made
  cuda::check(emulated::ask_stream_to(cuda::stream(), [grid, kernel] { run(grid, kernel); }));
  cuda::check(cudaGetLastError());
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
