#include <algorithm>

#include "dstune/base/checked.hpp"
#include "dstune/base/error.hpp"
#include "dstune/plan/step_plan.hpp"
#include "target/target.hpp"

namespace dstune::plan {
namespace {

/// Traits of Hugging Face's modules of a family that its architecture does not say.
struct Modules {
  /// Drops out of the embeddings, of what a branch adds, of attention's probabilities. Families
  /// whose published configs have no such dropout are taken without.
  bool embedding_dropout = false, branch_dropout = false, attention_dropout = false;
  /// Eager attention takes its softmax in fp32 and rounds the result.
  bool softmax_in_fp32 = false;
  /// q, k and v are views of one product, and q and k are copied when they are rotated. So v keeps
  /// all of the product alive.
  bool copies_merged_qkv = false;
  /// The copies' layout makes attention's result be copied, too.
  bool copies_result = false;
  /// Keys and values are repeated for every head before any kernel.
  bool repeats_keys = false;
  /// One head of keys and values is given to sdpa as it is, which only PyTorch's written-out
  /// attention takes: in 16 bits it computes in fp32.
  bool broadcasts_keys = false;
  /// The mask is always made. PyTorch's flash kernel takes none, and the one that does keeps it in
  /// the model's precision.
  bool makes_mask = false;
  /// RMSNorm multiplies by its weight in fp32, and rounds what comes out: the value before the
  /// weight is kept in fp32.
  bool weights_norms_in_fp32 = false;
  bool lacks_sdpa = false;  ///< transformers computes its attention eagerly in the place of sdpa
};

/// Falcon's new architecture, which repeats keys, is the one with some heads of them or two norms.
Modules falcon_modules(const ModelSpec& model) {
  const Architecture& parts = model.architecture;
  const bool has_two_norms = parts.block == BlockKind::parallel && !parts.shared_norm;
  const bool is_new =
      has_two_norms || (model.num_kv_heads > 1 && model.num_kv_heads < model.num_heads);
  return {.copies_merged_qkv = !is_new,
          .repeats_keys = is_new,
          .broadcasts_keys = !is_new && model.num_kv_heads < model.num_heads,
          .makes_mask = true};
}

Modules modules_of(const ModelSpec& model) {
  switch (model.family) {
    case ModelFamily::gpt2:
    case ModelFamily::bert:
      return {true, true, true};
    case ModelFamily::opt:
      return {false, true, false, true};
    case ModelFamily::gpt_neox:
      return {true, true, true, true, true, true};
    case ModelFamily::phi3:
      return {false, false, true, true, true, true};
    case ModelFamily::falcon:
      return falcon_modules(model);
    case ModelFamily::llama:
    case ModelFamily::mistral:
    case ModelFamily::qwen2:
    case ModelFamily::qwen3:
    case ModelFamily::smollm3:
    case ModelFamily::granite:
      break;
    case ModelFamily::olmo2:
    case ModelFamily::gemma3_text:
      return {.attention_dropout = true, .softmax_in_fp32 = true, .weights_norms_in_fp32 = true};
    case ModelFamily::gemma2:
      return {.attention_dropout = true,
              .softmax_in_fp32 = true,
              .weights_norms_in_fp32 = true,
              .lacks_sdpa = true};
  }
  return {false, false, true, true};
}

/// Kept for the gradients of weights, which frozen ones have not: the inputs of linear layers and,
/// of norms in fp32, the value before the weight. All else is kept for frozen weights, too.
struct SavedInputs {
  bool attention_input = true, mlp_input = true, mlp_product = true, head_input = true;
  int values_of_norms = 2;  ///< of a layer's norms
  bool value_of_final_norm = true;
  std::int64_t adapters_bytes = 0;  ///< in all layers: what LoRA's first matrices give the second
};

SavedInputs kept_of(const ModelSpec& model, const TrainedParameters& trained,
                    std::int64_t adapter_bytes) {
  const auto trains = [&](ParameterRole role) { return trained.roles.contains(role); };
  constexpr ParameterRole norm_roles[] = {ParameterRole::norm1_weight, ParameterRole::norm2_weight,
                                          ParameterRole::branch_norm1_weight,
                                          ParameterRole::branch_norm2_weight};
  return {.attention_input = trains(ParameterRole::qkv_weight),
          .mlp_input = trains(ParameterRole::fc_weight),
          .mlp_product = trains(ParameterRole::fc_projection_weight),
          .head_input = trains(model.tie_embeddings ? ParameterRole::token_embedding
                                                    : ParameterRole::head_weight),
          .values_of_norms = static_cast<int>(std::ranges::count_if(norm_roles, trains)),
          .value_of_final_norm = trains(ParameterRole::final_norm_weight),
          .adapters_bytes = trained.adapters * adapter_bytes};
}

/// The sizes that the terms are made of. All of them count for one token.
struct Shape {
  std::int64_t element_bytes, hidden, heads_width, kv_width, intermediate, heads, kv_heads,
      sequence;
  bool dropout, eager, one_sample;
  bool sdpa;
  /// Liger's kernels: norms keep no copy in fp32, SwiGLU keeps its two inputs alone and makes their
  /// gradients in their place.
  bool liger;
  Modules modules;
  SavedInputs kept;
};

/// Byte masks of `count` elements, where there is dropout.
std::int64_t mask(const Shape& shape, bool drops, std::int64_t count) {
  return shape.dropout && drops ? count : 0;
}

/// Bytes of an element of the value that RMSNorm multiplies by its weight.
std::int64_t value_bytes(const Shape& shape) {
  return shape.modules.weights_norms_in_fp32 ? 4 : shape.element_bytes;
}

/// A layer's norms.
std::int64_t num_norms(const Architecture& parts) {
  return parts.block == BlockKind::double_norm ? 4 : 2;
}

/// The norms of a layer: inputs, outputs that stay, statistics.
std::int64_t norms(const Shape& shape, const Architecture& parts) {
  const std::int64_t width = shape.element_bytes * shape.hidden;
  const int outputs_kept = (shape.kept.attention_input ? 1 : 0) + (shape.kept.mlp_input ? 1 : 0);
  if (parts.shared_norm) return width + std::min(outputs_kept, 1) * width + 8;
  const std::int64_t outputs = outputs_kept * width;
  if (parts.norm == NormKind::rms && shape.liger) return num_norms(parts) * (width + 4) + outputs;
  if (parts.norm == NormKind::rms) {
    // It computes in fp32: that input, the normalised value before the weight, the output.
    return num_norms(parts) * (4 * shape.hidden + 4) +
           shape.kept.values_of_norms * value_bytes(shape) * shape.hidden + outputs;
  }
  // Parallel branches share their norms' input.
  const std::int64_t inputs = parts.block == BlockKind::parallel ? 1 : 2;
  return inputs * width + outputs + 2 * 8;
}

/// Eager attention's probabilities as they come out of the softmax, as they are multiplied with v
/// where those are others, and the mask between them.
std::int64_t probabilities(const Shape& shape, const Architecture& parts) {
  const std::int64_t e = shape.element_bytes;
  const std::int64_t scores = shape.heads * shape.sequence;
  const std::int64_t capped = parts.attention_softcap > 0 ? e * scores : 0;  // the tanh's result
  const bool rounds = shape.modules.softmax_in_fp32 && e < 4;
  const bool drops = shape.dropout && shape.modules.attention_dropout;
  return capped + (shape.modules.softmax_in_fp32 ? 4 : e) * scores +
         (rounds || drops ? e * scores : 0) + (drops ? scores : 0);
}

/// sdpa's attention written out in PyTorch, in fp32.
bool is_written_out(const Shape& shape) {
  return shape.sdpa && shape.modules.broadcasts_keys;
}

/// One sample's keys and values are multiplied as they are, those of several once for each head.
bool broadcasts(const Shape& shape) {
  return shape.modules.broadcasts_keys && shape.one_sample;
}

/// q, k, v, the projection's input, and what attention keeps.
std::int64_t attention_bytes(const Shape& shape, const Architecture& parts) {
  const std::int64_t e = shape.element_bytes;
  // The heads' norms compute in fp32, as above; their results are q and k.
  const std::int64_t normed_heads =
      parts.query_key_norm ? (4 + value_bytes(shape)) * (shape.heads_width + shape.kv_width) +
                                 4 * (parts.norm_spans_heads ? 2 : shape.heads + shape.kv_heads)
                           : 0;
  const std::int64_t around =
      normed_heads + mask(shape, shape.modules.branch_dropout, shape.hidden);
  // Keys and values are repeated for every head but in the kernels of their own.
  if (shape.eager) {
    // The v of a single sample is multiplied as the view that it is, if it is not repeated.
    const bool holds_product =
        shape.modules.copies_merged_qkv && shape.one_sample && shape.kv_width == shape.heads_width;
    const std::int64_t width = broadcasts(shape) ? 2 * shape.heads_width + 2 * shape.kv_width
                                                 : (holds_product ? 6 : 4) * shape.heads_width;
    return around + e * width + probabilities(shape, parts);
  }
  if (is_written_out(shape)) {
    const std::int64_t keys = broadcasts(shape) ? shape.kv_width : shape.heads_width;
    return around + 4 * (shape.heads_width + 2 * keys + shape.heads * shape.sequence) +
           e * shape.heads_width;
  }
  const std::int64_t keys = shape.modules.repeats_keys ? shape.heads_width : shape.kv_width;
  std::int64_t width = 2 * shape.heads_width + 2 * keys;
  if (shape.modules.copies_merged_qkv) width += shape.heads_width + shape.kv_width;
  if (shape.modules.copies_result) width += shape.heads_width;
  const std::int64_t kept_mask = shape.sdpa && shape.modules.makes_mask ? e * shape.sequence : 0;
  return around + e * width + 4 * shape.heads + kept_mask;
}

/// Tensors of the MLP's width that stay for backward.
std::int64_t mlp_tensors(const Shape& shape, const Architecture& parts) {
  const std::int64_t product = shape.kept.mlp_product ? 1 : 0;
  if (parts.gated) return (shape.liger ? 2 : 3) + product;  // gate, its SiLU, up
  switch (parts.activation) {
    case Activation::gelu_tanh:
      // Written out in Python: its input, 0.5·x, tanh, 1 + tanh.
      return 4 + product;
    case Activation::relu:
      return 1;  // its result alone
    case Activation::gelu:
    case Activation::silu:
      break;
  }
  return 1 + product;
}

std::int64_t mlp_bytes(const Shape& shape, const Architecture& parts) {
  return mlp_tensors(shape, parts) * shape.element_bytes * shape.intermediate +
         mask(shape, shape.modules.branch_dropout, shape.hidden);
}

std::int64_t layer_bytes(const Shape& shape, const Architecture& parts) {
  return norms(shape, parts) + attention_bytes(shape, parts) + mlp_bytes(shape, parts);
}

/// Kept of a layer that is computed again: its input and, with selective recompute, the results of
/// all products with weights and of attention kernels. Eager attention's products have none and are
/// computed again, scores and all.
std::int64_t checkpoint_bytes(const Shape& shape, Recompute recompute, bool gated) {
  const std::int64_t input = shape.element_bytes * shape.hidden;
  if (recompute == Recompute::block) return input;
  const std::int64_t qkv = shape.heads_width + 2 * shape.kv_width;
  const std::int64_t products = qkv + 2 * shape.hidden + (gated ? 2 : 1) * shape.intermediate;
  const std::int64_t attention =
      shape.eager ? 0 : shape.element_bytes * shape.heads_width + 4 * shape.heads;
  return input + shape.element_bytes * products + attention;
}

/// The batch itself (tokens, labels, positions in 64 bits), embeddings, final norm, and the head's
/// input.
std::int64_t ends_bytes(const Shape& shape, const Architecture& parts) {
  const std::int64_t e = shape.element_bytes;
  std::int64_t bytes = 5 * 8 + mask(shape, shape.modules.embedding_dropout, shape.hidden);
  if (parts.objective == Objective::masked_token) {
    // The embeddings' norm and its input; the transform's product, activation, and their norm.
    return bytes + 5 * e * shape.hidden;
  }
  const bool is_rms = parts.norm == NormKind::rms;
  bytes += is_rms ? 4 * shape.hidden : e * shape.hidden;
  if (is_rms && shape.kept.value_of_final_norm) bytes += value_bytes(shape) * shape.hidden;
  return bytes + (shape.kept.head_input ? e * shape.hidden : 0);
}

/// Gradients that are alive at once in the backward of one layer, beside what all layers keep.
std::int64_t backward_bytes(const Shape& shape, const Architecture& parts) {
  const std::int64_t e = shape.element_bytes;
  const bool in_place = parts.gated && shape.liger;
  const std::int64_t in_mlp = e * (2 * shape.hidden + (in_place ? 1 : 2) * shape.intermediate);
  const std::int64_t in_norm =
      parts.norm == NormKind::rms && !shape.liger ? 5 * 4 * shape.hidden : 0;
  // The softmax's gradient and that of its result; the MLP's and the rounded or dropped-out
  // probabilities are gone by then.
  const bool fp32 = shape.modules.softmax_in_fp32;
  const std::int64_t scores = shape.heads * shape.sequence;
  std::int64_t in_softmax = 0;
  if (is_written_out(shape)) in_softmax = 2 * 4 * scores - mlp_bytes(shape, parts);
  if (shape.eager) {
    in_softmax =
        (2 * (fp32 ? 4 : e) - e) * scores + e * 2 * shape.heads_width - mlp_bytes(shape, parts);
  }
  return std::max({in_mlp, in_norm, in_softmax});
}

/// Tokens whose logits a chunked loss holds at a time (TRL, its loss type "chunked_nll").
constexpr std::int64_t chunk_tokens = 256;

/// Bytes of the loss of a micro-batch at its fullest, the beginning of backward.
///
/// full: log-probabilities and two gradients. Models that predict the next token take them in fp32.
/// Their 16-bit logits are gone by then if the training loop keeps the loss alone.
/// in_place: the gradient takes the place of the logits that the loss is taken of, beside those of
/// the model and their gradient.
/// fused: Liger's kernel makes both gradients of the head's product in forward, for so many tokens
/// at a time that their logits take as much as the head's input.
std::int64_t loss_bytes(const Shape& shape, const TargetSpec& target, const ModelSpec& model,
                        std::int64_t tokens) {
  const std::int64_t e = shape.element_bytes;
  const bool in_fp32 = model.architecture.objective == Objective::next_token && target.fp32_logits;
  const std::int64_t taken = in_fp32 ? 4 : e;
  // A cap keeps the result of its tanh.
  const std::int64_t capped = model.architecture.logits_softcap > 0 ? e : 0;
  const std::int64_t held = capped + (target.keeps_output.value_or(target.on_gpu) ? e : 0);
  const auto of_logits = [&](std::int64_t rows, std::int64_t bytes) {
    return checked_product("logits", checked_product("logits", rows, bytes), model.vocab_size);
  };
  switch (target.loss) {
    case TargetLoss::full:
      return of_logits(tokens, 3 * taken + held);
    case TargetLoss::in_place:
      return of_logits(tokens, capped + taken + (taken == e ? 0 : 2 * e));
    case TargetLoss::chunked:
      return of_logits(std::min(tokens, chunk_tokens), 3 * taken + e + capped) +
             checked_product("logits", tokens, e * shape.hidden);
    case TargetLoss::fused:
      return checked_product("logits", tokens, (2 * e + taken) * shape.hidden) +
             of_logits(e, shape.hidden);
  }
  throw LogicError("a loss is a known one");
}

}  // namespace

TargetActivations target_activations(const ModelSpec& model, const TargetCounts& counts,
                                     const TrainingConfig& config, const TargetSpec& target) {
  const Architecture& parts = model.architecture;
  const std::int64_t tokens =
      checked_product("tokens of a micro-batch", config.micro_batch, config.sequence_length);
  // All terms below are of one token, but these.
  const auto of_tokens = [&](std::int64_t bytes) {
    return checked_product("activations of a micro-batch", tokens, bytes);
  };
  const std::int64_t e = size_bytes(element_type(config.precision));
  const bool is_sdpa = target.attention == TargetAttention::sdpa;
  // In fp32 no fused kernel of PyTorch takes fewer keys and values than heads: its sdpa is eager.
  const Modules modules = modules_of(model);
  const bool falls_back =
      is_sdpa && e == 4 && model.num_kv_heads != model.num_heads && !modules.repeats_keys;
  const bool is_eager =
      target.attention == TargetAttention::eager || falls_back || (is_sdpa && modules.lacks_sdpa);
  SavedInputs all_saved;
  all_saved.values_of_norms = static_cast<int>(num_norms(parts));
  const Shape shape{
      .element_bytes = e,
      .hidden = model.hidden_size,
      .heads_width = model.num_heads * model.head_size,
      .kv_width = model.num_kv_heads * model.head_size,
      .intermediate = model.intermediate_size,
      .heads = model.num_heads,
      .kv_heads = model.num_kv_heads,
      .sequence = config.sequence_length,
      .dropout = model.dropout > 0,
      .eager = is_eager,
      .one_sample = config.micro_batch == 1,
      .sdpa = is_sdpa && !is_eager,
      .liger = target.loss == TargetLoss::fused,
      .modules = modules,
      .kept = counts.parts ? kept_of(model, *counts.parts, target.trainable->rank * e) : all_saved};
  const std::int64_t layer = layer_bytes(shape, parts);
  // The device holds the newest of the inputs that go to the host, and one on its way.
  const bool on_host = config.cpu_checkpointing && config.recompute == Recompute::block;
  const std::int64_t checkpoints =
      on_host ? std::min<std::int64_t>(3, model.num_layers) : model.num_layers;
  const bool recomputes = config.recompute != Recompute::none;
  const std::int64_t checkpoint =
      recomputes ? checkpoint_bytes(shape, config.recompute, parts.gated) : 0;
  // Checkpoints keep a layer's arguments, with eager attention's mask for all of them.
  const std::int64_t layers =
      recomputes ? checkpoints * checkpoint + (shape.eager ? e * shape.sequence : 0)
                 : model.num_layers * layer + shape.kept.adapters_bytes;
  TargetActivations result;
  const std::int64_t backward = backward_bytes(shape, parts);
  result.kept = of_tokens(layers + ends_bytes(shape, parts));
  result.logits = loss_bytes(shape, target, model, tokens);
  result.layer = of_tokens(backward + (recomputes ? layer : 0));
  result.first_layer = of_tokens(backward + std::max(checkpoint, e * shape.hidden) + layer);
  return result;
}

}  // namespace dstune::plan
