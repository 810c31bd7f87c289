#pragma once
/// Limits that a container or a batch system puts on this process through control groups.

#include <string>
#include <string_view>
#include <vector>

namespace dstune {

/// The file of a limit in the two versions of the interface; a name is empty where the file does
/// not exist.
struct CgroupFile {
  std::string_view controller;  ///< "memory", "cpu"
  std::string_view name_v1;
  std::string_view name_v2;
};

/// The content of that file in the process's own group and in each of its parents, innermost first;
/// limits of parents hold too. Groups without the file are left out; empty where there are none.
/// `root` is put before every path, for tests. Local.
std::vector<std::string> read_cgroup_files(const CgroupFile& file, const std::string& root = "");

}  // namespace dstune
