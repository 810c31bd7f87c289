#pragma once
/// Every parameter of a model in one flat, layer-major order: embeddings, block 0 … block L−1,
/// final norm and head. Offsets and sizes are in elements, without padding.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "dstune/model/model_spec.hpp"

namespace dstune {

enum class ParameterRole {
  token_embedding,        ///< [vocab_size, hidden_size]; also the head where embeddings are tied
  position_embedding,     ///< [position_offset + max_positions, hidden_size], learned positions
  token_type_embedding,   ///< [token_types, hidden_size]
  embedding_norm_weight,  ///< post_norm
  embedding_norm_bias,
  norm1_weight,
  norm1_bias,
  qkv_weight,  ///< [(heads + 2·kv_heads)·head_size, hidden_size], rows q, k, v
  qkv_bias,
  query_norm_weight,  ///< [head_size], query_key_norm; [heads·head_size], norm_spans_heads
  key_norm_weight,
  projection_weight,  ///< [hidden_size, heads·head_size]
  projection_bias,
  branch_norm1_weight,  ///< double_norm
  norm2_weight,
  norm2_bias,
  fc_weight,  ///< [intermediate, hidden]; gated: [2·intermediate, hidden], gate then up
  fc_bias,
  fc_projection_weight,  ///< [hidden_size, intermediate_size]
  fc_projection_bias,
  branch_norm2_weight,
  final_norm_weight,  ///< absent where norms come after their branch
  final_norm_bias,
  transform_weight,  ///< [hidden_size, hidden_size], masked_token (then a norm), sequence_class
  transform_bias,
  transform_norm_weight,
  transform_norm_bias,
  head_weight,  ///< [head_rows, hidden_size], where embeddings are not tied
  head_bias,    ///< [head_rows], of all but next_token
};

enum class InitialValue { normal, zero, one };

struct Parameter {
  ParameterRole role;
  int unit = 0;  ///< 0 embeddings, 1 … L blocks, L + 1 final norm and head
  std::string
      name;  ///< Hugging Face's, e.g. "h.3.attn.c_attn.weight"; our merged ones joined by "+"
  std::int64_t rows = 0, columns = 1;  ///< row-major [rows, columns]
  std::int64_t offset = 0;             ///< in the flat order
  InitialValue initial = InitialValue::normal;
  double standard_deviation = 0.0;  ///< of a normal initial value
  [[nodiscard]] std::int64_t elements() const { return rows * columns; }
};

/// The index of a parameter in this table is its tensor number for the generator of initial
/// weights.
class ParameterTable {
 public:
  explicit ParameterTable(const ModelSpec& model);

  [[nodiscard]] const std::vector<Parameter>& all() const { return parameters_; }
  [[nodiscard]] std::int64_t total_elements() const { return total_; }
  [[nodiscard]] int num_units() const { return num_units_; }
  /// Indices [first, last) of a unit's parameters.
  [[nodiscard]] std::pair<int, int> unit_range(int unit) const;
  [[nodiscard]] std::int64_t unit_elements(int unit) const;
  /// The index of a role in a unit; -1 where the unit has none.
  [[nodiscard]] int find(int unit, ParameterRole role) const {
    return of_role_[static_cast<std::size_t>(unit)][static_cast<std::size_t>(role)];
  }

 private:
  static constexpr int num_roles = static_cast<int>(ParameterRole::head_bias) + 1;

  std::vector<Parameter> parameters_;
  std::vector<std::array<int, num_roles>> of_role_;  // by unit
  std::vector<int> unit_begin_;
  std::int64_t total_ = 0;
  int num_units_ = 0;
};

[[nodiscard]] std::int64_t parameter_count(const ModelSpec& model);

/// Floating-point operations of forward and backward for one token: `6·N + 12·L·C·T`. N are the
/// parameters that take part in matrix products: all but position and token type embeddings; the
/// token embedding counts once, as the head. L are layers, C is `heads·head_size`, T the sequence
/// length. Causal attention counts half, `6·L·C·T`. With a window `W < T` it counts
/// `12·L·C·(W − W²/2T)`, the same mean of positions. Chowdhery et al. 2022 (PaLM), appendix B, with
/// the causal half. Recomputation is not counted. The head of a sequence's classes is used once a
/// sequence.
[[nodiscard]] double flops_per_token(const ModelSpec& model, std::int64_t sequence_length);

}  // namespace dstune
