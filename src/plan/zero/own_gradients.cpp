/// The destinations of the averaged gradients of the own part. They stay on the device in one flat
/// tensor. An offloaded optimizer gets them on the host or a disk, parameter by parameter as in
/// DeepSpeed.

#include <algorithm>

#include "zero/disk.hpp"
#include "zero/gradients.hpp"

namespace dstune::plan {
namespace {

/// A parameter, or the shard of it, that is kept.
struct Kept {
  std::int64_t averaged_offset, elements;
  std::int64_t accumulated_offset;
  std::int64_t slice_offset, slice_elements;  ///< what is own, inside of it
  std::int64_t own_offset;
};

/// Stage 3.
Kept shard_of(const Layout& layout, const BucketRange& range, int piece) {
  const std::int64_t offset = layout.piece_shard_offset(piece);
  const std::int64_t shard = layout.piece_shard_elements(piece);
  if (range.is_scattered)
    return {offset - layout.shard_offset(range.first), shard, offset, 0, shard, offset};
  const Piece& whole = layout.piece(piece);
  const std::int64_t first = std::min(shard * layout.group_rank(), whole.elements);
  const std::int64_t count = std::min(shard, whole.elements - first);
  const std::int64_t begin = layout.parameter(whole.parameter).offset + whole.first + first;
  return {begin - range.begin, count, offset, 0, count, offset};
}

std::vector<Kept> shards_of(const Layout& layout, const BucketRange& range) {
  std::vector<Kept> result;
  for (const int piece : layout.pieces_of_parameters(range.first, range.last)) {
    const Kept shard = shard_of(layout, range, piece);
    if (shard.elements > 0) result.push_back(shard);
  }
  return result;
}

/// Stages 1 and 2: of the parameters that the own part touches, sums of which begin at
/// `touched_begin`.
std::vector<Kept> touched_of(const Layout& layout, const BucketRange& range,
                             std::int64_t touched_begin) {
  std::vector<Kept> result;
  const std::int64_t own_begin = layout.own_offset();
  const std::int64_t own_end = own_begin + layout.own_elements();
  for (int index = range.first; index < range.last; ++index) {
    const std::int64_t offset = layout.offset(index);
    const std::int64_t elements = layout.parameter(index).elements();
    const std::int64_t begin = std::max(offset, own_begin);
    const std::int64_t end = std::min(offset + elements, own_end);
    if (begin >= end) continue;
    result.push_back({layout.parameter(index).offset - range.begin, elements,
                      offset - touched_begin, begin - offset, end - begin, begin - own_begin});
  }
  return result;
}

class GradientsOnDevice final : public OwnGradients, ZeroPart {
 public:
  explicit GradientsOnDevice(const ZeroContext& zero)
      : ZeroPart(zero), own_(tensors_.on_device.gradients) {
    const bool is_stage1 = config_.zero_stage == 1 && !reduces_fp32_sums(zero);
    const bool sums_in_fp32 = config_.fp32_gradient_accumulation;
    // Averages come in another type.
    const bool is_converted = communication_type(config_) != emitter_.type();
    in_place_ = layout_.stage() == 3 && !sums_in_fp32 && !is_converted;
    // Sums of the gradients' type take averages in that type; at stage 1 an average has that type
    // wherever its sum was made, but where fp32 sums are brought to the buckets as they are.
    rounds_added_ = is_converted && (!sums_in_fp32 || is_stage1);
    rounds_first_ = is_converted && sums_in_fp32 && is_stage1;
  }

  [[nodiscard]] std::vector<TensorId> acquire_scratch(const BucketRange& range) const override {
    if (!(overwrite_ ? rounds_first_ : rounds_added_)) return {};
    // The tensor is as large on every rank, whatever part the rank owns.
    const std::int64_t most =
        layout_.stage() == 3 ? range.shards : std::min(range.elements(), layout_.own_elements());
    return {emitter_.acquire("converted gradients", -1, Category::buckets, emitter_.type(), most)};
  }

  void keep(const BucketRange& range, View averaged, const std::vector<TensorId>& scratch,
            Stream stream) override {
    const TensorId rounded = scratch.empty() ? no_tensor : scratch.front();
    // Pieces that lie side by side there and here go together.
    std::int64_t own = 0, from = 0, count = 0;
    const auto keep_run = [&] {
      if (count > 0) keep_elements(own, moved(averaged, from), count, rounded, stream);
    };
    for (const Kept& piece :
         layout_.stage() == 3 ? shards_of(layout_, range) : touched_of(layout_, range, 0)) {
      const std::int64_t begin = piece.averaged_offset + piece.slice_offset;
      if (own + count != piece.own_offset || from + count != begin) {
        keep_run();
        own = piece.own_offset;
        from = begin;
        count = 0;
      }
      count += piece.slice_elements;
    }
    keep_run();
  }

  [[nodiscard]] View place_of_shards(const BucketRange& range) const override {
    if (!in_place_ || !range.is_scattered) return {};
    return at(own_, layout_.shard_offset(range.first));
  }

 private:
  void keep_elements(std::int64_t own, View from, std::int64_t count, TensorId rounded,
                     Stream stream) {
    if (rounded != no_tensor) {
      emitter_.emit(op::Convert{at(rounded), from, count}, stream);
      from = at(rounded);
    }
    if (overwrite_) {
      emitter_.emit(op::Convert{at(own_, own), from, count}, stream);
    } else {
      emitter_.emit(op::Add{at(own_, own), from, count}, stream);
    }
  }

  TensorId own_;
  bool in_place_;      // a reduction may put the own shards there itself
  bool rounds_added_;  // averages are converted before they are added
  bool rounds_first_;  // … or kept
};

/// The gradients of an offloaded optimizer. The host holds sums over micro-steps. Those of the last
/// micro-step go where their update is.
class OffloadedGradients : public OwnGradients, protected ZeroPart {
 public:
  OffloadedGradients(const ZeroContext& zero, DType sum_type)
      : ZeroPart(zero),
        sum_type_(sum_type),
        master_type_(master_type(config_)),
        swapped_(layout_, config_, tensors_.sub_groups),
        writer_(zero) {}

  void finish() override { writer_.finish(Stream::compute); }

 protected:
  /// Acquires the tensor that hand_over needs for a bucket whose largest piece has so many
  /// elements.
  void acquire_master_typed(std::int64_t largest, std::vector<TensorId>& scratch) const {
    if (!last_ || sum_type_ == master_type_) return;
    scratch.push_back(
        emitter_.acquire("fp32 gradients", -1, Category::staging, master_type_, largest));
  }

  /// Stages 1 and 2: the most elements that any rank owns of one parameter.
  [[nodiscard]] std::int64_t largest_part(const BucketRange& range) const {
    std::int64_t largest = 0;
    for (int index = range.first; index < range.last; ++index)
      largest = std::max(largest, layout_.parameter(index).elements());
    return std::min(largest, layout_.own_elements());
  }

  /// The sum of the step is on the device: its norm is taken and it goes where its update is, in
  /// the master copy's type.
  void hand_over(const Kept& piece, View sum, const std::vector<TensorId>& scratch, Stream stream) {
    View slice = moved(sum, piece.slice_offset);
    if (examines_gradients(config_))
      emitter_.emit(op::AccumulateSquares{slice, piece.slice_elements}, stream);
    const SubGroup& group = sub_group_of(piece.own_offset);
    const std::int64_t offset = group.offset + piece.own_offset - group.first;
    if (group.memory == Memory::device) {
      emitter_.emit(
          op::Convert{at(tensors_.on_device.gradients, offset), slice, piece.slice_elements},
          stream);
      return;
    }
    if (sum_type_ != master_type_) {
      const View converted = at(scratch.back());
      emitter_.emit(op::Convert{converted, slice, piece.slice_elements}, stream);
      slice = converted;
    }
    if (group.memory == Memory::host) {
      emitter_.emit(op::Copy{at(tensors_.on_host.gradients, offset), slice, piece.slice_elements},
                    stream);
    } else {
      swap_out(group, piece, slice, stream);
    }
  }

  DType sum_type_;  // of what is handed over

 private:
  [[nodiscard]] const SubGroup& sub_group_of(std::int64_t own_element) const {
    const auto after = std::upper_bound(
        tensors_.sub_groups.begin(), tensors_.sub_groups.end(), own_element,
        [](std::int64_t element, const SubGroup& group) { return element < group.first; });
    return *std::prev(after);
  }

  void swap_out(const SubGroup& group, const Kept& piece, View slice, Stream stream) {
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

  DType master_type_;
  SwappedGradients swapped_;
  GradientWriter writer_;
};

/// Stage 3: every micro-step's shards go to the host by way of a copy on the device, which
/// DeepSpeed fetches back even after it has just sent it.
class OffloadedShards final : public OffloadedGradients {
 public:
  explicit OffloadedShards(const ZeroContext& zero)
      : OffloadedGradients(zero, sum_type(zero.config)) {}

  [[nodiscard]] std::vector<TensorId> acquire_scratch(const BucketRange& range) const override {
    std::int64_t largest = 0;
    for (const int piece : layout_.pieces_of_parameters(range.first, range.last))
      largest = std::max(largest, layout_.piece_shard_elements(piece));
    std::vector<TensorId> scratch{
        emitter_.acquire("gradient staging", -1, Category::staging, sum_type_, largest)};
    acquire_master_typed(largest, scratch);
    return scratch;
  }

  void keep(const BucketRange& range, View averaged, const std::vector<TensorId>& scratch,
            Stream stream) override {
    const View staging = at(scratch.front());
    for (const Kept& piece : shards_of(layout_, range)) {
      const View shard = moved(averaged, piece.averaged_offset);
      const View host = at(tensors_.accumulated_gradients, piece.accumulated_offset);
      if (overwrite_) {
        emitter_.emit(op::Copy{host, shard, piece.elements}, stream);
        emitter_.emit(op::Copy{staging, host, piece.elements}, stream);
      } else {
        emitter_.emit(op::Copy{staging, host, piece.elements}, stream);
        emitter_.emit(op::Add{staging, shard, piece.elements}, stream);
        emitter_.emit(op::Copy{host, staging, piece.elements}, stream);
      }
      if (last_) hand_over(piece, staging, scratch, stream);
    }
  }
};

/// Stages 1 and 2: whole parameters that the own part touches.
class OffloadedParts final : public OffloadedGradients {
 public:
  explicit OffloadedParts(const ZeroContext& zero)
      : OffloadedGradients(zero, takes_sums(zero) ? DType::f32 : sum_type(zero.config)),
        waits_for_copies_(config_.switches.offload_waits_for_copies &&
                          config_.accumulation_steps > 1 && config_.zero_stage == 2),
        takes_sums_(takes_sums(zero)),
        adds_to_own_(config_.low_precision_master && config_.zero_stage == 2 &&
                     config_.accumulation_steps > 1) {}

  [[nodiscard]] std::vector<TensorId> acquire_scratch(const BucketRange& range) const override {
    std::vector<TensorId> scratch;
    acquire_master_typed(largest_part(range), scratch);
    return scratch;
  }

  void keep(const BucketRange& range, View averaged, const std::vector<TensorId>& scratch,
            Stream stream) override {
    for (const Kept& piece : touched_of(layout_, range, layout_.touched_begin())) {
      const View sum = takes_sums_
                           ? at(tensors_.fp32_gradients, range.begin + piece.averaged_offset)
                           : moved(averaged, piece.averaged_offset);
      wait_for_copies();
      if (adds_to_own_) {
        // All elements are in one sub-group here.
        accumulate(at(tensors_.on_host.gradients, piece.own_offset), moved(sum, piece.slice_offset),
                   piece.slice_elements, stream);
      } else if (tensors_.accumulated_gradients != no_tensor) {
        accumulate(at(tensors_.accumulated_gradients, piece.accumulated_offset), sum,
                   piece.elements, stream);
      }
      if (last_) hand_over(piece, sum, scratch, stream);
      if (waits_for_copies_ && stream != Stream::compute) copied_ = emitter_.record(stream);
    }
  }

  void finish() override {
    OffloadedGradients::finish();
    copied_ = -1;
  }

 private:
  /// Before it adds up, DeepSpeed's host waits for all copies before: compute gets nothing more.
  void wait_for_copies() {
    if (copied_ >= 0) emitter_.wait(Stream::compute, copied_);
    copied_ = -1;
  }
  /// Not what comes from a reduction, but the sums of stage 1 in fp32: DeepSpeed's reduction leaves
  /// them as they are, and a group of one needs none.
  static bool takes_sums(const ZeroContext& zero) {
    return zero.layout.group_size() == 1 && zero.tensors.fp32_gradients != no_tensor;
  }
  /// To the sums on the host; `averaged` becomes the sum.
  void accumulate(View host, View averaged, std::int64_t elements, Stream stream) {
    if (!overwrite_) {
      const View staging = at(tensors_.gradient_staging);
      emitter_.emit(op::Copy{staging, host, elements}, stream);
      emitter_.emit(op::Add{averaged, staging, elements}, stream);
    }
    emitter_.emit(op::Copy{host, averaged, elements}, stream);
  }

  bool waits_for_copies_;
  int copied_ = -1;  // the event of the last copy
  bool takes_sums_;
  bool adds_to_own_;  // sums over micro-steps are in the own gradients
};

/// Stages 1 and 2 where the own part of fp32 sums stays on the device: it leaves at the end.
class OffloadedSums final : public OffloadedGradients {
 public:
  explicit OffloadedSums(const ZeroContext& zero) : OffloadedGradients(zero, DType::f32) {}

  [[nodiscard]] std::vector<TensorId> acquire_scratch(const BucketRange& range) const override {
    std::vector<TensorId> scratch;
    acquire_master_typed(largest_part(range), scratch);
    return scratch;
  }

  void keep(const BucketRange& range, View averaged, const std::vector<TensorId>& scratch,
            Stream stream) override {
    for (Kept piece : touched_of(layout_, range, 0)) {
      const View sum = at(tensors_.own_sums, piece.own_offset);
      const View slice = moved(averaged, piece.averaged_offset + piece.slice_offset);
      if (overwrite_) {
        emitter_.emit(op::Convert{sum, slice, piece.slice_elements}, stream);
      } else {
        emitter_.emit(op::Add{sum, slice, piece.slice_elements}, stream);
      }
      piece.slice_offset = 0;
      if (last_) hand_over(piece, sum, scratch, stream);
    }
  }
};

}  // namespace

std::unique_ptr<OwnGradients> own_gradients_of(const ZeroContext& zero) {
  if (!zero.layout.offloaded().optimizer) return std::make_unique<GradientsOnDevice>(zero);
  if (zero.config.zero_stage == 3) return std::make_unique<OffloadedShards>(zero);
  if (keeps_sums_on_device(zero.config)) return std::make_unique<OffloadedSums>(zero);
  return std::make_unique<OffloadedParts>(zero);
}

}  // namespace dstune::plan
