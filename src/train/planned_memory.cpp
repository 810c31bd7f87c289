#include "planned_memory.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune::train {
namespace {

constexpr std::byte red_zone_value{0xA5};
constexpr int not_a_number = 0xFF;  // in every byte, of every floating-point type
constexpr std::size_t most_damage = 8;

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
    case DType::i8:
      break;
  }
  throw LogicError("kernels compute with floating-point numbers");
}

PlannedMemory::PlannedMemory(const StepPlan& plan, Arena& arena, Arena& host_arena, Guard guard)
    : plan_(plan),
      guard_(guard),
      stretch_(guard == Guard::none ? 1 : 2),
      acquired_(plan.tensors.size(), false) {
  arena.prepare(plan.memory.arena_bytes * stretch_);
  host_arena.prepare(plan.host_memory.arena_bytes * stretch_);
  memories_ = {Taken{&arena, arena.base()}, Taken{&host_arena, host_arena.base()}};
  for (std::size_t tensor = 0; tensor < plan.tensors.size(); ++tensor) {
    const PlannedTensor& planned = plan.tensors[tensor];
    if (planned.persistent && planned.memory != Memory::disk)
      acquire(static_cast<TensorId>(tensor));
  }
}

PlannedMemory::~PlannedMemory() {
  for (std::size_t tensor = 0; tensor < acquired_.size(); ++tensor) {
    if (!acquired_[tensor]) continue;
    const Taken& memory = of(plan_.tensors[tensor]);
    // An arena that was leaked meanwhile holds nothing to release.
    if (memory.arena->base() == memory.base)
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
  if (guard_ != Guard::none) spoil(planned);
}

void PlannedMemory::release(TensorId tensor) {
  if (!counting_) return;
  const auto index = static_cast<std::size_t>(tensor);
  const PlannedTensor& planned = plan_.tensors[index];
  of(planned).arena->release(planned.offset_bytes);
  acquired_[index] = false;
  if (guard_ == Guard::none) return;
  note_damage(planned, damage_);
  spoil(planned);
}

std::vector<std::string> PlannedMemory::damage() const {
  std::vector<std::string> all = damage_;
  for (std::size_t tensor = 0; guard_ != Guard::none && tensor < acquired_.size(); ++tensor) {
    if (acquired_[tensor]) note_damage(plan_.tensors[tensor], all);
  }
  return all;
}

std::span<std::byte> PlannedMemory::red_zone(const PlannedTensor& tensor) const {
  std::byte* const begin = address_of(tensor) + tensor.elements * size_bytes(tensor.dtype);
  return {begin, address_of(tensor) + tensor.booked_bytes * stretch_};
}

void PlannedMemory::spoil(const PlannedTensor& tensor) const {
  std::memset(address_of(tensor), not_a_number, static_cast<std::size_t>(tensor.booked_bytes));
  std::ranges::fill(red_zone(tensor), red_zone_value);
}

void PlannedMemory::note_damage(const PlannedTensor& tensor,
                                std::vector<std::string>& damage) const {
  const auto is_untouched = [](std::byte value) { return value == red_zone_value; };
  if (damage.size() >= most_damage || std::ranges::all_of(red_zone(tensor), is_untouched)) return;
  std::string where = tensor.name;
  if (tensor.layer >= 0) where += " of layer " + std::to_string(tensor.layer);
  damage.push_back(std::move(where));
}

}  // namespace dstune::train
