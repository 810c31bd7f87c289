#include "exit_table.hpp"

namespace dstune {

const std::vector<ExitRow>& exit_table() {
  static const std::vector<ExitRow> rows{
      {ExitCode::ok, "done",
       "The optimal configuration is written; a plan has a member that can run."},
      {ExitCode::internal, "internal error", "Also where MPI failed or is missing."},
      {ExitCode::usage, "bad command line", ""},
      {ExitCode::bad_input, "bad input",
       "Every problem is named with its file, JSON pointer and line."},
      {ExitCode::nothing_feasible, "nothing feasible",
       "Also where every experiment failed; the summary has each reason."},
      {ExitCode::no_device, "no usable device",
       "Also where a limit (ulimit) lets nothing start, or a check finds what does not work."},
      {ExitCode::not_writable, "results can not be written",
       "Also where another job writes in the results folder."},
      {ExitCode::stopped_early, "stopped early (the same command resumes)",
       "The time limit, a signal, or too many ranks that were lost."}};
  return rows;
}

}  // namespace dstune
