#pragma once
/// One transformer block: its norms and branches, put together as the model's BlockKind says;
/// forward, backward, and forward again for backward.

#include "parts/attention.hpp"
#include "parts/mlp.hpp"

namespace dstune::plan {

/// The residual stream between blocks: what has been added up, and what the next norm adds.
struct Running {
  TensorId residual = no_tensor;
  TensorId x = no_tensor;         ///< none before the first block, and after norms
  bool release_residual = false;  ///< by who takes it over: no backward needs it
};

class Block {
 public:
  Block(const Context& context, int layer);

  /// Takes over `running` (x is released, the residual where it is to be) and returns the block's
  /// own.
  Running forward(const Running& running);
  /// Takes over the gradient of the block's output and returns that of its input.
  TensorId backward(TensorId d_out);
  /// What is kept where the whole block is computed again.
  [[nodiscard]] TensorId& input() { return kind_ == BlockKind::post_norm ? input_ : norm1_.input; }

 private:
  void first_norm(const Running& running);
  Running branches();
  Running post_norm_forward(TensorId input);
  void forward_again();
  void forward_again_of_post_norm();
  void release_saved();
  void release_cheap();
  void sequential_backward(TensorId d_residual);
  void parallel_backward(TensorId d_residual);
  TensorId post_norm_backward(TensorId d_out);
  void norm_backward_into(const Norm& norm, TensorId d_residual, TensorId d_norm);
  /// Releases what it takes; the gradient of the norm's input is a new tensor.
  TensorId norm_backward_anew(const Norm& norm, TensorId d_out);

  const Context& context_;
  int layer_, unit_;
  BlockKind kind_;
  Recompute recompute_;

  // Kept for backward. Of a whole block that is computed again only its input is, from forward on:
  // norm1_.input, or input_ where norms come after their branch.
  Norm norm1_, norm2_;
  TensorId input_ = no_tensor;
  Attention attention_;
  Mlp mlp_;
};

}  // namespace dstune::plan
