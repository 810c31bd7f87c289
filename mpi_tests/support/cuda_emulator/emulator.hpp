#pragma once
/// CUDA's execution model on a processor, for tests: blocks one after the other, a block's threads
/// as fibers, which meet at barriers and in the exchanges of their warp. One thread launches. It
/// finds what a run on one
/// GPU may not show:
/// - two threads at the same word of shared memory with no barrier between, one of them writing;
/// - shared memory that is read before it is written, is outside the launch's, or where such an
///   element can not be;
/// - memory that a thread moves at once where no such piece can begin;
/// - a barrier or an exchange at which not all threads arrive;
/// - launches that no GPU can do.
/// Each is a std::logic_error of launch(). Order of blocks and threads can be changed: results that
/// change with it depend on who comes first.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "isa/grid.hpp"
#include "shared_memory.hpp"

namespace dstune::test {

class EmulatedBlock;

/// A thread as its kernel sees it.
class EmulatedThread {
 public:
  int thread = 0;
  int threads = 0;
  std::int64_t block = 0, blocks = 0;
  std::int64_t piece = 0, pieces = 0;

  void sync();
  /// What each lane of the warp gave; valid until the lane's next exchange but one.
  const std::uint64_t* exchange(std::uint64_t mine);

  SharedMemory* shared = nullptr;

 private:
  friend class EmulatedBlock;
  EmulatedBlock* owner_ = nullptr;
};

/// Runs kernel(thread) for each thread of the grid, and throws std::logic_error with the first
/// fault.
void launch(const kernels::cuda::Grid& grid, const std::function<void(EmulatedThread&)>& kernel);

/// A thread of the kernel that runs moves at once what lies there. Whether it can.
bool watch_access(const void* place, std::size_t alignment);

/// 0, at first: by number. Others shuffle blocks and threads, each in its own way.
void set_emulated_order(int order);

/// Shared memory as an array of T, of which every access is watched.
template <class T>
class EmulatedShared {
 public:
  class Element {
   public:
    Element(EmulatedThread* thread, std::int64_t offset) : thread_(thread), offset_(offset) {}
    Element(const Element&) = default;
    operator T() const { return thread_->shared->read<T>(thread_->thread, offset_); }
    const Element& operator=(T value) const {
      thread_->shared->write(thread_->thread, offset_, value);
      return *this;
    }
    const Element& operator=(const Element& other) const { return *this = static_cast<T>(other); }

   private:
    EmulatedThread* thread_;
    std::int64_t offset_;
  };

  EmulatedShared(EmulatedThread* thread, std::int64_t first_byte)
      : thread_(thread), first_byte_(first_byte) {}
  Element operator[](std::int64_t index) const {
    return {thread_, first_byte_ + index * static_cast<std::int64_t>(sizeof(T))};
  }

 private:
  EmulatedThread* thread_;
  std::int64_t first_byte_;
};

}  // namespace dstune::test
