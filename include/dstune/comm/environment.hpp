#pragma once
/// MPI itself, started and ended once a process. A library beside the program calls it, which is
/// opened where MPI is first needed.

#include <string>

namespace dstune {

/// Starts MPI asking for MPI_THREAD_MULTIPLE and ends it. One a process.
class MpiEnvironment {
 public:
  /// Collective over the world. Throws MpiError, also where there is no MPI.
  MpiEnvironment(int& argc, char**& argv);
  /// Collective over the world where finalize() was not called and nothing was abandoned.
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  /// Tells whether MPI was started with MPI_THREAD_MULTIPLE, and a communicator is known. Local.
  static bool threads_allowed();

  /// Ends MPI in the ordinary way. Collective over the world.
  void finalize();
  /// After a loss MPI_Finalize would wait for the dead: flushes and leaves the process. Local.
  [[noreturn]] static void leave_without_finalize(int exit_code);
  /// Ends the whole job, for an internal error. Local.
  [[noreturn]] static void abort(int exit_code);
  /// Says what is missing for MPI to be started; empty where nothing is. Starts nothing. Local.
  static std::string unavailable_reason();
  /// "Open MPI v4.1.4, …", or "not found (…)" with the reason; one line. Needs no running MPI.
  /// Local.
  static std::string library_version();
};

}  // namespace dstune
