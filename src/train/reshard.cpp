#include "reshard.hpp"

#include <algorithm>

namespace dstune::train {

void reshard(const op::Reshard& operation, std::span<const op::Reshard::Piece> pieces,
             ShardedBytes slab, ShardedBytes shards, const CopyElements& copy,
             const ZeroBytes& zero) {
  for (std::int64_t rank = 0; rank < operation.num_ranks; ++rank) {
    for (const op::Reshard::Piece& piece : pieces) {
      const std::int64_t first = std::min(rank * piece.shard_elements, piece.elements);
      const std::int64_t count = std::min(piece.shard_elements, piece.elements - first);
      std::byte* const whole = slab.at(piece.slab_offset + first);
      const std::int64_t shard_first = rank * operation.rank_stride + piece.shard_offset;
      std::byte* const shard = shards.at(shard_first);
      if (!operation.to_shards) {
        copy(whole, shard, count);
        continue;
      }
      copy(shard, whole, count);
      const std::int64_t padding = piece.shard_elements - count;
      if (padding > 0) zero(shards.at(shard_first + count), padding * shards.element_bytes);
    }
  }
}

}  // namespace dstune::train
