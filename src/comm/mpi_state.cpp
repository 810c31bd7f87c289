#include "mpi_state.hpp"

#include <atomic>
#include <limits>
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

}  // namespace dstune
