#include "dstune/instrument/engine/tiny_engines.hpp"

#include <string>

#include "dstune/base/error.hpp"
#include "dstune/core/settings.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "dstune/train/executor.hpp"

namespace dstune {
namespace {

/// In elements: larger than any tiny model, or several to each of them.
constexpr std::int64_t whole = 500'000'000;
constexpr std::int64_t small = 30'000;
constexpr std::int64_t smaller = 100'000;
constexpr std::int64_t sequence_length = 32;

/// A configuration, and the sizes of its model.
struct TinyRow {
  const char* name;
  int stage = 0;
  std::int64_t hidden_size = 64;
  std::int64_t num_layers = 2;
  std::int64_t bucket = whole;
  std::int64_t prefetch = whole;
  std::int64_t sub_group = whole;
  std::int64_t accumulation_steps = 1;
  bool offloads = false;
  bool is_of_network = false;  ///< what it tells
};

constexpr std::int64_t wide = 256;
constexpr std::int64_t deep = 8;

constexpr TinyRow tiny_rows[] = {
    {.name = "z0", .stage = 0},
    {.name = "z3-deep", .stage = 3, .num_layers = deep},
    {.name = "z2-wide-small",
     .stage = 2,
     .hidden_size = wide,
     .bucket = smaller,
     .is_of_network = true},
    {.name = "z1-wide", .stage = 1, .hidden_size = wide, .num_layers = 4, .is_of_network = true},
    {.name = "z3-wide-apart", .stage = 3, .hidden_size = wide, .bucket = smaller, .prefetch = 0},
    {.name = "z0-deep", .stage = 0, .num_layers = deep},
    {.name = "z1-small", .stage = 1, .num_layers = 4, .bucket = small, .is_of_network = true},
    {.name = "z2-steps", .stage = 2, .num_layers = 4, .accumulation_steps = 4},
    {.name = "z3-sub-groups", .stage = 3, .num_layers = 4, .sub_group = small},
    {.name = "z2-offload", .stage = 2, .num_layers = 4, .offloads = true},
    {.name = "z0-wide", .stage = 0, .hidden_size = wide, .num_layers = 4, .is_of_network = true},
    {.name = "z3-steps", .stage = 3, .num_layers = 4, .accumulation_steps = 4},
};

ModelSpec model_of(const TinyRow& row) {
  ModelSpec model;
  model.name = "tiny";
  model.family = ModelFamily::gpt2;
  model.architecture = architecture_of(model.family);
  model.hidden_size = row.hidden_size;
  model.num_layers = row.num_layers;
  model.num_heads = model.num_kv_heads = 4;
  model.head_size = row.hidden_size / model.num_heads;
  model.intermediate_size = 4 * row.hidden_size;
  model.vocab_size = 512;
  model.max_positions = sequence_length;
  return model;
}

json::Value config_of(const TinyRow& row, int group_size) {
  json::Value zero = {{"stage", row.stage}};
  if (row.stage > 0) {
    zero["reduce_bucket_size"] = row.bucket;
    zero["allgather_bucket_size"] = row.bucket;
  }
  if (row.stage == 3) {
    zero["stage3_prefetch_bucket_size"] = row.prefetch;
    zero["stage3_param_persistence_threshold"] = 0;
    zero["sub_group_size"] = row.sub_group;
  }
  if (row.offloads) zero["offload_optimizer"] = {{"device", "cpu"}};
  json::Value config = {
      {"train_batch_size", row.accumulation_steps * group_size},
      {"train_micro_batch_size_per_gpu", 1},
      {"gradient_accumulation_steps", row.accumulation_steps},
      // The one optimizer that needs no operator of DeepSpeed.
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-4}, {"torch_adam", true}}}}},
      {"zero_optimization", std::move(zero)}};
  if (row.offloads) config["zero_force_ds_cpu_optimizer"] = false;
  return config;
}

Experiment experiment_of(const TinyRow& row, GroupShape shape, Version version) {
  Experiment experiment{.name = std::string("tiny-") + row.name,
                        .ds_config = config_of(row, shape.size()),
                        .shape = shape,
                        .config = {}};
  const json::Document document = json::Document::of(experiment.ds_config, experiment.name);
  json::Problems problems;
  const Settings settings = read_config(knob_table(version), document.node(), problems);
  // Tables of releases have all of these keys.
  for (const Problem& problem : problems.all()) throw LogicError(problem.message);
  experiment.config = training_config(settings);
  experiment.config.micro_batch = 1;
  experiment.config.accumulation_steps = row.accumulation_steps;
  experiment.config.sequence_length = sequence_length;
  place_on(shape, experiment.config);
  return experiment;
}

}  // namespace

std::vector<TinyEngine> tiny_engines(GroupShape shape, Version deepspeed_version) {
  std::vector<TinyEngine> engines;
  const CpuWorkspaces workspaces(kernels::cpu_table());
  for (const TinyRow& row : tiny_rows) {
    if (row.is_of_network && shape.size() == 1) continue;
    TinyEngine& one = engines.emplace_back(
        TinyEngine{model_of(row), experiment_of(row, shape, deepspeed_version)});
    one.overheads = StepPredictor(one.model, std::nullopt, workspaces).overheads(one.experiment);
  }
  return engines;
}

}  // namespace dstune
