#include "dstune/comm/shared_window.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <mpi.h>
#include <sys/statvfs.h>

#include "mpi_state.hpp"

namespace dstune {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr const char* shared_memory_folder = "/dev/shm";

MPI_Win allocate(MPI_Comm comm, std::size_t bytes) {
  // A segment on pages of its own lies in the memory of the core that touches it first.
  MPI_Info info = MPI_INFO_NULL;
  check_mpi(MPI_Info_create(&info), "MPI_Info_create");
  check_mpi(MPI_Info_set(info, "alloc_shared_noncontig", "true"), "MPI_Info_set");
  MPI_Win window = MPI_WIN_NULL;
  void* base = nullptr;
  check_mpi(MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes), 1, info, comm, &base, &window),
            "MPI_Win_allocate_shared");
  check_mpi(MPI_Info_free(&info), "MPI_Info_free");
  return window;
}

// Mappings start at pages in every process, so all round a segment's start alike.
std::byte* page_start(void* address) {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  return reinterpret_cast<std::byte*>((number + page_bytes - 1) / page_bytes * page_bytes);
}

}  // namespace

struct SharedWindow::State {
  MPI_Win window = MPI_WIN_NULL;
  bool abandoned = false;
  std::vector<std::span<std::byte>> segments;
};

SharedWindow::SharedWindow(const Communicator& node, std::size_t bytes_per_rank)
    : state_(std::make_unique<State>()) {
  MPI_Comm comm = node.state_->comm;
  state_->window = allocate(comm, bytes_per_rank + page_bytes);
  check_mpi(MPI_Win_set_errhandler(state_->window, MPI_ERRORS_RETURN), "MPI_Win_set_errhandler");
  for (int rank = 0; rank < node.size(); ++rank) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* base = nullptr;
    check_mpi(MPI_Win_shared_query(state_->window, rank, &bytes, &unit, &base),
              "MPI_Win_shared_query");
    state_->segments.emplace_back(page_start(base), bytes_per_rank);
  }
  const std::span<std::byte> own = segment(node.rank());
  std::memset(own.data(), 0, own.size());
  node.barrier();
}

SharedWindow::~SharedWindow() {
  if (!state_->abandoned && mpi_is_running()) MPI_Win_free(&state_->window);
}

std::span<std::byte> SharedWindow::segment(int local_rank) const {
  return state_->segments.at(static_cast<std::size_t>(local_rank));
}

int SharedWindow::size() const {
  return static_cast<int>(state_->segments.size());
}

void SharedWindow::abandon() noexcept {
  state_->abandoned = true;
  note_abandoned();
}

std::size_t SharedWindow::affordable_bytes(std::size_t wanted, int ranks_on_node) {
  struct statvfs info {};
  // Without the folder the library keeps its segments elsewhere.
  if (statvfs(shared_memory_folder, &info) != 0) return wanted;
  const std::size_t free_bytes = static_cast<std::size_t>(info.f_bavail) * info.f_frsize;
  const std::size_t share = free_bytes / 2 / static_cast<std::size_t>(std::max(ranks_on_node, 1));
  return std::min(wanted, share / page_bytes * page_bytes);
}

}  // namespace dstune
