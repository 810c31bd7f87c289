#include "target_activations.hpp"

#include <algorithm>

#include "dstune/plan/step_plan.hpp"

namespace dstune::plan {
namespace {

/// What the terms are made of. All of it counts for one token.
struct Shape {
  std::int64_t element_bytes, hidden, heads_width, kv_width, intermediate, heads, sequence;
  bool dropout, eager;
};

/// Byte masks of `count` elements, where there is dropout.
std::int64_t mask(const Shape& shape, std::int64_t count) {
  return shape.dropout ? count : 0;
}

std::int64_t gpt2_layer(const Shape& shape) {
  const std::int64_t e = shape.element_bytes;
  const std::int64_t scores = shape.heads * shape.sequence;
  const std::int64_t norms =
      2 * (2 * e * shape.hidden + 8);  // input and output of both, statistics
  const std::int64_t attention =
      e * 3 * shape.hidden + e * shape.hidden + mask(shape, shape.hidden) +
      (shape.eager ? e * scores + mask(shape, scores) + (shape.dropout ? e * scores : 0)
                   : 4 * shape.heads);
  // GELU is written out in Python: its input, 0.5·x, tanh, 1 + tanh, and the product.
  const std::int64_t mlp = 5 * e * shape.intermediate + mask(shape, shape.hidden);
  return norms + attention + mlp;
}

std::int64_t llama_layer(const Shape& shape) {
  const std::int64_t e = shape.element_bytes;
  const std::int64_t scores = shape.heads * shape.sequence;
  // The norm computes in fp32: that input, the normalised value before the weight, the output.
  const std::int64_t norms = 2 * ((4 + 2 * e) * shape.hidden + 4);
  // Keys and values are repeated for every head but in the flash kernels of their own.
  const std::int64_t repeated = shape.eager ? 2 * shape.heads_width : 2 * shape.kv_width;
  const std::int64_t attention =
      e * (2 * shape.heads_width + repeated) +
      (shape.eager ? (4 + e) * scores + mask(shape, scores) + (shape.dropout ? e * scores : 0)
                   : 4 * shape.heads);
  const std::int64_t mlp = 4 * e * shape.intermediate;
  return norms + attention + mlp;
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
  const bool gpt2 = model.family == ModelFamily::gpt2;
  const std::int64_t tokens = config.micro_batch * config.sequence_length;
  const Shape shape{.element_bytes = size_bytes(element_type(config.precision)),
                    .hidden = model.hidden_size,
                    .heads_width = model.num_heads * model.head_size,
                    .kv_width = model.num_kv_heads * model.head_size,
                    .intermediate = model.intermediate_size,
                    .heads = model.num_heads,
                    .sequence = config.sequence_length,
                    .dropout = model.dropout > 0,
                    .eager = attention == TargetAttention::eager};
  const std::int64_t e = shape.element_bytes;
  const std::int64_t layer = gpt2 ? gpt2_layer(shape) : llama_layer(shape);
  const std::int64_t layers = config.recompute == Recompute::block
                                  ? model.num_layers * e * shape.hidden + layer
                                  : model.num_layers * layer;
  // Embedding dropout, final norm, and the head's input.
  const std::int64_t ends =
      (gpt2 ? mask(shape, shape.hidden) : 4 * shape.hidden) + 2 * e * shape.hidden;
  // SDPA is given a causal mask of its own where the batch is padded.
  const std::int64_t attention_mask = attention == TargetAttention::flash ? 0 : e * shape.sequence;
  TargetActivations result;
  result.activations = tokens * (layers + ends + attention_mask + backward_working_set(shape));
  // 16-bit logits and their gradient, log-probabilities and their gradient in fp32; in fp32
  // training the logits themselves, log-probabilities, and gradient.
  result.logits = tokens * model.vocab_size * 12;
  return result;
}

}  // namespace dstune::plan
