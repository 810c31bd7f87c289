#include "plugin_start.hpp"

#include <functional>
#include <vector>

#include "dstune/core/plugin_library.hpp"
#include "dstune/report/hash128.hpp"
#include "dstune/train/workload.hpp"

namespace dstune {
namespace {

/// What the work throws on the lowest rank on which it throws. Collective over the world.
std::string first_objection(const Communicator& world, const std::function<void()>& work) {
  std::string mine;
  try {
    work();
  } catch (const std::exception& error) {
    mine = error.what();
  }
  const auto* begin = reinterpret_cast<const std::byte*>(mine.data());
  const std::vector<Bytes> all = world.all_gather({begin, mine.size()});
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const std::string text(reinterpret_cast<const char*>(all[rank].data()), all[rank].size());
    return rank == 0 ? text : "rank " + std::to_string(rank) + ": " + text;
  }
  return "";
}

}  // namespace

std::string plugin_hash(const WorkloadSpec& workload) {
  return hash128(check_plugin_library(workload.library_path));
}

std::string load_plugin_everywhere(const Communicator& world, const WorkloadSpec& workload) {
  if (workload.kind != WorkloadKind::plugin) return "";
  std::string objection = first_objection(world, [&] {
    if (plugin_hash(workload) != workload.library_hash) {
      throw Error(workload.library_path +
                  " is another file than on rank 0: put the same one on every host");
    }
  });
  if (!objection.empty()) return objection;
  return first_objection(world, [&] { load_plugin(workload.library_path); });
}

Problem plugin_problem(const json::Document& document, const std::string& objection) {
  const std::string pointer = "/dstune/workload/library";
  return {document.file(), pointer, document.line(pointer), objection};
}

}  // namespace dstune
