#include "dstune/model/model_spec.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "dstune/model/parameter_table.hpp"
#include "reading.hpp"

namespace dstune {
namespace {

/// An enumerator's text is the one at its number.
constexpr std::array norm_names{"layer", "rms"};
constexpr std::array block_names{"sequential", "parallel", "post_norm"};
constexpr std::array position_names{"learned", "rotary"};
constexpr std::array objective_names{"next_token", "masked_token"};
constexpr std::array activation_names{"gelu_tanh", "gelu", "relu", "silu"};

constexpr std::array rope_names{"default", "linear", "yarn", "longrope", "llama3"};

/// visit(key, member, names) for enumerators, visit(key, member) for the rest.
template <class Architecture, class Visit>
void for_each_member(Architecture& architecture, Visit visit) {
  visit("norm", architecture.norm, norm_names);
  visit("block", architecture.block, block_names);
  visit("positions", architecture.positions, position_names);
  visit("objective", architecture.objective, objective_names);
  visit("activation", architecture.activation, activation_names);
  visit("gated", architecture.gated);
  visit("qkv_bias", architecture.qkv_bias);
  visit("projection_bias", architecture.projection_bias);
  visit("mlp_bias", architecture.mlp_bias);
  visit("query_key_norm", architecture.query_key_norm);
  visit("scaled_projections", architecture.scaled_projections);
  visit("position_offset", architecture.position_offset);
  visit("token_types", architecture.token_types);
  visit("rotary_fraction", architecture.rotary_fraction);
}

/// Keys are transformers'. As for_each_member.
template <class Rope, class Visit>
void for_each_rope_member(Rope& rope, Visit visit) {
  visit("rope_type", rope.kind, rope_names);
  visit("factor", rope.factor);
  visit("original_max_position_embeddings", rope.original_positions);
  visit("low_freq_factor", rope.low_freq_factor);
  visit("high_freq_factor", rope.high_freq_factor);
  visit("beta_fast", rope.beta_fast);
  visit("beta_slow", rope.beta_slow);
  visit("truncate", rope.truncate);
  visit("attention_factor", rope.attention_factor);
  visit("short_factor", rope.short_factor);
  visit("long_factor", rope.long_factor);
}

struct Writer {
  json::Value& to;
  template <class Member>
  void operator()(const char* key, const Member& member) {
    to[key] = member;
  }
  template <class Member, class Names>
  void operator()(const char* key, const Member& member, const Names& names) {
    to[key] = names.at(static_cast<std::size_t>(member));
  }
};

/// Leaves alone what is not there.
struct Reader {
  const json::Value& from;
  template <class Member>
  void operator()(const char* key, Member& member) {
    if (from.contains(key)) from.at(key).get_to(member);
  }
  template <class Member, class Names>
  void operator()(const char* key, Member& member, const Names& names) {
    if (!from.contains(key)) return;
    const auto found = std::find(names.begin(), names.end(), from.at(key).get<std::string>());
    require(found != names.end(), "an architecture is made of known parts");
    member = static_cast<Member>(found - names.begin());
  }
};

json::Value all_members(const Architecture& architecture) {
  json::Value result = json::Value::object();
  for_each_member(architecture, Writer{result});
  return result;
}
json::Value all_members(const RopeScaling& rope) {
  json::Value result = json::Value::object();
  for_each_rope_member(rope, Writer{result});
  return result;
}

/// The members of `own` that are not `usual`'s.
json::Value differences(const json::Value& own, const json::Value& usual) {
  json::Value result = json::Value::object();
  for (const auto& [key, value] : own.items())
    if (value != usual.at(key)) result[key] = value;
  return result;
}

}  // namespace

json::Value to_json(const ModelSpec& model) {
  json::Value result{{"name", model.name},
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
  if (model.attention_window > 0) result["attention_window"] = model.attention_window;
  if (!model.full_layers.empty()) result["full_layers"] = model.full_layers;
  const json::Value rope = differences(all_members(model.rope), all_members(RopeScaling()));
  if (!rope.empty()) result["rope"] = rope;
  const json::Value own =
      differences(all_members(model.architecture), all_members(architecture_of(model.family)));
  if (!own.empty()) result["architecture"] = own;
  return result;
}

ModelSpec model_from_json(const json::Value& value) {
  try {
    ModelSpec model;
    value.at("name").get_to(model.name);
    const auto family = model_family(value.at("family").get<std::string>());
    require(family.has_value(), "a model is of a known family");
    model.family = *family;
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
    model.attention_window = value.value("attention_window", std::int64_t{0});
    if (value.contains("full_layers")) value.at("full_layers").get_to(model.full_layers);
    if (value.contains("rope")) for_each_rope_member(model.rope, Reader{value.at("rope")});
    model.architecture = architecture_of(model.family);
    if (value.contains("architecture"))
      for_each_member(model.architecture, Reader{value.at("architecture")});
    return model;
  } catch (const json::Value::exception& error) {
    throw LogicError(fmt::format("not a model: {}", error.what()));
  }
}

std::int64_t ModelSpec::window_of(std::int64_t layer, std::int64_t sequence_length) const {
  if (attention_window >= sequence_length) return 0;
  return std::binary_search(full_layers.begin(), full_layers.end(), layer) ? 0 : attention_window;
}

namespace model {

std::string sized_name(const ModelSpec& spec) {
  const auto count = static_cast<double>(parameter_count(spec));
  const std::string_view family = to_text(spec.family);
  if (count >= 1e9) return fmt::format("{}-{:.1f}B", family, count / 1e9);
  if (count >= 1e6) return fmt::format("{}-{:.0f}M", family, count / 1e6);
  return fmt::format("{}-{:.0f}K", family, count / 1e3);
}

bool has_key_heads(ModelFamily family) {
  return architecture_of(family).norm == NormKind::rms;
}

void check_shape(const ModelSpec& spec, const json::Node& node, json::Problems& problems) {
  if (spec.num_heads % spec.num_kv_heads != 0) {
    problems.add(node.problem(fmt::format(
        "{} key and value heads do not divide {} heads; give a divisor of the number of heads",
        spec.num_kv_heads, spec.num_heads)));
  }
  if (!has_key_heads(spec.family) && spec.num_kv_heads != spec.num_heads) {
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
