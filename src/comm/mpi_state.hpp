#pragma once
// State that comm's sources share: the only place besides them that sees mpi.h.

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>

#include <mpi.h>

#include "dstune/comm/communicator.hpp"

namespace dstune {

/// Throws MpiError with MPI's own words where `code` is an error.
void check_mpi(int code, const char* call);
/// MPI runs: neither before its start nor after its end.
bool mpi_is_running();
/// Something was given up while a peer may still be inside.
inline std::atomic<bool> anything_abandoned{false};

/// `bytes` bytes as a count and a type, whatever their number: MPI's counts are ints.
class ByteBlock {
 public:
  explicit ByteBlock(std::size_t bytes);
  ByteBlock(const ByteBlock&) = delete;
  ByteBlock& operator=(const ByteBlock&) = delete;
  ~ByteBlock();
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] MPI_Datatype type() const { return type_; }

 private:
  int count_;
  MPI_Datatype type_;
};

struct Request::State {
  explicit State(std::size_t bytes) : block(bytes) {}
  // Their memory is kept and used again, so that a training step takes none from the heap.
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory) noexcept;

  MPI_Request request = MPI_REQUEST_NULL;
  bool done = false;
  ByteBlock block;  // lives as long as the operation
};

struct Communicator::State {
  State(MPI_Comm comm, bool owned);
  ~State();

  // A message that was matched and is still on its way.
  struct Arriving {
    int source;
    int tag;
    std::unique_ptr<Bytes> data;
    Request request;
  };

  MPI_Comm comm;
  bool owned;
  std::mutex arriving_mutex;
  std::list<Arriving> arriving;
};

}  // namespace dstune
