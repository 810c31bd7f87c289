#pragma once
/// Attention as graphs that cuDNN knows as such and fuses into one kernel forward, and few
/// backward. Forward is softmax(scale·q·kᵀ)·v and the logarithm of the softmax's sum; backward
/// recomputes the probabilities from it.

#include "dstune/kernels/kernels.hpp"
#include "libraries/operation_graph.hpp"

namespace dstune::kernels::cuda {

/// What the plans' tensors and numbers are called.
enum AttentionUid : std::int64_t {
  uid_q = 1,
  uid_k,
  uid_v,
  uid_out,
  uid_log_sum_exp,
  uid_d_out,
  uid_d_q,
  uid_d_k,
  uid_d_v,
  uid_delta,  ///< float[batches, heads, sequence]: the sum of out · d_out
  // Floats, in the host's memory.
  uid_scale,
  uid_masked,
  uid_window,
  uid_one,
};

/// Some batches, and some key heads with their query heads, of tensors that hold more.
struct AttentionPiece {
  AttentionShape whole;
  std::int64_t batches = 0;
  std::int64_t kv_heads = 0;

  [[nodiscard]] std::int64_t heads() const { return kv_heads * (whole.heads / whole.kv_heads); }
};

/// Both throw DnnRefusal. A type of 16 bits; with a window: causal. delta is the piece's alone, the
/// other tensors have the strides of the whole.
OperationGraph attention_forward_graph(const DnnLibrary& library, const AttentionPiece& piece);
/// The one of which every result has one order of sums. It keeps the gradient of the scores in its
/// scratch, which the piece bounds; the other has atomics.
OperationGraph attention_backward_graph(const DnnLibrary& library, const AttentionPiece& piece);

}  // namespace dstune::kernels::cuda
