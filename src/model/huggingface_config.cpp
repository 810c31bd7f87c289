#include "huggingface_config.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dstune::model {
namespace {

struct ActivationName {
  std::string_view text;
  Activation activation;
};
/// Of transformers' names, those whose formula is built.
constexpr std::array activation_names{
    ActivationName{"gelu", Activation::gelu},
    ActivationName{"gelu_python", Activation::gelu},
    ActivationName{"gelu_new", Activation::gelu_tanh},
    ActivationName{"gelu_fast", Activation::gelu_tanh},
    ActivationName{"gelu_pytorch_tanh", Activation::gelu_tanh},
    ActivationName{"relu", Activation::relu},
    ActivationName{"silu", Activation::silu},
    ActivationName{"swish", Activation::silu},
};

bool is_other_head(std::string_view architecture) {
  const bool built = architecture.ends_with("ForCausalLM") || architecture.ends_with("ForMaskedLM");
  return architecture.ends_with("DoubleHeadsModel") || architecture == "BertLMHeadModel" ||
         (architecture.find("For") != std::string_view::npos && !built);
}

}  // namespace

std::optional<json::Node> Config::find(Names names) const {
  for (const char* name : names) {
    auto found = node_.find(name);
    if (found && !found->is_null()) return found;
  }
  return std::nullopt;
}

std::int64_t Config::size(Names names, std::int64_t fallback) const {
  const auto found = find(names);
  return found ? found->integer(problems_, 1, largest_size).value_or(fallback) : fallback;
}

double Config::number(Names names, double fallback, double low, double high) const {
  const auto found = find(names);
  return found ? found->number(problems_, low, high).value_or(fallback) : fallback;
}

bool Config::boolean(const char* name, bool fallback) const {
  const auto found = find({name});
  return found ? found->boolean(problems_).value_or(fallback) : fallback;
}

double Config::dropout(std::initializer_list<std::pair<const char*, double>> probabilities) const {
  double largest = 0.0;
  for (const auto& [name, fallback] : probabilities)
    largest = std::max(largest, number({name}, fallback, 0.0, 1.0));
  return largest;
}

std::int64_t Config::head_size(const ModelSpec& spec) const {
  if (find({"head_dim"})) return size({"head_dim"}, 1);
  return head_size_of(spec.hidden_size, spec.num_heads, node_, problems_);
}

void Config::only(const char* name, bool built) const {
  if (boolean(name, built) == built) return;
  refuse(*find({name}), fmt::format("{} {} is not built; only {} is", name, !built, built));
}

Activation Config::activation(const char* name, Activation fallback) const {
  const auto found = find({name});
  if (!found) return fallback;
  const auto word = found->string(problems_);
  if (!word) return fallback;
  std::string known;
  for (const ActivationName& each : activation_names) {
    if (each.text == *word) return each.activation;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", each.text);
  }
  refuse(*found, fmt::format("{} \"{}\" is not built; what is: {}", name, *word, known));
  return fallback;
}

void Config::only_silu(const char* name) const {
  const auto found = find({name});
  if (!found) return;
  const auto word = found->string(problems_);
  if (!word || *word == "silu" || *word == "swish") return;
  refuse(*found, fmt::format("{} \"{}\" is not built in a gated MLP; what is: silu", name, *word));
}

void Config::read_rope(ModelSpec& spec) const {
  spec.rope_theta = number({"rope_theta", "rotary_emb_base"}, 10000.0, 1.0, 1e12);
  read_rotary_fraction(spec);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const auto section = find({name});
    if (!section || !section->expect_object(problems_)) continue;
    const Config rope(*section, problems_);
    if (const auto type = rope.find({"rope_type", "type"})) {
      const auto word = type->string(problems_);
      if (word && *word != "default") {
        rope.refuse(
            *type, fmt::format("{} of type \"{}\" is not built; only \"default\" is", name, *word));
      }
    }
    spec.rope_theta = rope.number({"rope_theta"}, spec.rope_theta, 1.0, 1e12);
    rope.read_rotary_fraction(spec);
  }
}

void Config::read_rotary_fraction(ModelSpec& spec) const {
  double& fraction = spec.architecture.rotary_fraction;
  fraction = number({"partial_rotary_factor", "rotary_pct"}, fraction, 0.0, 1.0);
}

std::optional<bool> Config::any_sliding_layer() const {
  const auto types = find({"layer_types"});
  if (!types || !types->is_array()) return std::nullopt;
  bool sliding = false;
  for (const json::Node& each : types->elements()) {
    const auto word = each.string(problems_);
    if (!word || *word == "full_attention") continue;
    if (*word == "sliding_attention") {
      sliding = true;
      continue;
    }
    refuse(each, fmt::format("layer_types \"{}\" is not built; only \"full_attention\" is", *word));
    return std::nullopt;
  }
  return sliding;
}

void Config::refuse_other_models() const {
  if (const auto quantized = find({"quantization_config"})) {
    refuse(*quantized,
           "quantization_config is not built: weights are trained in fp32 or bf16; remove it");
  }
  const auto architectures = find({"architectures"});
  if (!architectures || !architectures->is_array()) return;
  for (const json::Node& each : architectures->elements()) {
    const auto word = each.string(problems_);
    if (word && is_other_head(*word)) {
      refuse(each, fmt::format("architectures \"{}\" is not built; what is: a causal "
                               "(…ForCausalLM) head, and bert's BertForMaskedLM",
                               *word));
    }
  }
}

}  // namespace dstune::model
