#include "layout.hpp"

#include <algorithm>

namespace dstune::plan {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void fill(Emitter& emitter, TensorId tensor, std::int64_t offset, std::int64_t count, float value) {
  if (count > 0) emitter.emit(op::Fill{at(tensor, offset), value, count});
}

/// Elements [first, first + count) of a parameter to `offset` of the parameter tensor.
void emit_initial_values(Emitter& emitter, TensorId tensor, std::int64_t offset,
                         const Parameter& parameter, int index, std::int64_t first,
                         std::int64_t count) {
  if (count == 0) return;
  if (parameter.initial == InitialValue::normal) {
    emitter.emit(
        op::FillNormal{at(tensor, offset), index, first, count, parameter.standard_deviation});
  } else {
    fill(emitter, tensor, offset, count, parameter.initial == InitialValue::one ? 1.0F : 0.0F);
  }
}

/// This rank's shard of a piece.
void emit_initial_shard(Emitter& emitter, const Layout& layout, TensorId tensor, int index) {
  const Piece& piece = layout.pieces()[static_cast<std::size_t>(index)];
  const std::int64_t shard = layout.piece_shard_elements(index);
  const std::int64_t first = std::min(shard * layout.group_rank(), piece.elements);
  const std::int64_t count = std::min(shard, piece.elements - first);
  const std::int64_t offset = layout.piece_shard_offset(index);
  emit_initial_values(emitter, tensor, offset, layout.parameter(piece.parameter), piece.parameter,
                      piece.first + first, count);
  fill(emitter, tensor, offset + count, shard - count, 0.0F);
}

int stage_of(int zero_stage, int group_size, bool is_optimizer_offloaded) {
  if (group_size > 1) return zero_stage;
  return is_optimizer_offloaded ? std::min(zero_stage, 2) : 0;
}

/// What DeepSpeed keeps on the host (runtime/zero/stage_1_and_2.py, stage3.py): all of it page-
/// locked but the optimizer's states of stage 3.
void declare_on_host(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                     PersistentTensors& tensors) {
  const DType type = emitter.type();
  const std::int64_t own = layout.own_elements();
  const auto on_host = [&](const char* name, Category category, DType of, std::int64_t elements) {
    return emitter.persistent(name, category, of, elements, Memory::host);
  };
  tensors.own_gradients = on_host("own gradients", Category::gradients, DType::f32, own);
  tensors.master = on_host("master", Category::optimizer, DType::f32, own);
  tensors.m = on_host("m", Category::optimizer, DType::f32, own);
  tensors.v = on_host("v", Category::optimizer, DType::f32, own);
  if (config.zero_stage == 3) {
    tensors.accumulated_gradients =
        on_host("accumulated gradients", Category::gradients, type, own);
    return;
  }
  if (config.zero_stage == 2 && config.accumulation_steps > 1) {
    tensors.accumulated_gradients =
        on_host("accumulated gradients", Category::gradients, type, layout.most_touched_elements());
  }
  tensors.updated_parameters = on_host("updated parameters", Category::staging, type, own);
  const std::int64_t largest = layout.largest_parameter_elements();
  tensors.host_gradient_staging = on_host("gradient staging", Category::staging, type, largest);
  tensors.gradient_staging =
      emitter.persistent("gradient staging", Category::staging, type, largest);
}

/// The master copy of offloaded states, through a tensor of the parameters' type on the host.
void emit_offloaded_master(Emitter& emitter, const Layout& layout,
                           const PersistentTensors& tensors) {
  const std::int64_t own = layout.own_elements();
  const View own_parameters = at(tensors.parameters, layout.own_offset());
  if (emitter.type() == DType::f32) {
    emitter.emit(op::Copy{at(tensors.master), own_parameters, own});
    return;
  }
  const View through = at(tensors.updated_parameters != no_tensor ? tensors.updated_parameters
                                                                  : tensors.accumulated_gradients);
  emitter.emit(op::Copy{through, own_parameters, own});
  emitter.emit(op::Convert{at(tensors.master), through, own});
}

}  // namespace

Layout::Layout(const ParameterTable& table, int zero_stage, int group_size, int group_rank,
               bool is_optimizer_offloaded)
    : table_(&table),
      is_optimizer_offloaded_(is_optimizer_offloaded),
      stage_(stage_of(zero_stage, group_size, is_optimizer_offloaded)),
      group_size_(group_size),
      group_rank_(group_rank),
      resident_(table.total_elements()),
      own_(resident_) {
  if (stage_ == 1 || stage_ == 2) {
    // DeepSpeed aligns partitions of 16-bit parameters to 4 bytes.
    resident_ = round_up(resident_, 2 * std::int64_t{group_size});
    own_ = resident_ / group_size;
  }
  if (stage_ == 3) {
    pieces_ = cut_into_pieces(table);
    shard_offset_.reserve(pieces_.size() + 1);
    std::int64_t offset = 0;
    for (const Piece& piece : pieces_) {
      if (piece.first == 0) piece_begin_.push_back(static_cast<int>(shard_offset_.size()));
      shard_offset_.push_back(offset);
      offset += (piece.elements + group_size - 1) / group_size;
    }
    piece_begin_.push_back(static_cast<int>(pieces_.size()));
    shard_offset_.push_back(offset);
    resident_ = own_ = offset;
  }
}

std::vector<op::Reshard::Piece> Layout::resharding(int first, int last, int slab_first,
                                                   int shards_first) const {
  std::vector<op::Reshard::Piece> result;
  result.reserve(static_cast<std::size_t>(piece_begin(last) - piece_begin(first)));
  for (int index = piece_begin(first); index < piece_begin(last); ++index) {
    const Piece& piece = pieces_[static_cast<std::size_t>(index)];
    const std::int64_t begin = parameter(piece.parameter).offset + piece.first;
    result.push_back({begin - parameter(slab_first).offset, piece.elements,
                      piece_shard_offset(index) - shard_offset(shards_first),
                      piece_shard_elements(index)});
  }
  return result;
}

std::pair<std::int64_t, std::int64_t> Layout::touched(int rank) const {
  const std::int64_t begin = own_ * rank;
  const std::int64_t end = begin + own_;
  std::pair<std::int64_t, std::int64_t> range{-1, -1};
  for (const Parameter& parameter : table_->all()) {
    const std::int64_t parameter_end = parameter.offset + parameter.elements();
    if (parameter.offset >= end || parameter_end <= begin) continue;
    if (range.first < 0) range.first = parameter.offset;
    range.second = parameter_end;
  }
  return range;
}

std::int64_t Layout::most_touched_elements() const {
  std::int64_t most = 0;
  for (int rank = 0; rank < group_size_; ++rank) {
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

PersistentTensors declare_persistent_tensors(Emitter& emitter, const Layout& layout,
                                             const TrainingConfig& config,
                                             std::int64_t kept_elements) {
  const DType type = emitter.type();
  const std::int64_t own = layout.own_elements();
  PersistentTensors tensors;
  tensors.parameters =
      emitter.persistent("parameters", Category::parameters, type, layout.resident_elements());
  if (kept_elements > 0)
    tensors.kept = emitter.persistent("kept parameters", Category::parameters, type, kept_elements);
  if (layout.stage() <= 1) {
    tensors.gradients =
        emitter.persistent("gradients", Category::gradients, type, layout.table().total_elements());
  }
  if (layout.is_optimizer_offloaded()) {
    declare_on_host(emitter, layout, config, tensors);
    return tensors;
  }
  if (layout.stage() >= 1)
    tensors.own_gradients = emitter.persistent("own gradients", Category::gradients, type, own);
  if (type != DType::f32)
    tensors.master = emitter.persistent("master", Category::optimizer, DType::f32, own);
  tensors.m = emitter.persistent("m", Category::optimizer, DType::f32, own);
  tensors.v = emitter.persistent("v", Category::optimizer, DType::f32, own);
  return tensors;
}

void emit_initialize(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors) {
  emitter.write_initialize();
  for (int index = 0; index < layout.num_parameters(); ++index) {
    const Parameter& parameter = layout.parameter(index);
    if (layout.stage() < 3) {
      emit_initial_values(emitter, tensors.parameters, parameter.offset, parameter, index, 0,
                          parameter.elements());
      continue;
    }
    for (int piece = layout.piece_begin(index); piece < layout.piece_begin(index + 1); ++piece)
      emit_initial_shard(emitter, layout, tensors.parameters, piece);
  }
  if (layout.stage() < 3) {
    const std::int64_t total = layout.table().total_elements();
    fill(emitter, tensors.parameters, total, layout.resident_elements() - total, 0.0F);
  }
  const std::int64_t own = layout.own_elements();
  // No reduction writes the padding of the own gradients, but the update reads it.
  if (tensors.own_gradients != no_tensor) fill(emitter, tensors.own_gradients, 0, own, 0.0F);
  if (layout.is_optimizer_offloaded()) {
    emit_offloaded_master(emitter, layout, tensors);
  } else if (tensors.master != no_tensor) {
    emitter.emit(op::Convert{at(tensors.master), at(tensors.parameters, layout.own_offset()), own});
  }
  fill(emitter, tensors.m, 0, own, 0.0F);
  fill(emitter, tensors.v, 0, own, 0.0F);
}

}  // namespace dstune::plan
