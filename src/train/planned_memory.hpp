#pragma once
/// The tensors of a plan in the arenas of device and host: where each lies, and the arenas' account
/// of which are alive.

#include <array>
#include <cstddef>
#include <vector>

#include "dstune/device/memory.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/plan/step_plan.hpp"

namespace dstune::train {

/// Throws LogicError for a type that no kernel computes with.
kernels::DType kernel_type(DType type);

class PlannedMemory {
 public:
  /// Takes the arenas and acquires the persistent tensors. Throws OutOfMemory.
  PlannedMemory(const StepPlan& plan, Arena& arena, Arena& host_arena);
  /// Releases what is acquired.
  ~PlannedMemory();
  PlannedMemory(const PlannedMemory&) = delete;
  PlannedMemory& operator=(const PlannedMemory&) = delete;

  void acquire(TensorId tensor);
  void release(TensorId tensor);
  /// From now on acquire() and release() do nothing: the account has seen a whole cycle, and the
  /// ones to come are the same.
  void close_account() { counting_ = false; }

  [[nodiscard]] std::byte* address(TensorId tensor) const {
    return address_of(plan_.tensors[static_cast<std::size_t>(tensor)]);
  }
  /// Null where there is no tensor.
  [[nodiscard]] std::byte* address(const View& view) const {
    if (!view) return nullptr;
    const PlannedTensor& tensor = plan_.tensors[static_cast<std::size_t>(view.tensor)];
    return address_of(tensor) + view.offset_elements * size_bytes(tensor.dtype);
  }
  [[nodiscard]] DType type(const View& view) const {
    return plan_.tensors[static_cast<std::size_t>(view.tensor)].dtype;
  }

 private:
  /// An arena with its beginning when the plan took it.
  struct Taken {
    Arena* arena;
    std::byte* base;
  };

  [[nodiscard]] const Taken& of(const PlannedTensor& tensor) const {
    return memories_[static_cast<std::size_t>(tensor.memory)];
  }
  [[nodiscard]] std::byte* address_of(const PlannedTensor& tensor) const {
    return of(tensor).base + tensor.offset_bytes;
  }

  const StepPlan& plan_;
  std::array<Taken, num_memories> memories_;
  std::vector<bool> acquired_;
  bool counting_ = true;
};

}  // namespace dstune::train
