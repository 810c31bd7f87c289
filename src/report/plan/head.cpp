#include "head.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/hash.hpp"
#include "dstune/base/text.hpp"
#include "parts.hpp"
#include "words.hpp"

namespace dstune {

namespace {

/// So many values of a setting are kept, and so many are named.
constexpr std::size_t max_kept = 8;
constexpr std::size_t max_named = 4;
/// So many varied settings are named in one line.
constexpr std::size_t max_varied = 6;

/// The settings that are told where they do not vary, too, and their words.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> named_settings{{
    {"precision", "precision"},
    {"zero_stage", "stage"},
    {"micro_batch", "micro-batch"},
    {"accumulation_steps", "accumulation"},
    {"recompute", "recompute"},
    {"sequence_length", "sequence"},
    {"num_ranks", "ranks"},
}};

/// Gathers the values of one setting.
class Gathered {
 public:
  template <class Value>
  void add(const Value& value) {
    std::size_t hash = 0;
    mix_hash(hash, value);
    if (!seen_.insert(hash).second) return;
    ++setting.num_values;
    json::Value written;
    if constexpr (std::is_enum_v<Value>)
      written = to_text(value);
    else
      written = value;
    if (setting.values.size() < max_kept) setting.values.push_back(written);
    if (!written.is_number()) return;
    if (setting.least.is_null() || written < setting.least) setting.least = written;
    if (setting.most.is_null() || setting.most < written) setting.most = written;
  }

  MemberSetting setting;

 private:
  std::unordered_set<std::size_t> seen_;
};

std::string setting_value_text(const json::Value& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return format_number(value.get<double>());
  return value.dump();
}

/// "1, 2, 4", "1 to 64 (7 values)".
std::string values_text(const MemberSetting& setting) {
  if (setting.num_values > max_named && !setting.least.is_null())
    return fmt::format("{} to {} ({} values)", setting_value_text(setting.least),
                       setting_value_text(setting.most), setting.num_values);
  std::vector<std::string> texts;
  for (const json::Value& value : setting.values)
    if (texts.size() < max_named) texts.push_back(setting_value_text(value));
  std::string text = fmt::format("{}", fmt::join(texts, ", "));
  if (setting.num_values > texts.size())
    text += fmt::format(" and {} more", setting.num_values - texts.size());
  return text;
}

std::string with_source(const std::string& text, const std::string& source) {
  return source.empty() ? text : fmt::format("{} ({})", text, source);
}

const MemberSetting* find_setting(const std::vector<MemberSetting>& settings,
                                  std::string_view name) {
  const auto found = std::ranges::find(settings, name, &MemberSetting::name);
  return found != settings.end() && found->num_values > 0 ? &*found : nullptr;
}

/// "LLaMA-7B-like: 6.74 billion parameters, 32 layers, sequence 4096"
std::string model_line(const PlanHead& head, const std::vector<MemberSetting>& settings) {
  std::vector<std::string> parts;
  if (head.parameters > 0) parts.push_back(large_count(head.parameters) + " parameters");
  if (head.layers > 0)
    parts.push_back(format_count(static_cast<std::uint64_t>(head.layers), "layer"));
  if (const MemberSetting* sequence = find_setting(settings, "sequence_length"))
    parts.push_back("sequence " + values_text(*sequence));
  return fmt::format("{}: {}.", head.model, fmt::join(parts, ", "));
}

/// "8 GPUs (1 node x 8, --hostfile hosts): NVIDIA A100 SXM4 80GB with 79.2 GiB (…); …"
std::string machine_line(const DryRun& plan) {
  const PlanHead& head = plan.head;
  const std::string ranks = fmt::format(
      "{} ({} x {}{}{})", plan_words::ranks_words(plan, head.machine.size()),
      format_count(static_cast<std::uint64_t>(head.machine.num_nodes), "node"),
      head.machine.num_gpus, head.machine_source.empty() ? "" : ", ", head.machine_source);
  const bool is_named = !head.device.empty();
  std::string device = "memory not known";
  if (plan.device_memory_bytes > 0)
    device = format_bytes(plan.device_memory_bytes) + (is_named ? "" : " each");
  if (is_named) device = head.device + (plan.device_memory_bytes > 0 ? " with " : ", ") + device;
  std::vector<std::string> parts{with_source(device, head.device_memory_source)};
  // Ranks on processors have their host's memory as their own; what they leave is for offloading.
  const bool is_left_over = !head.is_on_gpus && head.machine_source == "this host";
  if (head.host_memory_bytes > 0) {
    const std::string memory = format_bytes(head.host_memory_bytes);
    parts.push_back(
        with_source(is_left_over ? memory + " more a host for offloading" : "hosts of " + memory,
                    head.host_memory_source));
  } else {
    parts.emplace_back("host memory not known: no verdict from it");
  }
  if (!head.network.empty())
    parts.push_back(with_source("network " + head.network, head.network_source));
  return fmt::format("{}: {}.", ranks, fmt::join(parts, "; "));
}

/// "bf16, recompute block, accumulation 1, batch 8 to 512 samples; varied: micro-batch 1 to 64 …"
std::string training_line(const PlanHead& head, const std::vector<MemberSetting>& settings) {
  std::vector<std::string> fixed, varied;
  const auto word_of = [](const std::string& name) {
    const auto found = std::ranges::find(named_settings, std::string_view(name),
                                         [](const auto& row) { return row.first; });
    return found != named_settings.end() ? std::string(found->second) : name;
  };
  for (const auto& [name, word] : named_settings) {
    const MemberSetting* setting = find_setting(settings, name);
    if (setting == nullptr || setting->num_values != 1 || name == "sequence_length") continue;
    if (name == "num_ranks" && setting->values.front() == head.machine.size()) continue;
    const std::string value = values_text(*setting);
    fixed.push_back(name == "precision" ? value : fmt::format("{} {}", word, value));
  }
  if (const MemberSetting* batch = find_setting(settings, "train_batch_size"))
    fixed.push_back(
        batch->num_values == 1
            ? fmt::format("batch of {}", format_count(batch->least.get<std::uint64_t>(), "sample"))
            : fmt::format("batches of {} to {} samples", batch->least.dump(), batch->most.dump()));
  std::uint64_t num_more = 0;
  for (const MemberSetting& setting : settings) {
    if (setting.num_values < 2 || setting.name == "train_batch_size") continue;
    if (varied.size() < max_varied)
      varied.push_back(fmt::format("{} {}", word_of(setting.name), values_text(setting)));
    else
      ++num_more;
  }
  std::string line = fmt::format("Training: {}", fmt::join(fixed, ", "));
  if (!varied.empty()) line += fmt::format("; varied: {}", fmt::join(varied, "; "));
  if (num_more > 0) line += fmt::format("; and {} more", num_more);
  return line + ".";
}

}  // namespace

std::vector<MemberSetting> settings_of(const DryRun& plan) {
  const bool are_all_pruned = std::ranges::all_of(
      plan.experiments, [](const auto& planned) { return planned.status == PlanStatus::pruned; });
  std::vector<Gathered> gathered;
  for (const PlannedExperiment& planned : plan.experiments) {
    if (planned.status == PlanStatus::pruned && !are_all_pruned) continue;
    std::size_t place = 0;
    const auto add = [&](const char* name, const auto& value) {
      if (place == gathered.size()) gathered.emplace_back().setting.name = name;
      gathered[place++].add(value);
    };
    const Experiment& experiment = planned.experiment;
    add("num_ranks", experiment.shape.size());
    for_each_written_member(experiment.config, [&](const char* name, const auto& value) {
      // It follows from the ranks.
      if (name != std::string_view("ranks_per_node")) add(name, value);
    });
    add("train_batch_size", batch_of(experiment));
  }
  std::vector<MemberSetting> settings;
  for (Gathered& one : gathered) settings.push_back(std::move(one.setting));
  return settings;
}

std::vector<std::string> head_lines(const DryRun& plan) {
  const PlanHead& head = plan.head;
  const std::vector<MemberSetting> settings = settings_of(plan);
  std::vector<std::string> lines;
  if (!head.model.empty()) lines.push_back(model_line(head, settings));
  if (plan.model_profile)
    lines.push_back(fmt::format("Profile: {}.", model_profile_text(*plan.model_profile)));
  if (head.machine.size() > 0) lines.push_back(machine_line(plan));
  if (!settings.empty()) lines.push_back(training_line(head, settings));
  std::string software;
  if (!plan.deepspeed.empty()) software = plan.deepspeed + ".";
  if (!head.optimizer.empty())
    software += fmt::format("{}Optimizer: {}.", software.empty() ? "" : " ", head.optimizer);
  if (!software.empty()) lines.push_back(software);
  return lines;
}

json::Value head_json(const DryRun& plan) {
  const PlanHead& head = plan.head;
  const auto text = [](const std::string& words) {
    return words.empty() ? json::Value() : json::Value(words);
  };
  const auto amount = [](std::int64_t value) {
    return value > 0 ? json::Value(value) : json::Value();
  };
  json::Value settings = json::Value::object();
  for (const MemberSetting& setting : settings_of(plan)) {
    const bool is_named = std::ranges::any_of(
        named_settings, [&](const auto& row) { return row.first == setting.name; });
    if (!is_named && setting.num_values < 2 && setting.name != "train_batch_size") continue;
    settings[setting.name] = {{"values", setting.values},
                              {"num_values", setting.num_values},
                              {"least", setting.least},
                              {"most", setting.most}};
  }
  return {{"model", text(head.model)},
          {"parameters", amount(head.parameters)},
          {"layers", amount(head.layers)},
          {"is_on_gpus", head.is_on_gpus},
          {"num_gpus_per_node", amount(head.machine.num_gpus)},
          {"num_nodes", amount(head.machine.num_nodes)},
          {"machine_source", text(head.machine_source)},
          {"device", text(head.device)},
          {"device_memory_bytes", amount(plan.device_memory_bytes)},
          {"device_memory_source", text(head.device_memory_source)},
          {"network", text(head.network)},
          {"network_source", text(head.network_source)},
          {"host_memory_bytes", amount(head.host_memory_bytes)},
          {"host_memory_source", text(head.host_memory_source)},
          {"optimizer", text(head.optimizer)},
          {"settings", std::move(settings)}};
}

}  // namespace dstune
