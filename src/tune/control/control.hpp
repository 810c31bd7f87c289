#pragma once
/// Rank 0's search.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/base/log.hpp"
#include "dstune/comm/mailbox.hpp"
#include "dstune/comm/topology.hpp"
#include "dstune/ranking/scoreboard.hpp"
#include "dstune/report/history.hpp"
#include "dstune/tune/job.hpp"
#include "start/preparation.hpp"

namespace dstune {

/// Runs rank 0's preparation and turns its failures into a message and an exit code.
template <class Work>
ExitCode guarded(Work&& work) {
  try {
    return work();
  } catch (const InputError& error) {
    for (const Problem& problem : error.problems()) log::error(problem.text());
    return ExitCode::bad_input;
  } catch (const UsageError& error) {
    log::error(error.what());
    return ExitCode::usage;
  } catch (const IoError& error) {
    log::error(error.what());
    return ExitCode::not_writable;
  }
}

/// What the history says of a space before anything runs; `keys`: the record key of each member.
Scoreboard known_scoreboard(const PlannedSpace& space, const std::vector<std::string>& keys,
                            const History& history, ScoreboardSetup setup);
/// By row: jobs that died while it was run once more.
std::map<std::size_t, int> deaths_in_repeats(const std::vector<std::string>& keys,
                                             const History& history);

/// What each rank's process holds before the first experiment, and its GPU; 0: not known.
struct BytesBefore {
  std::vector<std::int64_t> resident, gpu;
};

/// Everything but the worker: measures the machine, runs the controller, prints the summary. Ends
/// with a QUIT to every rank. Rank 0 only; talks to the workers through the mailbox.
void control(const JobOptions& options, Preparation& ready, const Topology& topology,
             const std::vector<RankDevice>& devices, const BytesBefore& bytes, Mailbox& mailbox);

}  // namespace dstune
