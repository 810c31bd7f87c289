#pragma once
/// A recorded space: what every member of it measured when all were run (docs/search.md).
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

#include <string>
#include <vector>

#include "dstune/search/planner.hpp"
#include "dstune/space/job_spec.hpp"

namespace dstune::bench {

struct SearchTable {
  std::string name;
  JobSpec job;
  PlannedSpace space;                     ///< its planned members are the table's rows
  std::vector<Measurement> measurements;  ///< of each member, its runs one after the other
  std::vector<std::size_t> runs;          ///< of each member: how many these are
  /// Of each member, the timed steps of each run; empty where runs are not to be told apart.
  std::vector<std::vector<std::size_t>> run_steps;
  std::vector<double> quiet_step_s;  ///< of each member; 0 where it was not measured apart
};

/// Reads tables/NAME.json, what lies beside it, and the space that it names. Predictions are those
/// of the moment, or made anew from the profile of that moment. Throws InputError, Error.
SearchTable read_table(const std::string& path, bool predict_anew);

/// Makes a table of finished searches of all members: the space, the file of --profile-out, words
/// on how it was run, and the results folder of each search. Timed steps of a member come one
/// search after the other. Where there are results of quiet searches, the others were disturbed.
/// Throws InputError, Error.
void record_table(const std::string& table_path, const std::string& space_path,
                  const std::string& profile_path, const std::string& words,
                  const std::vector<std::string>& results_dirs,
                  const std::vector<std::string>& quiet_dirs = {});

}  // namespace dstune::bench
