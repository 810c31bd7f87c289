#include "dstune/tune/injection.hpp"

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

constexpr std::array<std::pair<std::string_view, Fault>, 9> kinds{
    {{"oom", Fault::oom},
     {"disk", Fault::disk},
     {"hang", Fault::hang},
     {"die", Fault::die},
     {"throw", Fault::throws},
     {"throw_in_step", Fault::throws_in_step},
     {"lose_device", Fault::loses_device},
     {"throw_in_worker", Fault::throws_in_worker},
     {"throw_in_controller", Fault::throws_in_controller}}};

}  // namespace

Fault injected_fault(int world_rank, const std::string& experiment) {
  const char* text = std::getenv("DSTUNE_INJECT");
  if (text == nullptr) return Fault::none;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    for (const auto& [word, fault] : kinds) {
      if (one == std::string(word) + "@" + std::to_string(world_rank) + ":" + experiment) {
        return fault;
      }
    }
  }
  return Fault::none;
}

std::string powercap_folder() {
  const char* text = std::getenv("DSTUNE_POWERCAP");
  return text == nullptr || *text == '\0' ? "/sys/class/powercap" : text;
}

std::optional<PretendedHost> pretended_host(int world_rank, int world_size) {
  const char* text = std::getenv("DSTUNE_PRETEND_HOSTS");
  if (text == nullptr || *text == '\0') return std::nullopt;
  std::optional<PretendedHost> own;
  int index = 0;
  int first_rank = 0;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const std::size_t colon = one.find(':');
    int ranks = 0;
    if (colon != std::string_view::npos) {
      std::from_chars(one.data() + colon + 1, one.data() + one.size(), ranks);
    }
    if (ranks < 1 || ranks > world_size - first_rank) break;
    PretendedHost host{std::string(one.substr(0, colon)), index++, {}};
    for (int i = 0; i < ranks; ++i) host.world_ranks.push_back(first_rank++);
    if (world_rank >= host.world_ranks.front() && world_rank < first_rank) own = std::move(host);
  }
  if (!rest.empty() || first_rank != world_size) {
    throw Error("DSTUNE_PRETEND_HOSTS: expected name:ranks,name:ranks with the ranks of the job");
  }
  return own;
}

}  // namespace dstune
