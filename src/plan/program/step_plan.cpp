#include <algorithm>
#include <numeric>
#include <utility>

#include "dstune/base/error.hpp"
#include "dstune/model/module_names.hpp"
#include "dstune/plan/step_planner.hpp"
#include "parts/micro_step.hpp"
#include "zero/module_trace.hpp"
#include "zero/quantization.hpp"
#include "zero/sub_groups.hpp"
#include "zero/update.hpp"

namespace dstune {
namespace {

void check(const ModelSpec& model, const TrainingConfig& config, int group_size, int group_rank) {
  require(group_size >= 1 && group_rank >= 0 && group_rank < group_size,
          "the rank is one of the group's");
  require(config.zero_stage >= 0 && config.zero_stage <= 3, "the ZeRO stage is 0 to 3");
  require(config.micro_batch >= 1 && config.accumulation_steps >= 1 && config.sequence_length >= 1,
          "batch sizes and sequence length are positive");
  require(config.reduce_bucket_size >= 1, "a bucket holds something");
  require(model.architecture.positions != PositionKind::learned ||
              config.sequence_length <= model.max_positions,
          "the sequence is no longer than the model's table of positions");
  require(model.num_heads % model.num_kv_heads == 0, "key heads divide the heads");
  // A group of one, in which the machine is measured, has no parts.
  require(group_size == 1 || partition_objection(config, group_size).empty(),
          "parts of the group are of equal size");
}

/// Stage 3's first micro-steps of all.
void emit_tracing(const plan::Context& context, const plan::Gathering& gathering) {
  using enum Segment::Kind;
  const std::int64_t steps = context.config.accumulation_steps;
  const auto segment = [&](Segment::Kind kind, plan::MicroStep micro,
                           const plan::MicroStepGathers& gathers) {
    context.emitter.begin_tracing_segment(kind);
    context.parameters.begin_micro_step(gathers, false);
    plan::emit_micro_step(context, micro);
    context.emitter.end_segment();
  };
  segment(steps == 1 ? only_micro : first_micro, {true, steps == 1}, gathering.traced->first);
  if (steps > 1)
    segment(steps == 2 ? last_micro : middle_micro, {false, steps == 2}, gathering.second);
}

void emit_cycle(const plan::Context& context, const plan::Gathering* gathering) {
  using enum Segment::Kind;
  const auto segment = [&](Segment::Kind kind, std::int64_t repeat, plan::MicroStep micro) {
    context.emitter.begin_segment(kind, repeat);
    if (gathering != nullptr) context.parameters.begin_micro_step(gathering->steady, micro.first);
    plan::emit_micro_step(context, micro);
    context.emitter.end_segment();
  };
  const std::int64_t steps = context.config.accumulation_steps;
  if (steps == 1) {
    segment(only_micro, 1, {true, true});
    return;
  }
  const std::int64_t lasts = context.gradients.is_last_another() ? 1 : 0;
  segment(first_micro, 1, {true, false});
  if (steps - lasts > 1) segment(middle_micro, steps - lasts - 1, {false, false});
  if (lasts > 0) segment(last_micro, 1, {false, true});
}

/// Of sub-groups' states on the disk.
std::string state_buffers_objection(const TrainingConfig& config,
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
std::string shard_buffers_objection(const plan::Layout& layout, const TrainingConfig& config,
                                    const std::vector<plan::SubGroup>& groups) {
  const std::int64_t element = size_bytes(element_type(config.precision));
  std::int64_t largest = 0;
  for (int piece = 0; piece < static_cast<int>(layout.pieces().size()); ++piece)
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

std::string leaf_objection(const ModelSpec& model, const TrainingConfig& config) {
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

std::string_view to_text(Category category) {
  switch (category) {
    case Category::parameters:
      return "parameters";
    case Category::gradients:
      return "gradients";
    case Category::optimizer:
      return "optimizer";
    case Category::activations:
      return "activations";
    case Category::buckets:
      return "buckets";
    case Category::gathered:
      return "gathered";
    case Category::workspace:
      return "workspace";
    case Category::staging:
      return "staging";
  }
  throw LogicError("unknown category");
}

std::int64_t targets_per_sequence(const ModelSpec& model, std::int64_t sequence_length) {
  if (model.architecture.objective == Objective::next_token) return sequence_length;
  return std::max<std::int64_t>(1, sequence_length * 15 / 100);
}

std::string model_objection(const ModelSpec& model, const TrainingConfig& config, int group_size) {
  std::string leaves = leaf_objection(model, config);
  const bool may_fail =
      uses_disk(config) || quantizes_weights(config) || quantizes_gradients(config);
  if (!leaves.empty() || !may_fail) return leaves;
  const ParameterTable table(model);
  const plan::Layout layout(table, config.zero_stage, plan::partition_of(config, group_size, 0),
                            {is_optimizer_offloaded(config), are_parameters_offloaded(config)});
  const std::vector<plan::SubGroup> groups = plan::cut_into_sub_groups(layout, config);
  std::string objection = plan::gradients_objection(layout, config);
  if (objection.empty() && is_optimizer_on_disk(config))
    objection = state_buffers_objection(config, groups);
  if (objection.empty() && are_parameters_on_disk(config))
    objection = shard_buffers_objection(layout, config, groups);
  if (!objection.empty() || !layout.gathers()) return objection;
  return plan::plan_gathering(model, layout, config).failure;
}

struct StepPlanner::Shared {
  ParameterTable table;
  const WorkspaceSizes& workspaces;
  plan::Gatherings gatherings;
};

StepPlanner::StepPlanner(ModelSpec model, const WorkspaceSizes& workspaces)
    : shared_(std::make_unique<Shared>(Shared{ParameterTable(model), workspaces, {}})) {
  plan_.model = std::move(model);
}

StepPlanner::StepPlanner(StepPlanner&& other) noexcept = default;
StepPlanner& StepPlanner::operator=(StepPlanner&& other) noexcept = default;
StepPlanner::~StepPlanner() = default;

StepPlan build_step_plan(const ModelSpec& model, const TrainingConfig& config, int group_size,
                         int group_rank, const WorkspaceSizes& workspaces) {
  StepPlanner planner(model, workspaces);
  planner.plan(config, group_size, group_rank);
  return std::move(planner.plan_);
}

const StepPlan& StepPlanner::plan(const TrainingConfig& config, int group_size, int group_rank) {
  const ModelSpec& model = plan_.model;
  check(model, config, group_size, group_rank);
  plan_.config = config;
  plan_.group_size = group_size;
  plan_.group_rank = group_rank;

  const plan::Layout layout(shared_->table, config.zero_stage,
                            plan::partition_of(config, group_size, group_rank),
                            {is_optimizer_offloaded(config), are_parameters_offloaded(config)},
                            // BF16_Optimizer knows nothing of it.
                            config.round_robin_gradients && !is_bf16_optimizer(config));
  plan::Emitter emitter(plan_, shared_->workspaces);
  const plan::Gathering* const gathering =
      layout.gathers() ? &shared_->gatherings.of(model, layout, config) : nullptr;
  require((gathering == nullptr || gathering->failure.empty()) &&
              plan::gradients_objection(layout, config).empty(),
          "what DeepSpeed fails with has no plan");
  const plan::PersistentTensors tensors = plan::declare_persistent_tensors(
      emitter, layout, config, gathering == nullptr ? 0 : gathering->traced->kept_elements);
  plan::emit_initialize(emitter, layout, tensors, config);

  plan::ParameterSource parameters(emitter, layout, config, tensors, gathering);
  plan::GradientSink gradients(emitter, layout, config, tensors);
  const plan::Context context{emitter, parameters, gradients,
                              model,   config,     plan::sizes_of(model, config, group_size)};
  if (gathering != nullptr) emit_tracing(context, *gathering);
  emit_cycle(context, gathering);
  plan::emit_update(emitter, layout, tensors, config,
                    targets_per_sequence(model, config.sequence_length), gathering);
  emitter.finish();
  return plan_;
}

}  // namespace dstune
