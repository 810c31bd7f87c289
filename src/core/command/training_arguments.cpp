#include <array>
#include <string>

#include "dstune/core/command_reading.hpp"

namespace dstune {

namespace {

/// A pair that the Trainer compares: a place in the configuration, and its argument.
struct Compared {
  const char* pointer;
  const char* argument;
};

/// The pairs of trainer_config_process() in transformers' integrations/deepspeed.py.
constexpr std::array<Compared, 10> compared{{
    {"/train_micro_batch_size_per_gpu", "per_device_train_batch_size"},
    {"/gradient_accumulation_steps", "gradient_accumulation_steps"},
    {"/gradient_clipping", "max_grad_norm"},
    {"/optimizer/params/lr", "learning_rate"},
    {"/optimizer/params/eps", "adam_epsilon"},
    {"/optimizer/params/weight_decay", "weight_decay"},
    {"/optimizer/params/betas/0", "adam_beta1"},
    {"/optimizer/params/betas/1", "adam_beta2"},
    {"/fp16/enabled", "fp16"},
    {"/bf16/enabled", "bf16"},
}};

/// null where nothing stands there, or "auto".
json::Value value_at(const json::Value& config, const char* pointer) {
  const json::Value::json_pointer place(pointer);
  if (!config.contains(place)) return nullptr;
  const json::Value& value = config.at(place);
  return value == "auto" ? json::Value() : value;
}

/// "lr" of "/optimizer/params/lr"
std::string key_of(const std::string& pointer) {
  return pointer.substr(pointer.find_last_of('/') + 1);
}

}  // namespace

std::vector<TrainingArgument> training_arguments(const UserCommand& command,
                                                 const json::Value& ds_config,
                                                 Recompute recompute) {
  std::vector<TrainingArgument> arguments;
  for (const auto& [pointer, argument] : compared)
    if (json::Value value = value_at(ds_config, pointer); !value.is_null())
      arguments.push_back({argument, std::move(value), key_of(pointer), pointer});
  // Schedulers of DeepSpeed's that warm up have the rate, too.
  constexpr const char* warmed_up = "/scheduler/params/warmup_max_lr";
  const json::Value rate = value_at(ds_config, warmed_up);
  if (!rate.is_null() && value_at(ds_config, "/optimizer/params/lr").is_null())
    arguments.push_back({"learning_rate", rate, "warmup_max_lr", warmed_up});
  if (recompute != Recompute::selective)
    arguments.push_back(
        {"gradient_checkpointing", recompute == Recompute::block, "activation_recompute"});
  if (command.trains_on_cpu) arguments.push_back({"use_cpu", true, "use_cpu"});
  return arguments;
}

}  // namespace dstune
