#include "deepspeed/knobs.hpp"

#include <algorithm>
#include <type_traits>
#include <unordered_map>

#include "dstune/base/error.hpp"

namespace dstune {

namespace {

using Config = TrainingConfig;
using Apply = decltype(Knob::apply);

template <Precision precision>
void set_precision(Config& config, const KnobValue& value) {
  if (std::get<bool>(value)) config.precision = precision;
}

/// The rows of the devices come before these. A rule refuses two folders.
template <auto device>
void set_folder(Config& config, const KnobValue& value) {
  if (config.*device == OffloadDevice::nvme) config.disk.folder = std::get<std::string>(value);
}
template <auto device>
void set_host(Config& config, const KnobValue& value) {
  if (std::get<bool>(value)) config.*device = OffloadDevice::cpu;
}

template <auto member>
void set_leaves(Config& config, const KnobValue& value) {
  // No module where the value is only to be put aside.
  const auto* const lines = std::get_if<std::string>(&value);
  config.leaf_modules.*member = lines == nullptr ? "" : *lines;
}
/// DeepSpeed's default names classes of models that are not among the families here.
void set_leaf_classes(Config& config, const KnobValue& value) {
  static const std::string usual = [] {
    std::string lines;
    for (const Key& key : key_rows("deepspeed"))
      if (key.pointer == "/zero_optimization/leaf_module/classes")
        for (const json::Value& name : json::Value::parse(key.fallback))
          lines += name.get<std::string>() + '\n';
    return lines;
  }();
  set_leaves<&LeafModules::classes>(config, value);
  if (config.leaf_modules.classes == usual) config.leaf_modules.classes.clear();
}

void set_reduction(Config& config, const KnobValue& value) {
  config.sums_gradients = std::get<std::string>(value) == "sum";
}
/// 0 is as good as 1.
void set_hpz(Config& config, const KnobValue& value) {
  config.zero_hpz_partition_size = std::max<std::int64_t>(1, std::get<std::int64_t>(value));
}
void set_mics(Config& config, const KnobValue& value) {
  config.mics_shard_size = mics_ranks(std::get<std::int64_t>(value));
}

/// Keys whose value does more than to become a member's.
const std::unordered_map<std::string_view, Apply>& setters() {
  static const std::unordered_map<std::string_view, Apply> all = {
      {"/gradient_allreduce_op", set_reduction},
      {"/bf16/enabled", set_precision<Precision::bf16>},
      {"/fp16/enabled", set_precision<Precision::fp16>},
      {"/zero_optimization/zero_hpz_partition_size", set_hpz},
      {"/zero_optimization/mics_shard_size", set_mics},
      {"/zero_optimization/leaf_module/classes", set_leaf_classes},
      {"/zero_optimization/leaf_module/names", set_leaves<&LeafModules::names>},
      {"/zero_optimization/leaf_module/name_suffixes", set_leaves<&LeafModules::name_suffixes>},
      {"/zero_optimization/offload_param/nvme_path", set_folder<&Config::offload_param>},
      {"/zero_optimization/offload_optimizer/nvme_path", set_folder<&Config::offload_optimizer>},
      {"/zero_optimization/cpu_offload", set_host<&Config::offload_optimizer>},
      {"/zero_optimization/cpu_offload_param", set_host<&Config::offload_param>},
  };
  return all;
}

/// The value becomes the member of this name, which stands at one place in all configurations.
Apply setter_of_member(std::string_view wanted) {
  Apply setter;
  Config unset;
  for_each_member(unset, [&](std::string_view name, auto& member) {
    using Member = std::decay_t<decltype(member)>;
    if (name != wanted) return;
    const auto place = reinterpret_cast<char*>(&member) - reinterpret_cast<char*>(&unset);
    setter = [place](Config& config, const KnobValue& value) {
      assign(*reinterpret_cast<Member*>(reinterpret_cast<char*>(&config) + place), value);
    };
  });
  if (setter == nullptr) throw LogicError("keys.json names no member: " + std::string(wanted));
  return setter;
}

}  // namespace

std::vector<Knob> all_knobs() {
  std::vector<Knob> knobs;
  for (const Key& key : key_rows("deepspeed")) {
    Knob knob{key};
    const auto setter = setters().find(key.pointer);
    if (setter != setters().end()) knob.apply = setter->second;
    if (!key.member.empty()) knob.apply = setter_of_member(key.member);
    knobs.push_back(std::move(knob));
  }
  return knobs;
}

}  // namespace dstune
