#include "zero/update.hpp"

#include <algorithm>
#include <optional>

#include "zero/optimizer_swapper.hpp"

namespace dstune::plan {
namespace {

/// In another type through a copy, as DeepSpeed.
void all_reduce_as(Emitter& emitter, View data, std::int64_t count, DType type) {
  if (type == emitter.type()) {
    emitter.emit(op::AllReduceAverage{data, count});
    return;
  }
  const TensorId sent = emitter.acquire("bucket", -1, Category::buckets, type, count);
  emitter.emit(op::Convert{at(sent), data, count});
  emitter.emit(op::AllReduceAverage{at(sent), count});
  emitter.emit(op::Convert{data, at(sent), count});
  emitter.release(sent);
}

void emit_stage0_reduction(Emitter& emitter, const Layout& layout, TensorId gradients, DType type) {
  // DeepSpeed books it as the end of backward.
  emitter.emit(op::Mark{Phase::backward});
  std::int64_t first = 0;
  for (int index = 0; index < layout.num_parameters(); ++index) {
    const Parameter& parameter = layout.parameter(index);
    const std::int64_t end = parameter.offset + parameter.elements();
    if (end - first <= stage0_chunk_elements && index + 1 < layout.num_parameters()) continue;
    all_reduce_as(emitter, at(gradients, first), end - first, type);
    first = end;
  }
}

/// BF16_Optimizer's: the sums in the type that is sent, all at once, and back; also in a group of
/// one, where nothing is.
void emit_bf16_reduction(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                         DType sent) {
  const std::int64_t total = layout.table().total_elements();
  const View sums = at(tensors.fp32_gradients);
  const auto reduce = [&](View data) {
    if (layout.group_size() > 1) emitter.emit(op::AllReduceAverage{data, total});
  };
  emitter.emit(op::Mark{Phase::backward});
  if (sent == DType::f32) return reduce(sums);
  const bool in_place = sent == emitter.type();
  const TensorId copy =
      in_place ? tensors.gradients : emitter.acquire("bucket", -1, Category::buckets, sent, total);
  emitter.emit(op::Convert{at(copy), sums, total});
  reduce(at(copy));
  emitter.emit(op::Convert{sums, at(copy), total});
  if (!in_place) emitter.release(copy);
}

/// What the update reads, on the device.
View final_gradients(const Layout& layout, const PersistentTensors& tensors) {
  if (tensors.on_device.gradients != no_tensor) return at(tensors.on_device.gradients);
  const bool has_sums = tensors.fp32_gradients != no_tensor;
  return at(has_sums ? tensors.fp32_gradients : tensors.gradients, layout.own_offset());
}

/// One by one, as in DeepSpeed. Shards on the host are all sent to the device before.
void gather_kept(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                 const Gathering& gathering) {
  const bool offloaded = layout.offloaded().parameters;
  const bool alone = layout.group_size() == 1;
  const auto each_kept = [&](auto&& visit) {
    std::int64_t shards = 0;  // before this one
    for (int piece = 0; piece < static_cast<int>(gathering.traced->kept.size()); ++piece) {
      const auto index = static_cast<std::size_t>(piece);
      if (!gathering.traced->kept[index]) continue;
      visit(at(tensors.kept, gathering.traced->kept_offset[index]), tensors.shards[index], shards,
            layout.piece_shard_elements(piece));
      shards += layout.piece_shard_elements(piece);
    }
    return shards;
  };
  TensorId staging = no_tensor;
  if (offloaded && !alone && gathering.traced->kept_elements > 0) {
    const std::int64_t elements = each_kept([](View, View, std::int64_t, std::int64_t) {});
    staging = emitter.acquire("own shards", -1, Category::gathered, emitter.type(), elements);
  }
  if (offloaded) {
    each_kept([&](View kept, View shard, std::int64_t offset, std::int64_t count) {
      emitter.emit(op::Copy{alone ? kept : at(staging, offset), shard, count});
    });
  }
  if (!alone) {
    each_kept([&](View kept, View shard, std::int64_t offset, std::int64_t count) {
      emitter.emit(op::AllGather{kept, offloaded ? at(staging, offset) : shard, count,
                                 layout.partition().shards});
    });
  }
  emitter.release(staging);
}

/// Sends updated parameters from the master copy to their places, shard by shard; those on the disk
/// are there when compute goes on, as DeepSpeed's host waits for them.
void put_away_shards(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                     const TrainingConfig& config, const SubGroup& group, View master) {
  const PieceRange pieces = layout.pieces_of(group.first, group.count);
  const bool on_device = group.memory == Memory::device;
  const bool converts = emitter.type() != master_type(config);
  TensorId converted = no_tensor;
  if (on_device && converts) {
    std::int64_t largest = 0;
    for (int piece = pieces.first; piece < pieces.last; ++piece)
      largest = std::max(largest, layout.piece_shard_elements(piece));
    converted =
        emitter.acquire("updated parameters", -1, Category::staging, emitter.type(), largest);
  }
  std::vector<op::WriteDisk> writes;
  std::int64_t filled = 0;
  for (int piece = pieces.first; piece < pieces.last; ++piece) {
    const std::int64_t count = layout.piece_shard_elements(piece);
    View place = tensors.shards[static_cast<std::size_t>(piece)];
    if (tensors.is_on_disk(place)) {
      writes.push_back({place, at(tensors.updated_shards, filled), count});
      place = writes.back().x;
      filled += round_up(count, disk_alignment_of(emitter.type()));
    }
    if (!on_device) {
      emitter.emit(op::Convert{place, master, count}, Stream::host);
    } else if (converts) {
      emitter.emit(op::Convert{at(converted), master, count});
      emitter.emit(op::Copy{place, at(converted), count});
    } else {
      emitter.emit(op::Copy{place, master, count});
    }
    master = moved(master, count);
  }
  emitter.release(converted);
  if (writes.empty()) return;
  emitter.wait(Stream::disk_write, emitter.record(on_device ? Stream::compute : Stream::host));
  for (const op::WriteDisk& write : writes) emitter.emit(write, Stream::disk_write);
  emitter.wait(Stream::compute, emitter.record(Stream::disk_write));
}

/// The sub-group's states are on the device. Parameters that are not of the master's type beside it
/// are written by the update, others from its master copy.
void update_on_device(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                      const TrainingConfig& config, const SubGroup& group) {
  const UpdateStates& states = tensors.on_device;
  const bool swaps = group.swaps_parameters;
  const View parameters =
      swaps ? View{} : at(tensors.parameters, layout.own_offset() + group.first);
  const bool has_master = states.master != no_tensor;
  const bool has_master_type = emitter.type() == master_type(config);
  const View master = has_master ? at(states.master, group.offset) : parameters;
  TensorId staging = no_tensor;
  if (layout.offloaded().parameters && !has_master_type && !swaps) {
    staging =
        emitter.acquire("updated parameters", -1, Category::staging, emitter.type(), group.count);
  }
  const View model = staging == no_tensor ? parameters : at(staging);
  emitter.emit(
      op::UpdateParameters{.master = master,
                           .m = at(states.m, group.moments_offset),
                           .v = at(states.v, group.moments_offset),
                           .gradient = moved(final_gradients(layout, tensors), group.offset),
                           .model = has_master_type ? View{} : model,
                           .count = group.count});
  if (swaps) {
    put_away_shards(emitter, layout, tensors, config, group, master);
  } else if (layout.offloaded().parameters) {
    emitter.emit(op::Copy{parameters, has_master_type ? master : model, group.count});
  } else if (has_master && has_master_type) {
    emitter.emit(op::Convert{parameters, master, group.count});
  }
  emitter.release(staging);
}

/// The sub-group's states are on the host, from `first` of these tensors on, its moments from
/// `first_moment` on: they wait for the gradients that are on their way, and the parameters are
/// sent back unless they are there, too.
void update_on_host(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                    const TrainingConfig& config, const SubGroup& group, const UpdateStates& states,
                    std::int64_t first, std::int64_t first_moment) {
  const bool swaps = group.swaps_parameters;
  const View parameters =
      swaps ? View{} : at(tensors.parameters, layout.own_offset() + group.first);
  const View master = at(states.master, first);
  const bool goes_back = !layout.offloaded().parameters;
  // Stage 3 makes a copy in the parameters' type where that is not the master's.
  TensorId updated = tensors.updated_parameters;
  const bool is_temporary =
      goes_back && updated == no_tensor && emitter.type() != master_type(config);
  if (is_temporary) {
    updated = emitter.acquire("updated parameters", -1, Category::staging, emitter.type(),
                              group.count, Memory::host);
  }
  emitter.wait(Stream::host, emitter.record(Stream::compute));
  emitter.emit(op::UpdateParameters{.master = master,
                                    .m = at(states.m, first_moment),
                                    .v = at(states.v, first_moment),
                                    .gradient = at(states.gradients, first),
                                    .model = {},
                                    .count = group.count},
               Stream::host);
  const View written = goes_back ? at(updated) : parameters;
  if (written) emitter.emit(op::Convert{written, master, group.count}, Stream::host);
  if (swaps) put_away_shards(emitter, layout, tensors, config, group, master);
  emitter.wait(Stream::compute, emitter.record(Stream::host));
  if (goes_back) emitter.emit(op::Copy{parameters, written ? written : master, group.count});
  if (is_temporary) emitter.release(updated);
}

void emit_sub_groups(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                     const TrainingConfig& config) {
  std::optional<OptimizerSwapper> swapper;
  if (is_optimizer_on_disk(config)) swapper.emplace(emitter, layout, config, tensors);
  for (std::size_t index = 0; index < tensors.sub_groups.size(); ++index) {
    const SubGroup& group = tensors.sub_groups[index];
    switch (group.memory) {
      case Memory::device:
        update_on_device(emitter, layout, tensors, config, group);
        break;
      case Memory::host:
        update_on_host(emitter, layout, tensors, config, group, tensors.on_host, group.offset,
                       group.moments_offset);
        break;
      case Memory::disk: {
        UpdateStates states = swapper->swap_in(index);
        const bool has_moments = group.moments_memory == Memory::disk;
        if (!has_moments) {
          states.m = tensors.on_host.m;
          states.v = tensors.on_host.v;
        }
        update_on_host(emitter, layout, tensors, config, group, states, 0,
                       has_moments ? 0 : group.moments_offset);
        swapper->swap_out(index);
        break;
      }
    }
  }
}

}  // namespace

void emit_update(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                 const TrainingConfig& config, std::int64_t targets_per_sequence,
                 const Gathering* gathering) {
  const std::int64_t own = layout.own_elements();
  const Partition& partition = layout.partition();
  const bool may_skip = config.precision == Precision::fp16;
  const bool partitioned = layout.stage() > 0 && layout.group_size() > 1;
  emitter.begin_segment(Segment::Kind::update, 1);
  if (layout.stage() == 0 && layout.group_size() > 1)
    emit_stage0_reduction(emitter, layout, tensors.gradients, communication_type(config));
  if (is_bf16_optimizer(config))
    emit_bf16_reduction(emitter, layout, tensors, communication_type(config));
  emitter.emit(op::Mark{Phase::update});
  emitter.emit(op::FinishLoss{global_batch(config, layout.group_size() * partition.replicas) *
                              targets_per_sequence});

  // Of gradients that leave the device the squares were added up before they did.
  if (!layout.offloaded().optimizer && (may_skip || config.gradient_clipping > 0))
    emitter.emit(op::AccumulateSquares{final_gradients(layout, tensors), own});
  if (may_skip) {
    emitter.emit(op::CheckOverflow{partitioned, partition.shards});
    emitter.end_segment();
    emitter.begin_segment(Segment::Kind::guarded_update, 1);
  }
  if (config.gradient_clipping > 0)
    emitter.emit(
        op::ClipFactor{config.gradient_clipping, partitioned && !may_skip, partition.shards});
  emit_sub_groups(emitter, layout, tensors, config);
  if (partitioned && layout.stage() < 3) {
    emitter.emit(
        op::AllGather{at(tensors.parameters), at(tensors.parameters, layout.own_offset()), own});
  }
  if (gathering != nullptr) gather_kept(emitter, layout, tensors, *gathering);
  emitter.end_segment();
}

}  // namespace dstune::plan
