#include "target_activations.hpp"

#include <algorithm>

#include "dstune/plan/step_plan.hpp"

namespace dstune::plan {
namespace {

/// What the terms are made of. All of it counts for one token.
struct Shape {
  std::int64_t element_bytes, hidden, heads_width, kv_width, intermediate, heads, sequence;
  bool dropout, eager, softmax_in_fp32;
};

/// Byte masks of `count` elements, where there is dropout.
std::int64_t mask(const Shape& shape, std::int64_t count) {
  return shape.dropout ? count : 0;
}

/// Both norms of a layer: inputs, outputs, statistics.
std::int64_t norms(const Shape& shape, const Architecture& parts) {
  const std::int64_t e = shape.element_bytes;
  if (parts.norm == NormKind::rms) {
    // It computes in fp32: that input, the normalised value before the weight, the output.
    return 2 * ((4 + 2 * e) * shape.hidden + 4);
  }
  // Parallel branches share their norms' input.
  const std::int64_t tensors = parts.block == BlockKind::parallel ? 3 : 4;
  return tensors * e * shape.hidden + 2 * 8;
}

/// q, k, v, the projection's input, and what attention keeps.
std::int64_t attention_bytes(const Shape& shape, const Architecture& parts) {
  const std::int64_t e = shape.element_bytes;
  const std::int64_t scores = shape.heads * shape.sequence;
  // Keys and values are repeated for every head but in the flash kernels of their own.
  const std::int64_t keys_and_values = shape.eager ? 2 * shape.heads_width : 2 * shape.kv_width;
  const std::int64_t eager = (shape.softmax_in_fp32 ? 4 + e : e) * scores + mask(shape, scores) +
                             (shape.dropout ? e * scores : 0);
  // The heads' norms compute in fp32, as above; their results are q and k.
  const std::int64_t normed_heads =
      parts.query_key_norm ? (4 + e) * (shape.heads_width + shape.kv_width) : 0;
  const std::int64_t branch_mask =
      parts.norm == NormKind::layer ? mask(shape, shape.hidden) : std::int64_t{0};
  return e * (2 * shape.heads_width + keys_and_values) + normed_heads + branch_mask +
         (shape.eager ? eager : 4 * shape.heads);
}

/// Tensors of the MLP's width that stay for backward.
std::int64_t mlp_tensors(const Architecture& parts) {
  if (parts.gated) return 4;  // gate, its SiLU, up, product
  switch (parts.activation) {
    case Activation::gelu_tanh:
      // Written out in Python: its input, 0.5·x, tanh, 1 + tanh, and the product.
      return 5;
    case Activation::relu:
      return 1;  // its result alone
    case Activation::gelu:
    case Activation::silu:
      break;
  }
  return 2;
}

std::int64_t layer_bytes(const Shape& shape, const Architecture& parts) {
  const std::int64_t branch_mask =
      parts.norm == NormKind::layer ? mask(shape, shape.hidden) : std::int64_t{0};
  const std::int64_t mlp =
      mlp_tensors(parts) * shape.element_bytes * shape.intermediate + branch_mask;
  return norms(shape, parts) + attention_bytes(shape, parts) + mlp;
}

/// Embeddings, final norm, and the head's input.
std::int64_t ends_bytes(const Shape& shape, const Architecture& parts) {
  const std::int64_t e = shape.element_bytes;
  std::int64_t bytes = 2 * e * shape.hidden;
  bytes += parts.norm == NormKind::rms ? 4 * shape.hidden : mask(shape, shape.hidden);
  // The norm of the embeddings; the transform's product, activation, and their norm.
  if (parts.block == BlockKind::post_norm) bytes += 2 * e * shape.hidden;
  if (parts.objective == Objective::masked_token) bytes += 3 * e * shape.hidden;
  return bytes;
}

/// Gradients that are alive at once in the backward of one layer.
std::int64_t backward_working_set(const Shape& shape) {
  const std::int64_t e = shape.element_bytes;
  const std::int64_t wide =
      std::max(2 * shape.intermediate, shape.heads_width + 2 * shape.kv_width);
  return e * (2 * shape.hidden + wide) + (shape.eager ? 2 * e * shape.heads * shape.sequence : 0);
}

}  // namespace

TargetActivations target_activations(const ModelSpec& model, const TrainingConfig& config,
                                     TargetAttention attention) {
  const Architecture& parts = model.architecture;
  const std::int64_t tokens = config.micro_batch * config.sequence_length;
  const Shape shape{
      .element_bytes = size_bytes(element_type(config.precision)),
      .hidden = model.hidden_size,
      .heads_width = model.num_heads * model.head_size,
      .kv_width = model.num_kv_heads * model.head_size,
      .intermediate = model.intermediate_size,
      .heads = model.num_heads,
      .sequence = config.sequence_length,
      .dropout = model.dropout > 0,
      .eager = attention == TargetAttention::eager,
      .softmax_in_fp32 = model.family != ModelFamily::gpt2 && model.family != ModelFamily::bert};
  const std::int64_t e = shape.element_bytes;
  const std::int64_t layer = layer_bytes(shape, parts);
  const std::int64_t layers = config.recompute == Recompute::block
                                  ? model.num_layers * e * shape.hidden + layer
                                  : model.num_layers * layer;
  // SDPA is given a causal mask of its own where the batch is padded.
  const std::int64_t attention_mask = attention == TargetAttention::flash ? 0 : e * shape.sequence;
  TargetActivations result;
  result.activations =
      tokens * (layers + ends_bytes(shape, parts) + attention_mask + backward_working_set(shape));
  // 16-bit logits and their gradient, log-probabilities and their gradient in fp32; in fp32
  // training the logits themselves, log-probabilities, and gradient.
  result.logits = tokens * model.vocab_size * 12;
  return result;
}

}  // namespace dstune::plan
