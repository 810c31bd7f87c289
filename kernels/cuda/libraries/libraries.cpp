#include "libraries.hpp"

#include <dlfcn.h>

namespace dstune::kernels::cuda {

SharedLibrary::SharedLibrary(const std::string& name)
    : name_(name), library_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ != nullptr) return;
  const char* const said = dlerror();
  const std::string reason = said != nullptr ? said : name + ": not found";
  for (const char* const folder : {DSTUNE_LIBRARY_FOLDERS}) {
    library_ = dlopen((std::string(folder) + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) return;
  }
  throw std::runtime_error(reason);
}

void* SharedLibrary::address_of(const char* name) const {
  void* const address = dlsym(library_, name);
  if (address == nullptr) throw std::runtime_error(name_ + " has no " + name);
  return address;
}

namespace {

BlasLibrary load_blas() {
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
      return load_blas();
    } catch (const std::runtime_error& error) {
      reason = error.what();
      return BlasLibrary{};
    }
  }();
  why_not = reason;
  return reason.empty() ? &library : nullptr;
}

namespace {

DnnLibrary load_dnn() {
  const SharedLibrary file("libcudnn.so." + std::to_string(CUDNN_MAJOR));
  DnnLibrary library{};
  file.find("cudnnGetVersion", library.get_version);
  file.find("cudnnCreate", library.create);
  file.find("cudnnDestroy", library.destroy);
  file.find("cudnnSetStream", library.set_stream);
  file.find("cudnnBackendCreateDescriptor", library.create_descriptor);
  file.find("cudnnBackendDestroyDescriptor", library.destroy_descriptor);
  file.find("cudnnBackendSetAttribute", library.set_attribute);
  file.find("cudnnBackendGetAttribute", library.get_attribute);
  file.find("cudnnBackendFinalize", library.finalize);
  file.find("cudnnBackendExecute", library.execute);
  return library;
}

}  // namespace

const DnnLibrary* dnn_library(std::string& why_not) {
  static std::string reason;
  static const DnnLibrary library = [] {
    try {
      return load_dnn();
    } catch (const std::runtime_error& error) {
      reason = error.what();
      return DnnLibrary{};
    }
  }();
  why_not = reason;
  return reason.empty() ? &library : nullptr;
}

}  // namespace dstune::kernels::cuda
