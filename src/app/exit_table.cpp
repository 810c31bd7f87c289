#include "exit_table.hpp"

namespace dstune {

const std::vector<ExitRow>& exit_table() {
  static const std::vector<ExitRow> rows{
      {ExitCode::ok, "done",
       "A job has written the optimal configuration. A plan has a member that can run."},
      {ExitCode::internal, "internal error", "The program crashed, or MPI failed or is missing."},
      {ExitCode::usage, "bad command line", "The message names the option."},
      {ExitCode::bad_input, "bad input",
       "Every problem is named with its file, JSON pointer and line."},
      {ExitCode::nothing_feasible, "nothing feasible",
       "No member fits, or every experiment failed. The summary has each reason."},
      {ExitCode::no_device, "no usable device",
       "A limit (`ulimit -s`, `-v`, `-d`, `-n`) may be too low to start, or a check found "
       "something "
       "that does not work."},
      {ExitCode::not_writable, "results can not be written",
       "The folder, the disk or the memory that ranks share refuses it, or another job writes in "
       "the "
       "results folder."},
      {ExitCode::stopped_early, "stopped early (the same command resumes)",
       "The time limit or a signal ended the job, or it lost too many ranks."}};
  return rows;
}

}  // namespace dstune
