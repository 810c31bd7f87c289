#pragma once
/// Small models and configurations that the tests of this folder share.

#include <algorithm>

#include <gtest/gtest.h>

#include "dstune/plan/memory.hpp"
#include "dstune/plan/step_plan.hpp"

namespace dstune::test {

/// Workspaces of sizes that differ by shape, so that a mistaken one shows.
class SomeWorkspaces : public WorkspaceSizes {
 public:
  std::int64_t matmul(const op::Matmul& shape, DType, DType) const override {
    return shape.transpose_a ? shape.k * 8 : 0;
  }
  std::int64_t norm(std::int64_t width) const override { return width * 12; }
  std::int64_t attention(std::int64_t batch, std::int64_t sequence, const ModelSpec&,
                         DType) const override {
    return batch * sequence * 4;
  }
  std::int64_t row_alignment_bytes() const override { return 128; }
};

/// Sizes with no common factors, so that shards and partitions need padding.
inline ModelSpec tiny_gpt2(bool tied = true) {
  return {.name = "tiny",
          .family = ModelFamily::gpt2,
          .hidden_size = 10,
          .num_layers = 3,
          .num_heads = 2,
          .num_kv_heads = 2,
          .head_size = 5,
          .intermediate_size = 37,
          .vocab_size = 101,
          .max_positions = 19,
          .tie_embeddings = tied};
}

/// Model of sizes that ZeRO++ can quantise on so many ranks.
inline ModelSpec even_gpt2(int ranks) {
  ModelSpec model = tiny_gpt2();
  model.hidden_size = 8 * ranks;
  model.head_size = 4 * ranks;
  model.intermediate_size = 24 * ranks;
  model.vocab_size = 26 * ranks;
  model.max_positions = 24;
  return model;
}

inline ModelSpec tiny_llama(bool tied = false) {
  ModelSpec model = tiny_gpt2(tied);
  model.family = ModelFamily::llama;
  model.architecture = architecture_of(model.family);
  model.num_heads = 4;
  model.head_size = 6;
  return model;
}

/// Two blocks whose tables and matrices are so large that a disk holds shards of them, in groups of
/// up to four ranks; of three ranks they end within a block of the disk.
inline ModelSpec wide_gpt2() {
  ModelSpec model = tiny_gpt2(false);
  model.hidden_size = 64;
  model.head_size = 32;
  model.num_layers = 2;
  model.intermediate_size = 16'384;
  model.vocab_size = 16'384;
  return model;
}

/// Models of the other families, with as many key heads as heads but where they may differ.
inline ModelSpec tiny_model(ModelFamily family) {
  ModelSpec model = tiny_llama(family == ModelFamily::opt || family == ModelFamily::bert ||
                               family == ModelFamily::distilbert);
  model.family = family;
  model.architecture = architecture_of(family);
  if (model.architecture.rotary_fraction < 1) model.head_size = 8;
  if (model.architecture.norm == NormKind::layer) model.num_kv_heads = model.num_heads;
  return model;
}

inline constexpr Objective objectives_of_labels[] = {Objective::sequence_class,
                                                     Objective::token_class, Objective::spans};
/// BERT with another head than the one of masked tokens.
inline ModelSpec tiny_bert(Objective objective) {
  ModelSpec model = tiny_model(ModelFamily::bert);
  model.architecture.objective = objective;
  model.tie_embeddings = false;
  model.labels = objective == Objective::spans ? 2 : 5;
  return model;
}

inline TrainingConfig tiny_config(int stage) {
  TrainingConfig config;
  config.zero_stage = stage;
  config.micro_batch = 2;
  config.sequence_length = 7;
  config.reduce_bucket_size = 1000;
  // Norms and biases stay whole, a few matrices are gathered ahead, some are kept for backward.
  config.stage3_param_persistence_threshold = 50;
  config.stage3_prefetch_bucket_size = 800;
  config.stage3_max_live_parameters = 4000;
  config.stage3_max_reuse_distance = 1500;
  return config;
}

inline StepPlan build(const ModelSpec& model, const TrainingConfig& config, int group_size,
                      int group_rank = 0) {
  return build_step_plan(model, config, group_size, group_rank, SomeWorkspaces());
}

/// Operations of a kind, in their order.
template <class Op>
std::vector<Op> every(const std::vector<Step>& steps) {
  std::vector<Op> found;
  for (const Step& step : steps)
    if (const auto* o = std::get_if<Op>(&step.operation)) found.push_back(*o);
  return found;
}
/// Those of all segments, each of which stands once.
template <class Op>
std::vector<Op> every(const StepPlan& plan) {
  std::vector<Op> found;
  for (const Segment& segment : plan.cycle)
    for (const Op& o : every<Op>(segment.steps)) found.push_back(o);
  return found;
}
template <class Op>
std::int64_t count_of(const std::vector<Step>& steps) {
  return static_cast<std::int64_t>(every<Op>(steps).size());
}

inline const PlannedTensor& tensor_of(const StepPlan& plan, View view) {
  return plan.tensors[static_cast<std::size_t>(view.tensor)];
}

/// Bytes of all that is always there in a memory, without padding.
inline std::int64_t held_bytes(const StepPlan& plan, Memory memory) {
  std::int64_t bytes = 0;
  for (const PlannedTensor& tensor : plan.tensors)
    if (tensor.persistent && tensor.memory == memory)
      bytes += tensor.elements * size_bytes(tensor.dtype);
  return bytes;
}

inline void expect_same_memory(const MemoryPlan& plan, const MemoryPlan& other) {
  EXPECT_EQ(plan.arena_bytes, other.arena_bytes);
  EXPECT_EQ(plan.peak_live_bytes, other.peak_live_bytes);
  EXPECT_EQ(plan.categories_at_peak, other.categories_at_peak);
  EXPECT_LE(plan.peak_live_bytes, plan.arena_bytes);
}

/// Mixed precision in bf16.
inline TrainingConfig mixed(int stage, std::int64_t micro_batch = 1) {
  TrainingConfig config;
  config.zero_stage = stage;
  config.micro_batch = micro_batch;
  config.precision = Precision::bf16;
  return config;
}

/// Memory that a rank of Hugging Face under DeepSpeed takes.
inline TargetMemory target_memory_of(const ModelSpec& model, const TrainingConfig& config,
                                     int group_size,
                                     TargetAttention attention = TargetAttention::eager) {
  return target_memory(model, config, group_size,
                       {.attention = attention, .keeps_output = false, .on_gpu = true});
}

/// Elements that a step copies from one memory to the other.
inline std::int64_t copied(const StepPlan& plan, Memory to) {
  std::int64_t elements = 0;
  for (const Segment& segment : plan.cycle)
    for (const op::Copy& copy : every<op::Copy>(segment.steps))
      if (tensor_of(plan, copy.y).memory == to) elements += copy.count * segment.repeat;
  return elements;
}

}  // namespace dstune::test
