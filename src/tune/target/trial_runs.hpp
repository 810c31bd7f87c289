#pragma once
/// Runs configurations on one group before the search begins. Rank 0 only. Knows no MPI.

#include <functional>
#include <utility>
#include <vector>

#include "dstune/instrument/target_measuring.hpp"
#include "protocol/attempts.hpp"

namespace dstune {

class TrialRuns {
 public:
  struct Options {
    std::vector<int> world_ranks;            ///< the group, ascending
    double abort_grace_s = 10;               ///< as Attempts::Limits'
    std::function<bool()> is_to_be_ended{};  ///< a signal, the time limit; may be empty
  };
  /// The driver outlives it.
  TrialRuns(AttemptDriver& driver, Options options)
      : driver_(driver), options_(std::move(options)) {}

  /// A lost rank or the job's end makes it the last.
  TrialEnd run(const Trial& trial);

 private:
  AttemptDriver& driver_;
  Options options_;
};

}  // namespace dstune
