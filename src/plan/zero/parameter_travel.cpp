/// How pieces of parameters travel.

#include <algorithm>
#include <utility>

#include "zero/parameters.hpp"

namespace dstune::plan {

ParameterTravel::ParameterTravel(const ZeroContext& zero, WholeParameters& whole)
    : ZeroPart(zero),
      whole_(whole),
      shards_(zero),
      // MiCS hands over parameters one by one, to be sent at once.
      one_by_one_(config_.stage3_allgather_sequential || is_mics(config_) ||
                  layout_.group_size() == 1),
      is_refreshed_(layout_.pieces().size(), false),
      sent_of_(layout_.pieces().size(), nothing) {}

void ParameterTravel::begin_micro_step(bool after_update) {
  sent_.clear();
  parted_.clear();
  const bool has_secondary = shards_.secondary().tensor != no_tensor;
  is_refreshed_.assign(is_refreshed_.size(), has_secondary && !after_update);
}

void ParameterTravel::gather(std::span<const int> pieces) {
  shards_.wait_for(pieces);
  if (shards_.secondary().tensor == no_tensor) {
    gather_from(shards_.primary(), pieces);
    return;
  }
  std::vector<int> refreshed, others;
  for (const int piece : pieces) (is_refreshed_[piece] ? refreshed : others).push_back(piece);
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
                    .to_its_place = pieces.size() == 1 && whole_.takes_shards(pieces.front()),
                    .unused = static_cast<int>(pieces.size())};
  for (const int piece : pieces) {
    group.shard_elements += shards_.elements(from, piece);
    sent_of_[piece] = static_cast<int>(sent_.size());
  }
  group.way = way_of(group);
  switch (group.way) {
    case TravelGroup::Way::to_its_place:
      send_to_its_place(group);
      break;
    case TravelGroup::Way::side_by_side:
      send_side_by_side(group);
      break;
    case TravelGroup::Way::by_all_reduce:
      send_by_all_reduce(group);
      break;
    case TravelGroup::Way::quantized:
      send_quantized(group);
      break;
  }
  if (config_.overlap_comm) group.event = emitter_.record(Stream::gather);
  sent_.push_back(group);
}

TravelGroup::Way ParameterTravel::way_of(const TravelGroup& group) const {
  using enum TravelGroup::Way;
  if (quantizes_weights(config_) && group.from->ranks > 1) return quantized;
  if (group.to_its_place) return to_its_place;
  const bool is_reduced = config_.stage3_use_all_reduce_for_fetch_params &&
                          group.from == &shards_.primary() && group.pieces.size() > 1;
  return is_reduced ? by_all_reduce : side_by_side;
}

void ParameterTravel::send_to_its_place(TravelGroup& group) {
  const int piece = group.pieces.front();
  const View out = whole_.place(piece);
  View own = shards_.shard(*group.from, piece);
  if (fetches(group)) group.own = acquire("own shard", emitter_.type(), group.shard_elements);
  group.from_nodes = acquire_from_nodes(group.shard_elements);
  const Stream stream = begin();
  if (shards_.are_on_host()) {
    const View fetched = group.own == no_tensor ? out : at(group.own);
    shards_.transfer(fetched, own, group.shard_elements, stream);
    own = fetched;
  }
  if (group.from->ranks == 1) return;
  wait_for_fetched(stream);
  all_gather(group, out, own, stream);
}

void ParameterTravel::send_side_by_side(TravelGroup& group) {
  const Shards& from = *group.from;
  const std::int64_t shards = group.shard_elements;
  group.flat = acquire("gathered shards", emitter_.type(), shards * from.ranks);
  const View own = at(group.flat, shards * from.rank);
  const TensorId fetched =
      fetches(group) ? acquire("own shards", emitter_.type(), shards) : no_tensor;
  group.from_nodes = acquire_from_nodes(shards);
  const Stream stream = begin();
  shards_.collect(from, group.pieces, fetched == no_tensor ? own : at(fetched), stream);
  if (from.ranks == 1) return;
  if (fetched != no_tensor) {
    emitter_.emit(op::Convert{own, at(fetched), shards}, stream);
    wait_for_fetched(stream);
    emitter_.release(fetched);
  }
  all_gather(group, at(group.flat), own, stream);
}

void ParameterTravel::send_by_all_reduce(TravelGroup& group) {
  const Shards& from = *group.from;
  const std::int64_t padded = group.shard_elements * from.ranks;
  group.flat = acquire("gathered by all-reduce", emitter_.type(), padded);
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

void ParameterTravel::send_quantized(TravelGroup& group) {
  const Shards& from = *group.from;
  const std::int64_t shards = group.shard_elements;
  const std::int64_t run = weights_of_a_scale(shards);
  const std::int64_t scales = shards / run;
  // Shards that are quantised at once lie side by side.
  const bool collects = shards_.are_on_host() || group.pieces.size() > 1;
  if (collects) group.own = acquire("own shards", emitter_.type(), shards);
  group.codes = acquire("gathered codes", DType::i8, shards * from.ranks);
  group.scales = acquire("gathered scales", DType::f32, scales * from.ranks);
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

/// DeepSpeed's host waits for what it copies from the host, and so launches nothing meanwhile.
void ParameterTravel::wait_for_fetched(Stream stream) {
  if (config_.overlap_comm && shards_.are_on_host())
    emitter_.wait(Stream::compute, emitter_.record(stream));
}

TensorId ParameterTravel::acquire_from_nodes(std::int64_t shard_elements) {
  const Partition& partition = layout_.partition();
  if (partition.ranks_of_node == 0) return no_tensor;
  return acquire("shards of all nodes", emitter_.type(),
                 shard_elements * partition.across_nodes.count);
}

/// Brings the shards of all ranks together: [rank][shard] to `out`. MiCS's hierarchical gathers
/// first gather from the ranks with this one's place on each node. Then they gather each node's
/// part from the ranks of the own node.
void ParameterTravel::all_gather(const TravelGroup& group, View out, View own, Stream stream) {
  const std::int64_t shards = group.shard_elements;
  if (group.from_nodes == no_tensor) {
    emitter_.emit(op::AllGather{out, own, shards, group.from->among}, stream);
    return;
  }
  const Partition& partition = layout_.partition();
  const int nodes = partition.across_nodes.count;
  const std::int64_t of_node = shards * partition.ranks_of_node;
  const View own_place = moved(out, shards * (partition.rank % partition.ranks_of_node));
  emitter_.emit(op::AllGather{at(group.from_nodes), own, shards, partition.across_nodes}, stream);
  for (int node = 0; node < nodes; ++node) {
    emitter_.emit(
        op::Convert{moved(own_place, of_node * node), at(group.from_nodes, shards * node), shards},
        stream);
  }
  for (int node = 0; node < nodes; ++node) {
    emitter_.emit(op::AllGather{moved(out, of_node * node), moved(own_place, of_node * node),
                                shards, partition.node},
                  stream);
  }
}

void ParameterTravel::take(int piece) {
  const int index = std::exchange(sent_of_[piece], nothing);
  if (index == nothing) return;
  TravelGroup& group = sent_[index];
  if (!group.has_arrived) arrive(group);
  // The buffer lives until the last of its parameters is asked for, as in DeepSpeed.
  if (--group.unused > 0) return;
  for (const TensorId tensor : {group.flat, group.codes, group.scales}) emitter_.release(tensor);
}

void ParameterTravel::arrive(TravelGroup& group) {
  group.has_arrived = true;
  if (config_.overlap_comm) emitter_.wait(Stream::compute, group.event);
  emitter_.release(group.own);
  emitter_.release(group.from_nodes);
  switch (group.way) {
    case TravelGroup::Way::to_its_place:
      break;
    case TravelGroup::Way::side_by_side:
      unpack(group);
      break;
    case TravelGroup::Way::by_all_reduce:
      unpack_all_reduced(group);
      break;
    case TravelGroup::Way::quantized:
      dequantize(group);
      break;
  }
}

/// From `flat`, [rank][piece's shard].
void ParameterTravel::unpack(const TravelGroup& group) {
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

void ParameterTravel::unpack_all_reduced(const TravelGroup& group) {
  std::int64_t begin = 0;
  for (const int piece : group.pieces) {
    const std::int64_t elements = layout_.piece(piece).elements;
    emitter_.emit(op::Convert{whole_.place(piece), at(group.flat, begin), elements});
    begin += shards_.elements(*group.from, piece) * group.from->ranks;
  }
}

void ParameterTravel::dequantize(TravelGroup& group) {
  const std::int64_t all = group.shard_elements * group.from->ranks;
  if (!group.to_its_place) group.flat = acquire("gathered shards", emitter_.type(), all);
  const View out = group.to_its_place ? whole_.place(group.pieces.front()) : at(group.flat);
  emitter_.emit(op::Dequantize{out, at(group.codes), at(group.scales), 8, all,
                               weights_of_a_scale(group.shard_elements)});
  if (!group.to_its_place) unpack(group);
}

void ParameterTravel::refresh_secondary(int piece) {
  const Shards& secondary = shards_.secondary();
  if (secondary.tensor == no_tensor || is_refreshed_[piece]) return;
  is_refreshed_[piece] = true;
  const Piece& whole = layout_.piece(piece);
  const std::int64_t part = shards_.elements(secondary, piece);
  const std::int64_t first = std::min(part * secondary.rank, whole.elements);
  const std::int64_t count = std::min(part, whole.elements - first);
  if (count == 0) return;
  shards_.transfer(shards_.shard(secondary, piece), moved(whole_.place(piece), first), count,
                   Stream::compute);
}

}  // namespace dstune::plan
