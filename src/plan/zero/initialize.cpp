/// Contents of a rank's persistent tensors before the first step.

#include <algorithm>

#include "dstune/base/error.hpp"
#include "zero/states.hpp"

namespace dstune::plan {
namespace {

class Initialization : ZeroPart {
 public:
  explicit Initialization(const ZeroContext& zero) : ZeroPart(zero) {}

  void emit() {
    emitter_.write_initialize();
    emit_parameters();
    fill(tensors_.fp32_gradients, 0.0F);
    emit_masters();
    fill(tensors_.held_gradients, 0.0F);
    // DeepSpeed's Adagrad for the host knows no other beginning.
    const auto accumulator = layout_.offloaded().optimizer
                                 ? 0.0F
                                 : static_cast<float>(config_.optimizer.initial_accumulator);
    for (const UpdateStates* states : {&tensors_.on_device, &tensors_.on_host}) {
      // No reduction writes the padding of the own gradients, but the update reads it.
      fill(states->gradients, 0.0F);
      fill(states->m, 0.0F);
      fill(states->v, accumulator);
    }
  }

 private:
  void fill(View out, std::int64_t count, float value) {
    if (count > 0) emitter_.emit(op::Fill{out, value, count});
  }
  /// All of it, where it is there.
  void fill(TensorId tensor, float value) {
    if (tensor != no_tensor) fill(at(tensor), emitter_.elements(tensor), value);
  }

  void emit_parameters() {
    if (layout_.stage() < 3) {
      emit_whole_parameters();
      return;
    }
    const int shards = layout_.shards_of_secondary();
    for (int piece = 0; piece < layout_.num_pieces(); ++piece) {
      emit_shard(piece);
      if (tensors_.secondary == no_tensor) continue;
      emit_part(at(tensors_.secondary, layout_.piece_shard_offset(piece) * shards), piece,
                layout_.partition().secondary_rank, shards);
    }
  }

  /// And the padding between and behind them.
  void emit_whole_parameters() {
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;  // begin and end of each
    for (int index = 0; index < layout_.num_parameters(); ++index) {
      const std::int64_t begin = layout_.offset(index);
      const std::int64_t elements = layout_.parameter(index).elements();
      emit_values(at(tensors_.parameters, begin), index, 0, elements);
      ranges.emplace_back(begin, begin + elements);
    }
    ranges.emplace_back(layout_.resident_elements(), 0);
    std::sort(ranges.begin(), ranges.end());
    std::int64_t end = 0;
    for (const auto& [begin, next_end] : ranges) {
      fill(at(tensors_.parameters, end), begin - end, 0.0F);
      end = next_end;
    }
  }

  /// Elements [first, first + count) of a parameter.
  void emit_values(View out, int index, std::int64_t first, std::int64_t count) {
    if (count == 0) return;
    const Parameter& parameter = layout_.parameter(index);
    if (parameter.initial == InitialValue::normal) {
      emitter_.emit(op::FillNormal{out, index, first, count, parameter.standard_deviation});
    } else {
      fill(out, count, parameter.initial == InitialValue::one ? 1.0F : 0.0F);
    }
  }

  /// A rank's part of a piece, which is as large as so many shards, to its place.
  void emit_part(View out, int index, int rank, int shards) {
    const Piece& piece = layout_.piece(index);
    const std::int64_t part = layout_.piece_shard_elements(index) * shards;
    const std::int64_t first = std::min(part * rank, piece.elements);
    const std::int64_t count = std::min(part, piece.elements - first);
    emit_values(out, piece.parameter, piece.first + first, count);
    fill(moved(out, count), part - count, 0.0F);
  }

  /// This rank's shard of a piece, to the disk by way of a buffer where it is there.
  void emit_shard(int piece) {
    const View place = tensors_.shard(piece);
    const bool is_on_disk = tensors_.is_on_disk(place);
    const View out = is_on_disk ? at(tensors_.shard_buffers.front()) : place;
    emit_part(out, piece, layout_.group_rank(), 1);
    if (is_on_disk) emitter_.emit(op::WriteDisk{place, out, layout_.piece_shard_elements(piece)});
  }

  void emit_masters() {
    for (const SubGroup& group : tensors_.sub_groups) {
      const View master = place_of_master(group);
      if (!master) continue;
      if (group.swaps_parameters) {
        emit_swapped_master(group, master);
      } else {
        emit_master(group.memory, master,
                    at(tensors_.parameters, layout_.own_offset() + group.first), group.count);
      }
      if (group.memory == Memory::disk) emit_states_on_disk(group, master);
    }
  }

  [[nodiscard]] View place_of_master(const SubGroup& group) const {
    switch (group.memory) {
      case Memory::device:
        return at(tensors_.on_device.master, group.offset);
      case Memory::host:
        return at(tensors_.on_host.master, group.offset);
      case Memory::disk:
        return at(tensors_.swap_buffers[0]);
    }
    throw LogicError("unknown memory");
  }

  /// Makes the master copy of the sub-group's parameters. Those on the disk are read one by one.
  void emit_swapped_master(const SubGroup& group, View master) {
    for (const int piece : layout_.pieces_of(group.first, group.count)) {
      const std::int64_t count = layout_.piece_shard_elements(piece);
      View shard = tensors_.shard(piece);
      if (tensors_.is_on_disk(shard)) {
        const View buffer = at(tensors_.shard_buffers.front());
        emitter_.emit(op::ReadDisk{buffer, shard, count});
        shard = buffer;
      }
      emit_master(group.memory, master, shard, count);
      master = moved(master, count);
    }
  }

  /// The master copy is made beside the parameters, or behind a copy of them in its memory.
  void emit_master(Memory memory, View master, View parameters, std::int64_t count) {
    const bool on_device = memory == Memory::device;
    if (on_device != layout_.offloaded().parameters) {
      emitter_.emit(op::Convert{master, parameters, count});
      return;
    }
    TensorId through = no_tensor, staged = no_tensor;
    if (on_device) {
      staged = emitter_.acquire("staged parameters", -1, Category::staging, emitter_.type(), count);
    } else if (sum_type(config_) != emitter_.type() || !has_host_buffer()) {
      staged = emitter_.acquire("updated parameters", -1, Category::staging, emitter_.type(), count,
                                Memory::host);
    } else {
      through = tensors_.updated_parameters != no_tensor ? tensors_.updated_parameters
                                                         : tensors_.accumulated_gradients;
    }
    copy_and_convert(master, parameters, at(staged != no_tensor ? staged : through), count);
    emitter_.release(staged);
  }

  /// Tells whether the host has a buffer of the parameters' type that nothing needs yet.
  [[nodiscard]] bool has_host_buffer() const {
    return tensors_.updated_parameters != no_tensor || layout_.stage() == 3;
  }

  /// From one memory to the other, and into the master's type behind `through`, which has the
  /// parameters'.
  void copy_and_convert(View master, View parameters, View through, std::int64_t count) {
    if (emitter_.type() == master_type(config_)) {
      emitter_.emit(op::Copy{master, parameters, count});
      return;
    }
    emitter_.emit(op::Copy{through, parameters, count});
    emitter_.emit(op::Convert{master, through, count});
  }

  /// Writes states to the disk. Only states in fp32 are swapped, so the master copy is in a buffer.
  void emit_states_on_disk(const SubGroup& group, View master) {
    const View zeros = at(tensors_.swap_buffers[1]);
    const UpdateStates& states = tensors_.on_disk;
    emitter_.emit(op::WriteDisk{at(states.master, group.offset), master, group.count});
    fill(zeros, group.count, 0.0F);
    // No reduction writes the padding of the gradients, but the update reads it.
    for (const auto& [state, offset] : states.swapped(group))
      if (state != &UpdateStates::master)
        emitter_.emit(op::WriteDisk{at(states.*state, offset), zeros, group.count});
  }
};

}  // namespace

void emit_initialize(const ZeroContext& zero) {
  Initialization(zero).emit();
}

}  // namespace dstune::plan
