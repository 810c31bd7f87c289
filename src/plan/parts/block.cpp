#include "parts/parts.hpp"

namespace dstune::plan {

using enum ParameterRole;

Block::Block(const Context& context, int layer)
    : context_(context),
      layer_(layer),
      unit_(layer + 1),
      kind_(context.model.architecture.block),
      shares_norm_(context.model.architecture.shared_norm),
      recompute_(context.config.recompute),
      norm1_{.unit = unit_, .weight = norm1_weight, .bias = norm1_bias},
      norm2_{.unit = unit_, .weight = norm2_weight, .bias = norm2_bias},
      attention_(context, layer),
      mlp_(context, layer) {}

Running Block::forward(const Running& running) {
  Running result;
  if (kind_ == BlockKind::post_norm) {
    input_ = running.residual;
    result = post_norm_forward(input_);
  } else {
    first_norm(running);
    result = branches();
  }
  if (recompute_ == Recompute::block) release_saved();
  if (recompute_ == Recompute::selective) release_cheap();
  return result;
}

void Block::first_norm(const Running& running) {
  if (running.x == no_tensor) {
    norm1_.input = running.residual;
    norm_forward(context_, norm1_, running.residual, no_tensor);
    return;
  }
  norm_forward_of_sum(context_, norm1_, layer_, running.residual, running.x);
  if (running.release_residual) context_.emitter.release(running.residual);
}

Running Block::branches() {
  const TensorId attended = attention_.forward(norm1_.out);
  if (kind_ == BlockKind::sequential) {
    norm_forward_of_sum(context_, norm2_, layer_, norm1_.input, attended);
    // The second norm's input is the block's own until its backward, or made again for it.
    return {norm2_.input, mlp_.forward(norm2_.out), recompute_ == Recompute::block};
  }
  const TensorId out = mlp_.forward(second_norm_of_parallel());
  const std::int64_t elements = context_.sizes.rows * context_.sizes.hidden;
  context_.emitter.emit(op::Add{at(out), at(attended), elements});
  context_.emitter.release(attended);
  return {norm1_.input, out, false};
}

TensorId Block::second_norm_of_parallel() {
  if (shares_norm_) return norm1_.out;
  norm2_.input = norm1_.input;
  norm_forward(context_, norm2_, norm2_.input, no_tensor);
  return norm2_.out;
}

Running Block::post_norm_forward(TensorId input) {
  norm_forward_of_sum(context_, norm1_, layer_, input, attention_.forward(input));
  norm_forward_of_sum(context_, norm2_, layer_, norm1_.out, mlp_.forward(norm1_.out));
  return {norm2_.out, no_tensor, false};
}

void Block::release_saved() {
  Emitter& emitter = context_.emitter;
  emitter.release({norm1_.mean, norm1_.rstd, norm1_.out});
  attention_.release_saved();
  emitter.release({norm2_.mean, norm2_.rstd});
  if (kind_ == BlockKind::post_norm) {
    // The second norm's result is the next block's input.
    emitter.release({norm1_.input, norm2_.input});
  } else {
    emitter.release(norm2_.out);
  }
  mlp_.release_saved();
}

void Block::release_cheap() {
  Emitter& emitter = context_.emitter;
  emitter.release({norm1_.mean, norm1_.rstd, norm1_.out});
  // If norms come after their branch, the second norm's result is the next block's input.
  if (kind_ != BlockKind::post_norm) emitter.release({norm2_.mean, norm2_.rstd, norm2_.out});
  attention_.release_cheap();
  mlp_.release_cheap();
}

void Block::forward_again() {
  if (kind_ == BlockKind::post_norm) {
    forward_again_of_post_norm();
    return;
  }
  norm_forward(context_, norm1_, norm1_.input, no_tensor);
  if (kind_ == BlockKind::sequential && recompute_ == Recompute::block) {
    const TensorId attended = attention_.forward(norm1_.out);
    norm_forward_of_sum(context_, norm2_, layer_, norm1_.input, attended);
  } else {
    attention_.forward_again(norm1_.out);
    if (kind_ == BlockKind::sequential) norm_forward(context_, norm2_, norm2_.input, no_tensor);
  }
  // The block's output itself is not needed again.
  mlp_.forward_again(kind_ == BlockKind::parallel ? second_norm_of_parallel() : norm2_.out);
}

void Block::forward_again_of_post_norm() {
  if (recompute_ == Recompute::block) {
    const Running result = post_norm_forward(input_);
    context_.emitter.release(result.residual);
    return;
  }
  attention_.forward_again(input_);
  norm_forward(context_, norm1_, norm1_.input, no_tensor);
  mlp_.forward_again(norm1_.out);
  pass(context_, norm2_);
}

TensorId Block::backward(TensorId d_out) {
  if (recompute_ != Recompute::none) {
    context_.parameters.run_again(true);
    forward_again();
    context_.parameters.run_again(false);
  }
  context_.gradients.open(unit_);
  TensorId d_input = d_out;
  switch (kind_) {
    case BlockKind::sequential:
      sequential_backward(d_out);
      break;
    case BlockKind::parallel:
      parallel_backward(d_out);
      break;
    case BlockKind::post_norm:
      d_input = post_norm_backward(d_out);
      break;
  }
  context_.gradients.close(unit_);
  return d_input;
}

void Block::sequential_backward(TensorId d_residual) {
  norm_backward_into(norm2_, d_residual, mlp_.backward(d_residual, norm2_.out));
  context_.emitter.release(norm2_.input);
  norm_backward_into(norm1_, d_residual, attention_.backward(d_residual, norm1_.out));
  context_.emitter.release(norm1_.input);
}

void Block::parallel_backward(TensorId d_residual) {
  // Both branches read the gradient of the sum before either adds to it.
  if (shares_norm_) {
    const TensorId d_norm = mlp_.backward_keeping(d_residual, norm1_.out);
    attention_.backward(d_residual, norm1_.out, d_norm);
    norm_backward_into(norm1_, d_residual, d_norm);
    context_.emitter.release(norm1_.input);
    return;
  }
  const TensorId d_norm2 = mlp_.backward(d_residual, norm2_.out);
  const TensorId d_norm1 = attention_.backward(d_residual, norm1_.out);
  norm_backward_into(norm2_, d_residual, d_norm2);
  norm_backward_into(norm1_, d_residual, d_norm1);
  context_.emitter.release(norm1_.input);
}

TensorId Block::post_norm_backward(TensorId d_out) {
  // Each norm's input is a sum: its gradient is the branch's and, the branch's own added, that of
  // the branch's input.
  const TensorId d_sum2 = norm_backward_anew(context_, norm2_, "d residual", layer_, d_out);
  mlp_.backward(d_sum2, norm1_.out, d_sum2);
  const TensorId d_sum1 = norm_backward_anew(context_, norm1_, "d residual", layer_, d_sum2);
  return attention_.backward(d_sum1, input_, d_sum1);
}

void Block::norm_backward_into(const Norm& norm, TensorId d_residual, TensorId d_norm) {
  norm_backward(context_, norm, d_residual, d_norm, true);
  context_.emitter.release(d_norm);
}

}  // namespace dstune::plan
