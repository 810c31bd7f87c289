#pragma once
/// Reads the files that the user's own training left when it ran in DeepSpeed: folders of
/// verification jobs and of DeepSpeed's autotuner, and logs. docs/trust.md has the formats. All
/// functions: Local. Errors: InputError with every problem found.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/core/measurement.hpp"
#include "dstune/space/job_spec.hpp"

namespace dstune {

/// A log's facts on DeepSpeed's optimizer steps.
struct DeepSpeedLog {
  /// A line of its throughput timer (steps_per_print, log_level info): wall clock, rank 0.
  struct Speed {
    std::int64_t step = 0;  ///< number of the optimizer step, from 1
    double samples_per_s = 0;
  };
  /// A line of its wall-clock breakdown: all micro-steps of an optimizer step together, rank 0.
  struct Breakdown {
    double forward_s = 0, backward_s = 0, update_s = 0;
    [[nodiscard]] double total_s() const { return forward_s + backward_s + update_s; }
  };
  std::vector<Speed> speeds;
  std::vector<Breakdown> breakdowns;  ///< from the first step of the log on
  /// The most that rank 0 ever had allocated on its device: MaxMemAllocated, Max_MA.
  std::optional<std::int64_t> peak_memory_bytes;
  /// The configuration, where the log has it (log_level info), and its line.
  std::string config_text;
  int config_line = 0;
  std::optional<std::int64_t> group_size;
};

/// Other lines are skipped, and so is a last one without its end. Adds a problem with its line for
/// each of these lines that can not be read. `path`: for messages.
DeepSpeedLog parse_deepspeed_log(std::string_view text, const std::string& path,
                                 json::Problems& problems);

/// One configuration that ran in DeepSpeed.
struct DeepSpeedRun {
  std::string name;  ///< of its exp.json, else of its folder
  std::string path;  ///< the folder
  int group_size = 1;
  std::optional<GroupShape> shape;     ///< absent: exp.json does not say it
  std::optional<Recompute> recompute;  ///< likewise
  /// Sequence length and recompute are the job's where exp.json does not say them.
  TrainingConfig config;
  /// ok, out_of_memory, timed_out or failed; step times without warm-up, at least one where ok;
  /// peak_memory.total_bytes of rank 0's device, 0 where the log does not say it.
  Measurement measurement;
};

struct DeepSpeedRuns {
  std::vector<DeepSpeedRun> runs;
  std::vector<std::string> skipped;  ///< folders without a result, in words
};

/// The folders below `dir`, by name: each with metrics.json or status.json, and ds_config.json.
/// There must be one with a result.
DeepSpeedRuns read_deepspeed_runs(const std::string& dir, const JobSpec& job);

/// One run of the user's own. `path`: the metrics.json that DeepSpeed's autotuner wrote, or a log;
/// the configuration is ds_config.json or exp.json in the same folder, or the log's own. Its times:
/// of a log the throughput timer's lines, else the wall-clock breakdown's.
DeepSpeedRun read_deepspeed_run(const std::string& path, const JobSpec& job);

/// Returns the experiment that did what the run did: equal in all that acts at its ZeRO stage, in
/// group size and in what else exp.json says. If there are several, it is the one with the run's
/// name, else the first. Nothing where there is none.
std::optional<std::size_t> find_experiment(const DeepSpeedRun& run,
                                           const std::vector<const Experiment*>& experiments);

}  // namespace dstune
