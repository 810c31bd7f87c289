#include "dstune/group/nccl_library.hpp"

namespace dstune::nccl {

std::string version_text(int version) {
  // Up to 2.8 the major number counted thousands.
  const int major_unit = version < 10000 ? 1000 : 10000;
  return std::to_string(version / major_unit) + "." + std::to_string(version % major_unit / 100) +
         "." + std::to_string(version % 100);
}

}  // namespace dstune::nccl
