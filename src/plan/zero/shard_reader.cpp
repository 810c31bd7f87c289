#include "zero/shard_reader.hpp"

#include <algorithm>

namespace dstune::plan {

ShardReader::ShardReader(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                         const PersistentTensors& tensors)
    : emitter_(emitter),
      layout_(layout),
      tensors_(tensors),
      // In a larger group compute waits for copies.
      copies_beside_compute_(config.overlap_comm && layout.group_size() == 1) {
  if (tensors.shards_on_disk != no_tensor) buffer_.assign(tensors.shards.size(), no_tensor);
}

void ShardReader::read(std::span<const ShardRead> reads) {
  if (reads.empty()) return;
  emitter_.wait(Stream::disk_read, emitter_.record(Stream::compute));
  if (copies_beside_compute_) emitter_.wait(Stream::disk_read, emitter_.record(Stream::gather));
  for (const ShardRead& each : reads) {
    const auto piece = static_cast<std::size_t>(each.piece);
    buffer_[piece] = tensors_.shard_buffers[static_cast<std::size_t>(each.buffer)];
    emitter_.emit(op::ReadDisk{at(buffer_[piece]), tensors_.shards[piece],
                               layout_.piece_shard_elements(each.piece)},
                  Stream::disk_read);
    on_their_way_.push_back(each.piece);
  }
  event_ = emitter_.record(Stream::disk_read);
}

void ShardReader::wait_for(std::span<const int> pieces) {
  const bool is_there = std::none_of(pieces.begin(), pieces.end(), [&](int piece) {
    return std::find(on_their_way_.begin(), on_their_way_.end(), piece) != on_their_way_.end();
  });
  if (is_there) return;
  emitter_.wait(Stream::compute, event_);
  on_their_way_.clear();
}

View ShardReader::shard(int piece) const {
  const auto index = static_cast<std::size_t>(piece);
  const View place = tensors_.shards[index];
  return tensors_.is_on_disk(place) ? at(buffer_[index]) : place;
}

}  // namespace dstune::plan
