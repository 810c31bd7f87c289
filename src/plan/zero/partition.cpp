#include "zero/partition.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "dstune/plan/step_plan.hpp"

namespace dstune {
namespace {

/// As DeepSpeed counts the nodes that a copy spans: whole ones.
std::int64_t spanned_nodes(const TrainingConfig& config) {
  return config.ranks_per_node == 0 ? 1 : config.mics_shard_size / config.ranks_per_node;
}

/// The block that a rank lies in; every rank where that is the whole group.
RankRange part_of(int group_size, int group_rank, int size) {
  return size == group_size ? RankRange{} : range_of(group_rank, 1, size);
}

std::string mics_objection(const TrainingConfig& config, int group_size) {
  const std::int64_t size = config.mics_shard_size;
  if (group_size % size != 0) {
    return fmt::format("DeepSpeed refuses mics_shard_size {} for {} ranks: it does not divide them",
                       size, group_size);
  }
  if (size < group_size && is_optimizer_offloaded(config)) {
    return fmt::format(
        "DeepSpeed's MiCS fails with an offloaded optimizer where there are several copies of the "
        "states: mics_shard_size is {} of {} ranks",
        size, group_size);
  }
  if (!config.mics_hierarchical_params_gather) return {};
  const std::int64_t nodes = spanned_nodes(config);
  if (nodes > 1 && size % nodes == 0) return {};
  return fmt::format(
      "DeepSpeed refuses mics_hierarchical_params_gather where mics_shard_size, here {}, is not of "
      "the ranks of several whole nodes",
      size);
}

}  // namespace

std::string partition_objection(const TrainingConfig& config, int group_size) {
  if (config.zero_stage < 3) return {};
  if (is_mics(config)) return mics_objection(config, group_size);
  const std::int64_t size = std::min<std::int64_t>(config.zero_hpz_partition_size, group_size);
  if (size <= 1 || group_size % size == 0) return {};
  return fmt::format(
      "DeepSpeed refuses zero_hpz_partition_size {} for {} ranks: it does not divide them", size,
      group_size);
}

namespace plan {

Partition partition_of(const TrainingConfig& config, int group_size, int group_rank) {
  Partition partition{.size = group_size, .rank = group_rank};
  if (config.zero_stage < 3 || group_size == 1) return partition;
  if (is_mics(config)) {
    partition.size = static_cast<int>(config.mics_shard_size);
    partition.rank = group_rank % partition.size;
    partition.replicas = group_size / partition.size;
    partition.shards = part_of(group_size, group_rank, partition.size);
    partition.across = range_of(group_rank, partition.size, partition.replicas);
    if (config.mics_hierarchical_params_gather) {
      const auto nodes = static_cast<int>(spanned_nodes(config));
      const int ranks = partition.size / nodes;
      partition.ranks_of_node = ranks;
      partition.node = range_of(group_rank, 1, ranks);
      partition.across_nodes = range_of(group_rank, ranks, nodes);
    }
    return partition;
  }
  if (config.zero_hpz_partition_size > 1) {
    partition.secondary_size =
        static_cast<int>(std::min<std::int64_t>(config.zero_hpz_partition_size, group_size));
    partition.secondary_rank = group_rank % partition.secondary_size;
    partition.secondary = part_of(group_size, group_rank, partition.secondary_size);
  }
  return partition;
}

}  // namespace plan
}  // namespace dstune
