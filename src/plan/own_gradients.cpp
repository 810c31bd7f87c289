#include "own_gradients.hpp"

#include <algorithm>

namespace dstune::plan {

OwnGradients::OwnGradients(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                           const PersistentTensors& tensors)
    : emitter_(emitter),
      layout_(layout),
      tensors_(tensors),
      is_offloaded_(layout.is_optimizer_offloaded()),
      is_stage3_(config.zero_stage == 3),
      takes_norm_(config.gradient_clipping > 0 || config.precision == Precision::fp16) {}

void OwnGradients::begin(bool overwrite, bool last) {
  overwrite_ = overwrite;
  last_ = last;
}

std::vector<TensorId> OwnGradients::acquire_scratch(const BucketRange& range) const {
  std::vector<TensorId> scratch;
  if (!is_offloaded_) return scratch;
  const std::int64_t largest = largest_piece(range);
  if (is_stage3_) {
    scratch.push_back(
        emitter_.acquire("gradient staging", -1, Category::staging, emitter_.type(), largest));
  }
  if (last_ && emitter_.type() != DType::f32) {
    scratch.push_back(
        emitter_.acquire("fp32 gradients", -1, Category::staging, DType::f32, largest));
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

std::vector<OwnGradients::Kept> OwnGradients::pieces(const BucketRange& range) const {
  std::vector<Kept> result;
  if (layout_.stage() == 3) {
    const int end = layout_.piece_begin(range.last);
    for (int piece = layout_.piece_begin(range.first); piece < end; ++piece) {
      const std::int64_t offset = layout_.piece_shard_offset(piece);
      const std::int64_t elements = layout_.piece_shard_elements(piece);
      result.push_back(
          {offset - layout_.shard_offset(range.first), elements, offset, 0, elements, offset});
    }
    return result;
  }
  const std::int64_t own_begin = layout_.own_offset();
  const std::int64_t own_end = own_begin + layout_.own_elements();
  for (int index = range.first; index < range.last; ++index) {
    const std::int64_t offset = layout_.parameter(index).offset;
    const std::int64_t elements = layout_.parameter(index).elements();
    const std::int64_t begin = std::max(offset, own_begin);
    const std::int64_t end = std::min(offset + elements, own_end);
    if (begin >= end) continue;
    result.push_back({offset - range.begin, elements, offset - layout_.touched_begin(),
                      begin - offset, end - begin, begin - own_begin});
  }
  return result;
}

void OwnGradients::keep(const BucketRange& range, View averaged,
                        const std::vector<TensorId>& scratch, Stream stream) const {
  if (!is_offloaded_) {
    keep_on_device(range, averaged, stream);
    return;
  }
  const TensorId staging = is_stage3_ ? scratch.front() : tensors_.gradient_staging;
  const bool accumulates = tensors_.accumulated_gradients != no_tensor;
  for (const Kept& piece : pieces(range)) {
    View sum = moved(averaged, piece.averaged_offset);
    if (accumulates) {
      accumulate(piece, sum, at(staging), stream);
      if (is_stage3_) sum = at(staging);
    }
    if (last_) hand_over(piece, sum, scratch.empty() ? no_tensor : scratch.back(), stream);
  }
}

void OwnGradients::keep_on_device(const BucketRange& range, View averaged, Stream stream) const {
  View own = place_of_shards(range);
  std::int64_t count = range.shards;
  if (layout_.stage() < 3) {
    const std::int64_t begin = std::max(range.begin, layout_.own_offset());
    const std::int64_t end = std::min(range.end, layout_.own_offset() + layout_.own_elements());
    own = at(tensors_.own_gradients, begin - layout_.own_offset());
    averaged = moved(averaged, begin - range.begin);
    count = end - begin;
  }
  if (count <= 0) return;
  if (overwrite_) {
    emitter_.emit(op::Convert{own, averaged, count}, stream);
  } else {
    emitter_.emit(op::Add{own, averaged, count}, stream);
  }
}

View OwnGradients::place_of_shards(const BucketRange& range) const {
  if (is_offloaded_ || layout_.stage() < 3) return {};
  return at(tensors_.own_gradients, layout_.shard_offset(range.first));
}

void OwnGradients::accumulate(const Kept& piece, View averaged, View staging, Stream stream) const {
  const View host = at(tensors_.accumulated_gradients, piece.accumulated_offset);
  if (overwrite_) {
    emitter_.emit(op::Copy{host, averaged, piece.elements}, stream);
    // Stage 3 fetches back what it has just sent.
    if (is_stage3_) emitter_.emit(op::Copy{staging, host, piece.elements}, stream);
    return;
  }
  emitter_.emit(op::Copy{staging, host, piece.elements}, stream);
  const View sum = is_stage3_ ? staging : averaged;
  emitter_.emit(op::Add{sum, is_stage3_ ? averaged : staging, piece.elements}, stream);
  emitter_.emit(op::Copy{host, sum, piece.elements}, stream);
}

void OwnGradients::hand_over(const Kept& piece, View sum, TensorId converted, Stream stream) const {
  View slice = moved(sum, piece.slice_offset);
  if (takes_norm_) emitter_.emit(op::AccumulateSquares{slice, piece.slice_elements}, stream);
  if (emitter_.type() != DType::f32) {
    emitter_.emit(op::Convert{at(converted), slice, piece.slice_elements}, stream);
    slice = at(converted);
  }
  emitter_.emit(op::Copy{at(tensors_.own_gradients, piece.own_offset), slice, piece.slice_elements},
                stream);
}

}  // namespace dstune::plan
