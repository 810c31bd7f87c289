#pragma once
/// The model of docs/inside/reference-step.md in double precision, as plainly as it can be written:
/// nothing of it is shared with the kernels. Rotary
/// angles are those of sequences as long as the model's positions.

#include <cstdint>
#include <vector>

#include "dstune/model/parameter_table.hpp"

namespace dstune::test {

class ReferenceModel {
 public:
  explicit ReferenceModel(const ModelSpec& model)
      : model_(model),
        angles_(rotary_angles(model, model.max_positions)),
        local_angles_(local_rotary_angles(model)),
        table_(model) {}

  /// Mean loss over the targets of a sequence; `parameters` flat in the table's order. A target of
  /// −1 is none. Classes of a sequence have one target, spans two.
  [[nodiscard]] double loss(const std::vector<double>& parameters,
                            const std::vector<std::int32_t>& tokens,
                            const std::vector<std::int32_t>& targets) const;

 private:
  /// [positions][width]
  using Rows = std::vector<std::vector<double>>;
  struct Weights;

  [[nodiscard]] Rows norm(const Weights& weights, int unit, ParameterRole weight,
                          ParameterRole bias, const Rows& x) const;
  [[nodiscard]] Rows linear(const Weights& weights, int unit, ParameterRole weight,
                            ParameterRole bias, const Rows& x) const;
  [[nodiscard]] Rows embeddings(const Weights& weights,
                                const std::vector<std::int32_t>& tokens) const;
  void block(const Weights& weights, int unit, Rows& x) const;
  [[nodiscard]] Rows attention_branch(const Weights& weights, int unit, const Rows& x) const;
  [[nodiscard]] Rows mlp_branch(const Weights& weights, int unit, const Rows& x) const;
  void norm_heads(const Weights& weights, int unit, Rows& qkv) const;
  [[nodiscard]] Rows attention(int unit, Rows qkv) const;
  void rotate(const RotaryAngles& angles, std::vector<double>& row, std::int64_t first,
              std::int64_t position) const;
  [[nodiscard]] static double activation(Activation activation, double z);
  [[nodiscard]] Rows activations(const Rows& x) const;
  /// What the head multiplies of the last block's result.
  [[nodiscard]] Rows features(const Weights& weights, Rows x) const;
  /// [rows][classes]; of spans a row has one score a position.
  [[nodiscard]] Rows logits(const Weights& weights, const Rows& features) const;
  [[nodiscard]] Rows gated(const Rows& x) const;

  ModelSpec model_;
  RotaryAngles angles_, local_angles_;
  ParameterTable table_;
};

}  // namespace dstune::test
