#pragma once
/// Final norm, masked-language transform, head and loss: forward and backward at once, so that the
/// logits of only a chunk of rows exist at a time.

#include "parts/block.hpp"

namespace dstune::plan {

/// Most bytes of one chunk's logits, fewest rows of a chunk, and of what its rows are a multiple
/// where that fits. Each chunk reads the head's weight twice, and its gradient is added to: a GPU's
/// products hide both behind what they compute where a chunk has some thousand rows.
inline constexpr std::int64_t logits_chunk_bytes = std::int64_t{256} << 20;
inline constexpr std::int64_t logits_chunk_rows = 32;
inline constexpr std::int64_t logits_tile_rows = 128;

/// Elements from one row of logits to the next, which begin at multiples of so many bytes.
[[nodiscard]] std::int64_t logits_stride(std::int64_t vocab, DType type,
                                         std::int64_t alignment_bytes);
/// Rows of every chunk but the last.
[[nodiscard]] std::int64_t rows_per_chunk(std::int64_t rows, std::int64_t stride, DType type);

/// Takes over both tensors of `running`; returns the gradient of the residual stream. Begins
/// backward of the gradients; with tied embeddings unit 0's gradients stay open.
TensorId emit_head(const Context& context, const Running& running, MicroStep micro);

}  // namespace dstune::plan
