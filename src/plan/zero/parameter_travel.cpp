#include "zero/parameter_travel.hpp"

#include <algorithm>
#include <utility>

#include "zero/quantization.hpp"

namespace dstune::plan {
namespace {

constexpr int nothing = -1;

/// The call that brings the shards of all ranks together: [rank][shard] to `out`.
class Exchange {
 public:
  explicit Exchange(Emitter& emitter) : emitter_(emitter) {}
  virtual ~Exchange() = default;
  /// Room for what comes from other nodes, where it comes first.
  [[nodiscard]] virtual TensorId acquire(std::int64_t) const { return no_tensor; }
  virtual void all_gather(const TravelGroup& group, View out, View own, Stream stream) const {
    emitter_.emit(op::AllGather{out, own, group.shard_elements, group.from->among}, stream);
  }

 protected:
  Emitter& emitter_;
};

/// MiCS's hierarchical gathers: from the ranks with this one's place on each node, then of each
/// node from the own one's ranks.
class ExchangeAcrossNodes final : public Exchange {
 public:
  ExchangeAcrossNodes(Emitter& emitter, const Partition& partition)
      : Exchange(emitter), partition_(partition), nodes_(partition.across_nodes.count) {}

  [[nodiscard]] TensorId acquire(std::int64_t shard_elements) const override {
    return emitter_.acquire("shards of all nodes", -1, Category::gathered, emitter_.type(),
                            shard_elements * nodes_);
  }
  void all_gather(const TravelGroup& group, View out, View own, Stream stream) const override {
    const std::int64_t shards = group.shard_elements;
    const std::int64_t of_node = shards * partition_.ranks_of_node;
    const View own_place = moved(out, shards * (partition_.rank % partition_.ranks_of_node));
    emitter_.emit(op::AllGather{at(group.from_nodes), own, shards, partition_.across_nodes},
                  stream);
    for (int node = 0; node < nodes_; ++node) {
      emitter_.emit(op::Convert{moved(own_place, of_node * node),
                                at(group.from_nodes, shards * node), shards},
                    stream);
    }
    for (int node = 0; node < nodes_; ++node) {
      emitter_.emit(op::AllGather{moved(out, of_node * node), moved(own_place, of_node * node),
                                  shards, partition_.node},
                    stream);
    }
  }

 private:
  const Partition& partition_;
  int nodes_;
};

std::shared_ptr<const Exchange> exchange_of(Emitter& emitter, const Partition& partition) {
  if (partition.ranks_of_node == 0) return std::make_shared<Exchange>(emitter);
  return std::make_shared<ExchangeAcrossNodes>(emitter, partition);
}

/// What the ways of travelling share.
class GatherBase : public Gather, protected ZeroPart {
 public:
  GatherBase(const ZeroContext& zero, const OwnShards& shards, WholeParameters& whole,
             std::shared_ptr<const Exchange> exchange)
      : ZeroPart(zero), shards_(shards), whole_(whole), exchange_(std::move(exchange)) {}

 protected:
  TensorId acquire(const char* name, std::int64_t elements, DType type) {
    return emitter_.acquire(name, -1, Category::gathered, type, elements);
  }
  TensorId acquire(const char* name, std::int64_t elements) {
    return acquire(name, elements, emitter_.type());
  }
  Stream begin() { return emitter_.begin_beside(config_.overlap_comm, Stream::gather); }
  /// Shards that lie on the host go through a tensor of their own where other ranks' follow.
  [[nodiscard]] bool fetches(const TravelGroup& group) const {
    return shards_.are_on_host() && group.from->ranks > 1;
  }
  /// DeepSpeed's host waits for what it copies from the host, and so launches nothing meanwhile.
  void wait_for_fetched(Stream stream) {
    if (config_.overlap_comm && shards_.are_on_host())
      emitter_.wait(Stream::compute, emitter_.record(stream));
  }
  /// From `flat`, [rank][piece's shard].
  void unpack(const TravelGroup& group) {
    const Shards& from = *group.from;
    std::int64_t offset = 0;
    for (const int piece : group.pieces) {
      const std::int64_t shard = shards_.elements(from, piece);
      const std::int64_t elements = layout_.piece(piece).elements;
      emitter_.reshard(op::Reshard{whole_.place(piece), at(group.flat), false, from.ranks,
                                   group.shard_elements, 0, 0},
                       [&](auto& pieces) {
                         pieces.push_back({0, elements, offset, shard});
                       });
      offset += shard;
    }
  }

  const OwnShards& shards_;
  WholeParameters& whole_;
  std::shared_ptr<const Exchange> exchange_;
};

/// One piece, from all ranks to where it is whole.
class ToItsPlace final : public GatherBase {
 public:
  using GatherBase::GatherBase;

  void send(TravelGroup& group) override {
    const int piece = group.pieces.front();
    const View out = whole_.place(piece);
    View own = shards_.shard(*group.from, piece);
    if (fetches(group)) group.own = acquire("own shard", group.shard_elements);
    group.from_nodes = exchange_->acquire(group.shard_elements);
    const Stream stream = begin();
    if (shards_.are_on_host()) {
      const View fetched = group.own == no_tensor ? out : at(group.own);
      shards_.transfer(fetched, own, group.shard_elements, stream);
      own = fetched;
    }
    if (group.from->ranks == 1) return;
    wait_for_fetched(stream);
    exchange_->all_gather(group, out, own, stream);
  }
  void put_away(TravelGroup&) override {}
};

/// One call for all pieces, which needs the own shards side by side.
class SideBySide final : public GatherBase {
 public:
  using GatherBase::GatherBase;

  void send(TravelGroup& group) override {
    const Shards& from = *group.from;
    const std::int64_t shards = group.shard_elements;
    group.flat = acquire("gathered shards", shards * from.ranks);
    const View own = at(group.flat, shards * from.rank);
    const TensorId fetched = fetches(group) ? acquire("own shards", shards) : no_tensor;
    group.from_nodes = exchange_->acquire(shards);
    const Stream stream = begin();
    shards_.collect(from, group.pieces, fetched == no_tensor ? own : at(fetched), stream);
    if (from.ranks == 1) return;
    if (fetched != no_tensor) {
      emitter_.emit(op::Convert{own, at(fetched), shards}, stream);
      wait_for_fetched(stream);
      emitter_.release(fetched);
    }
    exchange_->all_gather(group, at(group.flat), own, stream);
  }
  void put_away(TravelGroup& group) override { unpack(group); }
};

/// stage3_use_all_reduce_for_fetch_params: each rank adds its shards to zeros.
class ByAllReduce final : public GatherBase {
 public:
  using GatherBase::GatherBase;

  void send(TravelGroup& group) override {
    const Shards& from = *group.from;
    const std::int64_t padded = group.shard_elements * from.ranks;
    group.flat = acquire("gathered by all-reduce", padded);
    const Stream stream = begin();
    emitter_.emit(op::Fill{at(group.flat), 0.0F, padded}, stream);
    std::int64_t begin = 0;
    for (const int piece : group.pieces) {
      const std::int64_t shard = shards_.elements(from, piece);
      shards_.transfer(at(group.flat, begin + shard * from.rank), shards_.shard(from, piece), shard,
                       stream);
      begin += shard * from.ranks;
    }
    wait_for_fetched(stream);
    emitter_.emit(op::AllReduceSum{at(group.flat), padded}, stream);
  }
  void put_away(TravelGroup& group) override {
    std::int64_t begin = 0;
    for (const int piece : group.pieces) {
      const std::int64_t elements = layout_.piece(piece).elements;
      emitter_.emit(op::Convert{whole_.place(piece), at(group.flat, begin), elements});
      begin += shards_.elements(*group.from, piece) * group.from->ranks;
    }
  }
};

/// ZeRO++'s zero_quantized_weights: codes of 8 bits and scales.
class Quantized final : public GatherBase {
 public:
  using GatherBase::GatherBase;

  void send(TravelGroup& group) override {
    const Shards& from = *group.from;
    const std::int64_t shards = group.shard_elements;
    const std::int64_t run = weights_of_a_scale(shards);
    const std::int64_t scales = shards / run;
    // What is quantised at once lies side by side.
    const bool collects = shards_.are_on_host() || group.pieces.size() > 1;
    if (collects) group.own = acquire("own shards", shards);
    group.codes = acquire("gathered codes", shards * from.ranks, DType::i8);
    group.scales = acquire("gathered scales", scales * from.ranks, DType::f32);
    const Stream stream = begin();
    if (collects) {
      shards_.collect(from, group.pieces, at(group.own), stream);
      wait_for_fetched(stream);
    }
    const View own = collects ? at(group.own) : shards_.shard(from, group.pieces.front());
    const View own_codes = at(group.codes, shards * from.rank);
    const View own_scales = at(group.scales, scales * from.rank);
    emitter_.emit(op::Quantize{own_codes, own_scales, own, 8, shards, run}, stream);
    emitter_.emit(op::AllGather{at(group.codes), own_codes, shards, from.among}, stream);
    emitter_.emit(op::AllGather{at(group.scales), own_scales, scales, from.among}, stream);
  }
  void put_away(TravelGroup& group) override {
    const std::int64_t all = group.shard_elements * group.from->ranks;
    if (!group.to_its_place) group.flat = acquire("gathered shards", all);
    const View out = group.to_its_place ? whole_.place(group.pieces.front()) : at(group.flat);
    emitter_.emit(op::Dequantize{out, at(group.codes), at(group.scales), 8, all,
                                 weights_of_a_scale(group.shard_elements)});
    if (!group.to_its_place) unpack(group);
  }
};

}  // namespace

ParameterTravel::ParameterTravel(const ZeroContext& zero, WholeParameters& whole)
    : ZeroPart(zero),
      whole_(whole),
      shards_(zero),
      overlap_(config_.overlap_comm),
      // MiCS hands over parameters one by one, to be sent at once.
      one_by_one_(config_.stage3_allgather_sequential || is_mics(config_) ||
                  layout_.group_size() == 1),
      is_refreshed_(layout_.pieces().size(), false),
      sent_of_(layout_.pieces().size(), nothing) {
  const auto exchange = exchange_of(emitter_, layout_.partition());
  to_its_place_ = std::make_unique<ToItsPlace>(zero, shards_, whole_, exchange);
  side_by_side_ = std::make_unique<SideBySide>(zero, shards_, whole_, exchange);
  if (config_.stage3_use_all_reduce_for_fetch_params)
    by_all_reduce_ = std::make_unique<ByAllReduce>(zero, shards_, whole_, exchange);
  if (quantizes_weights(config_))
    quantized_ = std::make_unique<Quantized>(zero, shards_, whole_, exchange);
}

ParameterTravel::~ParameterTravel() = default;

void ParameterTravel::begin_micro_step(bool after_update) {
  sent_.clear();
  parted_.clear();
  const bool has_secondary = shards_.secondary().tensor != no_tensor;
  is_refreshed_.assign(is_refreshed_.size(), has_secondary && !after_update);
}

void ParameterTravel::gather(std::span<const int> pieces) {
  shards_.reader().wait_for(pieces);
  if (shards_.secondary().tensor == no_tensor) {
    gather_from(shards_.primary(), pieces);
    return;
  }
  std::vector<int> refreshed, others;
  for (const int piece : pieces)
    (is_refreshed_[static_cast<std::size_t>(piece)] ? refreshed : others).push_back(piece);
  gather_from(shards_.secondary(), parted_.emplace_back(std::move(refreshed)));
  gather_from(shards_.primary(), parted_.emplace_back(std::move(others)));
}

void ParameterTravel::gather_from(const Shards& from, std::span<const int> pieces) {
  if (!one_by_one_) {
    if (!pieces.empty()) send(from, pieces);
    return;
  }
  for (const int& piece : pieces) send(from, {&piece, 1});
}

void ParameterTravel::send(const Shards& from, std::span<const int> pieces) {
  TravelGroup group{.pieces = pieces,
                    .from = &from,
                    .shard_elements = 0,
                    .to_its_place = pieces.size() == 1 && whole_.takes_shards(pieces.front())};
  for (const int piece : pieces) {
    group.shard_elements += shards_.elements(from, piece);
    sent_of_[static_cast<std::size_t>(piece)] = static_cast<int>(sent_.size());
  }
  Gather& way = transport_of(group);
  way.send(group);
  const int event = overlap_ ? emitter_.record(Stream::gather) : nothing;
  sent_.push_back({group, &way, event, static_cast<int>(pieces.size())});
}

Gather& ParameterTravel::transport_of(const TravelGroup& group) const {
  if (quantized_ && group.from->ranks > 1) return *quantized_;
  if (group.to_its_place) return *to_its_place_;
  const bool is_primary = group.from == &shards_.primary();
  return by_all_reduce_ && is_primary && group.pieces.size() > 1 ? *by_all_reduce_ : *side_by_side_;
}

void ParameterTravel::take(int piece) {
  const int index = std::exchange(sent_of_[static_cast<std::size_t>(piece)], nothing);
  if (index == nothing) return;
  Sent& sent = sent_[static_cast<std::size_t>(index)];
  if (!sent.has_arrived) arrive(sent);
  // As in DeepSpeed, the buffer lives until the last of its parameters is asked for.
  if (--sent.unused > 0) return;
  for (const TensorId tensor : {sent.group.flat, sent.group.codes, sent.group.scales})
    emitter_.release(tensor);
}

void ParameterTravel::arrive(Sent& sent) {
  sent.has_arrived = true;
  if (overlap_) emitter_.wait(Stream::compute, sent.event);
  emitter_.release(sent.group.own);
  emitter_.release(sent.group.from_nodes);
  sent.way->put_away(sent.group);
}

void ParameterTravel::refresh_secondary(int piece) {
  const Shards& secondary = shards_.secondary();
  const auto index = static_cast<std::size_t>(piece);
  if (secondary.tensor == no_tensor || is_refreshed_[index]) return;
  is_refreshed_[index] = true;
  const Piece& whole = layout_.piece(piece);
  const std::int64_t part = shards_.elements(secondary, piece);
  const std::int64_t first = std::min(part * secondary.rank, whole.elements);
  const std::int64_t count = std::min(part, whole.elements - first);
  if (count == 0) return;
  shards_.transfer(shards_.shard(secondary, piece), moved(whole_.place(piece), first), count,
                   Stream::compute);
}

}  // namespace dstune::plan
