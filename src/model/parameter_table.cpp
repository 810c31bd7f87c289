#include "dstune/model/parameter_table.hpp"

#include <cmath>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

/// Fills the table unit by unit.
class Builder {
 public:
  Builder(const ModelSpec& model, std::vector<Parameter>& parameters)
      : model_(model), parameters_(parameters) {}

  void matrix(int unit, ParameterRole role, std::string name, std::int64_t rows,
              std::int64_t columns, bool residual_projection = false) {
    // GPT-2 scales what is added to the residual stream by 1/sqrt(its number of additions).
    const double deviation =
        residual_projection
            ? model_.initializer_range / std::sqrt(2.0 * static_cast<double>(model_.num_layers))
            : model_.initializer_range;
    add({role, unit, std::move(name), rows, columns, 0, InitialValue::normal, deviation});
  }
  void vector(int unit, ParameterRole role, std::string name, std::int64_t elements,
              InitialValue initial) {
    add({role, unit, std::move(name), elements, 1, 0, initial, 0.0});
  }
  [[nodiscard]] std::int64_t total() const { return total_; }

 private:
  void add(Parameter parameter) {
    parameter.offset = total_;
    total_ += parameter.elements();
    parameters_.push_back(std::move(parameter));
  }

  const ModelSpec& model_;
  std::vector<Parameter>& parameters_;
  std::int64_t total_ = 0;
};

void add_gpt2_block(Builder& build, const ModelSpec& model, int unit) {
  using enum ParameterRole;
  const std::string prefix = "h." + std::to_string(unit - 1) + ".";
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t heads = model.num_heads * model.head_size;
  const std::int64_t qkv = (model.num_heads + 2 * model.num_kv_heads) * model.head_size;
  build.vector(unit, norm1_weight, prefix + "ln_1.weight", hidden, InitialValue::one);
  build.vector(unit, norm1_bias, prefix + "ln_1.bias", hidden, InitialValue::zero);
  build.matrix(unit, qkv_weight, prefix + "attn.c_attn.weight", qkv, hidden);
  build.vector(unit, qkv_bias, prefix + "attn.c_attn.bias", qkv, InitialValue::zero);
  build.matrix(unit, projection_weight, prefix + "attn.c_proj.weight", hidden, heads, true);
  build.vector(unit, projection_bias, prefix + "attn.c_proj.bias", hidden, InitialValue::zero);
  build.vector(unit, norm2_weight, prefix + "ln_2.weight", hidden, InitialValue::one);
  build.vector(unit, norm2_bias, prefix + "ln_2.bias", hidden, InitialValue::zero);
  build.matrix(unit, fc_weight, prefix + "mlp.c_fc.weight", model.intermediate_size, hidden);
  build.vector(unit, fc_bias, prefix + "mlp.c_fc.bias", model.intermediate_size,
               InitialValue::zero);
  build.matrix(unit, fc_projection_weight, prefix + "mlp.c_proj.weight", hidden,
               model.intermediate_size, true);
  build.vector(unit, fc_projection_bias, prefix + "mlp.c_proj.bias", hidden, InitialValue::zero);
}

void add_llama_block(Builder& build, const ModelSpec& model, int unit) {
  using enum ParameterRole;
  const std::string prefix = "model.layers." + std::to_string(unit - 1) + ".";
  const std::string attention = prefix + "self_attn.";
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t heads = model.num_heads * model.head_size;
  const std::int64_t qkv = (model.num_heads + 2 * model.num_kv_heads) * model.head_size;
  build.vector(unit, norm1_weight, prefix + "input_layernorm.weight", hidden, InitialValue::one);
  build.matrix(
      unit, qkv_weight,
      attention + "q_proj.weight+" + attention + "k_proj.weight+" + attention + "v_proj.weight",
      qkv, hidden);
  build.matrix(unit, projection_weight, attention + "o_proj.weight", hidden, heads);
  build.vector(unit, norm2_weight, prefix + "post_attention_layernorm.weight", hidden,
               InitialValue::one);
  build.matrix(unit, fc_weight, prefix + "mlp.gate_proj.weight+" + prefix + "mlp.up_proj.weight",
               2 * model.intermediate_size, hidden);
  build.matrix(unit, fc_projection_weight, prefix + "mlp.down_proj.weight", hidden,
               model.intermediate_size);
}

}  // namespace

ParameterTable::ParameterTable(const ModelSpec& model)
    : num_units_(static_cast<int>(model.num_layers) + 2) {
  using enum ParameterRole;
  require(model.num_layers > 0 && model.hidden_size > 0 && model.num_heads > 0 &&
              model.num_kv_heads > 0 && model.head_size > 0 && model.intermediate_size > 0 &&
              model.vocab_size > 0 && model.max_positions > 0,
          "a model's sizes are positive");
  const bool gpt2 = model.family == ModelFamily::gpt2;
  parameters_.reserve(static_cast<std::size_t>(model.num_layers) * (gpt2 ? 12 : 6) + 5);
  Builder build(model, parameters_);
  const auto begin_unit = [&] { unit_begin_.push_back(static_cast<int>(parameters_.size())); };

  begin_unit();
  build.matrix(0, token_embedding, gpt2 ? "wte.weight" : "model.embed_tokens.weight",
               model.vocab_size, model.hidden_size);
  if (gpt2)
    build.matrix(0, position_embedding, "wpe.weight", model.max_positions, model.hidden_size);
  for (int unit = 1; unit + 1 < num_units_; ++unit) {
    begin_unit();
    if (gpt2) {
      add_gpt2_block(build, model, unit);
    } else {
      add_llama_block(build, model, unit);
    }
  }
  const int last = num_units_ - 1;
  begin_unit();
  build.vector(last, final_norm_weight, gpt2 ? "ln_f.weight" : "model.norm.weight",
               model.hidden_size, InitialValue::one);
  if (gpt2) build.vector(last, final_norm_bias, "ln_f.bias", model.hidden_size, InitialValue::zero);
  if (!model.tie_embeddings)
    build.matrix(last, head_weight, "lm_head.weight", model.vocab_size, model.hidden_size);
  begin_unit();
  total_ = build.total();
}

std::pair<int, int> ParameterTable::unit_range(int unit) const {
  const auto index = static_cast<std::size_t>(unit);
  return {unit_begin_[index], unit_begin_[index + 1]};
}

std::int64_t ParameterTable::unit_elements(int unit) const {
  const auto [first, last] = unit_range(unit);
  const Parameter& end = parameters_[static_cast<std::size_t>(last) - 1];
  return end.offset + end.elements() - parameters_[static_cast<std::size_t>(first)].offset;
}

int ParameterTable::find(int unit, ParameterRole role) const {
  const auto [first, last] = unit_range(unit);
  for (int index = first; index < last; ++index) {
    if (parameters_[static_cast<std::size_t>(index)].role == role) return index;
  }
  return -1;
}

std::int64_t parameter_count(const ModelSpec& model) {
  return ParameterTable(model).total_elements();
}

double flops_per_token(const ModelSpec& model, std::int64_t sequence_length) {
  const ParameterTable table(model);
  double multiplied = 0;
  for (const Parameter& parameter : table.all()) {
    const bool looked_up =
        parameter.role == ParameterRole::position_embedding ||
        (parameter.role == ParameterRole::token_embedding && !model.tie_embeddings);
    if (!looked_up) multiplied += static_cast<double>(parameter.elements());
  }
  const double width = static_cast<double>(model.num_heads * model.head_size);
  return 6.0 * multiplied +
         6.0 * static_cast<double>(model.num_layers) * width * static_cast<double>(sequence_length);
}

}  // namespace dstune
