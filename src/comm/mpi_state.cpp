#include "mpi_state.hpp"

#include <array>
#include <atomic>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

std::atomic<bool> abandoned{false};

constexpr std::size_t largest_count = std::numeric_limits<int>::max();
constexpr std::size_t large_bytes = std::size_t{1} << 30;

// One element of exactly `bytes`: gibibytes and the rest.
MPI_Datatype make_large_type(std::size_t bytes) {
  MPI_Datatype gibibyte = MPI_DATATYPE_NULL;
  check_mpi(MPI_Type_contiguous(static_cast<int>(large_bytes), MPI_BYTE, &gibibyte),
            "MPI_Type_contiguous");
  const int lengths[2] = {static_cast<int>(bytes / large_bytes),
                          static_cast<int>(bytes % large_bytes)};
  const MPI_Aint places[2] = {0, static_cast<MPI_Aint>(bytes / large_bytes * large_bytes)};
  const MPI_Datatype types[2] = {gibibyte, MPI_BYTE};
  MPI_Datatype type = MPI_DATATYPE_NULL;
  check_mpi(MPI_Type_create_struct(2, lengths, places, types, &type), "MPI_Type_create_struct");
  check_mpi(MPI_Type_commit(&type), "MPI_Type_commit");
  check_mpi(MPI_Type_free(&gibibyte), "MPI_Type_free");
  return type;
}

}  // namespace

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

void note_abandoned() {
  abandoned.store(true);
}
bool anything_abandoned() {
  return abandoned.load();
}

ByteBlock::ByteBlock(std::size_t bytes)
    : count_(bytes <= largest_count ? static_cast<int>(bytes) : 1),
      type_(bytes <= largest_count ? MPI_BYTE : make_large_type(bytes)) {}

ByteBlock::ByteBlock(ByteBlock&& other) noexcept
    : count_(other.count_), type_(std::exchange(other.type_, MPI_BYTE)) {}

ByteBlock::~ByteBlock() {
  if (type_ != MPI_BYTE && mpi_is_running()) MPI_Type_free(&type_);
}

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
