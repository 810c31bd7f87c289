/// The families: their names, and the architecture that each implies.

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/model/model_spec.hpp"

namespace dstune {
namespace {

constexpr EnumText families[] = {
    enum_text(ModelFamily::gpt2, "gpt2"),         enum_text(ModelFamily::llama, "llama"),
    enum_text(ModelFamily::mistral, "mistral"),   enum_text(ModelFamily::qwen2, "qwen2"),
    enum_text(ModelFamily::phi3, "phi3"),         enum_text(ModelFamily::opt, "opt"),
    enum_text(ModelFamily::gpt_neox, "gpt_neox"), enum_text(ModelFamily::qwen3, "qwen3"),
    enum_text(ModelFamily::bert, "bert"),
};

Architecture llama_architecture() {
  Architecture result;
  result.norm = NormKind::rms;
  result.positions = PositionKind::rotary;
  result.activation = Activation::silu;
  result.gated = true;
  result.qkv_bias = result.projection_bias = result.mlp_bias = false;
  result.scaled_projections = false;
  return result;
}

Architecture opt_architecture() {
  Architecture result;
  result.activation = Activation::relu;
  result.scaled_projections = false;
  // Hugging Face's table keeps the first two rows that positions of padding once had.
  result.position_offset = 2;
  return result;
}

Architecture gpt_neox_architecture() {
  Architecture result;
  result.block = BlockKind::parallel;
  result.positions = PositionKind::rotary;
  result.rotary_fraction = 0.25;
  result.activation = Activation::gelu;
  result.scaled_projections = false;
  return result;
}

Architecture bert_architecture() {
  Architecture result;
  result.block = BlockKind::post_norm;
  result.objective = Objective::masked_token;
  result.activation = Activation::gelu;
  result.scaled_projections = false;
  result.token_types = 2;
  return result;
}

}  // namespace

const EnumTexts& texts_of(ModelFamily) {
  static constexpr EnumTexts texts{families};
  return texts;
}

std::string model_family_names() {
  std::string names;
  for (const EnumText& each : families)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", each.text);
  return names;
}

Architecture architecture_of(ModelFamily family) {
  switch (family) {
    case ModelFamily::gpt2:
      return {};
    case ModelFamily::llama:
    case ModelFamily::mistral:
    case ModelFamily::phi3:
      return llama_architecture();
    case ModelFamily::qwen2: {
      Architecture result = llama_architecture();
      result.qkv_bias = true;
      return result;
    }
    case ModelFamily::qwen3: {
      Architecture result = llama_architecture();
      result.query_key_norm = true;
      return result;
    }
    case ModelFamily::opt:
      return opt_architecture();
    case ModelFamily::gpt_neox:
      return gpt_neox_architecture();
    case ModelFamily::bert:
      return bert_architecture();
  }
  throw LogicError("a model is of a known family");
}

}  // namespace dstune
