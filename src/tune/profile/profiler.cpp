#include "profile/profiler.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/device/disk.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/train/executor.hpp"
#include "profile/interpreter_work.hpp"
#include "profile/size_budget.hpp"
#include "watch/waiting.hpp"

namespace dstune {
namespace {

class Profiling {
 public:
  Profiling(const ProfilingTask& task, const ModelSpec& model, Device& device, ProcessGroup& group,
            std::int64_t seed, Waiter waiter, TraceClock clock)
      : task_(task),
        model_(model),
        device_(device),
        group_(group),
        seed_(seed),
        waiter_(std::move(waiter)),
        // A GPU works while its host's processor does not.
        clock_(device.is_asynchronous() ? TraceClock::elapsed : clock),
        began_s_(seconds_by(clock_of_steps(clock_))) {}

  DeviceProfile measure() {
    trace_runs();
    time_collectives();
    time_sums();
    time_transfers();
    interpreter_.complete(policy_.interpreter_passes);
    // The measurements of these steps are none of the experiments'.
    device_.arena().free();
    device_.host_arena().free();
    device_.input_arena().free();
    DeviceProfile profile = builder_.build(task_.shape);
    profile.interpreter_s = interpreter_.least_s();
    return profile;
  }

 private:
  /// The same on every rank.
  double spent_s() {
    const std::vector<double> all =
        group_.exchange(std::array{seconds_by(clock_of_steps(clock_)) - began_s_});
    return *std::max_element(all.begin(), all.end());
  }

  void trace_runs() {
    const CpuWorkspaces workspaces(device_.kernels());
    const double budget_s = (1 - policy_.share_for_collectives) * task_.budget_s;
    double seconds_per_cost = 0;
    for (const ProfilingRun& run : task_.runs) {
      const double left_s = budget_s - spent_s();
      if (seconds_per_cost * run.cost * policy_.steps_of_a_run > left_s) continue;
      const StepPlan plan = build_step_plan(profiling_model(model_, run), run.config, group_.size(),
                                            group_.group_rank(), workspaces);
      const auto traced = trace_steps(plan, device_, group_, seed_, left_s, waiter_, clock_);
      if (!traced) continue;
      builder_.add(plan, traced->traces, traced->steps_s);
      seconds_per_cost = traced->steps_s.front() / run.cost;
      interpreter_.pass();
    }
  }

  void time_collectives() {
    if (task_.collectives.empty()) return;
    const double share_s = policy_.share_for_collectives * task_.budget_s;
    const double each_s = share_s / static_cast<double>(task_.collectives.size());
    const double end_s = std::max(task_.budget_s, spent_s() + share_s);
    // A rank does not work while it waits for a link.
    const TraceClock clock = task_.shape.num_nodes > 1 ? TraceClock::elapsed : clock_;
    // A curve goes on in proportion beyond the sizes that a slow link leaves no time for.
    const std::vector<Work> by_size = smallest_first(task_.collectives);
    const std::int64_t largest = by_size.back().size;
    const std::int64_t bytes = std::max(policy_.cold_bytes, 2 * largest);
    std::byte* const data = device_memory(2 * bytes);
    std::byte* const out = data + bytes;
    device_.kernels().zero(data, static_cast<std::size_t>(2 * bytes));
    SizeBudget budget;
    for (const Work& work : by_size) {
      std::int64_t offset = 0;
      double last_s = 0;
      const auto ask = [&] {
        const double ask_began_s = seconds_by(TraceClock::elapsed);
        offset = offset + 2 * work.size > bytes ? 0 : offset + work.size;
        collective(work, data + offset, out + offset);
        last_s = seconds_by(TraceClock::elapsed) - ask_began_s;
      };
      const int asks = budget.asks_within(work, end_s - spent_s(),
                                          device_.is_asynchronous() ? policy_.repeats : 1);
      if (asks == 0) continue;
      const double median_s = time_on_device(each_s, asks, clock, ask);
      builder_.add_alone(work, median_s);
      // A time of the processor is shorter than what the budget loses.
      budget.add(work, std::ranges::max(group_.exchange(std::array{std::max(median_s, last_s)})));
    }
  }

  /// Seconds of what queue 0 is asked for: where that is done later, of several between two stamps,
  /// since a wait takes as long as short ones.
  double time_on_device(double budget_s, int asks, TraceClock clock,
                        const std::function<void()>& ask) {
    Queues& queues = device_.queues();
    if (!device_.is_asynchronous()) return time_together(group_, budget_s, ask, clock);
    return median_together(group_, budget_s, [&] {
      queues.stamp(0);
      for (int i = 0; i < asks; ++i) ask();
      queues.stamp(1);
      queues.finish_used();
      return queues.seconds_between(0, 1) / asks;
    });
  }

  /// The first of so many bytes, until the next call. What uses them goes to queue 0.
  std::byte* device_memory(std::int64_t bytes) {
    device_.queues().prepare({.queues = 1, .events = 0, .stamps = 2}, group_.watched(waiter_));
    device_.input_arena().prepare(bytes);
    return device_.input_arena().base();
  }

  void collective(const Work& work, std::byte* data, std::byte* out) {
    const std::int64_t count = work.size / size_bytes(work.type);
    const RankRange among = work.width == 0
                                ? RankRange{}
                                : range_of(group_.group_rank(), static_cast<int>(work.depth),
                                           static_cast<int>(work.width));
    const std::int64_t part = count / among.size(group_.size());
    switch (work.kind) {
      case WorkKind::all_reduce:
        return group_.all_reduce_average(data, count, work.type, among);
      case WorkKind::reduce:
        return group_.reduce_average(data, count, work.type, 0);
      case WorkKind::reduce_scatter:
        return group_.reduce_scatter_average(out, data, part, work.type, among);
      case WorkKind::all_gather:
        return group_.all_gather(out, data, part, work.type, among);
      case WorkKind::all_to_all:
        return group_.all_to_all(out, data, part, work.type, among);
      default:
        throw LogicError("is timed as a collective and is none");
    }
  }

  void time_sums() {
    constexpr auto f32 = kernels::DType::f32;
    const auto bytes = static_cast<std::int64_t>(policy_.sum_elements.back() * sizeof(float));
    std::byte* const x = device_memory(2 * bytes);
    std::byte* const y = x + bytes;
    device_.kernels().fill(f32, x, 1, 2 * policy_.sum_elements.back());
    const double each_s = policy_.sum_budget_s / static_cast<double>(policy_.sum_elements.size());
    for (const std::int64_t elements : policy_.sum_elements) {
      Work work{.kind = WorkKind::add};
      work.size = elements;
      builder_.add_alone(work, time_on_device(each_s, policy_.repeats, clock_, [&] {
                           device_.kernels().add(f32, y, f32, x, elements);
                         }));
    }
  }

  /// A file of this rank, gone when this returns; none on any rank where one has no room for it.
  std::unique_ptr<DiskFile> open_file(std::int64_t bytes) {
    std::unique_ptr<DiskFile> file;
    try {
      const DiskUse& use = task_.disk.use;
      file =
          std::make_unique<DiskFile>(use.folder, bytes, 1, disk_access(use), device_.disk_budget());
    } catch (const Error& error) {
      log::warning(fmt::format(log_text::disk_not_measured, error.what()));
    }
    const std::vector<double> found = group_.exchange(std::array{file == nullptr ? 0.0 : 1.0});
    if (std::ranges::find(found, 0.0) != found.end()) file.reset();
    return file;
  }

  void time_transfers() {
    const std::vector<std::int64_t>& sizes = task_.disk.bytes;
    if (sizes.empty()) return;
    const std::unique_ptr<DiskFile> file = open_file(sizes.back());
    if (file == nullptr) return;
    const std::unique_ptr<std::byte, decltype(&std::free)> memory(
        static_cast<std::byte*>(std::aligned_alloc(static_cast<std::size_t>(disk_alignment_bytes),
                                                   static_cast<std::size_t>(sizes.back()))),
        &std::free);
    std::memset(memory.get(), 1, static_cast<std::size_t>(sizes.back()));
    const double each_s = policy_.transfers_budget_s / (2.0 * static_cast<double>(sizes.size()));
    const double end_s = spent_s() + policy_.transfers_budget_s;
    for (const std::int64_t bytes : sizes) {
      // The small ones tell enough of a slow disk.
      if (bytes > sizes.front() && spent_s() > end_s) break;
      Work work{.kind = WorkKind::disk_write};
      work.size = bytes / size_bytes(work.type);
      builder_.add_alone(work, time_together(group_, each_s, [&] {
                           file->write(memory.get(), 0, bytes);
                           file->wait_for_writes(file->num_writes());
                         }));
      work.kind = WorkKind::disk_read;
      builder_.add_alone(work, time_together(group_, each_s, [&] {
                           file->read(memory.get(), 0, bytes);
                           file->wait_for_reads(file->num_reads());
                         }));
    }
  }

  const ProfilingTask& task_;
  const ModelSpec& model_;
  Device& device_;
  ProcessGroup& group_;
  std::int64_t seed_;
  Waiter waiter_;
  const Policy::Profiling& policy_ = default_policy().profiling;
  TraceClock clock_;
  double began_s_;
  ProfileBuilder builder_;
  InterpreterTime interpreter_;
};

}  // namespace

DeviceProfile profile_device(const ProfilingTask& task, const ModelSpec& model, Device& device,
                             ProcessGroup& group, std::int64_t seed, const Waiter& waiter,
                             TraceClock clock) {
  return Profiling(task, model, device, group, seed, waiter, clock).measure();
}

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
    // A disk is one group's, as in experiments.
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
      // Measurements that are given up end as if something had failed.
      if (const auto* failed = std::get_if<Attempts::Failed>(&event); failed && !is_cut_short_)
        log::warning(fmt::format(log_text::profiling_failed, failed->reason));
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
  bytes_after_.resident[world_rank] = answer.non_arena_bytes;
  if (answer.gpu_non_arena_bytes > 0) bytes_after_.gpu[world_rank] = answer.gpu_non_arena_bytes;
  measured_.push_back(std::move(profiled.answer.profile));
}

/// Measurements so far count.
void Profiler::cut_short() {
  if (is_cut_short_) return;
  is_cut_short_ = true;
  log::warning(log_text::profiling_cut_short);
  driver_.attempts().abort(driver_.now());
}

}  // namespace dstune
