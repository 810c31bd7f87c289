/// Times of a machine that one process measures by itself, for plans.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include "dstune/device/host_load.hpp"
#include "dstune/group/process_group.hpp"
#include "profile/prediction.hpp"
#include "profile/profiler.hpp"
#include "watch/waiting.hpp"

namespace dstune {
namespace {

/// A plan measures so often, one after the other: what differs between them is the host's doing.
constexpr int num_rounds = 3;
/// Rounds are compared by the times of so many members.
constexpr std::size_t num_compared = 8;

/// Seconds of processor time that this process has used.
double own_processor_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The use that others make of the host's processors, from its beginning on.
class OthersUse {
 public:
  [[nodiscard]] double share() const {
    const std::optional<HostTimes> after = host_times();
    if (!before_ || !after || after->all_s <= before_->all_s) return 0;
    const double busy_s = after->busy_s - before_->busy_s + after->stolen_s - before_->stolen_s;
    const double others_s = busy_s - (own_processor_s() - own_before_s_);
    return std::clamp(others_s / (after->all_s - before_->all_s), 0.0, 1.0);
  }

 private:
  std::optional<HostTimes> before_ = host_times();
  double own_before_s_ = own_processor_s();
};

/// The sum of the times of some members.
double compared_s(JobPredictor& predictor, const std::vector<const Experiment*>& members) {
  double sum_s = 0;
  const std::size_t step = std::max<std::size_t>(1, members.size() / num_compared);
  for (std::size_t member = 0; member < members.size(); member += step)
    sum_s += predictor.step_s(*members[member]).value_or(0);
  return sum_s;
}

}  // namespace

MeasuredAlone measure_alone(const PlannedJob& ready, Device& device) {
  const CpuWorkspaces workspaces(device.kernels());
  std::vector<Experiment> alone;
  visit_planned(ready, [&](const Experiment& member) {
    alone.push_back({.name = {}, .ds_config = {}, .shape = {1, 1}, .config = member.config});
  });
  std::vector<const Experiment*> members;
  for (const Experiment& member : alone) members.push_back(&member);
  const Policy::Profiling& policy = default_policy().profiling;
  std::vector<ProfilingTask> tasks =
      plan_profiling(ready.job.model, members, workspaces,
                     {.budget_s = policy.dry_run_budget_s / num_rounds,
                      .max_bytes = policy.dry_run_bytes,
                      .times_disks = false});
  if (tasks.empty()) return {};
  SelfGroup group(0, device.queues());
  const Waiter waiter =
      Waiter().with_deadline(SteadyClock::now() + to_duration(policy.dry_run_timeout_s));
  const OthersUse others;
  std::vector<std::pair<double, std::unique_ptr<JobPredictor>>> rounds;
  for (int round = 0; round < num_rounds; ++round) {
    auto predictor = std::make_unique<JobPredictor>(
        ready,
        profile_device(tasks.front(), ready.job.model, device, group, reference_seed, waiter));
    const double seconds = compared_s(*predictor, members);
    rounds.emplace_back(seconds, std::move(predictor));
  }
  std::ranges::sort(rounds, {}, &decltype(rounds)::value_type::first);
  auto& [middle_s, predictor] = rounds[num_rounds / 2];
  // Beside what the rounds show stands the error of the constants that lead to the target's time.
  const double error = ready.target ? 2 * ready.target->error : 0;
  if (rounds.front().first > 0)
    predictor->set_band(middle_s / rounds.back().first / (1 + error),
                        middle_s / rounds.front().first * (1 + error));
  return {std::move(predictor), others.share()};
}

}  // namespace dstune
