#pragma once
/// Brings shards from the disk into the host's buffers, as the schedule of gathers says, and says
/// where each of them is.

#include <span>
#include <vector>

#include "zero/gather_schedule.hpp"
#include "zero/layout.hpp"

namespace dstune::plan {

class ShardReader {
 public:
  ShardReader(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
              const PersistentTensors& tensors);

  /// They are on their way behind what uses the buffers so far.
  void read(std::span<const ShardRead> reads);
  /// Compute goes on when the shards of these pieces are in memory, and with them, as in DeepSpeed,
  /// everything that is on its way.
  void wait_for(std::span<const int> pieces);
  /// Where the own shard of a piece is in memory, once it is there.
  [[nodiscard]] View shard(int piece) const;

 private:
  Emitter& emitter_;
  const Layout& layout_;
  const PersistentTensors& tensors_;
  bool copies_beside_compute_;
  std::vector<TensorId> buffer_;  // by piece, of those on the disk
  std::vector<int> on_their_way_;
  int event_ = 0;  // of the last read
};

}  // namespace dstune::plan
