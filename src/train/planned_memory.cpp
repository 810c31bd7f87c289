#include "planned_memory.hpp"

#include "dstune/base/error.hpp"

namespace dstune::train {
kernels::DType kernel_type(DType type) {
  switch (type) {
    case DType::f32:
      return kernels::DType::f32;
    case DType::bf16:
      return kernels::DType::bf16;
    case DType::f16:
      return kernels::DType::f16;
    case DType::i32:
      break;
  }
  throw LogicError("kernels compute with floating-point numbers");
}

PlannedMemory::PlannedMemory(const StepPlan& plan, Arena& arena, Arena& host_arena)
    : plan_(plan), acquired_(plan.tensors.size(), false) {
  arena.prepare(plan.memory.arena_bytes);
  host_arena.prepare(plan.host_memory.arena_bytes);
  memories_ = {Taken{&arena, arena.base()}, Taken{&host_arena, host_arena.base()}};
  for (std::size_t tensor = 0; tensor < plan.tensors.size(); ++tensor) {
    if (plan.tensors[tensor].persistent) acquire(static_cast<TensorId>(tensor));
  }
}

PlannedMemory::~PlannedMemory() {
  for (std::size_t tensor = 0; tensor < acquired_.size(); ++tensor) {
    const Taken& memory = of(plan_.tensors[tensor]);
    // An arena that was leaked meanwhile holds nothing to release.
    if (acquired_[tensor] && memory.arena->base() == memory.base)
      memory.arena->release(plan_.tensors[tensor].offset_bytes);
  }
}

void PlannedMemory::acquire(TensorId tensor) {
  if (!counting_) return;
  const auto index = static_cast<std::size_t>(tensor);
  const PlannedTensor& planned = plan_.tensors[index];
  of(planned).arena->acquire(planned.offset_bytes, planned.booked_bytes,
                             static_cast<int>(planned.category));
  acquired_[index] = true;
}

void PlannedMemory::release(TensorId tensor) {
  if (!counting_) return;
  const auto index = static_cast<std::size_t>(tensor);
  of(plan_.tensors[index]).arena->release(plan_.tensors[index].offset_bytes);
  acquired_[index] = false;
}

}  // namespace dstune::train
