/// Effects of each key of zero_optimization on a plan, and that it has no other and nowhere
/// else: a row for every row of the table of knobs. As DeepSpeed, where a row does not say
/// otherwise.

#include <algorithm>
#include <functional>
#include <map>
#include <ranges>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/core/settings.hpp"
#include "plan_fixtures.hpp"
#include "traffic.hpp"

namespace dstune {
namespace {

/// Kinds of changes that a knob makes.
enum What : unsigned {
  nothing = 0,
  volume = 1,   ///< elements that a kind of collective is handed
  calls = 2,    ///< how many there are
  memory = 4,   ///< bytes of what is acquired, or of the arena
  streams = 8,  ///< what runs beside compute
  program = 16  ///< anything else
};

using Given = std::function<void(TrainingConfig&)>;

struct Statement {
  const char* key;
  unsigned stages;  ///< bit s: it acts at stage s
  unsigned what;
  KnobValue value;  ///< another than that of the base configuration
  Given given = [](TrainingConfig&) {};
};

constexpr unsigned stages_1_2 = 0b0110, stages_1_2_3 = 0b1110, stage_3 = 0b1000;

/// Nothing is gathered twice for another reason.
void plain_gathers(TrainingConfig& config) {
  config.overlap_comm = true;
  config.stage3_param_persistence_threshold = 0;
  config.stage3_prefetch_bucket_size = 0;
  config.stage3_max_live_parameters = 1'000'000'000;
  config.stage3_max_reuse_distance = 0;
}

/// The optimizer on a disk, in several sub-groups.
void on_disk(TrainingConfig& config) {
  config.offload_optimizer = OffloadDevice::nvme;
  config.disk.folder = "/";
  config.sub_group_size = 60;
}

/// Parameters on a disk, in several sub-groups.
void parameters_on_disk(TrainingConfig& config) {
  config.offload_param = OffloadDevice::nvme;
  config.disk.folder = "/";
  config.sub_group_size = 60;
}

/// Other names of a key do what it does.
std::vector<Statement> statements() {
  return {
      {"overlap_comm", stages_1_2_3, memory | streams, true},
      {"reduce_scatter", stage_3, volume | memory, false},
      {"reduce_bucket_size", stages_1_2_3, calls | memory, std::int64_t{500'000'000}},
      {"use_multi_rank_bucket_allreduce", stages_1_2, volume | calls, false},
      {"contiguous_gradients", stages_1_2_3, memory, false},
      {"round_robin_gradients", stages_1_2, calls | memory, true,
       [](auto& config) { config.use_multi_rank_bucket_allreduce = false; }},
      {"compute_grad_norm", stages_1_2, program, false,
       [](auto& config) { config.gradient_clipping = 0; }},
      {"parameter_alignment", stages_1_2, volume | memory, true},
      {"sub_group_size", stage_3, program, std::int64_t{600}},
      {"offload_optimizer/device", stages_1_2_3, memory | streams, std::string("cpu")},
      {"cpu_offload", stages_1_2_3, memory | streams, true},
      {"offload_optimizer/ratio", stage_3, program, 0.5,
       [](auto& config) {
         config.offload_optimizer = OffloadDevice::cpu;
         config.sub_group_size = 600;
       }},
      {"offload_optimizer/nvme_path", stage_3, nothing, std::string("/tmp")},
      {"offload_optimizer/buffer_count", stage_3, memory, std::int64_t{6}, on_disk},
      // When a transfer is waited for, which is none of what is told apart here.
      {"offload_optimizer/pipeline_read", stage_3, nothing, true, on_disk},
      {"offload_optimizer/pipeline_write", stage_3, nothing, true, on_disk},
      {"offload_param/device", stage_3, memory, std::string("cpu")},
      {"cpu_offload_param", stage_3, memory, true},
      {"offload_param/nvme_path", stage_3, nothing, std::string("/tmp")},
      {"offload_param/buffer_count", stage_3, memory, std::int64_t{6}, parameters_on_disk},
      {"offload_param/buffer_size", stage_3, memory, std::int64_t{600}, parameters_on_disk},
      {"offload_param/max_in_cpu", stage_3, memory, std::int64_t{0}, parameters_on_disk},
      {"stage3_prefetch_bucket_size", stage_3, volume | calls | memory, std::int64_t{800},
       plain_gathers},
      {"stage3_param_persistence_threshold", stage_3, volume | calls | memory, std::int64_t{37},
       plain_gathers},
      {"stage3_model_persistence_threshold", stage_3, volume | calls | memory, std::int64_t{25}},
      {"stage3_max_live_parameters", stage_3, volume | calls | memory, std::int64_t{0}},
      {"stage3_max_reuse_distance", stage_3, volume | calls | memory, std::int64_t{1'000'000'000},
       plain_gathers},
      {"stage3_module_granularity_threshold", stage_3, calls | memory, std::int64_t{150},
       plain_gathers},
      {"leaf_module/classes", stage_3, calls | memory, std::string("GPT2Block\n"), plain_gathers},
      {"leaf_module/names", stage_3, calls | memory, std::string("transformer.h.1\n"),
       plain_gathers},
      {"leaf_module/name_suffixes", stage_3, calls, std::string("mlp\n"), plain_gathers},
      // The head's alone: the blocks of GPT-2 have no linear layers. Nothing more is acquired.
      {"memory_efficient_linear", stage_3, nothing, false, plain_gathers},
      {"stage3_allgather_sequential", stage_3, volume | calls | memory, true, plain_gathers},
      {"stage3_use_all_reduce_for_fetch_params", stage_3, volume, true, plain_gathers},
      {"zero_hpz_partition_size", stage_3, calls | memory, std::int64_t{3}},
      {"mics_shard_size", stage_3, calls | memory, std::int64_t{3}, plain_gathers},
      {"mics_hierarchical_params_gather", stage_3, volume | calls | memory, true,
       [](auto& config) {
         config.mics_shard_size = 3;
         config.ranks_per_node = 1;
       }},
      {"zero_quantized_weights", stage_3, volume | calls | memory, true, plain_gathers},
      {"zero_quantized_gradients", stage_3, volume | calls | memory, true,
       [](auto& config) {
         config.communication_data_type = CommunicationType::fp16;
         config.ranks_per_node = 1;
       }},
  };
}

std::int64_t acquired_bytes(const StepPlan& plan) {
  std::int64_t bytes = 0;
  for (const PlannedTensor& tensor : plan.tensors) bytes += tensor.padded_bytes;
  return bytes;
}

/// Differences that show; `program` where there is no other.
unsigned differences(const TrainingConfig& before, const TrainingConfig& after) {
  unsigned what = nothing;
  const bool is_quantized = after.zero_quantized_weights || after.zero_quantized_gradients;
  const ModelSpec model = is_quantized ? test::even_gpt2(3) : test::tiny_gpt2();
  for (const int rank : {0, 2}) {
    const StepPlan one = test::build(model, before, 3, rank);
    const StepPlan other = test::build(model, after, 3, rank);
    const test::Traffic left = test::traffic_of(one);
    const test::Traffic right = test::traffic_of(other);
    if (left.all_reduce != right.all_reduce || left.reduce != right.reduce ||
        left.reduce_scatter != right.reduce_scatter || left.all_gather != right.all_gather)
      what |= volume;
    if (left.calls != right.calls) what |= calls;
    if (acquired_bytes(one) != acquired_bytes(other)) what |= memory;
    bool same_steps = one.cycle.size() == other.cycle.size();
    std::map<Stream, std::size_t> beside_one, beside_other;
    for (std::size_t i = 0; same_steps && i < one.cycle.size(); ++i)
      same_steps = one.cycle[i].steps.size() == other.cycle[i].steps.size();
    for (const Segment& segment : one.cycle)
      for (const Step& step : segment.steps) ++beside_one[step.stream];
    for (const Segment& segment : other.cycle)
      for (const Step& step : segment.steps) ++beside_other[step.stream];
    const bool same_streams =
        std::ranges::equal(std::views::keys(beside_one), std::views::keys(beside_other));
    if (!same_streams) what |= streams;
    if (what == nothing && (!same_steps || beside_one != beside_other)) what = program;
    if (what == nothing && one.memory.arena_bytes != other.memory.arena_bytes) what = memory;
  }
  return what;
}

TEST(KnobEffectsTest, EveryKeyOfZeroOptimizationDoesWhatIsStated) {
  const std::string section = "/zero_optimization/";
  std::map<std::string, Statement> stated;
  for (const Statement& statement : statements())
    stated.emplace(section + statement.key, statement);
  for (const Knob& knob : every_knob().knobs()) {
    if (!knob.pointer.starts_with(section) || knob.pointer == section + "stage") continue;
    const std::string_view pointer = knob.alias_of.empty() ? knob.pointer : knob.alias_of;
    const auto found = stated.find(std::string(pointer));
    if (found == stated.end()) {
      EXPECT_EQ(knob.apply, nullptr) << knob.pointer << " acts: state above what it does";
      continue;
    }
    const Statement& statement = found->second;
    if (statement.what == nothing) continue;
    ASSERT_NE(knob.apply, nullptr) << knob.pointer;
    for (int stage = 0; stage <= 3; ++stage) {
      TrainingConfig before = test::tiny_config(stage);
      before.accumulation_steps = 2;
      statement.given(before);
      TrainingConfig after = before;
      knob.apply(after, statement.value);
      const bool acts = (statement.stages >> stage & 1U) != 0;
      EXPECT_EQ(differences(before, after), acts ? statement.what : nothing)
          << knob.pointer << " at stage " << stage;
      EXPECT_TRUE(!acts || knob.acts_at(stage)) << knob.pointer << " at stage " << stage;
    }
  }
  for (const auto& [pointer, statement] : stated)
    EXPECT_NE(every_knob().find_knob(pointer), nullptr) << pointer << " is no knob";
}

}  // namespace
}  // namespace dstune
