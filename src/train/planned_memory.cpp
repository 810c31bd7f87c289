#include "planned_memory.hpp"

#include "dstune/base/error.hpp"

namespace dstune::train {
namespace {

std::byte* prepared_base(Arena& arena, std::int64_t bytes) {
  arena.prepare(bytes);
  return arena.base();
}

}  // namespace

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

PlannedMemory::PlannedMemory(const StepPlan& plan, Arena& arena)
    : plan_(plan),
      arena_(arena),
      base_(prepared_base(arena, plan.memory.arena_bytes)),
      acquired_(plan.tensors.size(), false) {
  for (std::size_t tensor = 0; tensor < plan.tensors.size(); ++tensor) {
    if (plan.tensors[tensor].persistent) acquire(static_cast<TensorId>(tensor));
  }
}

PlannedMemory::~PlannedMemory() {
  // An arena that was leaked meanwhile holds nothing to release.
  if (arena_.base() != base_) return;
  for (std::size_t tensor = 0; tensor < acquired_.size(); ++tensor) {
    if (acquired_[tensor]) arena_.release(plan_.tensors[tensor].offset_bytes);
  }
}

void PlannedMemory::acquire(TensorId tensor) {
  if (!counting_) return;
  const auto index = static_cast<std::size_t>(tensor);
  const PlannedTensor& planned = plan_.tensors[index];
  arena_.acquire(planned.offset_bytes, planned.booked_bytes, static_cast<int>(planned.category));
  acquired_[index] = true;
}

void PlannedMemory::release(TensorId tensor) {
  if (!counting_) return;
  const auto index = static_cast<std::size_t>(tensor);
  arena_.release(plan_.tensors[index].offset_bytes);
  acquired_[index] = false;
}

}  // namespace dstune::train
