#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "deepspeed/arguments.hpp"
#include "deepspeed/config_rules.hpp"

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

OptimizerKind optimizer_kind(const Settings& settings) {
  const std::string type = settings.word("/optimizer/type");
  if (type == "lion") return OptimizerKind::lion;
  if (type == "sgd") return OptimizerKind::sgd;
  if (type == "adagrad") return OptimizerKind::adagrad;
  // DeepSpeed makes AdamW of Adam too, unless adam_w_mode says otherwise.
  const bool decoupled = type != "adam" || settings.is_on("/optimizer/params/adam_w_mode");
  return decoupled ? OptimizerKind::adamw : OptimizerKind::adam;
}

OptimizerConfig optimizer_config(const Settings& settings, OptimizerConfig optimizer) {
  optimizer.kind = optimizer_kind(settings);
  // PyTorch's AdamW decays by default, DeepSpeed's does not.
  if (optimizer.kind == OptimizerKind::adamw && optimizer.torch_adam &&
      !settings.is_given("/optimizer/params/weight_decay"))
    optimizer.weight_decay = 0.01;
  if (optimizer.kind == OptimizerKind::adagrad) {
    if (!settings.is_given("/optimizer/params/lr")) optimizer.learning_rate = 0.01;
    if (!settings.is_given("/optimizer/params/eps")) optimizer.epsilon = 1e-10;
  }
  return optimizer;
}

/// Where they say something.
void add_types_of_states(TrainingConfig& config, const Settings& settings) {
  const bool is_bf16 = config.precision == Precision::bf16;
  if (config.zero_stage == 0 || config.precision == Precision::fp32) return;
  // Stage 2 adds up in 16 bits whatever it is told.
  config.fp32_gradient_accumulation =
      config.zero_stage != 2 && settings.is_given("/data_types/grad_accum_dtype") &&
      element_type(settings, "/data_types/grad_accum_dtype") == "fp32";
  config.immediate_grad_update =
      is_bf16_optimizer(config) && is_bf16_on(settings, "immediate_grad_update");
  config.low_precision_master = is_bf16 ? is_bf16_on(settings, "bf16_master_weights_and_grads")
                                        : settings.is_on("/fp16/fp16_master_weights_and_grads");
  // DeepSpeed's Adam for the host takes the master copy's type for the moments where it is told to.
  const bool asked = is_optimizer_offloaded(config) &&
                     settings.is_given("/optimizer/params/fp32_optimizer_states") &&
                     !settings.is_on("/optimizer/params/fp32_optimizer_states");
  config.low_precision_moments =
      config.low_precision_master &&
      ((is_bf16 && is_bf16_on(settings, "bf16_optimizer_states")) || asked);
}

void add_unbuilt_optimizer(const Settings& settings, std::vector<Objection>& objections) {
  constexpr std::array built = {"adam", "adamw", "lion", "sgd", "adagrad"};
  const std::string type = settings.word("/optimizer/type");
  const KnobValue& written = settings.value("/optimizer/type");
  if (std::find(built.begin(), built.end(), type) == built.end()) {
    objections.push_back({"/optimizer/type",
                          fmt::format("{} is not built in dstune-mpi yet: write Adam, AdamW, Lion, "
                                      "Adagrad or SGD",
                                      value_text(written)),
                          true});
  } else if (type == "sgd" && std::get<std::string>(written) != "SGD") {
    objections.push_back({"/optimizer/type", "DeepSpeed wants PyTorch's own name: write SGD"});
  }
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
  add_unbuilt_optimizer(settings, objections);
}

}  // namespace

std::vector<Objection> objections_to(const Settings& settings) {
  std::vector<Objection> objections;
  add_unbuilt(settings, objections);
  for (const auto& rules : {precision_rules(), zero_rules(), section_rules()})
    for (const ConfigRule& rule : rules)
      if (rule.is_broken(settings))
        objections.push_back(
            {std::string(rule.pointer), std::string(rule.message), rule.is_unbuilt});
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

namespace {

void leave_out_unused(DiskUse& disk, const TrainingConfig& config) {
  const DiskUse usual;
  if (!uses_disk(config)) disk = usual;
  if (!is_optimizer_on_disk(config)) {
    disk.optimizer_buffers = usual.optimizer_buffers;
    disk.pipeline_read = disk.pipeline_write = false;
  }
  if (!are_parameters_on_disk(config)) {
    disk.parameter_buffers = usual.parameter_buffers;
    disk.parameter_buffer_size = usual.parameter_buffer_size;
    disk.parameters_in_memory = usual.parameters_in_memory;
  }
}

}  // namespace

TrainingConfig training_config(const Settings& settings) {
  static const std::vector<std::size_t> acting =
      rows_where([](const Knob& knob) { return knob.apply != nullptr; });
  TrainingConfig config;
  for (const std::size_t row : acting)
    if (settings.is_given(row)) knobs()[row].apply(config, settings.value(row));
  if (!settings.is_given("/zero_optimization/overlap_comm"))
    config.overlap_comm = config.zero_stage == 3;
  // Below stage 3 DeepSpeed takes every device but "none" for the host.
  if (config.offload_optimizer == OffloadDevice::nvme && config.zero_stage < 3)
    config.offload_optimizer = OffloadDevice::cpu;
  // DeepSpeed's stages 1 and 2 need contiguous gradients for offloading and turn them on.
  if (config.offload_optimizer != OffloadDevice::none && config.zero_stage < 3)
    config.contiguous_gradients = true;
  // What says nothing to the step is left out, so that configurations are equal where steps are.
  if (config.offload_optimizer == OffloadDevice::none) config.offload_ratio = 1;
  leave_out_unused(config.disk, config);
  if (is_mics(config)) {
    // DeepSpeed hands none of these on.
    config.stage3_allgather_sequential = config.stage3_use_all_reduce_for_fetch_params = false;
    config.stage3_module_granularity_threshold = 0;
    config.zero_quantized_weights = config.zero_quantized_gradients = false;
    config.offload_ratio = 1;
  } else {
    config.mics_hierarchical_params_gather = false;
  }
  const double fixed = config.loss_scale.fixed;
  if (config.precision != Precision::fp16 || fixed > 0) config.loss_scale = {};
  if (config.precision == Precision::fp16) config.loss_scale.fixed = fixed;
  add_types_of_states(config, settings);
  config.optimizer = optimizer_config(settings, config.optimizer);
  return config;
}

}  // namespace dstune
