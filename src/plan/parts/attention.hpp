#pragma once
/// The attention branch of a block: q, k and v from one product, their norm and rotation,
/// attention, and the projection of its result.

#include "parts/arithmetic.hpp"

namespace dstune::plan {

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

}  // namespace dstune::plan
