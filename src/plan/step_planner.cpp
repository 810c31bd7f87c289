#include <algorithm>
#include <array>
#include <utility>

#include "dstune/base/error.hpp"
#include "dstune/plan/step_plan.hpp"
#include "parts/parts.hpp"
#include "zero/folding.hpp"

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
  plan::FoldedModels folded{};
};

/// Every plan begins with this.
struct StepPlanner::Common {
  Common(StepPlanner& planner, const TrainingConfig& wanted, int group_size, int group_rank,
         plan::Contents contents)
      : shared(*planner.shared_),
        config(set(planner.plan_, wanted, group_size, group_rank)),
        layout(shared.table, config.zero_stage, plan::partition_of(config, group_size, group_rank),
               plan::offloaded_of(config), plan::order_of(config)),
        emitter(planner.plan_, shared.workspaces, contents),
        gathering(layout.gathers() ? &shared.gatherings.of(planner.plan_.model, layout, config)
                                   : nullptr) {
    require((gathering == nullptr || gathering->failure.empty()) &&
                plan::gradients_violation(layout, config).empty(),
            "a configuration that DeepSpeed fails with has no plan");
    tensors = plan::declare_persistent_tensors(
        emitter, layout, config, gathering == nullptr ? 0 : gathering->traced->kept_elements);
  }

  static const TrainingConfig& set(StepPlan& plan, const TrainingConfig& wanted, int group_size,
                                   int group_rank) {
    check(plan.model, wanted, group_size, group_rank);
    plan.config = as_partitioned(wanted);
    plan.group_size = group_size;
    plan.group_rank = group_rank;
    return plan.config;
  }

  [[nodiscard]] const plan::ModuleTrace& trace(const ModelSpec& model) const {
    return gathering == nullptr ? shared.traces.of(model, shared.table, config)
                                : gathering->traced->trace;
  }

  void emit_update(const ModelSpec& model) {
    plan::emit_update({emitter, layout, config, tensors},
                      targets_per_sequence(model, config.sequence_length), gathering);
    // Stage 1 hands over all gradients once a step, behind the last backward.
    if (config.zero_stage == 1)
      emitter.count(Overhead::gradient_hook, static_cast<double>(trace(model).registered.size()));
    emitter.finish();
  }

  Shared& shared;
  const TrainingConfig& config;
  plan::Layout layout;
  plan::Emitter emitter;
  const plan::Gathering* gathering;
  plan::PersistentTensors tensors;
};

StepPlanner::StepPlanner(ModelSpec model, const WorkspaceSizes& workspaces)
    : shared_(std::make_unique<Shared>(Shared{ParameterTable(model), workspaces, {}, {}, {}})) {
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

namespace {

/// Micro-steps of one model's layers; the whole model's, or those of a folded one.
struct Layers {
  const ModelSpec& model;
  const plan::Layout& layout;
  const plan::PersistentTensors& tensors;
  const plan::Gathering* gathering;
  const plan::LayerFold* fold;
};

void emit_micro_steps(plan::Emitter& emitter, const TrainingConfig& config, int group_size,
                      const Layers& layers, const plan::ModuleTrace& trace, bool traces) {
  const plan::ZeroContext zero{emitter, layers.layout, config, layers.tensors};
  plan::ParameterSource parameters(zero, layers.gathering);
  plan::GradientSink gradients(zero);
  const plan::Context context{emitter,    parameters,
                              gradients,  layers.model,
                              config,     plan::sizes_of(layers.model, config, group_size),
                              layers.fold};
  if (traces && layers.gathering != nullptr) emit_tracing(context, *layers.gathering);
  emit_cycle(context, layers.gathering, trace);
}

}  // namespace

const StepPlan& StepPlanner::plan(const TrainingConfig& config, int group_size, int group_rank) {
  return all_of(Common(*this, config, group_size, group_rank, plan::Contents::all));
}

const StepPlan& StepPlanner::figures(const TrainingConfig& config, int group_size) {
  return all_of(Common(*this, config, group_size, 0, plan::Contents::figures));
}

const StepPlan& StepPlanner::all_of(Common&& common) {
  const ModelSpec& model = plan_.model;
  plan::emit_initialize({common.emitter, common.layout, common.config, common.tensors});
  const Layers whole{model, common.layout, common.tensors, common.gathering, nullptr};
  emit_micro_steps(common.emitter, common.config, plan_.group_size, whole, common.trace(model),
                   true);
  common.emit_update(model);
  return plan_;
}

const StepPlan& StepPlanner::folded_cycle(const TrainingConfig& wanted, int group_size) {
  const ModelSpec& model = plan_.model;
  Common common(*this, wanted, group_size, 0, plan::Contents::cycle);
  plan::Emitter& emitter = common.emitter;
  const TrainingConfig& config = common.config;
  const plan::FoldedModel* const folded =
      shared_->folded.of(model, common.layout, config, common.gathering);
  if (folded == nullptr) {
    const Layers whole{model, common.layout, common.tensors, common.gathering, nullptr};
    emit_micro_steps(emitter, config, group_size, whole, common.trace(model), false);
  } else {
    const plan::Gathering* const gathering = folded->gathering ? &*folded->gathering : nullptr;
    const plan::PersistentTensors tensors = plan::declare_persistent_tensors(
        emitter, folded->layout, config,
        gathering == nullptr ? 0 : gathering->traced->kept_elements);
    const Layers left{folded->model, folded->layout, tensors, gathering, &folded->fold};
    emit_micro_steps(emitter, config, group_size, left, common.trace(model), false);
  }
  common.emit_update(model);
  return plan_;
}

}  // namespace dstune
