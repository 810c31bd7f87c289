#pragma once
/// A planned job that has its results folder, and knows what earlier jobs left there. Rank 0's.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dstune/instrument/instrument.hpp"
#include "dstune/kernels/cuda.hpp"
#include "dstune/report/chosen_folders.hpp"
#include "dstune/report/folder_lock.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/report/results.hpp"
#include "start/planned_job.hpp"

namespace dstune {

struct OpenJob : PlannedJob {
  explicit OpenJob(PlannedJob planned) : PlannedJob(std::move(planned)) {}

  const Instruments* instruments = nullptr;  ///< that have started, as of the job; they outlive it
  std::unique_ptr<FolderLock> lock;  ///< from before anything is written to the end of all writing
  std::unique_ptr<ResultsFolder> results;
  std::unique_ptr<Journal> journal;
  History history;
  kernels::CudaChoices choices;  ///< of libraries' candidates
  json::Value fingerprint;       ///< of the machine
  /// The record key of each member, as the instrument that decides measures it, …
  std::vector<std::string> keys;
  /// … and as our own step would, where that is another one.
  std::vector<std::string> keys_of_own_step;
  bool is_search_complete = false;  ///< an earlier job has ended the very same one
  std::string target_key;  ///< of what measures the target's costs here; empty: nothing does

  /// As our own step measures members: imports are known by these.
  [[nodiscard]] const std::vector<std::string>& own_keys() const {
    return keys_of_own_step.empty() ? keys : keys_of_own_step;
  }
  [[nodiscard]] bool has_other_keys() const { return own_keys() != keys; }
  [[nodiscard]] Instrument& deciding() const { return *instruments->back(); }
  /// The place of the engine among the job's instruments: it and our own step are two.
  [[nodiscard]] std::size_t place_of_engine() const { return job.is_by_engine() ? 1 : 0; }
};

/// Returns the shape of the groups that most members of the space run on; the largest one where
/// there are several.
GroupShape usual_shape(const PlannedSpace& space);

/// Which folders a job takes, and what it must not write.
struct JobFolders {
  FolderNames names;
  InputFiles inputs;
};
/// Throws InputError that names what is in the way. Changes nothing on disk. Local.
JobFolders choose_job_folders(const PlannedJob& planned, const JobOptions& options);

/// Facts of the rank and the job that opening asks for.
struct OpenOptions {
  const Topology& topology;
  const std::vector<RankDevice>& devices;
  const std::vector<PlacementFinding>& placement;
  const std::string& energy;  ///< what is counted where rank 0 is, or why nothing is
  /// Called with the path of exit_status.json as soon as nobody else may write it.
  std::function<void(const std::string&)> on_held;
};

/// Locks and opens the results folder and the journal, and writes what is known before the first
/// experiment. Throws InputError (damaged journal), IoError (another job holds the folder, too).
void open_results(OpenJob& job, const JobFolders& folders, const JobOptions& options,
                  const OpenOptions& open);

/// Ends a job whose time for planning is over, and says so in exit_status.json alone. Throws
/// IoError.
ExitCode end_while_planning(const JobFolders& folders);

}  // namespace dstune
