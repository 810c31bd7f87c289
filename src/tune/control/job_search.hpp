#pragma once
/// The search of a job: by the instrument that decides, with forecasts of the others. Rank 0 only.

#include <string>
#include <vector>

#include "control/controller.hpp"
#include "dstune/ranking/answer.hpp"
#include "profile/prediction.hpp"

namespace dstune {

/// How a search ended.
struct SearchEnd {
  ExitCode code = ExitCode::internal;
  std::string reason;
  bool can_finalize = true;
};

/// Measurements and decisions that precede a search. All of it outlives the search.
struct SearchParts {
  const JobOptions& options;
  OpenJob& job;
  const JobEnd& end;
  const TrialLimits& limits;
  JobPredictor* predictor;  ///< null: times are not predicted
  ProcessMemoryPredictor& memory;
  SlotPool& slots;
  AttemptDriver& driver;
  const Topology& topology;
  Progress& progress;
};

/// How it ended, and what it has come to; that points into the scoreboard.
struct SearchResult {
  SearchEnd end;
  Answer answer;
};

/// Returns what is known of the job's members before anything runs.
[[nodiscard]] Scoreboard scoreboard_of(const OpenJob& job);

/// Runs the search to its end, with all that it writes. The workers are idle afterwards or lost.
SearchResult search(const SearchParts& parts, Scoreboard& scoreboard);

}  // namespace dstune
