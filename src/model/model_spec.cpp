#include "dstune/model/model_spec.hpp"

#include <fmt/format.h>

#include "dstune/model/parameter_table.hpp"
#include "model_check.hpp"

namespace dstune {

std::string_view to_text(ModelFamily family) {
  return family == ModelFamily::gpt2 ? "gpt2" : "llama";
}

json::Value to_json(const ModelSpec& model) {
  return {{"name", model.name},
          {"family", std::string(to_text(model.family))},
          {"hidden_size", model.hidden_size},
          {"num_layers", model.num_layers},
          {"num_heads", model.num_heads},
          {"num_kv_heads", model.num_kv_heads},
          {"head_size", model.head_size},
          {"intermediate_size", model.intermediate_size},
          {"vocab_size", model.vocab_size},
          {"max_positions", model.max_positions},
          {"tie_embeddings", model.tie_embeddings},
          {"norm_epsilon", model.norm_epsilon},
          {"rope_theta", model.rope_theta},
          {"initializer_range", model.initializer_range},
          {"dropout", model.dropout}};
}

ModelSpec model_from_json(const json::Value& value) {
  try {
    ModelSpec model;
    value.at("name").get_to(model.name);
    model.family = value.at("family").get<std::string>() == to_text(ModelFamily::gpt2)
                       ? ModelFamily::gpt2
                       : ModelFamily::llama;
    value.at("hidden_size").get_to(model.hidden_size);
    value.at("num_layers").get_to(model.num_layers);
    value.at("num_heads").get_to(model.num_heads);
    value.at("num_kv_heads").get_to(model.num_kv_heads);
    value.at("head_size").get_to(model.head_size);
    value.at("intermediate_size").get_to(model.intermediate_size);
    value.at("vocab_size").get_to(model.vocab_size);
    value.at("max_positions").get_to(model.max_positions);
    value.at("tie_embeddings").get_to(model.tie_embeddings);
    value.at("norm_epsilon").get_to(model.norm_epsilon);
    value.at("rope_theta").get_to(model.rope_theta);
    value.at("initializer_range").get_to(model.initializer_range);
    value.at("dropout").get_to(model.dropout);
    return model;
  } catch (const json::Value::exception& error) {
    throw LogicError(fmt::format("not a model: {}", error.what()));
  }
}

namespace model {

std::string sized_name(const ModelSpec& spec) {
  const auto count = static_cast<double>(parameter_count(spec));
  const std::string_view family = to_text(spec.family);
  if (count >= 1e9) return fmt::format("{}-{:.1f}B", family, count / 1e9);
  if (count >= 1e6) return fmt::format("{}-{:.0f}M", family, count / 1e6);
  return fmt::format("{}-{:.0f}K", family, count / 1e3);
}

void check_shape(const ModelSpec& spec, const json::Node& node, json::Problems& problems) {
  if (spec.num_heads % spec.num_kv_heads != 0) {
    problems.add(node.problem(fmt::format(
        "{} key and value heads do not divide {} heads; give a divisor of the number of heads",
        spec.num_kv_heads, spec.num_heads)));
  }
  if (spec.family == ModelFamily::gpt2 && spec.num_kv_heads != spec.num_heads) {
    problems.add(node.problem("gpt2 has as many key and value heads as heads; use family llama"));
  }
  if (spec.family == ModelFamily::llama && spec.head_size % 2 != 0) {
    problems.add(node.problem(
        fmt::format("rotary positions need an even head size, not {}; change the number of heads",
                    spec.head_size)));
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
