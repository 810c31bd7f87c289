/// Models as values: the families with the architecture that each implies, their members, and what
/// is checked of their sizes.

#include "dstune/model/model_spec.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/archive.hpp"
#include "dstune/base/checked.hpp"
#include "dstune/base/error.hpp"
#include "dstune/model/parameter_table.hpp"
#include "reading.hpp"

namespace dstune {
namespace {

using json::Of;

constexpr auto family_texts =
    numbered({"gpt2", "llama", "mistral", "qwen2", "phi3", "opt", "gpt_neox", "qwen3", "bert",
              "olmo2", "smollm3", "granite", "gemma2", "gemma3_text", "falcon", "distilbert"});
constexpr auto norm_texts = numbered({"layer", "rms"});
constexpr auto block_texts =
    numbered({"sequential", "parallel", "post_norm", "branch_norm", "double_norm"});
constexpr auto position_texts = numbered({"learned", "rotary"});
constexpr auto objective_texts =
    numbered({"next_token", "masked_token", "sequence_class", "token_class", "spans"});
constexpr auto activation_texts = numbered({"gelu_tanh", "gelu", "relu", "silu", "tanh"});
constexpr auto rope_texts = numbered({"default", "linear", "yarn", "longrope", "llama3"});

constexpr Architecture llama_architecture{.norm = NormKind::rms,
                                          .positions = PositionKind::rotary,
                                          .activation = Activation::silu,
                                          .gated = true,
                                          .qkv_bias = false,
                                          .projection_bias = false,
                                          .mlp_bias = false,
                                          .scaled_projections = false};
// Hugging Face's table keeps the first two rows that positions of padding once had.
constexpr Architecture opt_architecture{
    .activation = Activation::relu, .scaled_projections = false, .position_offset = 2};
constexpr Architecture gpt_neox_architecture{.block = BlockKind::parallel,
                                             .positions = PositionKind::rotary,
                                             .activation = Activation::gelu,
                                             .scaled_projections = false,
                                             .rotary_fraction = 0.25};
constexpr Architecture bert_architecture{.block = BlockKind::post_norm,
                                         .objective = Objective::masked_token,
                                         .activation = Activation::gelu,
                                         .scaled_projections = false,
                                         .token_types = 2};
// Falcon-7B's; larger ones have a norm for each branch.
constexpr Architecture falcon_architecture{.block = BlockKind::parallel,
                                           .positions = PositionKind::rotary,
                                           .activation = Activation::gelu,
                                           .qkv_bias = false,
                                           .projection_bias = false,
                                           .mlp_bias = false,
                                           .scaled_projections = false,
                                           .shared_norm = true};

}  // namespace

const EnumTexts& texts_of(ModelFamily) {
  static constexpr EnumTexts texts{family_texts};
  return texts;
}

std::string model_family_names() {
  std::vector<std::string_view> names;
  for (const EnumText& each : family_texts) names.push_back(each.text);
  return fmt::format("{}", fmt::join(names, ", "));
}

Architecture architecture_of(ModelFamily family) {
  Architecture result;
  switch (family) {
    case ModelFamily::gpt2:
      return result;
    case ModelFamily::llama:
    case ModelFamily::mistral:
    case ModelFamily::phi3:
    case ModelFamily::smollm3:
      return llama_architecture;
    case ModelFamily::granite:
      result = llama_architecture;
      result.attention_multiplier = 1;
      return result;
    case ModelFamily::qwen2:
      result = llama_architecture;
      result.qkv_bias = true;
      return result;
    case ModelFamily::qwen3:
      result = llama_architecture;
      result.query_key_norm = true;
      return result;
    case ModelFamily::olmo2:
      result = llama_architecture;
      result.block = BlockKind::branch_norm;
      result.query_key_norm = result.norm_spans_heads = true;
      return result;
    case ModelFamily::gemma2:
    case ModelFamily::gemma3_text:
      result = llama_architecture;
      result.block = BlockKind::double_norm;
      result.activation = Activation::gelu_tanh;
      result.unit_offset_norm = result.scaled_embeddings = true;
      result.attention_multiplier = 1.0 / 16;
      result.query_key_norm = family == ModelFamily::gemma3_text;
      result.attention_softcap = family == ModelFamily::gemma2 ? 50 : 0;
      result.logits_softcap = family == ModelFamily::gemma2 ? 30 : 0;
      return result;
    case ModelFamily::opt:
      return opt_architecture;
    case ModelFamily::gpt_neox:
      return gpt_neox_architecture;
    case ModelFamily::bert:
      return bert_architecture;
    case ModelFamily::falcon:
      return falcon_architecture;
    case ModelFamily::distilbert:
      result = bert_architecture;
      result.token_types = 0;
      return result;
  }
  throw LogicError("a model is of a known family");
}

// The archive alone needs these.
static const EnumTexts& texts_of(NormKind) {
  static constexpr EnumTexts texts{norm_texts};
  return texts;
}
static const EnumTexts& texts_of(BlockKind) {
  static constexpr EnumTexts texts{block_texts};
  return texts;
}
static const EnumTexts& texts_of(PositionKind) {
  static constexpr EnumTexts texts{position_texts};
  return texts;
}
static const EnumTexts& texts_of(Objective) {
  static constexpr EnumTexts texts{objective_texts};
  return texts;
}
static const EnumTexts& texts_of(Activation) {
  static constexpr EnumTexts texts{activation_texts};
  return texts;
}
static const EnumTexts& texts_of(RopeKind) {
  static constexpr EnumTexts texts{rope_texts};
  return texts;
}

template <class Archive>
void members(Archive& archive, Of<Archive, Architecture>& architecture) {
  archive("norm", architecture.norm);
  archive("block", architecture.block);
  archive("positions", architecture.positions);
  archive("objective", architecture.objective);
  archive("activation", architecture.activation);
  archive("gated", architecture.gated);
  archive("qkv_bias", architecture.qkv_bias);
  archive("projection_bias", architecture.projection_bias);
  archive("mlp_bias", architecture.mlp_bias);
  archive("query_key_norm", architecture.query_key_norm);
  archive("scaled_projections", architecture.scaled_projections);
  archive("position_offset", architecture.position_offset);
  archive("token_types", architecture.token_types);
  archive("rotary_fraction", architecture.rotary_fraction);
  archive("norm_spans_heads", architecture.norm_spans_heads);
  archive("embedding_multiplier", architecture.embedding_multiplier);
  archive("residual_multiplier", architecture.residual_multiplier);
  archive("attention_multiplier", architecture.attention_multiplier);
  archive("logits_scaling", architecture.logits_scaling);
  archive("unit_offset_norm", architecture.unit_offset_norm);
  archive("scaled_embeddings", architecture.scaled_embeddings);
  archive("attention_softcap", architecture.attention_softcap);
  archive("logits_softcap", architecture.logits_softcap);
  archive("shared_norm", architecture.shared_norm);
}

/// Keys are transformers'.
template <class Archive>
void members(Archive& archive, Of<Archive, RopeScaling>& rope) {
  archive("rope_type", rope.kind);
  archive("factor", rope.factor);
  archive("original_max_position_embeddings", rope.original_positions);
  archive("low_freq_factor", rope.low_freq_factor);
  archive("high_freq_factor", rope.high_freq_factor);
  archive("beta_fast", rope.beta_fast);
  archive("beta_slow", rope.beta_slow);
  archive("truncate", rope.truncate);
  archive("attention_factor", rope.attention_factor);
  archive("short_factor", rope.short_factor);
  archive("long_factor", rope.long_factor);
}

template <class Archive>
void members(Archive& archive, Of<Archive, ModelSpec>& model) {
  constexpr json::Form omitted{.nothing = json::Nothing::omitted};
  archive("name", model.name);
  archive("family", model.family);
  archive("hidden_size", model.hidden_size);
  archive("num_layers", model.num_layers);
  archive("num_heads", model.num_heads);
  archive("num_kv_heads", model.num_kv_heads);
  archive("head_size", model.head_size);
  archive("intermediate_size", model.intermediate_size);
  archive("vocab_size", model.vocab_size);
  archive("max_positions", model.max_positions);
  archive("tie_embeddings", model.tie_embeddings);
  archive("norm_epsilon", model.norm_epsilon);
  archive("rope_theta", model.rope_theta);
  archive("rope_local_theta", model.rope_local_theta, omitted);
  archive("initializer_range", model.initializer_range);
  archive("dropout", model.dropout);
  archive("attention_window", model.attention_window, omitted);
  archive("full_layers", model.full_layers, omitted);
  archive("unrotated_layers", model.unrotated_layers, omitted);
  archive("labels", model.labels, omitted);
  archive.differences("rope", model.rope, RopeScaling());
  archive.differences("architecture", model.architecture, architecture_of(model.family));
}

template void members(json::Writer&, const ModelSpec&);
template void members(json::Reader&, ModelSpec&);

json::Value to_json(const ModelSpec& model) {
  return json::write(model);
}

ModelSpec model_from_json(const json::Value& value) {
  try {
    return json::read<ModelSpec>(json::Document::of(value, "").node());
  } catch (const InputError& error) {
    throw LogicError(fmt::format("not a model: {}", error.what()));
  }
}

std::int64_t ModelSpec::window_of(std::int64_t layer, std::int64_t sequence_length) const {
  if (attention_window >= sequence_length) return 0;
  return std::binary_search(full_layers.begin(), full_layers.end(), layer) ? 0 : attention_window;
}

bool ModelSpec::rotates(std::int64_t layer) const {
  return architecture.positions == PositionKind::rotary &&
         !std::binary_search(unrotated_layers.begin(), unrotated_layers.end(), layer);
}

bool ModelSpec::rotates_locally(std::int64_t layer) const {
  return rope_local_theta > 0 && attention_window > 0 &&
         !std::binary_search(full_layers.begin(), full_layers.end(), layer);
}

namespace model {

std::string sized_name(const ModelSpec& spec) {
  const auto count = static_cast<double>(parameter_count(spec));
  const std::string_view family = to_text(spec.family);
  // A count that would be rounded to 1000 of a unit has the next one.
  if (count >= 999.5e6) return fmt::format("{}-{:.1f}B", family, count / 1e9);
  if (count >= 999.5e3) return fmt::format("{}-{:.0f}M", family, count / 1e6);
  return fmt::format("{}-{:.0f}K", family, count / 1e3);
}

/// Sums over parameters are taken in 64 bits, their bytes in all states included.
void check_bytes(const ModelSpec& spec) {
  ModelSpec one_block = spec;
  one_block.num_layers = 1;
  static_cast<void>(checked_product("bytes of the model's states", most_bytes_of_parameter,
                                    ParameterTable(one_block).total_elements(), spec.num_layers));
}

void check_shape(const ModelSpec& spec, const json::Node& node, json::Problems& problems) {
  if (spec.num_heads % spec.num_kv_heads != 0) {
    problems.add(node.problem(fmt::format(
        "{} key and value heads do not divide {} heads; give a divisor of the number of heads",
        spec.num_kv_heads, spec.num_heads)));
  }
  const bool has_key_heads =
      architecture_of(spec.family).norm == NormKind::rms || spec.family == ModelFamily::falcon;
  if (!has_key_heads && spec.num_kv_heads != spec.num_heads) {
    problems.add(
        node.problem(fmt::format("{} has as many key and value heads as heads; use family "
                                 "llama",
                                 to_text(spec.family))));
  }
  if (spec.architecture.positions == PositionKind::rotary &&
      (spec.rotary_size() % 2 != 0 || spec.rotary_size() == 0)) {
    problems.add(node.problem(
        fmt::format("rotary positions need an even number of a head's elements, not {} (of {}); "
                    "change the number of heads",
                    spec.rotary_size(), spec.head_size)));
  }
  if (!problems.all().empty()) return;
  try {
    check_bytes(spec);
  } catch (const OverflowError& error) {
    problems.add(node.problem(fmt::format("{}; make the model smaller", error.what())));
  }
}

std::int64_t head_size_of(std::int64_t hidden_size, std::int64_t num_heads, const json::Node& node,
                          json::Problems& problems) {
  if (hidden_size % num_heads != 0) {
    problems.add(
        node.problem(fmt::format("{} heads do not divide the hidden size {}; give a divisor of it",
                                 num_heads, hidden_size)));
  }
  return hidden_size / num_heads;
}

}  // namespace model
}  // namespace dstune
