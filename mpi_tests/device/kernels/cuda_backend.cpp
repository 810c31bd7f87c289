// The CUDA kernels on a GPU. Tests and kernels share pinned host memory. Libraries give the same
// bits each time, unless DSTUNE_CUDA_ALGORITHMS says otherwise.
#include <cstdlib>
#include <new>
#include <stdexcept>

#include <cuda_runtime_api.h>

#include "backend.hpp"
#include "dstune/kernels/cuda.hpp"

namespace dstune::kernels::test {
namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

/// Another than the default stream, which the tests name in their second and third way.
cudaStream_t other_stream() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return stream;
}

}  // namespace

std::vector<std::string> table_names() {
  return {"cuda"};
}

const Table* find_table(const std::string&, std::string& why_not) {
  why_not = "no GPU answers, so nothing was run";
  setenv("DSTUNE_CUDA_ALGORITHMS", "reproducible", 0);
  return cuda_table();
}

void* take_memory(std::size_t bytes) {
  if (num_cuda_devices() == 0) return ::operator new(bytes);
  finish_kernels();
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes > 0 ? bytes : 1));
  return memory;
}

void give_back_memory(void* memory) {
  if (num_cuda_devices() == 0) return ::operator delete(memory);
  finish_kernels();
  check(cudaFreeHost(memory));
}

void finish_kernels() {
  check(cudaDeviceSynchronize());
}

bool is_emulated() {
  return false;
}

bool has_library_attention() {
  return true;
}

void run_in_way(int way) {
  if (num_cuda_devices() == 0) return;
  finish_kernels();
  set_cuda_stream(way == 1 ? nullptr : other_stream());
}

}  // namespace dstune::kernels::test
