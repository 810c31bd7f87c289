#pragma once
/// The end of a process in which this program's own code has crashed: a fault of the processor
/// (SIGSEGV, SIGBUS, SIGFPE, SIGILL), or abort(). It says where, notes the job's end, and leaves as
/// after any internal error, so that nobody takes the job for one that was only interrupted.
///
/// A signal that somebody sent is no crash, and one inside an experiment is the experiment's: both
/// end the process by the signal, as without this. So does any crash in a process that does not
/// answer for the job. Work that a handler may not do is done before it is needed. Local.

#include <string>

namespace dstune::crash {

/// Takes the signals. A handler that was set before gets the signals that are not for this. Once
/// MPI has started, since Open MPI takes them only where nobody else has.
void watch();

/// This process ends the job where it crashes: rank 0, or one without MPI.
void answer_for_job(bool answers);

/// The calling thread is one of the program's own: "the controller". The text outlives it. Gives
/// the thread a stack for the handler.
void name_thread(const char* part);

/// The path at which exit_status.json is made; one that is there is never replaced. A name that is
/// too long is not kept.
void set_exit_status_path(const std::string& path);

/// Called by the handler right before the process leaves with that code: may do no more than a
/// handler may.
void set_last_note(void (*note)(int exit_code));

/// The calling thread runs an experiment, and with it threads without a name.
class ExperimentScope {
 public:
  ExperimentScope();
  ~ExperimentScope();
  ExperimentScope(const ExperimentScope&) = delete;
  ExperimentScope& operator=(const ExperimentScope&) = delete;
};

}  // namespace dstune::crash
