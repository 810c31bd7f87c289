#include "spaces.hpp"

#include <numeric>

namespace dstune::e2e {

Json tiny_gpt2_config() {
  return {{"model_type", "gpt2"}, {"n_embd", 32},      {"n_layer", 2},
          {"n_head", 2},          {"n_positions", 64}, {"vocab_size", 64},
          {"resid_pdrop", 0.0},   {"embd_pdrop", 0.0}, {"attn_pdrop", 0.0}};
}

Json transformer_space(const std::vector<int>& num_gpus) {
  Json space;
  space["dstune"] = {{"model", {{"hf_config", "config.json"}}},
                     {"sequence_length", 32},
                     {"resources", {{"num_gpus", num_gpus}}},
                     {"trial_budget_s", 0.05}};
  space["autotuning"] = {{"enabled", true}, {"tuner_type", "gridsearch"}};
  space["train_micro_batch_size_per_gpu"] = Json::array({1});
  space["gradient_accumulation_steps"] = 1;
  space["optimizer"] = {{"type", "AdamW"}, {"params", {{"lr", 0.005}}}};
  space["zero_optimization"] = {{"stage", {0, 1, 2, 3}}};
  return space;
}

Json synthetic_space(const std::vector<int>& num_gpus, const std::vector<int>& micro_batches,
                     double step_time_s) {
  Json space;
  space["dstune"] = {{"resources", {{"num_gpus", num_gpus}}},
                     {"trial_budget_s", 0.5},
                     {"workload", {{"type", "synthetic"}, {"step_time_s", step_time_s}}}};
  space["autotuning"] = {{"enabled", true}, {"tuner_type", "gridsearch"}};
  space["train_micro_batch_size_per_gpu"] = micro_batches;
  space["gradient_accumulation_steps"] = 1;
  space["zero_optimization"] = {{"stage", 0}};
  return space;
}

Json replay_space(const std::vector<int>& num_gpus, const std::vector<int>& micro_batches) {
  Json space = synthetic_space(num_gpus, micro_batches);
  space["dstune"]["workload"] = {{"type", "replay"}, {"table", "table.json"}};
  return space;
}

void write_transformer(const Job& job, const Json& space) {
  job.write("config.json", tiny_gpt2_config());
  job.write("space.json", space);
}

std::vector<int> sizes_up_to(int last) {
  std::vector<int> sizes(static_cast<std::size_t>(last));
  std::iota(sizes.begin(), sizes.end(), 1);
  return sizes;
}

std::string short_name(int stage, int micro_batch) {
  return "z" + std::to_string(stage) + "_gas1_tmbspg" + std::to_string(micro_batch);
}

}  // namespace dstune::e2e
