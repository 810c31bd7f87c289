/// Reads what decoders with RMSNorm, rotary positions and a gated MLP have beside LLaMA's keys:
/// smollm3, granite, gemma2, gemma3_text.

#include <cmath>

#include <fmt/format.h>

#include "reading.hpp"

namespace dstune::model {
namespace {

/// `layer_types` or, without it, the layers that are not rotated have the window.
void read_smollm3_windows(const Config& config, ModelSpec& spec) {
  const std::int64_t window = config.size({"sliding_window"}, 0);
  const bool slides = config.boolean("use_sliding_window", false) && window > 0;
  const auto listed = config.sliding_layers(spec.num_layers);
  for (std::int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const bool has_window =
        listed ? (*listed)[static_cast<std::size_t>(layer)] : slides && !spec.rotates(layer);
    if (!has_window) spec.full_layers.push_back(layer);
  }
  if (static_cast<std::int64_t>(spec.full_layers.size()) == spec.num_layers) {
    spec.full_layers.clear();
    return;
  }
  spec.attention_window = window;
  if (window == 0) {
    config.refuse(*config.find({"layer_types"}),
                  "layer_types names layers with a window: give its size in sliding_window");
  }
}

std::vector<std::int64_t> read_unrotated_layers(const Config& config, std::int64_t num_layers) {
  const auto list = config.find({"no_rope_layers"});
  if (!list || !list->is_array())
    return every_nth_layer(num_layers, config.size({"no_rope_layer_interval"}, 4));
  const std::vector<json::Node> flags = list->elements();
  std::vector<std::int64_t> unrotated;
  if (static_cast<std::int64_t>(flags.size()) < num_layers) {
    config.refuse(*list, fmt::format("no_rope_layers has {} entries for {} layers", flags.size(),
                                     num_layers));
    return unrotated;
  }
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    // 1 stands for a layer that is rotated.
    const json::Node& flag = flags[static_cast<std::size_t>(layer)];
    if (flag.integer(config.problems(), 0, 1) == 0) unrotated.push_back(layer);
  }
  return unrotated;
}

/// Gemma's cap is on where its key is absent, and off where it is null.
double read_softcap(const Config& config, const char* name, double fallback) {
  const auto given = config.node().find(name);
  if (!given) return fallback;
  return given->is_null() ? 0.0 : config.number({name}, fallback, 1e-3, 1e6);
}

void read_gemma_layers(const Config& config, ModelSpec& spec) {
  if (spec.family == ModelFamily::gemma3_text) {
    const std::int64_t interval = config.size({"sliding_window_pattern"}, 6);
    spec.full_layers = every_nth_layer(spec.num_layers, interval);
  }
  if (const auto listed = config.sliding_layers(spec.num_layers)) {
    spec.full_layers.clear();
    for (std::int64_t layer = 0; layer < spec.num_layers; ++layer)
      if (!(*listed)[static_cast<std::size_t>(layer)]) spec.full_layers.push_back(layer);
  }
  spec.attention_window = config.size({"sliding_window"}, spec.attention_window);
  if (static_cast<std::int64_t>(spec.full_layers.size()) < spec.num_layers) return;
  spec.full_layers.clear();
  spec.attention_window = 0;
}

/// The angles of layers with a window: rope_local_base_freq or, in newer files, a section.
void read_local_rope(const Config& config, ModelSpec& spec) {
  spec.rope_local_theta = config.number({"rope_local_base_freq"}, spec.rope_local_theta, 1.0, 1e12);
  const auto all = config.find({"rope_parameters"});
  const auto local = all && all->is_object() ? all->find("sliding_attention") : std::nullopt;
  if (!local || !local->expect_object(config.problems())) return;
  const Config section(*local, config.problems());
  spec.rope_local_theta = section.number({"rope_theta"}, spec.rope_local_theta, 1.0, 1e12);
  const auto type = section.find({"rope_type", "type"});
  if (type && type->string(config.problems()) != "default") {
    config.refuse(*type, fmt::format("rope_type {} is not built for layers with a window; only "
                                     "\"default\" is",
                                     type->value().dump()));
  }
}

}  // namespace

std::vector<std::int64_t> every_nth_layer(std::int64_t num_layers, std::int64_t interval) {
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = interval - 1; layer < num_layers; layer += interval)
    layers.push_back(layer);
  return layers;
}

ModelSpec import_smollm3(const Config& config) {
  ModelSpec spec = import_llama_like(config, ModelFamily::smollm3);
  spec.full_layers.clear();
  spec.unrotated_layers = read_unrotated_layers(config, spec.num_layers);
  read_smollm3_windows(config, spec);
  return spec;
}

ModelSpec import_granite(const Config& config) {
  ModelSpec spec = import_llama_like(config, ModelFamily::granite);
  constexpr double smallest = 1e-6;
  constexpr double largest = 1e6;
  const auto read = [&](const char* name) { return config.number({name}, 1.0, smallest, largest); };
  Architecture& parts = spec.architecture;
  parts.embedding_multiplier = read("embedding_multiplier");
  parts.residual_multiplier = read("residual_multiplier");
  parts.attention_multiplier = read("attention_multiplier");
  parts.logits_scaling = read("logits_scaling");
  return spec;
}

void set_gemma_layers(ModelSpec& spec) {
  const bool is_third = spec.family == ModelFamily::gemma3_text;
  spec.head_size = 256;
  spec.attention_window = 4096;
  spec.full_layers = every_nth_layer(spec.num_layers, is_third ? 6 : 2);
  if (!is_third) return;
  spec.rope_theta = 1e6;
  spec.rope_local_theta = 1e4;
}

ModelSpec import_gemma(const Config& config, ModelFamily family) {
  const bool is_third = family == ModelFamily::gemma3_text;
  ModelSpec spec;
  spec.family = family;
  spec.architecture = architecture_of(family);
  spec.hidden_size = config.size({"hidden_size"}, 2304);
  spec.num_layers = config.size({"num_hidden_layers"}, 26);
  spec.num_heads = config.size({"num_attention_heads"}, 8);
  spec.num_kv_heads = config.size({"num_key_value_heads"}, 4);
  set_gemma_layers(spec);
  spec.head_size = config.size({"head_dim"}, spec.head_size);
  spec.intermediate_size = config.size({"intermediate_size"}, 9216);
  spec.vocab_size = config.size({"vocab_size"}, is_third ? 262208 : 256000);
  spec.max_positions = config.size({"max_position_embeddings"}, is_third ? 131072 : 8192);
  spec.tie_embeddings = config.boolean("tie_word_embeddings", true);
  spec.norm_epsilon = config.number({"rms_norm_eps"}, 1e-6, 0.0, 1.0);
  spec.initializer_range = config.number({"initializer_range"}, 0.02, 0.0, 1e3);
  spec.dropout = config.dropout({{"attention_dropout", 0.0}});
  Architecture& parts = spec.architecture;
  parts.activation = config.activation("hidden_activation", parts.activation);
  if (parts.activation == Activation::gelu || parts.activation == Activation::relu) {
    const json::Node given = *config.find({"hidden_activation"});
    config.refuse(
        given,
        fmt::format(
            "hidden_activation {} is not built in a gated MLP; gelu_pytorch_tanh and silu are",
            given.value().dump()));
  }
  parts.qkv_bias = parts.projection_bias = config.boolean("attention_bias", false);
  parts.attention_multiplier =
      1 / std::sqrt(config.number({"query_pre_attn_scalar"}, 256, 1e-3, 1e9));
  // The attention of Gemma 3 takes no notice of its cap.
  if (!is_third)
    parts.attention_softcap =
        read_softcap(config, "attn_logit_softcapping", parts.attention_softcap);
  parts.logits_softcap = read_softcap(config, "final_logit_softcapping", parts.logits_softcap);
  config.only("use_bidirectional_attention", false);
  read_gemma_layers(config, spec);
  config.read_rope(spec);
  if (is_third) read_local_rope(config, spec);
  return spec;
}

void refuse_foreign_keys(const Config& config, const ModelSpec& spec) {
  using enum ModelFamily;
  const auto refuse = [&](const char* name) {
    const auto found = config.find({name});
    if (!found) return;
    config.refuse(*found, fmt::format("{} {} acts on no layer of {}: remove it", name,
                                      found->value().dump(), to_text(spec.family)));
  };
  if (spec.architecture.scaled_embeddings) return;
  refuse("attn_logit_softcapping");
  refuse("final_logit_softcapping");
  const bool has_windows = spec.family == mistral || spec.family == phi3 || spec.family == qwen2 ||
                           spec.family == qwen3 || spec.family == smollm3;
  if (!has_windows && config.boolean("use_sliding_window", true)) refuse("sliding_window");
}

}  // namespace dstune::model
