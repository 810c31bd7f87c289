#include <algorithm>

#include "dstune/base/error.hpp"
#include "zero/parameter_travel.hpp"

namespace dstune::plan {

OwnShards::OwnShards(const ZeroContext& zero)
    : ZeroPart(zero),
      primary_{tensors_.parameters, layout_.group_size(), layout_.group_rank(),
               layout_.partition().shards},
      secondary_{tensors_.secondary, layout_.partition().secondary_size,
                 layout_.partition().secondary_rank, layout_.partition().secondary,
                 layout_.shards_of_secondary()},
      are_on_host_(layout_.offloaded().parameters),
      reader_(zero) {}

void OwnShards::transfer(View to, View from, std::int64_t count, Stream stream) const {
  if (are_on_host_) {
    emitter_.emit(op::Copy{to, from, count}, stream);
  } else {
    emitter_.emit(op::Convert{to, from, count}, stream);
  }
}

void OwnShards::collect(const Shards& from, std::span<const int> pieces, View out,
                        Stream stream) const {
  // What lies side by side goes together.
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

WholeParameters::WholeParameters(const ZeroContext& zero, const TracedGathers& traced)
    : ZeroPart(zero),
      traced_(traced),
      is_in_slab_(layout_.pieces().size(), false),
      slabs_(static_cast<std::size_t>(layout_.num_parameters())) {}

View WholeParameters::place(int piece) {
  if (traced_.kept[static_cast<std::size_t>(piece)]) return kept(piece);
  const Piece& whole = layout_.piece(piece);
  Slab& slab = slabs_[static_cast<std::size_t>(whole.parameter)];
  if (slab.tensor == no_tensor) {
    const Parameter& parameter = layout_.parameter(whole.parameter);
    const std::int64_t padded = layout_.piece_shard_elements(piece) * layout_.group_size();
    slab.tensor =
        emitter_.acquire("gathered", parameter.unit - 1, Category::gathered, emitter_.type(),
                         is_one_piece(whole.parameter) ? padded : parameter.elements());
  }
  if (!is_in_slab(piece)) ++slab.pieces;
  is_in_slab_[static_cast<std::size_t>(piece)] = true;
  return at(slab.tensor, whole.first);
}

bool WholeParameters::takes_shards(int piece) const {
  // A piece of a merged matrix may be wanted anew before the product that uses it now is done.
  if (is_in_slab(piece)) return false;
  const Piece& whole = layout_.piece(piece);
  const std::int64_t padded = layout_.piece_shard_elements(piece) * layout_.group_size();
  const bool is_kept_alone = traced_.kept[static_cast<std::size_t>(piece)] &&
                             !traced_.kept_whole[static_cast<std::size_t>(whole.parameter)];
  return is_one_piece(whole.parameter) || is_kept_alone || padded == whole.elements;
}

void WholeParameters::fill_gaps(int parameter) {
  if (traced_.kept_whole[static_cast<std::size_t>(parameter)]) return;
  const Slab& slab = slabs_[static_cast<std::size_t>(parameter)];
  for (int piece = layout_.piece_begin(parameter); piece < layout_.piece_begin(parameter + 1);
       ++piece) {
    if (!traced_.kept[static_cast<std::size_t>(piece)]) continue;
    const Piece& whole = layout_.piece(piece);
    emitter_.emit(op::Convert{at(slab.tensor, whole.first), kept(piece), whole.elements});
  }
}

void WholeParameters::release(int piece, bool is_held) {
  is_in_slab_[static_cast<std::size_t>(piece)] = false;
  Slab& slab = slabs_[static_cast<std::size_t>(layout_.piece(piece).parameter)];
  if (--slab.pieces > 0) return;
  if (is_held) {
    slab.held.push_back(slab.tensor);
  } else {
    emitter_.release(slab.tensor);
  }
  slab.tensor = no_tensor;
}

void WholeParameters::let_go(int parameter) {
  Slab& slab = slabs_[static_cast<std::size_t>(parameter)];
  for (const TensorId tensor : slab.held) emitter_.release(tensor);
  slab.held.clear();
}

bool WholeParameters::is_any_held() const {
  return std::any_of(slabs_.begin(), slabs_.end(),
                     [](const Slab& slab) { return !slab.held.empty(); });
}

View WholeParameters::view(int parameter) const {
  const auto index = static_cast<std::size_t>(parameter);
  if (traced_.kept_whole[index]) return kept(layout_.piece_begin(parameter));
  require(slabs_[index].tensor != no_tensor, "parameters are gathered before they are used");
  return at(slabs_[index].tensor);
}

}  // namespace dstune::plan
