// Operators of DeepSpeed that are not built: known before the first experiment, and said once.

#include "engine/needed_operators.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

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
  if (!space.baseline || space.members[*space.baseline].planned.status == PlanStatus::planned)
    return;
  const auto can_run = [](const PlannedMember& member) {
    return member.planned.status == PlanStatus::planned;
  };
  const auto own = space.members.begin() + static_cast<std::ptrdiff_t>(*space.baseline);
  auto next = std::find_if(own, space.members.end(), can_run);
  if (next == space.members.end()) next = std::ranges::find_if(space.members, can_run);
  const std::string name = own->planned.experiment.name;
  space.baseline = static_cast<std::size_t>(next - space.members.begin());
  log::warning(fmt::format(log_text::other_baseline, name, next->planned.experiment.name));
}

}  // namespace

void prune_for_operators(const JobSpec& job, PlannedSpace& space, Engine& engine) {
  std::map<std::string, std::size_t> places;
  std::vector<json::Value> parts;
  std::vector<std::pair<PlannedExperiment*, std::size_t>> members;
  for (PlannedMember& member : space.members) {
    if (member.planned.status != PlanStatus::planned) continue;
    json::Value part = deciding_part(member.planned.experiment.ds_config);
    const auto [place, is_new] = places.try_emplace(part.dump(), parts.size());
    if (is_new) parts.push_back(std::move(part));
    members.emplace_back(&member.planned, place->second);
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
    throw InputError({engine_problem(
        job,
        "every configuration needs operators of DeepSpeed that are not there, and no "
        "compiler may be started inside the job; " +
            mend_for(all, engine.loaded()))});
  std::size_t pruned = 0;
  for (const auto& [planned, place] : members) {
    const auto& names = lacking[place];
    if (names.empty()) continue;
    planned->status = PlanStatus::pruned;
    planned->prune_kind = PruneKind::refused;
    planned->reason = "needs operators of DeepSpeed that are not there; " +
                      mend_for({names.begin(), names.end()}, engine.loaded());
    ++pruned;
  }
  space.planned -= std::min<std::uint64_t>(space.planned, pruned);
  space.pruned += pruned;
  space.prune_counts[PruneKind::refused] += pruned;
  log::warning(fmt::format(log_text::operators_left_out, pruned, mend_for(all, engine.loaded())));
  replace_baseline(space);
}

}  // namespace dstune::engine
