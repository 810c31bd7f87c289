#pragma once
/// One transformer block and its two branches: forward, backward, and forward again for backward.

#include "parts/arithmetic.hpp"

namespace dstune::plan {

/// q, k and v from one product, their norm and rotation, attention, and the projection of its
/// result.
class Attention {
 public:
  Attention(const Context& context, int layer);

  /// The projection's result for `in`, which backward needs again.
  TensorId forward(TensorId in);
  /// What backward needs of forward, without the result.
  void forward_again(TensorId in);
  void release_saved();
  /// With selective recompute: what forward_again makes anew.
  void release_cheap();
  /// The gradient of `in` from that of the result: in a new tensor, or added to `d_in` where one is
  /// given. Releases what was kept, and `in` where it is to.
  TensorId backward(TensorId d_out, TensorId in, TensorId d_in, bool release_in);

 private:
  void forward_for_backward(TensorId in);
  void make_heads();
  void head_norm_forward();
  void head_norm_backward(TensorId d_qkv);

  const Context& context_;
  int layer_, unit_;
  std::int64_t window_;
  bool keeps_raw_;  ///< the product's result, where the heads' norms are computed again
  Linear qkv_layer_, projection_layer_;
  // Kept for backward. Norm and rotation are in place in heads_: that is qkv_ or, where the raw
  // product is kept, a copy of it.
  TensorId qkv_ = no_tensor, heads_ = no_tensor, attention_ = no_tensor, log_sum_exp_ = no_tensor;
  TensorId raw_ = no_tensor, head_rstd_ = no_tensor;  // of the heads' norm
};

/// A product, the activation, and a product back.
class Mlp {
 public:
  Mlp(const Context& context, int layer);

  /// The result for `in`, which backward needs again.
  TensorId forward(TensorId in);
  /// What backward needs of forward, without the result.
  void forward_again(TensorId in);
  void release_saved();
  /// With selective recompute: what forward_again makes anew.
  void release_cheap();
  /// As Attention's.
  TensorId backward(TensorId d_out, TensorId in, TensorId d_in, bool release_in);

 private:
  void forward_for_backward(TensorId in);
  void activate();
  /// The gradient of fc_. Releases what was kept.
  TensorId projection_backward(TensorId d_out);

  const Context& context_;
  int layer_;
  Linear fc_layer_, fc_projection_layer_;
  // Kept for backward.
  TensorId fc_ = no_tensor, activated_ = no_tensor;
};

/// The residual stream between blocks: what has been added up, and what the next norm adds.
struct Running {
  TensorId residual = no_tensor;
  TensorId x = no_tensor;         ///< none before the first block, and after norms
  bool release_residual = false;  ///< by who takes it over: no backward needs it
};

/// Norms and branches, put together as the model's BlockKind says.
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
