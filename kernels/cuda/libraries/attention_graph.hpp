#pragma once
/// Attention as graphs that cuDNN knows as such and fuses into one kernel forward, and few
/// backward. Forward is softmax(scale·q·kᵀ)·v and the logarithm of the softmax's sum; backward
/// recomputes the probabilities from it.

#include "dstune/kernels/kernels.hpp"
#include "libraries/operation_graph.hpp"

namespace dstune::kernels::cuda {

/// The names of the plans' tensors and numbers.
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
  uid_delta,     ///< float[batches, heads, sequence]: the sum of out · d_out
  uid_d_q_sums,  ///< float[batches, heads, sequence, head_size]
  // Floats, in the host's memory.
  uid_scale,
  uid_masked,
  uid_window,
  uid_one,
};

/// Some batches, or some key heads of one with their query heads, of tensors that hold more. So its
/// statistics lie side by side, as the library's backward for GPUs before the H100 takes them
/// before 9.26, whatever strides are said (NVIDIA/cudnn-frontend, pull request 304).
struct AttentionPiece {
  AttentionShape whole;
  std::int64_t batches = 0;
  std::int64_t kv_heads = 0;

  [[nodiscard]] std::int64_t heads() const { return kv_heads * (whole.heads / whole.kv_heads); }
  /// Bytes at multiples of which they begin: 16 where the whole's do and pieces are no matter. Some
  /// of the library's configurations want that of all tensors.
  [[nodiscard]] std::int64_t statistics_alignment() const {
    const bool is_whole = batches == whole.batch && kv_heads == whole.kv_heads;
    return is_whole || whole.sequence % 4 == 0 ? 16 : 4;
  }
};

/// How backward gets the gradient of the queries, to which all blocks of keys contribute.
enum class BackwardForm {
  stored_scores,  ///< keeps the scores' gradient in its scratch: one order of sums in every run
  added_up        ///< atomic sums in fp32: less to move, and last bits that differ from run to run
};

/// Both throw DnnRefusal. A type of 16 bits; with a window: causal. delta is the piece's alone, the
/// other tensors have the strides of the whole.
OperationGraph attention_forward_graph(const DnnLibrary& library, const AttentionPiece& piece);
OperationGraph attention_backward_graph(const DnnLibrary& library, const AttentionPiece& piece,
                                        BackwardForm form);

}  // namespace dstune::kernels::cuda
