#include "dstune/comm/environment.hpp"

#include <cstdlib>
#include <exception>

#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/output.hpp"
#include "mpi_state.hpp"

namespace dstune {

void check_mpi(const MpiResult& result) {
  if (result.has_failed())
    throw MpiError(std::string(result.call) + ": " + mpi().error_text(result.code));
}

bool mpi_is_running() {
  const MpiLibrary* const opened = opened_mpi;
  return opened != nullptr && opened->is_running();
}

MpiEnvironment::MpiEnvironment(int& argc, char**& argv) {
  // Started without mpirun, Open MPI 4 would start a daemon of its own for spawning, which nobody
  // here does.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
  check_mpi(mpi().start(argc, argv));
}

MpiEnvironment::~MpiEnvironment() {
  // An exception on its way out may have left the others in a collective: finalizing would wait for
  // them, and the abort that gets them out would never come.
  if (std::uncaught_exceptions() > 0) return;
  if (!anything_abandoned && mpi_is_running()) finalize();
}

bool MpiEnvironment::threads_allowed() {
  if (!mpi_is_running()) return false;
  bool is_multiple = false;
  check_mpi(mpi().query_threads(is_multiple));
  return is_multiple;
}

void MpiEnvironment::finalize() {
  // The job has ended and its results are written: what fails now changes nothing.
  if (mpi().finalize().has_failed()) anything_abandoned = true;
}

void MpiEnvironment::leave_without_finalize(int exit_code) {
  flush_output();
  _exit(exit_code);
}

void MpiEnvironment::abort(int exit_code) {
  flush_output();
  if (mpi_is_running()) mpi().abort(exit_code);
  _exit(exit_code);
}

std::string MpiEnvironment::unavailable_reason() {
  try {
    open_mpi();
  } catch (const MpiError& error) {
    return error.what();
  }
  return "";
}

std::string MpiEnvironment::library_version() {
  const std::string reason = unavailable_reason();
  if (!reason.empty()) return "not found (" + reason + ")";
  const std::string version = mpi().version();
  return version.substr(0, version.find('\n'));
}

}  // namespace dstune
