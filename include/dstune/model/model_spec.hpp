#pragma once
/// The shape of a model: what of a Hugging Face `config.json` the training step depends on.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/json.hpp"

namespace dstune {

/// gpt2: LayerNorm, learned positions, GELU (tanh), biases. llama: RMSNorm, rotary positions,
/// SwiGLU, grouped-query attention, no biases.
enum class ModelFamily { gpt2, llama };

struct ModelSpec {
  std::string name;  ///< as shown: a preset's name, or the model's type and size
  ModelFamily family = ModelFamily::gpt2;
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;
  bool tie_embeddings = true;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;      ///< llama
  double initializer_range = 0.02;  ///< standard deviation of the initial weights
  double dropout =
      0.0;  ///< largest of the config's; our step runs without, the target's masks count
  bool operator==(const ModelSpec&) const = default;
};

[[nodiscard]] std::string_view to_text(ModelFamily family);

/// Reads a Hugging Face config.json (model_type gpt2 or llama; its own defaults where a key is
/// absent). Other model types, and settings that the step can not express (rope scaling, another
/// activation, attention or MLP biases in llama, …), are refused by name. Keys that do not touch
/// the step are ignored. Throws InputError.
ModelSpec import_huggingface(const json::Document& document);

/// A model written out in `dstune.model`: family, hidden_size, num_layers, num_heads, num_kv_heads,
/// intermediate_size, vocab_size, tie_embeddings (and sequence positions: max_positions). Adds
/// problems.
ModelSpec read_model(const json::Node& node, json::Problems& problems);

/// gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-7b, llama-13b, llama-2-70b, llama-3-8b, …
[[nodiscard]] std::vector<std::string_view> preset_names();
/// Throws InputError for an unknown name, naming those there are.
ModelSpec preset(std::string_view name);

json::Value to_json(const ModelSpec& model);
ModelSpec model_from_json(const json::Value& value);

}  // namespace dstune
