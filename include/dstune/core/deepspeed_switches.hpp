#pragma once
/// What a release of DeepSpeed does otherwise than another in a step, as named switches. Code asks
/// for a switch, never for a version. Sources: DeepSpeed's own files of 0.14.5 to 0.19.8, as each
/// switch says. Local.

namespace dstune {

struct Version;

/// The defaults are those of 0.19.6.
struct DeepSpeedSwitches {
  /// Stage 2 sums gradients in fp32 where grad_accum_dtype says so: a rank's own partition is fp32
  /// from the first micro-step on (stage_1_and_2.py, _build_compact_grad_partition_buffer). Else
  /// the key has no effect there.
  bool fp32_sums_at_stage_2 = false;
  /// Stage 1 in fp16, or with an offloaded optimizer, updates with the mean of fp32 sums, reduced
  /// from an fp32 buffer. Else with each rank's own sums.
  bool fp32_sums_are_averaged = false;
  /// With an optimizer on the host, stages 1 and 2 sum in fp32 on the device and copy at the
  /// boundary alone. Else they sum on the host, a copy each micro-step.
  bool fp32_sums_stay_on_device = false;
  /// With an optimizer on the host, stages 1 and 2 wait on the host for copies of gradients, and
  /// clone a gradient that is larger than a bucket (_offload_gradient_safety_enabled).
  bool offload_waits_for_copies = false;
  /// Gradients are not multiplied where clipping is 0 and the loss scale is 1
  /// (unscale_and_clip_grads).
  bool unit_scale_is_left_out = false;
  /// Stage 0 in bf16 without grad_accum_dtype sums in fp32 and partitions the fp32 master copy over
  /// the group (BF16_Optimizer). Else it sums in 16 bits beside a whole master copy.
  bool stage_0_partitions_bf16 = false;
  /// Twin-Flow's `ratio` keeps the last part of the sub-groups on the host. Else the first.
  bool twin_flow_keeps_last_part = true;
  /// Stage 3 clears all gradients once a step. Else once a sub-group.
  bool stage_3_clears_once = false;
  /// Stages 1 and 2 pin the master copy of an offloaded optimizer whatever pin_memory says.
  bool master_is_always_pinned = false;

  bool operator==(const DeepSpeedSwitches&) const = default;
};

/// The switches of a release: of the newest known one that is not newer than it.
[[nodiscard]] DeepSpeedSwitches switches_of(const Version& version);

}  // namespace dstune
