#pragma once
/// Named switches: each is one thing that a release of DeepSpeed does otherwise than another in a
/// step. Code asks for a switch, never for a version. Sources: DeepSpeed's own files of 0.14.5 to
/// 0.19.8, as each switch says. docs/inside/memory.md, "Releases of DeepSpeed", names what else
/// differs and is not followed. Local.

namespace dstune {

struct Version;

/// The defaults are those of 0.19.6.
struct DeepSpeedSwitches {
  /// Stage 2 sums gradients in fp32 where grad_accum_dtype says so: a rank's own partition is fp32
  /// from the first micro-step on (stage_1_and_2.py, _build_compact_grad_partition_buffer). Else
  /// the key has no effect there.
  bool fp32_sums_at_stage_2 = false;
  /// Stage 1 in fp16, or with an offloaded optimizer, updates with the mean of fp32 sums, which is
  /// made in fp32 buckets (stage_1_and_2.py, setup_buckets). Else with each rank's own sums, beside
  /// buckets of 16 bits; the built-in step takes the mean in any case.
  bool fp32_sums_are_averaged = false;
  /// Stages 1 and 2 with an optimizer on the host keep the own part of fp32 sums on the device.
  /// They copy it at the boundary alone (copy_grads_in_partition).
  bool fp32_sums_stay_on_device = false;
  /// Stages 1 and 2 with an optimizer on the host wait on the host for copies of gradients. They
  /// clone a gradient that is larger than a bucket (_offload_gradient_safety_enabled).
  bool offload_waits_for_copies = false;
  /// immediate_grad_update drops each 16-bit gradient as it has been added
  /// (bf16_optimizer.py, accumulate_hp_grads_and_remove_lp). Else they stay beside their sums.
  bool immediate_update_frees_gradients = false;
  /// Stage 0 in bf16 without grad_accum_dtype sums in fp32 and partitions the fp32 master copy over
  /// the group: BF16_Optimizer (engine.py, get_data_types). Else it sums in 16 bits beside a whole
  /// master copy.
  bool stage_0_partitions_bf16 = false;
  /// Twin-Flow's `ratio` keeps the last part of the sub-groups on the host (stage3.py,
  /// subgroup_to_device). Else the first.
  bool twin_flow_keeps_last_part = true;
  /// Stages 1 and 2 send parameters that the host has updated by way of a buffer of 16 bits that is
  /// always there (param_buffer_of_bit16_for_cpu_offload_groups). Else through a copy that they
  /// make in the update.
  bool parameters_return_by_buffer = true;

  bool operator==(const DeepSpeedSwitches&) const = default;
};

/// Visits the switches with their names, like for_each_member of a TrainingConfig. Visitor: (const
/// char* name, bool& member).
template <class Switches, class Visitor>
void for_each_switch(Switches& switches, Visitor&& visit) {
  visit("fp32_sums_at_stage_2", switches.fp32_sums_at_stage_2);
  visit("fp32_sums_are_averaged", switches.fp32_sums_are_averaged);
  visit("fp32_sums_stay_on_device", switches.fp32_sums_stay_on_device);
  visit("offload_waits_for_copies", switches.offload_waits_for_copies);
  visit("immediate_update_frees_gradients", switches.immediate_update_frees_gradients);
  visit("stage_0_partitions_bf16", switches.stage_0_partitions_bf16);
  visit("twin_flow_keeps_last_part", switches.twin_flow_keeps_last_part);
  visit("parameters_return_by_buffer", switches.parameters_return_by_buffer);
}

/// The switches of a release. Each changes with a known release: one between two of them behaves as
/// the older one.
[[nodiscard]] DeepSpeedSwitches switches_of(const Version& version);

}  // namespace dstune
