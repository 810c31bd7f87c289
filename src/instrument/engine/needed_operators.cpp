// Operators of DeepSpeed that are not built: known before the first experiment, and said once.

#include "engine/needed_operators.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/clock.hpp"
#include "dstune/base/log.hpp"
#include "dstune/core/log_text.hpp"

namespace dstune::engine {
namespace {

constexpr std::chrono::minutes operators_timeout{1};

/// The part of a configuration that decides which operators DeepSpeed loads.
json::Value deciding_part(const json::Value& ds_config) {
  json::Value part = json::Value::object();
  for (const char* name : {"optimizer", "zero_optimization"}) {
    const auto found = ds_config.find(name);
    if (found != ds_config.end()) part[name] = *found;
  }
  return part;
}

bool is_adams(const std::set<std::string>& names) {
  return std::ranges::all_of(
      names, [](const auto& name) { return name == "fused_adam" || name == "cpu_adam"; });
}

/// The missing operators, and every way to have them.
std::string mend_for(const std::set<std::string>& names, const Loaded& loaded) {
  std::vector<std::string> absent;
  std::vector<std::string> commands;
  for (const std::string& name : names) {
    const auto found = loaded.missing_operators.find(name);
    if (found == loaded.missing_operators.end())
      absent.push_back(name);
    else
      commands.push_back(found->second);
  }
  if (!absent.empty())
    return fmt::format("DeepSpeed has no {} for this device", fmt::join(absent, ", "));
  return fmt::format(
      "not built: {}; build before: {}{}", fmt::join(names, ", "), fmt::join(commands, " && "),
      is_adams(names) ? "; or write \"torch_adam\": true into optimizer.params" : "");
}

/// The next in the space's order that can run.
void replace_baseline(PlannedSpace& space) {
  const auto can_run = [&](std::size_t member) {
    return space.status(member) == PlanStatus::planned;
  };
  if (!space.baseline || can_run(*space.baseline)) return;
  const std::size_t own = *space.baseline;
  std::size_t next = own;
  while (!can_run(next)) next = (next + 1) % space.members.size();
  const std::string name = space.experiment(own).name;
  space.baseline = next;
  log::warning(fmt::format(log_text::other_baseline, name, space.experiment(next).name));
}

}  // namespace

void prune_for_operators(const JobSpec& job, PlannedSpace& space, Engine& engine) {
  std::map<std::string, std::size_t> places;
  std::vector<json::Value> parts;
  std::vector<std::pair<std::size_t, std::size_t>> members;  // and the places of their parts
  auto next = std::as_const(space.members).begin();
  for (std::size_t member = 0; member < space.members.size(); ++member, ++next) {
    if (space.status(member) != PlanStatus::planned) continue;
    json::Value part = deciding_part(next->planned.experiment.ds_config);
    const auto [place, is_new] = places.try_emplace(part.dump(), parts.size());
    if (is_new) parts.push_back(std::move(part));
    members.emplace_back(member, place->second);
  }
  if (members.empty()) return;
  const auto lacking = engine.lacking_operators(
      parts, Waiter().with_deadline(SteadyClock::now() + operators_timeout));
  std::set<std::string> all;
  bool is_any_left = false;
  for (const auto& names : lacking) {
    is_any_left |= names.empty();
    all.insert(names.begin(), names.end());
  }
  if (all.empty()) return;
  if (!is_any_left)
    throw InputError({engine_problem(job,
                                     "every member needs operators of DeepSpeed that are not "
                                     "there, and no compiler may be started inside the job; " +
                                         mend_for(all, engine.loaded()))});
  std::size_t pruned = 0;
  for (const auto& [member, place] : members) {
    const auto& names = lacking[place];
    if (names.empty()) continue;
    space.decide(member, PlanStatus::pruned, PruneKind::refused,
                 "needs operators of DeepSpeed that are not there; " +
                     mend_for({names.begin(), names.end()}, engine.loaded()));
    ++pruned;
  }
  space.planned -= std::min<std::uint64_t>(space.planned, pruned);
  space.pruned += pruned;
  space.prune_counts[PruneKind::refused] += pruned;
  log::warning(fmt::format(log_text::operators_left_out, pruned, mend_for(all, engine.loaded())));
  replace_baseline(space);
}

}  // namespace dstune::engine
