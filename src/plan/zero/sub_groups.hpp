#pragma once
/// The elements of a rank's own part that are updated together, and where their states are.

#include <cstdint>
#include <vector>

#include "zero/layout.hpp"

namespace dstune::plan {

/// All elements in one; in stage 3 whole parameters until they are as many as a sub-group holds.
/// Of an offloaded optimizer the first ones stay on the device where `offload_ratio` is below 1,
/// and small ones on the host where a disk holds the others. With a disk, of the first ones only
/// small ones stay on the device; of the others the moments alone are kept, on the host.
[[nodiscard]] std::vector<SubGroup> cut_into_sub_groups(const Layout& layout,
                                                        const TrainingConfig& config);
/// Elements of a tensor that holds master copies, or gradients, of all sub-groups of a memory.
[[nodiscard]] std::int64_t elements_in(const std::vector<SubGroup>& sub_groups, Memory memory);
/// Of one that holds moments.
[[nodiscard]] std::int64_t moments_in(const std::vector<SubGroup>& sub_groups, Memory memory);

/// Whether DeepSpeed moves a tensor of so many bytes to a disk, or leaves it where it is.
[[nodiscard]] bool is_swappable(const TrainingConfig& config, std::int64_t bytes);

/// By piece of stage 3: its shard is on the disk.
[[nodiscard]] std::vector<bool> find_shards_on_disk(const Layout& layout,
                                                    const TrainingConfig& config);

/// Elements between two places on a disk where a transfer may begin.
[[nodiscard]] constexpr std::int64_t disk_alignment_of(DType type) {
  return disk_alignment_bytes / size_bytes(type);
}
inline constexpr std::int64_t disk_alignment_elements = disk_alignment_of(DType::f32);

}  // namespace dstune::plan
