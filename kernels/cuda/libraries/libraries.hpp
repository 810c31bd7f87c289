#pragma once
/// Libraries that are looked for when the program runs, so that it starts without them.

#include <string>
#include <vector>

#include <cublasLt.h>
#include <cudnn_graph.h>

namespace dstune::kernels::cuda {

/// The folders of set_cuda_library_folders().
const std::vector<std::string>& library_folders();

/// cuBLASLt as a table of its functions.
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

/// cuDNN's graph interface as a table of its functions.
struct DnnLibrary {
  decltype(&cudnnGetVersion) get_version;
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendGetAttribute) get_attribute;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};

/// Looks once, for the major version that this was built with; null where there is none, and
/// `why_not` says why.
const DnnLibrary* dnn_library(std::string& why_not);

}  // namespace dstune::kernels::cuda
