#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reading.hpp"

namespace dstune {
namespace model {
namespace {

/// The names in transformers whose formula is built.
constexpr EnumText activation_names[] = {
    enum_text(Activation::gelu, "gelu"),
    enum_text(Activation::gelu, "gelu_python"),
    enum_text(Activation::gelu_tanh, "gelu_new"),
    enum_text(Activation::gelu_tanh, "gelu_fast"),
    enum_text(Activation::gelu_tanh, "gelu_pytorch_tanh"),
    enum_text(Activation::relu, "relu"),
    enum_text(Activation::silu, "silu"),
    enum_text(Activation::silu, "swish"),
};

bool is_other_head(std::string_view architecture) {
  const bool built = architecture.ends_with("ForCausalLM") ||
                     architecture.ends_with("ForMaskedLM") || is_encoder_head(architecture);
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

std::optional<int> Config::value_of(std::span<const EnumText> names, std::string_view word,
                                    const json::Node& at, std::string_view what) const {
  std::vector<std::string_view> known;
  for (const EnumText& each : names) {
    if (each.text == word) return each.value;
    known.push_back(each.text);
  }
  refuse(at,
         fmt::format("{} \"{}\" is not built; these are: {}", what, word, fmt::join(known, ", ")));
  return std::nullopt;
}

Activation Config::activation(const char* name, Activation fallback) const {
  const auto found = find({name});
  if (!found) return fallback;
  const auto word = found->string(problems_);
  if (!word) return fallback;
  const auto known = value_of(activation_names, *word, *found, name);
  return known ? static_cast<Activation>(*known) : fallback;
}

void Config::only_silu(const char* name) const {
  const auto found = find({name});
  if (!found) return;
  const auto word = found->string(problems_);
  if (!word || *word == "silu" || *word == "swish") return;
  refuse(*found, fmt::format("{} \"{}\" is not built in a gated MLP; silu is", name, *word));
}

std::optional<std::vector<bool>> Config::sliding_layers(std::int64_t num_layers) const {
  const auto types = find({"layer_types"});
  if (!types || !types->is_array()) return std::nullopt;
  std::vector<bool> sliding;
  for (const json::Node& each : types->elements()) {
    const auto word = each.string(problems_);
    sliding.push_back(word == "sliding_attention");
    if (!word || sliding.back() || *word == "full_attention") continue;
    refuse(
        each,
        fmt::format("layer_types \"{}\" is not built; these are: full_attention, sliding_attention",
                    *word));
  }
  if (static_cast<std::int64_t>(sliding.size()) != num_layers)
    refuse(*types,
           fmt::format("layer_types has {} entries for {} layers", sliding.size(), num_layers));
  sliding.resize(static_cast<std::size_t>(num_layers));
  return sliding;
}

void Config::refuse_other_models() const {
  if (const auto quantized = find({"quantization_config"})) {
    refuse(*quantized,
           "quantization_config is not built: weights are trained in fp32 or bf16; remove it");
  }
  const auto architectures = find({"architectures"});
  if (!architectures || architectures->is_null()) return;
  if (!architectures->is_array()) {
    refuse(*architectures, "write a list of class names, in brackets");
    return;
  }
  for (const json::Node& each : architectures->elements()) {
    const auto word = each.string(problems_);
    if (word && is_other_head(*word)) {
      refuse(
          each,
          fmt::format("architectures \"{}\" is not built; these are: a causal (…ForCausalLM) head, "
                      "and for bert and distilbert …ForMaskedLM, …ForSequenceClassification, "
                      "…ForTokenClassification and …ForQuestionAnswering",
                      *word));
    }
  }
}

}  // namespace model

namespace {

ModelSpec import_family(const model::Config& config, ModelFamily family) {
  switch (family) {
    case ModelFamily::gpt2:
      return model::import_gpt2(config);
    case ModelFamily::opt:
      return model::import_opt(config);
    case ModelFamily::gpt_neox:
      return model::import_gpt_neox(config);
    case ModelFamily::bert:
      return model::import_bert(config);
    case ModelFamily::smollm3:
      return model::import_smollm3(config);
    case ModelFamily::granite:
      return model::import_granite(config);
    case ModelFamily::gemma2:
    case ModelFamily::gemma3_text:
      return model::import_gemma(config, family);
    case ModelFamily::falcon:
      return model::import_falcon(config);
    case ModelFamily::distilbert:
      return model::import_distilbert(config);
    default:
      return model::import_llama_like(config, family);
  }
}

/// A word for what the model is, by keys that its config has.
std::string_view kind_of(const model::Config& config) {
  if (config.find({"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}))
    return ", a mixture of experts,";
  if (config.find({"vision_config", "image_size"})) return ", a model with images,";
  const auto heads = config.find({"architectures"});
  const bool is_conditional =
      heads && heads->value().dump().find("ForConditionalGeneration") != std::string::npos;
  if (is_conditional || config.boolean("is_encoder_decoder", false))
    return ", an encoder with a decoder,";
  return "";
}

/// The two ways to go on: the engine runs any model, and a dense one can stand for it in a plan.
std::string refusal(const model::Config& config, std::string_view type) {
  const std::string_view kind = kind_of(config);
  const bool has_experts = kind.find("experts") != kind.npos;
  const bool has_text = config.find({"text_config"}).has_value();
  return fmt::format(
      "model type \"{}\"{} is not built; these are: {}. DeepSpeed's engine runs it: write "
      "\"workload\": {{\"type\": \"deepspeed\"}} and your training_command in dstune "
      "(docs/engine.md). A dense stand-in plans it: write family, hidden_size, num_layers, "
      "num_heads, num_kv_heads, intermediate_size{}, vocab_size and max_positions in "
      "dstune.model{}",
      type, kind, model_family_names(), has_experts ? " (of all experts together)" : "",
      has_text ? "; or name a file that has its text_config alone" : "");
}

}  // namespace

ModelSpec import_huggingface(const json::Document& document) {
  json::Problems problems;
  const json::Node root = document.node();
  if (!root.expect_object(problems)) problems.check();
  const model::Config config(root, problems);
  const auto type_node = config.find({"model_type"});
  if (!type_node) {
    config.refuse(root, fmt::format("model_type is missing; give one of {}", model_family_names()));
    problems.check();
  }
  const auto type = type_node->string(problems);
  problems.check();
  const auto family = from_text<ModelFamily>(*type);
  if (!family) config.refuse(*type_node, refusal(config, *type));
  problems.check();
  config.refuse_other_models();
  ModelSpec spec = import_family(config, *family);
  model::refuse_foreign_keys(config, spec);
  model::check_shape(spec, root, problems);
  problems.check();
  spec.name = model::sized_name(spec);
  return spec;
}

std::optional<Precision> huggingface_precision(const json::Document& document) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    const auto node = document.node().is_object() ? document.node().find(key) : std::nullopt;
    if (!node || !node->is_string()) continue;
    const auto text = node->value().get<std::string>();
    for (const auto& [name, precision] :
         {std::pair{"float32", Precision::fp32}, std::pair{"bfloat16", Precision::bf16},
          std::pair{"float16", Precision::fp16}})
      if (text == name || text == std::string("torch.") + name) return precision;
  }
  return std::nullopt;
}

}  // namespace dstune
