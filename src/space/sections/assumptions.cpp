#include "sections/assumptions.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sections/products.hpp"

namespace dstune {

namespace {

/// The names of the section of a precision; none for fp32.
std::vector<std::string> sections_of(Precision precision) {
  if (precision == Precision::bf16) return {"bf16", "bfloat16"};
  if (precision == Precision::fp16) return {"fp16"};
  return {};
}

constexpr std::array low_precisions{Precision::bf16, Precision::fp16};

/// The section of a precision on `enabled`, whatever else it offers.
struct Switch {
  bool is_automatic = false;
  bool is_on = false;  ///< or may be
};

void look(const json::Value& value, Switch& found) {
  if (value.is_array())
    for (const json::Value& element : value) look(element, found);
  if (value.is_boolean() || value.is_number()) found.is_on = found.is_on || value != false;
  if (value.is_object() && value.contains("enabled")) look(value.at("enabled"), found);
  if (!value.is_string()) return;
  const std::string word = lower_case(value.get<std::string>());
  found.is_automatic = found.is_automatic || word == "auto";
  found.is_on = found.is_on || word == "true" || word == "yes" || word == "on" || word == "1";
}

Switch switch_of(const json::Value& config, Precision precision) {
  Switch found;
  for (const std::string& name : sections_of(precision))
    if (const auto section = config.find(name); section != config.end() && !section->is_string())
      look(*section, found);
  return found;
}

/// A list of candidates or an object at any depth holds one of the words.
bool mentions(const json::Value& value, std::string_view word) {
  if (value.is_structured())
    return std::any_of(value.begin(), value.end(),
                       [&](const json::Value& inner) { return mentions(inner, word); });
  return value.is_string() && lower_case(value.get<std::string>()) == word;
}

/// A member of the space may keep the optimizer's states on the host or on a disk.
bool may_offload_optimizer(const json::Value& zero) {
  if (zero.is_array()) return std::any_of(zero.begin(), zero.end(), may_offload_optimizer);
  if (!zero.is_object()) return false;
  const auto old = zero.find("cpu_offload");
  if (old != zero.end() && (*old == true || old->is_array())) return true;
  const auto section = zero.find("offload_optimizer");
  return section != zero.end() && (mentions(*section, "cpu") || mentions(*section, "nvme"));
}

std::string optimizer_assumption(const json::Value& config) {
  const auto section = config.find("optimizer");
  const bool is_named = section != config.end() && !section->is_null() &&
                        !(section->is_object() && !section->contains("type"));
  if (is_named) return "";
  const auto zero = config.find("zero_optimization");
  if (zero == config.end() || !may_offload_optimizer(*zero))
    return "the optimizer is AdamW, since the config names none";
  const auto force = config.find("zero_force_ds_cpu_optimizer");
  if (force != config.end() && *force == false)
    return "the optimizer is AdamW, since the config names none. With offload it is measured as "
           "DeepSpeed's CPU Adam, which is faster on the host than PyTorch's";
  return "the optimizer is AdamW, since the config names none. With offload, DeepSpeed's CPU Adam "
         "is "
         "used. The Trainer creates it; other scripts must create it themselves";
}

/// Pointers of "auto", but for batch sizes and precision.
void find_automatic(const json::Value& value, const std::string& pointer,
                    std::vector<std::string>& found) {
  const bool is_automatic = value == "auto" || (value.is_array() && mentions(value, "auto"));
  if (is_automatic && !pointer.ends_with("16/enabled") && !batch_kind(pointer.substr(1)))
    found.push_back(pointer.substr(1));
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.items())
    find_automatic(member, pointer + "/" + key, found);
}

double number_of(const KnobValue& value) {
  const auto* const integer = std::get_if<std::int64_t>(&value);
  return integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value);
}

}  // namespace

bool is_of_trainer(const JobSpec& job) {
  return job.has_own_step() && job.target.framework == TargetFramework::huggingface;
}

bool has_automatic_precision(const json::Value& config) {
  return std::ranges::any_of(low_precisions, [&](Precision precision) {
    return switch_of(config, precision).is_automatic;
  });
}

void decide_precision(const std::optional<Precision>& override, SectionTarget& target) {
  JobSpec& job = *target.job;
  std::string source = "dstune.precision";
  if (override) {
    job.precision = override;
    source = "--precision";
  } else if (!job.precision && target.command_precision) {
    job.precision = target.command_precision;
    source = "the training command";
  } else if (!job.precision) {
    job.precision = target.model_precision;
    source = "the model's torch_dtype";
  }
  // A precision that is on beside an "auto" leaves it off: DeepSpeed takes one of them.
  for (const Precision precision : low_precisions)
    if (switch_of(job.ds_config, precision).is_on && has_automatic_precision(job.ds_config)) {
      job.precision = precision;
      source = fmt::format("{}, which is enabled", to_text(precision));
    }
  if (!has_automatic_precision(job.ds_config)) return;
  if (job.precision)
    job.assumptions.push_back(
        fmt::format("\"auto\" precision is {}, by {}", to_text(*job.precision), source));
  else
    job.assumptions.emplace_back("\"auto\" precision is fp32, DeepSpeed's default");
}

void check_automatic_precision(const JobSpec& job, const json::Node& config,
                               json::Problems& problems) {
  if (!is_of_trainer(job) || !has_automatic_precision(config.value())) return;
  const auto automatic = std::ranges::find_if(low_precisions, [&](Precision precision) {
    return switch_of(config.value(), precision).is_automatic;
  });
  std::string pointer;
  for (const std::string& name : sections_of(*automatic))
    if (config.value().contains(name)) pointer = fmt::format("/{}/enabled", name);
  const auto add = [&](const std::string& message) {
    problems.add({config.document().file(), pointer, config.document().line(pointer), message});
  };
  if (!job.precision) {
    add("\"auto\" is the training's precision, which nothing says: add \"precision\": \"bf16\" (or "
        "\"fp16\", \"fp32\") to the section dstune, or give --precision");
  } else if (*job.precision != Precision::fp32) {
    const Switch own = switch_of(config.value(), *job.precision);
    const std::string_view name = to_text(*job.precision);
    if (!own.is_automatic && !own.is_on)
      add(
          fmt::format("\"auto\" stands for {} here, which the config does not switch on: add "
                      "\"{}\": {{\"enabled\": \"auto\"}}, or give another --precision",
                      name, name));
  }
}

void add_assumptions(const json::Node* section, JobSpec& job) {
  if (!job.has_own_step()) return;
  const auto assume = [&](const std::string& text) {
    if (!text.empty()) job.assumptions.push_back(text);
  };
  const auto is_given = [&](const char* key) { return section != nullptr && given(*section, key); };
  if (job.experiment_files.empty()) {
    const bool has_low_precision = std::ranges::any_of(low_precisions, [&](Precision precision) {
      const Switch found = switch_of(job.ds_config, precision);
      return found.is_on || found.is_automatic;
    });
    if (!has_low_precision) assume("the precision is fp32, since neither bf16 nor fp16 is enabled");
    // A training on GPUs has one that was decided on.
    if (job.target.optimizer == TargetOptimizer::of_config)
      assume(optimizer_assumption(job.ds_config));
  }
  if (!is_given("sequence_length") && !job.command.sequence_length)
    assume(fmt::format("a sample has {} tokens, since dstune.sequence_length is not given",
                       job.sequence_length));
  if (!is_given("target"))
    assume("the training is Hugging Face's with sdpa attention, since dstune.target is not given");
  std::vector<std::string> automatic;
  if (job.experiment_files.empty()) find_automatic(job.ds_config, "", automatic);
  std::vector<std::string> by_trainer, by_deepspeed;
  for (const std::string& key : automatic) {
    const auto filled_in = job.auto_values.find("/" + key);
    if (filled_in == job.auto_values.end())
      by_deepspeed.push_back(key);
    else
      by_trainer.push_back(fmt::format("{} {}", key, number_of(filled_in->second)));
  }
  if (!by_trainer.empty())
    assume(fmt::format("\"auto\" stands for what Hugging Face's Trainer puts there: {}",
                       fmt::join(by_trainer, ", ")));
  if (!by_deepspeed.empty())
    assume(fmt::format("\"auto\" stands for DeepSpeed's default in {}",
                       fmt::join(by_deepspeed, ", ")));
}

}  // namespace dstune
