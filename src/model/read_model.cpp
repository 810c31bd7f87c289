/// Models without a config of Hugging Face: presets by name, and those that a space writes out.

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/error.hpp"
#include "reading.hpp"

namespace dstune {
namespace {

/// The published config.json of each, in what differs.
struct PresetRow {
  std::string_view name;
  ModelFamily family;
  std::int64_t hidden, layers, heads, kv_heads, intermediate, vocab, positions;
  double epsilon, theta;
};
constexpr PresetRow preset_rows[] = {
    {"distilgpt2", ModelFamily::gpt2, 768, 6, 12, 12, 3072, 50257, 1024, 1e-5, 1e4},
    {"gpt2", ModelFamily::gpt2, 768, 12, 12, 12, 3072, 50257, 1024, 1e-5, 1e4},
    {"gpt2-medium", ModelFamily::gpt2, 1024, 24, 16, 16, 4096, 50257, 1024, 1e-5, 1e4},
    {"gpt2-large", ModelFamily::gpt2, 1280, 36, 20, 20, 5120, 50257, 1024, 1e-5, 1e4},
    {"gpt2-xl", ModelFamily::gpt2, 1600, 48, 25, 25, 6400, 50257, 1024, 1e-5, 1e4},
    {"tinyllama-1.1b", ModelFamily::llama, 2048, 22, 32, 4, 5632, 32000, 2048, 1e-5, 1e4},
    {"llama-7b", ModelFamily::llama, 4096, 32, 32, 32, 11008, 32000, 2048, 1e-6, 1e4},
    {"llama-13b", ModelFamily::llama, 5120, 40, 40, 40, 13824, 32000, 2048, 1e-6, 1e4},
    {"llama-30b", ModelFamily::llama, 6656, 60, 52, 52, 17920, 32000, 2048, 1e-6, 1e4},
    {"llama-65b", ModelFamily::llama, 8192, 80, 64, 64, 22016, 32000, 2048, 1e-5, 1e4},
    {"llama-2-7b", ModelFamily::llama, 4096, 32, 32, 32, 11008, 32000, 4096, 1e-5, 1e4},
    {"llama-2-13b", ModelFamily::llama, 5120, 40, 40, 40, 13824, 32000, 4096, 1e-5, 1e4},
    {"llama-2-70b", ModelFamily::llama, 8192, 80, 64, 8, 28672, 32000, 4096, 1e-5, 1e4},
    {"llama-3-8b", ModelFamily::llama, 4096, 32, 32, 8, 14336, 128256, 8192, 1e-5, 5e5},
    {"llama-3-70b", ModelFamily::llama, 8192, 80, 64, 8, 28672, 128256, 8192, 1e-5, 5e5},
};

ModelSpec from_row(const PresetRow& row) {
  return {.name = std::string(row.name),
          .family = row.family,
          .hidden_size = row.hidden,
          .num_layers = row.layers,
          .num_heads = row.heads,
          .num_kv_heads = row.kv_heads,
          .head_size = row.hidden / row.heads,
          .intermediate_size = row.intermediate,
          .vocab_size = row.vocab,
          .max_positions = row.positions,
          .tie_embeddings = row.family == ModelFamily::gpt2,
          .norm_epsilon = row.epsilon,
          .rope_theta = row.theta,
          .dropout = row.family == ModelFamily::gpt2 ? 0.1 : 0.0,
          .architecture = architecture_of(row.family)};
}

/// A size by key; without a fallback its absence is a problem.
std::int64_t read_size(const json::Node& node, json::Problems& problems, const char* key,
                       std::optional<std::int64_t> fallback) {
  if (const auto found = node.find(key))
    return found->integer(problems, 1, model::largest_size).value_or(fallback.value_or(1));
  if (!fallback) problems.add(node.problem(fmt::format("{} is missing", key)));
  return fallback.value_or(1);
}

bool is_encoder(ModelFamily family) {
  return family == ModelFamily::bert || family == ModelFamily::distilbert;
}

std::int64_t default_positions(ModelFamily family) {
  if (family == ModelFamily::gpt2) return 1024;
  return is_encoder(family) ? 512 : 2048;
}

double default_epsilon(ModelFamily family) {
  if (is_encoder(family)) return 1e-12;
  return architecture_of(family).norm == NormKind::rms ? 1e-6 : 1e-5;
}

}  // namespace

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const PresetRow& row : preset_rows) names.push_back(row.name);
  return names;
}

ModelSpec preset(std::string_view name) {
  for (const PresetRow& row : preset_rows)
    if (row.name == name) return from_row(row);
  throw InputError(
      {{"", "", 0,
        fmt::format("there is no model preset \"{}\"{}; there are {}", name,
                    json::suggestion(name, preset_names()), fmt::join(preset_names(), ", "))}});
}

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
          fmt::format("family \"{}\" is not built; these are: {}", *word, model_family_names())));
    }
  }
  spec.architecture = architecture_of(spec.family);
  // The older families share these defaults.
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
  spec.tie_embeddings = (gpt2_like && spec.family != ModelFamily::gpt_neox) ||
                        spec.family == ModelFamily::smollm3 || spec.architecture.scaled_embeddings;
  if (spec.family == ModelFamily::smollm3) {
    spec.rope_theta = 2e6;
    spec.unrotated_layers = model::every_nth_layer(spec.num_layers, 4);
  }
  if (const auto tie = node.find("tie_embeddings"))
    spec.tie_embeddings = tie->boolean(problems).value_or(spec.tie_embeddings);
  spec.head_size = 1;
  if (problems.all().size() > problems_before) return spec;
  if (spec.architecture.scaled_embeddings) {
    model::set_gemma_layers(spec);
  } else {
    spec.head_size = model::head_size_of(spec.hidden_size, spec.num_heads, node, problems);
  }
  model::check_shape(spec, node, problems);
  if (problems.all().size() == problems_before) spec.name = model::sized_name(spec);
  return spec;
}

}  // namespace dstune
