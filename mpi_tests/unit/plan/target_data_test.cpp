/// The target's formula against what PyTorch's tensors take: data/target_memory.json, measured by
/// scripts/tools/check_target_memory.py.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "dstune/base/json.hpp"
#include "dstune/core/deepspeed_version.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/plan/memory.hpp"

namespace dstune {
namespace {

json::Value measured(const char* part) {
  std::ifstream file(DSTUNE_TARGET_MEMORY);
  EXPECT_TRUE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return json::Value::parse(text.str()).at(part);
}

ModelSpec model_of(const json::Value& measured) {
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
  return model;
}

TrainingConfig config_of(const json::Value& measured) {
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

std::int64_t before_update(const TargetMemory& memory) {
  return std::max({memory.instants.at("loss"), memory.instants.at("layers"),
                   memory.instants.at("first_layer"), memory.instants.at("reduction")});
}

/// Relative; what is too little counts as well as what is too much.
struct Errors {
  double sum = 0, least = 0, most = 0;
  int count = 0;
  void add(double error) {
    sum += std::abs(error);
    least = std::min(least, error);
    most = std::max(most, error);
    ++count;
  }
};

double relative_error(std::int64_t predicted, std::int64_t measured) {
  return static_cast<double>(predicted) / static_cast<double>(measured) - 1;
}

TEST(TargetDataTest, ForwardAndBackwardOfHuggingFaceModels) {
  Errors errors;
  for (const json::Value& row : measured("training")) {
    const ModelSpec model = model_of(row.at("model"));
    TrainingConfig config = config_of(row);
    if (row.at("recompute") == "block") config.recompute = Recompute::block;
    const TargetMemory memory = target_memory(
        model, config, 1,
        TargetSpec{.attention =
                       from_text<TargetAttention>(row.at("attention").get<std::string>()).value()});
    // Stage 0 counts without the optimizer's states.
    const std::int64_t optimizer =
        (config.precision == Precision::fp32 ? 8 : 12) * parameter_count(model);
    const double error =
        relative_error(before_update(memory) - optimizer, row.at("peak_bytes").get<std::int64_t>());
    errors.add(error);
    EXPECT_NEAR(error, 0.0, 0.10) << row.dump();
  }
  EXPECT_GE(errors.count, 12);
  EXPECT_LE(errors.sum / errors.count, 0.05);
  EXPECT_GE(errors.least, -0.01);  // what is recommended fits
}

/// The model of all steps under DeepSpeed.
ModelSpec small_model(const std::string& family) {
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

TargetSpec target_of(const json::Value& row) {
  TargetSpec target;
  const std::string trains = row.value("trains", "all");
  if (trains == "lora") target.trainable = Trainable{{}, 8, {"q_proj", "v_proj"}};
  if (trains == "adamw_8bit") target.optimizer = TargetOptimizer::adamw_8bit;
  return target;
}

/// The model with LoRA takes so little that what backward begins with is a larger part of it.
double allowed_error(const json::Value& row, const TargetSpec& target) {
  if (target.trainable) return 0.11;
  return row.contains("deepspeed") && target.optimizer == TargetOptimizer::of_config ? 0.05 : 0.08;
}

TEST(TargetDataTest, StepsUnderDeepSpeed) {
  Errors errors, of_lora;
  for (const json::Value& row : measured("deepspeed")) {
    const ModelSpec model = small_model(row.value("family", "gpt2"));
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
    const TargetSpec target = target_of(row);
    const TargetMemory memory = target_memory(model, config, row.at("ranks"), target);
    // On CPUs the two memories are one.
    for (const auto& [predicted, name] :
         {std::pair(memory.instants.at("loss"), "loss_bytes"),
          std::pair(before_update(memory), "backward_bytes"),
          std::pair(memory.instants.at("update"), "update_bytes")}) {
      if (!row.contains(name)) continue;
      const double error =
          relative_error(predicted + memory.host_bytes, row.at(name).get<std::int64_t>());
      (target.trainable ? of_lora : errors).add(error);
      EXPECT_NEAR(error, 0.0, allowed_error(row, target)) << name << row.dump();
    }
  }
  EXPECT_GE(errors.count, 164);
  EXPECT_LE(errors.sum / errors.count, 0.02);
  EXPECT_GE(errors.least, -0.011);  // what is recommended fits
  EXPECT_EQ(of_lora.count, 24);
  EXPECT_LE(of_lora.sum / of_lora.count, 0.04);
  EXPECT_GE(of_lora.least, -0.011);
}

}  // namespace
}  // namespace dstune
