#include <array>

#include <fmt/format.h>

#include "huggingface_config.hpp"

namespace dstune {
namespace {

/// Types that users are likely to have, and what the step lacks for them.
struct NotBuilt {
  std::string_view type, missing;
};
constexpr std::array not_built{
    NotBuilt{"gemma2",
             "it needs soft-capped logits (attn_logit_softcapping, final_logit_softcapping), a "
             "norm before and after each branch, a GELU in the gated MLP (hidden_activation), and "
             "embeddings scaled by sqrt(hidden_size)"},
};

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
    default:
      return model::import_llama_like(config, family);
  }
}

std::string refusal(std::string_view type) {
  for (const NotBuilt& each : not_built) {
    if (each.type == type) {
      return fmt::format("model type \"{}\" is not built: {}; what is built: {}", type,
                         each.missing, model_family_names());
    }
  }
  return fmt::format("model type \"{}\" is not built; what is: {}", type, model_family_names());
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
  if (!family) config.refuse(*type_node, refusal(*type));
  problems.check();
  config.refuse_other_models();
  ModelSpec spec = import_family(config, *family);
  model::check_shape(spec, root, problems);
  problems.check();
  spec.name = model::sized_name(spec);
  return spec;
}

}  // namespace dstune
