#pragma once
/// A recorded space: what every member of it measured when all were run (docs/inside/search.md).
///
/// It is two files. tables/NAME.json is a replay table, as dstune.workload takes it: of the warm-up
/// only the last start_profile_step steps are kept, which is what a replay leaves out, and steps
/// 20 ms longer than the median, in which the machine did something else, are not; nor are runs
/// that took 4 % longer than the middle one of the member's runs. Times are divided by the level of
/// their search ("levels" of made.json): the machine is faster at one time than at another. A table
/// recorded on a disturbed machine has all of them, as they were. Of such a table "run_steps" says
/// how many steps each run has, and "quiet_step_s" how long one takes where nothing disturbs it:
/// the median over as many runs of the same member in between. tables/NAME.made.json says how and
/// when it was made, and holds the DeviceProfile of that moment, the throughput that it predicts
/// for each member, and what the members differ in.

#include <cstddef>
#include <string>
#include <vector>

#include "dstune/search/planner.hpp"
#include "dstune/space/job_spec.hpp"
#include "table_predictions.hpp"

namespace dstune::bench {

struct SearchTable {
  std::string name;
  JobSpec job;
  PlannedSpace space;                     ///< its planned members are the table's rows
  std::vector<Measurement> measurements;  ///< of each member, its runs one after the other
  std::vector<std::size_t> runs;          ///< of each member: how many these are
  /// Of each member, the timed steps of each run; empty where runs are not to be told apart.
  std::vector<std::vector<std::size_t>> run_steps;
  std::vector<double> quiet_step_s;          ///< of each member; 0 where it was not measured apart
  std::vector<double> recorded_predictions;  ///< throughputs; 0 of what did not run
};

/// Reads tables/NAME.json, what lies beside it, and the space that it names. Throws InputError,
/// Error, and CanNotPredict where the profile does not say what the space needs.
SearchTable read_table(const std::string& path, const PredictionsOf& predictions);

/// Those of the files that are tables. One whose predictions can not be had is named and left out.
/// Throws likewise, and Error where none is left.
std::vector<SearchTable> read_tables(const std::vector<std::string>& paths,
                                     const PredictionsOf& predictions);

/// What a member is worth: its recorded mean, or what it took where nothing disturbed it. 0: it did
/// not run.
double worth_of(const SearchTable& table, std::size_t member);

/// Makes a table of finished searches of all members: the space, the file of --profile-out, words
/// on how it was run, and the results folder of each search. Timed steps of a member come one
/// search after the other. Where there are results of quiet searches, the others were disturbed.
/// Throws InputError, Error.
void record_table(const std::string& table_path, const std::string& space_path,
                  const std::string& profile_path, const std::string& words,
                  const std::vector<std::string>& results_dirs,
                  const std::vector<std::string>& quiet_dirs = {});

}  // namespace dstune::bench
