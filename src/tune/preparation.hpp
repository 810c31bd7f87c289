#pragma once
/// Rank 0's work before the first experiment: the input read, the space planned, the past
/// understood.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dstune/report/history.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/report/results.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/search/tuner.hpp"
#include "dstune/space/job_spec.hpp"
#include "dstune/tune/environment_info.hpp"
#include "dstune/tune/job.hpp"
#include "dstune/tune/job_input.hpp"

namespace dstune {

/// The seed of initial weights and tokens (docs/reference-step.md). Not --seed, which is the
/// tuner's: losses must not depend on how the space is searched.
inline constexpr std::int64_t reference_seed = 0;

struct Preparation {
  JobSpec job;
  std::vector<std::vector<int>> allowed_ranks;   ///< of each node, by hostfile and filter
  std::vector<std::vector<int>> training_ranks;  ///< less rank 0 where it only coordinates
  PlannedSpace space;
  std::unique_ptr<Tuner> tuner;
  std::vector<std::string> keys;  ///< of each member
  History history;
  std::unique_ptr<ResultsFolder> results;
  std::unique_ptr<Journal> journal;
  std::int64_t device_memory_bytes = 0;
  std::int64_t host_memory_bytes = 0;
};

/// Reads and plans; touches no file of the results folder. Throws InputError, UsageError.
Preparation prepare_plan(const JobOptions& options, const Topology& topology,
                         const std::vector<RankDevice>& devices);

/// Opens the results folder and the journal, and writes what is known before the first experiment.
/// Throws InputError (damaged journal), IoError.
void open_results(Preparation& preparation, const JobOptions& options, const Topology& topology,
                  const std::vector<RankDevice>& devices);

/// What every rank needs of it.
JobInput job_input(const Preparation& preparation);

}  // namespace dstune
