#pragma once
/// The tensors of a plan in a device's arena: where each lies, and the arena's account of which
/// are alive.

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
  /// Takes the arena and acquires the persistent tensors. Throws OutOfMemory.
  PlannedMemory(const StepPlan& plan, Arena& arena);
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
    return base_ + plan_.tensors[static_cast<std::size_t>(tensor)].offset_bytes;
  }
  /// Null where there is no tensor.
  [[nodiscard]] std::byte* address(const View& view) const {
    if (!view) return nullptr;
    const PlannedTensor& tensor = plan_.tensors[static_cast<std::size_t>(view.tensor)];
    return base_ + tensor.offset_bytes + view.offset_elements * size_bytes(tensor.dtype);
  }
  [[nodiscard]] DType type(const View& view) const {
    return plan_.tensors[static_cast<std::size_t>(view.tensor)].dtype;
  }

 private:
  const StepPlan& plan_;
  Arena& arena_;
  std::byte* base_;
  std::vector<bool> acquired_;
  bool counting_ = true;
};

}  // namespace dstune::train
