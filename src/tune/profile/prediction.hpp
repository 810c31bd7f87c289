#pragma once
/// How long the experiments of a job will take, and how long they may: the machine is profiled for
/// that, or remembered from the journal. And what they will hold of memory. Rank 0.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dstune/comm/communicator.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/core/target_time.hpp"
#include "dstune/device/device.hpp"
#include "dstune/instrument/instrument.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/train/executor.hpp"
#include "protocol/attempts.hpp"
#include "start/open_job.hpp"
#include "start/rank_devices.hpp"

namespace dstune {

// Non-arena memory: what a rank's process holds beside the arenas of its experiments. On the host
// these are code, MPI, the libraries that compute, shared windows and the search itself. On its GPU
// these are context, libraries and communicators. From it follow what experiments will hold in all,
// and what is left of GPUs for their tensors.

/// Returns by how many bytes the device's own memory is less for this process, beside the arena of
/// experiments. It is 0 where nobody knows, or the device has no memory of its own. Local.
std::int64_t gpu_bytes_beside_arena(Device& device);

/// Bytes by world rank, before the first experiment.
struct BytesBefore {
  /// Bytes of each rank's process, with the matrix products' library in use: it makes its tables at
  /// the first one.
  std::vector<std::int64_t> resident;
  std::vector<std::int64_t> gpu;  ///< gpu_bytes_beside_arena()
};
/// Collective over the world.
BytesBefore bytes_before_experiments(const Communicator& world, Device& device);

/// Likewise after groups have run, of those that took part; of GPUs where that is known.
struct BytesAfter {
  std::map<int, std::int64_t> resident, gpu;
};

/// Starts from what the processes held before the first experiment and follows what experiments
/// find: libraries keep tables of every shape they have met, the journal's index grows. Local.
class NonArenaMemory {
 public:
  /// `resident_bytes` is by world rank. `has_staged`: whether the staging memory of groups is in
  /// it, or elsewhere.
  explicit NonArenaMemory(std::vector<std::int64_t> resident_bytes, bool has_staged = false)
      : resident_bytes_(std::move(resident_bytes)), has_staged_(has_staged) {}

  /// Takes in what processes hold after groups have run in them, by world rank; the others stay as
  /// they were.
  void start_again(const std::map<int, std::int64_t>& non_arena_bytes);
  /// Returns the bytes of the fullest of a group's ranks.
  [[nodiscard]] std::int64_t bytes(const std::vector<int>& world_ranks) const;
  /// Learns what the fullest rank of an experiment's group was measured to hold.
  void observe(const std::vector<int>& world_ranks, std::int64_t bytes);

 private:
  [[nodiscard]] std::int64_t bytes_at_start(const std::vector<int>& world_ranks) const;

  std::vector<std::int64_t> resident_bytes_;
  bool has_staged_;
  std::map<std::size_t, std::int64_t> growth_bytes_;  ///< since then, by group size
};

/// Predicts what processes and GPUs hold in an experiment: its arenas, as they are planned, and
/// what is beside them. Local.
struct ProcessMemoryPredictor {
  NonArenaMemory processes;
  std::optional<NonArenaMemory>
      gpus;  ///< nothing where none is used, or nobody knows what they hold
  bool devices_have_own_memory;

  /// Does what NonArenaMemory's does, for processes and for GPUs.
  void start_again(const BytesAfter& bytes);
  /// Predicts from what was known before this experiment, and learns from it for the next. An
  /// experiment without a plan is not predicted.
  void predict(Record& record);
};

/// Returns how many bytes plans may take of the GPUs once libraries and communicators have taken
/// theirs. The limit that the plans were made for could only guess it. The result is the least of
/// the ranks that told: what was free of a GPU at the start, less what it has lost since then.
/// `before_bytes`, `after_bytes`: what it had lost beside the arena, by world rank. Nothing where a
/// rank shares its GPU, since nobody can tell who took what then. Local.
std::optional<std::int64_t> free_gpu_memory(const std::vector<RankDevice>& devices,
                                            const std::vector<std::int64_t>& before_bytes,
                                            const std::map<int, std::int64_t>& after_bytes);

/// Makes planned members infeasible that need more of the device than that, unless they have run:
/// those are given. Local.
std::vector<std::size_t> drop_what_does_not_fit(PlannedSpace& space, std::int64_t free_memory_bytes,
                                                const std::function<bool(std::size_t)>& has_run);

/// Visits members that are to be run and have a plan.
void visit_planned(const PlannedJob& planned,
                   const std::function<void(const Experiment&)>& visitor);

/// Tells whether our own step is among the instruments, and something is to be run.
[[nodiscard]] bool is_predictable(const PlannedJob& planned);

/// Predicts the time of a job's experiments by their plans, here and in the user's training. It
/// does not outlive the job.
class JobPredictor {
 public:
  /// Without a profile times are not known.
  JobPredictor(const PlannedJob& planned, const std::optional<DeviceProfile>& profile);

  // Nothing without a profile, and for an experiment that uses a disk where how fast that is was
  // not measured.
  /// Seconds of an optimizer step, corrected by what was measured so far.
  [[nodiscard]] std::optional<double> step_s(const Experiment& experiment);
  /// Seconds of warming up and measuring it.
  [[nodiscard]] std::optional<double> experiment_s(const Experiment& experiment);
  /// Throughput, here and where there is a calibration the target's.
  void predict(const Experiment& experiment, Prediction& predicted);
  void observe(const Experiment& experiment, const Measurement& measurement);
  /// How times here become the target's from now on.
  void calibrate(const std::optional<TimeCalibration>& calibration) { calibration_ = calibration; }
  /// Throughputs lie between these multiples of what is predicted.
  void set_band(double low, double high) { band_ = {low, high}; }
  /// Returns what DeepSpeed does in a step beside its operations.
  [[nodiscard]] Overheads overheads(const Experiment& experiment);
  /// From now on overheads() has what gloo puts on links, by constants that price it.
  void count_link(const TimeCalibration& constants) { linked_ = constants; }
  [[nodiscard]] const std::optional<DeviceProfile>& profile() const { return predictor_.profile(); }

 private:
  [[nodiscard]] bool is_known(const Experiment& experiment) const;

  MeasureOptions measure_;
  std::shared_ptr<const WorkspaceSizes> workspaces_;
  StepPredictor predictor_;
  std::optional<TimeCalibration> calibration_, linked_;
  std::optional<std::pair<double, double>> band_;
};

struct MeasuredMachine {
  std::unique_ptr<JobPredictor> predictor;  ///< null where nothing could be measured
  BytesAfter bytes_after{};
};

/// Has all groups measure the machine before the first experiment. It takes instead what the
/// journal has of an earlier job that had the same to measure. The result is written to
/// `profile_path` where that is given. `drain_timeout_s`: as Attempts::Limits'. Throws IoError.
MeasuredMachine measure_machine(const OpenJob& job, AttemptDriver& driver,
                                const std::function<bool()>& is_to_be_ended,
                                const std::optional<std::string>& profile_path,
                                double drain_timeout_s);

/// Gives bytes between nodes the time that they took when the machine was measured, in this job or
/// in an earlier one that the journal has. Nothing changes where a training has no such by gloo.
void price_link(OpenJob& job, JobPredictor& predictor);
/// … in a plan, by what an earlier job measured. Returns the price, 0 where there is none.
double price_link(TimeCalibration& time, const DeviceProfile& profile, JobPredictor& predictor);

/// For a dry run: what this process alone can tell within a second of its own time, by the least of
/// several rounds, with the threads of a rank where a group of the plan runs on this host. A single
/// thread is timed by the time that it had a processor, so that the load of others does not count.
/// Collectives are estimated by the memory's speed.
struct MeasuredAlone {
  std::unique_ptr<JobPredictor> predictor;  ///< null where it can tell nothing
  /// Shares of the host's processors while it was measured; 0: none known. `stolen` is a part of
  /// what others used: other virtual machines ran.
  double used_by_others = 0, stolen = 0;
  bool has_shared_work = false;  ///< one thread was measured, and a rank has several as fast ones
};
MeasuredAlone measure_alone(const PlannedJob& planned, Device& device);

/// Tells whether a step of it is planned. Members that DeepSpeed's engine runs need no plan.
[[nodiscard]] inline bool has_plan(const PlannedExperiment& planned) {
  return planned.predicted.peak_memory_bytes > 0 || planned.predicted.target_memory_bytes > 0;
}

/// Predicts how fast members will be in DeepSpeed's engine, as far as this process alone can tell.
/// The search begins with it.
void predict_engine_members(PlannedJob& planned, Device& device);

/// Limits of a job's experiments, as the instrument that runs them and predictions say.
struct TrialLimits {
  const JobSpec& job;
  const Instrument& instrument;
  std::optional<double> trial_timeout_s;
  bool is_on_gpus;
  double abort_grace_s;
  JobPredictor* predictor = nullptr;  ///< null: nothing is predicted

  [[nodiscard]] Attempts::Limits of(const PlannedExperiment& planned) const;
};

}  // namespace dstune
