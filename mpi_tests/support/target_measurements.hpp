#pragma once
/// What PyTorch's tensors took in trainings (unit/plan/data/target_memory.json, measured by
/// scripts/tools/check_target_memory.py), and the target's formula for the same trainings.

#include <algorithm>
#include <cstdint>
#include <string>

#include "dstune/base/json.hpp"
#include "dstune/core/deepspeed_version.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/plan/memory.hpp"

namespace dstune::test {

inline ModelSpec model_of(const json::Value& measured) {
  ModelSpec model;
  model.family = from_text<ModelFamily>(measured.at("family").get<std::string>()).value();
  model.hidden_size = measured.at("hidden_size");
  model.num_layers = measured.at("num_layers");
  model.num_heads = measured.at("num_heads");
  model.num_kv_heads = measured.at("num_kv_heads");
  model.head_size = model.hidden_size / model.num_heads;
  model.intermediate_size = measured.at("intermediate_size");
  model.vocab_size = measured.at("vocab_size");
  model.max_positions = measured.at("max_positions");
  model.tie_embeddings = measured.at("tie_embeddings");
  model.dropout = measured.at("dropout");
  model.architecture = architecture_of(model.family);
  if (model.num_kv_heads > 1) model.architecture.shared_norm = false;
  model.labels = measured.value("labels", 0);
  if (model.labels > 0) {
    const std::string objective = measured.at("objective");
    model.architecture.objective = objective == "spans"         ? Objective::spans
                                   : objective == "token_class" ? Objective::token_class
                                                                : Objective::sequence_class;
  }
  return model;
}

inline TrainingConfig config_of(const json::Value& measured) {
  TrainingConfig config;
  const std::string precision = measured.at("precision");
  config.precision = precision == "fp32"   ? Precision::fp32
                     : precision == "fp16" ? Precision::fp16
                                           : Precision::bf16;
  config.micro_batch = measured.at("micro_batch");
  config.sequence_length = measured.at("sequence_length");
  config.accumulation_steps = measured.at("accumulation_steps");
  return config;
}

/// The fullest instant but the update.
inline std::int64_t before_update(const TargetMemory& memory) {
  return std::max({memory.instants.at("loss"), memory.instants.at("layers"),
                   memory.instants.at("first_layer"), memory.instants.at("reduction")});
}

/// Forward and backward of a Hugging Face model, without an optimizer.
inline std::int64_t planned_training_bytes(const json::Value& row) {
  const ModelSpec model = model_of(row.at("model"));
  TrainingConfig config = config_of(row);
  if (row.at("recompute") == "block") config.recompute = Recompute::block;
  const auto attention = from_text<TargetAttention>(row.at("attention").get<std::string>());
  const TargetMemory memory =
      target_memory(model, config, 1, TargetSpec{.attention = attention.value()});
  // Stage 0 counts without the optimizer's states.
  const int states = config.precision == Precision::fp32 ? 8 : 12;
  return before_update(memory) - states * parameter_count(model);
}

/// The model of all steps under DeepSpeed.
inline ModelSpec small_model(const std::string& family) {
  ModelSpec model = preset(family == "llama" ? "llama-7b" : "gpt2");
  model.hidden_size = 128;
  model.num_layers = model.num_heads = model.num_kv_heads = 4;
  model.head_size = 32;
  model.intermediate_size = family == "llama" ? 344 : 512;
  model.vocab_size = 1000;
  model.max_positions = 128;
  model.dropout = 0;
  return model;
}

inline TargetSpec target_of(const json::Value& row) {
  TargetSpec target;
  const std::string trains = row.value("trains", "all");
  if (trains == "lora") target.trainable = Trainable{{}, 8, {"q_proj", "v_proj"}};
  if (trains == "adamw_8bit") target.optimizer = TargetOptimizer::adamw_8bit;
  return target;
}

/// A step under DeepSpeed.
inline TargetMemory planned_step(const json::Value& row) {
  TrainingConfig config = config_of(row);
  config.fp32_gradient_accumulation = row.contains("data_types");
  if (row.value("deepspeed", "0.19.6") == "0.19.8") config.switches = switches_of({0, 19, 8});
  if (row.contains("bf16"))
    config.immediate_grad_update = row.at("bf16").value("immediate_grad_update", false);
  const json::Value& zero = row.at("zero_optimization");
  config.zero_stage = zero.at("stage");
  config.overlap_comm = config.zero_stage == 3;
  for_each_member(config, [&](const char* name, auto& member) {
    if (zero.contains(name) && !zero.at(name).is_object()) zero.at(name).get_to(member);
  });
  config.aligns_parameters = zero.value("parameter_alignment", false);
  config.ranks_per_node = row.value("ranks_per_node", 0);
  if (row.contains("communication_data_type"))
    config.communication_data_type = CommunicationType::fp16;
  if (zero.contains("offload_optimizer")) config.offload_optimizer = OffloadDevice::cpu;
  return target_memory(small_model(row.value("family", "gpt2")), config, row.at("ranks"),
                       target_of(row));
}

}  // namespace dstune::test
