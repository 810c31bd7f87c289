/// The ways of averaging a bucket of gradients.

#include <algorithm>
#include <iterator>

#include "zero/gradients.hpp"
#include "zero/quantization.hpp"

namespace dstune::plan {
namespace {

class ReductionBase : public Reduction, protected ZeroPart {
 public:
  explicit ReductionBase(const ZeroContext& zero) : ZeroPart(zero) {}

 protected:
  TensorId acquire_tensor(const char* name, DType type, std::int64_t count) {
    return count == 0 ? no_tensor : emitter_.acquire(name, -1, Category::buckets, type, count);
  }
};

/// A group of one.
class NoReduction final : public ReductionBase {
 public:
  using ReductionBase::ReductionBase;
  void reduce(const BucketRange&, View, View, const ReductionScratch&, Stream) override {}
};

/// The whole bucket to all ranks, at once: stages 1 and 2 with use_multi_rank_bucket_allreduce, and
/// all stages without reduce_scatter.
class AllReduce final : public ReductionBase {
 public:
  using ReductionBase::ReductionBase;

  void reduce(const BucketRange& range, View bucket, View, const ReductionScratch&,
              Stream stream) override {
    emitter_.emit(op::AllReduceAverage{bucket, range.elements(), layout_.partition().shards},
                  stream);
  }
};

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

/// A parameter that is alone to all ranks: DeepSpeed sends what it has of one owner after another
/// as soon as that is more than a bucket.
class AllReduceByOwners final : public ReductionBase {
 public:
  using ReductionBase::ReductionBase;

  void reduce(const BucketRange& range, View bucket, View, const ReductionScratch&,
              Stream stream) override {
    std::int64_t begin = 0;
    const std::vector<Slice> all = slices_of(layout_, range);
    for (const Slice& slice : all) {
      const std::int64_t count = slice.begin + slice.count - begin;
      if (count <= config_.reduce_bucket_size && &slice != &all.back()) continue;
      emitter_.emit(op::AllReduceAverage{moved(bucket, begin), count}, stream);
      begin += count;
    }
  }
};

/// To each owner what it holds of the bucket, put side by side: stages 1 and 2.
class ReduceToOwners final : public ReductionBase {
 public:
  using ReductionBase::ReductionBase;

  void acquire(const BucketRange& range, ReductionScratch& scratch) override {
    std::vector<std::int64_t> parts(static_cast<std::size_t>(layout_.group_size()));
    std::vector<std::int64_t> elements(parts.size());
    std::int64_t most = 0;
    for (const Slice& slice : slices_of(layout_, range)) {
      const auto owner = static_cast<std::size_t>(slice.owner);
      elements[owner] += slice.count;
      if (++parts[owner] > 1) most = std::max(most, elements[owner]);
    }
    scratch.flattened = acquire_tensor("flattened", communication_type(config_), most);
  }

  void reduce(const BucketRange& range, View bucket, View, const ReductionScratch& scratch,
              Stream stream) override {
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
      const View flattened = at(scratch.flattened);
      const std::int64_t count = copy_slices(its, bucket, flattened, true, stream);
      emitter_.emit(op::ReduceAverage{flattened, count, owner}, stream);
      if (owner == layout_.group_rank()) copy_slices(its, bucket, flattened, false, stream);
    }
  }

 private:
  /// Between their places in the bucket and side by side; their elements.
  std::int64_t copy_slices(const std::vector<Slice>& slices, View bucket, View flattened,
                           bool flattens, Stream stream) {
    std::int64_t end = 0;
    for (const Slice& slice : slices) {
      const View there = moved(bucket, slice.begin), here = moved(flattened, end);
      emitter_.emit(op::Convert{flattens ? here : there, flattens ? there : here, slice.count},
                    stream);
      end += slice.count;
    }
    return end;
  }
};

/// Stage 3.
class ReduceScatter final : public ReductionBase {
 public:
  using ReductionBase::ReductionBase;

  [[nodiscard]] bool scatters() const override { return true; }
  [[nodiscard]] bool lies_by_rank() const override { return true; }
  void reduce(const BucketRange& range, View bucket, View shards, const ReductionScratch&,
              Stream stream) override {
    emitter_.emit(
        op::ReduceScatterAverage{shards, bucket, range.shards, layout_.partition().shards}, stream);
  }
};

/// ZeRO++'s zero_quantized_gradients on several nodes: piece by piece, as codes of 4 bits that
/// change places inside the node, are added up, and change places across the nodes.
class QuantizedReduceScatter final : public ReductionBase {
 public:
  explicit QuantizedReduceScatter(const ZeroContext& zero)
      : ReductionBase(zero),
        nodes_(quantizing_nodes(layout_, config_)),
        ranks_of_node_(static_cast<int>(config_.ranks_per_node)) {}

  [[nodiscard]] bool scatters() const override { return true; }
  void acquire(const BucketRange& range, ReductionScratch& scratch) override;
  void reduce(const BucketRange& range, View bucket, View shards, const ReductionScratch& scratch,
              Stream stream) override;

 private:
  void reduce_across_nodes(const Piece& piece, View gradient, View shard,
                           const ReductionScratch& scratch, Stream stream);
  void reduce_as_it_is(const Piece& piece, View gradient, View shard, TensorId padded,
                       Stream stream);

  int nodes_, ranks_of_node_;
};

void QuantizedReduceScatter::acquire(const BucketRange& range, ReductionScratch& scratch) {
  std::int64_t elements = 0, scales = 0, padded = 0;
  const PieceRange pieces = layout_.pieces_of_parameters(range.first, range.last);
  for (int index = pieces.first; index < pieces.last; ++index) {
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
  scratch.sums = acquire_tensor("sums over a node", type, elements / ranks_of_node_);
  scratch.padded = acquire_tensor("padded gradient", type, padded);
}

void QuantizedReduceScatter::reduce(const BucketRange& range, View bucket, View shards,
                                    const ReductionScratch& scratch, Stream stream) {
  const PieceRange pieces = layout_.pieces_of_parameters(range.first, range.last);
  for (int index = pieces.first; index < pieces.last; ++index) {
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

void QuantizedReduceScatter::reduce_across_nodes(const Piece& piece, View gradient, View shard,
                                                 const ReductionScratch& scratch, Stream stream) {
  const int rank = layout_.group_rank();
  const std::int64_t run = gradients_of_a_scale(layout_, piece);
  const View codes = at(scratch.codes), scales = at(scratch.scales);
  const View received_codes = at(scratch.received_codes);
  const View received_scales = at(scratch.received_scales);
  const auto exchange = [&](std::int64_t count_per_rank, const RankRange& among) {
    const RankRange part = among.count == layout_.group_size() ? RankRange{} : among;
    emitter_.emit(op::AllToAll{received_codes, codes, count_per_rank / 2, part}, stream);
    emitter_.emit(op::AllToAll{received_scales, scales, count_per_rank / run, part}, stream);
  };
  const std::int64_t of_node = piece.elements / ranks_of_node_;
  emitter_.emit(
      op::Quantize{codes, scales, gradient, 4, piece.elements, run, nodes_, ranks_of_node_},
      stream);
  exchange(of_node, range_of(rank, 1, ranks_of_node_));
  emitter_.emit(op::Dequantize{at(scratch.sums), received_codes, received_scales, 4, of_node, run,
                               ranks_of_node_},
                stream);
  emitter_.emit(op::Quantize{codes, scales, at(scratch.sums), 4, of_node, run}, stream);
  exchange(of_node / nodes_, range_of(rank, ranks_of_node_, nodes_));
  emitter_.emit(op::Dequantize{shard, received_codes, received_scales, 4, of_node / nodes_, run,
                               nodes_, layout_.group_size()},
                stream);
}

void QuantizedReduceScatter::reduce_as_it_is(const Piece& piece, View gradient, View shard,
                                             TensorId padded, Stream stream) {
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

std::unique_ptr<Reduction> choose_scatter(const ZeroContext& zero) {
  if (quantizing_nodes(zero.layout, zero.config) > 0)
    return std::make_unique<QuantizedReduceScatter>(zero);
  return std::make_unique<ReduceScatter>(zero);
}

std::unique_ptr<Reduction> choose_all_reduce(const ZeroContext& zero) {
  if (zero.layout.group_size() == 1) return std::make_unique<NoReduction>(zero);
  return std::make_unique<AllReduce>(zero);
}

}  // namespace

Reductions choose_reductions(const ZeroContext& zero, bool contiguous) {
  const TrainingConfig& config = zero.config;
  if (zero.layout.stage() == 3) {
    // DeepSpeed's stage 3 all-reduces its buffer, and nothing else.
    if (config.reduce_scatter || !contiguous) return {choose_scatter(zero), choose_scatter(zero)};
    return {choose_all_reduce(zero), choose_scatter(zero)};
  }
  // Without contiguous gradients DeepSpeed's stages 1 and 2 know no owners.
  const bool knows_owners = config.reduce_scatter && contiguous && zero.layout.group_size() > 1;
  if (!knows_owners) return {choose_all_reduce(zero), choose_all_reduce(zero)};
  if (config.use_multi_rank_bucket_allreduce)
    return {choose_all_reduce(zero), std::make_unique<AllReduceByOwners>(zero)};
  return {std::make_unique<ReduceToOwners>(zero), std::make_unique<ReduceToOwners>(zero)};
}

}  // namespace dstune::plan
