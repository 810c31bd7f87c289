#pragma once
/// Forward and backward of one micro-step, from the embeddings to the last gradient.

#include "parts/block.hpp"

namespace dstune::plan {

void emit_micro_step(const Context& context, MicroStep micro);

/// The model's first part: tokens, positions and types looked up and added, and normed where norms
/// come after their branch.
class Embedding {
 public:
  explicit Embedding(const Context& context);

  Running forward();
  /// Takes over the gradient of forward's result; closes unit 0's gradients. (With tied embeddings
  /// they are open already and hold the head's.)
  void backward(TensorId d_out);

 private:
  void positions_backward(bool accumulate) const;
  void types_backward(TensorId d_sum, bool accumulate) const;
  [[nodiscard]] View first_position(View table) const;

  const Context& context_;
  bool normed_;
  ParameterRole last_table_;  // of those that are looked up, in the flat order
  Norm norm_;
};

/// The model's last part: final norm, masked-language transform, head and loss, forward and
/// backward at once, so that the logits of only a chunk of rows exist at a time. Takes over both
/// tensors of `running`; returns the gradient of the residual stream. Begins backward of the
/// gradients; with tied embeddings unit 0's gradients stay open.
TensorId emit_head(const Context& context, const Running& running, MicroStep micro);

}  // namespace dstune::plan
