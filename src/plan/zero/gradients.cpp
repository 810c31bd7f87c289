#include "zero/gradients.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"

namespace dstune::plan {

std::vector<BucketRange> cut_into_buckets(const Layout& layout, std::int64_t bucket_elements,
                                          bool from_the_beginning) {
  const int count = layout.num_parameters();
  std::vector<BucketRange> ranges;
  // Closes a bucket of arrivals [begin, end).
  const auto close = [&](int begin, int end) {
    const int first = from_the_beginning ? begin : count - end;
    const int last = from_the_beginning ? end : count - begin;
    const Parameter& back = layout.parameter(last - 1);
    const std::int64_t from = layout.parameter(first).offset;
    const std::int64_t to = back.offset + back.elements();
    const std::int64_t shards =
        layout.stage() == 3 ? layout.shard_offset(last) - layout.shard_offset(first) : 0;
    ranges.push_back({first, last, from, to, shards, to - from > bucket_elements});
  };
  int begin = 0;
  std::int64_t elements = 0;
  for (int arrived = 0; arrived < count; ++arrived) {
    const int index = from_the_beginning ? arrived : count - 1 - arrived;
    const std::int64_t arriving = layout.parameter(index).elements();
    if (elements > 0 && elements + arriving > bucket_elements) {
      close(begin, arrived);
      begin = arrived;
      elements = 0;
    }
    elements += arriving;
  }
  close(begin, count);
  return ranges;
}

Reducer::Reducer(const ZeroContext& zero)
    : ZeroPart(zero),
      type_(communication_type(config_)),
      bucket_type_(reduces_fp32_sums(zero) ? DType::f32 : type_),
      // Stages 1 and 2 of DeepSpeed need them for offloading.
      contiguous_(config_.contiguous_gradients ||
                  (layout_.offloaded().optimizer && config_.zero_stage < 3)),
      clones_alone_(config_.switches.offload_waits_for_copies && layout_.offloaded().optimizer &&
                    config_.zero_stage < 3),
      from_the_beginning_(layout_.stage() == 1 && !config_.overlap_comm),
      ways_(choose_reductions(zero, contiguous_)),
      own_gradients_(own_gradients_of(zero)),
      ranges_(cut_into_buckets(layout_, config_.reduce_bucket_size, from_the_beginning_)) {
  int shared = 0;
  for (BucketRange& range : ranges_) {
    range.is_scattered = reduction_of(range).scatters();
    if (range.alone) continue;
    ++shared;
    capacity_ = std::max(capacity_, bucket_elements(range));
  }
  num_buckets_ = std::min(shared, config_.overlap_comm ? 2 : 1);
}

std::int64_t Reducer::bucket_elements(const BucketRange& range) const {
  return reduction_of(range).lies_by_rank() ? range.shards * layout_.group_size()
                                            : range.elements();
}

void Reducer::begin(bool overwrite, bool last) {
  overwrite_ = overwrite;
  last_ = last;
  own_gradients_->begin(overwrite, last);
  next_ = filling_ = 0;
  slabs_.clear();
  if (!contiguous_) return;
  for (int index = 0; index < num_buckets_; ++index) {
    buckets_.push_back(emitter_.acquire("bucket", -1, Category::buckets, bucket_type_, capacity_));
  }
}

void Reducer::arrive(int unit, View source, TensorId slab) {
  const auto [unit_first, unit_end] = layout_.table().unit_range(unit);
  const std::size_t id = slabs_.size();
  slabs_.push_back({slab, 1});
  for (int first = unit_first, end = unit_end; first < end;) {
    const BucketRange& range = ranges_[next_];
    const Arrived arrived{std::max(first, range.first), std::min(end, range.last), unit_first,
                          source, id};
    if (contiguous_ && !range.alone) {
      copy(arrived, range, buckets_[filling_]);
    } else {
      ++slabs_[id].readers;
      uncopied_.push_back(arrived);
    }
    const bool is_full =
        from_the_beginning_ ? arrived.last == range.last : arrived.first == range.first;
    (from_the_beginning_ ? first : end) = from_the_beginning_ ? arrived.last : arrived.first;
    if (is_full) {
      flush(range);
      ++next_;
    }
  }
  drop(id);
}

void Reducer::finish() {
  require(next_ == ranges_.size(), "every gradient is reduced");
  wait_for_reduction();
  own_gradients_->finish();
  for (const TensorId bucket : buckets_) emitter_.release(bucket);
  buckets_.clear();
}

void Reducer::copy(const Arrived& arrived, const BucketRange& range, TensorId bucket) {
  if (reduction_of(range).lies_by_rank()) {
    emitter_.reshard(
        op::Reshard{arrived.source, at(bucket), true, layout_.group_size(), range.shards, 0, 0},
        [&](auto& pieces) {
          layout_.add_resharding(pieces, arrived.first, arrived.last, arrived.slab_first,
                                 range.first);
        });
    return;
  }
  const std::int64_t begin = layout_.parameter(arrived.first).offset;
  const Parameter& last = layout_.parameter(arrived.last - 1);
  emitter_.emit(
      op::Convert{at(bucket, begin - range.begin),
                  moved(arrived.source, begin - layout_.parameter(arrived.slab_first).offset),
                  last.offset + last.elements() - begin});
}

void Reducer::flush(const BucketRange& range) {
  const Reduction& way = reduction_of(range);
  TensorId own_bucket = no_tensor;
  const View bucket = bucket_of(range, own_bucket);
  const View place = overwrite_ ? own_gradients_->place_of_shards(range) : View{};
  ReductionScratch scratch;
  if (range.is_scattered && !place)
    scratch.scattered = emitter_.acquire("scattered", -1, Category::buckets, type_, range.shards);
  way.acquire(range, scratch);
  TensorId sent_copy = no_tensor;
  const View sent = sent_of(range, bucket, sent_copy);
  const TensorId converted = acquire_converted(range);
  const std::vector<TensorId> kept = own_gradients_->acquire_scratch(range);

  const Stream stream = begin_reduction();
  if (sent_copy != no_tensor) emitter_.emit(op::Convert{sent, bucket, range.elements()}, stream);
  const View shards = place ? place : at(scratch.scattered);
  way.reduce(range, sent, shards, scratch, stream);
  if (!place) {
    View averaged = range.is_scattered ? shards : sent;
    if (converted != no_tensor) {
      emitter_.emit(op::Convert{at(converted), averaged, emitter_.elements(converted)}, stream);
      averaged = at(converted);
    }
    own_gradients_->keep(range, averaged, kept, stream);
  }
  average_over_copies(range, stream);
  used_tensors_ = kept;
  used_tensors_.insert(used_tensors_.end(),
                       {own_bucket, sent_copy, scratch.scattered, scratch.flattened, converted,
                        scratch.codes, scratch.scales, scratch.received_codes,
                        scratch.received_scales, scratch.sums, scratch.padded});
  for (const Arrived& arrived : uncopied_) used_slabs_.push_back(arrived.slab);
  uncopied_.clear();
  if (config_.overlap_comm) reduction_ = emitter_.record(stream);
  // Without contiguous gradients DeepSpeed waits for each bucket.
  if (!config_.overlap_comm || !contiguous_) wait_for_reduction();
}

View Reducer::bucket_of(const BucketRange& range, TensorId& own_bucket) {
  if (contiguous_ && !range.alone) {
    const TensorId full = buckets_[filling_];
    filling_ = (filling_ + 1) % buckets_.size();
    return at(full);
  }
  if (range.alone && !reduction_of(range).lies_by_rank() && type_ == emitter_.type() &&
      bucket_type_ == type_ && !clones_alone_) {
    // It is reduced where it is.
    const Arrived& arrived = uncopied_.front();
    return moved(arrived.source, range.begin - layout_.parameter(arrived.slab_first).offset);
  }
  own_bucket = emitter_.acquire("bucket", -1, Category::buckets, type_, bucket_elements(range));
  for (const Arrived& arrived : uncopied_) {
    copy(arrived, range, own_bucket);
    drop(arrived.slab);
  }
  uncopied_.clear();
  return at(own_bucket);
}

View Reducer::sent_of(const BucketRange& range, View bucket, TensorId& copy) {
  if (bucket_type_ == type_ || range.alone || !contiguous_) return bucket;
  copy = emitter_.acquire("sent gradients", -1, Category::buckets, type_, range.elements());
  return at(copy);
}

TensorId Reducer::acquire_converted(const BucketRange& range) {
  const DType sums = sum_type(config_);
  if (!layout_.offloaded().optimizer || type_ == sums || tensors_.own_sums != no_tensor)
    return no_tensor;
  return emitter_.acquire("converted gradients", -1, Category::buckets, sums,
                          range.is_scattered ? range.shards : range.elements());
}

Stream Reducer::begin_reduction() {
  if (!config_.overlap_comm) return Stream::compute;
  const int ready = emitter_.record(Stream::compute);
  // Compute waits for the reduction before this one, as in DeepSpeed: one bucket is in flight.
  wait_for_reduction();
  emitter_.wait(Stream::reduce, ready);
  return Stream::reduce;
}

void Reducer::average_over_copies(const BucketRange& range, Stream stream) {
  const Partition& partition = layout_.partition();
  if (partition.replicas == 1 || !last_) return;
  // Other ranks have these gradients, too.
  emitter_.emit(
      op::AllReduceAverage{at(tensors_.on_device.gradients, layout_.shard_offset(range.first)),
                           range.shards, partition.across},
      stream);
}

void Reducer::drop(std::size_t slab) {
  if (--slabs_[slab].readers == 0) emitter_.release(slabs_[slab].tensor);
}

void Reducer::wait_for_reduction() {
  if (reduction_ >= 0) emitter_.wait(Stream::compute, reduction_);
  reduction_ = -1;
  for (const TensorId tensor : used_tensors_) emitter_.release(tensor);
  for (const std::size_t slab : used_slabs_) drop(slab);
  used_tensors_.clear();
  used_slabs_.clear();
}

GradientSink::GradientSink(const ZeroContext& zero)
    : ZeroPart(zero),
      reduces_sums_(reduces_fp32_sums(zero)),
      adds_up_at_once_(config_.immediate_grad_update || !is_bf16_optimizer(config_)) {
  if (layout_.stage() >= 1 && !is_bf16_optimizer(config_)) reducer_.emplace(zero);
  if (layout_.stage() >= 2 || frees_added_gradients(config_))
    slabs_.assign(layout_.table().num_units(), no_tensor);
}

void GradientSink::begin_backward(MicroStep micro) {
  micro_ = micro;
  if (!reducer_) return;
  if (!slabs_.empty()) {
    reducer_->begin(micro.first, micro.last);
  } else if (micro.last && config_.overlap_comm) {
    reducer_->begin(true, true);
  }
}

void GradientSink::open(int unit) {
  if (slabs_.empty()) return;
  slabs_[unit] = emitter_.acquire("unit gradients", unit - 1, Category::gradients, emitter_.type(),
                                  layout_.table().unit_elements(unit));
}

void GradientSink::close(int unit) {
  if (tensors_.fp32_gradients != no_tensor && adds_up_at_once_) add_up(unit);
  if (!slabs_.empty()) {
    if (reducer_)
      reducer_->arrive(unit, unit_view(unit), slabs_[unit]);
    else
      emitter_.release(slabs_[unit]);
  } else if (reducer_ && micro_.last && config_.overlap_comm) {
    reducer_->arrive(unit, reduces_sums_ ? sum_view(unit) : unit_view(unit), no_tensor);
  }
}

void GradientSink::add_up(int unit) {
  const View sum = sum_view(unit);
  const std::int64_t count = layout_.table().unit_elements(unit);
  if (micro_.first) {
    emitter_.emit(op::Convert{sum, unit_view(unit), count});
  } else {
    emitter_.emit(op::Add{sum, unit_view(unit), count});
  }
  // DeepSpeed reduces them in the parameters' type all the same.
  if (micro_.last && reducer_ && !reduces_sums_)
    emitter_.emit(op::Convert{unit_view(unit), sum, count});
}

void GradientSink::end_backward() {
  if (tensors_.fp32_gradients != no_tensor && !adds_up_at_once_)
    for (int unit = 0; unit < layout_.table().num_units(); ++unit) add_up(unit);
  if (!reducer_) return;
  if (slabs_.empty()) {
    if (!micro_.last) return;
    if (!config_.overlap_comm) {
      reducer_->begin(true, true);
      for (int unit = 0; unit < layout_.table().num_units(); ++unit)
        reducer_->arrive(unit, reduces_sums_ ? sum_view(unit) : unit_view(unit), no_tensor);
    }
  }
  reducer_->finish();
}

View GradientSink::unit_view(int unit) const {
  if (!slabs_.empty()) return at(slabs_[unit]);
  return at(tensors_.gradients, layout_.parameter(layout_.table().unit_range(unit).first).offset);
}

View GradientSink::sum_view(int unit) const {
  const int first = layout_.table().unit_range(unit).first;
  return at(tensors_.fp32_gradients, layout_.parameter(first).offset);
}

View GradientSink::view(int unit, ParameterRole role) const {
  const int index = layout_.table().find(unit, role);
  if (index < 0) return {};
  const int first = layout_.table().unit_range(unit).first;
  return moved(unit_view(unit), layout_.parameter(index).offset - layout_.parameter(first).offset);
}

}  // namespace dstune::plan
