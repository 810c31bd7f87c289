#include <array>

#include "knob_rows.hpp"

namespace dstune::rows {

namespace {

/// At stages 1 and 2 DeepSpeed takes every device but "none" for the host; "nvme" at stage 3 is
/// refused by a rule.
void set_optimizer_device(TrainingConfig& config, const KnobValue& value) {
  const bool is_offloaded = std::get<std::string>(value) != "none";
  config.offload_optimizer = is_offloaded ? OffloadDevice::cpu : OffloadDevice::none;
}

void set_cpu_offload(TrainingConfig& config, const KnobValue& value) {
  if (std::get<bool>(value)) config.offload_optimizer = OffloadDevice::cpu;
}

// The members that say how a disk is used do nothing: that device is refused.
constexpr std::array table = {
    at(stage_3, nested(optional(section("/zero_optimization/offload_param", inert,
                                        "where partitioned parameters live")))),
    at(stage_3, text("/zero_optimization/offload_param/device", "\"none\"", "none|cpu|nvme",
                     refused, "none, cpu or nvme")),
    at(stage_3,
       text("/zero_optimization/offload_param/nvme_path", "null", "", inert, "folder on the disk")),
    at(stage_3, integer("/zero_optimization/offload_param/buffer_count", "5", 0, inert,
                        "buffers for reading from the disk")),
    at(stage_3, integer("/zero_optimization/offload_param/buffer_size", "100000000", 0, inert,
                        "elements of a buffer")),
    at(stage_3, integer("/zero_optimization/offload_param/max_in_cpu", "1000000000", 0, inert,
                        "elements kept in host memory")),
    at(stage_3, flag("/zero_optimization/offload_param/pin_memory", "true", inert,
                     "page-locked host memory")),

    at(stages_1_2_3, nested(optional(section("/zero_optimization/offload_optimizer", measured,
                                             "where optimizer states live and are updated")))),
    at(stages_1_2_3, acting(text("/zero_optimization/offload_optimizer/device", "\"none\"",
                                 "none|cpu|nvme", measured, "none, cpu or nvme"),
                            set_optimizer_device)),
    at(stage_3, text("/zero_optimization/offload_optimizer/nvme_path", "null", "", inert,
                     "folder on the disk")),
    at(stage_3, integer("/zero_optimization/offload_optimizer/buffer_count", "4", 0, inert,
                        "buffers for the disk")),
    at(stages_1_2_3, flag("/zero_optimization/offload_optimizer/pin_memory", "true", not_built,
                          "page-locked host memory")),
    at(stage_3, flag("/zero_optimization/offload_optimizer/pipeline_read", "false", inert,
                     "read ahead from the disk")),
    at(stage_3, flag("/zero_optimization/offload_optimizer/pipeline_write", "false", inert,
                     "write behind to the disk")),
    at(stages_1_2_3, flag("/zero_optimization/offload_optimizer/fast_init", "false", inert,
                          "faster start on a disk")),
    at(stage_3, number("/zero_optimization/offload_optimizer/ratio", "1.0", 0, 1, inert,
                       "share of the states that is offloaded")),
    at(stage_3, flag("/zero_optimization/offload_optimizer/super_offload", "false", refused,
                     "speculative updates on the host")),
    at(stage_3, number("/zero_optimization/offload_optimizer/cpuadam_cores_perc", "0.8", 0, 1,
                       inert, "share of the cores for the update")),

    // Deprecated. DeepSpeed turns true into a section with device "cpu", false into none.
    at(stages_1_2_3, acting(flag("/zero_optimization/cpu_offload", "null", measured,
                                 "deprecated: true is offload_optimizer with device cpu"),
                            set_cpu_offload)),
    at(stage_3, flag("/zero_optimization/cpu_offload_param", "null", refused,
                     "deprecated: true is offload_param with device cpu")),
    at(stages_1_2_3, flag("/zero_optimization/cpu_offload_use_pin_memory", "null", inert,
                          "deprecated and no longer read")),
};

}  // namespace

std::span<const Knob> zero_offload() {
  return table;
}

}  // namespace dstune::rows
