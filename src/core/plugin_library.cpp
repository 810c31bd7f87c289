#include "dstune/core/plugin_library.hpp"

#include <array>
#include <cstdint>
#include <cstring>

#include "dstune/base/error.hpp"
#include "dstune/base/shared_library_file.hpp"
#include "dstune/workload.h"

namespace dstune {
namespace {

constexpr const char* stamp_name = "dstune_workload_stamp";
constexpr std::array function_names{"dstune_workload_build", "dstune_workload_step",
                                    "dstune_workload_report", "dstune_workload_destroy"};

void check_stamp(const SharedLibraryFile& library, const std::string& path) {
  const auto symbol = library.find(stamp_name);
  if (!symbol) {
    throw Error(path + " does not export " + stamp_name +
                ": put DSTUNE_WORKLOAD_DEFINE_STAMP of dstune/workload.h into one of its sources");
  }
  std::array<std::uint32_t, 2> stamp{};
  const auto bytes = library.content_of(*symbol, sizeof stamp);
  if (bytes) std::memcpy(stamp.data(), bytes->data(), sizeof stamp);
  if (!bytes || stamp[0] != DSTUNE_WORKLOAD_MAGIC) {
    throw Error(path + " exports a " + stamp_name +
                " that is none: use DSTUNE_WORKLOAD_DEFINE_STAMP of dstune/workload.h");
  }
  if (stamp[1] != DSTUNE_WORKLOAD_VERSION) {
    throw Error(path + " was built for version " + std::to_string(stamp[1]) +
                " of dstune/workload.h, and this dstune-mpi has version " +
                std::to_string(DSTUNE_WORKLOAD_VERSION) + ": build it again with its header");
  }
}

}  // namespace

std::string check_plugin_library(const std::string& path) {
  const SharedLibraryFile library(path);
  check_stamp(library, path);
  std::string missing;
  for (const char* name : function_names) {
    const auto symbol = library.find(name);
    if (!symbol || !symbol->is_function) missing += std::string(missing.empty() ? "" : ", ") + name;
  }
  if (!missing.empty()) {
    throw Error(path + " does not export " + missing +
                ": define what dstune/workload.h declares, in C or extern \"C\"");
  }
  return library.content();
}

}  // namespace dstune
