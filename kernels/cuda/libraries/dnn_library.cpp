#include "dnn_library.hpp"

#include "shared_library.hpp"

namespace dstune::kernels::cuda {
namespace {

DnnLibrary load() {
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
      return load();
    } catch (const std::runtime_error& error) {
      reason = error.what();
      return DnnLibrary{};
    }
  }();
  why_not = reason;
  return reason.empty() ? &library : nullptr;
}

}  // namespace dstune::kernels::cuda
