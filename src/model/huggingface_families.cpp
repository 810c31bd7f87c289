/// Reads the config of each family: those with LayerNorm (gpt2, opt, gpt_neox, bert, distilbert,
/// falcon), and those with RMSNorm, rotary positions and SwiGLU (llama, mistral, phi3, qwen2,
/// qwen3, and what huggingface_decoders.cpp reads on).

#include <algorithm>

#include <fmt/format.h>

#include "reading.hpp"

namespace dstune::model {
namespace {

ModelSpec of_family(ModelFamily family) {
  ModelSpec spec;
  spec.family = family;
  spec.architecture = architecture_of(family);
  return spec;
}

/// Sizes under the names that opt, gpt_neox and bert share.
void read_common_sizes(const Config& config, ModelSpec& spec, std::int64_t hidden,
                       std::int64_t layers, std::int64_t heads) {
  spec.hidden_size = config.size({"hidden_size"}, hidden);
  spec.num_layers = config.size({"num_hidden_layers"}, layers);
  spec.num_heads = config.size({"num_attention_heads"}, heads);
  spec.num_kv_heads = spec.num_heads;
  spec.head_size = head_size_of(spec.hidden_size, spec.num_heads, config.node(), config.problems());
}

}  // namespace

ModelSpec import_gpt2(const Config& config) {
  ModelSpec spec = of_family(ModelFamily::gpt2);
  spec.hidden_size = config.size({"n_embd", "hidden_size"}, 768);
  spec.num_layers = config.size({"n_layer", "num_hidden_layers"}, 12);
  spec.num_heads = config.size({"n_head", "num_attention_heads"}, 12);
  spec.num_kv_heads = spec.num_heads;
  spec.head_size = head_size_of(spec.hidden_size, spec.num_heads, config.node(), config.problems());
  spec.intermediate_size = config.size({"n_inner"}, 4 * spec.hidden_size);
  spec.vocab_size = config.size({"vocab_size"}, 50257);
  spec.max_positions = config.size({"n_positions", "max_position_embeddings"}, 1024);
  spec.tie_embeddings = config.boolean("tie_word_embeddings", true);
  spec.norm_epsilon = config.number({"layer_norm_epsilon"}, 1e-5, 0.0, 1.0);
  spec.initializer_range = config.number({"initializer_range"}, 0.02, 0.0, 1e3);
  spec.dropout = config.dropout({{"resid_pdrop", 0.1}, {"embd_pdrop", 0.1}, {"attn_pdrop", 0.1}});
  spec.architecture.activation = config.activation("activation_function", Activation::gelu_tanh);
  config.only("scale_attn_weights", true);
  config.only("scale_attn_by_inverse_layer_idx", false);
  config.only("reorder_and_upcast_attn", false);
  config.only("add_cross_attention", false);
  return spec;
}

ModelSpec import_opt(const Config& config) {
  ModelSpec spec = of_family(ModelFamily::opt);
  read_common_sizes(config, spec, 768, 12, 12);
  spec.intermediate_size = config.size({"ffn_dim"}, 3072);
  spec.vocab_size = config.size({"vocab_size"}, 50272);
  spec.max_positions = config.size({"max_position_embeddings"}, 2048);
  spec.tie_embeddings = config.boolean("tie_word_embeddings", true);
  spec.initializer_range = config.number({"init_std"}, 0.02, 0.0, 1e3);
  spec.dropout = config.dropout({{"dropout", 0.1}, {"attention_dropout", 0.0}});
  spec.architecture.activation = config.activation("activation_function", Activation::relu);
  Architecture& parts = spec.architecture;
  parts.qkv_bias = parts.projection_bias = parts.mlp_bias = config.boolean("enable_bias", true);
  config.only("do_layer_norm_before", true);
  config.only("layer_norm_elementwise_affine", true);
  config.only("_remove_final_layer_norm", false);
  const std::int64_t embedded = config.size({"word_embed_proj_dim"}, spec.hidden_size);
  if (embedded != spec.hidden_size) {
    config.refuse(*config.find({"word_embed_proj_dim"}),
                  fmt::format("word_embed_proj_dim {} is not built; only hidden_size ({}) is",
                              embedded, spec.hidden_size));
  }
  if (const double layerdrop = config.number({"layerdrop"}, 0.0, 0.0, 1.0); layerdrop > 0) {
    config.refuse(*config.find({"layerdrop"}),
                  fmt::format("layerdrop {} is not built; only 0 is", layerdrop));
  }
  return spec;
}

ModelSpec import_gpt_neox(const Config& config) {
  ModelSpec spec = of_family(ModelFamily::gpt_neox);
  read_common_sizes(config, spec, 6144, 44, 64);
  spec.intermediate_size = config.size({"intermediate_size"}, 24576);
  spec.vocab_size = config.size({"vocab_size"}, 50432);
  spec.max_positions = config.size({"max_position_embeddings"}, 2048);
  spec.tie_embeddings = config.boolean("tie_word_embeddings", false);
  spec.norm_epsilon = config.number({"layer_norm_eps"}, 1e-5, 0.0, 1.0);
  spec.initializer_range = config.number({"initializer_range"}, 0.02, 0.0, 1e3);
  spec.dropout = config.dropout({{"attention_dropout", 0.0}, {"hidden_dropout", 0.0}});
  Architecture& parts = spec.architecture;
  parts.activation = config.activation("hidden_act", Activation::gelu);
  parts.qkv_bias = parts.projection_bias = config.boolean("attention_bias", true);
  if (!config.boolean("use_parallel_residual", true)) parts.block = BlockKind::sequential;
  config.read_rope(spec);
  return spec;
}

ModelSpec import_bert(const Config& config) {
  ModelSpec spec = of_family(ModelFamily::bert);
  read_common_sizes(config, spec, 768, 12, 12);
  spec.intermediate_size = config.size({"intermediate_size"}, 3072);
  spec.vocab_size = config.size({"vocab_size"}, 30522);
  spec.max_positions = config.size({"max_position_embeddings"}, 512);
  spec.tie_embeddings = config.boolean("tie_word_embeddings", true);
  spec.norm_epsilon = config.number({"layer_norm_eps"}, 1e-12, 0.0, 1.0);
  spec.initializer_range = config.number({"initializer_range"}, 0.02, 0.0, 1e3);
  spec.dropout =
      config.dropout({{"hidden_dropout_prob", 0.1}, {"attention_probs_dropout_prob", 0.1}});
  spec.architecture.activation = config.activation("hidden_act", Activation::gelu);
  spec.architecture.token_types = config.size({"type_vocab_size"}, 2);
  if (const auto kind = config.find({"position_embedding_type"})) {
    const auto word = kind->string(config.problems());
    if (word && *word != "absolute") {
      config.refuse(
          *kind,
          fmt::format("position_embedding_type \"{}\" is not built; only \"absolute\" is", *word));
    }
  }
  config.only("is_decoder", false);
  config.only("add_cross_attention", false);
  config.read_head(spec);
  return spec;
}

ModelSpec import_distilbert(const Config& config) {
  ModelSpec spec = of_family(ModelFamily::distilbert);
  spec.hidden_size = config.size({"dim", "hidden_size"}, 768);
  spec.num_layers = config.size({"n_layers", "num_hidden_layers"}, 6);
  spec.num_heads = config.size({"n_heads", "num_attention_heads"}, 12);
  spec.num_kv_heads = spec.num_heads;
  spec.head_size = head_size_of(spec.hidden_size, spec.num_heads, config.node(), config.problems());
  spec.intermediate_size = config.size({"hidden_dim"}, 3072);
  spec.vocab_size = config.size({"vocab_size"}, 30522);
  spec.max_positions = config.size({"max_position_embeddings"}, 512);
  spec.tie_embeddings = config.boolean("tie_word_embeddings", true);
  spec.norm_epsilon = 1e-12;
  spec.initializer_range = config.number({"initializer_range"}, 0.02, 0.0, 1e3);
  spec.dropout = config.dropout({{"dropout", 0.1}, {"attention_dropout", 0.1}});
  spec.architecture.activation = config.activation("activation", Activation::gelu);
  config.only("sinusoidal_pos_embds", false);
  config.read_head(spec);
  return spec;
}

namespace {

/// The norms of Falcon's parallel branches. What transformers' FalconDecoderLayer registers and
/// what its forward reads agree in these cases alone.
void read_falcon_norms(const Config& config, bool is_new, Architecture& parts) {
  const std::int64_t norms = config.size({"num_ln_in_parallel_attn"}, is_new ? 2 : 1);
  if (!config.boolean("parallel_attn", true)) {
    parts.block = BlockKind::sequential;
    parts.shared_norm = false;
    if (is_new) {
      config.refuse(*config.find({"parallel_attn"}),
                    "parallel_attn false fails in transformers with new_decoder_architecture; "
                    "leave one of the two out");
    }
    return;
  }
  parts.shared_norm = norms == 1;
  if (norms == 1 || (norms == 2 && is_new)) return;
  config.refuse(*config.find({"num_ln_in_parallel_attn"}),
                fmt::format("num_ln_in_parallel_attn {} is not built; these are: 1{}", norms,
                            is_new ? ", 2" : ", and 2 with new_decoder_architecture"));
}

}  // namespace

ModelSpec import_falcon(const Config& config) {
  ModelSpec spec = of_family(ModelFamily::falcon);
  spec.hidden_size = config.size({"n_embed", "hidden_size"}, 4544);
  spec.num_layers = config.size({"num_hidden_layers"}, 32);
  spec.num_heads = config.size({"num_attention_heads"}, 71);
  spec.head_size = head_size_of(spec.hidden_size, spec.num_heads, config.node(), config.problems());
  // Key heads are counted in the new architecture alone.
  const bool is_new = config.boolean("new_decoder_architecture", false);
  const std::int64_t counted = config.size({"num_kv_heads"}, spec.num_heads);
  spec.num_kv_heads = is_new ? counted : config.boolean("multi_query", true) ? 1 : spec.num_heads;
  spec.intermediate_size = config.size({"ffn_hidden_size"}, 4 * spec.hidden_size);
  spec.vocab_size = config.size({"vocab_size"}, 65024);
  spec.max_positions = config.size({"max_position_embeddings"}, 2048);
  spec.tie_embeddings = config.boolean("tie_word_embeddings", true);
  spec.norm_epsilon = config.number({"layer_norm_epsilon"}, 1e-5, 0.0, 1.0);
  spec.initializer_range = config.number({"initializer_range"}, 0.02, 0.0, 1e3);
  spec.dropout = config.dropout({{"hidden_dropout", 0.0}, {"attention_dropout", 0.0}});
  Architecture& parts = spec.architecture;
  parts.activation = config.activation("activation", Activation::gelu);
  parts.qkv_bias = parts.projection_bias = parts.mlp_bias = config.boolean("bias", false);
  read_falcon_norms(config, is_new, parts);
  config.only("alibi", false);
  config.read_rope(spec);
  return spec;
}

namespace {

/// Values in which the types differ when a key is absent.
struct Defaults {
  std::int64_t hidden, intermediate, kv_heads, vocab, positions;
  double epsilon;
  std::int64_t layers = 32, heads = 32;
  double theta = 10000.0;
  bool tied = false;
};

Defaults defaults_of(ModelFamily family) {
  switch (family) {
    case ModelFamily::mistral:
      return {4096, 14336, 8, 32000, 131072, 1e-6};
    case ModelFamily::phi3:
      return {3072, 8192, 32, 32064, 4096, 1e-5};
    case ModelFamily::qwen2:
    case ModelFamily::qwen3:
      return {4096, 22016, 32, 151936, 32768, 1e-6};
    case ModelFamily::olmo2:
      return {4096, 11008, 32, 50304, 2048, 1e-5};
    case ModelFamily::smollm3:
      return {2048, 11008, 4, 128256, 32768, 1e-6, 36, 16, 2e6, true};
    default:
      return {4096, 11008, 32, 32000, 2048, 1e-6};
  }
}

/// Positions that a token attends to, where any layer has a window; 0: none has.
std::int64_t window_size(const Config& config, ModelFamily family) {
  switch (family) {
    case ModelFamily::mistral:
      // Absent means 4096 here, null none.
      return config.node().find("sliding_window") ? config.size({"sliding_window"}, 0)
                                                  : std::int64_t{4096};
    case ModelFamily::phi3:
      return config.size({"sliding_window"}, 0);
    case ModelFamily::qwen2:
    case ModelFamily::qwen3:
      if (!config.boolean("use_sliding_window", false)) return 0;
      return config.size({"sliding_window"}, 4096);
    default:
      return 0;
  }
}

void read_windows(const Config& config, ModelSpec& spec) {
  // Mistral and Phi-3 know no kinds of layers; those of Qwen look at everything at first.
  const bool has_kinds = spec.family == ModelFamily::qwen2 || spec.family == ModelFamily::qwen3;
  auto listed = config.sliding_layers(spec.num_layers);
  if (!listed || !has_kinds) {
    const std::int64_t first = has_kinds ? config.size({"max_window_layers"}, 28) : 0;
    listed.emplace();
    for (std::int64_t layer = 0; layer < spec.num_layers; ++layer)
      listed->push_back(layer >= first);
  }
  for (std::int64_t layer = 0; layer < spec.num_layers; ++layer)
    if (!(*listed)[static_cast<std::size_t>(layer)]) spec.full_layers.push_back(layer);
  const bool slides = static_cast<std::int64_t>(spec.full_layers.size()) < spec.num_layers;
  spec.attention_window = slides ? window_size(config, spec.family) : 0;
  if (spec.attention_window == 0) spec.full_layers.clear();
}

void read_biases(const Config& config, ModelFamily family, Architecture& parts) {
  using enum ModelFamily;
  const bool has_mlp_bias = family == llama || family == smollm3 || family == granite;
  if (has_mlp_bias || family == qwen3 || family == olmo2)
    parts.qkv_bias = parts.projection_bias = config.boolean("attention_bias", false);
  if (has_mlp_bias) parts.mlp_bias = config.boolean("mlp_bias", false);
}

}  // namespace

ModelSpec import_llama_like(const Config& config, ModelFamily family) {
  const Defaults defaults = defaults_of(family);
  ModelSpec spec = of_family(family);
  spec.hidden_size = config.size({"hidden_size"}, defaults.hidden);
  spec.num_layers = config.size({"num_hidden_layers"}, defaults.layers);
  spec.num_heads = config.size({"num_attention_heads"}, defaults.heads);
  // Mistral, Qwen and SmolLM have a number of their own; the others take the heads'.
  using enum ModelFamily;
  const bool has_own = family == mistral || family == qwen2 || family == qwen3 || family == smollm3;
  const bool as_heads = !has_own || config.node().find("num_key_value_heads");
  spec.num_kv_heads =
      config.size({"num_key_value_heads"}, as_heads ? spec.num_heads : defaults.kv_heads);
  const bool own_head_size = family == ModelFamily::qwen3 && !config.node().find("head_dim");
  spec.head_size = own_head_size ? 128 : config.head_size(spec);
  spec.intermediate_size = config.size({"intermediate_size"}, defaults.intermediate);
  spec.vocab_size = config.size({"vocab_size"}, defaults.vocab);
  spec.max_positions = config.size({"max_position_embeddings"}, defaults.positions);
  spec.tie_embeddings = config.boolean("tie_word_embeddings", defaults.tied);
  spec.norm_epsilon = config.number({"rms_norm_eps"}, defaults.epsilon, 0.0, 1.0);
  spec.initializer_range = config.number({"initializer_range"}, 0.02, 0.0, 1e3);
  spec.dropout = config.dropout({{"attention_dropout", 0.0}});
  if (family == ModelFamily::phi3)
    spec.dropout =
        std::max(spec.dropout, config.dropout({{"resid_pdrop", 0.0}, {"embd_pdrop", 0.0}}));
  read_windows(config, spec);
  config.only_silu("hidden_act");
  read_biases(config, family, spec.architecture);
  spec.rope_theta = defaults.theta;
  config.read_rope(spec);
  return spec;
}

}  // namespace dstune::model
