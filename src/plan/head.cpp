#include "head.hpp"

#include <algorithm>

namespace dstune::plan {
namespace {

using enum ParameterRole;

/// The matrix [vocab, hidden] and its gradient.
struct HeadWeight {
  View weight, gradient;
};

void emit_chunk(const Context& context, const HeadWeight& head, TensorId hidden, TensorId d_hidden,
                TensorId logits, TensorId losses, std::int64_t first, std::int64_t count) {
  const Sizes& sizes = context.sizes;
  Emitter& emitter = context.emitter;
  op::Matmul matmul{.a = at(hidden, first * sizes.hidden),
                    .b = head.weight,
                    .bias = {},
                    .c = at(logits),
                    .workspace = {},
                    .m = count,
                    .n = sizes.vocab,
                    .k = sizes.hidden,
                    .transpose_a = false,
                    .transpose_b = true,
                    .accumulate = false};
  emitter.emit(op::Mark{Phase::forward});
  emitter.matmul(matmul);
  const auto averaged = static_cast<double>(sizes.rows * context.config.accumulation_steps);
  emitter.emit(op::CrossEntropy{at(losses, first), at(logits), first, count,
                                static_cast<float>(1.0 / averaged)});
  emitter.emit(op::Mark{Phase::backward});
  matmul = {.a = at(logits),
            .b = head.weight,
            .bias = {},
            .c = at(d_hidden, first * sizes.hidden),
            .workspace = {},
            .m = count,
            .n = sizes.hidden,
            .k = sizes.vocab,
            .transpose_a = false,
            .transpose_b = false,
            .accumulate = false};
  emitter.matmul(matmul);
  matmul = {.a = at(logits),
            .b = at(hidden, first * sizes.hidden),
            .bias = {},
            .c = head.gradient,
            .workspace = {},
            .m = sizes.vocab,
            .n = sizes.hidden,
            .k = count,
            .transpose_a = true,
            .transpose_b = false,
            .accumulate = first > 0 || context.gradients.accumulate()};
  emitter.matmul(matmul);
}

/// Logits, losses and the gradient of `hidden`, which it returns.
TensorId emit_chunks(const Context& context, const HeadWeight& head, TensorId hidden) {
  const Sizes& sizes = context.sizes;
  Emitter& emitter = context.emitter;
  const std::int64_t chunk = rows_per_chunk(sizes.rows, sizes.vocab, emitter.type());
  const TensorId d_hidden = context.activation("d hidden", -1, sizes.rows * sizes.hidden);
  const TensorId losses = context.statistics("losses", -1, sizes.rows);
  const TensorId logits = context.activation("logits", -1, chunk * sizes.vocab);
  for (std::int64_t first = 0; first < sizes.rows; first += chunk) {
    emit_chunk(context, head, hidden, d_hidden, logits, losses, first,
               std::min(chunk, sizes.rows - first));
  }
  emitter.release(logits);
  emitter.emit(op::AccumulateLoss{at(losses), sizes.rows});
  emitter.release(losses);
  return d_hidden;
}

}  // namespace

std::int64_t rows_per_chunk(std::int64_t rows, std::int64_t vocab, DType type) {
  const std::int64_t most =
      std::max(logits_chunk_rows, logits_chunk_bytes / (vocab * size_bytes(type)));
  const std::int64_t chunks = (rows + most - 1) / most;
  return std::min(rows, std::max(logits_chunk_rows, (rows + chunks - 1) / chunks));
}

TensorId emit_head(const Context& context, const Running& running, MicroStep micro) {
  const Sizes& sizes = context.sizes;
  Emitter& emitter = context.emitter;
  const int unit = static_cast<int>(context.model.num_layers) + 1;
  const bool tied = context.model.tie_embeddings;
  Norm norm{.unit = unit, .weight = final_norm_weight, .bias = final_norm_bias};
  norm.input = context.activation("residual", -1, sizes.rows * sizes.hidden);
  norm_forward(context, norm, running.residual, running.x);
  emitter.release(running.x);
  if (context.config.recompute == Recompute::block) emitter.release(running.residual);

  context.gradients.begin_backward(micro);
  context.gradients.open(unit);
  if (tied) context.gradients.open(0);
  const int head_unit = tied ? 0 : unit;
  const ParameterRole role = tied ? token_embedding : head_weight;
  // Forward and backward of the head are one here, but two uses of its weight.
  context.parameters.use(head_unit, role, role);
  context.parameters.done(head_unit, role, role);
  context.parameters.use(head_unit, role, role);
  const HeadWeight head{context.parameters.view(head_unit, role),
                        context.gradients.view(head_unit, role)};
  const TensorId d_hidden = emit_chunks(context, head, norm.out);
  context.parameters.done(head_unit, role, role);
  emitter.release(norm.out);

  const TensorId d_residual = context.activation("d residual", -1, sizes.rows * sizes.hidden);
  norm_backward(context, norm, d_residual, d_hidden, false);
  emitter.release(d_hidden);
  emitter.release(norm.input);
  context.gradients.close(unit);
  return d_residual;
}

}  // namespace dstune::plan
