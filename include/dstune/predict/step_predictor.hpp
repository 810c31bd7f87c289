#pragma once
/// How long an experiment's steps will take: the time of a StepPlan on a machine that a
/// DeviceProfile describes, corrected by experiments that were measured. All functions: Local.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dstune/core/experiment.hpp"
#include "dstune/core/policy.hpp"
#include "dstune/core/target_time.hpp"
#include "dstune/core/training_config.hpp"
#include "dstune/plan/step_plan.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/predict/link_traffic.hpp"
#include "dstune/predict/roofline.hpp"

namespace dstune {

/// Times of single operations for groups of one shape, looked up once for each different one. Work
/// that was not measured is scaled from the nearest measured work of its kind by amount(). A
/// collective over a part of the group is scaled from a group of the part's shape. One of an
/// unmeasured shape is scaled from the measured shape of nearest size. Kinds that were not measured
/// are of the profile's published rates; without these, of the memory's speed.
class OperationTimes {
 public:
  /// The profile outlives it. `kernels`: times are of published rates alone, and of these kernels.
  OperationTimes(const DeviceProfile& profile, GroupShape shape,
                 const std::optional<TargetKernels>& kernels = std::nullopt);

  [[nodiscard]] const DeviceProfile& profile() const { return *profile_; }
  [[nodiscard]] double slowdown() const { return slowdown_; }
  /// The links that a collective of published rates has to itself: 0 of a node, 1 between nodes.
  /// Nothing: times were measured, beside others or not.
  [[nodiscard]] std::optional<std::size_t> links_of(const Work& work) const;
  /// `on_host`: the processors beside a GPU do it, which only published rates tell apart.
  [[nodiscard]] double seconds(const Work& work, bool on_host = false);

 private:
  struct Slot {
    Work work;
    bool on_host = false;
    double seconds = -1;
  };
  [[nodiscard]] double look_up(const Work& work, bool on_host) const;
  [[nodiscard]] double estimate_collective(const Work& work) const;
  /// Measured: as many ranks as a part of the group has, inside a node or one on each, as there.
  [[nodiscard]] const GroupProfile* group_like_part(const Work& work) const;

  const DeviceProfile* profile_;
  GroupShape shape_;
  const GroupProfile* group_ = nullptr;
  double slowdown_ = 1;
  double seconds_per_byte_ = 0;
  std::optional<Roofline> roofline_;
  bool is_measured_;         ///< and not of the target's kernels
  std::vector<Slot> known_;  ///< by the hash of the work; a newer one takes an older one's place
};

/// Seconds of a cycle in its steady state, its middle micro-steps folded.
struct CycleTime {
  double ends_s = 0;          ///< first and last micro-step, and the update
  double middle_s = 0;        ///< one middle micro-step
  std::int64_t num_ends = 0;  ///< micro-steps of `ends_s`: the last one may be a middle one
  /// An optimizer step of so many micro-steps in all.
  [[nodiscard]] double step_s(std::int64_t num_micro_steps) const {
    return ends_s + static_cast<double>(num_micro_steps - num_ends) * middle_s;
  }
};

/// DeepSpeed's work beside a cycle's operations, folded likewise.
struct CycleOverheads {
  Overheads ends{}, middle{};
  LinkTraffic ends_traffic{}, middle_traffic{};
  std::int64_t num_ends = 0;
  /// The overheads of an optimizer step of so many micro-steps in all.
  [[nodiscard]] Overheads of_step(std::int64_t num_micro_steps) const;
  [[nodiscard]] LinkTraffic traffic_of_step(std::int64_t num_micro_steps) const;
};
/// `shape`: the group's; without it the group is on one node.
[[nodiscard]] CycleOverheads cycle_overheads(const StepPlan& plan, GroupShape shape = {});

/// Tells whether the repeated steps of a folded cycle are those that come right before them once
/// more, so that they may stand for further layers.
[[nodiscard]] bool repeats_alike(const StepPlan& plan);

/// The plan's operations on a virtual clock a stream, with events. The time is that of the plan's
/// rank; partitions are padded to equal sizes, so that every rank takes as long.
[[nodiscard]] CycleTime cycle_time(const StepPlan& plan, OperationTimes& times);

/// Corrects the predictions of other experiments by the measured ones: a regression of the
/// logarithm of measured over predicted time on a few features of the configuration. Bayesian
/// linear regression (Bishop, Pattern Recognition and Machine Learning, section 3.3) with a normal
/// prior of mean 0 on every weight: with few measurements it stays near 1. Features: a constant,
/// ZeRO stage 1, 2 and 3 (of several ranks), offload, the logarithms of micro-batch, accumulation
/// and group size.
class PredictionCorrection {
 public:
  explicit PredictionCorrection(const Policy::Predicting& policy = default_policy().predicting)
      : policy_(&policy) {}

  /// Both positive and finite.
  void observe(const TrainingConfig& config, int group_size, double predicted_s, double measured_s);
  /// The factor on the predicted time.
  [[nodiscard]] double at(const TrainingConfig& config, int group_size) const;

 private:
  static constexpr std::size_t num_features = 8;
  using Vector = std::array<double, num_features>;
  struct Observation {
    Vector features;
    double log_ratio;
  };

  static Vector features_of(const TrainingConfig& config, int group_size);
  void fit();

  const Policy::Predicting* policy_;
  std::vector<Observation> observations_;
  Vector weights_{};
};

/// The time of a step of the user's training, by published rates: it lies between the two others.
struct TargetStepTime {
  double seconds = 0;
  double low_s = 0, high_s = 0;
  double device_s = 0;  ///< of these, without the host's work
};

/// Predicts, learning from what was measured. Plans are built once for all configurations that
/// differ in what takes no time, or in how often the middle micro-step is repeated.
class StepPredictor {
 public:
  /// Without a profile it knows no times. The workspaces outlive it. `target`: the training whose
  /// times by published rates are wanted.
  StepPredictor(const ModelSpec& model, std::optional<DeviceProfile> profile,
                const WorkspaceSizes& workspaces,
                const Policy::Predicting& policy = default_policy().predicting,
                const std::optional<TargetSpec>& target = std::nullopt);
  StepPredictor(const StepPredictor&) = delete;
  StepPredictor& operator=(const StepPredictor&) = delete;

  /// A step of the user's training on the machine whose rates the profile has. Nothing: the profile
  /// was measured, no target was named, it is the built-in step, or rates are missing for such a
  /// group (roofline_lacks).
  [[nodiscard]] std::optional<TargetStepTime> target_time(const Experiment& experiment);
  /// Seconds of an optimizer step, corrected by what was measured. It needs a profile.
  [[nodiscard]] double predict(const Experiment& experiment);
  /// A measured mean step time. It needs a profile.
  void observe(const Experiment& experiment, double step_s);
  /// DeepSpeed's work in an optimizer step beside its operations.
  [[nodiscard]] Overheads overheads(const Experiment& experiment);
  /// The bytes that an optimizer step puts on a node's link.
  [[nodiscard]] LinkTraffic traffic(const Experiment& experiment);
  [[nodiscard]] const std::optional<DeviceProfile>& profile() const { return profile_; }

 private:
  struct Planned {
    CycleTime time{};
    std::optional<CycleTime> target_device{};  ///< the device's part of the training's step
    CycleOverheads overheads{};
  };
  struct OfShape {
    std::optional<OperationTimes> times;
    std::vector<std::pair<TargetKernels, OperationTimes>> target_times;
    std::unordered_map<TrainingConfig, Planned, TrainingConfigHash> known;
  };
  const Planned& planned(const Experiment& experiment);
  /// Seconds by the profile alone.
  double model_s(const Experiment& experiment);

  /// The times of the training's kernels, or null.
  OperationTimes* target_times(OfShape& of_shape, GroupShape shape, const TrainingConfig& config);

  ModelSpec model_;
  std::optional<DeviceProfile> profile_;
  std::optional<TargetSpec> target_;
  std::int64_t num_adapters_;  ///< of LoRA
  StepPlanner planner_;
  std::map<GroupShape, OfShape> shapes_;
  PredictionCorrection correction_;
};

}  // namespace dstune
