#include "parts/arithmetic.hpp"

namespace dstune::plan {
namespace {

void emit_forward(const Context& context, const Linear& layer, TensorId out, TensorId in,
                  TensorId activated) {
  context.emitter.matmul({.a = at(in),
                          .b = context.parameters.view(layer.unit, layer.weight),
                          .bias = context.parameters.view(layer.unit, layer.bias),
                          .c = at(out),
                          .workspace = {},
                          .m = context.sizes.rows,
                          .n = layer.outputs,
                          .k = layer.inputs,
                          .transpose_a = false,
                          .transpose_b = true,
                          .accumulate = false,
                          .activated = at(activated)});
}

}  // namespace

Sizes sizes_of(const ModelSpec& model, const TrainingConfig& config, int group_size) {
  const bool gated = model.architecture.gated;
  // cuBLASLt activates what a product gives by this form of GELU, and keeps its input. Of ReLU it
  // keeps signs, as bits: they are not what is kept here.
  const bool fuses = !gated && model.architecture.activation == Activation::gelu_tanh;
  return {.rows = config.micro_batch * config.sequence_length,
          .hidden = model.hidden_size,
          .heads_width = model.num_heads * model.head_size,
          .qkv_width = (model.num_heads + 2 * model.num_kv_heads) * model.head_size,
          .intermediate = model.intermediate_size,
          .fc_width = (gated ? 2 : 1) * model.intermediate_size,
          .vocab = model.vocab_size,
          .targets = config.micro_batch * targets_per_sequence(model, config.sequence_length),
          .summed_ranks = config.sums_gradients && config.zero_stage < 3 ? group_size : 1,
          .gated = gated,
          .fuses_activation = fuses,
          .rms = model.architecture.norm == NormKind::rms};
}

void linear_forward(const Context& context, const Linear& layer, TensorId out, TensorId in) {
  context.parameters.use(layer.unit, layer.weight, layer.bias);
  emit_forward(context, layer, out, in, no_tensor);
  context.parameters.done(layer.unit, layer.weight, layer.bias);
}

TensorId linear_activation_forward(const Context& context, const Linear& layer, TensorId out,
                                   TensorId in) {
  context.parameters.use(layer.unit, layer.weight, layer.bias);
  // After what is gathered for the layer, which is released first.
  const TensorId activated =
      context.activation("activated", layer.unit - 1, context.sizes.rows * layer.outputs);
  emit_forward(context, layer, out, in, activated);
  context.parameters.done(layer.unit, layer.weight, layer.bias);
  return activated;
}

void pass(const Context& context, const Linear& layer) {
  context.parameters.use(layer.unit, layer.weight, layer.bias);
  context.parameters.done(layer.unit, layer.weight, layer.bias);
}

void pass(const Context& context, const Norm& norm) {
  context.parameters.use(norm.unit, norm.weight, norm.bias);
  context.parameters.done(norm.unit, norm.weight, norm.bias);
}

void linear_backward_input(const Context& context, const Linear& layer, TensorId d_in,
                           TensorId d_out, bool accumulate, TensorId pre_activation) {
  context.parameters.use(layer.unit, layer.weight, layer.bias);
  context.emitter.matmul({.a = at(d_out),
                          .b = context.parameters.view(layer.unit, layer.weight),
                          .bias = {},
                          .c = at(d_in),
                          .workspace = {},
                          .m = context.sizes.rows,
                          .n = layer.inputs,
                          .k = layer.outputs,
                          .transpose_a = false,
                          .transpose_b = false,
                          .accumulate = accumulate,
                          .pre_activation = at(pre_activation)});
  context.parameters.done(layer.unit, layer.weight, layer.bias);
}

void linear_backward_weights(const Context& context, const Linear& layer, TensorId d_out,
                             TensorId in) {
  context.emitter.matmul({.a = at(d_out),
                          .b = at(in),
                          .bias = {},
                          .c = context.gradients.view(layer.unit, layer.weight),
                          .workspace = {},
                          .m = layer.outputs,
                          .n = layer.inputs,
                          .k = context.sizes.rows,
                          .transpose_a = true,
                          .transpose_b = false,
                          .accumulate = context.gradients.accumulate(),
                          .d_bias = context.gradients.view(layer.unit, layer.bias)});
}

void norm_forward(const Context& context, Norm& norm, TensorId residual, TensorId x) {
  const Sizes& sizes = context.sizes;
  const int layer = norm.unit - 1;
  if (!sizes.rms) norm.mean = context.statistics("mean", layer, sizes.rows);
  norm.rstd = context.statistics("rstd", layer, sizes.rows);
  norm.out = context.activation("norm", layer, sizes.rows * sizes.hidden);
  context.parameters.use(norm.unit, norm.weight, norm.bias);
  context.emitter.emit(op::NormForward{.rms = sizes.rms,
                                       .out = at(norm.out),
                                       .residual_out = at(norm.input),
                                       .mean = at(norm.mean),
                                       .rstd = at(norm.rstd),
                                       .residual = at(residual),
                                       .x = at(x),
                                       .weight = context.parameters.view(norm.unit, norm.weight),
                                       .bias = context.parameters.view(norm.unit, norm.bias),
                                       .rows = sizes.rows});
  context.parameters.done(norm.unit, norm.weight, norm.bias);
}

void norm_backward(const Context& context, const Norm& norm, TensorId d_residual, TensorId d_out,
                   bool accumulate_input) {
  context.parameters.use(norm.unit, norm.weight, norm.bias);
  context.emitter.norm_backward({.rms = context.sizes.rms,
                                 .d_x = at(d_residual),
                                 .d_weight = context.gradients.view(norm.unit, norm.weight),
                                 .d_bias = context.gradients.view(norm.unit, norm.bias),
                                 .d_out = at(d_out),
                                 .input = at(norm.input),
                                 .mean = at(norm.mean),
                                 .rstd = at(norm.rstd),
                                 .weight = context.parameters.view(norm.unit, norm.weight),
                                 .workspace = {},
                                 .rows = context.sizes.rows,
                                 .accumulate_input = accumulate_input,
                                 .accumulate_weights = context.gradients.accumulate()});
  context.parameters.done(norm.unit, norm.weight, norm.bias);
  context.emitter.release(norm.mean);
  context.emitter.release(norm.rstd);
}

}  // namespace dstune::plan
