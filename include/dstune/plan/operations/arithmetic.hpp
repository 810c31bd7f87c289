#pragma once
/// The operations of a plan that are kernels. `rows` counts tokens; see kernels.hpp for the exact
/// meaning of each. A new one stands here, in `Arithmetic` below, with its kernel in
/// src/train/executor/arithmetic.cpp. It costs a pass over its elements(), or has its cost in
/// src/predict/work.cpp.

#include "dstune/model/model_spec.hpp"
#include "dstune/plan/operations/traits.hpp"

namespace dstune::op {

[[nodiscard]] constexpr OperationTraits kernel(std::string_view name, WorkKind work,
                                               StepSum sum = StepSum::none) {
  return {name, OperationKind::arithmetic, work, sum};
}

struct FillNormal {
  static constexpr auto traits = kernel("fill_normal", WorkKind::fill_normal);
  View out;
  int parameter;
  std::int64_t first_index, count;
  double standard_deviation;

  [[nodiscard]] Elements elements() const { return {out, out, count}; }
  void access(AccessList& list, const PlanSizes&) const { list.write(out, count); }
};

struct Fill {
  static constexpr auto traits = kernel("fill", WorkKind::fill);
  View out;
  float value;
  std::int64_t count;

  [[nodiscard]] Elements elements() const { return {out, out, count}; }
  void access(AccessList& list, const PlanSizes&) const { list.write(out, count); }
};

struct EmbeddingForward {
  static constexpr auto traits = kernel("embedding_forward", WorkKind::embedding_forward);
  View out, token_table, position_table, type_row;
  std::int64_t rows;

  void access(AccessList& list, const PlanSizes& of) const {
    list.read(token_table, of.vocabulary * of.hidden);
    list.read(position_table, of.sequence * of.hidden);
    list.read(type_row, of.hidden);
    list.write(out, rows * of.hidden);
  }
};

struct EmbeddingBackward {
  static constexpr auto traits = kernel("embedding_backward", WorkKind::embedding_backward);
  View d_token_table, d_position_table, d_out;
  std::int64_t rows;
  bool accumulate_tokens, accumulate_positions;

  void access(AccessList& list, const PlanSizes& of) const {
    list.read(d_out, rows * of.hidden);
    list.accumulate(d_token_table, of.vocabulary * of.hidden, accumulate_tokens);
    list.accumulate(d_position_table, of.sequence * of.hidden, accumulate_positions);
  }
};

/// rms: RMSNorm (no mean, no bias). x may be absent, then residual_out is residual.
struct NormForward {
  static constexpr auto traits = kernel("norm_forward", WorkKind::norm_forward);
  bool rms;
  View out, residual_out, mean, rstd, residual, x, weight, bias;
  std::int64_t rows;

  void access(AccessList& list, const PlanSizes& of) const {
    list.read(residual, rows * of.hidden);
    list.read(x, rows * of.hidden);
    list.read(weight, of.hidden);
    list.read(bias, of.hidden);
    if (x) list.write(residual_out, rows * of.hidden);
    list.write(out, rows * of.hidden);
    list.write(mean, rows);
    list.write(rstd, rows);
  }
};

struct NormBackward {
  static constexpr auto traits = kernel("norm_backward", WorkKind::norm_backward);
  bool rms;
  View d_x, d_weight, d_bias, d_out, input, mean, rstd, weight, workspace = {};
  std::int64_t rows;
  bool accumulate_input, accumulate_weights;

  void access(AccessList& list, const PlanSizes& of) const {
    list.read(d_out, rows * of.hidden);
    list.read(input, rows * of.hidden);
    list.read(mean, rows);
    list.read(rstd, rows);
    list.read(weight, of.hidden);
    list.workspace(workspace);
    list.accumulate(d_x, rows * of.hidden, accumulate_input);
    list.accumulate(d_weight, of.hidden, accumulate_weights);
    list.accumulate(d_bias, of.hidden, accumulate_weights);
  }
};

/// stride_a, stride_c: elements from one stored row of a and c to the next; 0: a row's own. If
/// `activated` is given, it gets the model's activation of c. If `pre_activation` is given, c is
/// multiplied by the activation's slope there. Then all three are [m, n], and nothing is added to.
/// d_bias[m], of a gradient of weights, gets the column sums of a, its d_out, as c gets the
/// product. Its work is of one of four kinds.
struct Matmul {
  static constexpr auto traits = kernel("matmul", WorkKind::matmul);
  /// Which of m, n and k counts tokens; usual: m, or k where a is transposed.
  enum class Tokens : std::uint8_t { usual, m, n, k };
  View a, b, bias = {}, c, workspace = {};
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  std::int64_t stride_a = 0, stride_c = 0;
  View activated = {}, pre_activation = {}, d_bias = {};
  Tokens tokens = Tokens::usual;

  void access(AccessList& list, const PlanSizes&) const {
    list.read(a, transpose_a ? extent(k, m, stride_a) : extent(m, k, stride_a));
    list.read(b, k * n);
    list.read(bias, n);
    list.workspace(workspace);
    list.read(pre_activation, m * n);
    list.write(activated, m * n);
    list.accumulate(c, extent(m, n, stride_c), accumulate);
    list.accumulate(d_bias, m, accumulate);
  }
};

/// Stands alone if no product reads d_out, too. stride: of its rows.
struct BiasBackward {
  static constexpr auto traits = kernel("bias_backward", WorkKind::bias_backward);
  View d_bias, d_out, workspace = {};
  std::int64_t rows, width, stride;
  bool accumulate;

  void access(AccessList& list, const PlanSizes&) const {
    list.read(d_out, extent(rows, width, stride));
    list.workspace(workspace);
    list.accumulate(d_bias, width, accumulate);
  }
};

/// RMSNorm of each head of q and k or, if it spans heads, of all of q and of all of k, in place.
/// `raw[rows, (heads + kv_heads)·head_size]` and rstd, of each norm, are kept for backward.
struct HeadNormForward {
  static constexpr auto traits = kernel("head_norm_forward", WorkKind::head_norm_forward);
  bool spans_heads;
  View qkv, raw, rstd, q_weight, k_weight;

  void access(AccessList& list, const PlanSizes& of) const {
    list.read(q_weight, of.head_size * (spans_heads ? of.heads : 1));
    list.read(k_weight, of.head_size * (spans_heads ? of.kv_heads : 1));
    list.update(qkv, of.qkv());
    list.write(raw, of.of_heads(of.heads + of.kv_heads));
    list.write(rstd, of.tokens() * (spans_heads ? 2 : of.heads + of.kv_heads));
  }
};

struct HeadNormBackward {
  static constexpr auto traits = kernel("head_norm_backward", WorkKind::head_norm_backward);
  bool spans_heads;
  View d_qkv, d_q_weight, d_k_weight, raw, rstd, q_weight, k_weight, workspace = {};
  bool accumulate_weights;

  void access(AccessList& list, const PlanSizes& of) const {
    const std::int64_t q = of.head_size * (spans_heads ? of.heads : 1);
    const std::int64_t k = of.head_size * (spans_heads ? of.kv_heads : 1);
    list.read(raw, of.of_heads(of.heads + of.kv_heads));
    list.read(rstd, of.tokens() * (spans_heads ? 2 : of.heads + of.kv_heads));
    list.read(q_weight, q);
    list.read(k_weight, k);
    list.workspace(workspace);
    list.update(d_qkv, of.qkv());
    list.accumulate(d_q_weight, q, accumulate_weights);
    list.accumulate(d_k_weight, k, accumulate_weights);
  }
};

struct Rotary {
  static constexpr auto traits = kernel("rotary", WorkKind::rotary);
  View qkv;
  bool inverse, local;  ///< local: by the angles of layers with a window

  void access(AccessList& list, const PlanSizes& of) const { list.update(qkv, of.qkv()); }
};

/// window: positions back that a token attends to, its own included; 0: all.
struct AttentionForward {
  static constexpr auto traits = kernel("attention_forward", WorkKind::attention_forward);
  View out, log_sum_exp, qkv, workspace;
  std::int64_t window;

  void access(AccessList& list, const PlanSizes& of) const {
    list.read(qkv, of.qkv());
    list.workspace(workspace);
    list.write(out, of.of_heads(of.heads));
    list.write(log_sum_exp, of.tokens() * of.heads);
  }
};

struct AttentionBackward {
  static constexpr auto traits = kernel("attention_backward", WorkKind::attention_backward);
  View d_qkv, d_out, qkv, out, log_sum_exp, workspace;
  std::int64_t window;

  void access(AccessList& list, const PlanSizes& of) const {
    list.read(d_out, of.of_heads(of.heads));
    list.read(qkv, of.qkv());
    list.read(out, of.of_heads(of.heads));
    list.read(log_sum_exp, of.tokens() * of.heads);
    list.workspace(workspace);
    list.write(d_qkv, of.qkv());
  }
};

/// gated: SwiGLU on [rows, 2·width], else the activation on [rows, width].
struct ActivationForward {
  static constexpr auto traits = kernel("activation_forward", WorkKind::activation_forward);
  bool gated;
  View out, x;
  std::int64_t rows, width;
  Activation activation;

  void access(AccessList& list, const PlanSizes&) const {
    list.read(x, rows * width * (gated ? 2 : 1));
    list.write(out, rows * width);
  }
};

struct ActivationBackward {
  static constexpr auto traits = kernel("activation_backward", WorkKind::activation_backward);
  bool gated;
  View d_x, d_out, x;
  std::int64_t rows, width;
  Activation activation;

  void access(AccessList& list, const PlanSizes&) const {
    list.read(d_out, rows * width);
    list.read(x, rows * width * (gated ? 2 : 1));
    list.write(d_x, rows * width * (gated ? 2 : 1));
  }
};

/// Rows first_row … of the micro-step's targets, each one of `classes`. Logits become their
/// gradient times `scale`, in fp16 times the loss scale, too; rows without a target have neither
/// loss nor gradient. From one row of logits to the next there are `stride` elements.
struct CrossEntropy {
  static constexpr auto traits = kernel("cross_entropy", WorkKind::cross_entropy);
  View losses, logits;
  std::int64_t first_row, rows, classes, stride;
  float scale;

  void access(AccessList& list, const PlanSizes&) const {
    list.update(logits, extent(rows, classes, stride));
    list.write(losses, rows);
  }
};

/// x may have another type than y.
struct Add {
  static constexpr auto traits = kernel("add", WorkKind::add);
  View y, x;
  std::int64_t count;

  [[nodiscard]] Elements elements() const { return {x, y, count}; }
  void access(AccessList& list, const PlanSizes&) const {
    list.read(x, count);
    list.update(y, count);
  }
};

/// The types are the tensors'.
struct Convert {
  static constexpr auto traits = kernel("convert", WorkKind::convert);
  View y, x;
  std::int64_t count;

  [[nodiscard]] Elements elements() const { return {x, y, count}; }
  void access(AccessList& list, const PlanSizes&) const { list.transfer(y, x, count); }
};

/// y times `factor`, in place.
struct Scale {
  static constexpr auto traits = kernel("scale", WorkKind::convert);
  View y;
  float factor;
  std::int64_t count;

  void access(AccessList& list, const PlanSizes&) const { list.update(y, count); }
  [[nodiscard]] Elements elements() const { return {y, y, count}; }
};

/// Copies between whole parameters lying one after another ("slab") and the order in which shards
/// travel, or between rows side by side and the same rows at a distance. That order is
/// [rank][parameter's 1/N], N being `num_ranks`. It converts between the tensors' types. Padding of
/// a shard is zero-filled on the way out. Elements r·shard_elements … of a piece in the slab lie at
/// r·rank_stride + shard_offset in `shards`.
struct Reshard {
  static constexpr auto traits = kernel("reshard", WorkKind::reshard);
  using Piece = ReshardPiece;
  View slab, shards;
  bool to_shards;
  int num_ranks;
  std::int64_t rank_stride;     ///< elements between two ranks' parts in `shards`
  int first_piece, num_pieces;  ///< of the plan's reshard_pieces

  void access(AccessList& list, const PlanSizes& of) const {
    const auto touch = [&](View view, std::int64_t offset, std::int64_t elements, bool writes) {
      view.offset_elements += offset;
      writes ? list.write(view, elements) : list.read(view, elements);
    };
    for (const Piece& piece : of.reshard_pieces.subspan(first_piece, num_pieces)) {
      touch(slab, piece.slab_offset, piece.elements, !to_shards);
      for (int rank = 0; rank < num_ranks; ++rank)
        touch(shards, rank * rank_stride + piece.shard_offset, piece.shard_elements, to_shards);
    }
  }
};

/// Each run of `group_elements` numbers of x, whole in x's order, to codes of 8 or 4 bits (two a
/// byte) and an fp32 scale; kernels.hpp has the formula. Runs do not reach across the equal parts
/// of x, one a rank of `nodes` nodes with `ranks_of_node` each. These parts change places: that of
/// rank `n·ranks_of_node + r` lies at `r·nodes + n` in the result. So the parts of ranks with the
/// same place on all nodes are side by side.
struct Quantize {
  static constexpr auto traits = kernel("quantize", WorkKind::quantize);
  View codes, scales, x;
  int bits;
  std::int64_t count, group_elements;
  int nodes = 1, ranks_of_node = 1;

  void access(AccessList& list, const PlanSizes&) const {
    list.read(x, count);
    list.write(codes, count * bits / 8);
    list.write(scales, count / group_elements);
  }
};

/// y[i] is the sum of what the codes [parts][count] stand for, divided by `divisor`.
struct Dequantize {
  static constexpr auto traits = kernel("dequantize", WorkKind::dequantize);
  View y, codes, scales;
  int bits;
  std::int64_t count, group_elements;
  int parts = 1, divisor = 1;

  void access(AccessList& list, const PlanSizes&) const {
    list.read(codes, parts * count * bits / 8);
    list.read(scales, parts * count / group_elements);
    list.write(y, count);
  }
};

/// Adds the sum of `rows` losses to the step's loss.
struct AccumulateLoss {
  static constexpr auto traits = kernel("sum", WorkKind::sum, StepSum::loss);
  View losses;
  std::int64_t rows;

  [[nodiscard]] Elements elements() const { return {losses, losses, rows}; }
  void access(AccessList& list, const PlanSizes&) const { list.read(losses, rows); }
};

struct AccumulateSquares {
  static constexpr auto traits = kernel("squares", WorkKind::squares, StepSum::squares);
  View gradient;
  std::int64_t count;

  [[nodiscard]] Elements elements() const { return {gradient, gradient, count}; }
  void access(AccessList& list, const PlanSizes&) const { list.read(gradient, count); }
};

/// One update by the configuration's optimizer. m and v: its first and second moment, absent where
/// it has none. model: absent in fp32.
struct UpdateParameters {
  static constexpr OperationTraits traits{.name = "update",
                                          .kind = OperationKind::arithmetic,
                                          .work = WorkKind::update,
                                          .takes_numbers_of_step = true};
  View master, m, v, gradient, model;
  std::int64_t count;

  void access(AccessList& list, const PlanSizes&) const {
    list.read(gradient, count);
    list.update(master, count);
    list.update(m, count);
    list.update(v, count);
    list.write(model, count);
  }
};

using Arithmetic =
    OperationList<FillNormal, Fill, EmbeddingForward, EmbeddingBackward, NormForward, NormBackward,
                  Matmul, BiasBackward, HeadNormForward, HeadNormBackward, Rotary, AttentionForward,
                  AttentionBackward, ActivationForward, ActivationBackward, CrossEntropy, Add,
                  Convert, Scale, Reshard, Quantize, Dequantize, AccumulateLoss, AccumulateSquares,
                  UpdateParameters>;

}  // namespace dstune::op
