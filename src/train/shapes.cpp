/// What the kernels ask for, from what plans and configurations say.

#include <cmath>

#include "dispatch.hpp"

namespace dstune {
namespace train {

kernels::MatmulShape matmul_shape(const op::Matmul& o, DType type, DType out_type) {
  return {.m = o.m,
          .n = o.n,
          .k = o.k,
          .transpose_a = o.transpose_a,
          .transpose_b = o.transpose_b,
          .accumulate = o.accumulate,
          .has_bias = static_cast<bool>(o.bias),
          .type = kernel_type(type),
          .out_type = kernel_type(out_type),
          .stride_a = o.stride_a,
          .stride_c = o.stride_c};
}

kernels::AttentionShape attention_shape(std::int64_t batch, std::int64_t sequence,
                                        const ModelSpec& model, DType type) {
  return {.batch = batch,
          .sequence = sequence,
          .heads = model.num_heads,
          .kv_heads = model.num_kv_heads,
          .head_size = model.head_size,
          .causal = model.architecture.objective == Objective::next_token,
          .type = kernel_type(type)};
}

kernels::AdamStep adam_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers) {
  const auto updates = static_cast<double>(numbers.update + 1);
  return {.learning_rate = static_cast<float>(optimizer.learning_rate),
          .beta1 = static_cast<float>(optimizer.beta1),
          .beta2 = static_cast<float>(optimizer.beta2),
          .epsilon = static_cast<float>(optimizer.epsilon),
          .weight_decay = static_cast<float>(optimizer.weight_decay),
          .bias_correction1 = static_cast<float>(1.0 - std::pow(optimizer.beta1, updates)),
          .bias_correction2 = static_cast<float>(1.0 - std::pow(optimizer.beta2, updates)),
          .gradient_scale = numbers.gradient_scale,
          .decoupled_decay = optimizer.kind == OptimizerKind::adamw};
}

kernels::LionStep lion_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers) {
  return {.learning_rate = static_cast<float>(optimizer.learning_rate),
          .beta1 = static_cast<float>(optimizer.beta1),
          .beta2 = static_cast<float>(optimizer.beta2),
          .weight_decay = static_cast<float>(optimizer.weight_decay),
          .gradient_scale = numbers.gradient_scale,
          .rises_at_zero = !numbers.on_host};
}

kernels::SgdStep sgd_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers) {
  const double share = numbers.update == 0 ? 1.0 : 1.0 - optimizer.dampening;
  return {.learning_rate = static_cast<float>(optimizer.learning_rate),
          .momentum = static_cast<float>(optimizer.momentum),
          .weight_decay = static_cast<float>(optimizer.weight_decay),
          .gradient_share = static_cast<float>(share),
          .gradient_scale = numbers.gradient_scale,
          .nesterov = optimizer.nesterov};
}

kernels::AdagradStep adagrad_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers) {
  const double fall = numbers.on_host ? 0.0 : optimizer.learning_rate_decay;
  const double rate = optimizer.learning_rate / (1.0 + static_cast<double>(numbers.update) * fall);
  return {.learning_rate = static_cast<float>(rate),
          .epsilon = static_cast<float>(optimizer.epsilon),
          .weight_decay = static_cast<float>(optimizer.weight_decay),
          .gradient_scale = numbers.gradient_scale,
          .decays_numerator = !numbers.on_host};
}

}  // namespace train

std::int64_t CpuWorkspaces::matmul(const op::Matmul& shape, DType type, DType out_type) const {
  const kernels::MatmulShape wanted = train::matmul_shape(shape, type, out_type);
  return static_cast<std::int64_t>(table_->matmul_workspace_bytes(wanted));
}

std::int64_t CpuWorkspaces::norm(std::int64_t width) const {
  return static_cast<std::int64_t>(table_->norm_workspace_bytes(width));
}

std::int64_t CpuWorkspaces::attention(std::int64_t batch, std::int64_t sequence,
                                      const ModelSpec& model, DType type) const {
  const kernels::AttentionShape wanted = train::attention_shape(batch, sequence, model, type);
  return static_cast<std::int64_t>(table_->attention_workspace_bytes(wanted));
}

}  // namespace dstune
