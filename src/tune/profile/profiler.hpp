#pragma once
/// The machine is profiled at the start of the job: rank 0 gives tasks to groups, whose members
/// measure how fast operations are there.

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/device/device.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/plan/step_plan.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/predict/profiling_plan.hpp"
#include "profile/prediction.hpp"
#include "protocol/attempts.hpp"

namespace dstune {

/// A member's part. Runs what the task names, as far as its budget goes, the first run in any case.
/// Runs that do not fit the memory are left out. Returns what this rank measured. `clock`: own
/// where ranks take turns on a core; what that costs is then the slowdown of whole steps. own_alone
/// where nobody waits for this rank: no load of others counts. The waiter ends waits for the
/// device. Collective over the group.
DeviceProfile profile_device(const ProfilingTask& task, const ModelSpec& model, Device& device,
                             ProcessGroup& group, std::int64_t seed, const Waiter& waiter,
                             TraceClock clock = TraceClock::elapsed);

/// Rank 0's part: gives each shape's task to all of its groups at once, as they will run beside
/// each other later, and puts together what the members answer. Knows no MPI.
class Profiler {
 public:
  struct Options {
    /// A task that takes this many times its budget, and the least, is aborted.
    double timeout_budgets = 20;
    double min_inactivity_timeout_s = 120;
    double abort_grace_s = 10;               ///< as Attempts::Limits'
    double drain_timeout_s = 0;              ///< likewise
    std::function<bool()> is_to_be_ended{};  ///< a signal, the time limit; may be empty
  };
  /// ranks_of_node: those that train. The driver outlives it.
  Profiler(AttemptDriver& driver, std::vector<std::vector<int>> ranks_of_node, Options options)
      : driver_(driver), ranks_of_node_(std::move(ranks_of_node)), options_(std::move(options)) {}

  /// The measured profile; empty where nothing was measured. A group that fails leaves its shape to
  /// the others; one that is late, or whose member is lost, ends it all.
  DeviceProfile run(std::span<const ProfilingTask> tasks);
  [[nodiscard]] const BytesAfter& bytes_after() const { return bytes_after_; }

 private:
  void begin(const ProfilingTask& task);
  void await();
  void take(Attempts::Profiled profiled);
  void cut_short();

  AttemptDriver& driver_;
  std::vector<std::vector<int>> ranks_of_node_;
  Options options_;
  std::vector<DeviceProfile> measured_;
  BytesAfter bytes_after_;
  bool is_cut_short_ = false;
};

}  // namespace dstune
