#pragma once
/// The MLP branch of a block: a product, the activation, and a product back.

#include "parts/arithmetic.hpp"

namespace dstune::plan {

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

}  // namespace dstune::plan
