/// The operations that are kernels: addresses, types and the model's constants.

#include <algorithm>
#include <cmath>

#include "dstune/base/error.hpp"
#include "executor/dispatch.hpp"

namespace dstune {
namespace train {
namespace {

kernels::Activation kernel_activation(Activation activation) {
  switch (activation) {
    case Activation::gelu_tanh:
      return kernels::Activation::gelu_tanh;
    case Activation::gelu:
      return kernels::Activation::gelu;
    case Activation::relu:
      return kernels::Activation::relu;
    case Activation::silu:
      return kernels::Activation::silu;
  }
  throw LogicError("an activation is a known one");
}

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
          .type = kernel_type(type),
          .softmax_scale = static_cast<float>(model.architecture.attention_multiplier),
          .softcap = static_cast<float>(model.architecture.attention_softcap)};
}

// Arguments of the optimizer's kernels for a step. `on_host`: DeepSpeed's optimizer for the host
// does the update, if it has one.

kernels::AdamStep adam_step(const OptimizerConfig& optimizer, const StepState& state) {
  const auto updates = static_cast<double>(state.updates + 1);
  return {.learning_rate = static_cast<float>(optimizer.learning_rate),
          .beta1 = static_cast<float>(optimizer.beta1),
          .beta2 = static_cast<float>(optimizer.beta2),
          .epsilon = static_cast<float>(optimizer.epsilon),
          .weight_decay = static_cast<float>(optimizer.weight_decay),
          .bias_correction1 = static_cast<float>(1.0 - std::pow(optimizer.beta1, updates)),
          .bias_correction2 = static_cast<float>(1.0 - std::pow(optimizer.beta2, updates)),
          .gradient_scale = state.gradient_scale,
          .decoupled_decay = optimizer.kind == OptimizerKind::adamw};
}

kernels::LionStep lion_step(const OptimizerConfig& optimizer, const StepState& state,
                            bool on_host) {
  return {.learning_rate = static_cast<float>(optimizer.learning_rate),
          .beta1 = static_cast<float>(optimizer.beta1),
          .beta2 = static_cast<float>(optimizer.beta2),
          .weight_decay = static_cast<float>(optimizer.weight_decay),
          .gradient_scale = state.gradient_scale,
          .rises_at_zero = !on_host};
}

kernels::SgdStep sgd_step(const OptimizerConfig& optimizer, const StepState& state) {
  const double share = state.updates == 0 ? 1.0 : 1.0 - optimizer.dampening;
  return {.learning_rate = static_cast<float>(optimizer.learning_rate),
          .momentum = static_cast<float>(optimizer.momentum),
          .weight_decay = static_cast<float>(optimizer.weight_decay),
          .gradient_share = static_cast<float>(share),
          .gradient_scale = state.gradient_scale,
          .nesterov = optimizer.nesterov};
}

kernels::AdagradStep adagrad_step(const OptimizerConfig& optimizer, const StepState& state,
                                  bool on_host) {
  const double fall = on_host ? 0.0 : optimizer.learning_rate_decay;
  const double rate = optimizer.learning_rate / (1.0 + static_cast<double>(state.updates) * fall);
  return {.learning_rate = static_cast<float>(rate),
          .epsilon = static_cast<float>(optimizer.epsilon),
          .weight_decay = static_cast<float>(optimizer.weight_decay),
          .gradient_scale = state.gradient_scale,
          .decays_numerator = !on_host};
}

/// One overload an operation of this kind; one that is missing does not compile.
class Arithmetic {
 public:
  explicit Arithmetic(const StepState& state)
      : s_(state), plan_(state.plan), memory_(state.memory), inputs_(state.inputs) {}

  void operator()(const op::FillNormal& o) const {
    table().fill_normal(type(o.out), at(o.out), s_.seed, static_cast<std::uint64_t>(o.parameter),
                        o.first_index, o.count, o.standard_deviation);
  }

  void operator()(const op::Fill& o) const {
    table().fill(type(o.out), at(o.out), o.value, o.count);
  }

  void operator()(const op::EmbeddingForward& o) const {
    table().embedding_forward(type(o.out), at(o.out), at(o.token_table), at(o.position_table),
                              at(o.type_row), inputs_.tokens(), o.rows,
                              plan_.config.sequence_length, plan_.model.hidden_size);
  }

  void operator()(const op::EmbeddingBackward& o) const {
    table().embedding_backward(type(o.d_out), at(o.d_token_table), at(o.d_position_table),
                               at(o.d_out), inputs_.tokens(), o.rows, plan_.config.sequence_length,
                               plan_.model.hidden_size, plan_.model.vocab_size, o.accumulate_tokens,
                               o.accumulate_positions);
  }

  void operator()(const op::NormForward& o) const {
    const auto epsilon = static_cast<float>(plan_.model.norm_epsilon);
    const std::int64_t width = plan_.model.hidden_size;
    void* residual_out = at(o.x ? o.residual_out : o.residual);
    if (o.rms) {
      table().rmsnorm_forward(type(o.out), at(o.out), residual_out, at<float>(o.rstd),
                              at(o.residual), at(o.x), at(o.weight), norm_offset(), o.rows, width,
                              epsilon);
    } else {
      table().layernorm_forward(type(o.out), at(o.out), residual_out, at<float>(o.mean),
                                at<float>(o.rstd), at(o.residual), at(o.x), at(o.weight),
                                at(o.bias), o.rows, width, epsilon);
    }
  }

  void operator()(const op::NormBackward& o) const {
    const std::int64_t width = plan_.model.hidden_size;
    if (o.rms) {
      table().rmsnorm_backward(type(o.d_out), at(o.d_x), at(o.d_weight), at(o.d_out), at(o.input),
                               at<float>(o.rstd), at(o.weight), norm_offset(), o.rows, width,
                               o.accumulate_input, o.accumulate_weights, at(o.workspace));
    } else {
      table().layernorm_backward(type(o.d_out), at(o.d_x), at(o.d_weight), at(o.d_bias),
                                 at(o.d_out), at(o.input), at<float>(o.mean), at<float>(o.rstd),
                                 at(o.weight), o.rows, width, o.accumulate_input,
                                 o.accumulate_weights, at(o.workspace));
    }
  }

  void operator()(const op::Matmul& o) const {
    const kernels::MatmulShape shape = matmul_shape(o, memory_.type(o.a), memory_.type(o.c));
    if (o.activated) {
      table().matmul_activation_forward(shape, activation(), at(o.a), at(o.b), at(o.bias), at(o.c),
                                        at(o.activated), at(o.workspace));
    } else if (o.pre_activation) {
      table().matmul_activation_backward(shape, activation(), at(o.a), at(o.b),
                                         at(o.pre_activation), at(o.c), at(o.workspace));
    } else if (o.d_bias) {
      table().matmul_bias_backward(shape, at(o.a), at(o.b), at(o.c), at(o.d_bias), at(o.workspace));
    } else {
      table().matmul(shape, at(o.a), at(o.b), at(o.bias), at(o.c), at(o.workspace));
    }
  }

  void operator()(const op::BiasBackward& o) const {
    table().bias_backward(type(o.d_out), at(o.d_bias), at(o.d_out), o.rows, o.width, o.stride,
                          o.accumulate, at(o.workspace));
  }

  void operator()(const op::HeadNormForward& o) const {
    table().head_norm_forward(attention_shape(o.qkv), o.spans_heads, at(o.qkv), at(o.raw),
                              at<float>(o.rstd), at(o.q_weight), at(o.k_weight), norm_offset(),
                              static_cast<float>(plan_.model.norm_epsilon));
  }

  void operator()(const op::HeadNormBackward& o) const {
    table().head_norm_backward(attention_shape(o.d_qkv), o.spans_heads, at(o.d_qkv),
                               at(o.d_q_weight), at(o.d_k_weight), at(o.raw), at<float>(o.rstd),
                               at(o.q_weight), at(o.k_weight), norm_offset(), o.accumulate_weights,
                               at(o.workspace));
  }

  void operator()(const op::Rotary& o) const {
    table().rotary(attention_shape(o.qkv), plan_.model.rotary_size(), at(o.qkv),
                   inputs_.frequencies(o.local), inputs_.magnitude(o.local), o.inverse);
  }

  void operator()(const op::AttentionForward& o) const {
    table().attention_forward(attention_shape(o.qkv, o.window), at(o.out), at<float>(o.log_sum_exp),
                              at(o.qkv), at(o.workspace));
  }

  void operator()(const op::AttentionBackward& o) const {
    table().attention_backward(attention_shape(o.qkv, o.window), at(o.d_qkv), at(o.d_out),
                               at(o.qkv), at(o.out), at<float>(o.log_sum_exp), at(o.workspace));
  }

  void operator()(const op::ActivationForward& o) const {
    if (o.gated) {
      table().gated_forward(type(o.x), activation(), at(o.out), at(o.x), o.rows, o.width);
    } else {
      table().activation_forward(type(o.x), activation(), at(o.out), at(o.x), o.rows * o.width);
    }
  }

  void operator()(const op::ActivationBackward& o) const {
    if (o.gated) {
      table().gated_backward(type(o.x), activation(), at(o.d_x), at(o.d_out), at(o.x), o.rows,
                             o.width);
    } else {
      table().activation_backward(type(o.x), activation(), at(o.d_x), at(o.d_out), at(o.x),
                                  o.rows * o.width);
    }
  }

  void operator()(const op::CrossEntropy& o) const {
    table().cross_entropy(
        type(o.logits), at<float>(o.losses), at(o.logits), inputs_.targets() + o.first_row, o.rows,
        plan_.model.vocab_size, o.stride, static_cast<float>(o.scale * s_.scaler.scale()),
        {.multiplier = static_cast<float>(1 / plan_.model.architecture.logits_scaling),
         .cap = static_cast<float>(plan_.model.architecture.logits_softcap)});
  }

  void operator()(const op::Add& o) const {
    table().add(type(o.y), at(o.y), type(o.x), at(o.x), o.count);
  }

  void operator()(const op::Convert& o) const {
    table().convert(type(o.y), at(o.y), type(o.x), at(o.x), o.count);
  }

  void operator()(const op::Scale& o) const {
    table().scale(type(o.y), at(o.y), o.factor, o.count);
  }

  void operator()(const op::Reshard& o) const {
    reshard(table(), o, pieces_of(plan_, o), {memory_.address(o.slab), memory_.type(o.slab)},
            {memory_.address(o.shards), memory_.type(o.shards)});
  }

  void operator()(const op::Quantize& o) const {
    const std::int64_t part = o.count / (o.nodes * o.ranks_of_node);
    const std::int64_t part_bytes = part * o.bits / 8;
    for (int node = 0; node < o.nodes; ++node) {
      for (int rank = 0; rank < o.ranks_of_node; ++rank) {
        const std::int64_t from = node * o.ranks_of_node + rank;
        const std::int64_t to = rank * o.nodes + node;
        const View x{o.x.tensor, o.x.offset_elements + from * part};
        table().quantize(type(o.x), o.bits, at<std::byte>(o.codes) + to * part_bytes,
                         at<float>(o.scales) + to * (part / o.group_elements), at(x), part,
                         o.group_elements);
      }
    }
  }

  void operator()(const op::Dequantize& o) const {
    table().dequantize(type(o.y), o.bits, at(o.y), at(o.codes), at<float>(o.scales), o.count,
                       o.group_elements, o.parts, o.divisor);
  }

  void operator()(const op::AccumulateLoss& o) const {
    table().sum_f32(at<float>(o.losses), o.rows, inputs_.loss());
  }

  void operator()(const op::AccumulateSquares& o) const {
    table().sum_of_squares(type(o.gradient), at(o.gradient), o.count, inputs_.squares());
  }

  void operator()(const op::UpdateParameters& o) const {
    const View moment = o.m ? o.m : o.v;
    const kernels::UpdateTensors tensors{
        .master_type = type(o.master),
        .master = at(o.master),
        .moment_type = moment ? type(moment) : kernels::DType::f32,
        .m = at(o.m),
        .v = at(o.v),
        .gradient_type = type(o.gradient),
        .gradient = at(o.gradient),
        .model_type = o.model ? type(o.model) : kernels::DType::f32,
        .model = at(o.model),
        .gradient_scale = s_.has_clipped ? inputs_.gradient_scale() : nullptr};
    const bool on_host = memory_.memory(o.master) == Memory::host;
    const OptimizerConfig& optimizer = plan_.config.optimizer;
    switch (optimizer.kind) {
      case OptimizerKind::adam:
      case OptimizerKind::adamw:
        return table().adam(adam_step(optimizer, s_), tensors, o.count);
      case OptimizerKind::lion:
        return table().lion(lion_step(optimizer, s_, on_host), tensors, o.count);
      case OptimizerKind::sgd:
        return table().sgd(sgd_step(optimizer, s_), tensors, o.count);
      case OptimizerKind::adagrad:
        return table().adagrad(adagrad_step(optimizer, s_, on_host), tensors, o.count);
    }
    throw LogicError("an optimizer is a known one");
  }

 private:
  /// The address of a view as the kernel wants it.
  template <class T = void>
  [[nodiscard]] T* at(const View& view) const {
    return reinterpret_cast<T*>(memory_.address(view));
  }
  [[nodiscard]] kernels::DType type(const View& view) const {
    return kernel_type(memory_.type(view));
  }
  [[nodiscard]] const kernels::Table& table() const { return s_.table(); }
  [[nodiscard]] float norm_offset() const {
    return plan_.model.architecture.unit_offset_norm ? 1.0F : 0.0F;
  }
  [[nodiscard]] kernels::Activation activation() const {
    return kernel_activation(plan_.model.architecture.activation);
  }
  [[nodiscard]] kernels::AttentionShape attention_shape(const View& qkv,
                                                        std::int64_t window = 0) const {
    kernels::AttentionShape shape = train::attention_shape(
        plan_.config.micro_batch, plan_.config.sequence_length, plan_.model, memory_.type(qkv));
    shape.window = window;
    return shape;
  }

  const StepState& s_;
  const StepPlan& plan_;
  const PlannedMemory& memory_;
  const StepInputs& inputs_;
};

}  // namespace

void reshard(const kernels::Table& table, const op::Reshard& operation,
             std::span<const ReshardPiece> pieces, TypedBytes slab, TypedBytes shards) {
  const kernels::DType slab_type = kernel_type(slab.type);
  const kernels::DType shard_type = kernel_type(shards.type);
  for (std::int64_t rank = 0; rank < operation.num_ranks; ++rank) {
    for (const ReshardPiece& piece : pieces) {
      const std::int64_t first = std::min(rank * piece.shard_elements, piece.elements);
      const std::int64_t count = std::min(piece.shard_elements, piece.elements - first);
      std::byte* const whole = slab.at(piece.slab_offset + first);
      const std::int64_t shard_first = rank * operation.rank_stride + piece.shard_offset;
      std::byte* const shard = shards.at(shard_first);
      if (!operation.to_shards) {
        table.convert(slab_type, whole, shard_type, shard, count);
        continue;
      }
      table.convert(shard_type, shard, slab_type, whole, count);
      const std::int64_t padding = piece.shard_elements - count;
      if (padding > 0)
        table.zero(shards.at(shard_first + count),
                   static_cast<std::size_t>(padding * size_bytes(shards.type)));
    }
  }
}

void run_arithmetic(const StepState& state, const Operation& operation) {
  visit_kind<OperationKind::arithmetic>(Arithmetic(state), operation);
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
