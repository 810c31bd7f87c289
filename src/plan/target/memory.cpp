/// The target's memory in all, and what of it is on the host.

#include <algorithm>
#include <bit>

#include "dstune/base/checked.hpp"
#include "dstune/base/error.hpp"
#include "program/emitter.hpp"
#include "target/target.hpp"
#include "zero/states.hpp"

namespace dstune {
namespace plan {
namespace {

/// Pinned memory comes in powers of two (c10's CachingHostAllocator).
std::int64_t pinned(std::int64_t bytes, const TargetSpec& target, bool pins = true) {
  if (!target.on_gpu || !pins || bytes == 0) return bytes;
  if (bytes > std::int64_t{1} << 62) throw_overflow("pinned memory");
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

/// Bytes of offloaded parameters on the host. Buffers of transfers are pinned without an allocator.
std::int64_t parameter_host_bytes(const TargetCounts& counts, const TrainingConfig& config,
                                  std::int64_t e, const TargetSpec& target) {
  if (!are_parameters_offloaded(config)) return 0;
  if (!are_parameters_on_disk(config)) {
    // The flat buffer is pinned whatever the config says.
    std::int64_t bytes = pinned(e * counts.own_parameters, target);
    for (const std::int64_t shard : counts.secondary_shards)
      bytes += pinned(e * shard, target, target.pins_partitions);
    return bytes;
  }
  const DiskUse& disk = config.disk;
  std::int64_t bytes =
      pinned(e * std::min(counts.own_parameters, disk.parameters_in_memory), target);
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
  const bool pins = target.pins_optimizer;
  bytes += 8 * (counts.updated_on_host + counts.moments_on_host);
  bytes += config.disk.optimizer_buffers * 4 * counts.largest_on_disk;
  // Parameters on their way back; stage 3 has sums of gradients, too, and no staging, and converts
  // parameters only where they are sent to another memory.
  if (config.zero_stage == 3) {
    bytes += 4 * counts.updated_on_host;  // the master copy, as any memory
    for (const std::int64_t gradient : counts.host_gradients)
      bytes += pinned(4 * gradient, target, pins);
    const std::int64_t sums = config.fp32_gradient_accumulation ? 4 : e;
    const bool sends = e < 4 && target.on_gpu && !are_parameters_offloaded(config);
    return bytes + pinned(sums * counts.own, target, pins) + (sends ? e * counts.own : 0);
  }
  bytes += pinned(4 * counts.updated_on_host, target, target.pins_master_copy);
  bytes += pinned(4 * counts.updated_on_host, target, pins);  // gradients
  bytes += pinned(e * counts.own, target, pins);
  bytes += pinned(e * counts.largest_gradient, target, pins);
  // Sums of gradients, a parameter at a time.
  if (config.zero_stage == 2 && config.accumulation_steps > 1 && !keeps_sums_on_device(config))
    bytes += (target.on_gpu && pins ? 2 : 1) * e * counts.own_whole;
  return bytes;
}

}  // namespace plan

namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
/// cuBLAS's workspace, which PyTorch allocates.
constexpr std::int64_t cublas_bytes = 32 * mebibyte;

/// Memory that PyTorch knows nothing of: context, kernels, NCCL's buffers. Medians of 14 messages
/// of public trainings that ran out of memory (docs/inside/memory.md, "Framework").
std::int64_t outside_bytes(int world_size) {
  if (world_size == 1) return 707 * mebibyte;
  return (world_size <= 8 ? 1413 : 2099) * mebibyte;
}

/// Percent that PyTorch's caching allocator holds beyond the allocated bytes once it has given back
/// all that it could; docs/inside/memory.md, "Framework".
constexpr std::int64_t reserved_percent = 2;
constexpr std::int64_t expandable_percent = 1;
/// … and where there is room, up to stage 2 and at stage 3.
constexpr std::int64_t roomy_percent = 9;
constexpr std::int64_t roomy_percent_of_stage_3 = 23;

/// Free memory between others' that nothing fits: at stage 3 the update by lists makes tensors as
/// large as a sub-group, and the allocator splits what it had for those before.
std::int64_t split_bytes(const plan::TargetCounts& counts, const TrainingConfig& config,
                         const TargetSpec& target) {
  if (config.zero_stage < 3 || target.expandable_segments || is_optimizer_offloaded(config) ||
      plan::temporary_bytes(config, target) == 0)
    return 0;
  return 4 * std::max<std::int64_t>(0, counts.own - config.sub_group_size);
}

}  // namespace

struct TargetPlanner::Shared {
  const ModelSpec& model;
  const TargetSpec& target;
  ParameterTable table;
  plan::Gatherings gatherings{};
};

TargetPlanner::TargetPlanner(const ModelSpec& model, const TargetSpec& target)
    : shared_(std::make_unique<Shared>(Shared{model, target, ParameterTable(model)})) {}

TargetPlanner::TargetPlanner(TargetPlanner&& other) noexcept = default;
TargetPlanner& TargetPlanner::operator=(TargetPlanner&& other) noexcept = default;
TargetPlanner::~TargetPlanner() = default;

TargetMemory target_memory(const ModelSpec& model, const TrainingConfig& config, int group_size,
                           const TargetSpec& target) {
  return TargetPlanner(model, target).memory(config, group_size);
}

TargetMemory TargetPlanner::memory(const TrainingConfig& wanted, int group_size) {
  const ModelSpec& model = shared_->model;
  const TargetSpec& target = shared_->target;
  const TrainingConfig config = as_partitioned(wanted);
  TargetMemory memory;
  memory.parts = {{"parameters", 0},  {"gradients", 0}, {"optimizer", 0}, {"buckets", 0},
                  {"activations", 0}, {"logits", 0},    {"step", 0},      {"framework", 0}};
  if (target.framework == TargetFramework::self) return memory;
  require(group_size >= 1, "a group has ranks");
  require(config.zero_stage >= 0 && config.zero_stage <= 3, "the ZeRO stage is 0 to 3");

  const int world_size = group_size;
  if (is_mics(config)) group_size = static_cast<int>(config.mics_shard_size);
  const plan::TargetCounts counts =
      plan::count_target(model, shared_->table, shared_->gatherings, config, group_size, target);
  const plan::TargetStates states = plan::target_states(counts, config, group_size, target);
  memory.host_bytes = plan::target_host_bytes(counts, config, target);
  memory.disk_bytes = counts.disk_bytes;
  memory.loading_bytes = memory.saving_bytes =
      size_bytes(element_type(config.precision)) * counts.parameters;
  const plan::TargetActivations backward = plan::target_activations(model, counts, config, target);
  struct Candidate {
    const char* name;
    const plan::TargetInstant& states;
    std::int64_t activations, logits;
  };
  const Candidate candidates[] = {
      {"loss", states.loss, backward.kept, backward.logits},
      {"layers", states.layers,
       checked_sum("activations of a micro-batch", backward.kept, backward.layer), 0},
      {"first_layer", states.first_layer, backward.first_layer, 0},
      {"reduction", states.reduction, 0, 0},
      {"update", states.update, 0, 0},
  };
  const std::int64_t always = states.parameters + states.optimizer;
  std::int64_t fullest = -1;
  for (const auto& [name, held, activations, logits] : candidates) {
    const std::int64_t bytes = checked_sum("memory of the training", held.gradients, held.buckets,
                                           held.step, activations, logits);
    memory.instants[name] = checked_sum("memory of the training", always, bytes);
    if (bytes <= fullest) continue;
    fullest = bytes;
    memory.parts = {{"parameters", states.parameters},
                    {"gradients", held.gradients},
                    {"optimizer", states.optimizer},
                    {"buckets", held.buckets},
                    {"activations", activations},
                    {"logits", logits},
                    {"step", held.step},
                    {"framework", 0}};
  }
  std::int64_t allocated = 0;
  for (const auto& [part, bytes] : memory.parts) allocated += bytes;
  if (target.on_gpu) {
    const std::int64_t outside = outside_bytes(world_size);
    allocated += cublas_bytes;
    const auto reserved = [&](std::int64_t percent) {
      return checked_share("memory of the training", allocated, percent, 100);
    };
    memory.parts["framework"] =
        outside + cublas_bytes +
        reserved(target.expandable_segments ? expandable_percent : reserved_percent) +
        split_bytes(counts, config, target);
    memory.shown_bytes =
        checked_sum("memory of the training", allocated, outside,
                    reserved(config.zero_stage == 3 ? roomy_percent_of_stage_3 : roomy_percent));
  }
  for (const auto& [part, bytes] : memory.parts)
    memory.total_bytes = checked_sum("memory of the training", memory.total_bytes, bytes);
  memory.shown_bytes = target.on_gpu ? std::max(memory.shown_bytes, memory.total_bytes) : 0;
  return memory;
}

}  // namespace dstune
