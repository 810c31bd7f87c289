#include "target/target_host.hpp"

#include <algorithm>
#include <bit>

#include "dstune/plan/step_plan.hpp"
#include "program/emitter.hpp"

namespace dstune::plan {
namespace {

/// Pinned memory comes in powers of two (c10's CachingHostAllocator).
std::int64_t pinned(std::int64_t bytes, const TargetSpec& target) {
  if (!target.on_gpu || bytes == 0) return bytes;
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

/// Of offloaded parameters, on the host. Buffers of transfers are pinned without an allocator.
std::int64_t parameter_host_bytes(const TargetCounts& counts, const TrainingConfig& config,
                                  std::int64_t e, const TargetSpec& target) {
  if (!are_parameters_offloaded(config)) return 0;
  if (!are_parameters_on_disk(config)) {
    std::int64_t bytes = pinned(e * counts.own, target);
    for (const std::int64_t shard : counts.secondary_shards) bytes += pinned(e * shard, target);
    return bytes;
  }
  const DiskUse& disk = config.disk;
  std::int64_t bytes = pinned(e * std::min(counts.own, disk.parameters_in_memory), target);
  for (const std::int64_t shard : counts.small_shards) bytes += pinned(e * shard, target);
  const std::int64_t buffer = round_up(disk.parameter_buffer_size, transfer_alignment(config, e));
  return bytes + e * (disk.parameter_buffers * buffer + counts.written_together);
}

}  // namespace

std::int64_t target_host_bytes(const TargetCounts& counts, const TrainingConfig& config,
                               const TargetSpec& target) {
  const std::int64_t e = size_bytes(element_type(config.precision));
  std::int64_t bytes = parameter_host_bytes(counts, config, e, target);
  if (!is_optimizer_offloaded(config)) return bytes;
  // Master copy and gradients are pinned, moments are not.
  bytes += 2 * pinned(4 * counts.updated_on_host, target);
  bytes += 8 * (counts.updated_on_host + counts.moments_on_host);
  bytes += config.disk.optimizer_buffers * 4 * counts.largest_on_disk;
  // Parameters on their way back; stage 3 has sums of gradients, too, and no staging, and converts
  // parameters only where they are sent to another memory.
  if (config.zero_stage == 3) {
    const std::int64_t sums = config.fp32_gradient_accumulation ? 4 : e;
    return bytes + pinned(sums * counts.own, target) +
           (e < 4 && target.on_gpu ? pinned(e * counts.own, target) : 0);
  }
  bytes += pinned(e * counts.own, target);
  bytes += pinned(e * counts.largest_parameter, target);
  // Sums of gradients, a parameter at a time.
  if (config.zero_stage == 2 && config.accumulation_steps > 1)
    bytes += (target.on_gpu ? 2 : 1) * e * counts.own_whole;
  return bytes;
}

}  // namespace dstune::plan
