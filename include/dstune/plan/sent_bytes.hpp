#pragma once
/// The bytes that a rank sends with gloo in a collective call, by ring algorithms. Local.

#include "dstune/plan/operations/operation.hpp"

namespace dstune {

/// Overhead::small_call_byte counts so many of a call at most. Bytes of a larger call cost less.
/// Between two ranks of a busy host gloo sends 0.5 KiB in 0.2 ms, 128 KiB in 0.45 ms, 512 KiB in
/// 1.3 ms, and 4 MiB in 3.7 ms.
inline constexpr double most_of_small_call = 512 * 1024;

/// gloo has no reduce-scatter: PyTorch makes an all-reduce of it. NCCL has one, but its bytes cost
/// nothing above those that are measured. `bytes`: of all ranks' parts.
[[nodiscard]] constexpr double sent_bytes(WorkKind kind, double ranks, double bytes) {
  const double passes = kind == WorkKind::all_reduce || kind == WorkKind::reduce_scatter ? 2 : 1;
  return passes * (ranks - 1) / ranks * bytes;
}

}  // namespace dstune
