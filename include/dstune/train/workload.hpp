#pragma once
/// An experiment runs a workload: built once, then stepped on a group until its step time is known
/// (docs/inside/measuring.md). A failure on one rank becomes a status that its group agrees on
/// wherever that rank could fail while its peers wait, so everything that may fail belongs into
/// build().

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/base/wait.hpp"
#include "dstune/core/interval.hpp"
#include "dstune/core/job.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/core/training_config.hpp"
#include "dstune/device/device.hpp"
#include "dstune/device/gpu_state.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/model/model_spec.hpp"

namespace dstune {

/// The clock's resolution, in seconds. A step of no time at all would have no throughput.
inline constexpr double min_step_s = 1e-9;

/// One optimizer step as one rank saw it.
struct StepSample {
  double loss = 0;       ///< mean over the global batch before the update; NaN where there is none
  double step_s = 0;     ///< this rank's time
  double forward_s = 0;  ///< summed over the micro-steps
  double backward_s = 0;
  double update_s = 0;
  bool skipped = false;   ///< the update was left out (fp16): not a step to be timed; on every rank
  std::string failure{};  ///< why the training ends here, or empty; the same on every rank
};

/// The facts on a workload that hold from its beginning.
struct WorkloadTraits {
  std::int64_t micro_steps = 1;  ///< of a step, over which forward_s and backward_s are sums
  /// Step times are given and not measured: then exactly start_profile_step steps are warm-up,
  /// since nothing has to become steady.
  bool has_simulated_times = false;
  /// A first step is longer than others only by what code of ours takes to become warm. So one that
  /// nothing of that explains ends a challenger.
  bool has_short_cold_step = false;
  /// It makes few steps, and long ones: a challenger is looked at after two of them, too.
  bool is_raced_early = false;
  /// The calls initialize() and step() talk to peers without meeting them first. Their errors can
  /// not be agreed on, because the peers are inside a collective; they end as CollectiveError.
  bool talks_to_peers = false;
};

/// The steps by which a run warms up where nobody says how many, as far as they are known before.
struct WarmupNeed {
  int least = 1;  ///< steps that are never timed
  /// The run has something that this process has not run yet: more steps follow until they settle.
  bool is_watched = true;
  bool operator==(const WarmupNeed&) const = default;
};

/// How configurations of foreign code warmed up in this process. Local.
class SettledSteps {
 public:
  /// As many steps as one took that has run.
  [[nodiscard]] WarmupNeed need_of(const std::string& configuration) const;
  /// The first word on a configuration holds: later runs warm up by it, and can not tell.
  void note(const std::string& configuration, int steps) { steps_.emplace(configuration, steps); }

 private:
  std::map<std::string, int> steps_;
};

/// Something that was done by a slower way than is usual.
struct Fallback {
  std::string text;
  bool is_comparable = false;  ///< a training with DeepSpeed would go the same way here
  bool operator==(const Fallback&) const = default;
};

class Workload {
 public:
  Workload() = default;
  virtual ~Workload() = default;
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;
  [[nodiscard]] virtual WorkloadTraits traits() const = 0;
  /// Everything that may fail for want of memory, without talking to peers unless it meets them
  /// first. Throws OutOfMemory.
  virtual void build() = 0;
  /// First state; may use the group. Collective over the group.
  virtual void initialize() = 0;
  /// Optimizer step number `step` (from 0). Collective over the group.
  virtual StepSample step(std::int64_t step) = 0;
  /// Goes on where another workload has used the device since its last step; the device's arenas
  /// are those that it was built in. The waiter is for waits that are not the group's from now on.
  /// Only workloads that can stay built from run to run have it. Local.
  virtual void resume(const Waiter& /*waiter*/) {}
  /// The knowledge of this process on the warm-up, from initialize() on. Local.
  [[nodiscard]] virtual WarmupNeed warmup_need() const { return {}; }
  /// Tells at the end of a run whose steps were timed that this process has run it: `steps` of the
  /// first were longer than those that followed. The same on every rank of the group. Local.
  virtual void note_warm_after(int /*steps*/) {}
  /// Steps that have run already, whose samples step() returns next: they are part of what is
  /// measured, whether or not it needs them. The same on every rank of the group.
  [[nodiscard]] virtual std::int64_t steps_at_hand() const { return 0; }
  [[nodiscard]] virtual PeakMemory peak_memory() const = 0;
  /// On this rank, from build() on, each once. Local.
  [[nodiscard]] virtual std::vector<Fallback> fallbacks() const { return {}; }
  [[nodiscard]] virtual double flops_per_step() const = 0;
};

struct WorkloadContext {
  const ModelSpec* model;
  const TrainingConfig* config;
  const std::string* experiment_name;
  std::int64_t seed;
  Device* device;
  ProcessGroup* group;
  const Waiter* waiter;  ///< for waits that are not the group's; outlives the workload
  const std::string* ds_config = nullptr;  ///< plugin, deepspeed: the experiment's, as JSON
  /// plugin: it may be called on a thread of its own, which MPI has to allow.
  bool may_use_threads = false;
  SettledSteps* settled = nullptr;  ///< plugin, deepspeed: of the instrument
};

/// The configuration by which SettledSteps knows a run of foreign code. Local.
std::string settled_key(const WorkloadContext& context);

/// Tokens of a step of the whole group. Local.
double tokens_per_step(const WorkloadContext& context);
/// Floating-point operations of the model in one step. Local.
double model_flops_per_step(const WorkloadContext& context);

/// The error that this rank threw inside a step that talks to peers, or when its device was lost.
/// It is the cause of the reports of peers, who are left waiting for it.
class StepFailure : public CollectiveError {
 public:
  StepFailure(Status status, const std::string& reason, std::string details = {})
      : CollectiveError(Cause::aborted, reason), status_(status), details_(std::move(details)) {}
  [[nodiscard]] Status status() const { return status_; }
  /// Lines for people beside the reason: a traceback; empty as a rule.
  [[nodiscard]] const std::string& details() const { return details_; }

 private:
  Status status_;
  std::string details_;
};

struct MeasureHooks {
  /// Called on every rank once all have built; returns when the experiment may start (GO). May
  /// throw CollectiveError (aborted).
  std::function<void()> ready;
  /// Leader only, once for each step: the slowest rank's time. Called right before the agreement on
  /// the step that follows, so that what it takes is in no step's time. Returns true to stop: that
  /// rides on this agreement, after which all leave.
  std::function<bool(double step_s)> stepped;
  /// On one rank of each node, about once a second: the joules that the node has used since any
  /// moment, nothing where nobody knows. Empty on the others.
  std::function<std::optional<double>()> joules;
  /// How this rank's GPU is now; asked when timing begins, about once a second, and when it ends.
  /// On every rank of a group or on none.
  std::function<std::optional<GpuState>()> sample_gpu;
  /// Tells whether this rank's device is lost. Asked after a failure: there is nothing to agree on
  /// then, because the rank leaves its group for good. Empty: never.
  std::function<bool()> has_lost_device;
  /// Leader only, at each look of the race: what it is compared with by now. Empty: no race.
  std::function<IncumbentEstimate()> incumbent;
};

/// The state in which a run finds its workload, the same on every rank.
struct KeptRun {
  /// The steps that it has made in this process, on this group; then it is neither built nor
  /// initialised again. 0: it is new.
  std::int64_t steps = 0;
  int warmup_steps = 1;  ///< of one that is not new: others have used the caches in between
};

/// A measurement on its way, for runs that take turns: build(), begin(), go_on() until it is over,
/// end(). All of these are collective over the group, with the same arguments on every rank, and
/// throw as measure() does.
class MeasuredRun {
 public:
  /// All outlive it but `kept`.
  MeasuredRun(Workload& workload, ProcessGroup& group, const MeasureOptions& options,
              const MeasureHooks& hooks, const KeptRun& kept = {});
  ~MeasuredRun();
  MeasuredRun(const MeasuredRun&) = delete;
  MeasuredRun& operator=(const MeasuredRun&) = delete;

  /// Builds, unless it was kept, and agrees. False: it is over.
  bool build();
  /// Calls hooks.ready, and initialises unless it was kept. A failure there shows in the first
  /// step.
  void begin();
  /// Takes so many steps, or as many as it still needs. False: it is over.
  bool go_on(std::int64_t most_steps);
  /// All steps of the workload by now, those before this run included: what KeptRun asks for.
  [[nodiscard]] std::int64_t steps_made() const;
  /// The measurement, after build() or go_on() said that it is over. Once.
  Measurement end();

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// Build, agree, initialise, warm up, time. At least 5 steps are timed, until the 95 % interval of
/// their mean is within 1 %, the budget of timed steps is used up, or the race is lost
/// (docs/inside/measuring.md). An out-of-memory or a failure on any rank is every rank's result,
/// with the reason and the world rank it came from. A stop and a lost race end as raced_out. Every
/// rank gets the same measurement; only overhead_s ("build", "initialize", "teardown") is its own,
/// and hosts is left empty. Collective over the group. Throws CollectiveError only: a StepFailure
/// for what this rank throws inside a step that talks to peers, or without its device. Peers are
/// then ended by an abort or their deadline.
Measurement measure(Workload& workload, ProcessGroup& group, const MeasureOptions& options,
                    const MeasureHooks& hooks, const KeptRun& kept = {});

}  // namespace dstune
