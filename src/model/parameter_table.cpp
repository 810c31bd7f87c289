#include "dstune/model/parameter_table.hpp"

#include <cmath>
#include <utility>

#include "dstune/base/checked.hpp"
#include "dstune/base/error.hpp"
#include "dstune/model/module_names.hpp"

namespace dstune {
namespace {

/// Fills the table unit by unit: embeddings, blocks, ends.
class Units {
 public:
  Units(const ModelSpec& model, std::vector<Parameter>& parameters)
      : model_(model), parts_(model.architecture), parameters_(parameters) {}

  [[nodiscard]] std::int64_t total() const { return total_; }

  void embeddings() {
    const std::int64_t hidden = model_.hidden_size;
    matrix(0, token_embedding, {ModuleKind::token_embedding}, model_.vocab_size, hidden);
    if (parts_.positions == PositionKind::learned) {
      matrix(0, position_embedding, {ModuleKind::position_embedding},
             parts_.position_offset + model_.max_positions, hidden);
    }
    if (parts_.token_types > 0) {
      matrix(0, token_type_embedding, {ModuleKind::token_type_embedding}, parts_.token_types,
             hidden);
    }
    if (parts_.block == BlockKind::post_norm)
      norm(0, embedding_norm_weight, embedding_norm_bias, ModuleKind::embedding_norm);
  }

  void block(int unit) {
    using enum ModuleKind;
    const std::int64_t hidden = model_.hidden_size;
    const std::int64_t heads = model_.num_heads * model_.head_size;
    const std::int64_t qkv_width = (model_.num_heads + 2 * model_.num_kv_heads) * model_.head_size;
    const std::int64_t fc_width = (parts_.gated ? 2 : 1) * model_.intermediate_size;
    norm(unit, norm1_weight, norm1_bias, norm1);
    linear(unit, qkv_weight, qkv_bias, one_or({query_key_value}, {query, key, value}), qkv_width,
           hidden, parts_.qkv_bias);
    if (parts_.query_key_norm) {
      const auto width = [&](std::int64_t heads_of_one) {
        return (parts_.norm_spans_heads ? heads_of_one : 1) * model_.head_size;
      };
      norm_weight(unit, query_norm_weight, query_norm, width(model_.num_heads));
      norm_weight(unit, key_norm_weight, key_norm, width(model_.num_kv_heads));
    }
    linear(unit, projection_weight, projection_bias, {projection}, hidden, heads,
           parts_.projection_bias, parts_.scaled_projections);
    const bool has_branch_norms = parts_.block == BlockKind::double_norm;
    if (has_branch_norms) norm_weight(unit, branch_norm1_weight, branch_norm1, hidden);
    if (!parts_.shared_norm) norm(unit, norm2_weight, norm2_bias, norm2);
    linear(unit, fc_weight, fc_bias, one_or({fc}, {gate, up}), fc_width, hidden, parts_.mlp_bias);
    linear(unit, fc_projection_weight, fc_projection_bias, {fc_projection}, hidden,
           model_.intermediate_size, parts_.mlp_bias, parts_.scaled_projections);
    if (has_branch_norms) norm_weight(unit, branch_norm2_weight, branch_norm2, hidden);
  }

  void head(int unit) {
    if (parts_.block != BlockKind::post_norm)
      norm(unit, final_norm_weight, final_norm_bias, ModuleKind::final_norm);
    const bool masked = parts_.objective == Objective::masked_token;
    if (masked || parts_.objective == Objective::sequence_class) {
      linear(unit, transform_weight, transform_bias, {ModuleKind::transform}, model_.hidden_size,
             model_.hidden_size, true);
    }
    if (masked) norm(unit, transform_norm_weight, transform_norm_bias, ModuleKind::transform_norm);
    if (!model_.tie_embeddings) {
      matrix(unit, head_weight, {ModuleKind::head}, model_.head_rows(), model_.hidden_size);
    }
    if (parts_.objective != Objective::next_token) {
      const bool is_berts = masked && model_.family == ModelFamily::bert;
      add({head_bias, unit,
           is_berts ? "cls.predictions.bias" : name_of(unit, {ModuleKind::head}, ".bias"),
           model_.head_rows(), 1, 0, InitialValue::zero});
    }
  }

 private:
  using enum ParameterRole;
  using Modules = std::vector<ModuleKind>;

  /// The first where the family has that module.
  [[nodiscard]] Modules one_or(Modules one, Modules several) const {
    return parameter_path(model_, one.front()).empty() ? several : one;
  }
  /// "first.weight+second.weight": the parts of one matrix of ours.
  [[nodiscard]] std::string name_of(int unit, const Modules& modules, const char* suffix) const {
    std::string result;
    for (const ModuleKind module : modules) {
      if (!result.empty()) result += '+';
      result.append(parameter_path(model_, module, unit - 1)).append(suffix);
    }
    return result;
  }
  void matrix(int unit, ParameterRole role, const Modules& modules, std::int64_t rows,
              std::int64_t columns, bool residual_projection = false) {
    // GPT-2 scales what is added to the residual stream by 1/sqrt(its number of additions).
    const double deviation =
        residual_projection
            ? model_.initializer_range / std::sqrt(2.0 * static_cast<double>(model_.num_layers))
            : model_.initializer_range;
    add({role, unit, name_of(unit, modules, ".weight"), rows, columns, 0, InitialValue::normal,
         deviation});
  }
  void bias_vector(int unit, ParameterRole role, const Modules& modules, std::int64_t elements) {
    add({role, unit, name_of(unit, modules, ".bias"), elements, 1, 0, InitialValue::zero});
  }
  void norm_weight(int unit, ParameterRole role, ModuleKind module, std::int64_t elements) {
    add({role, unit, name_of(unit, {module}, ".weight"), elements, 1, 0,
         parts_.unit_offset_norm ? InitialValue::zero : InitialValue::one});
  }
  void norm(int unit, ParameterRole weight, ParameterRole bias, ModuleKind module) {
    norm_weight(unit, weight, module, model_.hidden_size);
    if (parts_.norm == NormKind::layer) bias_vector(unit, bias, {module}, model_.hidden_size);
  }
  void linear(int unit, ParameterRole weight, ParameterRole bias, const Modules& modules,
              std::int64_t rows, std::int64_t columns, bool has_bias,
              bool residual_projection = false) {
    matrix(unit, weight, modules, rows, columns, residual_projection);
    if (has_bias) bias_vector(unit, bias, modules, rows);
  }

  void add(Parameter parameter) {
    parameter.offset = total_;
    total_ = checked_sum("parameters of the model", total_, parameter.elements());
    parameters_.push_back(std::move(parameter));
  }

  const ModelSpec& model_;
  const Architecture& parts_;
  std::vector<Parameter>& parameters_;
  std::int64_t total_ = 0;
};

}  // namespace

ParameterTable::ParameterTable(const ModelSpec& model)
    : num_units_(static_cast<int>(model.num_layers) + 2) {
  require(model.num_layers > 0 && model.hidden_size > 0 && model.num_heads > 0 &&
              model.num_kv_heads > 0 && model.head_size > 0 && model.intermediate_size > 0 &&
              model.vocab_size > 0 && model.max_positions > 0,
          "a model's sizes are positive");
  constexpr std::size_t most_of_a_unit = 14;
  parameters_.reserve(static_cast<std::size_t>(num_units_) * most_of_a_unit);
  Units units(model, parameters_);
  const int last = num_units_ - 1;
  for (int unit = 0; unit < num_units_; ++unit) {
    unit_begin_.push_back(static_cast<int>(parameters_.size()));
    if (unit == 0) {
      units.embeddings();
    } else if (unit < last) {
      units.block(unit);
    } else {
      units.head(unit);
    }
  }
  unit_begin_.push_back(static_cast<int>(parameters_.size()));
  total_ = units.total();
  std::array<int, num_roles> absent{};
  absent.fill(-1);
  of_role_.assign(static_cast<std::size_t>(num_units_), absent);
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    const Parameter& parameter = parameters_[index];
    of_role_[static_cast<std::size_t>(parameter.unit)][static_cast<std::size_t>(parameter.role)] =
        static_cast<int>(index);
  }
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

std::int64_t parameter_count(const ModelSpec& model) {
  return ParameterTable(model).total_elements();
}

namespace {

double counted_flops(const ModelSpec& model, std::int64_t sequence_length) {
  const ParameterTable table(model);
  const auto length = static_cast<double>(sequence_length);
  const bool is_of_sequence = model.architecture.objective == Objective::sequence_class;
  double multiplied = 0;
  for (const Parameter& parameter : table.all()) {
    const bool looked_up =
        parameter.role == ParameterRole::position_embedding ||
        parameter.role == ParameterRole::token_type_embedding ||
        (parameter.role == ParameterRole::token_embedding && !model.tie_embeddings);
    const bool is_in_head = parameter.unit == table.num_units() - 1;
    if (!looked_up) {
      multiplied +=
          static_cast<double>(parameter.elements()) / (is_of_sequence && is_in_head ? length : 1);
    }
  }
  const bool causal = model.architecture.objective == Objective::next_token;
  const auto width = static_cast<double>(model.num_heads * model.head_size);
  double positions = 0;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const auto window = static_cast<double>(model.window_of(layer, sequence_length));
    positions += window > 0 ? window * (1 - window / (2 * length)) : length / (causal ? 2 : 1);
  }
  return 6.0 * multiplied + 12.0 * width * positions;
}

}  // namespace

double flops_per_token(const ModelSpec& model, std::int64_t sequence_length) {
  // A job asks for each experiment, always of the same model.
  struct Last {
    ModelSpec model;
    std::int64_t sequence_length = -1;
    double flops = 0;
  };
  thread_local Last last;
  if (last.sequence_length != sequence_length || last.model != model)
    last = {model, sequence_length, counted_flops(model, sequence_length)};
  return last.flops;
}

}  // namespace dstune
