#include <algorithm>

#include <fmt/format.h>

#include "arguments.hpp"
#include "config_rules.hpp"

namespace dstune {

namespace {

std::string value_text(const KnobValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return json::Value(*number).dump();
  if (const auto* text = std::get_if<std::string>(&value)) return json::Value(*text).dump();
  return "";
}

std::string refusal_of(const Knob& knob, const KnobValue& value) {
  if (!knob.mend.empty()) return std::string(knob.mend);
  const std::string text = value_text(value);
  std::string name(knob.pointer.substr(1));
  std::replace(name.begin(), name.end(), '/', '.');
  if (text.empty()) return fmt::format("{} is not built in dstune-mpi yet: remove the key", name);
  return fmt::format("{} = {} is not built in dstune-mpi yet: remove the key or write {}", name,
                     text, knob.fallback);
}

/// Indices of the rows that are chosen.
std::vector<std::size_t> rows_where(bool (*is_chosen)(const Knob&)) {
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < knobs().size(); ++row)
    if (is_chosen(knobs()[row])) rows.push_back(row);
  return rows;
}

/// Rows of one field of DeepSpeed's that goes by two names: with "stage3_" and without.
struct Alias {
  std::size_t row, other;
};

const std::vector<Alias>& aliases() {
  static const std::vector<Alias> all = [] {
    constexpr std::string_view section = "/zero_optimization/";
    constexpr std::string_view prefix = "stage3_";
    std::vector<Alias> found;
    for (const std::size_t row : rows_where([](const Knob& knob) {
           return knob.pointer.starts_with("/zero_optimization/stage3_");
         })) {
      const std::string_view key = knobs()[row].pointer.substr(section.size() + prefix.size());
      const Knob* const other = find_knob(fmt::format("{}{}", section, key));
      if (other != nullptr)
        found.push_back({row, static_cast<std::size_t>(other - knobs().data())});
    }
    return found;
  }();
  return all;
}

void add_unbuilt(const Settings& settings, std::vector<Objection>& objections) {
  static const std::vector<std::size_t> refused =
      rows_where([](const Knob& knob) { return knob.effect == KnobEffect::refused; });
  for (const std::size_t row : refused) {
    const Knob& knob = knobs()[row];
    if (!settings.is_given(row) || !knob.acts_at(settings.zero_stage())) continue;
    const KnobValue& value = settings.value(row);
    const bool is_scalar = !std::holds_alternative<std::monostate>(value);
    if (is_scalar && value == default_value(knob)) continue;
    objections.push_back({std::string(knob.pointer), refusal_of(knob, value), knob.mend.empty()});
  }
  const std::string type = settings.word("/optimizer/type");
  if (type != "adam" && type != "adamw")
    objections.push_back({"/optimizer/type",
                          fmt::format("{} is not built in dstune-mpi yet: write Adam or AdamW",
                                      value_text(settings.value("/optimizer/type"))),
                          true});
}

}  // namespace

std::vector<Objection> objections_to(const Settings& settings) {
  std::vector<Objection> objections;
  add_unbuilt(settings, objections);
  for (const ConfigRule& rule : config_rules())
    if (rule.is_broken(settings))
      objections.push_back({std::string(rule.pointer), std::string(rule.message), rule.is_unbuilt});
  add_argument_objections(settings, objections);
  for (const Alias& alias : aliases())
    if (settings.is_set(alias.row) && settings.is_set(alias.other))
      objections.push_back(
          {std::string(knobs()[alias.other].pointer),
           fmt::format(
               "is another name of {}, which is there too: keep one of them",
               knobs()[alias.row].pointer.substr(knobs()[alias.row].pointer.rfind('/') + 1))});
  return objections;
}

TrainingConfig training_config(const Settings& settings) {
  static const std::vector<std::size_t> acting =
      rows_where([](const Knob& knob) { return knob.apply != nullptr; });
  TrainingConfig config;
  for (const std::size_t row : acting)
    if (settings.is_given(row)) knobs()[row].apply(config, settings.value(row));
  if (!settings.is_given("/zero_optimization/overlap_comm"))
    config.overlap_comm = config.zero_stage == 3;
  // DeepSpeed's stages 1 and 2 need contiguous gradients for offloading and turn them on.
  if (config.offload_optimizer != OffloadDevice::none && config.zero_stage < 3)
    config.contiguous_gradients = true;
  // What says nothing to the step is left out, so that configurations are equal where steps are.
  const double fixed = config.loss_scale.fixed;
  if (config.precision != Precision::fp16 || fixed > 0) config.loss_scale = {};
  if (config.precision == Precision::fp16) config.loss_scale.fixed = fixed;
  // DeepSpeed makes AdamW of Adam too, unless adam_w_mode says otherwise.
  const bool decoupled =
      settings.word("/optimizer/type") != "adam" || settings.is_on("/optimizer/params/adam_w_mode");
  config.optimizer.kind = decoupled ? OptimizerKind::adamw : OptimizerKind::adam;
  // PyTorch's AdamW decays by default, DeepSpeed's does not.
  if (decoupled && settings.is_on("/optimizer/params/torch_adam") &&
      !settings.is_given("/optimizer/params/weight_decay"))
    config.optimizer.weight_decay = 0.01;
  return config;
}

}  // namespace dstune
