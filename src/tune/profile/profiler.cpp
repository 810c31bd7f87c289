#include "profile/profiler.hpp"

#include <algorithm>

#include "dstune/base/log.hpp"
#include "dstune/base/units.hpp"
#include "dstune/group/group_table.hpp"
#include "waiting.hpp"

namespace dstune {

DeviceProfile Profiler::run(std::span<const ProfilingTask> tasks) {
  for (const ProfilingTask& task : tasks) {
    if (is_cut_short_) break;
    begin(task);
    await();
  }
  return measured_.empty() ? DeviceProfile{} : merge_profiles(measured_);
}

void Profiler::begin(const ProfilingTask& task) {
  Attempts::Limits limits{.abort_grace_s = options_.abort_grace_s,
                          .drain_timeout_s = options_.drain_timeout_s};
  limits.timeout_s =
      std::max(options_.min_inactivity_timeout_s, options_.timeout_budgets * task.budget_s);
  limits.overdue = "took longer than " + format_duration(limits.timeout_s);
  ProfilingTask without_disk = task;
  without_disk.disk = {};
  std::set<std::size_t> nodes_with_disk;
  for (const auto& group :
       aligned_groups(ranks_of_node_, task.shape.num_gpus, task.shape.num_nodes)) {
    // As experiments have it: a disk is one group's.
    bool is_first = true;
    for (std::size_t node = 0; node < ranks_of_node_.size(); ++node) {
      const auto& ranks = ranks_of_node_[node];
      const bool is_there = std::ranges::find_first_of(ranks, group) != ranks.end();
      if (is_there) is_first = nodes_with_disk.insert(node).second && is_first;
    }
    message::Profile order;
    order.task = is_first ? task : without_disk;
    order.world_ranks = group;
    driver_.attempts().begin(std::move(order), limits, driver_.now());
  }
}

void Profiler::await() {
  Attempts& attempts = driver_.attempts();
  IdleBackoff idle;
  for (;;) {
    driver_.listen();
    for (Attempts::Event& event : attempts.take_events()) {
      if (auto* profiled = std::get_if<Attempts::Profiled>(&event)) take(std::move(*profiled));
      if (const auto* failed = std::get_if<Attempts::Failed>(&event))
        log::warning("measuring the machine: " + failed->reason);
      const auto* ended = std::get_if<Attempts::Ended>(&event);
      if (ended != nullptr && (ended->is_given_up || !ended->lost.empty())) cut_short();
    }
    if (options_.is_to_be_ended && options_.is_to_be_ended()) cut_short();
    driver_.speak();
    if (attempts.is_empty()) return;
    idle.pause();
  }
}

void Profiler::take(Attempts::Profiled profiled) {
  const auto& [attempt, world_rank, answer] = profiled;
  non_arena_bytes_[world_rank] = answer.non_arena_bytes;
  if (answer.gpu_non_arena_bytes > 0) gpu_non_arena_bytes_[world_rank] = answer.gpu_non_arena_bytes;
  measured_.push_back(std::move(profiled.answer.profile));
}

/// What was measured so far counts.
void Profiler::cut_short() {
  if (is_cut_short_) return;
  is_cut_short_ = true;
  log::warning("measuring the machine was cut short");
  driver_.attempts().abort(driver_.now());
}

}  // namespace dstune
