#include "zero/optimizer_swapper.hpp"

#include "dstune/base/error.hpp"

namespace dstune::plan {

OptimizerSwapper::OptimizerSwapper(Emitter& emitter, const Layout& layout,
                                   const TrainingConfig& config, const PersistentTensors& tensors)
    : emitter_(emitter),
      tensors_(tensors),
      reads_ahead_(config.disk.pipeline_read),
      writes_behind_(config.disk.pipeline_write),
      gradients_(layout, config, tensors.sub_groups) {
  for (std::size_t buffer = tensors.swap_buffers.size(); buffer-- > 0;) free_.push_back(buffer);
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
  if (reads_ahead_ && next) ahead_ = read(*next);
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
  if (writes_behind_ && next_after(index)) {
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
