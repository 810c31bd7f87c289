#pragma once
/// Final norm, masked-language transform, head and loss: forward and backward at once, so that the
/// logits of only a chunk of rows exist at a time.

#include "block.hpp"

namespace dstune::plan {

/// Most bytes of one chunk's logits, and fewest rows of a chunk.
inline constexpr std::int64_t logits_chunk_bytes = std::int64_t{64} << 20;
inline constexpr std::int64_t logits_chunk_rows = 32;

/// Rows of every chunk but the last.
[[nodiscard]] std::int64_t rows_per_chunk(std::int64_t rows, std::int64_t vocab, DType type);

/// Takes over both tensors of `running`; returns the gradient of the residual stream. Begins
/// backward of the gradients; with tied embeddings unit 0's gradients stay open.
TensorId emit_head(const Context& context, const Running& running, MicroStep micro);

}  // namespace dstune::plan
