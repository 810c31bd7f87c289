#pragma once
/// The searches of a job, each by one instrument: by the workload, and, where that is our own step
/// and the user wants it, by DeepSpeed's engine beside it, which then decides. Rank 0 only.

#include <memory>
#include <optional>
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

/// What all searches of a job share. All of it outlives them.
struct SearchParts {
  const JobOptions& options;
  Preparation& ready;
  const JobEnd& end;
  TrialLimits& limits;
  JobPredictor* predictor;
  ProcessMemoryPredictor& memory;
  SlotPool& slots;
  AttemptDriver& driver;
};

/// One of a job's searches, by one instrument.
struct InstrumentSearch {
  const WorkloadSpec& workload;
  const std::vector<std::string>& keys;
  bool is_beside = false;     ///< the engine beside our own step, which decides
  bool is_screening = false;  ///< our own step, where that engine decides
  bool goes_on = false;       ///< the same instrument goes on with the scoreboard later
  bool is_complete = false;   ///< an earlier job has ended it
};

/// How it ended, and what it has come to; that points into the board.
struct SearchResult {
  SearchEnd end;
  Answer answer;
};

/// Runs it to its end, with all that it writes. The workers are idle afterwards or lost.
SearchResult run_instrument(const SearchParts& parts, const InstrumentSearch& instrument,
                            Scoreboard& board, Tuner& tuner);

/// What the engine has measured before.
Scoreboard verified_scoreboard(const Preparation& ready);
/// The search with both: the engine runs a few members, our own step others as long as it tells
/// more for its price, and the engine goes on and gives the answer. `own`: that search of our step.
SearchResult search_with_both(const SearchParts& parts, std::unique_ptr<Tuner> own,
                              Scoreboard& screened, Scoreboard& verified);

/// How far answers can be trusted, where DeepSpeed's engine measures them: as far as what it trains
/// is the user's. Else empty.
std::string label_of(const WorkloadSpec& workload);

}  // namespace dstune
