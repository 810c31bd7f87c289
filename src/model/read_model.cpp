#include <fmt/format.h>

#include "dstune/model/model_spec.hpp"
#include "model_check.hpp"

namespace dstune {
namespace {

/// A size by key; without a fallback its absence is a problem.
std::int64_t read_size(const json::Node& node, json::Problems& problems, const char* key,
                       std::optional<std::int64_t> fallback) {
  if (const auto found = node.find(key))
    return found->integer(problems, 1, model::largest_size).value_or(fallback.value_or(1));
  if (!fallback) problems.add(node.problem(fmt::format("{} is missing", key)));
  return fallback.value_or(1);
}

std::int64_t default_positions(ModelFamily family) {
  if (family == ModelFamily::gpt2) return 1024;
  return family == ModelFamily::bert ? 512 : 2048;
}

double default_epsilon(ModelFamily family) {
  if (family == ModelFamily::bert) return 1e-12;
  return architecture_of(family).norm == NormKind::rms ? 1e-6 : 1e-5;
}

}  // namespace

ModelSpec read_model(const json::Node& node, json::Problems& problems) {
  ModelSpec spec;
  if (!node.expect_object(problems)) return spec;
  const std::size_t problems_before = problems.all().size();
  node.refuse_unknown_keys(problems,
                           {"family", "hidden_size", "num_layers", "num_heads", "num_kv_heads",
                            "intermediate_size", "vocab_size", "tie_embeddings", "max_positions"});
  const auto family = node.find("family");
  if (!family) {
    problems.add(
        node.problem(fmt::format("family is missing; give one of {}", model_family_names())));
  } else if (const auto word = family->string(problems)) {
    if (const auto known = from_text<ModelFamily>(*word)) {
      spec.family = *known;
    } else {
      problems.add(family->problem(
          fmt::format("family \"{}\" is not built; what is: {}", *word, model_family_names())));
    }
  }
  spec.architecture = architecture_of(spec.family);
  // What the older families have in common where nothing is said.
  const bool gpt2_like = !spec.architecture.gated;
  spec.hidden_size = read_size(node, problems, "hidden_size", std::nullopt);
  spec.num_layers = read_size(node, problems, "num_layers", std::nullopt);
  spec.num_heads = read_size(node, problems, "num_heads", std::nullopt);
  spec.num_kv_heads = read_size(node, problems, "num_kv_heads", spec.num_heads);
  spec.intermediate_size =
      read_size(node, problems, "intermediate_size",
                gpt2_like ? std::optional<std::int64_t>(4 * spec.hidden_size) : std::nullopt);
  spec.vocab_size = read_size(node, problems, "vocab_size", std::nullopt);
  spec.max_positions = read_size(node, problems, "max_positions", default_positions(spec.family));
  spec.norm_epsilon = default_epsilon(spec.family);
  spec.tie_embeddings = gpt2_like && spec.family != ModelFamily::gpt_neox;
  if (const auto tie = node.find("tie_embeddings"))
    spec.tie_embeddings = tie->boolean(problems).value_or(spec.tie_embeddings);
  spec.head_size = 1;
  if (problems.all().size() > problems_before) return spec;
  spec.head_size = model::head_size_of(spec.hidden_size, spec.num_heads, node, problems);
  model::check_shape(spec, node, problems);
  if (problems.all().size() == problems_before) spec.name = model::sized_name(spec);
  return spec;
}

}  // namespace dstune
