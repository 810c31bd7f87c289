#include <array>

#include "knob_rows.hpp"

namespace dstune::rows {

namespace {

void set_optimizer_device(TrainingConfig& config, const KnobValue& value) {
  const std::string& device = std::get<std::string>(value);
  config.offload_optimizer = device == "none"  ? OffloadDevice::none
                             : device == "cpu" ? OffloadDevice::cpu
                                               : OffloadDevice::nvme;
}

void set_cpu_offload(TrainingConfig& config, const KnobValue& value) {
  if (std::get<bool>(value)) config.offload_optimizer = OffloadDevice::cpu;
}

void set_ratio(TrainingConfig& config, const KnobValue& value) {
  config.offload_ratio = std::get<double>(value);
}

/// "nvme" is refused by a rule.
void set_param_device(TrainingConfig& config, const KnobValue& value) {
  const bool is_offloaded = std::get<std::string>(value) != "none";
  config.offload_param = is_offloaded ? OffloadDevice::cpu : OffloadDevice::none;
}

void set_cpu_offload_param(TrainingConfig& config, const KnobValue& value) {
  if (std::get<bool>(value)) config.offload_param = OffloadDevice::cpu;
}

// Of offload_param the members that say how a disk is used do nothing: that device is refused.
constexpr std::array table = {
    at(stage_3, nested(optional(section("/zero_optimization/offload_param", measured,
                                        "where partitioned parameters live")))),
    at(stage_3, acting(text("/zero_optimization/offload_param/device", "\"none\"", "none|cpu|nvme",
                            measured, "none, cpu or nvme"),
                       set_param_device)),
    at(stage_3,
       text("/zero_optimization/offload_param/nvme_path", "null", "", inert, "folder on the disk")),
    at(stage_3, integer("/zero_optimization/offload_param/buffer_count", "5", 0, inert,
                        "buffers for reading from the disk")),
    at(stage_3, integer("/zero_optimization/offload_param/buffer_size", "100000000", 0, inert,
                        "elements of a buffer")),
    at(stage_3, integer("/zero_optimization/offload_param/max_in_cpu", "1000000000", 0, inert,
                        "elements kept in host memory beside a disk")),
    at(stage_3, flag("/zero_optimization/offload_param/pin_memory", "true", not_built,
                     "page-locked host memory")),

    at(stages_1_2_3, nested(optional(section("/zero_optimization/offload_optimizer", measured,
                                             "where optimizer states live and are updated")))),
    at(stages_1_2_3, acting(text("/zero_optimization/offload_optimizer/device", "\"none\"",
                                 "none|cpu|nvme", measured, "none, cpu or nvme"),
                            set_optimizer_device)),
    at(stage_3, acting(text("/zero_optimization/offload_optimizer/nvme_path", "null", "", measured,
                            "folder on the disk"),
                       set_disk<&DiskUse::folder>)),
    at(stage_3, acting(integer("/zero_optimization/offload_optimizer/buffer_count", "4", 0,
                               measured, "buffers for the disk"),
                       set_disk<&DiskUse::optimizer_buffers>)),
    at(stages_1_2_3, flag("/zero_optimization/offload_optimizer/pin_memory", "true", not_built,
                          "page-locked host memory")),
    at(stage_3, acting(flag("/zero_optimization/offload_optimizer/pipeline_read", "false", measured,
                            "read ahead from the disk"),
                       set_disk<&DiskUse::pipeline_read>)),
    at(stage_3, acting(flag("/zero_optimization/offload_optimizer/pipeline_write", "false",
                            measured, "write behind to the disk"),
                       set_disk<&DiskUse::pipeline_write>)),
    at(stages_1_2_3, flag("/zero_optimization/offload_optimizer/fast_init", "false", inert,
                          "faster start on a disk")),
    at(stage_3, acting(number("/zero_optimization/offload_optimizer/ratio", "1.0", 0, 1, measured,
                              "share of the sub-groups whose states are offloaded"),
                       set_ratio)),
    at(stage_3, flag("/zero_optimization/offload_optimizer/super_offload", "false", refused,
                     "speculative updates on the host")),
    at(stage_3, number("/zero_optimization/offload_optimizer/cpuadam_cores_perc", "0.8", 0, 1,
                       inert, "share of the cores for the update")),

    // Deprecated. DeepSpeed turns true into a section with device "cpu", false into none.
    at(stages_1_2_3, acting(flag("/zero_optimization/cpu_offload", "null", measured,
                                 "deprecated: true is offload_optimizer with device cpu"),
                            set_cpu_offload)),
    at(stage_3, acting(flag("/zero_optimization/cpu_offload_param", "null", measured,
                            "deprecated: true is offload_param with device cpu"),
                       set_cpu_offload_param)),
    at(stages_1_2_3, flag("/zero_optimization/cpu_offload_use_pin_memory", "null", inert,
                          "deprecated and no longer read")),
};

}  // namespace

std::span<const Knob> zero_offload() {
  return table;
}

}  // namespace dstune::rows
