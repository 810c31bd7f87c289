#include "parts/parts.hpp"

namespace dstune::plan {

using enum ParameterRole;

Attention::Attention(const Context& context, int layer)
    : context_(context),
      layer_(layer),
      unit_(layer + 1),
      window_(context.model.window_of(layer, context.config.sequence_length)),
      keeps_raw_(context.config.recompute == Recompute::selective &&
                 context.model.architecture.query_key_norm),
      rotates_(context.model.rotates(layer)),
      qkv_layer_{unit_, qkv_weight, qkv_bias, context.sizes.hidden, context.sizes.qkv_width},
      projection_layer_{unit_, projection_weight, projection_bias, context.sizes.heads_width,
                        context.sizes.hidden} {}

TensorId Attention::forward(TensorId in) {
  forward_for_backward(in);
  const TensorId projected = context_.activation("projection", layer_, context_.sizes.hidden);
  linear_forward(context_, projection_layer_, projected, attention_);
  return projected;
}

void Attention::forward_again(TensorId in) {
  if (context_.config.recompute == Recompute::selective) {
    pass(context_, qkv_layer_);
    if (keeps_raw_) make_heads();
  } else {
    forward_for_backward(in);
  }
  pass(context_, projection_layer_);
}

void Attention::forward_for_backward(TensorId in) {
  const Sizes& sizes = context_.sizes;
  qkv_ = context_.activation("qkv", layer_, sizes.qkv_width);
  linear_forward(context_, qkv_layer_, qkv_, in);
  make_heads();
  attention_ = context_.activation("attention", layer_, sizes.heads_width);
  log_sum_exp_ = context_.statistics("log sum exp", layer_, context_.model.num_heads);
  context_.emitter.emit(
      op::AttentionForward{at(attention_), at(log_sum_exp_), at(heads_), {}, window_});
}

void Attention::make_heads() {
  const Sizes& sizes = context_.sizes;
  const Architecture& parts = context_.model.architecture;
  Emitter& emitter = context_.emitter;
  heads_ = qkv_;
  if (keeps_raw_) {
    heads_ = context_.activation("heads", layer_, sizes.qkv_width);
    emitter.emit(op::Convert{at(heads_), at(qkv_), sizes.rows * sizes.qkv_width});
  }
  if (parts.query_key_norm) head_norm_forward();
  if (rotates_) emitter.emit(op::Rotary{at(heads_), false, context_.model.rotates_locally(layer_)});
}

void Attention::release_saved() {
  context_.emitter.release({heads_, raw_, head_rstd_, attention_, log_sum_exp_});
}

void Attention::release_cheap() {
  if (keeps_raw_) context_.emitter.release({heads_, raw_, head_rstd_});
}

TensorId Attention::backward(TensorId d_out, TensorId in, TensorId d_in) {
  const Sizes& sizes = context_.sizes;
  const Architecture& parts = context_.model.architecture;
  Emitter& emitter = context_.emitter;
  const TensorId d_attention = context_.activation("d attention", layer_, sizes.heads_width);
  linear_backward_input(context_, projection_layer_, d_attention, d_out);
  linear_backward_weights(context_, projection_layer_, d_out, attention_);
  const TensorId d_qkv = context_.activation("d qkv", layer_, sizes.qkv_width);
  emitter.emit(op::AttentionBackward{
      at(d_qkv), at(d_attention), at(heads_), at(attention_), at(log_sum_exp_), {}, window_});
  emitter.release({d_attention, heads_, attention_, log_sum_exp_});
  if (keeps_raw_) emitter.release(qkv_);
  if (rotates_) emitter.emit(op::Rotary{at(d_qkv), true, context_.model.rotates_locally(layer_)});
  if (parts.query_key_norm) head_norm_backward(d_qkv);
  return linear_backward(context_, qkv_layer_, d_qkv, in, d_in);
}

void Attention::head_norm_forward() {
  const std::int64_t heads = context_.model.num_heads + context_.model.num_kv_heads;
  raw_ = context_.activation("raw q and k", layer_, heads * context_.model.head_size);
  const bool spans_heads = context_.model.architecture.norm_spans_heads;
  head_rstd_ = context_.statistics("heads' rstd", layer_, spans_heads ? 2 : heads);
  context_.parameters.use(unit_, query_norm_weight, key_norm_weight);
  context_.emitter.emit(op::HeadNormForward{spans_heads, at(heads_), at(raw_), at(head_rstd_),
                                            context_.parameters.view(unit_, query_norm_weight),
                                            context_.parameters.view(unit_, key_norm_weight)});
  context_.parameters.done(unit_, query_norm_weight, key_norm_weight);
}

void Attention::head_norm_backward(TensorId d_qkv) {
  context_.parameters.use(unit_, query_norm_weight, key_norm_weight);
  context_.emitter.emit(
      op::HeadNormBackward{.spans_heads = context_.model.architecture.norm_spans_heads,
                           .d_qkv = at(d_qkv),
                           .d_q_weight = context_.gradients.view(unit_, query_norm_weight),
                           .d_k_weight = context_.gradients.view(unit_, key_norm_weight),
                           .raw = at(raw_),
                           .rstd = at(head_rstd_),
                           .q_weight = context_.parameters.view(unit_, query_norm_weight),
                           .k_weight = context_.parameters.view(unit_, key_norm_weight),
                           .accumulate_weights = context_.gradients.accumulate()});
  context_.parameters.done(unit_, query_norm_weight, key_norm_weight);
  context_.emitter.release({raw_, head_rstd_});
}

Mlp::Mlp(const Context& context, int layer)
    : context_(context),
      layer_(layer),
      fc_layer_{layer + 1, fc_weight, fc_bias, context.sizes.hidden, context.sizes.fc_width},
      fc_projection_layer_{layer + 1, fc_projection_weight, fc_projection_bias,
                           context.sizes.intermediate, context.sizes.hidden} {}

TensorId Mlp::forward(TensorId in) {
  const Sizes& sizes = context_.sizes;
  forward_for_backward(in);
  const TensorId out = context_.activation("mlp out", layer_, sizes.hidden);
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
  fc_ = context_.activation("fc", layer_, sizes.fc_width);
  if (sizes.fuses_activation) {
    activated_ = linear_activation_forward(context_, fc_layer_, fc_, in);
  } else {
    linear_forward(context_, fc_layer_, fc_, in);
    activate();
  }
}

void Mlp::activate() {
  const Sizes& sizes = context_.sizes;
  activated_ = context_.activation("activated", layer_, sizes.intermediate);
  context_.emitter.emit(
      op::ActivationForward{sizes.gated, at(activated_), at(fc_), sizes.rows, sizes.intermediate});
}

void Mlp::release_saved() {
  context_.emitter.release({fc_, activated_});
}

void Mlp::release_cheap() {
  context_.emitter.release(activated_);
}

TensorId Mlp::projection_backward(TensorId d_out) {
  const Sizes& sizes = context_.sizes;
  Emitter& emitter = context_.emitter;
  const TensorId d_activated = context_.activation("d activated", layer_, sizes.intermediate);
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

TensorId Mlp::backward_keeping(TensorId d_out, TensorId in) {
  const TensorId d_fc = projection_backward(d_out);
  linear_backward_weights(context_, fc_layer_, d_fc, in);
  const TensorId d_in = context_.activation("d norm", layer_, context_.sizes.hidden);
  linear_backward_input(context_, fc_layer_, d_in, d_fc);
  context_.emitter.release(d_fc);
  return d_in;
}

TensorId Mlp::backward(TensorId d_out, TensorId in, TensorId d_in) {
  return linear_backward(context_, fc_layer_, projection_backward(d_out), in, d_in);
}

}  // namespace dstune::plan
