/// The operations that are kernels: addresses, types and the model's constants.

#include "dispatch.hpp"
#include "dstune/base/error.hpp"
#include "reshard.hpp"

namespace dstune::train {
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

}  // namespace

void Dispatch::operator()(const op::FillNormal& o) {
  table().fill_normal(type(o.out), at(o.out), seed_, static_cast<std::uint64_t>(o.parameter),
                      o.first_index, o.count, o.standard_deviation);
}

void Dispatch::operator()(const op::Fill& o) {
  table().fill(type(o.out), at(o.out), o.value, o.count);
}

void Dispatch::operator()(const op::EmbeddingForward& o) {
  table().embedding_forward(type(o.out), at(o.out), at(o.token_table), at(o.position_table),
                            at(o.type_row), inputs_.tokens(), o.rows, plan_.config.sequence_length,
                            plan_.model.hidden_size);
}

void Dispatch::operator()(const op::EmbeddingBackward& o) {
  table().embedding_backward(type(o.d_out), at(o.d_token_table), at(o.d_position_table),
                             at(o.d_out), inputs_.tokens(), o.rows, plan_.config.sequence_length,
                             plan_.model.hidden_size, plan_.model.vocab_size, o.accumulate_tokens,
                             o.accumulate_positions);
}

void Dispatch::operator()(const op::NormForward& o) {
  const auto epsilon = static_cast<float>(plan_.model.norm_epsilon);
  const std::int64_t width = plan_.model.hidden_size;
  void* residual_out = at(o.x ? o.residual_out : o.residual);
  if (o.rms) {
    table().rmsnorm_forward(type(o.out), at(o.out), residual_out, at<float>(o.rstd), at(o.residual),
                            at(o.x), at(o.weight), o.rows, width, epsilon);
  } else {
    table().layernorm_forward(type(o.out), at(o.out), residual_out, at<float>(o.mean),
                              at<float>(o.rstd), at(o.residual), at(o.x), at(o.weight), at(o.bias),
                              o.rows, width, epsilon);
  }
}

void Dispatch::operator()(const op::NormBackward& o) {
  const std::int64_t width = plan_.model.hidden_size;
  if (o.rms) {
    table().rmsnorm_backward(type(o.d_out), at(o.d_x), at(o.d_weight), at(o.d_out), at(o.input),
                             at<float>(o.rstd), at(o.weight), o.rows, width, o.accumulate_input,
                             o.accumulate_weights, at(o.workspace));
  } else {
    table().layernorm_backward(type(o.d_out), at(o.d_x), at(o.d_weight), at(o.d_bias), at(o.d_out),
                               at(o.input), at<float>(o.mean), at<float>(o.rstd), at(o.weight),
                               o.rows, width, o.accumulate_input, o.accumulate_weights,
                               at(o.workspace));
  }
}

void Dispatch::operator()(const op::Matmul& o) {
  const kernels::MatmulShape shape = matmul_shape(o, memory_.type(o.a), memory_.type(o.c));
  const kernels::Activation activation = kernel_activation(plan_.model.architecture.activation);
  if (o.activated) {
    table().matmul_activation_forward(shape, activation, at(o.a), at(o.b), at(o.bias), at(o.c),
                                      at(o.activated), at(o.workspace));
  } else if (o.pre_activation) {
    table().matmul_activation_backward(shape, activation, at(o.a), at(o.b), at(o.pre_activation),
                                       at(o.c), at(o.workspace));
  } else if (o.d_bias) {
    table().matmul_bias_backward(shape, at(o.a), at(o.b), at(o.c), at(o.d_bias), at(o.workspace));
  } else {
    table().matmul(shape, at(o.a), at(o.b), at(o.bias), at(o.c), at(o.workspace));
  }
}

void Dispatch::operator()(const op::BiasBackward& o) {
  table().bias_backward(type(o.d_out), at(o.d_bias), at(o.d_out), o.rows, o.width, o.stride,
                        o.accumulate, at(o.workspace));
}

kernels::AttentionShape Dispatch::attention_shape(const View& qkv) const {
  return train::attention_shape(plan_.config.micro_batch, plan_.config.sequence_length, plan_.model,
                                memory_.type(qkv));
}

void Dispatch::operator()(const op::HeadNormForward& o) {
  table().head_norm_forward(attention_shape(o.qkv), at(o.qkv), at(o.raw), at<float>(o.rstd),
                            at(o.q_weight), at(o.k_weight),
                            static_cast<float>(plan_.model.norm_epsilon));
}

void Dispatch::operator()(const op::HeadNormBackward& o) {
  table().head_norm_backward(attention_shape(o.d_qkv), at(o.d_qkv), at(o.d_q_weight),
                             at(o.d_k_weight), at(o.raw), at<float>(o.rstd), at(o.q_weight),
                             at(o.k_weight), o.accumulate_weights, at(o.workspace));
}

void Dispatch::operator()(const op::Rotary& o) {
  table().rotary(attention_shape(o.qkv), plan_.model.rotary_size(), at(o.qkv),
                 inputs_.frequencies(), inputs_.magnitude(), o.inverse);
}

void Dispatch::operator()(const op::AttentionForward& o) {
  kernels::AttentionShape shape = attention_shape(o.qkv);
  shape.window = o.window;
  table().attention_forward(shape, at(o.out), at<float>(o.log_sum_exp), at(o.qkv), at(o.workspace));
}

void Dispatch::operator()(const op::AttentionBackward& o) {
  kernels::AttentionShape shape = attention_shape(o.qkv);
  shape.window = o.window;
  table().attention_backward(shape, at(o.d_qkv), at(o.d_out), at(o.qkv), at(o.out),
                             at<float>(o.log_sum_exp), at(o.workspace));
}

void Dispatch::operator()(const op::ActivationForward& o) {
  if (o.gated) {
    table().swiglu_forward(type(o.x), at(o.out), at(o.x), o.rows, o.width);
  } else {
    table().activation_forward(type(o.x), kernel_activation(plan_.model.architecture.activation),
                               at(o.out), at(o.x), o.rows * o.width);
  }
}

void Dispatch::operator()(const op::ActivationBackward& o) {
  if (o.gated) {
    table().swiglu_backward(type(o.x), at(o.d_x), at(o.d_out), at(o.x), o.rows, o.width);
  } else {
    table().activation_backward(type(o.x), kernel_activation(plan_.model.architecture.activation),
                                at(o.d_x), at(o.d_out), at(o.x), o.rows * o.width);
  }
}

void Dispatch::operator()(const op::CrossEntropy& o) {
  table().cross_entropy(type(o.logits), at<float>(o.losses), at(o.logits),
                        inputs_.targets() + o.first_row, o.rows, plan_.model.vocab_size, o.stride,
                        static_cast<float>(o.scale * scaler_.scale()));
}

void Dispatch::operator()(const op::Add& o) {
  table().add(type(o.y), at(o.y), type(o.x), at(o.x), o.count);
}

void Dispatch::operator()(const op::Convert& o) {
  table().convert(type(o.y), at(o.y), type(o.x), at(o.x), o.count);
}

void Dispatch::operator()(const op::Copy& o) {
  require(memory_.type(o.y) == memory_.type(o.x), "copying does not convert");
  if (memory_.memory(o.y) == memory_.memory(o.x)) {
    table().convert(type(o.y), at(o.y), type(o.x), at(o.x), o.count);
  } else {
    queues_.copy(at(o.y), at(o.x), o.count * size_bytes(memory_.type(o.x)));
  }
}

void Dispatch::operator()(const op::Reshard& o) {
  const kernels::DType to = type(o.to_shards ? o.shards : o.slab);
  const kernels::DType from = type(o.to_shards ? o.slab : o.shards);
  // By reference, since a step takes nothing from the heap.
  const auto copy = [&](std::byte* y, const std::byte* x, std::int64_t count) {
    table().convert(to, y, from, x, count);
  };
  const auto zero = [&](std::byte* y, std::int64_t bytes) {
    table().zero(y, static_cast<std::size_t>(bytes));
  };
  reshard(o, pieces_of(plan_, o), {memory_.address(o.slab), size_bytes(memory_.type(o.slab))},
          {memory_.address(o.shards), size_bytes(memory_.type(o.shards))}, std::ref(copy),
          std::ref(zero));
}

void Dispatch::operator()(const op::Quantize& o) {
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

void Dispatch::operator()(const op::Dequantize& o) {
  table().dequantize(type(o.y), o.bits, at(o.y), at(o.codes), at<float>(o.scales), o.count,
                     o.group_elements, o.parts, o.divisor);
}

}  // namespace dstune::train
