#include "config_rules.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "knob_value.hpp"

namespace dstune {

namespace {

/// Members of one config by JSON pointer, read as the table says; what is missing or wrong has its
/// default here, since its type was complained about already.
class Members {
 public:
  explicit Members(const json::Node& root) : root_(root) {}

  [[nodiscard]] std::optional<json::Node> find(std::string_view pointer) const {
    std::optional<json::Node> node = root_;
    while (node && !pointer.empty()) {
      pointer.remove_prefix(1);
      const std::size_t end = std::min(pointer.find('/'), pointer.size());
      node = node->find(std::string(pointer.substr(0, end)));
      pointer.remove_prefix(end);
    }
    if (node && stands_for_default(*node)) return std::nullopt;
    return node;
  }

  [[nodiscard]] KnobValue value(std::string_view pointer) const {
    const Knob* const knob = find_knob(pointer);
    require(knob != nullptr, "a rule speaks of a key without a row");
    json::Problems ignored;
    if (const auto node = find(pointer)) {
      if (const auto read = read_knob(*node, *knob, ignored)) return *read;
    }
    return default_of(*knob);
  }
  [[nodiscard]] bool is_on(std::string_view pointer) const {
    const KnobValue found = value(pointer);
    return std::holds_alternative<bool>(found) && std::get<bool>(found);
  }
  [[nodiscard]] double number(std::string_view pointer) const {
    const KnobValue found = value(pointer);
    if (const auto* integer = std::get_if<std::int64_t>(&found))
      return static_cast<double>(*integer);
    return std::get<double>(found);
  }

 private:
  json::Node root_;
};

void add(json::Problems& problems, const std::optional<json::Node>& place, std::string message) {
  if (place) problems.add(place->problem(std::move(message)));
}

void check_precision(const Members& members, json::Problems& problems) {
  const bool bf16 = members.is_on("/bf16/enabled") || members.is_on("/bfloat16/enabled");
  if (bf16 && members.is_on("/fp16/enabled"))
    add(problems, members.find("/fp16/enabled"),
        "fp16 and bf16 can not both be enabled: keep one of them");
  if (members.find("/bf16") && members.find("/bfloat16"))
    add(problems, members.find("/bfloat16"),
        "bf16 and bfloat16 are names of the same section: keep one of them");
  const bool dynamic = members.number("/fp16/loss_scale") == 0;
  for (const char* pointer : {"/fp16/loss_scale_window", "/fp16/min_loss_scale"})
    if (dynamic && members.number(pointer) <= 0)
      add(problems, members.find(pointer),
          "must be above 0 with a dynamic loss scale (loss_scale 0)");
}

void check_zero(const Members& members, const TrainingConfig& config, json::Problems& problems) {
  const std::string zero = "/zero_optimization";
  const std::string allgather = zero + "/allgather_bucket_size";
  if (static_cast<std::int64_t>(members.number(allgather)) % 2 != 0)
    add(problems, members.find(allgather), "must be even: DeepSpeed refuses odd sizes");
  if (members.number(zero + "/mics_shard_size") > 0)
    add(problems, members.find(zero + "/mics_shard_size"),
        "MiCS is not built in dstune-mpi yet: remove the key or write -1");
  const std::string ratio = zero + "/offload_optimizer/ratio";
  if (members.number(ratio) < 1 && config.zero_stage != 3)
    add(problems, members.find(ratio), "below 1 only stage 3 works: write 1.0 or stage 3");
  if (config.reduce_scatter && config.zero_stage >= 2) {
    const std::string why = fmt::format(" with reduce_scatter at stage {}", config.zero_stage);
    if (members.is_on("/prescale_gradients"))
      add(problems, members.find("/prescale_gradients"),
          "DeepSpeed refuses this" + why +
              ": write false, or reduce_scatter "
              "false");
    if (members.number("/gradient_predivide_factor") != 1)
      add(problems, members.find("/gradient_predivide_factor"),
          "DeepSpeed refuses other values than 1.0" + why);
  }
  constexpr std::array renamed = {
      std::pair{"cpu_offload", "offload_optimizer"},
      std::pair{"cpu_offload_param", "offload_param"},
      std::pair{"stage3_gather_fp16_weights_on_model_save",
                "stage3_gather_16bit_weights_on_model_save"},
  };
  for (const auto& [old_name, new_name] : renamed)
    if (members.find(zero + "/" + old_name) && members.find(zero + "/" + new_name))
      add(problems, members.find(zero + "/" + old_name),
          fmt::format("is the deprecated name of {}, which is there too: remove it", new_name));
}

/// A field of DeepSpeed's that goes by two names is given once.
void check_aliases(const Members& members, json::Problems& problems) {
  constexpr std::string_view prefix = "stage3_";
  const auto zero = members.find("/zero_optimization");
  if (!zero) return;
  for (const std::string& key : zero->keys()) {
    if (!key.starts_with(prefix)) continue;
    const auto other = zero->find(key.substr(prefix.size()));
    if (other && find_knob(other->pointer()) != nullptr)
      problems.add(other->problem(
          fmt::format("is another name of {}, which is there too: keep one of them", key)));
  }
}

void check_scheduler(const Members& members, json::Problems& problems) {
  const KnobValue type = members.value("/scheduler/type");
  if (!std::holds_alternative<std::string>(type)) return;
  const std::string name = lower_case(std::get<std::string>(type));
  std::vector<std::string> needed;
  if (name == "onecycle") needed = {"cycle_min_lr", "cycle_max_lr"};
  if (name == "warmupdecaylr" || name == "warmupcosinelr") needed = {"total_num_steps"};
  for (const std::string& key : needed)
    // "auto" is filled in by the user's training.
    if (const auto params = members.find("/scheduler/params"); !params || !params->find(key))
      add(problems, members.find("/scheduler/type"),
          fmt::format("{} needs {} in /scheduler/params: add it", std::get<std::string>(type),
                      key));
}

void check_engine(const Members& members, json::Problems& problems) {
  const std::string section = "/activation_checkpointing";
  if (members.is_on(section + "/contiguous_memory_optimization") &&
      (!members.is_on(section + "/partition_activations") ||
       !members.find(section + "/number_checkpoints")))
    add(problems, members.find(section + "/contiguous_memory_optimization"),
        "needs partition_activations and number_checkpoints: add them or write false");
  if (const auto betas = members.find("/optimizer/params/betas"))
    for (const json::Node& beta : betas->elements())
      if (beta.value().is_number() && beta.value() == 1)
        problems.add(beta.problem("must be below 1: the mean would never move"));
}

}  // namespace

void check_rules(const json::Node& root, const TrainingConfig& config, json::Problems& problems) {
  const Members members(root);
  check_precision(members, problems);
  check_zero(members, config, problems);
  check_aliases(members, problems);
  check_scheduler(members, problems);
  check_engine(members, problems);
}

void decide_optimizer(const json::Node& root, TrainingConfig& config, json::Problems& problems) {
  const Members members(root);
  const std::string name = lower_case(std::get<std::string>(members.value("/optimizer/type")));
  if (name != "adam" && name != "adamw") {
    add(problems, members.find("/optimizer/type"),
        fmt::format("{} is not built in dstune-mpi yet: write Adam or AdamW",
                    members.find("/optimizer/type")->value().dump()));
    return;
  }
  // DeepSpeed makes AdamW of Adam too, unless adam_w_mode says otherwise.
  const bool decoupled = name == "adamw" || members.is_on("/optimizer/params/adam_w_mode");
  config.optimizer.kind = decoupled ? OptimizerKind::adamw : OptimizerKind::adam;
  // PyTorch's AdamW decays by default, DeepSpeed's does not.
  if (decoupled && members.is_on("/optimizer/params/torch_adam") &&
      !members.find("/optimizer/params/weight_decay"))
    config.optimizer.weight_decay = 0.01;
}

}  // namespace dstune
