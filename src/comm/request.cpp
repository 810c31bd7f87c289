#include "mpi_state.hpp"

namespace dstune {

Request::Request() noexcept = default;
Request::Request(Request&&) noexcept = default;
Request& Request::operator=(Request&&) noexcept = default;
// MPI forbids freeing an active collective's request, so an unfinished one is only forgotten.
Request::~Request() = default;
Request::Request(std::unique_ptr<State> state) : state_(std::move(state)) {}

bool Request::test() {
  if (!state_ || state_->done) return true;
  int flag = 0;
  check_mpi(MPI_Test(&state_->request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
  state_->done = flag != 0;
  return state_->done;
}

}  // namespace dstune
