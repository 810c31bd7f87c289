#pragma once
/// The shape of a model: what of a Hugging Face `config.json` the training step depends on.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/training_config.hpp"

namespace dstune {

/// The modules' family: names of parameters, and the part of `Architecture` that its config
/// implies.
enum class ModelFamily {
  gpt2,
  llama,
  mistral,
  qwen2,
  phi3,
  opt,
  gpt_neox,
  qwen3,
  bert,
  olmo2,
  smollm3,
  granite,
  gemma2,
  gemma3_text,
  falcon,
  distilbert
};

/// layer: LayerNorm, with a bias. rms: RMSNorm, without.
enum class NormKind { layer, rms };
/// How a block adds its two branches to the residual stream x.
/// `sequential`: x += attention(norm1(x)), then x += mlp(norm2(x)).
/// `parallel`: x += attention(norm1(x)) + mlp(norm2(x)).
/// `post_norm`: x = norm1(x + attention(x)), then x = norm2(x + mlp(x)). The embeddings are normed,
/// too, and there is no final norm.
/// `branch_norm`: x += norm1(attention(x)), then x += norm2(mlp(x)).
/// `double_norm`: as sequential, and a branch's result has a norm of its own before it is added.
enum class BlockKind { sequential, parallel, post_norm, branch_norm, double_norm };
enum class PositionKind { learned, rotary };
/// gelu_tanh: GELU by its tanh approximation; gelu: exact; silu: x·logistic(x); tanh: in heads.
enum class Activation { gelu_tanh, gelu, relu, silu, tanh };
/// All but next_token have attention in both directions and a head of their own with a bias.
/// `masked_token`: transform, norm, tied or untied decoder; a loss at masked positions only.
/// `sequence_class`: transform of position 0 (a pooler), classifier. `token_class`: a classifier of
/// every position. `spans`: two scores of every position, for a span's beginning and its end.
enum class Objective { next_token, masked_token, sequence_class, token_class, spans };

/// The parts of the blocks and of their ends; docs/inside/reference-step.md, section 4. The default
/// is GPT-2's.
struct Architecture {
  NormKind norm = NormKind::layer;
  BlockKind block = BlockKind::sequential;
  PositionKind positions = PositionKind::learned;
  Objective objective = Objective::next_token;
  Activation activation = Activation::gelu_tanh;
  bool gated = false;  ///< the MLP is activation(gate)·up
  bool qkv_bias = true, projection_bias = true, mlp_bias = true;
  bool query_key_norm = false;  ///< RMSNorm of each head of q and k, before the rotation
  /// Initial weights of what is added to the residual stream are divided by sqrt(2·num_layers).
  bool scaled_projections = true;
  std::int64_t position_offset = 0;  ///< rows of the position table before position 0's
  std::int64_t token_types = 0;      ///< rows of a table of token types, all tokens being of type 0
  double rotary_fraction = 1.0;      ///< of a head's elements, the first ones
  bool norm_spans_heads = false;     ///< query_key_norm: one RMSNorm for all heads of q, one for k
  double embedding_multiplier = 1;   ///< of the sum of embeddings
  double residual_multiplier = 1;    ///< of a branch's result, before it is added
  double attention_multiplier = 0;   ///< of q·k; 0: 1 / sqrt(head_size)
  double logits_scaling = 1;         ///< logits are divided by it
  bool unit_offset_norm = false;     ///< RMSNorm multiplies by 1 + weight, which begins at 0
  bool scaled_embeddings = false;    ///< by sqrt(hidden_size), rounded to the parameters' type
  double attention_softcap = 0;      ///< scores s become c·tanh(s/c); 0: they stay
  double logits_softcap = 0;         ///< likewise
  bool shared_norm = false;          ///< parallel branches read norm1's result: there is no norm2
  bool operator==(const Architecture&) const = default;
};

/// The architecture of a family where its config says nothing else.
[[nodiscard]] Architecture architecture_of(ModelFamily family);

/// transformers' rope_type. Its "dynamic" acts on sequences beyond max_positions alone, and none is
/// longer here: it is plain.
enum class RopeKind { plain, linear, yarn, longrope, llama3 };

/// The members of a Hugging Face config's rope_parameters (rope_scaling) that its kind needs, by
/// transformers' names. Formulas are in docs/inside/reference-step.md, section 4.
struct RopeScaling {
  RopeKind kind = RopeKind::plain;
  double factor = 1;                                  ///< linear, yarn, llama3
  std::int64_t original_positions = 0;                ///< yarn, longrope, llama3
  double low_freq_factor = 1, high_freq_factor = 4;   ///< llama3
  double beta_fast = 32, beta_slow = 1;               ///< yarn
  bool truncate = true;                               ///< yarn
  double attention_factor = 1;                        ///< yarn, longrope: of cosines and sines
  std::vector<double> short_factor{}, long_factor{};  ///< longrope: one for each frequency
  bool operator==(const RopeScaling&) const = default;
};

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
  double rope_theta = 10000.0;      ///< rotary positions
  RopeScaling rope{};               ///< … for long contexts
  double rope_local_theta = 0;      ///< … of layers with a window, not scaled; 0: as the others
  double initializer_range = 0.02;  ///< standard deviation of the initial weights
  double dropout =
      0.0;  ///< largest of the config's; the built-in step runs without, the target's masks count
  /// Positions back that a token attends to, its own included; 0: all.
  std::int64_t attention_window = 0;
  std::vector<std::int64_t> full_layers{};  ///< those without the window, ascending
  std::vector<std::int64_t>
      unrotated_layers{};  ///< those whose q and k stay as they are, ascending
  /// Classes of a sequence or of a token; 2 of spans; 0: the head is of the vocabulary.
  std::int64_t labels = 0;
  Architecture architecture{};
  bool operator==(const ModelSpec&) const = default;

  /// The window of a layer on sequences of that length; 0: all positions.
  [[nodiscard]] std::int64_t window_of(std::int64_t layer, std::int64_t sequence_length) const;
  /// Tells whether a layer rotates q and k.
  [[nodiscard]] bool rotates(std::int64_t layer) const;
  /// Tells whether a layer has the angles of rope_local_theta.
  [[nodiscard]] bool rotates_locally(std::int64_t layer) const;
  /// Rows of the head's matrix.
  [[nodiscard]] std::int64_t head_rows() const { return labels > 0 ? labels : vocab_size; }
  /// Elements of a head that the rotation turns; even.
  [[nodiscard]] std::int64_t rotary_size() const {
    return static_cast<std::int64_t>(static_cast<double>(head_size) * architecture.rotary_fraction);
  }
};

/// Pair i of a head's rotated elements turns by position·frequencies[i], and becomes `magnitude`
/// times as long.
struct RotaryAngles {
  std::vector<double> frequencies;  ///< rotary_size() / 2
  double magnitude = 1;
};
/// For sequences of that length.
[[nodiscard]] RotaryAngles rotary_angles(const ModelSpec& model, std::int64_t sequence_length);
/// Those of layers that rotate locally; none where no layer does.
[[nodiscard]] RotaryAngles local_rotary_angles(const ModelSpec& model);

[[nodiscard]] const EnumTexts& texts_of(ModelFamily);
/// "gpt2, llama, …"
[[nodiscard]] std::string model_family_names();

/// Reads a Hugging Face config.json of one of the families (its model_type's own defaults where a
/// key is absent). Other model types, and settings that the step can not express (another
/// activation, another head, …), are refused by name: the key, its value, and what is built
/// instead. Keys that do not touch the step are ignored. Throws InputError.
ModelSpec import_huggingface(const json::Document& document);

/// The precision of its `torch_dtype` (`dtype`); nothing where it has none that is built. Not
/// checked otherwise.
[[nodiscard]] std::optional<Precision> huggingface_precision(const json::Document& document);

/// A model written out in `dstune.model`: family, hidden_size, num_layers, num_heads, num_kv_heads,
/// intermediate_size, vocab_size, tie_embeddings (and sequence positions: max_positions). Adds
/// problems.
ModelSpec read_model(const json::Node& node, json::Problems& problems);

/// gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-7b, llama-13b, llama-2-70b, llama-3-8b, …
[[nodiscard]] std::vector<std::string_view> preset_names();
/// Throws InputError for an unknown name, naming those there are.
ModelSpec preset(std::string_view name);

/// The list of members (base/archive.hpp): of the architecture, what differs from the family's.
template <class Archive>
void members(Archive& archive, json::Of<Archive, ModelSpec>& model);
[[nodiscard]] json::Value to_json(const ModelSpec& model);
/// Throws LogicError where the value is no model.
[[nodiscard]] ModelSpec model_from_json(const json::Value& value);

}  // namespace dstune
