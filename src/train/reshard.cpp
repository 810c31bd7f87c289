#include "reshard.hpp"

#include <algorithm>
#include <cstring>

namespace dstune::train {

void reshard(const op::Reshard& operation, std::byte* slab, std::byte* shards,
             std::int64_t element_bytes, int group_size) {
  for (std::int64_t rank = 0; rank < group_size; ++rank) {
    for (const op::Reshard::Piece& piece : operation.pieces) {
      const std::int64_t first = std::min(rank * piece.shard_elements, piece.elements);
      const std::int64_t count = std::min(piece.shard_elements, piece.elements - first);
      std::byte* whole = slab + (piece.slab_offset + first) * element_bytes;
      std::byte* shard =
          shards + (rank * operation.rank_stride + piece.shard_offset) * element_bytes;
      const auto bytes = static_cast<std::size_t>(count * element_bytes);
      if (operation.to_shards) {
        std::memcpy(shard, whole, bytes);
        std::memset(shard + bytes, 0,
                    static_cast<std::size_t>(piece.shard_elements * element_bytes) - bytes);
      } else {
        std::memcpy(whole, shard, bytes);
      }
    }
  }
}

}  // namespace dstune::train
