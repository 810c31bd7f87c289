#pragma once
/// The tensors of a plan in the arenas of device and host: their places, and the arenas' account of
/// which are alive. Tensors on the disk have a place in a file.

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "dstune/device/device.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/plan/step_plan.hpp"
#include "dstune/train/executor.hpp"

namespace dstune::train {

/// Throws LogicError for a type that no kernel computes with.
kernels::DType kernel_type(DType type);

class PlannedMemory {
 public:
  /// Takes the device's arenas and acquires the persistent tensors. Throws OutOfMemory.
  PlannedMemory(const StepPlan& plan, Device& device, Guard guard);
  /// Releases what is acquired.
  ~PlannedMemory();
  PlannedMemory(const PlannedMemory&) = delete;
  PlannedMemory& operator=(const PlannedMemory&) = delete;

  /// Red zones are written and looked at by the used queue: that of compute, like all lifetimes.
  void acquire(TensorId tensor);
  void release(TensorId tensor);
  /// From now on acquire() and release() do nothing: the account has seen a whole cycle, and the
  /// ones to come are the same. Red zones are watched to the end.
  void close_account() { counting_ = guard_ != Guard::none; }
  [[nodiscard]] bool is_account_closed() const { return !counting_; }
  /// Tensors beyond whose end something was written, the first few. Waits for the device.
  [[nodiscard]] std::vector<std::string> damage();
  /// Looks at the red zones of released tensors if red zones are watched. Waits for the device.
  void check_red_zones();

  [[nodiscard]] std::byte* address(TensorId tensor) const {
    return address_of(plan_.tensors[static_cast<std::size_t>(tensor)]);
  }
  /// Null where there is no tensor.
  [[nodiscard]] std::byte* address(const View& view) const {
    if (!view) return nullptr;
    const PlannedTensor& tensor = plan_.tensors[static_cast<std::size_t>(view.tensor)];
    return address_of(tensor) + view.offset_elements * size_bytes(tensor.dtype);
  }
  /// Offset in the file of a tensor on the disk.
  [[nodiscard]] std::int64_t file_offset_bytes(const View& view) const {
    const PlannedTensor& tensor = plan_.tensors[static_cast<std::size_t>(view.tensor)];
    return tensor.offset_bytes + view.offset_elements * size_bytes(tensor.dtype);
  }
  [[nodiscard]] DType type(const View& view) const {
    return plan_.tensors[static_cast<std::size_t>(view.tensor)].dtype;
  }
  [[nodiscard]] Memory memory(const View& view) const {
    return plan_.tensors[static_cast<std::size_t>(view.tensor)].memory;
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
    return of(tensor).base + tensor.offset_bytes * stretch_;
  }
  /// Between a tensor's last element and the next place that another one may have, in whole
  /// bf16 numbers, which it is filled with.
  struct RedZone {
    std::byte* begin;
    std::int64_t count;
  };
  [[nodiscard]] RedZone red_zone(const PlannedTensor& tensor) const;
  /// Undefined content, and a red zone.
  void poison(const PlannedTensor& tensor) const;
  /// A red zone as it was when the tensor was released, or is.
  struct Copied {
    const PlannedTensor* tensor;
    std::vector<std::uint16_t> zone;
  };
  [[nodiscard]] Copied copy_red_zone(const PlannedTensor& tensor) const;
  static void note_damage(const Copied& copied, std::vector<std::string>& damage);

  const StepPlan& plan_;
  Device& device_;
  Guard guard_;
  /// Twice the offsets: tensors that do not overlap are then as far apart as the lower one is long.
  std::int64_t stretch_;
  std::array<Taken, 2> memories_;  // the device's and the host's
  std::vector<bool> acquired_;
  std::vector<Copied> copied_;       ///< at releases
  std::vector<std::string> damage_;  ///< found in them
  bool counting_ = true;
};

}  // namespace dstune::train
