#include "dstune/base/error.hpp"
#include "parts/parts.hpp"

namespace dstune::plan {

using enum ParameterRole;

void multiply(const Context& context, TensorId x, double factor) {
  if (factor == 1) return;
  context.emitter.emit(
      op::Scale{at(x), static_cast<float>(factor), context.sizes.rows * context.sizes.hidden});
}

Block::Block(const Context& context, int layer)
    : context_(context),
      layer_(layer),
      unit_(layer + 1),
      kind_(context.model.architecture.block),
      norms_last_(kind_ == BlockKind::post_norm || kind_ == BlockKind::branch_norm),
      multiplier_(context.model.architecture.residual_multiplier),
      shares_norm_(context.model.architecture.shared_norm),
      recompute_(context.config.recompute),
      norm1_{.unit = unit_, .weight = norm1_weight, .bias = norm1_bias},
      norm2_{.unit = unit_, .weight = norm2_weight, .bias = norm2_bias},
      branch_norm1_{.unit = unit_, .weight = branch_norm1_weight, .bias = branch_norm1_weight},
      branch_norm2_{.unit = unit_, .weight = branch_norm2_weight, .bias = branch_norm2_weight},
      attention_(context, layer),
      mlp_(context, layer) {
  require(multiplier_ == 1 || kind_ == BlockKind::sequential,
          "branches with a multiplier follow each other");
}

Running Block::forward(const Running& running) {
  Running result;
  if (norms_last_) {
    input_ = running.residual;
    result = norms_last_forward(input_);
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

TensorId Block::attended(TensorId in) {
  const TensorId result = attention_.forward(in);
  multiply(context_, result, multiplier_);
  return after_branch(branch_norm1_, result);
}

TensorId Block::fed(TensorId in) {
  const TensorId result = mlp_.forward(in);
  multiply(context_, result, multiplier_);
  return after_branch(branch_norm2_, result);
}

TensorId Block::after_branch(Norm& norm, TensorId x) {
  if (kind_ != BlockKind::double_norm) return x;
  norm.input = x;
  norm_forward(context_, norm, x, no_tensor);
  return norm.out;
}

Running Block::branches() {
  const TensorId first = attended(norm1_.out);
  if (kind_ != BlockKind::parallel) {
    norm_forward_of_sum(context_, norm2_, layer_, norm1_.input, first);
    // The second norm's input is the block's own until its backward, or made again for it.
    return {norm2_.input, fed(norm2_.out), recompute_ == Recompute::block};
  }
  const TensorId out = fed(second_norm_of_parallel());
  add_into(out, first);
  context_.emitter.release(first);
  return {norm1_.input, out, false};
}

TensorId Block::second_norm_of_parallel() {
  if (shares_norm_) return norm1_.out;
  norm2_.input = norm1_.input;
  norm_forward(context_, norm2_, norm2_.input, no_tensor);
  return norm2_.out;
}

void Block::add_into(TensorId sum, TensorId x) {
  const std::int64_t elements = context_.sizes.rows * context_.sizes.hidden;
  context_.emitter.emit(op::Add{at(sum), at(x), elements});
}

void Block::end_branch(Norm& norm, TensorId input, TensorId x) {
  if (kind_ == BlockKind::post_norm) {
    norm_forward_of_sum(context_, norm, layer_, input, x);
    return;
  }
  norm.input = x;
  norm_forward(context_, norm, x, no_tensor);
  add_into(norm.out, input);
}

Running Block::norms_last_forward(TensorId input) {
  end_branch(norm1_, input, attended(input));
  end_branch(norm2_, norm1_.out, fed(norm1_.out));
  return {norm2_.out, no_tensor, false};
}

void Block::release_saved() {
  Emitter& emitter = context_.emitter;
  emitter.release({norm1_.mean, norm1_.rstd, norm1_.out});
  attention_.release_saved();
  emitter.release({norm2_.mean, norm2_.rstd});
  if (norms_last_) {
    // The second norm's result is the next block's input.
    emitter.release({norm1_.input, norm2_.input});
  } else {
    emitter.release(norm2_.out);
  }
  emitter.release(
      {branch_norm1_.input, branch_norm1_.rstd, branch_norm2_.input, branch_norm2_.rstd});
  mlp_.release_saved();
}

void Block::release_cheap() {
  Emitter& emitter = context_.emitter;
  emitter.release({norm1_.mean, norm1_.rstd, norm1_.out});
  // If norms come after their branch, the second norm's result is the next block's input.
  if (!norms_last_) emitter.release({norm2_.mean, norm2_.rstd, norm2_.out});
  attention_.release_cheap();
  mlp_.release_cheap();
}

void Block::forward_again() {
  if (norms_last_) {
    forward_again_with_norms_last();
    return;
  }
  norm_forward(context_, norm1_, norm1_.input, no_tensor);
  if (kind_ != BlockKind::parallel && recompute_ == Recompute::block) {
    norm_forward_of_sum(context_, norm2_, layer_, norm1_.input, attended(norm1_.out));
  } else {
    attention_.forward_again(norm1_.out);
    if (kind_ == BlockKind::double_norm) pass(context_, branch_norm1_);
    if (kind_ != BlockKind::parallel) norm_forward(context_, norm2_, norm2_.input, no_tensor);
  }
  if (kind_ == BlockKind::double_norm && recompute_ == Recompute::block) {
    context_.emitter.release(fed(norm2_.out));
    return;
  }
  // The block's output itself is not needed again.
  mlp_.forward_again(kind_ == BlockKind::parallel ? second_norm_of_parallel() : norm2_.out);
  if (kind_ == BlockKind::double_norm) pass(context_, branch_norm2_);
}

void Block::forward_again_with_norms_last() {
  if (recompute_ == Recompute::block) {
    const Running result = norms_last_forward(input_);
    context_.emitter.release(result.residual);
    return;
  }
  attention_.forward_again(input_);
  norm_forward(context_, norm1_, norm1_.input, no_tensor);
  if (kind_ == BlockKind::branch_norm) add_into(norm1_.out, input_);
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
    case BlockKind::double_norm:
      sequential_backward(d_out);
      break;
    case BlockKind::parallel:
      parallel_backward(d_out);
      break;
    case BlockKind::post_norm:
      d_input = post_norm_backward(d_out);
      break;
    case BlockKind::branch_norm:
      branch_norm_backward(d_out);
      break;
  }
  context_.gradients.close(unit_);
  return d_input;
}

TensorId Block::through(const Norm& norm, TensorId d_residual) {
  const TensorId d_x = context_.activation("d branch", layer_, context_.sizes.hidden);
  norm_backward(context_, norm, d_x, d_residual, false);
  context_.emitter.release(norm.input);
  return d_x;
}

TensorId Block::d_branch(const Norm& norm, TensorId d_residual) {
  if (kind_ == BlockKind::double_norm) return through(norm, d_residual);
  if (multiplier_ == 1) return d_residual;
  const TensorId d_x = context_.activation("d branch", layer_, context_.sizes.hidden);
  const std::int64_t elements = context_.sizes.rows * context_.sizes.hidden;
  context_.emitter.emit(op::Convert{at(d_x), at(d_residual), elements});
  multiply(context_, d_x, multiplier_);
  return d_x;
}

void Block::release_branch(TensorId d_branch, TensorId d_residual) {
  if (d_branch != d_residual) context_.emitter.release(d_branch);
}

void Block::sequential_backward(TensorId d_residual) {
  TensorId d_x = d_branch(branch_norm2_, d_residual);
  TensorId d_norm = mlp_.backward(d_x, norm2_.out);
  release_branch(d_x, d_residual);
  norm_backward_into(norm2_, d_residual, d_norm);
  context_.emitter.release(norm2_.input);
  d_x = d_branch(branch_norm1_, d_residual);
  d_norm = attention_.backward(d_x, norm1_.out);
  release_branch(d_x, d_residual);
  norm_backward_into(norm1_, d_residual, d_norm);
  context_.emitter.release(norm1_.input);
}

void Block::branch_norm_backward(TensorId d_residual) {
  const TensorId d_fed = through(norm2_, d_residual);
  mlp_.backward(d_fed, norm1_.out, d_residual);
  context_.emitter.release(d_fed);
  const TensorId d_attended = through(norm1_, d_residual);
  attention_.backward(d_attended, input_, d_residual);
  context_.emitter.release(d_attended);
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
