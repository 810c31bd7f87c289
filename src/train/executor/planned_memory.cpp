#include "executor/planned_memory.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune::train {
namespace {

// Memory is filled with these values in bf16. -0x1.4ap-52 is 0xA5A5. A NaN in bf16 is a NaN in
// every other floating-point type, too.
constexpr float red_zone_value = -0x1.4ap-52F;
constexpr std::uint16_t red_zone_bits = 0xA5A5;
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t filled_bytes = sizeof(red_zone_bits);
/// At most so many bytes of a tensor are guarded, and of the memory behind it. Workspaces of
/// products are larger, but the library alone knows their contents.
constexpr std::int64_t max_guarded_bytes = std::int64_t{1} << 20;
constexpr std::size_t max_damage = 8;

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

PlannedMemory::PlannedMemory(const StepPlan& plan, Device& device, Guard guard)
    : plan_(plan),
      device_(device),
      guard_(guard),
      stretch_(guard == Guard::none ? 1 : 2),
      acquired_(plan.tensors.size(), false) {
  Arena& arena = device.arena();
  Arena& host_arena = device.host_arena();
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
  of(planned).arena->acquire(planned.offset_bytes, planned.padded_bytes,
                             static_cast<int>(planned.category));
  acquired_[index] = true;
  if (guard_ != Guard::none) poison(planned);
}

void PlannedMemory::release(TensorId tensor) {
  if (!counting_) return;
  const auto index = static_cast<std::size_t>(tensor);
  const PlannedTensor& planned = plan_.tensors[index];
  of(planned).arena->release(planned.offset_bytes);
  acquired_[index] = false;
  if (guard_ == Guard::none) return;
  copied_.push_back(copy_red_zone(planned));
  poison(planned);
}

void PlannedMemory::check_red_zones() {
  for (const Copied& copied : copied_) note_damage(copied, damage_);
  copied_.clear();
}

std::vector<std::string> PlannedMemory::damage() {
  std::vector<Copied> now;
  for (std::size_t tensor = 0; guard_ != Guard::none && tensor < acquired_.size(); ++tensor) {
    if (acquired_[tensor]) now.push_back(copy_red_zone(plan_.tensors[tensor]));
  }
  device_.queues().finish_all();
  check_red_zones();
  std::vector<std::string> all = damage_;
  for (const Copied& copied : now) note_damage(copied, all);
  return all;
}

PlannedMemory::RedZone PlannedMemory::red_zone(const PlannedTensor& tensor) const {
  const std::int64_t bytes = tensor.elements * size_bytes(tensor.dtype);
  const std::int64_t begin = (bytes + filled_bytes - 1) / filled_bytes * filled_bytes;
  const std::int64_t bytes_behind = tensor.padded_bytes * stretch_ - begin;
  return {address_of(tensor) + begin, std::min(bytes_behind, max_guarded_bytes) / filled_bytes};
}

void PlannedMemory::poison(const PlannedTensor& tensor) const {
  const kernels::Table& table = device_.kernels();
  table.fill(kernels::DType::bf16, address_of(tensor), not_a_number,
             std::min(tensor.padded_bytes, max_guarded_bytes) / filled_bytes);
  const RedZone zone = red_zone(tensor);
  table.fill(kernels::DType::bf16, zone.begin, red_zone_value, zone.count);
}

PlannedMemory::Copied PlannedMemory::copy_red_zone(const PlannedTensor& tensor) const {
  const RedZone zone = red_zone(tensor);
  Copied copied{&tensor, std::vector<std::uint16_t>(static_cast<std::size_t>(zone.count))};
  device_.queues().copy(copied.zone.data(), zone.begin, zone.count * filled_bytes);
  return copied;
}

void PlannedMemory::note_damage(const Copied& copied, std::vector<std::string>& damage) {
  const std::vector<std::uint16_t>& zone = copied.zone;
  // Each is as the one before it: bytes are compared in wide pieces.
  const bool is_untouched =
      zone.empty() ||
      (zone.front() == red_zone_bits &&
       std::memcmp(zone.data() + 1, zone.data(), (zone.size() - 1) * sizeof zone.front()) == 0);
  if (damage.size() >= max_damage || is_untouched) return;
  std::string where = copied.tensor->name;
  if (copied.tensor->layer >= 0) where += " of layer " + std::to_string(copied.tensor->layer);
  damage.push_back(std::move(where));
}

}  // namespace dstune::train
