/// Combinations that a release of DeepSpeed refuses, and those that the step does not build. They
/// come from columns of the table, from rules, and from the arguments that optimizers and
/// schedulers take.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "deepspeed/config_rules.hpp"

namespace dstune {

namespace {

// Lists of words are separated by '|', as a row's choices are.

bool is_optimizer_built(const Settings& settings) {
  return from_text<OptimizerKind>(settings.word("/optimizer/type")).has_value();
}

struct Scheduler {
  std::string_view type, needed, optional;
};
constexpr std::array schedulers = {
    Scheduler{
        "LRRangeTest", "",
        "last_batch_iteration|lr_range_test_min_lr|lr_range_test_step_size|lr_range_test_step_rate|"
        "lr_range_test_staircase"},
    Scheduler{"OneCycle", "cycle_min_lr|cycle_max_lr",
              "last_batch_iteration|decay_lr_rate|cycle_first_step_size|cycle_second_step_size|"
              "cycle_first_stair_count|cycle_second_stair_count|decay_step_size|cycle_momentum|"
              "cycle_min_mom|cycle_max_mom|decay_mom_rate"},
    Scheduler{"WarmupLR", "",
              "last_batch_iteration|warmup_min_lr|warmup_max_lr|warmup_num_steps|warmup_type"},
    Scheduler{"WarmupDecayLR", "total_num_steps",
              "last_batch_iteration|warmup_min_lr|warmup_max_lr|warmup_num_steps|warmup_type"},
    Scheduler{"WarmupCosineLR", "total_num_steps",
              "last_batch_iteration|warmup_min_ratio|warmup_num_steps|cos_min_ratio|warmup_type"},
};

const Scheduler* find_scheduler(std::string_view type) {
  const auto* const found = std::ranges::find(schedulers, type, &Scheduler::type);
  return found == schedulers.end() ? nullptr : found;
}

/// Keys that are written in a section and are none of the words.
void check_arguments(const Settings& settings, std::string_view section, std::string_view taker,
                     std::string_view words, std::vector<Violation>& violations) {
  for (const std::size_t row : settings.table().below(section)) {
    const std::string_view pointer = settings.table().knobs()[row].pointer;
    // DeepSpeed refuses it everywhere, and says so itself.
    if (pointer == "/optimizer/params/max_grad_norm") continue;
    if (settings.is_written(pointer) && !find_choice(words, last_key(pointer), false))
      violations.push_back({std::string(pointer),
                            fmt::format("{} does not take it: remove it", taker), Weight::fails});
  }
}

void check_scheduler(const Settings& settings, std::vector<Violation>& violations) {
  const auto* const type = std::get_if<std::string>(&settings.value("/scheduler/type"));
  if (type == nullptr) return;
  if (!settings.is_given("/scheduler/params")) {
    violations.push_back({"/scheduler/type",
                          *type + " needs the section /scheduler/params: add it, with {} where "
                                  "nothing is set",
                          Weight::fails});
    return;
  }
  const Scheduler* const scheduler = find_scheduler(*type);
  if (scheduler == nullptr) return;
  for (const std::string_view key : choices_of(scheduler->needed))
    // "auto" is filled in by the user's training.
    if (!settings.is_there(fmt::format("/scheduler/params/{}", key)))
      violations.push_back({"/scheduler/type",
                            fmt::format("{} needs {} in /scheduler/params: add it", *type, key),
                            Weight::fails});
  check_arguments(settings, "/scheduler/params", *type,
                  fmt::format("{}|{}", scheduler->needed, scheduler->optional), violations);
}

/// An implementation of an optimizer and what it takes in /optimizer/params, or is taken out of it
/// by DeepSpeed before.
struct Optimizer {
  std::string_view name, arguments;
  std::string_view states = "";  ///< the argument of their type
};
constexpr std::string_view type_of_states = "|fp32_optimizer_states";
constexpr Optimizer fused_adam = {
    "DeepSpeed's FusedAdam",
    "lr|betas|eps|weight_decay|bias_correction|amsgrad|set_grad_none|adam_w_mode|torch_adam",
    type_of_states};
constexpr Optimizer cpu_adam = {
    "DeepSpeed's CPU Adam",
    "lr|betas|eps|weight_decay|bias_correction|amsgrad|adam_w_mode|torch_adam", type_of_states};
constexpr Optimizer torch_adam = {
    "PyTorch's Adam",
    "lr|betas|eps|weight_decay|amsgrad|maximize|foreach|capturable|differentiable|fused|"
    "adam_w_mode|torch_adam",
    type_of_states};
constexpr Optimizer fused_lion = {"DeepSpeed's FusedLion", "lr|betas|weight_decay|set_grad_none"};
constexpr Optimizer cpu_lion = {"DeepSpeed's CPU Lion", "lr|betas|weight_decay", type_of_states};
constexpr Optimizer torch_sgd = {
    "PyTorch's SGD",
    "lr|momentum|dampening|weight_decay|nesterov|maximize|foreach|differentiable|fused"};
constexpr Optimizer torch_adagrad = {
    "PyTorch's Adagrad",
    "lr|lr_decay|weight_decay|initial_accumulator_value|eps|maximize|foreach|differentiable|fused"};
constexpr Optimizer cpu_adagrad = {"DeepSpeed's CPU Adagrad", "lr|eps|weight_decay|amsgrad",
                                   type_of_states};

const Optimizer& optimizer_of(const Settings& settings) {
  const bool on_host = offloads_optimizer(settings);
  const std::string type = settings.word("/optimizer/type");
  if (type == "lion") return on_host ? cpu_lion : fused_lion;
  if (type == "adagrad") return on_host ? cpu_adagrad : torch_adagrad;
  if (type == "sgd") return torch_sgd;
  if (settings.is_on("/optimizer/params/torch_adam")) return torch_adam;
  return on_host ? cpu_adam : fused_adam;
}

void check_optimizer(const Settings& settings, std::vector<Violation>& violations) {
  // The arguments of other types are theirs.
  if (!is_optimizer_built(settings)) return;
  const Optimizer& optimizer = optimizer_of(settings);
  std::string arguments(optimizer.arguments);
  // DeepSpeed takes it out for those on the device since then; those on the host take it.
  if (offloads_optimizer(settings) || settings.table().release() >= Version{0, 19, 6})
    arguments += optimizer.states;
  check_arguments(settings, "/optimizer/params", optimizer.name, arguments, violations);
}

/// Empty where the value has no content.
std::string value_text(const KnobValue& value) {
  return std::visit(
      [](const auto& content) -> std::string {
        if constexpr (std::is_same_v<decltype(content), const std::monostate&>)
          return "";
        else
          return json::Value(content).dump();
      },
      value);
}

constexpr std::string_view use_engine = "let DeepSpeed's engine run it (docs/engine.md)";

std::string refusal_of(const Knob& knob, const KnobValue& value) {
  if (!knob.hint.empty()) return std::string(knob.hint);
  const std::string text = value_text(value);
  const std::string name = dotted(knob.pointer);
  if (text.empty())
    return fmt::format("{} is not built in dstune-mpi yet: remove the key, or {}", name,
                       use_engine);
  return fmt::format("{} = {} is not built in dstune-mpi yet: remove the key, write {}, or {}",
                     name, text, knob.fallback, use_engine);
}

constexpr std::string_view optimizer_words = "Adam|AdamW|Lion|Adagrad|SGD";

/// DeepSpeed's own in any case of letters, and the classes of torch.optim.
bool is_optimizer_known(std::string_view lower_case, const KnobValue& written) {
  constexpr std::string_view of_deepspeed =
      "lamb|onebitadam|onebitlamb|zerooneadam|muadam|muadamw|musgd|muon";
  constexpr std::string_view of_torch =
      "ASGD|Adadelta|Adafactor|Adamax|LBFGS|NAdam|RAdam|RMSprop|Rprop|SparseAdam";
  const auto* const name = std::get_if<std::string>(&written);
  return name == nullptr || find_choice(of_deepspeed, lower_case, false) ||
         find_choice(of_torch, *name, false);
}

void add_unbuilt_optimizer(const Settings& settings, std::vector<Violation>& violations) {
  const std::string type = settings.word("/optimizer/type");
  const KnobValue& written = settings.value("/optimizer/type");
  constexpr Version without_one_bit{0, 19, 7};
  const bool is_one_bit = type == "onebitadam" || type == "onebitlamb" || type == "zerooneadam";
  if (is_one_bit && settings.table().release() >= without_one_bit) {
    violations.push_back({"/optimizer/type",
                          fmt::format("{} was removed in DeepSpeed {}, which fails when it "
                                      "starts: take another",
                                      value_text(written), to_text(without_one_bit)),
                          Weight::fails});
  } else if (!is_optimizer_built(settings) && !is_optimizer_known(type, written)) {
    const std::string name = std::get<std::string>(written);
    violations.push_back(
        {"/optimizer/type",
         fmt::format(
             "{} is no optimizer of DeepSpeed or torch.optim, and the training fails: write "
             "Adam, AdamW, Lion, Adagrad or SGD, or another that there is{}",
             value_text(written), json::suggestion(name, choices_of(optimizer_words))),
         Weight::fails});
  } else if (!is_optimizer_built(settings)) {
    violations.push_back({"/optimizer/type",
                          fmt::format("{} is not built in dstune-mpi yet: write Adam, AdamW, Lion, "
                                      "Adagrad or SGD",
                                      value_text(written)),
                          Weight::unbuilt});
  } else if (type == "sgd" && std::get<std::string>(written) != "SGD") {
    violations.push_back(
        {"/optimizer/type", "DeepSpeed wants PyTorch's own name: write SGD", Weight::fails});
  }
}

/// The release knows the key, and has the rule.
bool applies(const ConfigRule& rule, const Settings& settings) {
  const Version release = settings.table().release();
  return settings.row_of(rule.pointer) && release >= rule.since &&
         (rule.until == Version{} || release < rule.until);
}

/// `row`: one whose values but its default are refused.
void add_refused(const Settings& settings, std::size_t row, std::vector<Violation>& violations) {
  const Knob& knob = settings.table().knobs()[row];
  if (!settings.is_given(row) || !knob.acts_at(settings.zero_stage())) return;
  const KnobValue& value = settings.value(row);
  const bool is_scalar = !std::holds_alternative<std::monostate>(value);
  if (is_scalar && value == settings.table().default_value(row)) return;
  violations.push_back({std::string(knob.pointer), refusal_of(knob, value),
                        knob.hint.empty() ? Weight::unbuilt : Weight::fails});
}

void add_broken(const Settings& settings, const ConfigRule& rule,
                std::vector<Violation>& violations) {
  if (!applies(rule, settings) || !rule.is_broken(settings, rule.pointer)) return;
  const Knob& knob = settings.table().knobs()[settings.row_of(rule.pointer).value()];
  violations.push_back({std::string(knob.pointer), std::string(rule.message), rule.weight});
}

/// Keys that DeepSpeed takes out of a section that is there.
void add_lacking_keys(const Settings& settings, std::vector<Violation>& violations) {
  for (const std::size_t row : settings.table().needing()) {
    if (!settings.is_given(row)) continue;
    const Knob& knob = settings.table().knobs()[row];
    const std::string pointer(knob.pointer);
    for (const std::string_view key : choices_of(knob.needs))
      if (!settings.is_written(fmt::format("{}/{}", pointer, key)))
        violations.push_back(
            {pointer,
             fmt::format("DeepSpeed needs {} in this section: add it{}", key,
                         key == "enabled" ? " or remove the section" : ", with {} for none")});
  }
}

/// One field of DeepSpeed's by two names.
void add_doubled_names(const Settings& settings, std::vector<Violation>& violations) {
  for (const std::size_t row : settings.table().other_names()) {
    const Knob& knob = settings.table().knobs()[row];
    const std::size_t first = settings.table().find(knob.alias_of).value();
    if (settings.is_set(row) && settings.is_set(first))
      violations.push_back(
          {std::string(knob.pointer),
           fmt::format("is another name of {}, which is there too: keep one of them",
                       last_key(knob.alias_of))});
  }
}

}  // namespace

bool has_adam(const Settings& settings) {
  const std::string type = settings.word("/optimizer/type");
  return type == "adam" || type == "adamw";
}

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

std::vector<Violation> violations_of(const Settings& settings) {
  std::vector<Violation> violations;
  const auto judge = [&](const auto& add) {
    const std::size_t before = violations.size();
    if (settings.uses_unread(add)) violations.resize(before);
  };
  for (const std::size_t row : settings.table().refused())
    judge([&] { add_refused(settings, row, violations); });
  judge([&] { add_unbuilt_optimizer(settings, violations); });
  for (const auto& rules : {precision_rules(), zero_rules(), section_rules()})
    for (const ConfigRule& rule : rules) judge([&] { add_broken(settings, rule, violations); });
  for (const auto& check : {add_lacking_keys, check_scheduler, check_optimizer, add_doubled_names})
    judge([&] { check(settings, violations); });
  return violations;
}

}  // namespace dstune
