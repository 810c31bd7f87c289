#include "parts/micro_step.hpp"

namespace dstune::plan {
namespace {

/// Where blocks are computed again and `cpu_checkpointing` asks for it: their inputs are in host
/// memory between forward and backward. As DeepSpeed 0.19.6 does it
/// (runtime/activation_checkpointing/offload_activations.py): on a stream of its own; the newest
/// input stays on the device, and the one before it is still there when backward begins.
/// DeepSpeed's host issues the copies back ahead of the device; here they begin a block ahead.
class HostCheckpoints {
 public:
  /// Does nothing where nothing asks for it.
  HostCheckpoints(const Context& context, std::vector<Block>& blocks);

  void after_forward(int layer);
  void before_backward(int layer);

 private:
  struct Checkpoint {
    TensorId host = no_tensor;
    int event = -1;  ///< of the last copy of it
  };

  void send(int layer);
  void drop_from_device(int layer);
  void fetch(int layer);

  [[nodiscard]] TensorId& on_device(int layer) {
    return blocks_[static_cast<std::size_t>(layer)].input();
  }
  [[nodiscard]] Checkpoint& at_layer(int layer) {
    return checkpoints_[static_cast<std::size_t>(layer)];
  }

  const Context& context_;
  std::vector<Block>& blocks_;
  std::vector<Checkpoint> checkpoints_;  // by layer; none where nothing asks for them
};

HostCheckpoints::HostCheckpoints(const Context& context, std::vector<Block>& blocks)
    : context_(context), blocks_(blocks) {
  if (context.config.cpu_checkpointing && context.config.recompute == Recompute::block)
    checkpoints_.resize(static_cast<std::size_t>(context.model.num_layers));
}

void HostCheckpoints::after_forward(int layer) {
  if (checkpoints_.empty()) return;
  if (layer >= 2) drop_from_device(layer - 2);
  if (layer >= 1) send(layer - 1);
}

void HostCheckpoints::before_backward(int layer) {
  if (checkpoints_.empty()) return;
  Checkpoint& checkpoint = at_layer(layer);
  if (checkpoint.host != no_tensor) {
    context_.emitter.wait(Stream::compute, checkpoint.event);
    context_.emitter.release(checkpoint.host);
  }
  if (layer > 0 && on_device(layer - 1) == no_tensor) fetch(layer - 1);
}

void HostCheckpoints::send(int layer) {
  const std::int64_t elements = context_.sizes.rows * context_.sizes.hidden;
  Emitter& emitter = context_.emitter;
  Checkpoint& checkpoint = at_layer(layer);
  checkpoint.host = emitter.acquire("checkpoint", layer, Category::activations, emitter.type(),
                                    elements, Memory::host);
  const Stream stream = emitter.begin_beside(true, Stream::copy);
  emitter.emit(op::Copy{at(checkpoint.host), at(on_device(layer)), elements}, stream);
  checkpoint.event = emitter.record(stream);
}

void HostCheckpoints::drop_from_device(int layer) {
  context_.emitter.wait(Stream::compute, at_layer(layer).event);
  context_.emitter.release(on_device(layer));
  on_device(layer) = no_tensor;
}

void HostCheckpoints::fetch(int layer) {
  const std::int64_t elements = context_.sizes.rows * context_.sizes.hidden;
  Emitter& emitter = context_.emitter;
  on_device(layer) = context_.activation("residual", layer, elements);
  const Stream stream = emitter.begin_beside(true, Stream::copy);
  emitter.emit(op::Copy{at(on_device(layer)), at(at_layer(layer).host), elements}, stream);
  at_layer(layer).event = emitter.record(stream);
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

}  // namespace

void emit_micro_step(const Context& context, MicroStep micro) {
  context.emitter.emit(op::Mark{Phase::forward});
  Embedding embedding(context);
  Running running = embedding.forward();
  const auto layers = static_cast<int>(context.model.num_layers);
  std::vector<Block> blocks;
  blocks.reserve(static_cast<std::size_t>(layers));
  HostCheckpoints checkpoints(context, blocks);
  for (int layer = 0; layer < layers; ++layer) {
    blocks.emplace_back(context, layer);
    wait_at_boundary(context);
    running = blocks.back().forward(running);
    checkpoints.after_forward(layer);
  }
  wait_at_boundary(context);
  TensorId d_residual = emit_head(context, running, micro);
  for (int layer = layers - 1; layer >= 0; --layer) {
    wait_at_boundary(context);
    checkpoints.before_backward(layer);
    d_residual = blocks[static_cast<std::size_t>(layer)].backward(d_residual);
  }
  wait_at_boundary(context);
  embedding.backward(d_residual);
  context.parameters.end_micro_step();
  context.gradients.end_backward();
}

}  // namespace dstune::plan
