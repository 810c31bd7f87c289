#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "common/functions.hpp"
#include "cuda/backend_parts.hpp"
#include "dstune/kernels/cuda.hpp"
#include "libraries/candidates.hpp"
#include "libraries/kept_choices.hpp"
#include "libraries/library_attention.hpp"
#include "libraries/matrix_products.hpp"
#include "stream.hpp"

namespace dstune::kernels {
namespace cuda {

extern const Table table;

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

/// std::runtime_error with the name and the linker's words where there is none.
template <class Library>
const Library* loaded(const char* name, const Library* (*load)(std::string&)) {
  std::string why_not;
  const Library* const library = load(why_not);
  if (library == nullptr) throw std::runtime_error(std::string(name) + ": " + why_not);
  return library;
}

// The libraries' objects live as long as the process: when it ends, CUDA may be gone first.
MatrixProducts& products() {
  static auto& made =
      *new MatrixProducts(loaded("cuBLASLt", blas_library), real_gpu(),
                          {add_bias, table.activation_forward, table.activation_backward,
                           table.bias_backward, table.add},
                          choice(), &kept_choices());
  return made;
}
LibraryAttention& attention() {
  static auto& made =
      *new LibraryAttention(loaded("cuDNN", dnn_library), real_gpu(), choice(),
                            LibraryAttention::default_scratch_bytes, &kept_choices());
  return made;
}

template <class Library>
std::string described(const char* name, const Library* (*load)(std::string&)) {
  std::string why_not;
  const Library* const library = load(why_not);
  if (library == nullptr) return "none: " + why_not;
  const std::size_t version = library->get_version();
  return std::string(name) + " " + std::to_string(version / 10000) + "." +
         std::to_string(version % 10000 / 100) + "." + std::to_string(version % 100);
}

/// Not a global itself: others are initialized with it.
std::vector<const void*>& known_kernels() {
  static std::vector<const void*> kernels;
  return kernels;
}

}  // namespace

std::size_t matmul_workspace_bytes(const MatmulShape& /*shape*/) {
  return MatrixProducts::workspace_bytes;
}

void matmul(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
            void* workspace) {
  products().run(shape, a, b, bias, c, workspace);
}

void matmul_activation_forward(const MatmulShape& shape, Activation activation, const void* a,
                               const void* b, const void* bias, void* c, void* activated,
                               void* workspace) {
  products().run_activation_forward(shape, activation, a, b, bias, c, activated, workspace);
}

void matmul_activation_backward(const MatmulShape& shape, Activation activation, const void* a,
                                const void* b, const void* x, void* c, void* workspace) {
  products().run_activation_backward(shape, activation, a, b, x, c, workspace);
}

void matmul_bias_backward(const MatmulShape& shape, const void* a, const void* b, void* c,
                          void* d_bias, void* workspace) {
  products().run_bias_backward(shape, a, b, c, d_bias, workspace);
}

std::size_t attention_workspace_bytes(const AttentionShape& shape) {
  return has_own_attention(shape) ? own_attention_workspace_bytes(shape)
                                  : LibraryAttention::workspace_bytes(shape);
}

void attention_forward(const AttentionShape& shape, void* out, float* log_sum_exp, const void* qkv,
                       void* workspace) {
  if (has_own_attention(shape))
    return own_attention_forward(shape, out, log_sum_exp, qkv, workspace);
  attention().forward(shape, out, log_sum_exp, qkv, workspace);
}

void attention_backward(const AttentionShape& shape, void* d_qkv, const void* d_out,
                        const void* qkv, const void* out, const float* log_sum_exp,
                        void* workspace) {
  if (has_own_attention(shape))
    return own_attention_backward(shape, d_qkv, d_out, qkv, out, log_sum_exp, workspace);
  attention().backward(shape, d_qkv, d_out, qkv, out, log_sum_exp, workspace);
}

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
  return num_cuda_devices() > 0 ? &cuda::table : nullptr;
}

CudaLibraries cuda_libraries() {
  if (num_cuda_devices() == 0) return {"none: no GPU answers", "none: no GPU answers"};
  return {cuda::described("cuBLASLt", cuda::blas_library),
          cuda::described("cuDNN", cuda::dnn_library)};
}

void set_cuda_library_folders(std::vector<std::string> folders) {
  cuda::folders() = std::move(folders);
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
