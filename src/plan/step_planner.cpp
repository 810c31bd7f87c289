#include <algorithm>
#include <array>
#include <utility>

#include "dstune/base/error.hpp"
#include "dstune/plan/step_plan.hpp"
#include "parts/parts.hpp"

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
  require(group_size == 1 || partition_violation(config, group_size).empty(),
          "parts of the group are of equal size");
}

/// Counts the overheads of DeepSpeed and PyTorch in a micro-step beside its operations.
void count_overheads(const plan::Context& context, const plan::ModuleTrace& trace) {
  const int stage = context.config.zero_stage;
  context.emitter.count(Overhead::module_call, trace.num_calls);
  if (stage == 3) context.emitter.count(Overhead::gathering_hook, trace.num_hooks);
  if (stage >= 2)
    context.emitter.count(Overhead::gradient_hook, static_cast<double>(trace.registered.size()));
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

void emit_cycle(const plan::Context& context, const plan::Gathering* gathering,
                const plan::ModuleTrace& trace) {
  using enum Segment::Kind;
  const auto segment = [&](Segment::Kind kind, std::int64_t repeat, plan::MicroStep micro) {
    context.emitter.begin_segment(kind, repeat);
    if (gathering != nullptr) context.parameters.begin_micro_step(gathering->steady, micro.first);
    count_overheads(context, trace);
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

}  // namespace

std::string_view to_text(Category category) {
  constexpr std::array<std::string_view, num_categories> names{
      "parameters", "gradients", "optimizer", "activations",
      "buckets",    "gathered",  "workspace", "staging"};
  return names.at(static_cast<std::size_t>(category));
}

std::int64_t targets_per_sequence(const ModelSpec& model, std::int64_t sequence_length) {
  switch (model.architecture.objective) {
    case Objective::next_token:
    case Objective::token_class:
      return sequence_length;
    case Objective::masked_token:
      return std::max<std::int64_t>(1, sequence_length * 15 / 100);
    case Objective::sequence_class:
      return 1;
    case Objective::spans:
      return 2;
  }
  throw LogicError("an objective is a known one");
}

std::optional<op::Collective> collective_of(const Operation& operation, int group_size) {
  std::optional<op::Collective> collective;
  visit_kind<OperationKind::collective>(
      [&](const auto& one) { collective = one.collective(group_size); }, operation);
  return collective;
}

std::vector<Access> accesses(const StepPlan& plan, const Operation& operation) {
  const ModelSpec& model = plan.model;
  const PlanSizes sizes{.samples = plan.config.micro_batch,
                        .sequence = plan.config.sequence_length,
                        .hidden = model.hidden_size,
                        .vocabulary = model.vocab_size,
                        .heads = model.num_heads,
                        .kv_heads = model.num_kv_heads,
                        .head_size = model.head_size,
                        .group_size = plan.group_size,
                        .reshard_pieces = plan.reshard_pieces};
  AccessList list;
  visit_kind<OperationKind::arithmetic, OperationKind::copy, OperationKind::disk,
             OperationKind::collective>([&](const auto& one) { one.access(list, sizes); },
                                        operation);
  return list.all();
}

struct StepPlanner::Shared {
  ParameterTable table;
  const WorkspaceSizes& workspaces;
  plan::Gatherings gatherings;
  plan::ModuleTraces traces{};
};

StepPlanner::StepPlanner(ModelSpec model, const WorkspaceSizes& workspaces)
    : shared_(std::make_unique<Shared>(Shared{ParameterTable(model), workspaces, {}, {}})) {
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

const StepPlan& StepPlanner::plan(const TrainingConfig& wanted, int group_size, int group_rank) {
  const ModelSpec& model = plan_.model;
  check(model, wanted, group_size, group_rank);
  plan_.config = as_partitioned(wanted);
  const TrainingConfig& config = plan_.config;
  plan_.group_size = group_size;
  plan_.group_rank = group_rank;

  const plan::Layout layout(shared_->table, config.zero_stage,
                            plan::partition_of(config, group_size, group_rank),
                            plan::offloaded_of(config), plan::order_of(config));
  plan::Emitter emitter(plan_, shared_->workspaces);
  const plan::Gathering* const gathering =
      layout.gathers() ? &shared_->gatherings.of(model, layout, config) : nullptr;
  require((gathering == nullptr || gathering->failure.empty()) &&
              plan::gradients_violation(layout, config).empty(),
          "what DeepSpeed fails with has no plan");
  const plan::PersistentTensors tensors = plan::declare_persistent_tensors(
      emitter, layout, config, gathering == nullptr ? 0 : gathering->traced->kept_elements);
  const plan::ZeroContext zero{emitter, layout, config, tensors};
  plan::emit_initialize(zero);

  plan::ParameterSource parameters(zero, gathering);
  plan::GradientSink gradients(zero);
  const plan::Context context{emitter, parameters, gradients,
                              model,   config,     plan::sizes_of(model, config, group_size)};
  if (gathering != nullptr) emit_tracing(context, *gathering);
  const plan::ModuleTrace& trace = gathering == nullptr
                                       ? shared_->traces.of(model, shared_->table, config)
                                       : gathering->traced->trace;
  emit_cycle(context, gathering, trace);
  plan::emit_update(zero, targets_per_sequence(model, config.sequence_length), gathering);
  // Stage 1 hands over all gradients once a step, behind the last backward.
  if (config.zero_stage == 1)
    emitter.count(Overhead::gradient_hook, static_cast<double>(trace.registered.size()));
  emitter.finish();
  return plan_;
}

}  // namespace dstune
