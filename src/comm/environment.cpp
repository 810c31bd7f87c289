#include "dstune/comm/environment.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <vector>

#include <mpi.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/output.hpp"
#include "mpi_state.hpp"

namespace dstune {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw MpiError(std::string(call) + ": " + std::string(text, static_cast<std::size_t>(length)));
}

bool mpi_is_running() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

MpiEnvironment::MpiEnvironment(int& argc, char**& argv) {
  // Started without mpirun, Open MPI 4 would start a daemon of its own for spawning, which nobody
  // here does.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
  int granted = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted), "MPI_Init_thread");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiEnvironment::~MpiEnvironment() {
  // An exception on its way out may have left the others in a collective: finalizing would wait for
  // them, and the abort that gets them out would never come.
  if (std::uncaught_exceptions() > 0) return;
  if (!anything_abandoned && mpi_is_running()) MPI_Finalize();
}

bool MpiEnvironment::threads_allowed() {
  if (!mpi_is_running()) return false;
  int granted = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&granted), "MPI_Query_thread");
  return granted == MPI_THREAD_MULTIPLE;
}

void MpiEnvironment::finalize() {
  // Heartbeats of the last seconds were not received, and MPICH 4.2 refuses to end then. Behind the
  // barrier nobody sends any more.
  MPI_Barrier(MPI_COMM_WORLD);
  for (int is_there = 1; is_there != 0;) {
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, &status) != MPI_SUCCESS)
      break;
    if (is_there == 0) break;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::vector<std::byte> unread(static_cast<std::size_t>(std::max(bytes, 0)));
    MPI_Recv(unread.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
  }
  // The job has ended and its results are written: what fails now changes nothing.
  if (MPI_Finalize() != MPI_SUCCESS) anything_abandoned = true;
}

void MpiEnvironment::leave_without_finalize(int exit_code) {
  flush_output();
  _exit(exit_code);
}

void MpiEnvironment::abort(int exit_code) {
  flush_output();
  if (mpi_is_running()) MPI_Abort(MPI_COMM_WORLD, exit_code);
  _exit(exit_code);
}

std::string MpiEnvironment::library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  check_mpi(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  const std::string version(text);
  return version.substr(0, version.find('\n'));
}

}  // namespace dstune
