/// Reasons why DeepSpeed would not train with a configuration that it reads.

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "dstune/model/module_names.hpp"
#include "zero/disk.hpp"

namespace dstune {
namespace plan {
namespace {

/// Elements of a gather of the micro-step that is no multiple of what quantisation takes at once;
/// 0: there is none. The gathers are those of ParameterSource, on numbers alone.
std::int64_t broken_gather(const Layout& layout, const MicroStepGathers& gathers, int num_visits,
                           bool is_sequential, bool after_update) {
  const std::int64_t scale = layout.shards_of_secondary();
  std::vector<bool> is_refreshed(layout.pieces().size(), scale > 0 && !after_update);
  std::int64_t broken = 0;
  const auto note = [&](std::int64_t elements) {
    if (elements % quantized_at_once != 0) broken = elements;
  };
  const auto check = [&](std::span<const int> pieces) {
    std::int64_t of_first = 0, of_second = 0;
    for (const int piece : pieces) {
      const std::int64_t shard =
          layout.piece_shard_elements(piece) * (is_refreshed[piece] ? scale : 1);
      (is_refreshed[piece] ? of_second : of_first) += shard;
      if (is_sequential) note(shard);
    }
    if (is_sequential) return;
    note(of_first);
    note(of_second);
  };
  for (int visit = 0; visit < num_visits; ++visit) {
    check(gathers.fetched[visit]);
    check(gathers.prefetched[visit]);
    for (const int piece : gathers.released[visit]) is_refreshed[piece] = scale > 0;
  }
  return broken;
}

}  // namespace

std::string weights_violation(const Layout& layout, const Gathering& gathering,
                              const TrainingConfig& config) {
  if (!quantizes_weights(config) || layout.group_size() == 1) return {};
  const auto visits = static_cast<int>(gathering.traced->trace.visits.size());
  std::int64_t broken = 0;
  const auto check = [&](const MicroStepGathers& gathers, bool after_update) {
    const std::int64_t elements =
        broken_gather(layout, gathers, visits, config.stage3_allgather_sequential, after_update);
    if (elements != 0) broken = elements;
  };
  check(gathering.traced->first, false);
  if (config.accumulation_steps > 1) check(gathering.second, false);
  check(gathering.steady, true);
  if (config.accumulation_steps > 1) check(gathering.steady, false);
  if (broken == 0) return {};
  return fmt::format(
      "DeepSpeed's zero_quantized_weights fails: a rank's part of a gather has {} elements, which "
      "is no multiple of 8",
      broken);
}

std::string gradients_violation(const Layout& layout, const TrainingConfig& config) {
  if (quantizing_nodes(layout, config) == 0) return {};
  if (communication_type(config) != DType::f16) {
    return "DeepSpeed's zero_quantized_gradients takes every gradient for fp16 where there are "
           "several nodes, and so destroys others: train in fp16, or write communication_data_type "
           "fp16";
  }
  for (const Piece& piece : layout.pieces()) {
    if (!is_gradient_quantized(layout, piece)) continue;
    const std::string& name = layout.parameter(piece.parameter).name;
    if (scales_of_gradient(layout, piece) % layout.group_size() != 0) {
      return fmt::format(
          "DeepSpeed's zero_quantized_gradients fails where {} ranks do not divide the longer side "
          "of a matrix: {} of {}",
          layout.group_size(), longer_side(layout, piece), name);
    }
    if (gradients_of_a_scale(layout, piece) % quantized_at_once != 0) {
      return fmt::format(
          "DeepSpeed's zero_quantized_gradients reads 8 numbers at once, and {} share a scale in "
          "{}",
          gradients_of_a_scale(layout, piece), name);
    }
  }
  return {};
}

}  // namespace plan

namespace {

/// Says why the swap buffers do not suffice for sub-groups' states on the disk; empty if they do.
std::string state_buffers_violation(const TrainingConfig& config,
                                    const std::vector<plan::SubGroup>& groups) {
  std::vector<std::int64_t> taken;  // by each on the disk
  for (const plan::SubGroup& group : groups)
    if (group.memory == Memory::disk)
      taken.push_back(plan::tensors_on_disk(config.optimizer, group));
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
         " are needed for " + std::to_string(taken.size()) + " sub-groups on the disk: write " +
         std::to_string(needed);
}

/// Says why the buffers do not suffice for shards on the disk; empty if they do. DeepSpeed writes
/// all that are large enough there as it begins, also those that it then keeps in memory.
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
           " are needed: write " + std::to_string(largest);
  }
  const bool is_split = std::any_of(groups.begin(), groups.end(), [](const plan::SubGroup& group) {
    return group.swaps_parameters && group.memory == Memory::device;
  });
  if (is_split && is_optimizer_offloaded(config)) {
    return "DeepSpeed fails where it updates on the device what offload_optimizer.ratio leaves "
           "there and offload_param.max_in_cpu leaves on the disk";
  }
  return {};
}

/// Says why DeepSpeed does not train with such a leaf module; null if it does.
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
    index = module.is_leaf ? module.end : index + 1;
  }
  return {};
}

std::string mics_violation(const TrainingConfig& config, int group_size) {
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
  const std::int64_t nodes = plan::spanned_nodes(config);
  if (nodes > 1 && size % nodes == 0) return {};
  return fmt::format(
      "DeepSpeed refuses mics_hierarchical_params_gather where mics_shard_size, here {}, is not of "
      "the ranks of several whole nodes",
      size);
}

}  // namespace

std::string partition_violation(const TrainingConfig& config, int group_size) {
  if (config.zero_stage < 3) return {};
  if (is_mics(config)) return mics_violation(config, group_size);
  const std::int64_t size = std::min<std::int64_t>(config.zero_hpz_partition_size, group_size);
  if (size <= 1 || group_size % size == 0) return {};
  return fmt::format(
      "DeepSpeed refuses zero_hpz_partition_size {} for {} ranks: it does not divide them", size,
      group_size);
}

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
