#include <cmath>

#include "parts/parts.hpp"

namespace dstune::plan {
namespace {

using enum ParameterRole;

/// Keeps the inputs of blocks in host memory between forward and backward. It acts if blocks are
/// computed again and `cpu_checkpointing` asks for it.
///
/// DeepSpeed 0.19.6 does the same (runtime/activation_checkpointing/offload_activations.py), on a
/// stream of its own. The newest input stays on the device, and the one before it is still there
/// when backward begins. DeepSpeed's host issues the copies back ahead of the device; here they
/// begin a block ahead.
class HostCheckpoints {
 public:
  /// Does nothing where nothing asks for it.
  HostCheckpoints(const Context& context, std::vector<Block>& blocks);

  void after_forward(int layer) {
    if (checkpoints_.empty()) return;
    if (layer >= 2) drop_from_device(layer - 2);
    if (layer >= 1) send(layer - 1);
  }

  void before_backward(int layer) {
    if (checkpoints_.empty()) return;
    Checkpoint& checkpoint = at_layer(layer);
    if (checkpoint.host != no_tensor) {
      context_.emitter.wait(Stream::compute, checkpoint.event);
      context_.emitter.release(checkpoint.host);
    }
    if (layer > 0 && on_device(layer - 1) == no_tensor) fetch(layer - 1);
  }

 private:
  struct Checkpoint {
    TensorId host = no_tensor;
    int event = -1;  ///< of the last copy of it
  };

  void send(int layer) {
    const std::int64_t elements = context_.sizes.rows * context_.sizes.hidden;
    Emitter& emitter = context_.emitter;
    Checkpoint& checkpoint = at_layer(layer);
    checkpoint.host = emitter.acquire("checkpoint", layer, Category::activations, emitter.type(),
                                      elements, Memory::host);
    const Stream stream = emitter.begin_beside(true, Stream::copy);
    emitter.emit(op::Copy{at(checkpoint.host), at(on_device(layer)), elements}, stream);
    checkpoint.event = emitter.record(stream);
  }

  void drop_from_device(int layer) {
    context_.emitter.wait(Stream::compute, at_layer(layer).event);
    context_.emitter.release(on_device(layer));
    on_device(layer) = no_tensor;
  }

  void fetch(int layer) {
    const std::int64_t elements = context_.sizes.rows * context_.sizes.hidden;
    Emitter& emitter = context_.emitter;
    on_device(layer) = context_.activation("residual", layer, context_.sizes.hidden);
    const Stream stream = emitter.begin_beside(true, Stream::copy);
    emitter.emit(op::Copy{at(on_device(layer)), at(at_layer(layer).host), elements}, stream);
    at_layer(layer).event = emitter.record(stream);
  }

  [[nodiscard]] TensorId& on_device(int layer) { return blocks_[layer].input(); }
  [[nodiscard]] Checkpoint& at_layer(int layer) { return checkpoints_[layer]; }

  const Context& context_;
  std::vector<Block>& blocks_;
  std::vector<Checkpoint> checkpoints_;  // by layer; none where nothing asks for them
};

HostCheckpoints::HostCheckpoints(const Context& context, std::vector<Block>& blocks)
    : context_(context), blocks_(blocks) {
  if (context.config.cpu_checkpointing && context.config.recompute == Recompute::block)
    checkpoints_.resize(context.model.num_layers);
}

/// At both ends of each checkpoint's forward and backward the host waits for all that the device
/// was given, and gives it nothing before.
void wait_at_boundary(const Context& context) {
  const TrainingConfig& config = context.config;
  if (!config.synchronize_checkpoint_boundary || config.recompute != Recompute::block) return;
  Emitter& emitter = context.emitter;
  const auto wait_for = [&](Stream stream) {
    emitter.wait(Stream::compute, emitter.record(stream));
  };
  if (config.overlap_comm && config.zero_stage > 0) wait_for(Stream::reduce);
  if (config.overlap_comm && config.zero_stage == 3) wait_for(Stream::gather);
  if (config.cpu_checkpointing) wait_for(Stream::copy);
}

/// The factor on the sum of embeddings.
double embedding_factor(const Context& context) {
  const Architecture& parts = context.model.architecture;
  if (!parts.scaled_embeddings) return parts.embedding_multiplier;
  const double factor = std::sqrt(static_cast<double>(context.model.hidden_size));
  const DType type = context.emitter.type();
  if (type == DType::f32) return factor;
  // Rounded to the digits of the type, as Hugging Face's module has it.
  const int digits = type == DType::bf16 ? 8 : 11;
  int exponent = 0;
  const double fraction = std::frexp(factor, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, digits)), exponent - digits);
}

/// The model's first part: tokens, positions and types looked up and added, and normed where norms
/// come after their branch.
class Embedding {
 public:
  explicit Embedding(const Context& context)
      : context_(context),
        normed_(context.model.architecture.block == BlockKind::post_norm),
        last_table_(context.model.architecture.token_types > 0 ? token_type_embedding
                                                               : position_embedding),
        norm_{.unit = 0, .weight = embedding_norm_weight, .bias = embedding_norm_bias} {}

  Running forward() {
    const Sizes& sizes = context_.sizes;
    const TensorId sum = context_.activation("residual", -1, sizes.hidden);
    context_.parameters.use(0, token_embedding, last_table_);
    context_.emitter.emit(
        op::EmbeddingForward{at(sum), context_.parameters.view(0, token_embedding),
                             first_position(context_.parameters.view(0, position_embedding)),
                             context_.parameters.view(0, token_type_embedding), sizes.rows});
    context_.parameters.done(0, token_embedding, last_table_);
    multiply(context_, sum, embedding_factor(context_));
    norm_.input = sum;
    if (normed_) norm_forward(context_, norm_, sum, no_tensor);
    return {normed_ ? norm_.out : sum, no_tensor, false};
  }

  /// Takes over the gradient of forward's result; closes unit 0's gradients. (With tied embeddings
  /// they are open already and hold the head's.)
  void backward(TensorId d_out) {
    const Sizes& sizes = context_.sizes;
    Emitter& emitter = context_.emitter;
    const bool tied = context_.model.tie_embeddings;
    const bool accumulate = context_.gradients.accumulate();
    if (!tied) context_.gradients.open(0);
    const TensorId d_sum =
        normed_ ? norm_backward_anew(context_, norm_, "d residual", -1, d_out) : d_out;
    multiply(context_, d_sum, embedding_factor(context_));
    // DeepSpeed gathers the tables before their backward, which does not read them.
    context_.parameters.use(0, token_embedding, last_table_);
    positions_backward(accumulate);
    emitter.emit(op::EmbeddingBackward{
        .d_token_table = context_.gradients.view(0, token_embedding),
        .d_position_table = first_position(context_.gradients.view(0, position_embedding)),
        .d_out = at(d_sum),
        .rows = sizes.rows,
        // A tied table holds the head's gradient already.
        .accumulate_tokens = tied || accumulate,
        .accumulate_positions = accumulate});
    types_backward(d_sum, accumulate);
    context_.parameters.done(0, token_embedding, last_table_);
    emitter.release(d_sum);
    context_.gradients.close(0);
  }

 private:
  void positions_backward(bool accumulate) const {
    const View d_positions = context_.gradients.view(0, position_embedding);
    if (!d_positions || accumulate) return;
    // The rows of positions that occur are overwritten; the others have no gradient.
    const std::int64_t hidden = context_.sizes.hidden;
    const std::int64_t before = context_.model.architecture.position_offset;
    const std::int64_t used = context_.config.sequence_length;
    const std::int64_t after = context_.model.max_positions - used;
    if (before > 0) context_.emitter.emit(op::Fill{d_positions, 0.0F, before * hidden});
    if (after > 0) {
      context_.emitter.emit(
          op::Fill{moved(d_positions, (before + used) * hidden), 0.0F, after * hidden});
    }
  }

  void types_backward(TensorId d_sum, bool accumulate) const {
    const View d_types = context_.gradients.view(0, token_type_embedding);
    if (!d_types) return;
    // All tokens are of type 0, so its gradient is the sum over rows; the others have none.
    const Sizes& sizes = context_.sizes;
    context_.emitter.emit(op::BiasBackward{
        d_types, at(d_sum), {}, sizes.rows, sizes.hidden, sizes.hidden, accumulate});
    const std::int64_t others = (context_.model.architecture.token_types - 1) * sizes.hidden;
    if (others > 0 && !accumulate)
      context_.emitter.emit(op::Fill{moved(d_types, sizes.hidden), 0.0F, others});
  }

  /// Position 0's row.
  [[nodiscard]] View first_position(View table) const {
    if (!table) return {};
    return moved(table, context_.model.architecture.position_offset * context_.sizes.hidden);
  }

  const Context& context_;
  bool normed_;
  ParameterRole last_table_;  // of those that are looked up, in the flat order
  Norm norm_;
};

/// Repeats what layers that stand for others, too, write down.
class Folding {
 public:
  explicit Folding(const Context& context) : emitter_(context.emitter), fold_(context.fold) {}

  void before_forward(int layer) {
    if (fold_ == nullptr) return;
    if (layer == fold_->alike_from) first_alike_ = emitter_.now();
    if (layer == fold_->split - fold_->period) begin_ = emitter_.now();
    if (layer == fold_->split) repeat();
  }

  void before_backward(int layer) {
    if (fold_ == nullptr) return;
    if (layer == fold_->alike_to - 1) first_alike_ = emitter_.now();
    if (layer == fold_->split + fold_->period - 1) begin_ = emitter_.now();
    if (layer == fold_->split - 1) repeat();
  }

 private:
  void repeat() { emitter_.repeat(first_alike_, begin_, 1 + fold_->left_out / fold_->period); }

  Emitter& emitter_;
  const LayerFold* fold_;
  Emitter::Instant first_alike_, begin_;
};

}  // namespace

void emit_micro_step(const Context& context, MicroStep micro) {
  context.emitter.emit(op::Mark{Phase::forward});
  Embedding embedding(context);
  Running running = embedding.forward();
  const auto layers = static_cast<int>(context.model.num_layers);
  std::vector<Block> blocks;
  blocks.reserve(layers);
  HostCheckpoints checkpoints(context, blocks);
  Folding folding(context);
  for (int layer = 0; layer < layers; ++layer) {
    folding.before_forward(layer);
    blocks.emplace_back(context, layer);
    wait_at_boundary(context);
    running = blocks.back().forward(running);
    checkpoints.after_forward(layer);
  }
  wait_at_boundary(context);
  TensorId d_residual = emit_head(context, running, micro);
  for (int layer = layers - 1; layer >= 0; --layer) {
    folding.before_backward(layer);
    wait_at_boundary(context);
    checkpoints.before_backward(layer);
    d_residual = blocks[layer].backward(d_residual);
  }
  wait_at_boundary(context);
  embedding.backward(d_residual);
  context.parameters.end_micro_step();
  context.gradients.end_backward();
}

}  // namespace dstune::plan
