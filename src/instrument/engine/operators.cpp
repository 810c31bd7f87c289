#include "dstune/instrument/engine/engine.hpp"

namespace dstune::engine {
namespace {

/// That Python may take to come back from an answer of no work.
constexpr std::chrono::seconds answer_drain{5};

}  // namespace

std::vector<std::vector<std::string>> Engine::lacking_operators(
    const std::vector<json::Value>& configs, const Waiter& waiter) {
  json::Value command = {{"command", "operators"}, {"configs", configs}};
  const json::Value reply = channel_.call(command, waiter, answer_drain);
  std::vector<std::vector<std::string>> lacking(configs.size());
  const auto found = reply.find("lacking");
  if (found == reply.end() || !found->is_array()) return lacking;
  std::size_t place = 0;
  for (const json::Value& names : *found) {
    if (place == lacking.size()) break;
    for (const json::Value& name : names) lacking[place].push_back(name.get<std::string>());
    ++place;
  }
  return lacking;
}

}  // namespace dstune::engine
