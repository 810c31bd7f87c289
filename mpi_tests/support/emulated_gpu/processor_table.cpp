// dstune/kernels/cuda.hpp with the processor's kernels, each done when its turn comes in a stream:
// what they compute takes the emulated GPU no longer than the processor.
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>

#include "calls.hpp"
#include "dstune/kernels/cuda.hpp"
#include "later_table.hpp"
#include "machine.hpp"

namespace dstune::kernels {
namespace {

thread_local cudaStream_t current_stream = nullptr;

void ask(std::function<void()> work) {
  const cudaError_t error = emulated::ask_stream_to(current_stream, std::move(work));
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorName(error));
}

}  // namespace

std::string cuda_toolkit() {
  return "emulated";
}

int num_cuda_devices() {
  return emulated::machine().gpus;
}

const Table* cuda_table() {
  static const Table table = [] {
    Table later = dstune::test::later_table<cpu_table, ask>();
    later.name = "cuda";
    later.row_alignment_bytes = 128;
    return later;
  }();
  return num_cuda_devices() > 0 ? &table : nullptr;
}

CudaLibraries cuda_libraries() {
  if (std::getenv("DSTUNE_EMULATED_NO_CUDNN") != nullptr)
    return {"the processor's kernels", "none: it is not there"};
  return {"the processor's kernels", "the processor's kernels"};
}

void set_cuda_library_folders(std::vector<std::string> /*folders*/) {}

CudaChoices take_new_cuda_choices() {
  return {};
}

void adopt_cuda_choices(const CudaChoices& /*choices*/) {}

int load_cuda_kernels() {
  return 0;
}

void set_cuda_stream(void* stream) {
  current_stream = static_cast<cudaStream_t>(stream);
}

}  // namespace dstune::kernels
