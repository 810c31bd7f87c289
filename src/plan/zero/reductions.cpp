/// The ways of averaging a bucket of gradients.

#include <algorithm>
#include <iterator>

#include "zero/gradients.hpp"

namespace dstune::plan {
namespace {

/// Elements [begin, begin + count) of a bucket whose owner is one rank.
struct Slice {
  int owner;
  std::int64_t begin, count;
};

/// Stages 1 and 2. In the bucket's order, equal owners side by side in one.
std::vector<Slice> slices_of(const Layout& layout, const BucketRange& range) {
  const std::int64_t own = layout.own_elements();
  std::vector<Slice> result;
  for (int index = range.first; index < range.last; ++index) {
    const std::int64_t in_bucket = layout.parameter(index).offset - range.begin;
    const std::int64_t first = layout.offset(index);
    const std::int64_t last = first + layout.parameter(index).elements();
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

}  // namespace

void Reduction::acquire(const BucketRange& range, ReductionScratch& scratch) const {
  if (kind_ == Kind::to_owners) acquire_flattened(range, scratch);
  if (kind_ == Kind::quantized_scatter) acquire_quantized(range, scratch);
}

void Reduction::reduce(const BucketRange& range, View bucket, View shards,
                       const ReductionScratch& scratch, Stream stream) const {
  const RankRange among = layout_.partition().shards;
  switch (kind_) {
    case Kind::none:
      break;
    case Kind::all_reduce:
      emitter_.emit(op::AllReduceAverage{bucket, range.elements(), among}, stream);
      break;
    case Kind::all_reduce_by_owners:
      all_reduce_by_owners(range, bucket, stream);
      break;
    case Kind::to_owners:
      reduce_to_owners(range, bucket, scratch.flattened, stream);
      break;
    case Kind::scatter:
      emitter_.emit(op::ReduceScatterAverage{shards, bucket, range.shards, among}, stream);
      break;
    case Kind::quantized_scatter:
      reduce_quantized(range, bucket, shards, scratch, stream);
      break;
  }
}

void Reduction::all_reduce_by_owners(const BucketRange& range, View bucket, Stream stream) const {
  std::int64_t begin = 0;
  const std::vector<Slice> all = slices_of(layout_, range);
  for (const Slice& slice : all) {
    const std::int64_t count = slice.begin + slice.count - begin;
    if (count <= config_.reduce_bucket_size && &slice != &all.back()) continue;
    emitter_.emit(op::AllReduceAverage{moved(bucket, begin), count}, stream);
    begin += count;
  }
}

/// Acquires a tensor as large as the most elements that an owner holds of the bucket in several
/// slices.
void Reduction::acquire_flattened(const BucketRange& range, ReductionScratch& scratch) const {
  std::vector<std::int64_t> parts(layout_.group_size()), elements(layout_.group_size());
  std::int64_t most = 0;
  for (const Slice& slice : slices_of(layout_, range)) {
    elements[slice.owner] += slice.count;
    if (++parts[slice.owner] > 1) most = std::max(most, elements[slice.owner]);
  }
  scratch.flattened = acquire_tensor("flattened", communication_type(config_), most);
}

void Reduction::reduce_to_owners(const BucketRange& range, View bucket, TensorId flattened,
                                 Stream stream) const {
  const std::vector<Slice> all = slices_of(layout_, range);
  for (int owner = 0; owner < layout_.group_size(); ++owner) {
    std::vector<Slice> its;
    std::copy_if(all.begin(), all.end(), std::back_inserter(its),
                 [&](const Slice& slice) { return slice.owner == owner; });
    if (its.empty()) continue;
    if (its.size() == 1) {
      emitter_.emit(op::ReduceAverage{moved(bucket, its[0].begin), its[0].count, owner}, stream);
      continue;
    }
    // Between their places in the bucket and side by side.
    const auto copy = [&](bool flattens) {
      std::int64_t end = 0;
      for (const Slice& slice : its) {
        const View there = moved(bucket, slice.begin), here = at(flattened, end);
        emitter_.emit(op::Convert{flattens ? here : there, flattens ? there : here, slice.count},
                      stream);
        end += slice.count;
      }
      return end;
    };
    const std::int64_t count = copy(true);
    emitter_.emit(op::ReduceAverage{at(flattened), count, owner}, stream);
    if (owner == layout_.group_rank()) copy(false);
  }
}

void Reduction::acquire_quantized(const BucketRange& range, ReductionScratch& scratch) const {
  std::int64_t elements = 0, scales = 0, padded = 0;
  for (const int index : layout_.pieces_of_parameters(range.first, range.last)) {
    const Piece& piece = layout_.piece(index);
    if (is_gradient_quantized(layout_, piece)) {
      elements = std::max(elements, piece.elements);
      scales = std::max(scales, piece.elements / gradients_of_a_scale(layout_, piece));
    } else if (piece.elements % layout_.group_size() != 0) {
      padded = std::max(padded, layout_.piece_shard_elements(index) * layout_.group_size());
    }
  }
  const DType type = communication_type(config_);
  scratch.codes = acquire_tensor("gradient codes", DType::i8, elements / 2);
  scratch.scales = acquire_tensor("gradient scales", DType::f32, scales);
  scratch.received_codes = acquire_tensor("received codes", DType::i8, elements / 2);
  scratch.received_scales = acquire_tensor("received scales", DType::f32, scales);
  scratch.sums = acquire_tensor("sums over a node", type, elements / config_.ranks_per_node);
  scratch.padded = acquire_tensor("padded gradient", type, padded);
}

void Reduction::reduce_quantized(const BucketRange& range, View bucket, View shards,
                                 const ReductionScratch& scratch, Stream stream) const {
  for (const int index : layout_.pieces_of_parameters(range.first, range.last)) {
    const Piece& piece = layout_.piece(index);
    const View gradient =
        moved(bucket, layout_.parameter(piece.parameter).offset + piece.first - range.begin);
    const View shard =
        moved(shards, layout_.piece_shard_offset(index) - layout_.shard_offset(range.first));
    if (is_gradient_quantized(layout_, piece)) {
      reduce_across_nodes(piece, gradient, shard, scratch, stream);
    } else {
      reduce_as_it_is(piece, gradient, shard, scratch.padded, stream);
    }
  }
}

void Reduction::reduce_across_nodes(const Piece& piece, View gradient, View shard,
                                    const ReductionScratch& scratch, Stream stream) const {
  const int rank = layout_.group_rank();
  const int nodes = quantizing_nodes(layout_, config_);
  const auto ranks_of_node = static_cast<int>(config_.ranks_per_node);
  const std::int64_t run = gradients_of_a_scale(layout_, piece);
  const View codes = at(scratch.codes), scales = at(scratch.scales);
  const View received_codes = at(scratch.received_codes);
  const View received_scales = at(scratch.received_scales);
  const auto exchange = [&](std::int64_t count_per_rank, const RankRange& among) {
    const RankRange part = among.count == layout_.group_size() ? RankRange{} : among;
    emitter_.emit(op::AllToAll{received_codes, codes, count_per_rank / 2, part}, stream);
    emitter_.emit(op::AllToAll{received_scales, scales, count_per_rank / run, part}, stream);
  };
  const std::int64_t of_node = piece.elements / ranks_of_node;
  emitter_.emit(op::Quantize{codes, scales, gradient, 4, piece.elements, run, nodes, ranks_of_node},
                stream);
  exchange(of_node, range_of(rank, 1, ranks_of_node));
  emitter_.emit(op::Dequantize{at(scratch.sums), received_codes, received_scales, 4, of_node, run,
                               ranks_of_node},
                stream);
  emitter_.emit(op::Quantize{codes, scales, at(scratch.sums), 4, of_node, run}, stream);
  exchange(of_node / nodes, range_of(rank, ranks_of_node, nodes));
  emitter_.emit(op::Dequantize{shard, received_codes, received_scales, 4, of_node / nodes, run,
                               nodes, layout_.group_size()},
                stream);
}

void Reduction::reduce_as_it_is(const Piece& piece, View gradient, View shard, TensorId padded,
                                Stream stream) const {
  const int ranks = layout_.group_size();
  const std::int64_t elements = (piece.elements + ranks - 1) / ranks;
  if (piece.elements % ranks != 0) {
    emitter_.reshard(
        op::Reshard{gradient, at(padded), true, ranks, elements, 0, 0},
        [&](auto& pieces) {
          pieces.push_back({0, piece.elements, 0, elements});
        },
        stream);
    gradient = at(padded);
  }
  emitter_.emit(op::ReduceScatterAverage{shard, gradient, elements, layout_.partition().shards},
                stream);
}

Reductions choose_reductions(const ZeroContext& zero, bool contiguous) {
  using enum Reduction::Kind;
  const TrainingConfig& config = zero.config;
  const bool is_alone = zero.layout.group_size() == 1;
  const Reduction whole(zero, is_alone ? none : all_reduce);
  if (zero.layout.stage() == 3) {
    const bool quantizes = quantizing_nodes(zero.layout, config) > 0;
    const Reduction scattered(zero, quantizes ? quantized_scatter : scatter);
    // DeepSpeed's stage 3 all-reduces its buffer, and nothing else.
    return {config.reduce_scatter || !contiguous ? scattered : whole, scattered};
  }
  // Without contiguous gradients DeepSpeed's stages 1 and 2 know no owners.
  if (!config.reduce_scatter || !contiguous || is_alone) return {whole, whole};
  if (config.use_multi_rank_bucket_allreduce) return {whole, {zero, all_reduce_by_owners}};
  return {{zero, to_owners}, {zero, to_owners}};
}

}  // namespace dstune::plan
