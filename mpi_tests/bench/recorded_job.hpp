#pragma once
/// A job that was recorded (record_jobs.py), and what an estimate of its end says at any moment of
/// it. What the tuner and the finals expect is asked of those of today, which hear of all runs that
/// had ended by then in the order in which they did. Local.

#include <optional>
#include <string>
#include <vector>

#include "dstune/core/job.hpp"
#include "dstune/report/job_state.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/space/job_spec.hpp"

namespace dstune::bench {

struct RecordedRun {
  std::size_t member = 0;
  std::optional<RepeatKind> repeat{};
  double begin_s = 0;  ///< its ranks were told; seconds from the job's beginning
  double start_s = 0;  ///< its steps began
  double end_s = 0;
  int num_ranks = 1;
  bool is_alone = false;
  Measurement measurement{};  ///< some of the timed steps
};

struct RecordedJob {
  std::string name;
  int num_ranks = 1;
  std::optional<double> time_limit_s{};
  double others = 0;  ///< cores that other processes took meanwhile
  double end_s = 0;   ///< of the last run
  JobSpec job{};
  PlannedSpace space{};           ///< with the predictions from before the search
  bool has_target = false;        ///< members are ranked by the target's time
  std::vector<RecordedRun> runs;  ///< in the order in which they ended
};

/// `scratch`: a folder for files. Throws InputError, Error.
[[nodiscard]] RecordedJob read_recorded_job(const std::string& path, const std::string& scratch);

/// The estimate at a moment of the job; nothing where there was none yet.
[[nodiscard]] std::optional<TimeLeft> estimate_at(const RecordedJob& job, double moment_s);

}  // namespace dstune::bench
