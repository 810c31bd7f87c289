#include "parts/mlp.hpp"

namespace dstune::plan {

using enum ParameterRole;

Mlp::Mlp(const Context& context, int layer)
    : context_(context),
      layer_(layer),
      fc_layer_{layer + 1, fc_weight, fc_bias, context.sizes.hidden, context.sizes.fc_width},
      fc_projection_layer_{layer + 1, fc_projection_weight, fc_projection_bias,
                           context.sizes.intermediate, context.sizes.hidden} {}

TensorId Mlp::forward(TensorId in) {
  const Sizes& sizes = context_.sizes;
  forward_for_backward(in);
  const TensorId out = context_.activation("mlp out", layer_, sizes.rows * sizes.hidden);
  linear_forward(context_, fc_projection_layer_, out, activated_);
  return out;
}

void Mlp::forward_again(TensorId in) {
  if (context_.config.recompute == Recompute::selective) {
    pass(context_, fc_layer_);
    activate();
  } else {
    forward_for_backward(in);
  }
  pass(context_, fc_projection_layer_);
}

void Mlp::forward_for_backward(TensorId in) {
  const Sizes& sizes = context_.sizes;
  fc_ = context_.activation("fc", layer_, sizes.rows * sizes.fc_width);
  if (sizes.fuses_activation) {
    activated_ = linear_activation_forward(context_, fc_layer_, fc_, in);
  } else {
    linear_forward(context_, fc_layer_, fc_, in);
    activate();
  }
}

void Mlp::activate() {
  const Sizes& sizes = context_.sizes;
  activated_ = context_.activation("activated", layer_, sizes.rows * sizes.intermediate);
  context_.emitter.emit(
      op::ActivationForward{sizes.gated, at(activated_), at(fc_), sizes.rows, sizes.intermediate});
}

void Mlp::release_saved() {
  context_.emitter.release(fc_);
  context_.emitter.release(activated_);
}

void Mlp::release_cheap() {
  context_.emitter.release(activated_);
}

TensorId Mlp::projection_backward(TensorId d_out) {
  const Sizes& sizes = context_.sizes;
  Emitter& emitter = context_.emitter;
  const TensorId d_activated =
      context_.activation("d activated", layer_, sizes.rows * sizes.intermediate);
  const TensorId pre_activation = sizes.fuses_activation ? fc_ : no_tensor;
  linear_backward_input(context_, fc_projection_layer_, d_activated, d_out, false, pre_activation);
  emitter.release(pre_activation);
  linear_backward_weights(context_, fc_projection_layer_, d_out, activated_);
  emitter.release(activated_);
  if (sizes.fuses_activation) return d_activated;
  // In place: over the gradient where it has the width of fc, over fc where it is gated.
  const TensorId d_fc = sizes.gated ? fc_ : d_activated;
  emitter.emit(op::ActivationBackward{sizes.gated, at(d_fc), at(d_activated), at(fc_), sizes.rows,
                                      sizes.intermediate});
  emitter.release(sizes.gated ? d_activated : fc_);
  return d_fc;
}

TensorId Mlp::backward(TensorId d_out, TensorId in, TensorId d_in, bool release_in) {
  const Sizes& sizes = context_.sizes;
  Emitter& emitter = context_.emitter;
  const TensorId d_fc = projection_backward(d_out);
  linear_backward_weights(context_, fc_layer_, d_fc, in);
  if (release_in) emitter.release(in);
  const bool accumulate = d_in != no_tensor;
  if (!accumulate) d_in = context_.activation("d norm", layer_, sizes.rows * sizes.hidden);
  linear_backward_input(context_, fc_layer_, d_in, d_fc, accumulate);
  emitter.release(d_fc);
  return d_in;
}

}  // namespace dstune::plan
