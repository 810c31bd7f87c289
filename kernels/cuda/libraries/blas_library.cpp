#include "blas_library.hpp"

#include "shared_library.hpp"

namespace dstune::kernels::cuda {
namespace {

BlasLibrary load() {
  const SharedLibrary file("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR));
  BlasLibrary library{};
  file.find("cublasLtGetVersion", library.get_version);
  file.find("cublasLtCreate", library.create);
  file.find("cublasLtDestroy", library.destroy);
  file.find("cublasLtMatmulDescCreate", library.matmul_desc_create);
  file.find("cublasLtMatmulDescDestroy", library.matmul_desc_destroy);
  file.find("cublasLtMatmulDescSetAttribute", library.matmul_desc_set_attribute);
  file.find("cublasLtMatrixLayoutCreate", library.matrix_layout_create);
  file.find("cublasLtMatrixLayoutDestroy", library.matrix_layout_destroy);
  file.find("cublasLtMatmulPreferenceCreate", library.matmul_preference_create);
  file.find("cublasLtMatmulPreferenceDestroy", library.matmul_preference_destroy);
  file.find("cublasLtMatmulPreferenceSetAttribute", library.matmul_preference_set_attribute);
  file.find("cublasLtMatmulAlgoGetHeuristic", library.matmul_algo_get_heuristic);
  file.find("cublasLtMatmul", library.matmul);
  return library;
}

}  // namespace

const BlasLibrary* blas_library(std::string& why_not) {
  static std::string reason;
  static const BlasLibrary library = [] {
    try {
      return load();
    } catch (const std::runtime_error& error) {
      reason = error.what();
      return BlasLibrary{};
    }
  }();
  why_not = reason;
  return reason.empty() ? &library : nullptr;
}

}  // namespace dstune::kernels::cuda
