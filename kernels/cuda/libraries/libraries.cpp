#include "libraries.hpp"

#include <stdexcept>

#include <dlfcn.h>

namespace dstune::kernels::cuda {
namespace {

/// Stays loaded.
class SharedLibrary {
 public:
  /// The dynamic linker's, else one in library_folders(). std::runtime_error with the linker's
  /// words.
  explicit SharedLibrary(const std::string& name)
      : name_(name), library_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ != nullptr) return;
    const char* const said = dlerror();
    const std::string reason = said != nullptr ? said : name + ": not found";
    for (const std::string& folder : library_folders()) {
      library_ = dlopen((folder + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library_ != nullptr) return;
    }
    throw std::runtime_error(reason);
  }

  /// function = the library's of that name. std::runtime_error where it has none.
  template <class Function>
  void find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(name_ + " has no " + name);
  }

 private:
  std::string name_;
  void* library_ = nullptr;
};

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

/// A library as load() gives it, or why there is none.
template <class Library>
struct Loaded {
  explicit Loaded(Library (*load)()) {
    try {
      library = load();
    } catch (const std::runtime_error& error) {
      reason = error.what();
    }
  }
  const Library* get(std::string& why_not) const {
    why_not = reason;
    return reason.empty() ? &library : nullptr;
  }
  Library library{};
  std::string reason;
};

}  // namespace

const BlasLibrary* blas_library(std::string& why_not) {
  static const Loaded<BlasLibrary> loaded(load_blas);
  return loaded.get(why_not);
}

const DnnLibrary* dnn_library(std::string& why_not) {
  static const Loaded<DnnLibrary> loaded(load_dnn);
  return loaded.get(why_not);
}

}  // namespace dstune::kernels::cuda
