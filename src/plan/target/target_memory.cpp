#include "dstune/plan/target_memory.hpp"

#include "dstune/base/error.hpp"
#include "target/target_activations.hpp"
#include "target/target_host.hpp"
#include "target/target_states.hpp"

namespace dstune {
namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
/// Context and loaded kernels, cuBLAS's workspace, NCCL's buffers.
constexpr std::int64_t context_bytes = 512 * mebibyte;
constexpr std::int64_t cublas_bytes = 32 * mebibyte;
constexpr std::int64_t nccl_bytes = 512 * mebibyte;
/// What PyTorch's caching allocator reserves beyond what is allocated; docs/memory.md, "Framework".
constexpr std::int64_t reserved_percent = 4;

}  // namespace

TargetMemory target_memory(const ModelSpec& model, const TrainingConfig& config, int group_size,
                           const TargetSpec& target) {
  TargetMemory memory;
  memory.parts = {{"parameters", 0},  {"gradients", 0}, {"optimizer", 0}, {"buckets", 0},
                  {"activations", 0}, {"logits", 0},    {"step", 0},      {"framework", 0}};
  if (target.framework == TargetFramework::self) return memory;
  require(group_size >= 1, "a group has ranks");
  require(config.zero_stage >= 0 && config.zero_stage <= 3, "the ZeRO stage is 0 to 3");

  const int world_size = group_size;
  if (is_mics(config)) group_size = static_cast<int>(config.mics_shard_size);
  const plan::TargetCounts counts = plan::count_target(model, config, group_size);
  const plan::TargetStates states = plan::target_states(counts, config, group_size);
  memory.host_bytes = plan::target_host_bytes(counts, config, target);
  memory.disk_bytes = counts.disk_bytes;
  const plan::TargetActivations backward =
      plan::target_activations(model, config, target.attention);
  struct Candidate {
    const char* name;
    const plan::TargetInstant& states;
    std::int64_t activations, logits;
  };
  const Candidate candidates[] = {
      {"loss", states.loss, backward.kept, backward.logits},
      {"layers", states.layers, backward.kept + backward.layer, 0},
      {"first_layer", states.first_layer, backward.first_layer, 0},
      {"reduction", states.reduction, 0, 0},
      {"update", states.update, 0, 0},
  };
  const std::int64_t always = states.parameters + states.optimizer;
  std::int64_t fullest = -1;
  for (const auto& [name, held, activations, logits] : candidates) {
    const std::int64_t bytes = held.gradients + held.buckets + held.step + activations + logits;
    memory.instants[name] = always + bytes;
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
    memory.parts["framework"] = context_bytes + cublas_bytes + (world_size > 1 ? nccl_bytes : 0) +
                                allocated * reserved_percent / 100;
  }
  memory.total_bytes = allocated + memory.parts["framework"];
  return memory;
}

}  // namespace dstune
