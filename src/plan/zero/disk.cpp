#include "zero/disk.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"

namespace dstune::plan {
namespace {

constexpr std::int64_t min_swapped_bytes = 1 << 20;

}  // namespace

bool is_swappable(const TrainingConfig& config, std::int64_t bytes) {
  return bytes >= std::max(min_swapped_bytes, config.disk.block_bytes);
}

std::int64_t tensors_on_disk(const OptimizerConfig& optimizer, const SubGroup& group) {
  if (group.moments_memory != Memory::disk) return 2;
  const bool has_second = has_second_moment(optimizer) || optimizer.kind == OptimizerKind::lion;
  return 2 + (has_first_moment(optimizer) ? 1 : 0) + (has_second ? 1 : 0);
}

std::vector<bool> find_shards_on_disk(const Layout& layout, const TrainingConfig& config) {
  std::vector<bool> on_disk(layout.pieces().size(), false);
  const std::int64_t element = size_bytes(element_type(config.precision));
  for (const SubGroup& group : cut_into_sub_groups(layout, config)) {
    if (!group.swaps_parameters) continue;
    for (const int piece : layout.pieces_of(group.first, group.count))
      on_disk[piece] = is_swappable(config, element * layout.piece_shard_elements(piece));
  }
  return on_disk;
}

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

OptimizerSwapper::OptimizerSwapper(const ZeroContext& zero)
    : ZeroPart(zero), gradients_(layout_, config_, tensors_.sub_groups) {
  for (std::size_t buffer = tensors_.swap_buffers.size(); buffer-- > 0;) free_.push_back(buffer);
}

std::optional<std::size_t> OptimizerSwapper::next_after(std::size_t group) const {
  while (++group < tensors_.sub_groups.size())
    if (tensors_.sub_groups[group].memory == Memory::disk) return group;
  return std::nullopt;
}

OptimizerSwapper::Swap OptimizerSwapper::read(std::size_t index) {
  const SubGroup& group = tensors_.sub_groups[index];
  Swap swap{tensors_.on_disk.swapped(group), {}, 0};
  const std::size_t count = swap.states.size();
  require(free_.size() >= count, "there are swap buffers for a sub-group");
  for (std::size_t number = 0; number < count; ++number) {
    swap.buffers.push_back(free_.back());
    free_.pop_back();
  }
  const auto buffer = [&](std::size_t number) {
    return at(tensors_.swap_buffers[swap.buffers[number]]);
  };
  emitter_.wait(Stream::disk_read, emitter_.record(Stream::compute));
  for (std::size_t number = 0; number + 1 < count; ++number) {
    const auto& [state, offset] = swap.states[number];
    emitter_.emit(op::ReadDisk{buffer(number), at(tensors_.on_disk.*state, offset), group.count},
                  Stream::disk_read);
  }
  for (const GradientPart& part : gradients_.parts(group.first, group.count)) {
    const std::int64_t offset = part.first - group.first;
    const View there = moved(buffer(count - 1), offset);
    if (part.held_offset >= 0) {
      emitter_.emit(op::Copy{there, at(tensors_.held_gradients, part.held_offset), part.count});
    } else {
      const View disk = at(tensors_.on_disk.gradients, group.offset + offset);
      emitter_.emit(op::ReadDisk{there, disk, part.count}, Stream::disk_read);
    }
  }
  swap.event = emitter_.record(Stream::disk_read);
  return swap;
}

UpdateStates OptimizerSwapper::swap_in(std::size_t group) {
  current_ = ahead_ ? *ahead_ : read(group);
  ahead_.reset();
  emitter_.wait(Stream::compute, current_->event);
  const auto next = next_after(group);
  if (config_.disk.pipeline_read && next) ahead_ = read(*next);
  UpdateStates in_memory;
  for (std::size_t number = 0; number < current_->states.size(); ++number)
    in_memory.*current_->states[number].state = tensors_.swap_buffers[current_->buffers[number]];
  return in_memory;
}

void OptimizerSwapper::swap_out(std::size_t index) {
  const SubGroup& group = tensors_.sub_groups[index];
  if (behind_) wait_for_write(*behind_);
  behind_.reset();
  emitter_.wait(Stream::disk_write, emitter_.record(Stream::host));
  for (std::size_t number = 0; number + 1 < current_->states.size(); ++number) {
    const View buffer = at(tensors_.swap_buffers[current_->buffers[number]]);
    const auto& [state, offset] = current_->states[number];
    emitter_.emit(op::WriteDisk{at(tensors_.on_disk.*state, offset), buffer, group.count},
                  Stream::disk_write);
  }
  current_->event = emitter_.record(Stream::disk_write);
  if (config_.disk.pipeline_write && next_after(index)) {
    behind_ = current_;
  } else {
    wait_for_write(*current_);
  }
  current_.reset();
}

void OptimizerSwapper::wait_for_write(const Swap& write) {
  emitter_.wait(Stream::compute, write.event);
  free_.insert(free_.end(), write.buffers.begin(), write.buffers.end());
}

}  // namespace dstune::plan
