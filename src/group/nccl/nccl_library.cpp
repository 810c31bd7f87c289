#include "dstune/group/nccl_library.hpp"

#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

namespace dstune::nccl {

std::string version_text(int version) {
  // Up to 2.8 the major number counted thousands.
  const int major_unit = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / major_unit, version % major_unit / 100, version % 100);
}

bool serves_ranks_of_one_gpu(int version) {
  constexpr int first_version = 23000;
  const char* const asked = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return version >= first_version && asked != nullptr && std::string_view(asked) == "1";
}

void set_variables(SharedWith shared_with) {
  // NCCL takes the variable for every communicator of the process, whatever each was asked to be:
  // with 1 ours block, with 0 those of PyTorch do not and its next call fails.
  unsetenv("NCCL_COMM_BLOCKING");
  if (shared_with != SharedWith::nobody) return;
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

#ifdef DSTUNE_NO_NCCL_REASON
FoundLibrary find_library(const std::string&, const std::vector<std::string>&) {
  return {nullptr, "not built (" DSTUNE_NO_NCCL_REASON ")"};
}
#endif

}  // namespace dstune::nccl
