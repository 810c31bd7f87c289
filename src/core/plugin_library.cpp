#include <array>
#include <cstdint>
#include <cstring>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"
#include "dstune/base/shared_library_file.hpp"
#include "dstune/core/job.hpp"
#include "dstune/workload.h"

namespace dstune {
namespace {

constexpr const char* stamp_name = "dstune_workload_stamp";
constexpr std::array function_names{"dstune_workload_build", "dstune_workload_step",
                                    "dstune_workload_report", "dstune_workload_destroy"};

using Symbols = std::map<std::string, ExportedSymbol>;

void check_stamp(const Symbols& symbols, const std::string& path) {
  const auto symbol = symbols.find(stamp_name);
  if (symbol == symbols.end()) {
    throw Error(path + " does not export " + stamp_name +
                ": put DSTUNE_WORKLOAD_DEFINE_STAMP of dstune/workload.h into one of its sources");
  }
  std::array<std::uint32_t, 2> stamp{};
  const std::string_view content = symbol->second.content;
  if (content.size() >= sizeof stamp) std::memcpy(stamp.data(), content.data(), sizeof stamp);
  if (stamp[0] != DSTUNE_WORKLOAD_MAGIC) {
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
  const std::string content = read_file(path);
  const Symbols symbols = exported_symbols(content, path);
  check_stamp(symbols, path);
  std::string missing;
  for (const char* name : function_names) {
    const auto symbol = symbols.find(name);
    if (symbol == symbols.end() || !symbol->second.is_function)
      missing += std::string(missing.empty() ? "" : ", ") + name;
  }
  if (!missing.empty()) {
    throw Error(path + " does not export " + missing +
                ": define what dstune/workload.h declares, in C or extern \"C\"");
  }
  return content;
}

}  // namespace dstune
