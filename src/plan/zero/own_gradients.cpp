#include "zero/own_gradients.hpp"

#include <algorithm>

namespace dstune::plan {

OwnGradients::OwnGradients(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                           const PersistentTensors& tensors)
    : emitter_(emitter),
      layout_(layout),
      tensors_(tensors),
      is_offloaded_(layout.offloaded().optimizer),
      is_stage3_(config.zero_stage == 3),
      // DeepSpeed's reduction leaves them as they are, and a group of one needs none.
      takes_sums_(is_offloaded_ && layout.group_size() == 1 && tensors.fp32_gradients != no_tensor),
      sum_type_(takes_sums_ ? DType::f32 : sum_type(config)),
      master_type_(master_type(config)),
      adds_to_own_(is_offloaded_ && config.low_precision_master && config.zero_stage == 2 &&
                   config.accumulation_steps > 1),
      in_place_(!is_offloaded_ && layout.stage() == 3 && !config.fp32_gradient_accumulation),
      takes_norm_(config.gradient_clipping > 0 || config.precision == Precision::fp16),
      is_converted_(communication_type(config) != emitter.type()),
      // Sums of the gradients' type take averages in that type; at stage 1 an average has that type
      // wherever its sum was made.
      rounds_(is_converted_ && !config.fp32_gradient_accumulation),
      rounds_always_(is_converted_ && config.fp32_gradient_accumulation && config.zero_stage == 1),
      swapped_(layout, config, tensors.sub_groups),
      writer_(emitter, tensors) {}

void OwnGradients::begin(bool overwrite, bool last) {
  overwrite_ = overwrite;
  last_ = last;
}

std::vector<TensorId> OwnGradients::acquire_scratch(const BucketRange& range) const {
  std::vector<TensorId> scratch;
  if (!is_offloaded_) {
    // As large on every rank, whatever is its own.
    const std::int64_t most = layout_.stage() == 3
                                  ? range.shards
                                  : std::min(range.end - range.begin, layout_.own_elements());
    if (rounds_always_ || (rounds_ && !overwrite_)) {
      scratch.push_back(
          emitter_.acquire("converted gradients", -1, Category::buckets, emitter_.type(), most));
    }
    return scratch;
  }
  const std::int64_t largest = largest_piece(range);
  if (is_stage3_) {
    scratch.push_back(
        emitter_.acquire("gradient staging", -1, Category::staging, sum_type_, largest));
  }
  if (last_ && sum_type_ != master_type_) {
    scratch.push_back(
        emitter_.acquire("fp32 gradients", -1, Category::staging, master_type_, largest));
  }
  return scratch;
}

std::int64_t OwnGradients::largest_piece(const BucketRange& range) const {
  std::int64_t largest = 0;
  if (layout_.stage() == 3) {
    const int end = layout_.piece_begin(range.last);
    for (int piece = layout_.piece_begin(range.first); piece < end; ++piece)
      largest = std::max(largest, layout_.piece_shard_elements(piece));
    return largest;
  }
  for (int index = range.first; index < range.last; ++index)
    largest = std::max(largest, layout_.parameter(index).elements());
  return std::min(largest, layout_.own_elements());
}

OwnGradients::Kept OwnGradients::shard_of(const BucketRange& range, int piece) const {
  const std::int64_t offset = layout_.piece_shard_offset(piece);
  const std::int64_t shard = layout_.piece_shard_elements(piece);
  if (range.is_scattered)
    return {offset - layout_.shard_offset(range.first), shard, offset, 0, shard, offset};
  const Piece& whole = layout_.pieces()[static_cast<std::size_t>(piece)];
  const std::int64_t first = std::min(shard * layout_.group_rank(), whole.elements);
  const std::int64_t count = std::min(shard, whole.elements - first);
  const std::int64_t begin = layout_.parameter(whole.parameter).offset + whole.first + first;
  return {begin - range.begin, count, offset, 0, count, offset};
}

std::vector<OwnGradients::Kept> OwnGradients::pieces(const BucketRange& range) const {
  std::vector<Kept> result;
  if (layout_.stage() == 3) {
    const int end = layout_.piece_begin(range.last);
    for (int piece = layout_.piece_begin(range.first); piece < end; ++piece) {
      const Kept shard = shard_of(range, piece);
      if (shard.elements > 0) result.push_back(shard);
    }
    return result;
  }
  const std::int64_t own_begin = layout_.own_offset();
  const std::int64_t own_end = own_begin + layout_.own_elements();
  const std::int64_t touched_begin = is_offloaded_ ? layout_.touched_begin() : 0;
  for (int index = range.first; index < range.last; ++index) {
    const std::int64_t offset = layout_.offset(index);
    const std::int64_t elements = layout_.parameter(index).elements();
    const std::int64_t begin = std::max(offset, own_begin);
    const std::int64_t end = std::min(offset + elements, own_end);
    if (begin >= end) continue;
    result.push_back({layout_.parameter(index).offset - range.begin, elements,
                      offset - touched_begin, begin - offset, end - begin, begin - own_begin});
  }
  return result;
}

void OwnGradients::keep(const BucketRange& range, View averaged,
                        const std::vector<TensorId>& scratch, Stream stream) {
  if (!is_offloaded_) {
    keep_on_device(range, averaged, scratch.empty() ? no_tensor : scratch.front(), stream);
    return;
  }
  const TensorId staging = is_stage3_ ? scratch.front() : tensors_.gradient_staging;
  const bool accumulates = tensors_.accumulated_gradients != no_tensor || adds_to_own_;
  for (const Kept& piece : pieces(range)) {
    View sum = takes_sums_ ? at(tensors_.fp32_gradients, range.begin + piece.averaged_offset)
                           : moved(averaged, piece.averaged_offset);
    if (accumulates) {
      accumulate(sums_of(piece), moved(sum, adds_to_own_ ? piece.slice_offset : 0), at(staging),
                 stream);
      if (is_stage3_) sum = at(staging);
    }
    if (last_) hand_over(piece, sum, scratch.empty() ? no_tensor : scratch.back(), stream);
  }
}

void OwnGradients::keep_on_device(const BucketRange& range, View averaged, TensorId converted,
                                  Stream stream) const {
  const auto keep_run = [&](std::int64_t own, std::int64_t from, std::int64_t count) {
    const View to = at(tensors_.on_device.gradients, own);
    View source = moved(averaged, from);
    if (converted != no_tensor) {
      emitter_.emit(op::Convert{at(converted), source, count}, stream);
      source = at(converted);
    }
    if (overwrite_) {
      emitter_.emit(op::Convert{to, source, count}, stream);
    } else {
      emitter_.emit(op::Add{to, source, count}, stream);
    }
  };
  // What lies side by side there and here goes together.
  std::int64_t own = 0, from = 0, count = 0;
  for (const Kept& piece : pieces(range)) {
    const std::int64_t begin = piece.averaged_offset + piece.slice_offset;
    if (count > 0 && (own + count != piece.own_offset || from + count != begin)) {
      keep_run(own, from, count);
      count = 0;
    }
    if (count == 0) {
      own = piece.own_offset;
      from = begin;
    }
    count += piece.slice_elements;
  }
  if (count > 0) keep_run(own, from, count);
}

View OwnGradients::place_of_shards(const BucketRange& range) const {
  if (!in_place_ || !range.is_scattered || is_converted_) return {};
  return at(tensors_.on_device.gradients, layout_.shard_offset(range.first));
}

OwnGradients::Sums OwnGradients::sums_of(const Kept& piece) const {
  // Stage 2, where all is one sub-group.
  if (adds_to_own_) return {at(tensors_.on_host.gradients, piece.own_offset), piece.slice_elements};
  return {at(tensors_.accumulated_gradients, piece.accumulated_offset), piece.elements};
}

void OwnGradients::accumulate(const Sums& sums, View averaged, View staging, Stream stream) const {
  const auto [host, elements] = sums;
  if (overwrite_) {
    emitter_.emit(op::Copy{host, averaged, elements}, stream);
    // Stage 3 fetches back what it has just sent.
    if (is_stage3_) emitter_.emit(op::Copy{staging, host, elements}, stream);
    return;
  }
  emitter_.emit(op::Copy{staging, host, elements}, stream);
  const View sum = is_stage3_ ? staging : averaged;
  emitter_.emit(op::Add{sum, is_stage3_ ? averaged : staging, elements}, stream);
  emitter_.emit(op::Copy{host, sum, elements}, stream);
}

const SubGroup& OwnGradients::sub_group_of(std::int64_t own_element) const {
  const auto after = std::upper_bound(
      tensors_.sub_groups.begin(), tensors_.sub_groups.end(), own_element,
      [](std::int64_t element, const SubGroup& group) { return element < group.first; });
  return *std::prev(after);
}

void OwnGradients::hand_over(const Kept& piece, View sum, TensorId converted, Stream stream) {
  View slice = moved(sum, piece.slice_offset);
  if (takes_norm_) emitter_.emit(op::AccumulateSquares{slice, piece.slice_elements}, stream);
  const SubGroup& group = sub_group_of(piece.own_offset);
  const std::int64_t offset = group.offset + piece.own_offset - group.first;
  if (group.memory == Memory::device) {
    emitter_.emit(
        op::Convert{at(tensors_.on_device.gradients, offset), slice, piece.slice_elements}, stream);
    return;
  }
  if (sum_type_ != master_type_) {
    emitter_.emit(op::Convert{at(converted), slice, piece.slice_elements}, stream);
    slice = at(converted);
  }
  if (group.memory == Memory::host) {
    emitter_.emit(op::Copy{at(tensors_.on_host.gradients, offset), slice, piece.slice_elements},
                  stream);
    return;
  }
  const std::vector<GradientPart> parts = swapped_.parts(piece.own_offset, piece.slice_elements);
  // The padding of a shard that was not scattered.
  const std::int64_t end = parts.back().first + parts.back().count - piece.own_offset;
  if (end > piece.slice_elements) {
    emitter_.emit(op::Fill{moved(slice, piece.slice_elements), 0.0F, end - piece.slice_elements},
                  stream);
  }
  for (const GradientPart& part : parts) {
    const View gradients = moved(slice, part.first - piece.own_offset);
    if (part.held_offset >= 0) {
      const View held = at(tensors_.held_gradients, part.held_offset);
      emitter_.emit(op::Convert{held, gradients, part.count}, stream);
    } else {
      writer_.write(group, part, gradients, stream);
    }
  }
}

void OwnGradients::finish() {
  writer_.finish(Stream::compute);
}

}  // namespace dstune::plan
