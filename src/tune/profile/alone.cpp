/// Times of a machine that one process measures by itself, for plans.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include "dstune/device/host_load.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/kernels/kernels.hpp"
#include "profile/prediction.hpp"
#include "profile/profiler.hpp"
#include "watch/waiting.hpp"

namespace dstune {
namespace {

/// A plan measures so often, one after the other, and the least counts: what differs between them
/// is the host's doing.
constexpr int num_rounds = 3;
/// The share of the processors that others use while it measures, from which on threads wait for
/// each other longer than they work.
constexpr double share_of_others = 0.1;
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
    // Time that other virtual machines took is in it.
    const double busy_s = after->busy_s - before_->busy_s;
    const double others_s = busy_s - (own_processor_s() - own_before_s_);
    return std::clamp(others_s / (after->all_s - before_->all_s), 0.0, 1.0);
  }
  [[nodiscard]] double stolen_share() const {
    const std::optional<HostTimes> after = host_times();
    if (!before_ || !after || after->all_s <= before_->all_s) return 0;
    return (after->stolen_s - before_->stolen_s) / (after->all_s - before_->all_s);
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

/// Kernels use so many threads until its end.
class KernelThreads {
 public:
  explicit KernelThreads(int threads) : before_(kernels::cpu_threads()) {
    kernels::set_cpu_threads(threads);
  }
  ~KernelThreads() { kernels::set_cpu_threads(before_); }
  KernelThreads(const KernelThreads&) = delete;
  KernelThreads& operator=(const KernelThreads&) = delete;

 private:
  int before_;
};

/// The threads of a rank where as many ranks as the largest group has on a node share this host. In
/// a job the ranks of this host have theirs already.
int threads_of_rank(const PlannedJob& ready, const Device& device) {
  const auto here = static_cast<int>(std::max<std::size_t>(1, ready.training_ranks.front().size()));
  int ranks = here;
  visit_planned(ready,
                [&](const Experiment& member) { ranks = std::max(ranks, member.shape.num_gpus); });
  return std::max(1, device.threads() * here / ranks);
}

/// Measures for plans: several short rounds of one task.
class AloneRounds {
 public:
  AloneRounds(const PlannedJob& ready, Device& device, const ProfilingTask& task)
      : ready_(ready),
        device_(device),
        task_(task),
        group_(0, device.queues()),
        waiter_(Waiter().with_deadline(
            SteadyClock::now() + to_duration(default_policy().profiling.dry_run_timeout_s))) {}

  std::vector<DeviceProfile> measure(int threads) {
    const KernelThreads kernel_threads(threads);
    const TraceClock clock = threads == 1 ? TraceClock::own_alone : TraceClock::elapsed;
    std::vector<DeviceProfile> rounds;
    for (int round = 0; round < num_rounds; ++round)
      rounds.push_back(
          profile_device(task_, ready_.job.model, device_, group_, reference_seed, waiter_, clock));
    return rounds;
  }

 private:
  const PlannedJob& ready_;
  Device& device_;
  const ProfilingTask& task_;
  SelfGroup group_;
  Waiter waiter_;
};

/// The profile of so many threads, each as fast as the one that was measured.
void share_work(DeviceProfile& profile, int threads) {
  for (TimeCurve& curve : profile.kernels)
    for (TimePoint& point : curve.points) point.seconds /= threads;
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
  MeasuredAlone result;
  const OthersUse others;
  AloneRounds alone_rounds(ready, device, tasks.front());
  const int threads = device.is_asynchronous() ? 1 : threads_of_rank(ready, device);
  std::vector<DeviceProfile> rounds = alone_rounds.measure(threads);
  if (threads > 1 && others.share() >= share_of_others) {
    result.has_shared_work = true;
    rounds = alone_rounds.measure(1);
    for (DeviceProfile& round : rounds) share_work(round, threads);
  }
  result.used_by_others = others.share();
  result.stolen = others.stolen_share();
  double slowest_s = 0;
  for (const DeviceProfile& round : rounds) {
    JobPredictor predictor(ready, round);
    slowest_s = std::max(slowest_s, compared_s(predictor, members));
  }
  result.predictor = std::make_unique<JobPredictor>(ready, least_of_profiles(rounds));
  const double least_s = compared_s(*result.predictor, members);
  // Beside what the rounds show stands the error of the constants that lead to the target's time.
  const double error = error_of_target(ready);
  if (least_s > 0) {
    result.predictor->set_band(least_s / slowest_s / (1 + error), 1 + error);
  }
  return result;
}

}  // namespace dstune
