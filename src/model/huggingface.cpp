#include <algorithm>
#include <array>
#include <initializer_list>

#include <fmt/format.h>

#include "dstune/model/model_spec.hpp"
#include "model_check.hpp"

namespace dstune {
namespace {

constexpr std::string_view built_types = "gpt2, llama";

/// Values of a config by key, with transformers' own defaults; null stands for absent.
class Config {
 public:
  Config(const json::Node& node, json::Problems& problems) : node_(node), problems_(problems) {}

  /// The first of the names that is there: transformers accepts a common name for each of gpt2's.
  [[nodiscard]] std::optional<json::Node> find(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      auto found = node_.find(name);
      if (found && !found->is_null()) return found;
    }
    return std::nullopt;
  }
  std::int64_t size(std::initializer_list<const char*> names, std::int64_t fallback) const {
    const auto found = find(names);
    return found ? found->integer(problems_, 1, model::largest_size).value_or(fallback) : fallback;
  }
  double number(const char* name, double fallback, double low, double high) const {
    const auto found = find({name});
    return found ? found->number(problems_, low, high).value_or(fallback) : fallback;
  }
  bool boolean(const char* name, bool fallback) const {
    const auto found = find({name});
    return found ? found->boolean(problems_).value_or(fallback) : fallback;
  }
  /// A switch that only one position is built of.
  void only(const char* name, bool built) const {
    if (boolean(name, built) == built) return;
    refuse(*find({name}), fmt::format("{} {} is not built; only {} is", name, !built, built));
  }
  /// Likewise for a word.
  void only_words(const char* name, std::initializer_list<std::string_view> built) const {
    const auto found = find({name});
    if (!found) return;
    const auto word = found->string(problems_);
    if (!word || std::find(built.begin(), built.end(), *word) != built.end()) return;
    refuse(*found,
           fmt::format("{} \"{}\" is not built; what is: {}", name, *word, fmt::join(built, ", ")));
  }
  void refuse(const json::Node& at, std::string message) const {
    problems_.add(at.problem(std::move(message)));
  }
  [[nodiscard]] const json::Node& node() const { return node_; }
  [[nodiscard]] json::Problems& problems() const { return problems_; }

 private:
  json::Node node_;
  json::Problems& problems_;
};

ModelSpec import_gpt2(const Config& config) {
  ModelSpec spec;
  spec.family = ModelFamily::gpt2;
  spec.hidden_size = config.size({"n_embd", "hidden_size"}, 768);
  spec.num_layers = config.size({"n_layer", "num_hidden_layers"}, 12);
  spec.num_heads = config.size({"n_head", "num_attention_heads"}, 12);
  spec.num_kv_heads = spec.num_heads;
  spec.head_size =
      model::head_size_of(spec.hidden_size, spec.num_heads, config.node(), config.problems());
  spec.intermediate_size = config.size({"n_inner"}, 4 * spec.hidden_size);
  spec.vocab_size = config.size({"vocab_size"}, 50257);
  spec.max_positions = config.size({"n_positions", "max_position_embeddings"}, 1024);
  spec.tie_embeddings = config.boolean("tie_word_embeddings", true);
  spec.norm_epsilon = config.number("layer_norm_epsilon", 1e-5, 0.0, 1.0);
  spec.initializer_range = config.number("initializer_range", 0.02, 0.0, 1e3);
  spec.dropout = 0.0;
  for (const char* name : {"resid_pdrop", "embd_pdrop", "attn_pdrop"})
    spec.dropout = std::max(spec.dropout, config.number(name, 0.1, 0.0, 1.0));
  config.only_words("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  config.only("scale_attn_weights", true);
  config.only("scale_attn_by_inverse_layer_idx", false);
  config.only("add_cross_attention", false);
  return spec;
}

/// rope_scaling of older files, rope_parameters of newer ones: plain rotary positions or a problem.
void read_rope(const Config& config, ModelSpec& spec) {
  spec.rope_theta = config.number("rope_theta", 10000.0, 1.0, 1e12);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const auto section = config.find({name});
    if (!section || !section->expect_object(config.problems())) continue;
    const Config rope(*section, config.problems());
    if (const auto type = rope.find({"rope_type", "type"})) {
      const auto word = type->string(config.problems());
      if (word && *word != "default") {
        rope.refuse(
            *type, fmt::format("{} of type \"{}\" is not built; only \"default\" is", name, *word));
      }
    }
    spec.rope_theta = rope.number("rope_theta", spec.rope_theta, 1.0, 1e12);
  }
}

ModelSpec import_llama(const Config& config) {
  ModelSpec spec;
  spec.family = ModelFamily::llama;
  spec.hidden_size = config.size({"hidden_size"}, 4096);
  spec.num_layers = config.size({"num_hidden_layers"}, 32);
  spec.num_heads = config.size({"num_attention_heads"}, 32);
  spec.num_kv_heads = config.size({"num_key_value_heads"}, spec.num_heads);
  spec.head_size =
      config.find({"head_dim"})
          ? config.size({"head_dim"}, 1)
          : model::head_size_of(spec.hidden_size, spec.num_heads, config.node(), config.problems());
  spec.intermediate_size = config.size({"intermediate_size"}, 11008);
  spec.vocab_size = config.size({"vocab_size"}, 32000);
  spec.max_positions = config.size({"max_position_embeddings"}, 2048);
  spec.tie_embeddings = config.boolean("tie_word_embeddings", false);
  spec.norm_epsilon = config.number("rms_norm_eps", 1e-6, 0.0, 1.0);
  spec.initializer_range = config.number("initializer_range", 0.02, 0.0, 1e3);
  spec.dropout = config.number("attention_dropout", 0.0, 0.0, 1.0);
  config.only_words("hidden_act", {"silu"});
  config.only("attention_bias", false);
  config.only("mlp_bias", false);
  read_rope(config, spec);
  return spec;
}

}  // namespace

ModelSpec import_huggingface(const json::Document& document) {
  json::Problems problems;
  const json::Node root = document.node();
  if (!root.expect_object(problems)) problems.check();
  const Config config(root, problems);
  const auto type_node = config.find({"model_type"});
  if (!type_node) {
    config.refuse(root, fmt::format("model_type is missing; give one of {}", built_types));
    problems.check();
  }
  const auto type = type_node->string(problems);
  problems.check();
  ModelSpec spec;
  if (*type == "gpt2") {
    spec = import_gpt2(config);
  } else if (*type == "llama") {
    spec = import_llama(config);
  } else {
    config.refuse(*type_node,
                  fmt::format("model type \"{}\" is not built; what is: {}", *type, built_types));
    problems.check();
  }
  model::check_shape(spec, root, problems);
  problems.check();
  spec.name = model::sized_name(spec);
  return spec;
}

}  // namespace dstune
