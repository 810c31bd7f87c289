/// What DeepSpeed 0.19.6 refuses in combination, and what the step does not do: columns of the
/// table, rules, and which arguments the optimizers and schedulers take.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "deepspeed/config_rules.hpp"

namespace dstune {

namespace {

struct Scheduler {
  std::string_view type;
  std::vector<std::string_view> needed, optional;
};

const std::vector<Scheduler>& schedulers() {
  static const std::vector<Scheduler> all = {
      {"LRRangeTest",
       {},
       {"lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate",
        "lr_range_test_staircase"}},
      {"OneCycle",
       {"cycle_min_lr", "cycle_max_lr"},
       {"decay_lr_rate", "cycle_first_step_size", "cycle_second_step_size",
        "cycle_first_stair_count", "cycle_second_stair_count", "decay_step_size", "cycle_momentum",
        "cycle_min_mom", "cycle_max_mom", "decay_mom_rate"}},
      {"WarmupLR", {}, {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
      {"WarmupDecayLR",
       {"total_num_steps"},
       {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
      {"WarmupCosineLR",
       {"total_num_steps"},
       {"warmup_min_ratio", "warmup_num_steps", "cos_min_ratio", "warmup_type"}},
  };
  return all;
}

const Scheduler* find_scheduler(std::string_view type) {
  const auto found = std::find_if(schedulers().begin(), schedulers().end(),
                                  [type](const auto& each) { return each.type == type; });
  return found == schedulers().end() ? nullptr : &*found;
}

bool holds(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

void check_scheduler(const Settings& settings, std::vector<Violation>& violations) {
  const std::string params = "/scheduler/params";
  const auto* const type = std::get_if<std::string>(&settings.value("/scheduler/type"));
  if (type == nullptr) return;
  if (!settings.is_given(params)) {
    violations.push_back({"/scheduler/type", *type + " needs the section /scheduler/params: add "
                                                     "it, with {} where nothing is set"});
    return;
  }
  const Scheduler* const scheduler = find_scheduler(*type);
  if (scheduler == nullptr) return;
  for (const std::string_view key : scheduler->needed)
    // "auto" is filled in by the user's training.
    if (!settings.is_there(fmt::format("{}/{}", params, key)))
      violations.push_back(
          {"/scheduler/type", fmt::format("{} needs {} in {}: add it", *type, key, params)});
  for (const Knob& knob : knobs()) {
    if (!knob.pointer.starts_with(params + "/") || !settings.is_written(knob.pointer)) continue;
    const std::string_view key = knob.pointer.substr(params.size() + 1);
    if (!holds(scheduler->needed, key) && !holds(scheduler->optional, key))
      violations.push_back(
          {std::string(knob.pointer), fmt::format("{} does not take it: remove it", *type)});
  }
}

/// An implementation of an optimizer and what it takes in /optimizer/params, or is taken out of it
/// by DeepSpeed before.
struct Optimizer {
  std::string_view name;
  std::vector<std::string_view> arguments;
};

const Optimizer& optimizer_of(const Settings& settings) {
  static const Optimizer fused_adam = {
      "DeepSpeed's FusedAdam",
      {"lr", "betas", "eps", "weight_decay", "bias_correction", "amsgrad", "set_grad_none",
       "adam_w_mode", "torch_adam", "fp32_optimizer_states"}};
  static const Optimizer cpu_adam = {
      "DeepSpeed's CPU Adam",
      {"lr", "betas", "eps", "weight_decay", "bias_correction", "amsgrad", "adam_w_mode",
       "torch_adam", "fp32_optimizer_states"}};
  static const Optimizer torch_adam = {
      "PyTorch's Adam",
      {"lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable",
       "differentiable", "fused", "adam_w_mode", "torch_adam", "fp32_optimizer_states"}};
  static const Optimizer fused_lion = {"DeepSpeed's FusedLion",
                                       {"lr", "betas", "weight_decay", "set_grad_none"}};
  static const Optimizer cpu_lion = {"DeepSpeed's CPU Lion",
                                     {"lr", "betas", "weight_decay", "fp32_optimizer_states"}};
  static const Optimizer torch_sgd = {"PyTorch's SGD",
                                      {"lr", "momentum", "dampening", "weight_decay", "nesterov",
                                       "maximize", "foreach", "differentiable", "fused"}};
  static const Optimizer torch_adagrad = {
      "PyTorch's Adagrad",
      {"lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize", "foreach",
       "differentiable", "fused"}};
  static const Optimizer cpu_adagrad = {
      "DeepSpeed's CPU Adagrad", {"lr", "eps", "weight_decay", "amsgrad", "fp32_optimizer_states"}};
  const bool on_host = offloads_optimizer(settings);
  const std::string type = settings.word("/optimizer/type");
  if (type == "lion") return on_host ? cpu_lion : fused_lion;
  if (type == "adagrad") return on_host ? cpu_adagrad : torch_adagrad;
  if (type == "sgd") return torch_sgd;
  if (settings.is_on("/optimizer/params/torch_adam")) return torch_adam;
  return on_host ? cpu_adam : fused_adam;
}

void check_optimizer(const Settings& settings, std::vector<Violation>& violations) {
  constexpr std::string_view section = "/optimizer/params/";
  const Optimizer& optimizer = optimizer_of(settings);
  for (const Knob& knob : knobs()) {
    if (!knob.pointer.starts_with(section) || !settings.is_written(knob.pointer)) continue;
    const std::string_view key = knob.pointer.substr(section.size());
    // The elements of a list are its own; what DeepSpeed refuses everywhere says so itself.
    if (key.find('/') != key.npos || key == "max_grad_norm") continue;
    if (!holds(optimizer.arguments, key))
      violations.push_back({std::string(knob.pointer),
                            fmt::format("{} does not take it: remove it", optimizer.name)});
  }
}

std::string value_text(const KnobValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return json::Value(*number).dump();
  if (const auto* text = std::get_if<std::string>(&value)) return json::Value(*text).dump();
  return "";
}

std::string refusal_of(const Knob& knob, const KnobValue& value) {
  if (!knob.hint.empty()) return std::string(knob.hint);
  const std::string text = value_text(value);
  const std::string name = dotted(knob.pointer);
  if (text.empty()) return fmt::format("{} is not built in dstune-mpi yet: remove the key", name);
  return fmt::format("{} = {} is not built in dstune-mpi yet: remove the key or write {}", name,
                     text, knob.fallback);
}

void add_unbuilt_optimizer(const Settings& settings, std::vector<Violation>& violations) {
  constexpr std::array built = {"adam", "adamw", "lion", "sgd", "adagrad"};
  const std::string type = settings.word("/optimizer/type");
  const KnobValue& written = settings.value("/optimizer/type");
  if (std::find(built.begin(), built.end(), type) == built.end()) {
    violations.push_back({"/optimizer/type",
                          fmt::format("{} is not built in dstune-mpi yet: write Adam, AdamW, Lion, "
                                      "Adagrad or SGD",
                                      value_text(written)),
                          true});
  } else if (type == "sgd" && std::get<std::string>(written) != "SGD") {
    violations.push_back({"/optimizer/type", "DeepSpeed wants PyTorch's own name: write SGD"});
  }
}

void add_unbuilt(const Settings& settings, std::vector<Violation>& violations) {
  static const std::vector<std::size_t> refused =
      rows_where([](const Knob& knob) { return knob.effect == KnobEffect::refused; });
  for (const std::size_t row : refused) {
    const Knob& knob = knobs()[row];
    if (!settings.is_given(row) || !knob.acts_at(settings.zero_stage())) continue;
    const KnobValue& value = settings.value(row);
    const bool is_scalar = !std::holds_alternative<std::monostate>(value);
    if (is_scalar && value == default_value(knob)) continue;
    violations.push_back({std::string(knob.pointer), refusal_of(knob, value), knob.hint.empty()});
  }
  add_unbuilt_optimizer(settings, violations);
}

/// Keys that DeepSpeed takes out of a section that is there.
void add_lacking_keys(const Settings& settings, std::vector<Violation>& violations) {
  static const std::vector<std::size_t> needing =
      rows_where([](const Knob& knob) { return !knob.needs.empty(); });
  for (const std::size_t row : needing) {
    if (!settings.is_given(row)) continue;
    const std::string pointer(knobs()[row].pointer);
    for (const std::string_view key : choices_of(knobs()[row].needs))
      if (!settings.is_written(fmt::format("{}/{}", pointer, key)))
        violations.push_back(
            {pointer,
             fmt::format("DeepSpeed needs {} in this section: add it{}", key,
                         key == "enabled" ? " or remove the section" : ", with {} for none")});
  }
}

/// One field of DeepSpeed's by two names.
void add_doubled_names(const Settings& settings, std::vector<Violation>& violations) {
  static const std::vector<std::size_t> others =
      rows_where([](const Knob& knob) { return !knob.alias_of.empty() && !knob.takes_all_names; });
  for (const std::size_t row : others) {
    const Knob& knob = knobs()[row];
    const std::size_t first = knob_table().find(knob.alias_of).value();
    if (settings.is_set(row) && settings.is_set(first))
      violations.push_back(
          {std::string(knob.pointer),
           fmt::format("is another name of {}, which is there too: keep one of them",
                       last_key(knob.alias_of))});
  }
}

}  // namespace

bool offloads_optimizer(const Settings& settings) {
  return settings.is_on("/zero_optimization/cpu_offload") ||
         settings.word("/zero_optimization/offload_optimizer/device") != "none";
}

std::string precision_of(const Settings& settings) {
  if (settings.is_on("/fp16/enabled")) return "fp16";
  return settings.is_on("/bf16/enabled") ? "bf16" : "fp32";
}

std::string element_type(const Settings& settings, std::string_view pointer) {
  std::string word = settings.word(pointer);
  if (word.starts_with("torch.")) word = word.substr(6);
  if (word == "half" || word == "float16") return "fp16";
  if (word == "bfloat16") return "bf16";
  if (word == "float" || word == "float32") return "fp32";
  return word;
}

bool is_deepspeed_scheduler(std::string_view type) {
  return find_scheduler(type) != nullptr;
}

std::vector<std::size_t> rows_where(bool (*is_chosen)(const Knob&)) {
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < knobs().size(); ++row)
    if (is_chosen(knobs()[row])) rows.push_back(row);
  return rows;
}

std::vector<Violation> violations_of(const Settings& settings) {
  std::vector<Violation> violations;
  add_unbuilt(settings, violations);
  for (const auto& rules : {precision_rules(), zero_rules(), section_rules()})
    for (const ConfigRule& rule : rules)
      if (rule.is_broken(settings))
        violations.push_back({std::string(knobs()[settings.row_of(rule.pointer)].pointer),
                              std::string(rule.message), rule.is_unbuilt});
  add_lacking_keys(settings, violations);
  check_scheduler(settings, violations);
  check_optimizer(settings, violations);
  add_doubled_names(settings, violations);
  return violations;
}

}  // namespace dstune
