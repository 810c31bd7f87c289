/// Why DeepSpeed would not train with a configuration that it reads.

#include <algorithm>
#include <numeric>

#include "dstune/model/module_names.hpp"
#include "zero/disk.hpp"
#include "zero/quantization.hpp"

namespace dstune {
namespace {

/// Of sub-groups' states on the disk.
std::string state_buffers_violation(const TrainingConfig& config,
                                    const std::vector<plan::SubGroup>& groups) {
  // Master copy, moments, gradients; DeepSpeed's Lion has two moments there.
  const OptimizerConfig& optimizer = config.optimizer;
  const bool is_lion = optimizer.kind == OptimizerKind::lion;
  const std::int64_t moments =
      (has_first_moment(optimizer) ? 1 : 0) + (has_second_moment(optimizer) || is_lion ? 1 : 0);
  std::vector<std::int64_t> taken;  // by each on the disk
  for (const plan::SubGroup& group : groups)
    if (group.memory == Memory::disk)
      taken.push_back(2 + (group.moments_memory == Memory::disk ? moments : 0));
  // Until it is written: beside one that is read ahead, one written behind.
  const DiskUse& disk = config.disk;
  const std::size_t together = 1 + (disk.pipeline_read ? 1 : 0) + (disk.pipeline_write ? 1 : 0);
  std::int64_t needed = 0;
  for (std::size_t first = 0; first < taken.size(); ++first) {
    const std::size_t last = std::min(first + together, taken.size());
    needed = std::max(needed, std::accumulate(taken.begin() + static_cast<std::ptrdiff_t>(first),
                                              taken.begin() + static_cast<std::ptrdiff_t>(last),
                                              std::int64_t{0}));
  }
  if (disk.optimizer_buffers >= needed) return {};
  return "DeepSpeed runs out of swap buffers: offload_optimizer.buffer_count is " +
         std::to_string(disk.optimizer_buffers) + ", and " + std::to_string(needed) +
         " are needed for " + std::to_string(taken.size()) + " sub-groups on the disk";
}

/// Of shards on the disk. DeepSpeed writes all that are large enough there as it begins, also those
/// that it then keeps in memory.
std::string shard_buffers_violation(const plan::Layout& layout, const TrainingConfig& config,
                                    const std::vector<plan::SubGroup>& groups) {
  const std::int64_t element = size_bytes(element_type(config.precision));
  std::int64_t largest = 0;
  for (int piece = 0; piece < layout.num_pieces(); ++piece)
    largest = std::max(largest, layout.piece_shard_elements(piece));
  const DiskUse& disk = config.disk;
  const bool any = plan::is_swappable(config, element * largest);
  if (any && largest > disk.parameter_buffer_size) {
    return "DeepSpeed refuses parameters whose shard is larger than a buffer: "
           "offload_param.buffer_size is " +
           std::to_string(disk.parameter_buffer_size) + ", and " + std::to_string(largest) +
           " are needed";
  }
  if (any && disk.parameter_buffers == 0)
    return "DeepSpeed has no buffer for parameters: offload_param.buffer_count is 0";
  const bool is_split = std::any_of(groups.begin(), groups.end(), [](const plan::SubGroup& group) {
    return group.swaps_parameters && group.memory == Memory::device;
  });
  if (is_split && is_optimizer_offloaded(config)) {
    return "DeepSpeed fails where it updates on the device what offload_optimizer.ratio leaves "
           "there and offload_param.max_in_cpu leaves on the disk";
  }
  return {};
}

/// Why DeepSpeed does not train with such a leaf module; null where it does.
const char* leaf_failure(const ModelSpec& model, ModuleKind kind) {
  using enum ModuleKind;
  switch (kind) {
    case root:
    case base:
      return "the model as a whole, or without its head: its output is no tensor, so that its "
             "gradients are never reduced";
    case attention:
      // Its gradients are reduced at the backward of its output, before they are there.
      if (model.family == ModelFamily::gpt2 || model.family == ModelFamily::gpt_neox)
        return nullptr;
      return "attention, whose inputs are passed by name in this family: its backward fails";
    case blocks:
      return "the list of all blocks, which is never called itself";
    default:
      return nullptr;
  }
}

std::string leaf_violation(const ModelSpec& model, const TrainingConfig& config) {
  if (config.zero_stage < 3) return {};
  if (config.leaf_modules == LeafModules() && config.stage3_module_granularity_threshold <= 0)
    return {};
  for (const NamedModule& module : selected_modules(model, config.leaf_modules)) {
    if (module.kind == ModuleKind::other) {
      return "leaf_module names " + module.name + " (" + module.class_name +
             "), which is not built in dstune-mpi: name blocks or what is in them";
    }
  }
  const ParameterTable table(model);
  const plan::ModuleTrace trace =
      plan::trace_modules(model, table, plan::cut_into_pieces(table), config);
  for (std::size_t index = 0; index < trace.modules.size();) {
    const plan::Module& module = trace.modules[index];
    const char* const failure = module.is_leaf ? leaf_failure(model, module.kind) : nullptr;
    if (failure != nullptr)
      return std::string("DeepSpeed does not train with a leaf module that is ") + failure;
    index = module.is_leaf ? static_cast<std::size_t>(module.end) : index + 1;
  }
  return {};
}

}  // namespace

std::string model_violation(const ModelSpec& model, const TrainingConfig& config, int group_size) {
  std::string leaves = leaf_violation(model, config);
  const bool may_fail =
      uses_disk(config) || quantizes_weights(config) || quantizes_gradients(config);
  if (!leaves.empty() || !may_fail) return leaves;
  const ParameterTable table(model);
  const plan::Layout layout(table, config.zero_stage, plan::partition_of(config, group_size, 0),
                            plan::offloaded_of(config));
  const std::vector<plan::SubGroup> groups = plan::cut_into_sub_groups(layout, config);
  std::string violation = plan::gradients_violation(layout, config);
  if (violation.empty() && is_optimizer_on_disk(config))
    violation = state_buffers_violation(config, groups);
  if (violation.empty() && are_parameters_on_disk(config))
    violation = shard_buffers_violation(layout, config, groups);
  if (!violation.empty() || !layout.gathers()) return violation;
  return plan::plan_gathering(model, layout, config).failure;
}

}  // namespace dstune
