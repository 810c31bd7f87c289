#pragma once
/// cuBLASLt as a table of its functions.

#include <string>

#include <cublasLt.h>

namespace dstune::kernels::cuda {

struct BlasLibrary {
  decltype(&cublasLtGetVersion) get_version;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmulDescCreate) matmul_desc_create;
  decltype(&cublasLtMatmulDescDestroy) matmul_desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute;
  decltype(&cublasLtMatrixLayoutCreate) matrix_layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) matrix_layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) matmul_preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) matmul_preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) matmul_preference_set_attribute;
  decltype(&cublasLtMatmulAlgoGetHeuristic) matmul_algo_get_heuristic;
  decltype(&cublasLtMatmul) matmul;
};

/// Looks once, for the major version of the toolkit that this was built with; null where there is
/// none, and `why_not` says why.
const BlasLibrary* blas_library(std::string& why_not);

}  // namespace dstune::kernels::cuda
