#include "zero/parameter_source.hpp"

#include <algorithm>
#include <numeric>

#include "dstune/base/error.hpp"
#include "zero/quantization.hpp"

namespace dstune::plan {
namespace {

constexpr int none = -1;

}  // namespace

ParameterSource::ParameterSource(Emitter& emitter, const Layout& layout,
                                 const TrainingConfig& config, const PersistentTensors& tensors,
                                 const Gathering* gathering)
    : emitter_(emitter),
      layout_(layout),
      primary_{tensors.parameters, layout.group_size(), layout.group_rank(),
               layout.partition().shards},
      secondary_{tensors.secondary, layout.partition().secondary_size,
                 layout.partition().secondary_rank, layout.partition().secondary,
                 layout.shards_of_secondary()},
      kept_(tensors.kept),
      overlap_(config.overlap_comm),
      // MiCS hands over parameters one by one, to be sent at once.
      sequential_(config.stage3_allgather_sequential || is_mics(config) ||
                  layout.group_size() == 1),
      all_reduces_(config.stage3_use_all_reduce_for_fetch_params),
      holds_linear_(!config.memory_efficient_linear),
      runs_again_(config.recompute != Recompute::none),
      quantizes_(quantizes_weights(config)),
      is_offloaded_(layout.offloaded().parameters),
      traced_(gathering == nullptr ? nullptr : gathering->traced.get()),
      reader_(emitter, layout, config, tensors) {
  if (traced_ == nullptr) return;
  const std::size_t pieces = layout.pieces().size();
  const auto parameters = static_cast<std::size_t>(layout.num_parameters());
  user_.assign(pieces, none);
  uses_.assign(pieces, 0);
  group_.assign(pieces, none);
  is_placed_.assign(pieces, false);
  is_refreshed_.assign(pieces, false);
  slabs_.assign(parameters, no_tensor);
  slab_pieces_.assign(parameters, 0);
  held_.resize(parameters);
}

void ParameterSource::begin_micro_step(const MicroStepGathers& gathers, bool after_update) {
  gathers_ = &gathers;
  next_ = 0;
  groups_.clear();
  grouped_.clear();
  users_.assign(traced_->trace.visits.size(), 0);
  is_refreshed_.assign(is_refreshed_.size(), secondary_.tensor != no_tensor && !after_update);
}

void ParameterSource::end_micro_step() {
  if (traced_ == nullptr) return;
  require(next_ == traced_->trace.visits.size(), "every module is run");
  require(std::all_of(held_.begin(), held_.end(), [](const auto& held) { return held.empty(); }),
          "what backward needs is let go behind it");
}

PieceRange ParameterSource::find(int unit, ParameterRole first, ParameterRole last) const {
  const int begin = layout_.table().find(unit, first);
  const int end = std::max(begin, layout_.table().find(unit, last));
  return {layout_.piece_begin(begin), layout_.piece_begin(end + 1)};
}

void ParameterSource::use_pieces(PieceRange pieces) {
  for (int piece = pieces.first; piece < pieces.last; ++piece)
    while (user_[static_cast<std::size_t>(piece)] == none) next_visit();
  while (repeats(pieces)) next_visit();
  for (int piece = pieces.first; piece < pieces.last; ++piece) {
    if (piece == layout_.piece_begin(parameter_of(piece))) fill_gaps(parameter_of(piece));
  }
}

bool ParameterSource::repeats(PieceRange pieces) const {
  if (next_ == traced_->trace.visits.size()) return false;
  const Visit& visit = traced_->trace.visits[next_];
  return !visit.holds && visit.pieces.first <= pieces.first && pieces.first < visit.pieces.last;
}

void ParameterSource::next_visit() {
  require(next_ < traced_->trace.visits.size(), "modules are run in the order of their trace");
  const int index = static_cast<int>(next_);
  const Visit& visit = traced_->trace.visits[next_];
  ++next_;
  reader_.read(gathers_->read[index]);
  gather(gathers_->fetched[index]);
  for (int piece = visit.pieces.first; piece < visit.pieces.last; ++piece) {
    const auto at = static_cast<std::size_t>(piece);
    if (group_[at] != none) take(piece);
  }
  if (visit.holds) hold(index);
  gather(gathers_->prefetched[index]);
  reader_.read(gathers_->read_ahead[index]);
}

void ParameterSource::hold(int index) {
  const Visit& visit = traced_->trace.visits[static_cast<std::size_t>(index)];
  const std::vector<Module>& modules = traced_->trace.modules;
  const Module& module = modules[static_cast<std::size_t>(visit.module)];
  users_[static_cast<std::size_t>(index)] = visit.pieces.size();
  for (int piece = visit.pieces.first; piece < visit.pieces.last; ++piece)
    user_[static_cast<std::size_t>(piece)] = index;
  // A tied table is used twice in a leaf that holds both ends of the model.
  for (int each = visit.module; each < (module.is_leaf ? module.end : visit.module + 1); ++each) {
    const PieceRange own = modules[static_cast<std::size_t>(each)].own;
    for (int piece = own.first; piece < own.last; ++piece) ++uses_[static_cast<std::size_t>(piece)];
  }
}

void ParameterSource::done_pieces(PieceRange pieces) {
  for (int piece = pieces.first; piece < pieces.last; ++piece) {
    int& user = user_[static_cast<std::size_t>(piece)];
    const int visit = user;
    const auto index = static_cast<std::size_t>(visit);
    if (again_ && !traced_->trace.visits[index].is_forward) continue;
    if (--uses_[static_cast<std::size_t>(piece)] > 0) continue;
    user = none;
    if (!traced_->trace.visits[index].is_forward) let_go(parameter_of(piece));
    if (--users_[index] > 0) continue;
    for (const int released : gathers_->released[visit])
      release(released, is_held(visit, released));
  }
}

void ParameterSource::gather(std::span<const int> pieces) {
  reader_.wait_for(pieces);
  if (secondary_.tensor == no_tensor) return gather_from(primary_, pieces);
  std::vector<int> refreshed, others;
  for (const int piece : pieces)
    (is_refreshed_[static_cast<std::size_t>(piece)] ? refreshed : others).push_back(piece);
  gather_from(secondary_, refreshed);
  gather_from(primary_, others);
}

void ParameterSource::gather_from(const Shards& shards, std::span<const int> pieces) {
  if (!sequential_) {
    if (!pieces.empty()) gather_group(shards, pieces);
    return;
  }
  for (const int& piece : pieces) gather_group(shards, {&piece, 1});
}

void ParameterSource::gather_group(const Shards& shards, std::span<const int> pieces) {
  for (const int piece : pieces)
    group_[static_cast<std::size_t>(piece)] = static_cast<int>(groups_.size());
  Group& group = groups_.emplace_back(Group{.first = grouped_.size(),
                                            .count = pieces.size(),
                                            .from = &shards,
                                            .flat = no_tensor,
                                            .shard = no_tensor,
                                            .codes = no_tensor,
                                            .scales = no_tensor,
                                            .event = none,
                                            .unused = static_cast<int>(pieces.size()),
                                            .to_its_place = false,
                                            .arrived = false});
  grouped_.insert(grouped_.end(), pieces.begin(), pieces.end());
  const int only = pieces.size() == 1 ? pieces.front() : none;
  // A piece of a merged matrix may be wanted anew before the product that uses it now is done.
  const bool is_free = only != none && !is_placed_[static_cast<std::size_t>(only)];
  group.to_its_place = is_free && travels_to_its_place(only);
  if (quantizes_ && shards.ranks > 1) {
    gather_quantized(group);
  } else if (group.to_its_place) {
    gather_to_its_place(group);
  } else if (is_all_reduced(group)) {
    gather_by_all_reduce(group);
  } else {
    gather_flat(group);
  }
  if (overlap_) group.event = emitter_.record(Stream::gather);
}

bool ParameterSource::is_all_reduced(const Group& group) const {
  return all_reduces_ && group.count > 1 && group.from == &primary_ && group.codes == no_tensor;
}

std::int64_t ParameterSource::shard_elements(const Group& group) const {
  std::int64_t shards = 0;
  for (const int piece : pieces_of(group)) shards += shard_elements(*group.from, piece);
  return shards;
}

void ParameterSource::gather_quantized(Group& group) {
  const Shards& from = *group.from;
  const std::int64_t shards = shard_elements(group);
  const std::int64_t run = weights_of_a_scale(shards);
  const std::int64_t scales = shards / run;
  // What is quantised at once lies side by side.
  const bool is_collected = is_offloaded_ || group.count > 1;
  if (is_collected)
    group.shard = emitter_.acquire("own shards", -1, Category::gathered, emitter_.type(), shards);
  group.codes =
      emitter_.acquire("gathered codes", -1, Category::gathered, DType::i8, shards * from.ranks);
  group.scales =
      emitter_.acquire("gathered scales", -1, Category::gathered, DType::f32, scales * from.ranks);
  const Stream stream = emitter_.begin_beside(overlap_, Stream::gather);
  if (is_offloaded_) {
    collect<op::Copy>(group, at(group.shard), stream);
    wait_for_fetched(stream);
  } else if (is_collected) {
    collect<op::Convert>(group, at(group.shard), stream);
  }
  const View own = is_collected ? at(group.shard) : own_shard(from, pieces_of(group).front());
  const View own_codes = at(group.codes, shards * from.rank);
  const View own_scales = at(group.scales, scales * from.rank);
  emitter_.emit(op::Quantize{own_codes, own_scales, own, 8, shards, run}, stream);
  emitter_.emit(op::AllGather{at(group.codes), own_codes, shards, from.among}, stream);
  emitter_.emit(op::AllGather{at(group.scales), own_scales, scales, from.among}, stream);
}

void ParameterSource::dequantize(Group& group) {
  const std::int64_t shards = shard_elements(group);
  const std::int64_t all = shards * group.from->ranks;
  if (!group.to_its_place)
    group.flat = emitter_.acquire("gathered shards", -1, Category::gathered, emitter_.type(), all);
  const View to = group.to_its_place ? place(pieces_of(group).front()) : at(group.flat);
  emitter_.emit(
      op::Dequantize{to, at(group.codes), at(group.scales), 8, all, weights_of_a_scale(shards)});
}

void ParameterSource::gather_to_its_place(Group& group) {
  const int piece = pieces_of(group).front();
  const Shards& from = *group.from;
  const std::int64_t elements = shard_elements(from, piece);
  const bool alone = from.ranks == 1;
  const View out = place(piece);
  View own = own_shard(from, piece);
  if (is_offloaded_ && !alone) {
    group.shard = emitter_.acquire("own shard", -1, Category::gathered, emitter_.type(), elements);
  }
  acquire_from_nodes(group);
  const Stream stream = emitter_.begin_beside(overlap_, Stream::gather);
  if (is_offloaded_) {
    const View fetched = alone ? out : at(group.shard);
    emitter_.emit(op::Copy{fetched, own, elements}, stream);
    own = fetched;
  }
  if (alone) return;
  if (is_offloaded_) wait_for_fetched(stream);
  gather_shards(group, out, own, stream);
}

void ParameterSource::acquire_from_nodes(Group& group) {
  const Partition& partition = layout_.partition();
  if (partition.ranks_of_node == 0) return;
  group.shard = emitter_.acquire("shards of all nodes", -1, Category::gathered, emitter_.type(),
                                 shard_elements(group) * partition.across_nodes.count);
}

void ParameterSource::gather_shards(const Group& group, View out, View own, Stream stream) {
  const std::int64_t shards = shard_elements(group);
  const Partition& partition = layout_.partition();
  if (partition.ranks_of_node == 0) {
    emitter_.emit(op::AllGather{out, own, shards, group.from->among}, stream);
    return;
  }
  // From the ranks with this one's place on each node, then of each node from the own one's ranks.
  const std::int64_t of_node = shards * partition.ranks_of_node;
  const std::int64_t own_place = shards * (partition.rank % partition.ranks_of_node);
  emitter_.emit(op::AllGather{at(group.shard), own, shards, partition.across_nodes}, stream);
  for (int node = 0; node < partition.across_nodes.count; ++node) {
    emitter_.emit(
        op::Convert{moved(out, of_node * node + own_place), at(group.shard, shards * node), shards},
        stream);
  }
  for (int node = 0; node < partition.across_nodes.count; ++node) {
    emitter_.emit(op::AllGather{moved(out, of_node * node), moved(out, of_node * node + own_place),
                                shards, partition.node},
                  stream);
  }
}

void ParameterSource::gather_flat(Group& group) {
  const Shards& from = *group.from;
  const std::int64_t shards = shard_elements(group);
  group.flat = emitter_.acquire("gathered shards", -1, Category::gathered, emitter_.type(),
                                shards * from.ranks);
  const bool alone = from.ranks == 1;
  const View own = at(group.flat, shards * from.rank);
  TensorId fetched = no_tensor;
  if (is_offloaded_ && !alone)
    fetched = emitter_.acquire("own shards", -1, Category::gathered, emitter_.type(), shards);
  acquire_from_nodes(group);
  const Stream stream = emitter_.begin_beside(overlap_, Stream::gather);
  // One call needs the own shards side by side.
  if (!is_offloaded_) {
    collect<op::Convert>(group, own, stream);
  } else if (alone) {
    collect<op::Copy>(group, own, stream);
  } else {
    collect<op::Copy>(group, at(fetched), stream);
    emitter_.emit(op::Convert{own, at(fetched), shards}, stream);
    wait_for_fetched(stream);
    emitter_.release(fetched);
  }
  if (!alone) gather_shards(group, at(group.flat), own, stream);
}

void ParameterSource::wait_for_fetched(Stream stream) {
  // DeepSpeed's host waits for what it copies from the host, and so launches nothing meanwhile.
  if (overlap_) emitter_.wait(Stream::compute, emitter_.record(stream));
}

template <class Transfer>
void ParameterSource::collect(const Group& group, View out, Stream stream) {
  const std::span<const int> pieces = pieces_of(group);
  std::int64_t offset = 0;
  for (std::size_t first = 0; first < pieces.size();) {
    std::size_t last = first + 1;
    const View begin = own_shard(*group.from, pieces[first]);
    std::int64_t count = shard_elements(*group.from, pieces[first]);
    for (; last < pieces.size(); ++last) {
      const View next = own_shard(*group.from, pieces[last]);
      const bool adjoins =
          next.tensor == begin.tensor && next.offset_elements == begin.offset_elements + count;
      if (!adjoins) break;
      count += shard_elements(*group.from, pieces[last]);
    }
    emitter_.emit(Transfer{moved(out, offset), begin, count}, stream);
    offset += count;
    first = last;
  }
}

void ParameterSource::gather_by_all_reduce(Group& group) {
  std::int64_t padded = 0;
  for (const int piece : pieces_of(group))
    padded += layout_.piece_shard_elements(piece) * layout_.group_size();
  group.flat =
      emitter_.acquire("gathered by all-reduce", -1, Category::gathered, emitter_.type(), padded);
  const Stream stream = emitter_.begin_beside(overlap_, Stream::gather);
  emitter_.emit(op::Fill{at(group.flat), 0.0F, padded}, stream);
  std::int64_t begin = 0;
  for (const int piece : pieces_of(group)) {
    const std::int64_t shard = layout_.piece_shard_elements(piece);
    const View to = at(group.flat, begin + shard * layout_.group_rank());
    const View own = own_shard(primary_, piece);
    if (is_offloaded_) {
      emitter_.emit(op::Copy{to, own, shard}, stream);
    } else {
      emitter_.emit(op::Convert{to, own, shard}, stream);
    }
    begin += shard * layout_.group_size();
  }
  if (is_offloaded_) wait_for_fetched(stream);
  emitter_.emit(op::AllReduceSum{at(group.flat), padded}, stream);
}

bool ParameterSource::travels_to_its_place(int piece) const {
  const int parameter = parameter_of(piece);
  const bool alone = layout_.piece_begin(parameter + 1) - layout_.piece_begin(parameter) == 1;
  const std::int64_t padded = layout_.piece_shard_elements(piece) * layout_.group_size();
  const Piece& whole = layout_.pieces()[static_cast<std::size_t>(piece)];
  const bool kept_beside = traced_->kept[static_cast<std::size_t>(piece)] &&
                           !traced_->kept_whole[static_cast<std::size_t>(parameter)];
  return alone || kept_beside || padded == whole.elements;
}

View ParameterSource::place(int piece) {
  const auto index = static_cast<std::size_t>(piece);
  if (traced_->kept[index]) return at(kept_, traced_->kept_offset[index]);
  const int parameter = parameter_of(piece);
  const auto slab = static_cast<std::size_t>(parameter);
  if (slabs_[slab] == no_tensor) {
    const Parameter& whole = layout_.parameter(parameter);
    const bool alone = layout_.piece_begin(parameter + 1) - layout_.piece_begin(parameter) == 1;
    slabs_[slab] = emitter_.acquire(
        "gathered", whole.unit - 1, Category::gathered, emitter_.type(),
        alone ? layout_.piece_shard_elements(piece) * layout_.group_size() : whole.elements());
  }
  if (!is_placed_[index]) ++slab_pieces_[slab];
  is_placed_[index] = true;
  return at(slabs_[slab], layout_.pieces()[index].first);
}

void ParameterSource::take(int piece) {
  const auto index = static_cast<std::size_t>(piece);
  Group& group = groups_[static_cast<std::size_t>(group_[index])];
  group_[index] = none;
  if (!group.arrived) arrive(group);
  // As in DeepSpeed, the buffer lives until the last of its parameters is asked for.
  if (--group.unused > 0) return;
  for (const TensorId tensor : {group.flat, group.codes, group.scales}) emitter_.release(tensor);
}

void ParameterSource::arrive(Group& group) {
  group.arrived = true;
  if (overlap_) emitter_.wait(Stream::compute, group.event);
  emitter_.release(group.shard);
  if (group.codes != no_tensor) dequantize(group);
  if (group.flat == no_tensor) return;
  const Shards& from = *group.from;
  const std::int64_t shards = shard_elements(group);
  std::int64_t offset = 0;
  for (const int piece : pieces_of(group)) {
    const std::int64_t shard = shard_elements(from, piece);
    const Piece& whole = layout_.pieces()[static_cast<std::size_t>(piece)];
    if (is_all_reduced(group)) {
      emitter_.emit(op::Convert{place(piece), at(group.flat, offset), whole.elements});
      offset += shard * from.ranks;
      continue;
    }
    emitter_.reshard(op::Reshard{place(piece), at(group.flat), false, from.ranks, shards, 0, 0},
                     [&](auto& pieces) {
                       pieces.push_back({0, whole.elements, offset, shard});
                     });
    offset += shard;
  }
}

void ParameterSource::fill_gaps(int parameter) {
  const auto slab = static_cast<std::size_t>(parameter);
  if (traced_->kept_whole[slab]) return;
  for (int piece = layout_.piece_begin(parameter); piece < layout_.piece_begin(parameter + 1);
       ++piece) {
    const auto index = static_cast<std::size_t>(piece);
    if (!traced_->kept[index]) continue;
    const Piece& whole = layout_.pieces()[index];
    emitter_.emit(op::Convert{at(slabs_[slab], whole.first), at(kept_, traced_->kept_offset[index]),
                              whole.elements});
  }
}

bool ParameterSource::is_held(int visit, int piece) const {
  const Visit& at = traced_->trace.visits[static_cast<std::size_t>(visit)];
  if (!holds_linear_ || !at.is_forward) return false;
  if (layout_.parameter(parameter_of(piece)).columns == 1) return false;  // a bias
  const std::vector<Module>& modules = traced_->trace.modules;
  const auto first = modules.begin() + at.module;
  const auto last = first->is_leaf ? modules.begin() + first->end : std::next(first);
  return std::any_of(first, last, [&](const Module& module) {
    // Of what is run again the first forward keeps nothing.
    const bool is_recorded = again_ || !runs_again_ || module.layer < 0;
    return is_recorded && module.is_linear && module.own.first <= piece && piece < module.own.last;
  });
}

void ParameterSource::let_go(int parameter) {
  std::vector<TensorId>& held = held_[static_cast<std::size_t>(parameter)];
  for (const TensorId slab : held) emitter_.release(slab);
  held.clear();
}

void ParameterSource::release(int piece, bool is_held) {
  const auto index = static_cast<std::size_t>(piece);
  if (!is_placed_[index]) return;  // it is kept
  if (secondary_.tensor != no_tensor) refresh(piece);
  is_placed_[index] = false;
  const auto slab = static_cast<std::size_t>(parameter_of(piece));
  if (--slab_pieces_[slab] > 0) return;
  if (is_held) {
    held_[slab].push_back(slabs_[slab]);
  } else {
    emitter_.release(slabs_[slab]);
  }
  slabs_[slab] = no_tensor;
}

void ParameterSource::refresh(int piece) {
  const auto index = static_cast<std::size_t>(piece);
  if (is_refreshed_[index]) return;
  is_refreshed_[index] = true;
  const Piece& whole = layout_.pieces()[index];
  const std::int64_t part = shard_elements(secondary_, piece);
  const std::int64_t first = std::min(part * secondary_.rank, whole.elements);
  const std::int64_t count = std::min(part, whole.elements - first);
  if (count == 0) return;
  const auto slab = static_cast<std::size_t>(whole.parameter);
  const View kept = own_shard(secondary_, piece);
  const View from = at(slabs_[slab], whole.first + first);
  if (is_offloaded_) {
    emitter_.emit(op::Copy{kept, from, count});
  } else {
    emitter_.emit(op::Convert{kept, from, count});
  }
}

View ParameterSource::view(int unit, ParameterRole role) const {
  const int index = layout_.table().find(unit, role);
  if (index < 0) return {};
  if (traced_ == nullptr) return at(primary_.tensor, layout_.offset(index));
  const auto slab = static_cast<std::size_t>(index);
  if (traced_->kept_whole[slab]) {
    const int first = layout_.piece_begin(index);
    return at(kept_, traced_->kept_offset[static_cast<std::size_t>(first)]);
  }
  require(slabs_[slab] != no_tensor, "parameters are gathered before they are used");
  return at(slabs_[slab]);
}

}  // namespace dstune::plan
