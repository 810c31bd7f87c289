#include <array>
#include <new>

#include "mpi_state.hpp"

namespace dstune {
namespace {

/// Memory of states that are gone: as many as a group of a node's ranks has at once.
struct SpareStates {
  std::mutex mutex;
  std::array<void*, 64> memory{};
  std::size_t count = 0;
};

SpareStates& spare_states() {
  static SpareStates spare;
  return spare;
}

}  // namespace

void* Request::State::operator new(std::size_t bytes) {
  SpareStates& spare = spare_states();
  const std::lock_guard lock(spare.mutex);
  return spare.count > 0 ? spare.memory[--spare.count] : ::operator new(bytes);
}

void Request::State::operator delete(void* memory) noexcept {
  SpareStates& spare = spare_states();
  const std::lock_guard lock(spare.mutex);
  if (spare.count < spare.memory.size()) {
    spare.memory[spare.count++] = memory;
  } else {
    ::operator delete(memory);
  }
}

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
