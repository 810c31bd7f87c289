#include "zero/reducer.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"
#include "zero/quantization.hpp"

namespace dstune::plan {

Reducer::Reducer(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                 const PersistentTensors& tensors)
    : emitter_(emitter),
      layout_(layout),
      config_(config),
      own_gradients_(emitter, layout, config, tensors),
      type_(communication_type(config)),
      // Stages 1 and 2 of DeepSpeed need them for offloading.
      contiguous_(config.contiguous_gradients ||
                  (layout.offloaded().optimizer && config.zero_stage < 3)),
      // Without contiguous gradients DeepSpeed's stages 1 and 2 know no owners.
      to_owners_(config.reduce_scatter && contiguous_ && !config.use_multi_rank_bucket_allreduce),
      from_the_beginning_(layout.stage() == 1 && !config.overlap_comm),
      quantizing_nodes_(quantizing_nodes(layout, config)),
      ranges_(cut_into_buckets(
          layout, config.reduce_bucket_size,
          from_the_beginning_ ? Arrival::from_the_beginning : Arrival::from_the_end)),
      own_(tensors.on_device.gradients) {
  int shared = 0;
  for (BucketRange& range : ranges_) {
    // DeepSpeed's stage 3 all-reduces its buffer, and nothing else.
    range.is_scattered =
        layout.stage() == 3 && (config.reduce_scatter || !contiguous_ || range.alone);
    if (range.alone) continue;
    ++shared;
    capacity_ = std::max(capacity_, bucket_elements(range));
  }
  num_buckets_ = std::min(shared, config.overlap_comm ? 2 : 1);
}

std::int64_t Reducer::bucket_elements(const BucketRange& range) const {
  const bool is_padded = range.is_scattered && quantizing_nodes_ == 0;
  return is_padded ? range.shards * layout_.group_size() : range.end - range.begin;
}

std::vector<Reducer::Slice> Reducer::slices(const BucketRange& range) const {
  const std::int64_t own = layout_.own_elements();
  std::vector<Slice> result;
  for (int index = range.first; index < range.last; ++index) {
    const std::int64_t in_bucket = layout_.parameter(index).offset - range.begin;
    const std::int64_t first = layout_.offset(index);
    const std::int64_t last = first + layout_.parameter(index).elements();
    for (std::int64_t begin = first; begin < last;) {
      const std::int64_t owner = begin / own;
      const std::int64_t count = std::min(last, (owner + 1) * own) - begin;
      if (!result.empty() && result.back().owner == owner) {
        result.back().count += count;
      } else {
        result.push_back({static_cast<int>(owner), in_bucket + begin - first, count});
      }
      begin += count;
    }
  }
  return result;
}

void Reducer::begin(bool overwrite, bool last) {
  overwrite_ = overwrite;
  last_ = last;
  own_gradients_.begin(overwrite, last);
  next_ = filling_ = 0;
  slabs_.clear();
  if (!contiguous_) return;
  for (int index = 0; index < num_buckets_; ++index) {
    buckets_.push_back(emitter_.acquire("bucket", -1, Category::buckets, type_, capacity_));
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
  own_gradients_.finish();
  for (const TensorId bucket : buckets_) emitter_.release(bucket);
  buckets_.clear();
}

void Reducer::copy(const Arrived& arrived, const BucketRange& range, TensorId bucket) {
  if (range.is_scattered && quantizing_nodes_ == 0) {
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
  const bool in_place =
      range.alone && (layout_.stage() < 3 || quantizing_nodes_ > 0) && type_ == emitter_.type();
  TensorId own_bucket = no_tensor;
  View data;
  if (in_place) {
    const Arrived& arrived = uncopied_.front();
    data = moved(arrived.source, range.begin - layout_.parameter(arrived.slab_first).offset);
  } else if (range.alone || !contiguous_) {
    own_bucket = emitter_.acquire("bucket", -1, Category::buckets, type_, bucket_elements(range));
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
  if (range.is_scattered && !in_its_place)
    scattered = emitter_.acquire("scattered", -1, Category::buckets, type_, range.shards);
  const QuantizedBuffers quantized = acquire_quantized(range);
  const TensorId flattened = acquire_flattened(range);
  // What leaves the device does so in the type of its sums.
  TensorId converted = no_tensor;
  const std::int64_t averaged = range.is_scattered ? range.shards : range.end - range.begin;
  if (layout_.offloaded().optimizer && type_ != sum_type(config_)) {
    converted =
        emitter_.acquire("converted gradients", -1, Category::buckets, sum_type(config_), averaged);
  }

  const std::vector<TensorId> scratch = own_gradients_.acquire_scratch(range);
  const Stream stream = config_.overlap_comm ? Stream::reduce : Stream::compute;
  if (config_.overlap_comm) {
    const int ready = emitter_.record(Stream::compute);
    // Compute waits for the reduction before this one, as in DeepSpeed: one bucket is in flight.
    wait_for_reduction();
    emitter_.wait(stream, ready);
  }
  if (View kept = reduce(range, data, scattered, flattened, quantized, stream)) {
    if (converted != no_tensor) {
      emitter_.emit(op::Convert{at(converted), kept, averaged}, stream);
      kept = at(converted);
    }
    own_gradients_.keep(range, kept, scratch, stream);
  }
  average_over_copies(range, stream);
  used_tensors_ = scratch;
  used_tensors_.insert(used_tensors_.end(), {own_bucket, scattered, flattened, converted});
  const std::vector<TensorId> travelling = quantized.all();
  used_tensors_.insert(used_tensors_.end(), travelling.begin(), travelling.end());
  for (const Arrived& arrived : uncopied_) used_slabs_.push_back(arrived.slab);
  uncopied_.clear();
  if (config_.overlap_comm) reduction_ = emitter_.record(stream);
  // Without contiguous gradients DeepSpeed waits for each bucket.
  if (!config_.overlap_comm || !contiguous_) wait_for_reduction();
}

void Reducer::average_over_copies(const BucketRange& range, Stream stream) {
  const Partition& partition = layout_.partition();
  if (partition.replicas == 1 || !last_) return;
  emitter_.emit(op::AllReduceAverage{at(own_, layout_.shard_offset(range.first)), range.shards,
                                     partition.across},
                stream);
}

View Reducer::reduce(const BucketRange& range, View data, TensorId scattered, TensorId flattened,
                     const QuantizedBuffers& quantized, Stream stream) {
  if (range.is_scattered) return reduce_scattered(range, data, scattered, quantized, stream);
  if (layout_.group_size() == 1) return data;
  if (to_owners_ && layout_.stage() < 3) {
    reduce_to_owners(range, data, flattened, stream);
  } else if (range.alone && config_.reduce_scatter && contiguous_) {
    all_reduce_alone(range, data, stream);
  } else {
    emitter_.emit(op::AllReduceAverage{data, range.end - range.begin, layout_.partition().shards},
                  stream);
  }
  return data;
}

View Reducer::reduce_scattered(const BucketRange& range, View data, TensorId scattered,
                               const QuantizedBuffers& quantized, Stream stream) {
  const View out = scattered == no_tensor ? own_gradients_.place_of_shards(range) : at(scattered);
  if (quantizing_nodes_ > 0) {
    reduce_quantized(range, data, out, quantized, stream);
  } else {
    emitter_.emit(op::ReduceScatterAverage{out, data, range.shards, layout_.partition().shards},
                  stream);
  }
  return scattered == no_tensor ? View{} : out;
}

Reducer::QuantizedBuffers Reducer::acquire_quantized(const BucketRange& range) {
  if (quantizing_nodes_ == 0) return {};
  std::int64_t elements = 0, scales = 0, padded = 0;
  for (int index = layout_.piece_begin(range.first); index < layout_.piece_begin(range.last);
       ++index) {
    const Piece& piece = layout_.pieces()[static_cast<std::size_t>(index)];
    if (is_gradient_quantized(layout_, piece)) {
      elements = std::max(elements, piece.elements);
      scales = std::max(scales, piece.elements / gradients_of_a_scale(layout_, piece));
    } else if (piece.elements % layout_.group_size() != 0) {
      padded = std::max(padded, layout_.piece_shard_elements(index) * layout_.group_size());
    }
  }
  const auto acquire = [&](const char* name, DType type, std::int64_t count) {
    return count == 0 ? no_tensor : emitter_.acquire(name, -1, Category::buckets, type, count);
  };
  return {.codes = acquire("gradient codes", DType::i8, elements / 2),
          .scales = acquire("gradient scales", DType::f32, scales),
          .received_codes = acquire("received codes", DType::i8, elements / 2),
          .received_scales = acquire("received scales", DType::f32, scales),
          .sums = acquire("sums over a node", type_, elements / config_.ranks_per_node),
          .padded = acquire("padded gradient", type_, padded)};
}

void Reducer::reduce_quantized(const BucketRange& range, View data, View out,
                               const QuantizedBuffers& buffers, Stream stream) {
  for (int index = layout_.piece_begin(range.first); index < layout_.piece_begin(range.last);
       ++index) {
    const Piece& piece = layout_.pieces()[static_cast<std::size_t>(index)];
    const View gradient =
        moved(data, layout_.parameter(piece.parameter).offset + piece.first - range.begin);
    const View shard =
        moved(out, layout_.piece_shard_offset(index) - layout_.shard_offset(range.first));
    if (is_gradient_quantized(layout_, piece)) {
      reduce_across_nodes(piece, gradient, shard, buffers, stream);
    } else {
      reduce_alone(piece, gradient, shard, buffers.padded, stream);
    }
  }
}

void Reducer::reduce_across_nodes(const Piece& piece, View data, View out,
                                  const QuantizedBuffers& buffers, Stream stream) {
  const auto ranks = static_cast<int>(config_.ranks_per_node);
  const int nodes = quantizing_nodes_;
  const int rank = layout_.group_rank();
  const std::int64_t run = gradients_of_a_scale(layout_, piece);
  const auto exchange = [&](std::int64_t count_per_rank, const RankRange& among) {
    const RankRange part = among.count == layout_.group_size() ? RankRange{} : among;
    emitter_.emit(
        op::AllToAll{at(buffers.received_codes), at(buffers.codes), count_per_rank / 2, part},
        stream);
    emitter_.emit(
        op::AllToAll{at(buffers.received_scales), at(buffers.scales), count_per_rank / run, part},
        stream);
  };
  const std::int64_t of_node = piece.elements / ranks;
  emitter_.emit(op::Quantize{at(buffers.codes), at(buffers.scales), data, 4, piece.elements, run,
                             nodes, ranks},
                stream);
  exchange(of_node, range_of(rank, 1, ranks));
  emitter_.emit(op::Dequantize{at(buffers.sums), at(buffers.received_codes),
                               at(buffers.received_scales), 4, of_node, run, ranks},
                stream);
  emitter_.emit(
      op::Quantize{at(buffers.codes), at(buffers.scales), at(buffers.sums), 4, of_node, run},
      stream);
  exchange(of_node / nodes, range_of(rank, ranks, nodes));
  emitter_.emit(op::Dequantize{out, at(buffers.received_codes), at(buffers.received_scales), 4,
                               of_node / nodes, run, nodes, layout_.group_size()},
                stream);
}

void Reducer::reduce_alone(const Piece& piece, View data, View out, TensorId padded,
                           Stream stream) {
  const int ranks = layout_.group_size();
  const std::int64_t shard = (piece.elements + ranks - 1) / ranks;
  if (piece.elements % ranks != 0) {
    emitter_.reshard(
        op::Reshard{data, at(padded), true, ranks, shard, 0, 0},
        [&](auto& pieces) {
          pieces.push_back({0, piece.elements, 0, shard});
        },
        stream);
    data = at(padded);
  }
  emitter_.emit(op::ReduceScatterAverage{out, data, shard, layout_.partition().shards}, stream);
}

TensorId Reducer::acquire_flattened(const BucketRange& range) {
  if (!to_owners_ || layout_.stage() == 3 || layout_.group_size() == 1) return no_tensor;
  const std::vector<Slice> all = slices(range);
  std::vector<std::int64_t> parts(static_cast<std::size_t>(layout_.group_size()));
  std::vector<std::int64_t> elements(parts.size());
  std::int64_t most = 0;
  for (const Slice& slice : all) {
    const auto owner = static_cast<std::size_t>(slice.owner);
    elements[owner] += slice.count;
    if (++parts[owner] > 1) most = std::max(most, elements[owner]);
  }
  if (most == 0) return no_tensor;
  return emitter_.acquire("flattened", -1, Category::buckets, type_, most);
}

void Reducer::reduce_to_owners(const BucketRange& range, View data, TensorId flattened,
                               Stream stream) {
  const std::vector<Slice> all = slices(range);
  for (int owner = 0; owner < layout_.group_size(); ++owner) {
    std::vector<Slice> its;
    std::copy_if(all.begin(), all.end(), std::back_inserter(its),
                 [&](const Slice& slice) { return slice.owner == owner; });
    if (its.empty()) continue;
    if (its.size() == 1) {
      emitter_.emit(op::ReduceAverage{moved(data, its[0].begin), its[0].count, owner}, stream);
      continue;
    }
    std::int64_t end = 0;
    for (const Slice& slice : its) {
      emitter_.emit(op::Convert{at(flattened, end), moved(data, slice.begin), slice.count}, stream);
      end += slice.count;
    }
    emitter_.emit(op::ReduceAverage{at(flattened), end, owner}, stream);
    if (owner != layout_.group_rank()) continue;
    end = 0;
    for (const Slice& slice : its) {
      emitter_.emit(op::Convert{moved(data, slice.begin), at(flattened, end), slice.count}, stream);
      end += slice.count;
    }
  }
}

void Reducer::all_reduce_alone(const BucketRange& range, View data, Stream stream) {
  // DeepSpeed sends what it has of one owner after another as soon as that is more than a bucket.
  std::int64_t begin = 0;
  const std::vector<Slice> all = slices(range);
  for (const Slice& slice : all) {
    const std::int64_t count = slice.begin + slice.count - begin;
    if (count <= config_.reduce_bucket_size && &slice != &all.back()) continue;
    emitter_.emit(op::AllReduceAverage{moved(data, begin), count}, stream);
    begin += count;
  }
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
