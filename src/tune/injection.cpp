#include "dstune/tune/injection.hpp"

#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace dstune {
namespace {

constexpr std::array<std::pair<std::string_view, Fault>, 4> kinds{
    {{"oom", Fault::oom}, {"hang", Fault::hang}, {"die", Fault::die}, {"throw", Fault::throws}}};

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

}  // namespace dstune
