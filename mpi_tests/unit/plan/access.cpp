#include "access.hpp"

namespace dstune::test {
namespace {

class Collector {
 public:
  Collector(const StepPlan& plan, std::vector<Access>& found)
      : plan_(plan),
        found_(found),
        hidden_(plan.model.hidden_size),
        rows_(plan.config.micro_batch * plan.config.sequence_length),
        heads_(plan.model.num_heads * plan.model.head_size),
        qkv_((plan.model.num_heads + 2 * plan.model.num_kv_heads) * plan.model.head_size) {}

  void operator()(const op::Acquire&) {}
  void operator()(const op::Release&) {}
  void operator()(const op::Mark&) {}
  void operator()(const op::Record&) {}
  void operator()(const op::Wait&) {}
  void operator()(const op::FinishLoss&) {}
  void operator()(const op::ClipFactor&) {}
  void operator()(const op::CheckOverflow&) {}
  void operator()(const op::FillNormal& o) { write(o.out, o.count); }
  void operator()(const op::Fill& o) { write(o.out, o.count); }
  void operator()(const op::EmbeddingForward& o) {
    read(o.token_table, plan_.model.vocab_size * hidden_);
    read(o.position_table, plan_.config.sequence_length * hidden_);
    read(o.type_row, hidden_);
    write(o.out, o.rows * hidden_);
  }
  void operator()(const op::EmbeddingBackward& o) {
    read(o.d_out, o.rows * hidden_);
    update(o.d_token_table, plan_.model.vocab_size * hidden_, o.accumulate_tokens);
    update(o.d_position_table, plan_.config.sequence_length * hidden_, o.accumulate_positions);
  }
  void operator()(const op::NormForward& o) {
    read(o.residual, o.rows * hidden_);
    read(o.x, o.rows * hidden_);
    read(o.weight, hidden_);
    read(o.bias, hidden_);
    if (o.x) write(o.residual_out, o.rows * hidden_);
    write(o.out, o.rows * hidden_);
    write(o.mean, o.rows);
    write(o.rstd, o.rows);
  }
  void operator()(const op::NormBackward& o) {
    read(o.d_out, o.rows * hidden_);
    read(o.input, o.rows * hidden_);
    read(o.mean, o.rows);
    read(o.rstd, o.rows);
    read(o.weight, hidden_);
    write(o.workspace, 1);
    update(o.d_x, o.rows * hidden_, o.accumulate_input);
    update(o.d_weight, hidden_, o.accumulate_weights);
    update(o.d_bias, hidden_, o.accumulate_weights);
  }
  void operator()(const op::Matmul& o) {
    read(o.a, o.transpose_a ? extent(o.k, o.m, o.stride_a) : extent(o.m, o.k, o.stride_a));
    read(o.b, o.k * o.n);
    read(o.bias, o.n);
    write(o.workspace, 1);
    read(o.pre_activation, o.m * o.n);
    write(o.activated, o.m * o.n);
    update(o.c, extent(o.m, o.n, o.stride_c), o.accumulate);
    update(o.d_bias, o.m, o.accumulate);
  }
  void operator()(const op::BiasBackward& o) {
    read(o.d_out, extent(o.rows, o.width, o.stride));
    write(o.workspace, 1);
    update(o.d_bias, o.width, o.accumulate);
  }
  void operator()(const op::HeadNormForward& o) {
    read(o.q_weight, plan_.model.head_size);
    read(o.k_weight, plan_.model.head_size);
    update(o.qkv, rows_ * qkv_, true);
    write(o.raw, rows_ * normed_heads() * plan_.model.head_size);
    write(o.rstd, rows_ * normed_heads());
  }
  void operator()(const op::HeadNormBackward& o) {
    read(o.raw, rows_ * normed_heads() * plan_.model.head_size);
    read(o.rstd, rows_ * normed_heads());
    read(o.q_weight, plan_.model.head_size);
    read(o.k_weight, plan_.model.head_size);
    write(o.workspace, 1);
    update(o.d_qkv, rows_ * qkv_, true);
    update(o.d_q_weight, plan_.model.head_size, o.accumulate_weights);
    update(o.d_k_weight, plan_.model.head_size, o.accumulate_weights);
  }
  void operator()(const op::Rotary& o) { update(o.qkv, rows_ * qkv_, true); }
  void operator()(const op::AttentionForward& o) {
    read(o.qkv, rows_ * qkv_);
    write(o.workspace, 1);
    write(o.out, rows_ * heads_);
    write(o.log_sum_exp, rows_ * plan_.model.num_heads);
  }
  void operator()(const op::AttentionBackward& o) {
    read(o.d_out, rows_ * heads_);
    read(o.qkv, rows_ * qkv_);
    read(o.out, rows_ * heads_);
    read(o.log_sum_exp, rows_ * plan_.model.num_heads);
    write(o.workspace, 1);
    write(o.d_qkv, rows_ * qkv_);
  }
  void operator()(const op::ActivationForward& o) {
    read(o.x, o.rows * o.width * (o.gated ? 2 : 1));
    write(o.out, o.rows * o.width);
  }
  void operator()(const op::ActivationBackward& o) {
    read(o.d_out, o.rows * o.width);
    read(o.x, o.rows * o.width * (o.gated ? 2 : 1));
    write(o.d_x, o.rows * o.width * (o.gated ? 2 : 1));
  }
  void operator()(const op::CrossEntropy& o) {
    update(o.logits, extent(o.rows, plan_.model.vocab_size, o.stride), true);
    write(o.losses, o.rows);
  }
  void operator()(const op::Add& o) {
    read(o.x, o.count);
    update(o.y, o.count, true);
  }
  void operator()(const op::Convert& o) {
    read(o.x, o.count);
    write(o.y, o.count);
  }
  void operator()(const op::Copy& o) {
    read(o.x, o.count);
    write(o.y, o.count);
  }
  void operator()(const op::ReadDisk& o) {
    read(o.x, o.count);
    write(o.y, o.count);
  }
  void operator()(const op::WriteDisk& o) {
    read(o.x, o.count);
    write(o.y, o.count);
  }
  void operator()(const op::Reshard& o) {
    for (const auto& piece : pieces_of(plan_, o)) {
      touch(o.slab, piece.slab_offset, piece.elements, !o.to_shards);
      for (int rank = 0; rank < o.num_ranks; ++rank) {
        touch(o.shards, rank * o.rank_stride + piece.shard_offset, piece.shard_elements,
              o.to_shards);
      }
    }
  }
  void operator()(const op::Quantize& o) {
    read(o.x, o.count);
    write(o.codes, o.count * o.bits / 8);
    write(o.scales, o.count / o.group_elements);
  }
  void operator()(const op::Dequantize& o) {
    read(o.codes, o.parts * o.count * o.bits / 8);
    read(o.scales, o.parts * o.count / o.group_elements);
    write(o.y, o.count);
  }
  void operator()(const op::AllReduceAverage& o) { update(o.data, o.count, true); }
  void operator()(const op::AllReduceSum& o) { update(o.data, o.count, true); }
  void operator()(const op::ReduceAverage& o) { update(o.data, o.count, true); }
  void operator()(const op::ReduceScatterAverage& o) {
    read(o.in, o.count_per_rank * o.among.size(plan_.group_size));
    write(o.out, o.count_per_rank);
  }
  void operator()(const op::AllGather& o) {
    read(o.in, o.count_per_rank);
    write(o.out, o.count_per_rank * o.among.size(plan_.group_size));
  }
  void operator()(const op::AllToAll& o) {
    read(o.in, o.count_per_rank * o.among.size(plan_.group_size));
    write(o.out, o.count_per_rank * o.among.size(plan_.group_size));
  }
  void operator()(const op::AccumulateLoss& o) { read(o.losses, o.rows); }
  void operator()(const op::AccumulateSquares& o) { read(o.gradient, o.count); }
  void operator()(const op::UpdateParameters& o) {
    read(o.gradient, o.count);
    update(o.master, o.count, true);
    update(o.m, o.count, true);
    update(o.v, o.count, true);
    write(o.model, o.count);
  }

 private:
  /// Elements from the first of a matrix to behind its last; stride 0: rows follow each other.
  static std::int64_t extent(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    return (rows - 1) * (stride > 0 ? stride : columns) + columns;
  }
  [[nodiscard]] std::int64_t normed_heads() const {
    return plan_.model.num_heads + plan_.model.num_kv_heads;
  }
  void read(View view, std::int64_t elements) {
    if (view) found_.push_back({view, elements, false});
  }
  void write(View view, std::int64_t elements) {
    if (view) found_.push_back({view, elements, true});
  }
  void touch(View view, std::int64_t offset, std::int64_t elements, bool writes) {
    found_.push_back({{view.tensor, view.offset_elements + offset}, elements, writes});
  }
  void update(View view, std::int64_t elements, bool reads) {
    if (reads) read(view, elements);
    write(view, elements);
  }

  const StepPlan& plan_;
  std::vector<Access>& found_;
  std::int64_t hidden_, rows_, heads_, qkv_;
};

}  // namespace

std::vector<Access> accesses(const Operation& operation, const StepPlan& plan) {
  std::vector<Access> found;
  std::visit(Collector(plan, found), operation);
  return found;
}

}  // namespace dstune::test
