#pragma once
// State that comm's sources share.

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>

#include "dstune/comm/communicator.hpp"
#include "mpi_library.hpp"

namespace dstune {

/// Throws MpiError with MPI's own words where a call has failed.
void check_mpi(const MpiResult& result);
/// MPI runs: neither before its start nor after its end.
bool mpi_is_running();
/// Something was given up while a peer may still be inside.
inline std::atomic<bool> anything_abandoned{false};

struct Request::State {
  // Their memory is kept and used again, so that a training step takes none from the heap.
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory) noexcept;

  MpiLibrary::Operation operation;
  bool done = false;
};

struct Communicator::State {
  State(MpiLibrary::Comm comm, bool owned);
  ~State();

  // A message that was matched and is still on its way.
  struct Arriving {
    int source;
    int tag;
    std::unique_ptr<Bytes> data;
    Request request;
  };

  MpiLibrary::Comm comm;
  bool owned;
  std::mutex arriving_mutex;
  std::list<Arriving> arriving;
};

}  // namespace dstune
