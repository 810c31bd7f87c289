#include "zero/parameters.hpp"

#include <algorithm>
#include <iterator>

#include "dstune/base/error.hpp"

namespace dstune::plan {

OwnShards::OwnShards(const ZeroContext& zero)
    : ZeroPart(zero),
      primary_{tensors_.parameters, layout_.group_size(), layout_.group_rank(),
               layout_.partition().shards},
      secondary_{tensors_.secondary, layout_.partition().secondary_size,
                 layout_.partition().secondary_rank, layout_.partition().secondary,
                 layout_.shards_of_secondary()},
      are_on_host_(layout_.offloaded().parameters),
      // In a larger group compute waits for copies.
      copies_beside_compute_(config_.overlap_comm && layout_.group_size() == 1) {
  if (tensors_.shards_on_disk != no_tensor) buffer_.assign(tensors_.shards.size(), no_tensor);
}

void OwnShards::transfer(View to, View from, std::int64_t count, Stream stream) const {
  if (are_on_host_) {
    emitter_.emit(op::Copy{to, from, count}, stream);
  } else {
    emitter_.emit(op::Convert{to, from, count}, stream);
  }
}

void OwnShards::collect(const Shards& from, std::span<const int> pieces, View out,
                        Stream stream) const {
  // Pieces that lie side by side go together.
  for (std::size_t next = 0; next < pieces.size();) {
    const View begin = shard(from, pieces[next]);
    std::int64_t count = 0;
    const auto adjoins = [&](View other) {
      return other.tensor == begin.tensor && other.offset_elements == begin.offset_elements + count;
    };
    while (next < pieces.size() && adjoins(shard(from, pieces[next])))
      count += elements(from, pieces[next++]);
    transfer(out, begin, count, stream);
    out = moved(out, count);
  }
}

void OwnShards::read(std::span<const ShardRead> reads) {
  if (reads.empty()) return;
  emitter_.wait(Stream::disk_read, emitter_.record(Stream::compute));
  if (copies_beside_compute_) emitter_.wait(Stream::disk_read, emitter_.record(Stream::gather));
  for (const ShardRead& each : reads) {
    buffer_[each.piece] = tensors_.shard_buffers[each.buffer];
    emitter_.emit(op::ReadDisk{at(buffer_[each.piece]), tensors_.shard(each.piece),
                               layout_.piece_shard_elements(each.piece)},
                  Stream::disk_read);
    on_their_way_.push_back(each.piece);
  }
  event_ = emitter_.record(Stream::disk_read);
}

void OwnShards::wait_for(std::span<const int> pieces) {
  const bool is_there = std::none_of(pieces.begin(), pieces.end(), [&](int piece) {
    return std::find(on_their_way_.begin(), on_their_way_.end(), piece) != on_their_way_.end();
  });
  if (is_there) return;
  emitter_.wait(Stream::compute, event_);
  on_their_way_.clear();
}

WholeParameters::WholeParameters(const ZeroContext& zero, const TracedGathers& traced)
    : ZeroPart(zero),
      traced_(traced),
      is_in_slab_(layout_.pieces().size(), false),
      slabs_(layout_.num_parameters()) {}

View WholeParameters::place(int piece) {
  if (traced_.kept[piece]) return kept(piece);
  const Piece& whole = layout_.piece(piece);
  Slab& slab = slabs_[whole.parameter];
  if (slab.tensor == no_tensor) {
    const Parameter& parameter = layout_.parameter(whole.parameter);
    const std::int64_t padded = layout_.piece_shard_elements(piece) * layout_.group_size();
    slab.tensor =
        emitter_.acquire("gathered", parameter.unit - 1, Category::gathered, emitter_.type(),
                         is_one_piece(whole.parameter) ? padded : parameter.elements());
  }
  if (!is_in_slab(piece)) ++slab.pieces;
  is_in_slab_[piece] = true;
  return at(slab.tensor, whole.first);
}

bool WholeParameters::takes_shards(int piece) const {
  // A piece of a merged matrix may be wanted anew before the product that uses it now is done.
  if (is_in_slab(piece)) return false;
  const Piece& whole = layout_.piece(piece);
  const std::int64_t padded = layout_.piece_shard_elements(piece) * layout_.group_size();
  const bool is_kept_alone = traced_.kept[piece] && !traced_.kept_whole[whole.parameter];
  return is_one_piece(whole.parameter) || is_kept_alone || padded == whole.elements;
}

void WholeParameters::fill_gaps(int parameter) {
  if (traced_.kept_whole[parameter]) return;
  const Slab& slab = slabs_[parameter];
  for (const int piece : layout_.pieces_of_parameter(parameter)) {
    if (!traced_.kept[piece]) continue;
    const Piece& whole = layout_.piece(piece);
    emitter_.emit(op::Convert{at(slab.tensor, whole.first), kept(piece), whole.elements});
  }
}

void WholeParameters::release(int piece, bool is_held) {
  is_in_slab_[piece] = false;
  Slab& slab = slabs_[layout_.piece(piece).parameter];
  if (--slab.pieces > 0) return;
  if (is_held) {
    slab.held.push_back(slab.tensor);
  } else {
    emitter_.release(slab.tensor);
  }
  slab.tensor = no_tensor;
}

void WholeParameters::let_go(int parameter) {
  Slab& slab = slabs_[parameter];
  for (const TensorId tensor : slab.held) emitter_.release(tensor);
  slab.held.clear();
}

bool WholeParameters::is_any_held() const {
  return std::any_of(slabs_.begin(), slabs_.end(),
                     [](const Slab& slab) { return !slab.held.empty(); });
}

View WholeParameters::view(int parameter) const {
  if (traced_.kept_whole[parameter]) return kept(layout_.piece_begin(parameter));
  require(slabs_[parameter].tensor != no_tensor, "parameters are gathered before they are used");
  return at(slabs_[parameter].tensor);
}

ParameterSource::ParameterSource(const ZeroContext& zero, const Gathering* gathering)
    : ZeroPart(zero) {
  if (gathering == nullptr) return;
  trace_ = &gathering->traced->trace;
  whole_.emplace(zero, *gathering->traced);
  travel_.emplace(zero, *whole_);
  uses_.assign(layout_.pieces().size(), 0);
  user_.assign(layout_.pieces().size(), none);
}

void ParameterSource::begin_micro_step(const MicroStepGathers& gathers, bool after_update) {
  gathers_ = &gathers;
  next_ = 0;
  users_.assign(trace_->visits.size(), 0);
  travel_->begin_micro_step(after_update);
}

void ParameterSource::end_micro_step() const {
  if (trace_ == nullptr) return;
  require(next_ == trace_->visits.size(), "every module is run");
  require(!whole_->is_any_held(), "all that backward needs is released behind it");
}

void ParameterSource::use(int unit, ParameterRole first, ParameterRole last) {
  if (trace_ == nullptr) return;
  const PieceRange pieces = find(unit, first, last);
  for (const int piece : pieces)
    while (user_[piece] == none) next_visit();
  while (repeats(pieces)) next_visit();
  for (const int piece : pieces) {
    const int parameter = layout_.piece(piece).parameter;
    if (piece == layout_.piece_begin(parameter)) whole_->fill_gaps(parameter);
  }
}

bool ParameterSource::repeats(PieceRange pieces) const {
  if (next_ == trace_->visits.size()) return false;
  const Visit& visit = trace_->visits[next_];
  return !visit.holds && visit.pieces.contains(pieces.first);
}

void ParameterSource::next_visit() {
  require(next_ < trace_->visits.size(), "modules are run in the order of their trace");
  const int index = static_cast<int>(next_++);
  const Visit& visit = trace_->visits[index];
  travel_->read(gathers_->read[index]);
  travel_->gather(gathers_->fetched[index]);
  for (const int piece : visit.pieces) travel_->take(piece);
  if (visit.holds) hold(index);
  emitter_.set_ahead(true);
  travel_->gather(gathers_->prefetched[index]);
  emitter_.set_ahead(false);
  travel_->read(gathers_->read_ahead[index]);
}

void ParameterSource::hold(int index) {
  const Visit& visit = trace_->visits[index];
  const Module& module = trace_->modules[visit.module];
  users_[index] = visit.pieces.size();
  for (const int piece : visit.pieces) user_[piece] = index;
  // A tied table is used twice in a leaf that holds both ends of the model.
  for (int each = visit.module; each < (module.is_leaf ? module.end : visit.module + 1); ++each)
    for (const int piece : trace_->modules[each].own) ++uses_[piece];
}

void ParameterSource::done(int unit, ParameterRole first, ParameterRole last) {
  if (trace_ == nullptr) return;
  for (const int piece : find(unit, first, last)) {
    const int visit = user_[piece];
    const bool is_forward = trace_->visits[visit].is_forward;
    if (again_ && !is_forward) continue;
    if (--uses_[piece] > 0) continue;
    user_[piece] = none;
    if (!is_forward) whole_->let_go(layout_.piece(piece).parameter);
    if (--users_[visit] == 0) release(visit);
  }
}

void ParameterSource::release(int visit) {
  for (const int piece : gathers_->released[visit]) {
    if (!whole_->is_in_slab(piece)) continue;  // it is kept
    travel_->refresh_secondary(piece);
    whole_->release(piece, is_held(trace_->visits[visit], piece));
  }
}

bool ParameterSource::is_held(const Visit& visit, int piece) const {
  if (config_.memory_efficient_linear || !visit.is_forward) return false;
  if (layout_.parameter(layout_.piece(piece).parameter).columns == 1) return false;  // a bias
  const auto first = trace_->modules.begin() + visit.module;
  const auto last = first->is_leaf ? trace_->modules.begin() + first->end : std::next(first);
  return std::any_of(first, last, [&](const Module& module) {
    // The first forward keeps nothing of a module that is run again.
    const bool is_recorded = again_ || config_.recompute == Recompute::none || module.layer < 0;
    return is_recorded && module.is_linear && module.own.contains(piece);
  });
}

PieceRange ParameterSource::find(int unit, ParameterRole first, ParameterRole last) const {
  const int begin = layout_.table().find(unit, first);
  const int end = std::max(begin, layout_.table().find(unit, last));
  return layout_.pieces_of_parameters(begin, end + 1);
}

View ParameterSource::view(int unit, ParameterRole role) const {
  const int index = layout_.table().find(unit, role);
  if (index < 0) return {};
  return whole_ ? whole_->view(index) : at(tensors_.parameters, layout_.offset(index));
}

}  // namespace dstune::plan
