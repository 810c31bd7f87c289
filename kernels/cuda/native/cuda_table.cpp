#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "dstune/kernels/cuda.hpp"
#include "libraries/candidates.hpp"
#include "libraries/kept_choices.hpp"
#include "libraries/library_attention.hpp"
#include "libraries/matrix_products.hpp"
#include "stream.hpp"

namespace dstune::kernels {
namespace cuda {

extern const Table table;  ///< our own kernels alone
void add_bias(const MatmulShape& shape, const void* bias, void* c);

namespace {

thread_local cudaStream_t current_stream = nullptr;

Choice choice() {
  const char* const wanted = std::getenv("DSTUNE_CUDA_ALGORITHMS");
  if (wanted == nullptr || std::string_view(wanted) == "fastest") return Choice::fastest;
  if (std::string_view(wanted) == "reproducible") return Choice::reproducible;
  if (std::string_view(wanted) == "first") return Choice::first;
  throw std::invalid_argument("DSTUNE_CUDA_ALGORITHMS is none of fastest, reproducible, first");
}

/// Folders of libraries.
std::vector<std::string>& folders() {
  static std::vector<std::string> all;
  return all;
}

/// Never destroyed, like the libraries.
KeptChoices& kept_choices() {
  static auto& all = *new KeptChoices;
  return all;
}

/// What the libraries made lives as long as the process: when it ends, CUDA may be gone first.
struct Libraries {
  std::string blas_unavailable_reason;
  const BlasLibrary* blas = blas_library(blas_unavailable_reason);
  MatrixProducts products{blas,
                          real_gpu(),
                          {table.matmul, add_bias, table.activation_forward,
                           table.activation_backward, table.bias_backward, table.add},
                          choice(),
                          blas_unavailable_reason,
                          &kept_choices()};
  std::string dnn_unavailable_reason;
  const DnnLibrary* dnn = dnn_library(dnn_unavailable_reason);
  LibraryAttention attention{
      dnn,
      real_gpu(),
      {table.attention_forward, table.attention_backward, table.attention_workspace_bytes},
      choice(),
      dnn_unavailable_reason,
      LibraryAttention::default_scratch_bytes,
      &kept_choices()};
};

Libraries& libraries() {
  static auto& all = *new Libraries;
  return all;
}

Table table_with_libraries() {
  Table with = table;
  with.matmul_workspace_bytes = [](const MatmulShape&) { return MatrixProducts::workspace_bytes; };
  with.matmul = [](auto... arguments) { libraries().products.run(arguments...); };
  with.matmul_activation_forward = [](auto... arguments) {
    libraries().products.run_activation_forward(arguments...);
  };
  with.matmul_activation_backward = [](auto... arguments) {
    libraries().products.run_activation_backward(arguments...);
  };
  with.matmul_bias_backward = [](auto... arguments) {
    libraries().products.run_bias_backward(arguments...);
  };
  with.attention_forward = [](auto... arguments) { libraries().attention.forward(arguments...); };
  with.attention_backward = [](auto... arguments) { libraries().attention.backward(arguments...); };
  with.attention_workspace_bytes = [](const AttentionShape& shape) {
    return libraries().attention.workspace_bytes(shape);
  };
  return with;
}

/// Not a global itself: others are initialized with it.
std::vector<const void*>& known_kernels() {
  static std::vector<const void*> kernels;
  return kernels;
}

}  // namespace

const std::vector<std::string>& library_folders() {
  return folders();
}

cudaStream_t stream() {
  return current_stream;
}

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // or the next launch would report it
  const std::string words =
      std::string("CUDA: ") + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) throw CudaOutOfMemory(words);
  throw std::runtime_error(words);
}

bool know(const void* kernel) {
  known_kernels().push_back(kernel);
  return true;
}

}  // namespace cuda

std::string cuda_toolkit() {
  return std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
}

int num_cuda_devices() {
  // Without a driver the argument stays as it is.
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess) return devices;
  cudaGetLastError();  // or the next launch would report it
  return 0;
}

const Table* cuda_table() {
  static const Table table = cuda::table_with_libraries();
  return num_cuda_devices() > 0 ? &table : nullptr;
}

CudaLibraries cuda_libraries() {
  if (num_cuda_devices() == 0) return {"none: no GPU answers", "none: no GPU answers"};
  const cuda::Libraries& all = cuda::libraries();
  const auto described = [](const char* name, const auto* library, const std::string& why_not) {
    if (library == nullptr) return "none: " + why_not;
    const std::size_t version = library->get_version();
    return std::string(name) + " " + std::to_string(version / 10000) + "." +
           std::to_string(version % 10000 / 100) + "." + std::to_string(version % 100);
  };
  return {described("cuBLASLt", all.blas, all.blas_unavailable_reason),
          described("cuDNN", all.dnn, all.dnn_unavailable_reason)};
}

void set_cuda_library_folders(std::vector<std::string> folders) {
  cuda::folders() = std::move(folders);
}

std::vector<std::string> take_cuda_refusals() {
  return cuda::take_refusals();
}

CudaChoices take_new_cuda_choices() {
  return cuda::kept_choices().take_new();
}

void adopt_cuda_choices(const CudaChoices& choices) {
  cuda::kept_choices().adopt(choices);
}

int load_cuda_kernels() {
  for (const void* const kernel : cuda::known_kernels()) {
    cudaFuncAttributes attributes{};
    cuda::check(cudaFuncGetAttributes(&attributes, kernel));
  }
  return static_cast<int>(cuda::known_kernels().size());
}

void set_cuda_stream(void* stream) {
  cuda::current_stream = static_cast<cudaStream_t>(stream);
}

}  // namespace dstune::kernels
