#pragma once
/// The cores of the host: hardware threads of one core count once. Local.

#include <string>
#include <string_view>
#include <vector>

#include "dstune/comm/nodes.hpp"

namespace dstune {

struct HostCores {
  std::vector<int> own;  ///< the caller may use them; each by its lowest hardware thread
  int of_host = 1;       ///< that the system has
  int processors = 1;    ///< hardware threads that the system has
  double allowed = 1;    ///< that the cgroup leaves its processes, whatever they are bound to
};

/// Returns the numbers of a list of the kernel, "0-3,8", ascending; none of what is no list.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string_view text);

/// `use` is the caller's own_core_use(); `root` is put before every path, for tests.
[[nodiscard]] HostCores host_cores(const CoreUse& use, const std::string& root = "");

}  // namespace dstune
