#pragma once
/// cuDNN's graph interface as a table of its functions.

#include <string>

#include <cudnn_graph.h>

namespace dstune::kernels::cuda {

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
