#pragma once
/// Trainings whose states a disk holds: few but large matrices, in groups of up to four ranks.

#include <gtest/gtest.h>

#include "golden.hpp"

namespace dstune::test {

inline ModelSpec disk_model() {
  ModelSpec model = Golden("gpt2").model;
  model.hidden_size = 64;
  model.num_heads = model.num_kv_heads = 2;
  model.head_size = 32;
  model.num_layers = 1;
  model.intermediate_size = 16'384;
  model.vocab_size = 16'384;
  model.tie_embeddings = false;
  return model;
}

/// States are on the host.
inline TrainingConfig disk_config(Precision precision, int ranks) {
  TrainingConfig config;
  config.zero_stage = 3;
  config.precision = precision;
  config.micro_batch = 1;
  config.accumulation_steps = 2;
  config.sequence_length = 8;
  config.overlap_comm = true;
  config.reduce_bucket_size = 1'200'000;
  config.sub_group_size = 1'000'000 / ranks;
  config.offload_optimizer = OffloadDevice::cpu;
  config.disk.folder = testing::TempDir();
  config.disk.optimizer_buffers = 12;
  return config;
}

/// Room for parameters on a disk, and gathers that it can serve.
inline void serve_parameters(TrainingConfig& config) {
  config.disk.parameter_buffer_size = 1'100'000;
  config.disk.parameters_in_memory = 0;
  // DeepSpeed with more of them reads the head's matrix ahead twice, and fails.
  config.disk.parameter_buffers = 5;
  config.stage3_max_reuse_distance = 0;
  config.stage3_prefetch_bucket_size = 1'200'000;
  config.stage3_param_persistence_threshold = 100;
}

}  // namespace dstune::test
