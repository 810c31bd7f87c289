#include "zero/layout.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"
#include "zero/swapped_gradients.hpp"

namespace dstune::plan {
namespace {

void fill(Emitter& emitter, TensorId tensor, std::int64_t offset, std::int64_t count, float value) {
  if (count > 0) emitter.emit(op::Fill{at(tensor, offset), value, count});
}

/// All of it, where it is there.
void fill(Emitter& emitter, TensorId tensor, float value) {
  if (tensor != no_tensor) fill(emitter, tensor, 0, emitter.elements(tensor), value);
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

/// A rank's part of a piece, which is as large as so many shards, to its place.
void emit_initial_part(Emitter& emitter, const Layout& layout, View out, int index, int rank,
                       int shards) {
  const Piece& piece = layout.pieces()[static_cast<std::size_t>(index)];
  const std::int64_t shard = layout.piece_shard_elements(index) * shards;
  const std::int64_t first = std::min(shard * rank, piece.elements);
  const std::int64_t count = std::min(shard, piece.elements - first);
  emit_initial_values(emitter, out.tensor, out.offset_elements, layout.parameter(piece.parameter),
                      piece.parameter, piece.first + first, count);
  fill(emitter, out.tensor, out.offset_elements + count, shard - count, 0.0F);
}

/// This rank's shard of a piece, to the disk by way of a buffer where it is there.
void emit_initial_shard(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                        int index) {
  const View place = tensors.shards[static_cast<std::size_t>(index)];
  const bool is_on_disk = tensors.is_on_disk(place);
  const View out = is_on_disk ? at(tensors.shard_buffers.front()) : place;
  emit_initial_part(emitter, layout, out, index, layout.group_rank(), 1);
  if (is_on_disk) emitter.emit(op::WriteDisk{place, out, layout.piece_shard_elements(index)});
}

int stage_of(int zero_stage, int group_size, Offloaded offloaded) {
  return group_size > 1 || offloaded.optimizer || offloaded.parameters ? zero_stage : 0;
}

DType moment_type(const TrainingConfig& config) {
  return config.low_precision_moments ? element_type(config.precision) : DType::f32;
}

void declare_master(Emitter& emitter, UpdateStates& states, Memory memory,
                    const TrainingConfig& config, std::int64_t elements) {
  states.master =
      emitter.persistent("master", Category::optimizer, master_type(config), elements, memory);
}

void declare_moments(Emitter& emitter, UpdateStates& states, Memory memory,
                     const TrainingConfig& config, std::int64_t elements) {
  const auto declare = [&](const char* name) {
    return emitter.persistent(name, Category::optimizer, moment_type(config), elements, memory);
  };
  if (has_first_moment(config.optimizer)) states.m = declare("m");
  if (has_second_moment(config.optimizer)) states.v = declare("v");
}

UpdateStates declare_offloaded(Emitter& emitter, const std::vector<SubGroup>& groups, Memory memory,
                               const TrainingConfig& config) {
  UpdateStates states;
  if (const std::int64_t elements = elements_in(groups, memory); elements > 0) {
    states.gradients = emitter.persistent("own gradients", Category::gradients, master_type(config),
                                          elements, memory);
    declare_master(emitter, states, memory, config, elements);
  }
  const std::int64_t elements = moments_in(groups, memory);
  if (elements == 0) return states;
  declare_moments(emitter, states, memory, config, elements);
  if (config.optimizer.kind == OptimizerKind::lion) {
    states.unused =
        emitter.persistent("unused moment", Category::optimizer, DType::f32, elements, memory);
  }
  return states;
}

void declare_swapping(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                      PersistentTensors& tensors) {
  tensors.on_disk = declare_offloaded(emitter, tensors.sub_groups, Memory::disk, config);
  std::int64_t largest = 0;
  for (const SubGroup& group : tensors.sub_groups) largest = std::max(largest, group.count);
  for (std::int64_t buffer = 0; buffer < config.disk.optimizer_buffers; ++buffer) {
    tensors.swap_buffers.push_back(emitter.persistent("swap buffer", Category::staging, DType::f32,
                                                      round_up(largest, disk_alignment_elements),
                                                      Memory::host));
  }
  const SwappedGradients gradients(layout, config, tensors.sub_groups);
  if (gradients.held_elements() > 0) {
    tensors.held_gradients = emitter.persistent("held gradients", Category::gradients, DType::f32,
                                                gradients.held_elements());
  }
}

/// What DeepSpeed keeps on the host (runtime/zero/stage_1_and_2.py, stage3.py): all of it page-
/// locked but the optimizer's states of stage 3.
void declare_offloaded_states(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                              PersistentTensors& tensors) {
  const DType type = emitter.type();
  const std::int64_t own = layout.own_elements();
  const auto on_host = [&](const char* name, Category category, DType of, std::int64_t elements) {
    return emitter.persistent(name, category, of, elements, Memory::host);
  };
  tensors.on_device = declare_offloaded(emitter, tensors.sub_groups, Memory::device, config);
  tensors.on_host = declare_offloaded(emitter, tensors.sub_groups, Memory::host, config);
  if (is_optimizer_on_disk(config)) declare_swapping(emitter, layout, config, tensors);
  if (layout.stage() == 3) {
    tensors.accumulated_gradients =
        on_host("accumulated gradients", Category::gradients, sum_type(config), own);
    return;
  }
  // With a master copy of 16 bits the own gradients hold the sums themselves.
  if (layout.stage() == 2 && config.accumulation_steps > 1 && !config.low_precision_master) {
    tensors.accumulated_gradients =
        on_host("accumulated gradients", Category::gradients, type, layout.most_touched_elements());
  }
  tensors.updated_parameters = on_host("updated parameters", Category::staging, type, own);
  const std::int64_t largest = layout.largest_parameter_elements();
  tensors.host_gradient_staging = on_host("gradient staging", Category::staging, type, largest);
  tensors.gradient_staging =
      emitter.persistent("gradient staging", Category::staging, type, largest);
}

/// Shards of which the first ones stay in the host's memory, of the others those that are too small
/// for the disk. DeepSpeed takes the memory for the first ones in full.
void declare_swapped_shards(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                            PersistentTensors& tensors) {
  const DType type = emitter.type();
  const std::int64_t block = disk_alignment_of(type);
  const auto on_host = [&](const char* name, Category category, std::int64_t elements) {
    return elements == 0 ? no_tensor
                         : emitter.persistent(name, category, type, elements, Memory::host);
  };
  const std::vector<bool> on_disk = find_shards_on_disk(layout, config);
  std::int64_t small = 0, swapped = 0, largest_group = 0;
  tensors.shards.resize(layout.pieces().size());
  std::vector<std::int64_t> offsets(layout.pieces().size());
  for (const SubGroup& group : tensors.sub_groups) {
    const PieceRange range = layout.pieces_of(group.first, group.count);
    std::int64_t blocks = 0;
    for (int piece = range.first; piece < range.last; ++piece) {
      const auto index = static_cast<std::size_t>(piece);
      const std::int64_t shard = layout.piece_shard_elements(piece);
      blocks += round_up(shard, block);
      std::int64_t& end = on_disk[index] ? swapped : small;
      offsets[index] = group.swaps_parameters ? end : layout.piece_shard_offset(piece);
      if (group.swaps_parameters) end += on_disk[index] ? round_up(shard, block) : shard;
    }
    largest_group = std::max(largest_group, blocks);
  }
  tensors.parameters = on_host("parameters", Category::parameters,
                               std::min(layout.own_elements(), config.disk.parameters_in_memory));
  const TensorId small_shards = on_host("small parameters", Category::parameters, small);
  for (std::int64_t buffer = 0; buffer < config.disk.parameter_buffers; ++buffer) {
    tensors.shard_buffers.push_back(
        on_host("parameter buffer", Category::staging,
                round_up(std::max<std::int64_t>(1, config.disk.parameter_buffer_size), block)));
  }
  if (swapped > 0) {
    tensors.shards_on_disk =
        emitter.persistent("parameters", Category::parameters, type, swapped, Memory::disk);
  }
  if (tensors.sub_groups.back().swaps_parameters)
    tensors.updated_shards = on_host("updated parameters", Category::staging, largest_group);
  for (const SubGroup& group : tensors.sub_groups) {
    const PieceRange range = layout.pieces_of(group.first, group.count);
    for (int piece = range.first; piece < range.last; ++piece) {
      const auto index = static_cast<std::size_t>(piece);
      const TensorId tensor = !group.swaps_parameters ? tensors.parameters
                              : on_disk[index]        ? tensors.shards_on_disk
                                                      : small_shards;
      tensors.shards[index] = at(tensor, offsets[index]);
    }
  }
}

void declare_parameters(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                        PersistentTensors& tensors) {
  if (layout.stage() == 3 && are_parameters_on_disk(config)) {
    declare_swapped_shards(emitter, layout, config, tensors);
    return;
  }
  tensors.parameters = emitter.persistent(
      "parameters", Category::parameters, emitter.type(), layout.resident_elements(),
      layout.offloaded().parameters ? Memory::host : Memory::device);
  if (layout.stage() < 3) return;
  const int pieces = static_cast<int>(layout.pieces().size());
  tensors.shards.reserve(layout.pieces().size());
  for (int piece = 0; piece < pieces; ++piece)
    tensors.shards.push_back(at(tensors.parameters, layout.piece_shard_offset(piece)));
}

/// From one memory to the other, and into the master's type behind `through`, which has the
/// parameters'.
void copy_and_convert(Emitter& emitter, const TrainingConfig& config, View master, View parameters,
                      View through, std::int64_t count) {
  if (emitter.type() == master_type(config)) {
    emitter.emit(op::Copy{master, parameters, count});
    return;
  }
  emitter.emit(op::Copy{through, parameters, count});
  emitter.emit(op::Convert{master, through, count});
}

void emit_master_on_device(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                           View master, View parameters, std::int64_t count) {
  if (!layout.offloaded().parameters) {
    emitter.emit(op::Convert{master, parameters, count});
    return;
  }
  const TensorId through =
      emitter.acquire("staged parameters", -1, Category::staging, emitter.type(), count);
  copy_and_convert(emitter, config, master, parameters, at(through), count);
  emitter.release(through);
}

void emit_master_on_host(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                         const PersistentTensors& tensors, View master, View parameters,
                         std::int64_t count) {
  if (layout.offloaded().parameters) {
    emitter.emit(op::Convert{master, parameters, count});
    return;
  }
  if (sum_type(config) != emitter.type()) {
    const TensorId through = emitter.acquire("updated parameters", -1, Category::staging,
                                             emitter.type(), count, Memory::host);
    copy_and_convert(emitter, config, master, parameters, at(through), count);
    emitter.release(through);
    return;
  }
  const View through = at(tensors.updated_parameters != no_tensor ? tensors.updated_parameters
                                                                  : tensors.accumulated_gradients);
  copy_and_convert(emitter, config, master, parameters, through, count);
}

void emit_master(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                 const PersistentTensors& tensors, Memory memory, View master, View parameters,
                 std::int64_t count) {
  if (memory == Memory::device) {
    emit_master_on_device(emitter, layout, config, master, parameters, count);
  } else {
    emit_master_on_host(emitter, layout, config, tensors, master, parameters, count);
  }
}

/// Of the sub-group's parameters, which are read from the disk one by one where they are there.
void emit_master_of_swapped(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                            const PersistentTensors& tensors, const SubGroup& group, View master) {
  const PieceRange range = layout.pieces_of(group.first, group.count);
  for (int piece = range.first; piece < range.last; ++piece) {
    const std::int64_t count = layout.piece_shard_elements(piece);
    View shard = tensors.shards[static_cast<std::size_t>(piece)];
    if (tensors.is_on_disk(shard)) {
      const View buffer = at(tensors.shard_buffers.front());
      emitter.emit(op::ReadDisk{buffer, shard, count});
      shard = buffer;
    }
    emit_master(emitter, layout, config, tensors, group.memory, master, shard, count);
    master = moved(master, count);
  }
}

/// Of states in fp32, which alone are swapped: the master copy is in a buffer.
void emit_states_on_disk(Emitter& emitter, const PersistentTensors& tensors, const SubGroup& group,
                         View master) {
  const View zeros = at(tensors.swap_buffers[1]);
  const UpdateStates& states = tensors.on_disk;
  emitter.emit(op::WriteDisk{at(states.master, group.offset), master, group.count});
  fill(emitter, zeros.tensor, 0, group.count, 0.0F);
  // No reduction writes the padding of the gradients, but the update reads it.
  for (const auto& [state, offset] : states.swapped(group))
    if (state != &UpdateStates::master)
      emitter.emit(op::WriteDisk{at(states.*state, offset), zeros, group.count});
}

/// Where a sub-group's master copy is made.
View master_of(const PersistentTensors& tensors, const SubGroup& group) {
  switch (group.memory) {
    case Memory::device:
      return at(tensors.on_device.master, group.offset);
    case Memory::host:
      return at(tensors.on_host.master, group.offset);
    case Memory::disk:
      return at(tensors.swap_buffers[0]);
  }
  throw LogicError("unknown memory");
}

void emit_masters(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                  const TrainingConfig& config) {
  for (const SubGroup& group : tensors.sub_groups) {
    const View master = master_of(tensors, group);
    if (!master) continue;
    if (group.swaps_parameters) {
      emit_master_of_swapped(emitter, layout, config, tensors, group, master);
    } else {
      emit_master(emitter, layout, config, tensors, group.memory, master,
                  at(tensors.parameters, layout.own_offset() + group.first), group.count);
    }
    if (group.memory == Memory::disk) emit_states_on_disk(emitter, tensors, group, master);
  }
}

}  // namespace

Layout::Layout(const ParameterTable& table, int zero_stage, const Partition& partition,
               Offloaded offloaded, bool is_round_robin)
    : table_(&table),
      offloaded_(offloaded),
      partition_(partition),
      stage_(stage_of(zero_stage, partition.size, offloaded)),
      resident_(table.total_elements()),
      own_(resident_) {
  if (stage_ == 1 || stage_ == 2) {
    // DeepSpeed aligns partitions of 16-bit parameters to 4 bytes.
    resident_ = round_up(resident_, 2 * std::int64_t{group_size()});
    own_ = resident_ / group_size();
    if (is_round_robin) deal_out();
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

void Layout::deal_out() {
  const int count = num_parameters();
  offsets_.resize(static_cast<std::size_t>(count));
  std::int64_t end = 0;
  for (int rank = 0; rank < group_size(); ++rank) {
    for (int index = rank; index < count; index += group_size()) {
      offsets_[static_cast<std::size_t>(index)] = end;
      end += parameter(index).elements();
    }
  }
}

void Layout::add_resharding(std::vector<op::Reshard::Piece>& pieces, int first, int last,
                            int slab_first, int shards_first) const {
  for (int index = piece_begin(first); index < piece_begin(last); ++index) {
    const Piece& piece = pieces_[static_cast<std::size_t>(index)];
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

std::int64_t Layout::most_touched_elements() const {
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

PersistentTensors declare_persistent_tensors(Emitter& emitter, const Layout& layout,
                                             const TrainingConfig& config,
                                             std::int64_t kept_elements) {
  const DType type = emitter.type();
  PersistentTensors tensors;
  tensors.sub_groups = cut_into_sub_groups(layout, config);
  declare_parameters(emitter, layout, config, tensors);
  if (layout.stage() == 3 && layout.shards_of_secondary() > 0) {
    tensors.secondary =
        emitter.persistent("secondary parameters", Category::parameters, type,
                           layout.resident_elements() * layout.shards_of_secondary(),
                           layout.offloaded().parameters ? Memory::host : Memory::device);
  }
  if (kept_elements > 0)
    tensors.kept = emitter.persistent("kept parameters", Category::parameters, type, kept_elements);
  if (layout.stage() <= 1) {
    tensors.gradients =
        emitter.persistent("gradients", Category::gradients, type, layout.table().total_elements());
  }
  const DType sums = config.fp32_gradient_accumulation ? DType::f32 : type;
  const std::int64_t own = layout.own_elements();
  if (layout.stage() <= 1 && sums != type) {
    tensors.fp32_gradients =
        emitter.persistent("fp32 gradients", Category::gradients, sums, layout.resident_elements());
  }
  if (layout.offloaded().optimizer) {
    declare_offloaded_states(emitter, layout, config, tensors);
    return tensors;
  }
  if (layout.stage() >= 1 && !is_bf16_optimizer(config)) {
    tensors.on_device.gradients =
        emitter.persistent("own gradients", Category::gradients, sums, own);
  }
  const bool has_master = type != DType::f32 || layout.offloaded().parameters;
  if (has_master) declare_master(emitter, tensors.on_device, Memory::device, config, own);
  declare_moments(emitter, tensors.on_device, Memory::device, config, own);
  return tensors;
}

void emit_initialize(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                     const TrainingConfig& config) {
  emitter.write_initialize();
  for (int index = 0; index < layout.num_parameters(); ++index) {
    const Parameter& parameter = layout.parameter(index);
    if (layout.stage() < 3) {
      emit_initial_values(emitter, tensors.parameters, layout.offset(index), parameter, index, 0,
                          parameter.elements());
      continue;
    }
    for (int piece = layout.piece_begin(index); piece < layout.piece_begin(index + 1); ++piece) {
      emit_initial_shard(emitter, layout, tensors, piece);
      if (tensors.secondary == no_tensor) continue;
      emit_initial_part(
          emitter, layout,
          at(tensors.secondary, layout.piece_shard_offset(piece) * layout.shards_of_secondary()),
          piece, layout.partition().secondary_rank, layout.shards_of_secondary());
    }
  }
  if (layout.stage() < 3) {
    const std::int64_t total = layout.table().total_elements();
    fill(emitter, tensors.parameters, total, layout.resident_elements() - total, 0.0F);
  }
  fill(emitter, tensors.fp32_gradients, 0.0F);
  emit_masters(emitter, layout, tensors, config);
  // DeepSpeed's Adagrad for the host knows no other beginning.
  const auto accumulator = layout.offloaded().optimizer
                               ? 0.0F
                               : static_cast<float>(config.optimizer.initial_accumulator);
  fill(emitter, tensors.held_gradients, 0.0F);
  for (const UpdateStates& states : {tensors.on_device, tensors.on_host}) {
    // No reduction writes the padding of the own gradients, but the update reads it.
    fill(emitter, states.gradients, 0.0F);
    fill(emitter, states.m, 0.0F);
    fill(emitter, states.v, accumulator);
  }
}

}  // namespace dstune::plan
