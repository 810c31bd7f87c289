#pragma once
/// The outcome of an experiment's run.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/core/experiment.hpp"
#include "dstune/core/interval.hpp"

namespace dstune {

enum class Status { ok, raced_out, out_of_memory, timed_out, failed };
[[nodiscard]] const EnumTexts& texts_of(Status);

enum class Metric { throughput, throughput_per_gpu, latency, flops };
[[nodiscard]] const EnumTexts& texts_of(Metric);
/// "samples/s", … : what a value of it counts.
[[nodiscard]] std::string_view unit_text(Metric metric);
/// Is a smaller value the better one? (latency)
[[nodiscard]] bool is_minimised(Metric metric);

struct PeakMemory {
  /// Arena bytes of the fullest rank, by their own high-water marks: the device's and the host's.
  std::int64_t total_bytes = 0;
  std::map<std::string, std::int64_t> category_bytes;  ///< of both arenas, each at its peak
  std::int64_t process_bytes = 0;  ///< resident bytes of the process, fullest rank
  std::int64_t host_bytes = 0;     ///< of total_bytes: those in the host's arena
  /// The memory that a rank's GPU has less for its process, fullest rank: the arena, communicators,
  /// context and libraries. 0: no GPU, or not known.
  std::int64_t gpu_bytes = 0;
  std::int64_t communicator_bytes = 0;  ///< of these, NCCL's, on the leader
  std::int64_t graph_bytes = 0;         ///< … what micro-steps as graphs took, fullest rank
};

/// How the GPUs of a group were while its steps were timed. 0: nobody told.
struct GpuCondition {
  double sm_clock_mhz = 0;      ///< the lowest at any look, on any of them
  double max_sm_clock_mhz = 0;  ///< that GPU's highest
  double temperature_c = 0;     ///< the highest
  double power_w = 0;           ///< likewise
  std::string throttled_by;     ///< as throttle_text says it: at any look, on any of them
};

/// One experiment on one group, as its leader saw it. Times are the slowest rank's.
struct Measurement {
  Status status = Status::failed;
  std::string reason;                ///< empty where status is ok
  std::vector<double> step_times_s;  ///< every optimizer step from the first
  int warmup_steps = 0;              ///< how many of them are warm-up
  /// Numbers of the steps whose update was left out because a gradient overflowed (fp16), rising.
  /// Their times stand in step_times_s and count for nothing.
  std::vector<std::int64_t> skipped_steps;
  std::vector<double> losses;  ///< one a step, mean over the global batch before the update
  double forward_s = 0;        ///< of one micro-step, mean over the timed steps
  double backward_s = 0;       ///< likewise
  double update_s = 0;         ///< of one optimizer step: reduction at the boundary and update
  double flops_per_step = 0;   ///< of the whole group, by the model's formula
  PeakMemory peak_memory;
  std::vector<int> world_ranks;
  std::vector<std::string> hosts;
  /// The forward of one micro-step for each rank, in their order: mean over the timed steps. Below
  /// stage 3 nobody waits for others in it, so that it tells who is slow. Empty: not known.
  std::vector<double> rank_forward_s;
  /// Joules of the group's nodes over the steps after warm-up. Nothing where they were not counted,
  /// or others may have had a part in them.
  std::optional<double> energy_j;
  std::map<std::string, double> overhead_s;  ///< by phase, beside the steps
  std::optional<GpuCondition> gpu;           ///< nothing on processors, and where nobody told
  /// Slower ways than usual that any rank took: attention in fp32 on GPUs, micro-steps without
  /// graphs, transfers through the system's cache. Empty as a rule.
  std::vector<std::string> fallbacks;
  /// The reason why its times say nothing of a GPU for each rank, or of a training there; usually
  /// empty.
  std::string not_comparable;
  /// Notes for the user on things that a script does beside training; each line is shown once in a
  /// job.
  std::vector<std::string> notes;
};

/// The times of the steps after warm-up that made their update. Local.
[[nodiscard]] std::vector<double> timed_steps_s(const Measurement& measurement);

/// A measurement's value in a metric.
struct MetricValue {
  double value = 0;
  double ci_low = 0;
  double ci_high = 0;
};
/// From the timed steps. Units: samples/s, samples/s per GPU, µs an optimizer step (as
/// DeepSpeed's `latency`), FLOP/s per GPU. Nothing unless status is ok and a step was timed.
[[nodiscard]] std::optional<MetricValue> metric_value(
    const Measurement& measurement, Metric metric, std::int64_t global_batch, int group_size,
    StepEstimate step = StepEstimate::mean,
    const Policy::Intervals& policy = default_policy().intervals);
/// The same of one that was raced out, too: what it had been measured to be by then.
[[nodiscard]] std::optional<MetricValue> value_so_far(
    const Measurement& measurement, Metric metric, std::int64_t global_batch, int group_size,
    StepEstimate step = StepEstimate::mean,
    const Policy::Intervals& policy = default_policy().intervals);

/// The energy by the samples of the steps after warm-up, those without an update among them.
[[nodiscard]] std::optional<double> joules_per_sample(const Measurement& measurement,
                                                      std::int64_t global_batch);

/// A measured experiment as it is kept: the journal's line, the summary's row.
struct Record {
  Experiment experiment;
  Prediction predicted;
  int attempt = 1;
  Measurement measurement;
  std::chrono::system_clock::time_point started_at;   ///< GO sent, rank 0's clock
  std::chrono::system_clock::time_point finished_at;  ///< OUTCOME received
  bool is_alone = false;                              ///< nothing else of the job ran meanwhile
};

/// The reason for one more run of a configuration that was measured. `spread`: the best one so far,
/// to see how much runs differ. `control`: a short run that shows whether the machine is as fast as
/// before. `final_round`: a finalist, alone.
enum class RepeatKind { spread, control, final_round };
[[nodiscard]] const EnumTexts& texts_of(RepeatKind);  ///< "spread", "control", "final"

/// Such a run. Rounds of one kind and configuration count from 1.
struct Repeat {
  RepeatKind kind = RepeatKind::final_round;
  int round = 1;
  Measurement measurement;
  std::chrono::system_clock::time_point started_at;   ///< as in Record
  std::chrono::system_clock::time_point finished_at;  ///< as in Record
  bool is_alone = false;                              ///< as in Record
};

/// The lists of members (base/archive.hpp). A measurement is read strictly. A record and a repeat
/// are read from journals of any release; their amounts are written so that they can be read: what
/// is negative or no number is 0.
template <class Archive>
void members(Archive& archive, json::Of<Archive, GpuCondition>& gpu);
template <class Archive>
void members(Archive& archive, json::Of<Archive, Measurement>& measurement);
template <class Archive>
void members(Archive& archive, json::Of<Archive, Record>& record);
template <class Archive>
void members(Archive& archive, json::Of<Archive, Repeat>& repeat);

[[nodiscard]] json::Value to_json(const GpuCondition& gpu);

}  // namespace dstune
