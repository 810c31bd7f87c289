/// The end of an optimizer step.

#include <algorithm>
#include <limits>
#include <optional>

#include "zero/disk.hpp"

namespace dstune::plan {
namespace {

class Update : ZeroPart {
 public:
  Update(const ZeroContext& zero, const Gathering* gathering)
      : ZeroPart(zero), zero_(zero), gathering_(gathering) {}

  void emit(std::int64_t targets_per_sequence) {
    const std::int64_t own = layout_.own_elements();
    const Partition& partition = layout_.partition();
    const bool may_skip = config_.precision == Precision::fp16;
    const bool partitioned = layout_.stage() > 0 && layout_.group_size() > 1;
    emitter_.begin_segment(Segment::Kind::update, 1);
    if (layout_.stage() == 0 && layout_.group_size() > 1) reduce_stage0();
    if (is_bf16_optimizer(config_) || rounds_sums_alone()) reduce_sums();
    emitter_.emit(op::Mark{Phase::update});
    emitter_.count(Overhead::optimizer_step);
    if (config_.recompute == Recompute::block) emitter_.count(Overhead::recompute);
    if (layout_.stage() == 2)
      emitter_.count(Overhead::stage_2_byte, static_cast<double>(layout_.resident_elements() *
                                                                 size_bytes(emitter_.type())));
    emitter_.emit(op::FinishLoss{global_batch(config_, layout_.group_size() * partition.replicas) *
                                 targets_per_sequence});

    // The squares of gradients that leave the device were added up before they left.
    if (!layout_.offloaded().optimizer && examines_gradients(config_))
      emitter_.emit(op::AccumulateSquares{final_gradients(), own});
    if (may_skip) {
      emitter_.emit(op::CheckOverflow{partitioned, partition.shards});
      emitter_.end_segment();
      emitter_.begin_segment(Segment::Kind::guarded_update, 1);
    }
    if (config_.gradient_clipping > 0 || (!may_skip && examines_gradients(config_)))
      emitter_.emit(op::ClipFactor{clip(), partitioned && !may_skip, partition.shards});
    update_sub_groups();
    if (partitioned && layout_.stage() < 3) {
      emitter_.emit(op::AllGather{at(tensors_.parameters),
                                  at(tensors_.parameters, layout_.own_offset()), own});
    }
    if (gathering_ != nullptr) gather_kept();
    emitter_.end_segment();
  }

 private:
  /// The largest norm that is not clipped; infinite if nothing is clipped, since the norm is known
  /// all the same. One pass and one sum over the ranks serve the norm and, in bf16, the check for
  /// what is no number. DeepSpeed makes a pass and an all-reduce for each.
  [[nodiscard]] double clip() const {
    const double wanted = config_.gradient_clipping;
    return wanted > 0 ? wanted : std::numeric_limits<double>::infinity();
  }

  void reduce_stage0() {
    // DeepSpeed books it as the end of backward.
    emitter_.emit(op::Mark{Phase::backward});
    std::int64_t first = 0;
    for (int index = 0; index < layout_.num_parameters(); ++index) {
      const Parameter& parameter = layout_.parameter(index);
      const std::int64_t end = parameter.offset + parameter.elements();
      if (end - first <= stage0_chunk_elements && index + 1 < layout_.num_parameters()) continue;
      all_reduce_as(at(tensors_.gradients, first), end - first, communication_type(config_));
      first = end;
    }
  }

  /// In another type through a copy, as DeepSpeed.
  void all_reduce_as(View data, std::int64_t count, DType type) {
    if (type == emitter_.type()) {
      emitter_.emit(op::AllReduceAverage{data, count});
      return;
    }
    const TensorId sent = emitter_.acquire("bucket", -1, Category::buckets, type, count);
    emitter_.emit(op::Convert{at(sent), data, count});
    emitter_.emit(op::AllReduceAverage{at(sent), count});
    emitter_.emit(op::Convert{data, at(sent), count});
    emitter_.release(sent);
  }

  /// In a group of one stage 1 has its sums rounded as in any other, where it averages them.
  [[nodiscard]] bool rounds_sums_alone() const {
    return config_.zero_stage == 1 && config_.switches.fp32_sums_are_averaged &&
           layout_.stage() == 0 && tensors_.fp32_gradients != no_tensor;
  }

  /// The sums in the type that is sent, all at once, and back; also in a group of one, where
  /// nothing is.
  void reduce_sums() {
    const std::int64_t total = layout_.table().total_elements();
    const DType sent = communication_type(config_);
    const View sums = at(tensors_.fp32_gradients);
    const auto reduce = [&](View data) {
      if (layout_.group_size() > 1) emitter_.emit(op::AllReduceAverage{data, total});
    };
    emitter_.emit(op::Mark{Phase::backward});
    if (sent == DType::f32) return reduce(sums);
    const bool in_place = sent == emitter_.type() && tensors_.gradients != no_tensor;
    const TensorId copy = in_place ? tensors_.gradients
                                   : emitter_.acquire("bucket", -1, Category::buckets, sent, total);
    emitter_.emit(op::Convert{at(copy), sums, total});
    reduce(at(copy));
    emitter_.emit(op::Convert{sums, at(copy), total});
    if (!in_place) emitter_.release(copy);
  }

  /// The gradients on the device that the update reads.
  [[nodiscard]] View final_gradients() const {
    if (tensors_.on_device.gradients != no_tensor) return at(tensors_.on_device.gradients);
    const bool has_sums = tensors_.fp32_gradients != no_tensor;
    return at(has_sums ? tensors_.fp32_gradients : tensors_.gradients, layout_.own_offset());
  }

  void update_sub_groups() {
    std::optional<OptimizerSwapper> swapper;
    if (is_optimizer_on_disk(config_)) swapper.emplace(zero_);
    for (std::size_t index = 0; index < tensors_.sub_groups.size(); ++index) {
      const SubGroup& group = tensors_.sub_groups[index];
      emitter_.count(Overhead::sub_group);
      switch (group.memory) {
        case Memory::device:
          update_on_device(group);
          break;
        case Memory::host:
          update_on_host(group, tensors_.on_host, group.offset, group.moments_offset);
          break;
        case Memory::disk: {
          UpdateStates states = swapper->swap_in(index);
          const bool has_moments = group.moments_memory == Memory::disk;
          if (!has_moments) {
            states.m = tensors_.on_host.m;
            states.v = tensors_.on_host.v;
          }
          update_on_host(group, states, 0, has_moments ? 0 : group.moments_offset);
          swapper->swap_out(index);
          break;
        }
      }
    }
  }

  /// The sub-group's states are on the device. Parameters that are not of the master's type beside
  /// it are written by the update, others from its master copy.
  void update_on_device(const SubGroup& group) {
    const UpdateStates& states = tensors_.on_device;
    const View parameters = parameters_of(group);
    const bool has_master = states.master != no_tensor;
    const View master = has_master ? at(states.master, group.offset) : parameters;
    const bool goes_to_host = layout_.offloaded().parameters && !group.swaps_parameters;
    const bool converts = !parameters_have_master_type();
    const TensorId staging = goes_to_host && converts ? acquire_updated(group.count) : no_tensor;
    const View model = staging == no_tensor ? parameters : at(staging);
    emitter_.emit(op::UpdateParameters{.master = master,
                                       .m = at(states.m, group.moments_offset),
                                       .v = at(states.v, group.moments_offset),
                                       .gradient = moved(final_gradients(), group.offset),
                                       .model = converts ? model : View{},
                                       .count = group.count});
    if (group.swaps_parameters) {
      store_shards(group, master);
    } else if (goes_to_host) {
      emitter_.emit(op::Copy{parameters, converts ? model : master, group.count});
    } else if (has_master && !converts) {
      emitter_.emit(op::Convert{parameters, master, group.count});
    }
    emitter_.release(staging);
  }

  /// Updates a sub-group whose states are on the host, from `first` of these tensors on, its
  /// moments from `first_moment` on. The update waits for the gradients that are on their way. The
  /// parameters are sent back unless they are there, too.
  void update_on_host(const SubGroup& group, const UpdateStates& states, std::int64_t first,
                      std::int64_t first_moment) {
    const View parameters = parameters_of(group);
    const View master = at(states.master, first);
    const bool goes_back = !layout_.offloaded().parameters;
    // Stage 3 makes a copy in the parameters' type where that is not the master's.
    TensorId updated = tensors_.updated_parameters;
    const bool is_temporary = goes_back && updated == no_tensor && !parameters_have_master_type();
    if (is_temporary) updated = acquire_updated(group.count, Memory::host);
    emitter_.wait(Stream::host, emitter_.record(Stream::compute));
    emitter_.emit(op::UpdateParameters{.master = master,
                                       .m = at(states.m, first_moment),
                                       .v = at(states.v, first_moment),
                                       .gradient = at(states.gradients, first),
                                       .model = {},
                                       .count = group.count},
                  Stream::host);
    const View written = goes_back ? at(updated) : parameters;
    if (written) emitter_.emit(op::Convert{written, master, group.count}, Stream::host);
    if (group.swaps_parameters) store_shards(group, master);
    emitter_.wait(Stream::compute, emitter_.record(Stream::host));
    if (goes_back) emitter_.emit(op::Copy{parameters, written ? written : master, group.count});
    if (is_temporary) emitter_.release(updated);
  }

  /// Sends updated parameters from the master copy to their places, shard by shard; those on the
  /// disk are there when compute goes on, as DeepSpeed's host waits for them.
  void store_shards(const SubGroup& group, View master) {
    const PieceRange pieces = layout_.pieces_of(group.first, group.count);
    const bool on_device = group.memory == Memory::device;
    const bool converts = !parameters_have_master_type();
    TensorId converted = no_tensor;
    if (on_device && converts) {
      std::int64_t largest = 0;
      for (const int piece : pieces)
        largest = std::max(largest, layout_.piece_shard_elements(piece));
      converted = acquire_updated(largest);
    }
    std::vector<op::WriteDisk> writes;
    std::int64_t filled = 0;
    for (const int piece : pieces) {
      const std::int64_t count = layout_.piece_shard_elements(piece);
      View place = tensors_.shard(piece);
      if (tensors_.is_on_disk(place)) {
        writes.push_back({place, at(tensors_.updated_shards, filled), count});
        place = writes.back().x;
        filled += round_up(count, disk_alignment_of(emitter_.type()));
      }
      if (!on_device) {
        emitter_.emit(op::Convert{place, master, count}, Stream::host);
      } else if (converts) {
        emitter_.emit(op::Convert{at(converted), master, count});
        emitter_.emit(op::Copy{place, at(converted), count});
      } else {
        emitter_.emit(op::Copy{place, master, count});
      }
      master = moved(master, count);
    }
    emitter_.release(converted);
    if (writes.empty()) return;
    emitter_.wait(Stream::disk_write, emitter_.record(on_device ? Stream::compute : Stream::host));
    for (const op::WriteDisk& write : writes) emitter_.emit(write, Stream::disk_write);
    emitter_.wait(Stream::compute, emitter_.record(Stream::disk_write));
  }

  /// Gathers the parameters that stay whole at stage 3, piece by piece as in DeepSpeed. Shards on
  /// the host are all sent to the device before.
  void gather_kept() {
    const TracedGathers& traced = *gathering_->traced;
    const bool offloaded = layout_.offloaded().parameters;
    const bool alone = layout_.group_size() == 1;
    const auto each_kept = [&](auto&& visit) {
      std::int64_t shards = 0;  // before this one
      for (int piece = 0; piece < layout_.num_pieces(); ++piece) {
        if (!traced.kept[piece]) continue;
        visit(at(tensors_.kept, traced.kept_offset[piece]), tensors_.shard(piece), shards,
              layout_.piece_shard_elements(piece));
        shards += layout_.piece_shard_elements(piece);
      }
      return shards;
    };
    TensorId staging = no_tensor;
    if (offloaded && !alone && traced.kept_elements > 0) {
      const std::int64_t elements = each_kept([](View, View, std::int64_t, std::int64_t) {});
      staging = emitter_.acquire("own shards", -1, Category::gathered, emitter_.type(), elements);
    }
    if (offloaded) {
      each_kept([&](View kept, View shard, std::int64_t offset, std::int64_t count) {
        emitter_.emit(op::Copy{alone ? kept : at(staging, offset), shard, count});
      });
    }
    if (!alone) {
      // DeepSpeed issues all of them before it waits for the first.
      emitter_.set_ahead(true);
      each_kept([&](View kept, View shard, std::int64_t offset, std::int64_t count) {
        emitter_.emit(op::AllGather{kept, offloaded ? at(staging, offset) : shard, count,
                                    layout_.partition().shards});
      });
      emitter_.set_ahead(false);
    }
    emitter_.release(staging);
  }

  /// The parameters of a sub-group that has them in memory; no view of others.
  [[nodiscard]] View parameters_of(const SubGroup& group) const {
    if (group.swaps_parameters) return {};
    return at(tensors_.parameters, layout_.own_offset() + group.first);
  }
  [[nodiscard]] bool parameters_have_master_type() const {
    return emitter_.type() == master_type(config_);
  }
  TensorId acquire_updated(std::int64_t elements, Memory memory = Memory::device) {
    return emitter_.acquire("updated parameters", -1, Category::staging, emitter_.type(), elements,
                            memory);
  }

  const ZeroContext& zero_;
  const Gathering* gathering_;
};

}  // namespace

void emit_update(const ZeroContext& zero, std::int64_t targets_per_sequence,
                 const Gathering* gathering) {
  Update(zero, gathering).emit(targets_per_sequence);
}

}  // namespace dstune::plan
