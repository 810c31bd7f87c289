#include "zero/layout.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"
#include "program/emitter.hpp"

namespace dstune::plan {
namespace {

/// The block that a rank lies in; every rank where that is the whole group.
RankRange part_of(int group_size, int group_rank, int size) {
  return size == group_size ? RankRange{} : range_of(group_rank, 1, size);
}

/// Query, key and value; the width of the query is that of the projection behind the attention.
void cut_qkv(const ParameterTable& table, int index, std::vector<Piece>& pieces) {
  const Parameter& merged = table.all()[index];
  const int projection = table.find(merged.unit, ParameterRole::projection_weight);
  require(projection >= 0, "attention has a projection");
  const std::int64_t query = table.all()[projection].columns;
  const std::int64_t key = (merged.rows - query) / 2;
  std::int64_t first = 0;
  for (const std::int64_t rows : {query, key, key}) {
    pieces.push_back({index, first, rows * merged.columns});
    first += rows * merged.columns;
  }
}

int stage_of(int zero_stage, int group_size, Offloaded offloaded) {
  return group_size > 1 || offloaded.optimizer || offloaded.parameters ? zero_stage : 0;
}

}  // namespace

std::int64_t spanned_nodes(const TrainingConfig& config) {
  return config.ranks_per_node == 0 ? 1 : config.mics_shard_size / config.ranks_per_node;
}

Partition partition_of(const TrainingConfig& config, int group_size, int group_rank) {
  Partition partition{.size = group_size, .rank = group_rank};
  if (config.zero_stage < 3 || group_size == 1) return partition;
  if (is_mics(config)) {
    partition.size = static_cast<int>(config.mics_shard_size);
    partition.rank = group_rank % partition.size;
    partition.replicas = group_size / partition.size;
    partition.shards = part_of(group_size, group_rank, partition.size);
    partition.across = range_of(group_rank, partition.size, partition.replicas);
    if (config.mics_hierarchical_params_gather) {
      const auto nodes = static_cast<int>(spanned_nodes(config));
      const int ranks = partition.size / nodes;
      partition.ranks_of_node = ranks;
      partition.node = range_of(group_rank, 1, ranks);
      partition.across_nodes = range_of(group_rank, ranks, nodes);
    }
    return partition;
  }
  if (config.zero_hpz_partition_size > 1) {
    partition.secondary_size =
        static_cast<int>(std::min<std::int64_t>(config.zero_hpz_partition_size, group_size));
    partition.secondary_rank = group_rank % partition.secondary_size;
    partition.secondary = part_of(group_size, group_rank, partition.secondary_size);
  }
  return partition;
}

std::vector<Piece> cut_into_pieces(const ParameterTable& table) {
  std::vector<Piece> pieces;
  pieces.reserve(table.all().size() * 2);
  for (std::size_t i = 0; i < table.all().size(); ++i) {
    const Parameter& parameter = table.all()[i];
    const int index = static_cast<int>(i);
    const std::int64_t parts = 1 + std::count(parameter.name.begin(), parameter.name.end(), '+');
    const bool attention =
        parameter.role == ParameterRole::qkv_weight || parameter.role == ParameterRole::qkv_bias;
    if (attention && parts == 3) {
      cut_qkv(table, index, pieces);
      continue;
    }
    const std::int64_t elements = parameter.elements() / parts;
    for (std::int64_t part = 0; part < parts; ++part)
      pieces.push_back({index, part * elements, elements});
  }
  return pieces;
}

ParameterOrder order_of(const TrainingConfig& config) {
  // BF16_Optimizer knows nothing of either.
  if (is_bf16_optimizer(config)) return {};
  constexpr std::int64_t aligned_bytes = 16;
  return {
      config.round_robin_gradients,
      config.aligns_parameters ? aligned_bytes / size_bytes(element_type(config.precision)) : 1};
}

Layout::Layout(const ParameterTable& table, int zero_stage, const Partition& partition,
               Offloaded offloaded, ParameterOrder order)
    : table_(&table),
      offloaded_(offloaded),
      partition_(partition),
      stage_(stage_of(zero_stage, partition.size, offloaded)),
      resident_(table.total_elements()),
      own_(resident_) {
  if (stage_ == 1 || stage_ == 2) {
    if (order.is_round_robin || order.alignment > 1) resident_ = place_parameters(order);
    // DeepSpeed aligns partitions of 16-bit parameters to 4 bytes.
    resident_ = round_up(resident_, 2 * std::int64_t{group_size()});
    own_ = resident_ / group_size();
  }
  if (stage_ == 3) {
    pieces_ = cut_into_pieces(table);
    shard_offset_.reserve(pieces_.size() + 1);
    std::int64_t offset = 0;
    for (const Piece& piece : pieces_) {
      if (piece.first == 0) piece_begin_.push_back(static_cast<int>(shard_offset_.size()));
      shard_offset_.push_back(offset);
      offset += (piece.elements + group_size() - 1) / group_size();
    }
    piece_begin_.push_back(static_cast<int>(pieces_.size()));
    shard_offset_.push_back(offset);
    resident_ = own_ = offset;
  }
}

std::int64_t Layout::place_parameters(const ParameterOrder& order) {
  const int count = num_parameters();
  const int rounds = order.is_round_robin ? group_size() : 1;
  offsets_.resize(count);
  std::int64_t end = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int index = round; index < count; index += rounds) {
      offsets_[index] = round_up(end, order.alignment);
      end = offsets_[index] + parameter(index).elements();
    }
  }
  return end;
}

void Layout::add_resharding(std::vector<op::Reshard::Piece>& pieces, int first, int last,
                            int slab_first, int shards_first) const {
  for (const int index : pieces_of_parameters(first, last)) {
    const Piece& piece = pieces_[index];
    const std::int64_t begin = parameter(piece.parameter).offset + piece.first;
    pieces.push_back({begin - parameter(slab_first).offset, piece.elements,
                      piece_shard_offset(index) - shard_offset(shards_first),
                      piece_shard_elements(index)});
  }
}

PieceRange Layout::pieces_of(std::int64_t first, std::int64_t count) const {
  const auto piece_at = [&](std::int64_t offset) {
    const auto found = std::lower_bound(shard_offset_.begin(), shard_offset_.end(), offset);
    return static_cast<int>(found - shard_offset_.begin());
  };
  return {piece_at(first), piece_at(first + count)};
}

std::pair<std::int64_t, std::int64_t> Layout::touched(int rank) const {
  const std::int64_t begin = own_ * rank;
  const std::int64_t end = begin + own_;
  std::pair<std::int64_t, std::int64_t> range{resident_, 0};
  for (int index = 0; index < num_parameters(); ++index) {
    const std::int64_t parameter_end = offset(index) + parameter(index).elements();
    if (offset(index) >= end || parameter_end <= begin) continue;
    range = {std::min(range.first, offset(index)), std::max(range.second, parameter_end)};
  }
  return range;
}

std::int64_t Layout::max_touched_elements() const {
  std::int64_t most = 0;
  for (int rank = 0; rank < group_size(); ++rank) {
    const auto [begin, end] = touched(rank);
    most = std::max(most, end - begin);
  }
  return most;
}

std::int64_t Layout::largest_parameter_elements() const {
  std::int64_t largest = 0;
  for (const Parameter& parameter : table_->all())
    largest = std::max(largest, parameter.elements());
  return largest;
}

std::int64_t longer_side(const Layout& layout, const Piece& piece) {
  const std::int64_t columns = layout.parameter(piece.parameter).columns;
  return std::max(piece.elements / columns, columns);
}

std::int64_t scales_of_gradient(const Layout& layout, const Piece& piece) {
  return std::max<std::int64_t>(longer_side(layout, piece), layout.group_size());
}

std::int64_t weights_of_a_scale(std::int64_t elements) {
  constexpr std::int64_t most = 8000;
  const std::int64_t whole = elements / quantized_at_once;
  std::int64_t run = whole / ((elements + most - 1) / most);
  while (whole % run != 0) --run;
  return quantized_at_once * run;
}

int quantizing_nodes(const Layout& layout, const TrainingConfig& config) {
  if (!quantizes_gradients(config) || config.ranks_per_node == 0) return 0;
  const auto nodes = static_cast<int>(layout.group_size() / config.ranks_per_node);
  return nodes > 1 ? nodes : 0;
}

bool is_gradient_quantized(const Layout& layout, const Piece& piece) {
  return layout.parameter(piece.parameter).columns > 1 &&
         piece.elements % (2 * std::int64_t{layout.group_size()}) == 0;
}

std::int64_t gradients_of_a_scale(const Layout& layout, const Piece& piece) {
  return piece.elements / scales_of_gradient(layout, piece);
}

}  // namespace dstune::plan
