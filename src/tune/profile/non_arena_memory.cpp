#include "profile/non_arena_memory.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "dstune/device/device.hpp"
#include "dstune/group/group_table.hpp"

namespace dstune {
namespace {

void multiply_once(const kernels::Table& table, kernels::DType type) {
  constexpr std::int64_t size = 64;
  const kernels::MatmulShape shape{.m = size, .n = size, .k = size, .type = type, .out_type = type};
  std::vector<float> a(size * size), b(size * size), c(size * size);
  std::vector<std::byte> workspace(table.matmul_workspace_bytes(shape));
  table.matmul(shape, a.data(), b.data(), nullptr, c.data(), workspace.data());
}

/// Pages of shared windows that a member of a group inside a node comes to touch: everybody's
/// staging memory.
std::int64_t staging_bytes(std::size_t group_size) {
  return group_size == 1
             ? 0
             : static_cast<std::int64_t>(group_size * GroupTable::Options{}.staging_bytes);
}

std::vector<std::int64_t> gather(const Communicator& world, std::int64_t mine) {
  std::vector<std::int64_t> all;
  for (const Bytes& bytes :
       world.all_gather({reinterpret_cast<const std::byte*>(&mine), sizeof mine})) {
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof mine);
  }
  return all;
}

}  // namespace

std::vector<std::int64_t> resident_before_experiments(const Communicator& world, Device& device) {
  for (const kernels::DType type : {kernels::DType::f32, kernels::DType::bf16, kernels::DType::f16})
    multiply_once(device.host_kernels(), type);
  return gather(world, process_resident_bytes());
}

std::int64_t gpu_bytes_beside_arena(Device& device) {
  const auto taken_bytes = device.taken_bytes();
  return taken_bytes ? *taken_bytes - device.arena().capacity_bytes() : 0;
}

std::vector<std::int64_t> gpu_bytes_before_experiments(const Communicator& world, Device& device) {
  return gather(world, gpu_bytes_beside_arena(device));
}

NonArenaMemory::NonArenaMemory(std::vector<std::int64_t> resident_bytes, bool has_staged)
    : resident_bytes_(std::move(resident_bytes)), has_staged_(has_staged) {}

void NonArenaMemory::start_again(const std::map<int, std::int64_t>& non_arena_bytes) {
  for (const auto& [rank, bytes] : non_arena_bytes)
    resident_bytes_[static_cast<std::size_t>(rank)] = bytes;
  has_staged_ = has_staged_ || !non_arena_bytes.empty();
}

std::int64_t NonArenaMemory::bytes_at_start(const std::vector<int>& world_ranks) const {
  std::int64_t most = 0;
  for (const int rank : world_ranks)
    most = std::max(most, resident_bytes_[static_cast<std::size_t>(rank)]);
  return most + (has_staged_ ? 0 : staging_bytes(world_ranks.size()));
}

std::int64_t NonArenaMemory::bytes(const std::vector<int>& world_ranks) const {
  const auto found = growth_bytes_.find(world_ranks.size());
  return bytes_at_start(world_ranks) + (found == growth_bytes_.end() ? 0 : found->second);
}

void NonArenaMemory::observe(const std::vector<int>& world_ranks, std::int64_t bytes) {
  growth_bytes_[world_ranks.size()] = bytes - bytes_at_start(world_ranks);
}

void ProcessMemoryPredictor::start_again(const std::map<int, std::int64_t>& non_arena_bytes,
                                         const std::map<int, std::int64_t>& gpu_non_arena_bytes) {
  processes_.start_again(non_arena_bytes);
  if (gpus_) gpus_->start_again(gpu_non_arena_bytes);
}

void ProcessMemoryPredictor::predict(Record& record) {
  Prediction& predicted = record.predicted;
  const PeakMemory& measured = record.measurement.peak_memory;
  const std::vector<int>& ranks = record.measurement.world_ranks;
  if (predicted.peak_memory_bytes == 0) return;
  const auto predict = [&](NonArenaMemory& outside, std::int64_t planned_bytes,
                           std::int64_t measured_bytes, std::int64_t arena_bytes) {
    const std::int64_t bytes = outside.bytes(ranks) + planned_bytes;
    if (measured_bytes > 0) outside.observe(ranks, measured_bytes - arena_bytes);
    return bytes;
  };
  const bool is_on_host = !devices_have_own_memory_;
  predicted.process_memory_bytes =
      predict(processes_, is_on_host ? predicted.peak_memory_bytes : predicted.host_memory_bytes,
              measured.process_bytes, is_on_host ? measured.total_bytes : measured.host_bytes);
  if (gpus_)
    predicted.gpu_memory_bytes =
        predict(*gpus_, predicted.peak_memory_bytes - predicted.host_memory_bytes,
                measured.gpu_bytes, measured.total_bytes - measured.host_bytes);
}

std::optional<std::int64_t> free_gpu_memory(const std::vector<RankDevice>& devices,
                                            const std::vector<std::int64_t>& before_bytes,
                                            const std::map<int, std::int64_t>& after_bytes) {
  std::optional<std::int64_t> free_memory_bytes;
  for (const auto& [rank, after] : after_bytes) {
    const auto index = static_cast<std::size_t>(rank);
    const RankDevice& device = devices[index];
    const auto has_same_gpu = [&](const RankDevice& other) { return other.gpu == device.gpu; };
    if (before_bytes[index] == 0 || std::ranges::count_if(devices, has_same_gpu) > 1)
      return std::nullopt;
    const std::int64_t left_bytes = device.free_bytes - (after - before_bytes[index]);
    free_memory_bytes = std::min(free_memory_bytes.value_or(left_bytes), left_bytes);
  }
  return free_memory_bytes;
}

std::vector<std::size_t> drop_what_does_not_fit(PlannedSpace& space, std::int64_t free_memory_bytes,
                                                const std::function<bool(std::size_t)>& has_run) {
  std::vector<std::size_t> dropped;
  for (std::size_t index = 0; index < space.members.size(); ++index) {
    PlannedExperiment& planned = space.members[index].planned;
    const std::int64_t needed_bytes =
        planned.predicted.peak_memory_bytes - planned.predicted.host_memory_bytes;
    if (planned.status != PlanStatus::planned || needed_bytes <= free_memory_bytes ||
        has_run(index))
      continue;
    planned.status = PlanStatus::infeasible;
    planned.reason =
        fmt::format("needs {} of {} on the device, beside what libraries and communicators took",
                    format_bytes(needed_bytes), format_bytes(free_memory_bytes));
    --space.planned;
    ++space.infeasible;
    dropped.push_back(index);
  }
  return dropped;
}

}  // namespace dstune
