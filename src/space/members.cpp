#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <type_traits>

#include <fmt/format.h>

#include "dstune/core/settings.hpp"
#include "sections/products.hpp"

namespace dstune {

namespace {

// Names.

constexpr std::string_view micro_batch_name = "train_micro_batch_size_per_gpu";
constexpr std::string_view accumulation_key = "gradient_accumulation_steps";

/// First letters of the parts between underscores.
std::string acronym(const std::string& key) {
  std::string letters;
  for (std::size_t at = 0; at < key.size(); ++at) {
    if (key[at] != '_' && (at == 0 || key[at - 1] == '_')) letters += key[at];
  }
  return letters;
}

/// Writes a value as Python's str() does.
std::string python_text(const json::Value& value, bool is_nested = false) {
  if (value.is_null()) return "None";
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return is_nested ? "'" + text + "'" : text;
  }
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, element] : value.items()) {
    if (!text.empty()) text += ", ";
    if (value.is_object()) text += "'" + key + "': ";
    text += python_text(element, true);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

std::string value_text(const json::Value& value) {
  if (value.is_boolean()) return value.get<bool>() ? "T" : "F";
  if (value.is_number() && value.get<double>() > 9000) {
    return fmt::format("{:.1e}", value.get<double>());
  }
  return python_text(value);
}

/// "oo_", then every setting of the section whatever the keys are.
std::string offload_text(const json::Value& section, const std::string& letters, bool omit_values) {
  std::string text = letters + "_";
  if (omit_values) return text;
  if (!section.is_object()) return text + python_text(section) + "_";
  for (const auto& [key, value] : section.items()) {
    text += acronym(key) + value_text(value) + "_";
  }
  return text;
}

using Kind = Dimension::Kind;

std::string last_part(const std::string& pointer) {
  return pointer.substr(pointer.rfind('/') + 1);
}

/// Keys of what differs: those inside candidates that are objects, else the dimension's own.
void add_keys(const Dimension& dimension, std::vector<std::string>& keys) {
  const auto add = [&](const std::string& key) {
    if (key != "stage" && std::find(keys.begin(), keys.end(), key) == keys.end())
      keys.push_back(key);
  };
  add(last_part(dimension.pointer));
  for (const auto& candidate : dimension.candidates) {
    if (!candidate.is_object()) continue;
    for (const auto& [key, value] : candidate.items()) add(key);
  }
}

bool names_itself(const Dimension& dimension) {
  if (dimension.candidates.size() == 1) return false;
  return dimension.kind == Kind::train_batch_size ||
         (dimension.kind == Kind::knob && dimension.pointer != "/zero_optimization/stage");
}

/// The part that one key of a config adds to its canonical name, with a closing "_" if it is not
/// empty.
std::string canonical_part(const std::string& key, const json::Value& value,
                           const std::vector<std::string>& keys, bool omit_values) {
  if (key == "arg_mappings") return "";
  if (key == "offload_param") return offload_text(value, "op", omit_values);
  if (key == "offload_optimizer") return offload_text(value, "oo", omit_values);
  if (value.is_object()) {
    std::string parts;
    for (const auto& [inner, member] : value.items())
      parts += canonical_part(inner, member, keys, omit_values);
    return parts;
  }
  const bool is_named = key == micro_batch_name || key == accumulation_key ||
                        std::find(keys.begin(), keys.end(), key) != keys.end();
  return is_named ? acronym(key) + (omit_values ? "" : value_text(value)) + "_" : "";
}

// Members that run alike.

struct Reset {
  const Knob* knob;
  KnobValue value;
};

/// The default, or for a knob without one any value of its type: which one does not matter where it
/// does not act.
KnobValue any_value(const Knob& knob) {
  const KnobValue& usual = every_knob().default_value(knob);
  if (!std::holds_alternative<std::monostate>(usual)) return usual;
  switch (knob.type) {
    case KnobType::boolean:
      return false;
    case KnobType::integer:
      return std::int64_t{0};
    case KnobType::number:
      return 0.0;
    case KnobType::text:
      return std::string();
    default:
      return {};
  }
}

std::vector<Reset> resets_at(int stage) {
  std::vector<Reset> resets;
  for (const Knob& knob : every_knob().knobs()) {
    if (knob.apply != nullptr && !knob.acts_at(stage)) resets.push_back({&knob, any_value(knob)});
  }
  return resets;
}

/// Written out, it is what DeepSpeed takes anyway.
bool is_gradients_own(CommunicationType type, Precision precision) {
  return (type == CommunicationType::fp32 && precision == Precision::fp32) ||
         (type == CommunicationType::bf16 && precision == Precision::bf16) ||
         (type == CommunicationType::fp16 && precision == Precision::fp16);
}

/// Says why a knob makes no difference to the step.
std::string no_effect(const Knob& knob, int zero_stage) {
  if (!knob.acts_at(zero_stage)) return fmt::format("has no effect at stage {}", zero_stage);
  if (knob.effect == KnobEffect::inert) return "has no effect on a step";
  if (knob.effect == KnobEffect::not_built) return "is not part of the step measured here yet";
  return "makes no difference here";
}

std::int64_t given_ranks(const Settings& settings, const char* pointer) {
  if (!settings.is_given(pointer)) return 1;
  return std::max<std::int64_t>(1, settings.integer(pointer).value_or(1));
}

}  // namespace

std::string canonical_name(const json::Value& config, const std::vector<std::string>& keys,
                           const std::string& prefix, bool omit_values) {
  std::string name = canonical_part("", config, keys, omit_values);
  if (name.empty()) return prefix + "exp";
  name.pop_back();
  return prefix + name;
}

std::string folder_safe(const std::string& name) {
  constexpr std::size_t longest = 160;
  std::string safe = name;
  for (char& c : safe) {
    const bool is_kept = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                         std::string_view(".+-_=").find(c) != std::string_view::npos;
    if (!is_kept) c = '-';
  }
  if (safe.size() <= longest) return safe;
  // FNV-1a, since names that are on disk keep it.
  std::uint64_t hash = 14695981039346656037ULL;
  for (const unsigned char c : name) hash = (hash ^ c) * 1099511628211ULL;
  return fmt::format("{}_{:016x}", safe.substr(0, longest), hash);
}

NameTemplate::NameTemplate(const Product& product, bool with_shape, bool with_recompute) {
  std::vector<std::string> keys;
  for (const auto& dimension : product.dimensions) {
    if (names_itself(dimension)) {
      is_short_ = false;
      add_keys(dimension, keys);
    }
    for (const auto& candidate : dimension.candidates) {
      if (dimension.kind == Kind::shape && with_shape)
        shapes_.push_back(fmt::format(
            "_ng{}", candidate.at("num_gpus").get<int>() * candidate.at("num_nodes").get<int>()));
      if (dimension.kind == Kind::recompute && with_recompute)
        recomputes_.push_back("_ar" + candidate.get<std::string>());
    }
  }
  for (const auto& [key, value] : product.base.items())
    add_parts(product, key, value, json::append_pointer("", key), keys);
}

void NameTemplate::add_parts(const Product& product, const std::string& key,
                             const json::Value& value, const std::string& pointer,
                             const std::vector<std::string>& keys) {
  const auto& dimensions = product.dimensions;
  const auto found =
      std::find_if(dimensions.begin(), dimensions.end(), [&](const Dimension& dimension) {
        return !dimension.pointer.empty() && dimension.pointer == pointer;
      });
  if (found == dimensions.end()) {
    const bool is_offload = key == "offload_param" || key == "offload_optimizer";
    if (value.is_object() && !is_offload) {
      for (const auto& [inner, member] : value.items())
        add_parts(product, inner, member, json::append_pointer(pointer, inner), keys);
      return;
    }
    const std::string text = canonical_part(key, value, keys, false);
    if (!text.empty()) parts_.push_back({Kind::knob, -1, {text}});
    return;
  }
  Part part{found->kind, static_cast<int>(found - dimensions.begin()), {}};
  if (found->kind == Kind::knob) {
    for (const auto& candidate : found->candidates)
      part.texts.push_back(canonical_part(key, candidate, keys, false));
  } else {
    part.texts.push_back(canonical_part(key, nullptr, keys, true));
    if (part.texts.front().empty()) return;
    part.texts.front().pop_back();
  }
  parts_.push_back(std::move(part));
}

std::string NameTemplate::name(const std::vector<std::size_t>& digits, int zero_stage,
                               const BatchTriple& batch) const {
  std::string name = fmt::format("z{}_", zero_stage);
  if (is_short_) {
    name += fmt::format("gas{}_tmbspg{}", batch.accumulation_steps, batch.micro_batch);
  } else {
    const auto append_size = [&](const Part& part, std::int64_t size) {
      // The number is written as canonical_part() does.
      name += size > 9000 ? fmt::format("{}{:.1e}_", part.texts.front(), static_cast<double>(size))
                          : fmt::format("{}{}_", part.texts.front(), size);
    };
    for (const Part& part : parts_) {
      if (part.kind == Kind::train_batch_size) {
        append_size(part, batch.train_batch_size);
      } else if (part.kind == Kind::micro_batch) {
        append_size(part, batch.micro_batch);
      } else if (part.kind == Kind::accumulation_steps) {
        append_size(part, batch.accumulation_steps);
      } else {
        const std::size_t digit =
            part.dimension < 0 ? 0 : digits[static_cast<std::size_t>(part.dimension)];
        name += part.texts[digit];
      }
    }
    name.pop_back();
  }
  if (!shapes_.empty()) name += shapes_[digits.front()];
  if (!recomputes_.empty()) name += recomputes_[digits.back()];
  return folder_safe(name);
}

TrainingConfig effective_config(const TrainingConfig& config) {
  static const std::array<std::vector<Reset>, 4> resets = {resets_at(0), resets_at(1), resets_at(2),
                                                           resets_at(3)};
  TrainingConfig effective = config;
  if (config.zero_stage < 0 || config.zero_stage > 3) return effective;
  for (const auto& reset : resets[config.zero_stage]) reset.knob->apply(effective, reset.value);
  if (is_gradients_own(effective.communication_data_type, effective.precision))
    effective.communication_data_type = CommunicationType::as_gradients;
  return effective;
}

Digest fingerprint(const TrainingConfig& config, const GroupShape& shape) {
  std::string bytes;
  const auto add = [&](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for_each_member(config, [&](const char*, const auto& member) {
    if constexpr (std::is_same_v<std::decay_t<decltype(member)>, std::string>) {
      add(member.size());
      bytes += member;
    } else {
      add(member);
    }
  });
  add(shape.num_gpus);
  add(shape.num_nodes);
  return digest128(bytes);
}

std::int64_t sequence_ranks(const Settings& settings) {
  return given_ranks(settings, "/sequence_parallel_size");
}

std::int64_t tensor_ranks(const Settings& settings) {
  return given_ranks(settings, "/tensor_parallel/autotp_size");
}

bool is_read_here(const KnobTable& table, const Dimension& dimension) {
  if (table.find_knob(dimension.pointer) == nullptr) return false;
  for (const auto& said : dimension.settings)
    for (const Setting& setting : said) {
      const Knob& knob = table.knobs()[setting.row];
      // The section's members have rows of their own.
      const bool is_section = knob.type == KnobType::object && !table.below(knob.pointer).empty();
      if (setting.presence != Presence::absent && !is_section && knob.apply == nullptr)
        return false;
    }
  return true;
}

std::string twin_reason(const Product& product, const std::vector<std::size_t>& digits,
                        const std::vector<std::size_t>& others, int zero_stage) {
  std::string reason;
  for (std::size_t index = 0; index < digits.size(); ++index) {
    const auto& dimension = product.dimensions[index];
    if (dimension.candidates[digits[index]] == dimension.candidates[others[index]]) continue;
    const std::string name = dimension.pointer.substr(dimension.pointer.rfind('/') + 1);
    const Knob* const knob = every_knob().find_knob(dimension.pointer);
    reason += reason.empty() ? "" : ", ";
    reason += name + " " + (knob == nullptr ? "is not known here" : no_effect(*knob, zero_stage));
  }
  return reason;
}

}  // namespace dstune
