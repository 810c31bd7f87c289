#include "block.hpp"

namespace dstune::plan {

using enum ParameterRole;

Block::Block(const Context& context, int layer)
    : context_(context),
      layer_(layer),
      unit_(layer + 1),
      qkv_layer_{unit_, qkv_weight, qkv_bias, context.sizes.hidden, context.sizes.qkv_width},
      projection_layer_{unit_, projection_weight, projection_bias, context.sizes.heads_width,
                        context.sizes.hidden},
      fc_layer_{unit_, fc_weight, fc_bias, context.sizes.hidden, context.sizes.fc_width},
      fc_projection_layer_{unit_, fc_projection_weight, fc_projection_bias,
                           context.sizes.intermediate, context.sizes.hidden},
      norm1_{.unit = unit_, .weight = norm1_weight, .bias = norm1_bias},
      norm2_{.unit = unit_, .weight = norm2_weight, .bias = norm2_bias} {}

Running Block::forward(const Running& running) {
  const Sizes& sizes = context_.sizes;
  const bool recompute = context_.config.recompute == Recompute::block;
  if (running.x == no_tensor) {
    norm1_.input = running.residual;
    norm_forward(context_, norm1_, running.residual, no_tensor);
  } else {
    norm1_.input = context_.activation("residual", layer_, sizes.rows * sizes.hidden);
    norm_forward(context_, norm1_, running.residual, running.x);
    context_.emitter.release(running.x);
    // Otherwise it is the previous block's second norm's input, which its backward releases.
    if (recompute) context_.emitter.release(running.residual);
  }
  attention_and_mlp_input();
  activate();
  const TensorId out = context_.activation("mlp out", layer_, sizes.rows * sizes.hidden);
  linear_forward(context_, fc_projection_layer_, out, activated_);
  const TensorId residual = norm2_.input;
  if (recompute) release_saved();
  return {residual, out};
}

void Block::attention_and_mlp_input() {
  const Sizes& sizes = context_.sizes;
  Emitter& emitter = context_.emitter;
  qkv_ = context_.activation("qkv", layer_, sizes.rows * sizes.qkv_width);
  linear_forward(context_, qkv_layer_, qkv_, norm1_.out);
  if (sizes.gated) emitter.emit(op::Rotary{at(qkv_), false});
  attention_ = context_.activation("attention", layer_, sizes.rows * sizes.heads_width);
  log_sum_exp_ = context_.statistics("log sum exp", layer_, sizes.rows * context_.model.num_heads);
  emitter.attention_forward({at(attention_), at(log_sum_exp_), at(qkv_), {}});
  const TensorId projected = context_.activation("projection", layer_, sizes.rows * sizes.hidden);
  linear_forward(context_, projection_layer_, projected, attention_);
  norm2_.input = context_.activation("residual", layer_, sizes.rows * sizes.hidden);
  norm_forward(context_, norm2_, norm1_.input, projected);
  emitter.release(projected);
}

void Block::activate() {
  const Sizes& sizes = context_.sizes;
  fc_ = context_.activation("fc", layer_, sizes.rows * sizes.fc_width);
  linear_forward(context_, fc_layer_, fc_, norm2_.out);
  activated_ = context_.activation("activated", layer_, sizes.rows * sizes.intermediate);
  context_.emitter.emit(
      op::ActivationForward{sizes.gated, at(activated_), at(fc_), sizes.rows, sizes.intermediate});
}

void Block::release_saved() {
  for (const TensorId tensor :
       {norm1_.mean, norm1_.rstd, norm1_.out, qkv_, attention_, log_sum_exp_, norm2_.mean,
        norm2_.rstd, norm2_.out, fc_, activated_}) {
    context_.emitter.release(tensor);
  }
}

void Block::backward(TensorId d_residual) {
  if (context_.config.recompute == Recompute::block) {
    context_.parameters.run_again(true);
    // The block's output itself is not needed again.
    norm_forward(context_, norm1_, norm1_.input, no_tensor);
    attention_and_mlp_input();
    activate();
    pass(context_, fc_projection_layer_);
    context_.parameters.run_again(false);
  }
  context_.gradients.open(unit_);
  mlp_backward(d_residual);
  attention_backward(d_residual);
  context_.gradients.close(unit_);
}

void Block::mlp_backward(TensorId d_residual) {
  const Sizes& sizes = context_.sizes;
  Emitter& emitter = context_.emitter;
  const TensorId d_activated =
      context_.activation("d activated", layer_, sizes.rows * sizes.intermediate);
  linear_backward_input(context_, fc_projection_layer_, d_activated, d_residual);
  linear_backward_weights(context_, fc_projection_layer_, d_residual, activated_);
  emitter.release(activated_);
  // In place: over the gradient where it has the width of fc, over fc where it is gated.
  const TensorId d_fc = sizes.gated ? fc_ : d_activated;
  emitter.emit(op::ActivationBackward{sizes.gated, at(d_fc), at(d_activated), at(fc_), sizes.rows,
                                      sizes.intermediate});
  emitter.release(sizes.gated ? d_activated : fc_);
  linear_backward_weights(context_, fc_layer_, d_fc, norm2_.out);
  emitter.release(norm2_.out);
  const TensorId d_norm = context_.activation("d norm", layer_, sizes.rows * sizes.hidden);
  linear_backward_input(context_, fc_layer_, d_norm, d_fc);
  emitter.release(d_fc);
  norm_backward(context_, norm2_, d_residual, d_norm, true);
  emitter.release(d_norm);
  emitter.release(norm2_.input);
}

void Block::attention_backward(TensorId d_residual) {
  const Sizes& sizes = context_.sizes;
  Emitter& emitter = context_.emitter;
  const TensorId d_attention =
      context_.activation("d attention", layer_, sizes.rows * sizes.heads_width);
  linear_backward_input(context_, projection_layer_, d_attention, d_residual);
  linear_backward_weights(context_, projection_layer_, d_residual, attention_);
  const TensorId d_qkv = context_.activation("d qkv", layer_, sizes.rows * sizes.qkv_width);
  emitter.attention_backward(
      {at(d_qkv), at(d_attention), at(qkv_), at(attention_), at(log_sum_exp_), {}});
  for (const TensorId tensor : {d_attention, qkv_, attention_, log_sum_exp_})
    emitter.release(tensor);
  if (sizes.gated) emitter.emit(op::Rotary{at(d_qkv), true});
  linear_backward_weights(context_, qkv_layer_, d_qkv, norm1_.out);
  emitter.release(norm1_.out);
  const TensorId d_norm = context_.activation("d norm", layer_, sizes.rows * sizes.hidden);
  linear_backward_input(context_, qkv_layer_, d_norm, d_qkv);
  emitter.release(d_qkv);
  norm_backward(context_, norm1_, d_residual, d_norm, true);
  emitter.release(d_norm);
  emitter.release(norm1_.input);
}

}  // namespace dstune::plan
