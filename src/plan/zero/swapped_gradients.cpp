#include "zero/swapped_gradients.hpp"

#include <algorithm>

namespace dstune::plan {

SwappedGradients::SwappedGradients(const Layout& layout, const TrainingConfig& config,
                                   const std::vector<SubGroup>& groups) {
  int piece = 0;
  for (const SubGroup& group : groups) {
    const std::int64_t group_end = group.first + group.count;
    if (group.memory != Memory::disk) continue;
    while (layout.piece_shard_offset(piece) < group.first) ++piece;
    for (; piece < static_cast<int>(layout.pieces().size()); ++piece) {
      const std::int64_t first = layout.piece_shard_offset(piece);
      if (first >= group_end) break;
      const std::int64_t end = layout.piece_shard_offset(piece + 1);
      if (!is_swappable(config, 4 * (end - first))) {
        add(first, end, true);
        continue;
      }
      // Whole blocks of the sub-group, whose place on the disk begins a block.
      const std::int64_t inner =
          group.first + round_up(first - group.first, disk_alignment_elements);
      const std::int64_t inner_end = end - (end - group.first) % disk_alignment_elements;
      add(first, inner, true);
      add(inner, inner_end, false);
      add(inner_end, end, true);
    }
  }
}

void SwappedGradients::add(std::int64_t first, std::int64_t end, bool is_held) {
  if (first == end) return;
  parts_.push_back({first, end - first, is_held ? held_ : -1});
  if (is_held) held_ += end - first;
}

std::vector<GradientPart> SwappedGradients::parts(std::int64_t first, std::int64_t count) const {
  const auto before = [](const GradientPart& part, std::int64_t value) {
    return part.first < value;
  };
  return {std::lower_bound(parts_.begin(), parts_.end(), first, before),
          std::lower_bound(parts_.begin(), parts_.end(), first + count, before)};
}

void GradientWriter::write(const SubGroup& group, const GradientPart& part, View gradients,
                           Stream stream) {
  const std::vector<TensorId>& buffers = tensors_.swap_buffers;
  if (filled_ + part.count > emitter_.elements(buffers[buffer_])) {
    submit(stream);
    if (submitted_ == buffers.size()) finish(stream);
  }
  const View slot = at(buffers[buffer_], filled_);
  emitter_.emit(op::Copy{slot, gradients, part.count}, stream);
  pending_.push_back(
      {at(tensors_.on_disk.gradients, group.offset + part.first - group.first), slot, part.count});
  filled_ += part.count;
}

void GradientWriter::submit(Stream stream) {
  if (pending_.empty()) return;
  emitter_.wait(Stream::disk_write, emitter_.record(stream));
  for (const Pending& each : pending_)
    emitter_.emit(op::WriteDisk{each.disk, each.buffer, each.count}, Stream::disk_write);
  pending_.clear();
  filled_ = 0;
  ++submitted_;
  buffer_ = (buffer_ + 1) % tensors_.swap_buffers.size();
}

void GradientWriter::finish(Stream stream) {
  submit(stream);
  if (submitted_ == 0) return;
  emitter_.wait(stream, emitter_.record(Stream::disk_write));
  submitted_ = 0;
}

}  // namespace dstune::plan
