#include "dstune/group/nccl_library.hpp"

namespace dstune::nccl {

FoundLibrary find_library(const std::string&) {
  return {nullptr, "not built (" DSTUNE_NO_NCCL_REASON ")"};
}

}  // namespace dstune::nccl
