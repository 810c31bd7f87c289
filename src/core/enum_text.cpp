#include "dstune/core/job.hpp"
#include "dstune/core/target_time.hpp"

namespace dstune {

namespace {

// In the order of the enumerators.
constexpr auto precisions = numbered({"fp32", "bf16", "fp16"});
constexpr auto recomputes = numbered({"none", "selective", "block"});
constexpr auto optimizer_kinds = numbered({"adam", "adamw", "lion", "sgd", "adagrad"});
constexpr auto offload_devices = numbered({"none", "cpu", "nvme"});
constexpr auto communication_types = numbered({"as_gradients", "fp32", "fp16", "bf16"});
constexpr auto overheads =
    numbered({"optimizer_step", "module_call", "gradient_hook", "gathering_hook", "sub_group",
              "offload_copy", "stage_2_byte", "recompute", "all_reduce_call", "reduce_call",
              "reduce_scatter_call", "all_gather_call", "all_gather_ahead", "all_to_all_call",
              "small_call_byte", "communicated_byte", "link_byte"});
constexpr auto plan_statuses = numbered({"planned", "infeasible", "pruned"});
constexpr auto prune_kinds = numbered({"twin", "batch", "refused", "smaller_size", "excluded",
                                       "early_stopping", "cap", "not_chosen"});
constexpr auto statuses = numbered({"ok", "raced_out", "out_of_memory", "timed_out", "failed"});
constexpr auto metrics = numbered({"throughput", "throughput_per_gpu", "latency", "flops"});
constexpr auto repeat_kinds = numbered({"spread", "control", "final"});
constexpr auto target_frameworks = numbered({"self", "huggingface"});
constexpr auto target_attentions = numbered({"eager", "sdpa", "flash"});
constexpr auto target_checkpointings = numbered({"torch", "deepspeed"});
constexpr auto target_optimizers =
    numbered({"of_config", "adamw_torch", "adamw_torch_fused", "adamw_8bit", "adafactor", "lion",
              "sgd", "muon", "deepspeed_fused_adam", "deepspeed_cpu_adam"});
constexpr auto target_losses = numbered({"full", "in_place", "chunked", "fused"});
constexpr auto memory_verdicts = numbered({"unknown", "fits", "edge", "does_not_fit"});

}  // namespace

const EnumTexts& texts_of(Precision) {
  static constexpr EnumTexts texts{precisions};
  return texts;
}
const EnumTexts& texts_of(Recompute) {
  static constexpr EnumTexts texts{recomputes};
  return texts;
}
const EnumTexts& texts_of(OptimizerKind) {
  static constexpr EnumTexts texts{optimizer_kinds};
  return texts;
}
const EnumTexts& texts_of(OffloadDevice) {
  static constexpr EnumTexts texts{offload_devices};
  return texts;
}
const EnumTexts& texts_of(CommunicationType) {
  static constexpr EnumTexts texts{communication_types};
  return texts;
}
const EnumTexts& texts_of(Overhead) {
  static constexpr EnumTexts texts{overheads};
  return texts;
}
const EnumTexts& texts_of(PlanStatus) {
  static constexpr EnumTexts texts{plan_statuses};
  return texts;
}
const EnumTexts& texts_of(PruneKind) {
  static constexpr EnumTexts texts{prune_kinds};
  return texts;
}
const EnumTexts& texts_of(Status) {
  static constexpr EnumTexts texts{statuses, "\"{}\" is no status of an experiment"};
  return texts;
}
const EnumTexts& texts_of(Metric) {
  static constexpr EnumTexts texts{metrics};
  return texts;
}
const EnumTexts& texts_of(RepeatKind) {
  static constexpr EnumTexts texts{repeat_kinds};
  return texts;
}
const EnumTexts& texts_of(TargetFramework) {
  static constexpr EnumTexts texts{target_frameworks};
  return texts;
}
const EnumTexts& texts_of(TargetAttention) {
  static constexpr EnumTexts texts{target_attentions};
  return texts;
}
const EnumTexts& texts_of(TargetCheckpointing) {
  static constexpr EnumTexts texts{target_checkpointings};
  return texts;
}
const EnumTexts& texts_of(TargetOptimizer) {
  static constexpr EnumTexts texts{target_optimizers};
  return texts;
}
const EnumTexts& texts_of(TargetLoss) {
  static constexpr EnumTexts texts{target_losses};
  return texts;
}
const EnumTexts& texts_of(MemoryVerdict) {
  static constexpr EnumTexts texts{memory_verdicts};
  return texts;
}

}  // namespace dstune
