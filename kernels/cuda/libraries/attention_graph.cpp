#include "attention_graph.hpp"

#include <utility>

namespace dstune::kernels::cuda {
namespace {

using Tensor = OperationGraph::Tensor;

/// The tensors of both directions, and the steps that they have in common.
class Attention {
 public:
  Attention(const DnnLibrary& library, const AttentionPiece& piece)
      : graph(library),
        shape_(piece.whole),
        piece_(piece),
        type_(shape_.type == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF),
        qkv_row_((shape_.heads + 2 * shape_.kv_heads) * shape_.head_size),
        out_row_(shape_.heads * shape_.head_size),
        scores_{piece.batches, piece.heads(), shape_.sequence, shape_.sequence},
        rows_{piece.batches, piece.heads(), shape_.sequence, 1} {}

  OperationGraph graph;

  Tensor of_queries(std::int64_t uid) { return of_heads(uid, piece_.heads(), qkv_row_); }
  Tensor of_keys(std::int64_t uid) { return of_heads(uid, piece_.kv_heads, qkv_row_); }
  Tensor of_out(std::int64_t uid) { return of_heads(uid, piece_.heads(), out_row_); }
  /// Rows and columns exchanged.
  Tensor of_keys_transposed(std::int64_t uid) {
    return graph.in_memory(uid, type_,
                           {piece_.batches, piece_.kv_heads, shape_.head_size, shape_.sequence},
                           {shape_.sequence * qkv_row_, shape_.head_size, 1, qkv_row_});
  }
  /// Those back again: keys of heads that lie as in qkv.
  Tensor rows_of(Tensor keys_transposed) {
    const Tensor result =
        graph.between(type_, {piece_.batches, piece_.kv_heads, shape_.sequence, shape_.head_size},
                      {shape_.sequence * qkv_row_, shape_.head_size, qkv_row_, 1});
    graph.reshape(keys_transposed, result);
    return result;
  }
  Tensor log_sum_exp() {
    return graph.in_memory(uid_log_sum_exp, CUDNN_DATA_FLOAT, rows_, packed_strides(rows_),
                           piece_.statistics_alignment());
  }
  Tensor sums_of_queries() {
    const Dimensions size{piece_.batches, piece_.heads(), shape_.sequence, shape_.head_size};
    return graph.in_memory(uid_d_q_sums, CUDNN_DATA_FLOAT, size, packed_strides(size));
  }
  Tensor delta() {
    return graph.in_memory(uid_delta, CUDNN_DATA_FLOAT, rows_, packed_strides(rows_));
  }

  Tensor scores() { return graph.between(CUDNN_DATA_FLOAT, scores_); }
  Tensor statistics() { return graph.between(CUDNN_DATA_FLOAT, rows_); }
  /// Scores in the operands' type, as products read them.
  Tensor narrow_scores() { return graph.between(type_, scores_); }

  Tensor combined(cudnnPointwiseMode_t mode, const OperationGraph::Operands& operands) {
    const Tensor result = graph.between(CUDNN_DATA_FLOAT, graph.size(operands.x));
    graph.pointwise(mode, operands, result);
    return result;
  }

  Tensor scaled_scores(Tensor q, Tensor k_transposed, Tensor scale) {
    const Tensor products = scores();
    graph.multiply(q, k_transposed, products);
    return combined(CUDNN_POINTWISE_MUL, {products, scale});
  }

  /// −∞ where a query sees no key.
  Tensor masked(Tensor scores) {
    if (!shape_.causal) return scores;
    const Tensor masked = graph.number(uid_masked);
    const auto [row, column] = numbers(scores);
    const Tensor is_past = graph.between(CUDNN_DATA_BOOLEAN, scores_);
    graph.pointwise(CUDNN_POINTWISE_CMP_GE, {row, column}, is_past, CUDNN_DATA_BOOLEAN);
    scores = combined(CUDNN_POINTWISE_BINARY_SELECT, {scores, masked, is_past});
    if (shape_.window == 0) return scores;
    const Tensor window = graph.number(uid_window);
    const auto [again_row, again_column] = numbers(scores);
    const Tensor end = combined(CUDNN_POINTWISE_ADD, {again_column, window});
    const Tensor is_near = graph.between(CUDNN_DATA_BOOLEAN, scores_);
    graph.pointwise(CUDNN_POINTWISE_CMP_GT, {end, again_row}, is_near, CUDNN_DATA_BOOLEAN);
    return combined(CUDNN_POINTWISE_BINARY_SELECT, {scores, masked, is_near});
  }

  /// Keys as rows, queries as columns, in the operands' type.
  Tensor transposed(Tensor scores) {
    Dimensions strides = packed_strides(scores_);
    std::swap(strides[2], strides[3]);
    const Tensor result = graph.between(type_, scores_, strides);
    graph.reshape(scores, result);
    return result;
  }

  /// gradient = weights · rows, summed over the query heads that share a key head.
  void gradient_of_keys(Tensor weights, Tensor rows, Tensor gradient) {
    if (piece_.heads() == piece_.kv_heads) return graph.multiply(weights, rows, gradient);
    const Tensor of_each =
        graph.between(type_, {piece_.batches, piece_.heads(), shape_.sequence, shape_.head_size});
    graph.multiply(weights, rows, of_each);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, of_each, gradient);
  }

 private:
  Tensor of_heads(std::int64_t uid, std::int64_t heads, std::int64_t row) {
    return graph.in_memory(uid, type_, {piece_.batches, heads, shape_.sequence, shape_.head_size},
                           {shape_.sequence * row, shape_.head_size, row, 1});
  }

  std::pair<Tensor, Tensor> numbers(Tensor like) {
    const Tensor row = graph.between(CUDNN_DATA_INT32, scores_);
    const Tensor column = graph.between(CUDNN_DATA_INT32, scores_);
    graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, {like}, row, CUDNN_DATA_FLOAT, 2);
    graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, {like}, column, CUDNN_DATA_FLOAT, 3);
    return {row, column};
  }

  AttentionShape shape_;
  AttentionPiece piece_;
  cudnnDataType_t type_;
  std::int64_t qkv_row_;
  std::int64_t out_row_;
  Dimensions scores_;
  Dimensions rows_;
};

}  // namespace

OperationGraph attention_forward_graph(const DnnLibrary& library, const AttentionPiece& piece) {
  Attention a(library, piece);
  const Tensor q = a.of_queries(uid_q);
  const Tensor k_transposed = a.of_keys_transposed(uid_k);
  const Tensor scores = a.masked(a.scaled_scores(q, k_transposed, a.graph.number(uid_scale)));
  const Tensor largest = a.statistics();
  a.graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, largest);
  const Tensor shifted = a.combined(CUDNN_POINTWISE_SUB, {scores, largest});
  const Tensor powers = a.combined(CUDNN_POINTWISE_EXP, {shifted});
  const Tensor sum = a.statistics();
  a.graph.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
  const Tensor logarithm = a.combined(CUDNN_POINTWISE_LOG, {sum});
  a.graph.pointwise(CUDNN_POINTWISE_ADD, {largest, logarithm}, a.log_sum_exp());
  const Tensor weights = a.narrow_scores();
  a.graph.pointwise(CUDNN_POINTWISE_DIV, {powers, sum}, weights);
  a.graph.multiply(weights, a.of_keys(uid_v), a.of_out(uid_out));
  return std::move(a.graph);
}

OperationGraph attention_backward_graph(const DnnLibrary& library, const AttentionPiece& piece,
                                        BackwardForm form) {
  Attention a(library, piece);
  const Tensor q = a.of_queries(uid_q);
  const Tensor k_transposed = a.of_keys_transposed(uid_k);
  const Tensor v_transposed = a.of_keys_transposed(uid_v);
  const Tensor d_out = a.of_out(uid_d_out);
  const Tensor scale = a.graph.number(uid_scale);

  const Tensor terms = a.combined(CUDNN_POINTWISE_MUL, {d_out, a.of_out(uid_out)});
  const Tensor of_rows = a.statistics();
  a.graph.reduce(CUDNN_REDUCE_TENSOR_ADD, terms, of_rows);
  // The library looks for this product, which else stands for a dropout.
  const Tensor delta = a.delta();
  a.graph.pointwise(CUDNN_POINTWISE_MUL, {of_rows, a.graph.number(uid_one)}, delta);

  const Tensor scores = a.scaled_scores(q, k_transposed, scale);
  const Tensor shifted = a.combined(CUDNN_POINTWISE_SUB, {scores, a.log_sum_exp()});
  const Tensor weights = a.combined(CUDNN_POINTWISE_EXP, {a.masked(shifted)});
  a.gradient_of_keys(a.transposed(weights), d_out, a.of_keys(uid_d_v));

  const Tensor d_weights = a.scores();
  a.graph.multiply(d_out, v_transposed, d_weights);
  const Tensor apart = a.combined(CUDNN_POINTWISE_SUB, {d_weights, delta});
  const Tensor d_softmax = a.combined(CUDNN_POINTWISE_MUL, {apart, weights});
  const Tensor d_scores = a.combined(CUDNN_POINTWISE_MUL, {d_softmax, scale});
  a.gradient_of_keys(a.transposed(d_scores), q, a.of_keys(uid_d_k));

  const Tensor d_q = a.of_queries(uid_d_q);
  const Tensor keys = a.rows_of(k_transposed);
  if (form == BackwardForm::stored_scores) {
    a.graph.multiply(d_scores, keys, d_q);
  } else {
    const Tensor sums = a.sums_of_queries();
    a.graph.multiply(d_scores, keys, sums);
    a.graph.pointwise(CUDNN_POINTWISE_IDENTITY, {sums}, d_q);
  }
  return std::move(a.graph);
}

}  // namespace dstune::kernels::cuda
