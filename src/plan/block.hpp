#pragma once
/// One transformer block: norm, attention, projection, norm, MLP; forward, backward, and forward
/// again for backward.

#include "arithmetic.hpp"

namespace dstune::plan {

/// The residual stream between blocks: what has been added up, and what the next norm adds.
struct Running {
  TensorId residual = no_tensor;
  TensorId x = no_tensor;  ///< none before the first block
};

class Block {
 public:
  Block(const Context& context, int layer);

  /// Takes over both tensors of `running` (x is released; the residual too where backward does not
  /// need it) and returns the block's own.
  Running forward(const Running& running);
  /// d_residual is the gradient of the block's output and becomes that of its input.
  void backward(TensorId d_residual);

 private:
  void attention_and_mlp_input();
  void activate();
  void release_saved();
  void mlp_backward(TensorId d_residual);
  void attention_backward(TensorId d_residual);

  const Context& context_;
  int layer_, unit_;
  Linear qkv_layer_, projection_layer_, fc_layer_, fc_projection_layer_;

  // Kept for backward; with recompute only norm1_.input from forward on.
  Norm norm1_, norm2_;
  TensorId qkv_ = no_tensor, attention_ = no_tensor, log_sum_exp_ = no_tensor;
  TensorId fc_ = no_tensor, activated_ = no_tensor;
};

}  // namespace dstune::plan
