#include "reducer.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"

namespace dstune::plan {

Reducer::Reducer(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                 const PersistentTensors& tensors)
    : emitter_(emitter),
      layout_(layout),
      config_(config),
      own_gradients_(emitter, layout, config, tensors),
      // Stages 1 and 2 of DeepSpeed need them for offloading.
      contiguous_(config.contiguous_gradients ||
                  (layout.is_optimizer_offloaded() && config.zero_stage < 3)),
      ranges_(cut_into_buckets(layout, config.reduce_bucket_size)) {
  int shared = 0;
  for (const BucketRange& range : ranges_) {
    if (range.alone) continue;
    ++shared;
    capacity_ = std::max(capacity_, bucket_elements(range));
  }
  num_buckets_ = std::min(shared, config.overlap_comm ? 2 : 1);
}

std::int64_t Reducer::bucket_elements(const BucketRange& range) const {
  return layout_.stage() == 3 ? range.shards * layout_.group_size() : range.end - range.begin;
}

void Reducer::begin(bool overwrite, bool last) {
  overwrite_ = overwrite;
  own_gradients_.begin(overwrite, last);
  next_ = filling_ = 0;
  slabs_.clear();
  if (!contiguous_) return;
  for (int index = 0; index < num_buckets_; ++index) {
    buckets_.push_back(
        emitter_.acquire("bucket", -1, Category::buckets, emitter_.type(), capacity_));
  }
}

void Reducer::arrive(int unit, View source, TensorId slab) {
  const auto [first, end] = layout_.table().unit_range(unit);
  const std::size_t id = slabs_.size();
  slabs_.push_back({slab, 1});
  for (int last = end; last > first;) {
    const BucketRange& range = ranges_[next_];
    const Arrived arrived{std::max(first, range.first), last, first, source, id};
    if (contiguous_ && !range.alone) {
      copy(arrived, range, buckets_[filling_]);
    } else {
      ++slabs_[id].readers;
      uncopied_.push_back(arrived);
    }
    last = arrived.first;
    if (last == range.first) {
      flush(range);
      ++next_;
    }
  }
  drop(id);
}

void Reducer::finish() {
  require(next_ == ranges_.size(), "every gradient is reduced");
  wait_for_reduction();
  for (const TensorId bucket : buckets_) emitter_.release(bucket);
  buckets_.clear();
}

void Reducer::copy(const Arrived& arrived, const BucketRange& range, TensorId bucket) {
  if (layout_.stage() == 3) {
    emitter_.emit(op::Reshard{
        arrived.source, at(bucket), true, range.shards,
        layout_.resharding(arrived.first, arrived.last, arrived.slab_first, range.first)});
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
  const bool in_place = range.alone && layout_.stage() < 3;
  TensorId own_bucket = no_tensor;
  View data;
  if (in_place) {
    const Arrived& arrived = uncopied_.front();
    data = moved(arrived.source, range.begin - layout_.parameter(arrived.slab_first).offset);
  } else if (range.alone || !contiguous_) {
    own_bucket =
        emitter_.acquire("bucket", -1, Category::buckets, emitter_.type(), bucket_elements(range));
    for (const Arrived& arrived : uncopied_) {
      copy(arrived, range, own_bucket);
      drop(arrived.slab);
    }
    uncopied_.clear();
    data = at(own_bucket);
  } else {
    data = at(buckets_[filling_]);
    filling_ = (filling_ + 1) % buckets_.size();
  }
  TensorId scattered = no_tensor;
  const bool in_its_place = overwrite_ && own_gradients_.place_of_shards(range);
  if (layout_.stage() == 3 && config_.reduce_scatter && !in_its_place) {
    scattered = emitter_.acquire("scattered", -1, Category::buckets, emitter_.type(), range.shards);
  }

  const std::vector<TensorId> scratch = own_gradients_.acquire_scratch(range);
  const Stream stream = config_.overlap_comm ? Stream::reduce : Stream::compute;
  if (config_.overlap_comm) {
    const int ready = emitter_.record(Stream::compute);
    // Compute waits for the reduction before this one, as in DeepSpeed: one bucket is in flight.
    wait_for_reduction();
    emitter_.wait(stream, ready);
  }
  if (const View kept = reduce(range, data, scattered, stream))
    own_gradients_.keep(range, kept, scratch, stream);
  used_tensors_ = scratch;
  used_tensors_.insert(used_tensors_.end(), {own_bucket, scattered});
  for (const Arrived& arrived : uncopied_) used_slabs_.push_back(arrived.slab);
  uncopied_.clear();
  if (config_.overlap_comm) reduction_ = emitter_.record(stream);
  // Without contiguous gradients DeepSpeed waits for each bucket.
  if (!config_.overlap_comm || !contiguous_) wait_for_reduction();
}

View Reducer::reduce(const BucketRange& range, View data, TensorId scattered, Stream stream) {
  if (layout_.stage() == 3) return reduce_scattered(range, data, scattered, stream);
  if (layout_.group_size() == 1) return data;
  if (config_.reduce_scatter && !config_.use_multi_rank_bucket_allreduce) {
    const std::int64_t own = layout_.own_elements();
    for (std::int64_t begin = range.begin; begin < range.end;) {
      const std::int64_t owner = begin / own;
      const std::int64_t end = std::min(range.end, (owner + 1) * own);
      emitter_.emit(
          op::ReduceAverage{moved(data, begin - range.begin), end - begin, static_cast<int>(owner)},
          stream);
      begin = end;
    }
  } else {
    emitter_.emit(op::AllReduceAverage{data, range.end - range.begin}, stream);
  }
  return data;
}

View Reducer::reduce_scattered(const BucketRange& range, View data, TensorId scattered,
                               Stream stream) {
  if (!config_.reduce_scatter) {
    emitter_.emit(op::AllReduceAverage{data, range.shards * layout_.group_size()}, stream);
    return moved(data, range.shards * layout_.group_rank());
  }
  const View out = scattered == no_tensor ? own_gradients_.place_of_shards(range) : at(scattered);
  emitter_.emit(op::ReduceScatterAverage{out, data, range.shards}, stream);
  return scattered == no_tensor ? View{} : out;
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

}  // namespace dstune::plan
