#include "gpu_room.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "dstune/base/units.hpp"

namespace dstune {

std::optional<std::int64_t> room_on_gpus(const std::vector<RankDevice>& devices,
                                         const std::vector<std::int64_t>& before_bytes,
                                         const std::map<int, std::int64_t>& after_bytes) {
  std::optional<std::int64_t> room_bytes;
  for (const auto& [rank, after] : after_bytes) {
    const auto index = static_cast<std::size_t>(rank);
    const RankDevice& device = devices[index];
    const auto has_same_gpu = [&](const RankDevice& other) { return other.gpu == device.gpu; };
    if (before_bytes[index] == 0 || std::ranges::count_if(devices, has_same_gpu) > 1)
      return std::nullopt;
    const std::int64_t left_bytes = device.free_bytes - (after - before_bytes[index]);
    room_bytes = std::min(room_bytes.value_or(left_bytes), left_bytes);
  }
  return room_bytes;
}

std::vector<std::size_t> drop_what_lacks_room(PlannedSpace& space, std::int64_t room_bytes,
                                              const std::function<bool(std::size_t)>& has_run) {
  std::vector<std::size_t> dropped;
  for (std::size_t index = 0; index < space.members.size(); ++index) {
    PlannedExperiment& planned = space.members[index].planned;
    const std::int64_t needed_bytes =
        planned.predicted.peak_memory_bytes - planned.predicted.host_memory_bytes;
    if (planned.status != PlanStatus::planned || needed_bytes <= room_bytes || has_run(index))
      continue;
    planned.status = PlanStatus::infeasible;
    planned.reason =
        fmt::format("needs {} of {} on the device, beside what libraries and communicators took",
                    format_bytes(needed_bytes), format_bytes(room_bytes));
    --space.planned;
    ++space.infeasible;
    dropped.push_back(index);
  }
  return dropped;
}

}  // namespace dstune
