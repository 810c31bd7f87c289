#pragma once
/// A block's words in kernels/cuda/native/execution.hpp, for kernels that are compiled as plain
/// C++.

#include <cstring>

#include "access.hpp"
#include "common/function.hpp"
#include "emulator.hpp"
#include "isa/grid.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

template <class T>
using Shared = dstune::test::EmulatedShared<T>;

class Block {
 public:
  explicit Block(dstune::test::EmulatedThread& thread) : thread_(&thread) {}
  int thread() const { return thread_->thread; }
  int threads() const { return thread_->threads; }
  std::int64_t index() const { return thread_->block; }
  std::int64_t blocks() const { return thread_->blocks; }
  std::int64_t piece() const { return thread_->piece; }

  void sync() const { thread_->sync(); }
  template <class T>
  T shuffle_xor(T value, int mask) const {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    const std::uint64_t other = thread_->exchange(bits)[thread_->thread % cuda::warp_size ^ mask];
    std::memcpy(&value, &other, sizeof(T));
    return value;
  }
  std::uint32_t ballot(bool holds) const {
    const std::uint64_t* of_lanes = thread_->exchange(holds ? 1 : 0);
    std::uint32_t lanes = 0;
    for (int lane = 0; lane < cuda::warp_size; ++lane)
      lanes |= static_cast<std::uint32_t>(of_lanes[lane]) << lane;
    return lanes;
  }
  template <class T>
  Shared<T> shared(std::int64_t first_byte = 0) const {
    return {thread_, first_byte};
  }

 private:
  dstune::test::EmulatedThread* thread_;
};

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
