#pragma once
/// The model's first part: tokens, positions and types looked up and added, and normed where norms
/// come after their branch.

#include "parts/block.hpp"

namespace dstune::plan {

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

}  // namespace dstune::plan
