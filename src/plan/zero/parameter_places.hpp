#pragma once
/// Where the parameters of stage 3 lie: the own shards of them, and those that are whole for now.

#include <span>
#include <vector>

#include "zero/disk.hpp"

namespace dstune::plan {

/// A partition of the parameters: of all ranks that share the states, or hpZ's second one.
struct Shards {
  TensorId tensor = no_tensor;
  int ranks = 1, rank = 0;
  RankRange among = {};
  int scale = 1;  ///< shards of the first that make up one of this
};

/// The own shards: on the device or, offloaded, on the host or a disk, from which they are read
/// into buffers of the host.
class OwnShards : ZeroPart {
 public:
  explicit OwnShards(const ZeroContext& zero);

  [[nodiscard]] const Shards& primary() const { return primary_; }
  /// Without a tensor where there is none.
  [[nodiscard]] const Shards& secondary() const { return secondary_; }
  [[nodiscard]] bool are_on_host() const { return are_on_host_; }
  [[nodiscard]] std::int64_t elements(const Shards& from, int piece) const {
    return layout_.piece_shard_elements(piece) * from.scale;
  }
  /// In memory.
  [[nodiscard]] View shard(const Shards& from, int piece) const {
    if (&from == &primary_) return reader_.shard(piece);
    return at(from.tensor, layout_.piece_shard_offset(piece) * from.scale);
  }

  /// `count` elements between a shard's memory and the device.
  void transfer(View to, View from, std::int64_t count, Stream stream) const;
  /// The shards of these pieces side by side.
  void collect(const Shards& from, std::span<const int> pieces, View out, Stream stream) const;
  ShardReader& reader() { return reader_; }

 private:
  Shards primary_, secondary_;
  bool are_on_host_;
  ShardReader reader_;
};

/// Whole parameters: kept from their first use on, or in a slab for each parameter of ours, from
/// the gather of its first piece to the release of its last.
class WholeParameters : ZeroPart {
 public:
  WholeParameters(const ZeroContext& zero, const TracedGathers& traced);

  /// Where a piece is whole; acquires that.
  View place(int piece);
  /// Whether the shards of all ranks, the last one's padding included, may arrive there themselves.
  [[nodiscard]] bool takes_shards(int piece) const;
  /// In a slab, or on its way there; what is kept never is.
  [[nodiscard]] bool is_in_slab(int piece) const {
    return is_in_slab_[static_cast<std::size_t>(piece)];
  }
  /// Copies pieces that are kept into the slab of their parameter, of which others are there.
  void fill_gaps(int parameter);
  /// `is_held`: autograd keeps it for backward all the same.
  void release(int piece, bool is_held);
  /// What autograd kept.
  void let_go(int parameter);
  [[nodiscard]] bool is_any_held() const;
  /// A parameter all of whose pieces are there.
  [[nodiscard]] View view(int parameter) const;

 private:
  [[nodiscard]] bool is_one_piece(int parameter) const {
    return layout_.piece_begin(parameter + 1) - layout_.piece_begin(parameter) == 1;
  }
  [[nodiscard]] View kept(int piece) const {
    return at(tensors_.kept, traced_.kept_offset[static_cast<std::size_t>(piece)]);
  }

  const TracedGathers& traced_;
  std::vector<bool> is_in_slab_;  // by piece
  struct Slab {
    TensorId tensor = no_tensor;
    int pieces = 0;              // there or on their way
    std::vector<TensorId> held;  // released but held
  };
  std::vector<Slab> slabs_;  // by parameter
};

}  // namespace dstune::plan
