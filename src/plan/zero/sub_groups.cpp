#include "zero/sub_groups.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace dstune::plan {
namespace {

constexpr std::int64_t least_swapped_bytes = 1 << 20;

std::vector<SubGroup> cut(const Layout& layout, const TrainingConfig& config) {
  if (layout.stage() < 3) return {{.first = 0, .count = layout.own_elements()}};
  std::vector<SubGroup> groups;
  SubGroup group;
  const int pieces = static_cast<int>(layout.pieces().size());
  for (int piece = 0; piece < pieces; ++piece) {
    group.count += layout.piece_shard_elements(piece);
    if (group.count < config.sub_group_size && piece + 1 < pieces) continue;
    groups.push_back(group);
    group = {.first = group.first + group.count};
  }
  return groups;
}

}  // namespace

std::vector<SubGroup> cut_into_sub_groups(const Layout& layout, const TrainingConfig& config) {
  std::vector<SubGroup> groups = cut(layout, config);
  if (layout.offloaded().optimizer) {
    // DeepSpeed's own arithmetic, rounding included.
    const auto on_device =
        static_cast<std::size_t>((1.0 - config.offload_ratio) * static_cast<double>(groups.size()));
    for (std::size_t index = 0; index < groups.size(); ++index) {
      const bool stays = index < on_device;
      const bool on_disk =
          is_optimizer_on_disk(config) && is_swappable(config, 4 * groups[index].count);
      // DeepSpeed swaps what should stay all the same, but knows nothing of its moments.
      groups[index].memory = on_disk ? Memory::disk : stays ? Memory::device : Memory::host;
      groups[index].moments_memory = on_disk && stays ? Memory::host : groups[index].memory;
    }
  }
  if (are_parameters_on_disk(config)) {
    for (SubGroup& group : groups)
      group.swaps_parameters = group.first + group.count > config.disk.parameters_in_memory;
  }
  std::array<std::int64_t, num_memories> ends{};
  std::array<std::int64_t, num_memories> moment_ends{};
  const auto take = [](auto& of, Memory memory, std::int64_t count) {
    const bool is_disk = memory == Memory::disk;
    return std::exchange(of[static_cast<std::size_t>(memory)],
                         of[static_cast<std::size_t>(memory)] +
                             (is_disk ? round_up(count, disk_alignment_elements) : count));
  };
  for (SubGroup& group : groups) {
    group.offset = take(ends, group.memory, group.count);
    group.moments_offset = take(moment_ends, group.moments_memory, group.count);
  }
  return groups;
}

std::int64_t elements_in(const std::vector<SubGroup>& sub_groups, Memory memory) {
  std::int64_t end = 0;
  for (const SubGroup& group : sub_groups)
    if (group.memory == memory) end = group.offset + group.count;
  return end;
}

std::int64_t moments_in(const std::vector<SubGroup>& sub_groups, Memory memory) {
  std::int64_t end = 0;
  for (const SubGroup& group : sub_groups)
    if (group.moments_memory == memory) end = group.moments_offset + group.count;
  return end;
}

bool is_swappable(const TrainingConfig& config, std::int64_t bytes) {
  return bytes >= std::max(least_swapped_bytes, config.disk.block_bytes);
}

std::vector<bool> find_shards_on_disk(const Layout& layout, const TrainingConfig& config) {
  std::vector<bool> on_disk(layout.pieces().size(), false);
  const std::int64_t element = size_bytes(element_type(config.precision));
  for (const SubGroup& group : cut_into_sub_groups(layout, config)) {
    if (!group.swaps_parameters) continue;
    const PieceRange range = layout.pieces_of(group.first, group.count);
    for (int piece = range.first; piece < range.last; ++piece) {
      on_disk[static_cast<std::size_t>(piece)] =
          is_swappable(config, element * layout.piece_shard_elements(piece));
    }
  }
  return on_disk;
}

}  // namespace dstune::plan
