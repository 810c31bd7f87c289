#include "zero/states.hpp"

#include <algorithm>
#include <array>

#include "zero/disk.hpp"

namespace dstune::plan {
namespace {

std::vector<SubGroup> cut_by_size(const Layout& layout, const TrainingConfig& config) {
  if (layout.stage() < 3) return {{.first = 0, .count = layout.own_elements()}};
  std::vector<SubGroup> groups;
  SubGroup group;
  for (int piece = 0; piece < layout.num_pieces(); ++piece) {
    group.count += layout.piece_shard_elements(piece);
    if (group.count < config.sub_group_size && piece + 1 < layout.num_pieces()) continue;
    groups.push_back(group);
    group = {.first = group.first + group.count};
  }
  return groups;
}

void choose_memories(const TrainingConfig& config, std::size_t num_others,
                     std::vector<SubGroup>& groups) {
  // DeepSpeed's own arithmetic, rounding included.
  const auto part = [&](double ratio) {
    return static_cast<std::size_t>(ratio * static_cast<double>(groups.size() + num_others));
  };
  const std::size_t on_device = part(1.0 - config.offload_ratio);
  const std::size_t on_host = part(config.offload_ratio);
  for (std::size_t index = 0; index < groups.size(); ++index) {
    const bool stays =
        config.switches.twin_flow_keeps_last_part ? index < on_device : index >= on_host;
    const bool on_disk =
        is_optimizer_on_disk(config) && is_swappable(config, 4 * groups[index].count);
    // DeepSpeed swaps what should stay all the same, but knows nothing of its moments.
    groups[index].memory = on_disk ? Memory::disk : stays ? Memory::device : Memory::host;
    groups[index].moments_memory = on_disk && stays ? Memory::host : groups[index].memory;
  }
}

/// One after another in the tensors of each memory; on a disk each begins a block.
void place_states(std::vector<SubGroup>& groups) {
  std::array<std::int64_t, num_memories> ends{}, moment_ends{};
  const auto take = [](auto& of, Memory memory, std::int64_t count) {
    const bool is_disk = memory == Memory::disk;
    std::int64_t& end = of[static_cast<std::size_t>(memory)];
    return std::exchange(end, end + (is_disk ? round_up(count, disk_alignment_elements) : count));
  };
  for (SubGroup& group : groups) {
    group.offset = take(ends, group.memory, group.count);
    group.moments_offset = take(moment_ends, group.moments_memory, group.count);
  }
}

DType moment_type(const TrainingConfig& config) {
  return config.low_precision_moments ? element_type(config.precision) : DType::f32;
}

/// Declares what a configuration needs, in an order that the arenas keep.
class Declaration {
 public:
  Declaration(Emitter& emitter, const Layout& layout, const TrainingConfig& config)
      : emitter_(emitter), layout_(layout), config_(config) {
    tensors_.sub_groups = cut_into_sub_groups(layout, config);
  }

  PersistentTensors run(std::int64_t kept_elements) && {
    declare_parameters();
    if (layout_.stage() == 3 && layout_.shards_of_secondary() > 0) {
      tensors_.secondary =
          declare("secondary parameters", Category::parameters, emitter_.type(),
                  layout_.resident_elements() * layout_.shards_of_secondary(), parameters_memory());
    }
    if (kept_elements > 0) {
      tensors_.kept =
          declare("kept parameters", Category::parameters, emitter_.type(), kept_elements);
    }
    declare_whole_gradients();
    if (layout_.offloaded().optimizer) {
      declare_offloaded_optimizer();
    } else {
      declare_optimizer();
    }
    return std::move(tensors_);
  }

 private:
  TensorId declare(const char* name, Category category, DType type, std::int64_t elements,
                   Memory memory = Memory::device) {
    return emitter_.persistent(name, category, type, elements, memory);
  }
  /// Nothing where there are no elements.
  TensorId on_host(const char* name, Category category, DType type, std::int64_t elements) {
    return elements == 0 ? no_tensor : declare(name, category, type, elements, Memory::host);
  }
  [[nodiscard]] Memory parameters_memory() const {
    return layout_.offloaded().parameters ? Memory::host : Memory::device;
  }

  void declare_parameters() {
    if (layout_.stage() == 3 && are_parameters_on_disk(config_)) {
      declare_swapped_shards();
      return;
    }
    tensors_.parameters = declare("parameters", Category::parameters, emitter_.type(),
                                  layout_.resident_elements(), parameters_memory());
    if (layout_.stage() < 3) return;
    tensors_.shards.reserve(layout_.pieces().size());
    for (int piece = 0; piece < layout_.num_pieces(); ++piece)
      tensors_.shards.push_back(at(tensors_.parameters, layout_.piece_shard_offset(piece)));
  }

  /// Shards of which the first ones stay in the host's memory, of the others those that are too
  /// small for the disk. DeepSpeed takes the memory for the first ones in full.
  void declare_swapped_shards() {
    const DType type = emitter_.type();
    const std::int64_t block = disk_alignment_of(type);
    const std::vector<bool> on_disk = find_shards_on_disk(layout_, config_);
    std::int64_t small = 0, swapped = 0, largest_group = 0;
    std::vector<std::int64_t> offsets(layout_.pieces().size());
    for (const SubGroup& group : tensors_.sub_groups) {
      std::int64_t blocks = 0;
      for (const int piece : layout_.pieces_of(group.first, group.count)) {
        const std::int64_t shard = layout_.piece_shard_elements(piece);
        blocks += round_up(shard, block);
        std::int64_t& end = on_disk[piece] ? swapped : small;
        offsets[piece] = group.swaps_parameters ? end : layout_.piece_shard_offset(piece);
        if (group.swaps_parameters) end += on_disk[piece] ? round_up(shard, block) : shard;
      }
      largest_group = std::max(largest_group, blocks);
    }
    tensors_.parameters =
        on_host("parameters", Category::parameters, type,
                std::min(layout_.own_elements(), config_.disk.parameters_in_memory));
    const TensorId small_shards = on_host("small parameters", Category::parameters, type, small);
    for (std::int64_t buffer = 0; buffer < config_.disk.parameter_buffers; ++buffer) {
      tensors_.shard_buffers.push_back(
          on_host("parameter buffer", Category::staging, type,
                  round_up(std::max<std::int64_t>(1, config_.disk.parameter_buffer_size), block)));
    }
    if (swapped > 0)
      tensors_.shards_on_disk =
          declare("parameters", Category::parameters, type, swapped, Memory::disk);
    if (tensors_.sub_groups.back().swaps_parameters)
      tensors_.updated_shards =
          on_host("updated parameters", Category::staging, type, largest_group);
    tensors_.shards.resize(layout_.pieces().size());
    for (const SubGroup& group : tensors_.sub_groups) {
      for (const int piece : layout_.pieces_of(group.first, group.count)) {
        const TensorId tensor = !group.swaps_parameters ? tensors_.parameters
                                : on_disk[piece]        ? tensors_.shards_on_disk
                                                        : small_shards;
        tensors_.shards[piece] = at(tensor, offsets[piece]);
      }
    }
  }

  void declare_whole_gradients() {
    if (layout_.stage() > 1) return;
    if (!frees_added_gradients(config_)) {
      tensors_.gradients = declare("gradients", Category::gradients, emitter_.type(),
                                   layout_.table().total_elements());
    }
    if (config_.fp32_gradient_accumulation && emitter_.type() != DType::f32) {
      tensors_.fp32_gradients =
          declare("fp32 gradients", Category::gradients, DType::f32, layout_.resident_elements());
    }
  }

  void declare_optimizer() {
    const std::int64_t own = layout_.own_elements();
    if (layout_.stage() >= 1 && !is_bf16_optimizer(config_)) {
      const DType sums = config_.fp32_gradient_accumulation ? DType::f32 : emitter_.type();
      tensors_.on_device.gradients = declare("own gradients", Category::gradients, sums, own);
    }
    if (emitter_.type() != DType::f32 || layout_.offloaded().parameters)
      declare_master(tensors_.on_device, own, Memory::device);
    declare_moments(tensors_.on_device, own, Memory::device);
  }

  /// Declares the tensors that DeepSpeed keeps on the host (runtime/zero/stage_1_and_2.py,
  /// stage3.py). All of them are page-locked but the optimizer's states of stage 3.
  void declare_offloaded_optimizer() {
    const DType type = emitter_.type();
    const std::int64_t own = layout_.own_elements();
    tensors_.on_device = declare_offloaded(Memory::device);
    tensors_.on_host = declare_offloaded(Memory::host);
    if (is_optimizer_on_disk(config_)) declare_swapping();
    if (layout_.stage() == 3) {
      tensors_.accumulated_gradients =
          on_host("accumulated gradients", Category::gradients, sum_type(config_), own);
      return;
    }
    if (keeps_sums_on_device(config_))
      tensors_.own_sums = declare("own sums", Category::gradients, DType::f32, own);
    // The own gradients hold the sums themselves if the master copy has 16 bits.
    if (layout_.stage() == 2 && config_.accumulation_steps > 1 && !config_.low_precision_master &&
        tensors_.own_sums == no_tensor) {
      tensors_.accumulated_gradients = on_host("accumulated gradients", Category::gradients, type,
                                               layout_.max_touched_elements());
    }
    if (config_.switches.parameters_return_by_buffer)
      tensors_.updated_parameters = on_host("updated parameters", Category::staging, type, own);
    const std::int64_t largest = layout_.largest_parameter_elements();
    tensors_.host_gradient_staging = on_host("gradient staging", Category::staging, type, largest);
    tensors_.gradient_staging = declare("gradient staging", Category::staging, type, largest);
  }

  void declare_swapping() {
    tensors_.on_disk = declare_offloaded(Memory::disk);
    std::int64_t largest = 0;
    for (const SubGroup& group : tensors_.sub_groups) largest = std::max(largest, group.count);
    for (std::int64_t buffer = 0; buffer < config_.disk.optimizer_buffers; ++buffer) {
      tensors_.swap_buffers.push_back(on_host("swap buffer", Category::staging, DType::f32,
                                              round_up(largest, disk_alignment_elements)));
    }
    const SwappedGradients gradients(layout_, config_, tensors_.sub_groups);
    if (gradients.held_elements() > 0) {
      tensors_.held_gradients =
          declare("held gradients", Category::gradients, DType::f32, gradients.held_elements());
    }
  }

  [[nodiscard]] UpdateStates declare_offloaded(Memory memory) {
    UpdateStates states;
    if (const std::int64_t elements = elements_in(tensors_.sub_groups, memory); elements > 0) {
      states.gradients =
          declare("own gradients", Category::gradients, master_type(config_), elements, memory);
      declare_master(states, elements, memory);
    }
    const std::int64_t elements = moments_in(tensors_.sub_groups, memory);
    if (elements == 0) return states;
    declare_moments(states, elements, memory);
    if (config_.optimizer.kind == OptimizerKind::lion)
      states.unused = declare("unused moment", Category::optimizer, DType::f32, elements, memory);
    return states;
  }

  void declare_master(UpdateStates& states, std::int64_t elements, Memory memory) {
    states.master = declare("master", Category::optimizer, master_type(config_), elements, memory);
  }

  void declare_moments(UpdateStates& states, std::int64_t elements, Memory memory) {
    const auto moment = [&](const char* name) {
      return declare(name, Category::optimizer, moment_type(config_), elements, memory);
    };
    if (has_first_moment(config_.optimizer)) states.m = moment("m");
    if (has_second_moment(config_.optimizer)) states.v = moment("v");
  }

  Emitter& emitter_;
  const Layout& layout_;
  const TrainingConfig& config_;
  PersistentTensors tensors_;
};

}  // namespace

std::vector<SubGroup> cut_into_sub_groups(const Layout& layout, const TrainingConfig& config,
                                          std::size_t num_others) {
  std::vector<SubGroup> groups = cut_by_size(layout, config);
  if (layout.offloaded().optimizer) choose_memories(config, num_others, groups);
  if (are_parameters_on_disk(config)) {
    for (SubGroup& group : groups)
      group.swaps_parameters = group.first + group.count > config.disk.parameters_in_memory;
  }
  place_states(groups);
  return groups;
}

std::int64_t elements_in(const std::vector<SubGroup>& sub_groups, Memory memory) {
  std::int64_t end = 0;
  for (const SubGroup& group : sub_groups)
    if (group.memory == memory) end = group.offset + group.count;
  return end;
}

std::int64_t moments_in(const std::vector<SubGroup>& sub_groups, Memory memory) {
  std::int64_t end = 0;
  for (const SubGroup& group : sub_groups)
    if (group.moments_memory == memory) end = group.moments_offset + group.count;
  return end;
}

std::vector<UpdateStates::Place> UpdateStates::swapped(const SubGroup& group) const {
  std::vector<Place> there{{&UpdateStates::master, group.offset}};
  if (group.moments_memory == group.memory) {
    for (const auto moment : {&UpdateStates::m, &UpdateStates::v, &UpdateStates::unused})
      if (this->*moment != no_tensor) there.push_back({moment, group.moments_offset});
  }
  there.push_back({&UpdateStates::gradients, group.offset});
  return there;
}

PersistentTensors declare_persistent_tensors(Emitter& emitter, const Layout& layout,
                                             const TrainingConfig& config,
                                             std::int64_t kept_elements) {
  return Declaration(emitter, layout, config).run(kept_elements);
}

}  // namespace dstune::plan
