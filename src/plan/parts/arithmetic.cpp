#include <fmt/format.h>

#include "dstune/base/checked.hpp"
#include "dstune/base/error.hpp"
#include "parts/parts.hpp"

namespace dstune::plan {
namespace {

/// Tokens of a micro-batch: with more no tensor of them fits anywhere, but the plan has an
/// operation for each chunk of logits.
constexpr std::int64_t most_rows = std::int64_t{1} << 28;

void emit_forward(const Context& context, const Linear& layer, TensorId out, TensorId in,
                  TensorId activated) {
  context.emitter.emit(op::Matmul{.a = at(in),
                                  .b = context.parameters.view(layer.unit, layer.weight),
                                  .bias = context.parameters.view(layer.unit, layer.bias),
                                  .c = at(out),
                                  .m = context.sizes.rows,
                                  .n = layer.outputs,
                                  .k = layer.inputs,
                                  .transpose_b = true,
                                  .activated = at(activated)});
}

std::int64_t rows_of(const TrainingConfig& config) {
  const std::int64_t rows =
      checked_product("tokens of a micro-batch", config.micro_batch, config.sequence_length);
  if (rows > most_rows) {
    throw OverflowError(fmt::format("tokens of a micro-batch: {} are more than any step has ({})",
                                    rows, most_rows));
  }
  return rows;
}

}  // namespace

Sizes sizes_of(const ModelSpec& model, const TrainingConfig& config, int group_size) {
  const bool gated = model.architecture.gated;
  const Activation activation = model.architecture.activation;
  require(!gated || activation == Activation::silu || activation == Activation::gelu_tanh,
          "an activation that gates is a known one");
  // cuBLASLt activates a product's result by this form of GELU, and keeps its input. ReLU is not
  // fused: cuBLASLt keeps its signs as bits, and the step keeps the input.
  const bool fuses = !gated && activation == Activation::gelu_tanh;
  return {.rows = rows_of(config),
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
  const TensorId activated = context.activation("activated", layer.unit - 1, layer.outputs);
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
  context.emitter.emit(op::Matmul{.a = at(d_out),
                                  .b = context.parameters.view(layer.unit, layer.weight),
                                  .c = at(d_in),
                                  .m = context.sizes.rows,
                                  .n = layer.inputs,
                                  .k = layer.outputs,
                                  .accumulate = accumulate,
                                  .pre_activation = at(pre_activation)});
  context.parameters.done(layer.unit, layer.weight, layer.bias);
}

void linear_backward_weights(const Context& context, const Linear& layer, TensorId d_out,
                             TensorId in) {
  context.emitter.emit(op::Matmul{.a = at(d_out),
                                  .b = at(in),
                                  .c = context.gradients.view(layer.unit, layer.weight),
                                  .m = layer.outputs,
                                  .n = layer.inputs,
                                  .k = context.sizes.rows,
                                  .transpose_a = true,
                                  .accumulate = context.gradients.accumulate(),
                                  .d_bias = context.gradients.view(layer.unit, layer.bias)});
}

TensorId linear_backward(const Context& context, const Linear& layer, TensorId d_out, TensorId in,
                         TensorId d_in) {
  linear_backward_weights(context, layer, d_out, in);
  context.emitter.release(in);
  const bool accumulate = d_in != no_tensor;
  if (!accumulate) d_in = context.activation("d norm", layer.unit - 1, layer.inputs);
  linear_backward_input(context, layer, d_in, d_out, accumulate);
  context.emitter.release(d_out);
  return d_in;
}

void norm_forward(const Context& context, Norm& norm, TensorId residual, TensorId x) {
  const Sizes& sizes = context.sizes;
  const int layer = norm.unit - 1;
  if (!sizes.rms) norm.mean = context.statistics("mean", layer);
  norm.rstd = context.statistics("rstd", layer);
  norm.out = context.activation("norm", layer, sizes.hidden);
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

void norm_forward_of_sum(const Context& context, Norm& norm, int layer, TensorId residual,
                         TensorId x) {
  norm.input = context.activation("residual", layer, context.sizes.hidden);
  norm_forward(context, norm, residual, x);
  context.emitter.release(x);
}

void norm_backward(const Context& context, const Norm& norm, TensorId d_residual, TensorId d_out,
                   bool accumulate_input) {
  context.parameters.use(norm.unit, norm.weight, norm.bias);
  context.emitter.emit(op::NormBackward{.rms = context.sizes.rms,
                                        .d_x = at(d_residual),
                                        .d_weight = context.gradients.view(norm.unit, norm.weight),
                                        .d_bias = context.gradients.view(norm.unit, norm.bias),
                                        .d_out = at(d_out),
                                        .input = at(norm.input),
                                        .mean = at(norm.mean),
                                        .rstd = at(norm.rstd),
                                        .weight = context.parameters.view(norm.unit, norm.weight),
                                        .rows = context.sizes.rows,
                                        .accumulate_input = accumulate_input,
                                        .accumulate_weights = context.gradients.accumulate()});
  context.parameters.done(norm.unit, norm.weight, norm.bias);
  context.emitter.release(norm.mean);
  context.emitter.release(norm.rstd);
}

TensorId norm_backward_anew(const Context& context, const Norm& norm, const char* name, int layer,
                            TensorId d_out) {
  const TensorId d_input = context.activation(name, layer, context.sizes.hidden);
  norm_backward(context, norm, d_input, d_out, false);
  context.emitter.release(d_out);
  context.emitter.release(norm.input);
  return d_input;
}

}  // namespace dstune::plan
