#include "refusals.hpp"

#include <mutex>
#include <set>
#include <utility>

namespace dstune::kernels::cuda {
namespace {

struct Refusals {
  std::mutex mutex;
  std::set<std::string> known;
  std::vector<std::string> unreported;
};

/// Never destroyed: others live as long as the process, too.
Refusals& refusals() {
  static auto& all = *new Refusals;
  return all;
}

}  // namespace

void note_refusal(const std::string& what) {
  Refusals& all = refusals();
  const std::lock_guard lock(all.mutex);
  if (all.known.insert(what).second) all.unreported.push_back(what);
}

std::vector<std::string> take_refusals() {
  Refusals& all = refusals();
  const std::lock_guard lock(all.mutex);
  return std::exchange(all.unreported, {});
}

}  // namespace dstune::kernels::cuda
