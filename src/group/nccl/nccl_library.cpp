#include "dstune/group/nccl_library.hpp"

#include <fmt/format.h>

namespace dstune::nccl {

std::string version_text(int version) {
  // Up to 2.8 the major number counted thousands.
  const int major_unit = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / major_unit, version % major_unit / 100, version % 100);
}

#ifdef DSTUNE_NO_NCCL_REASON
FoundLibrary find_library(const std::string&) {
  return {nullptr, "not built (" DSTUNE_NO_NCCL_REASON ")"};
}
#endif

}  // namespace dstune::nccl
