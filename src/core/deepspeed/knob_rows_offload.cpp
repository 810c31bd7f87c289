#include <array>

#include "deepspeed/knob_rows.hpp"

namespace dstune::rows {

namespace {

OffloadDevice device_of(const KnobValue& value) {
  const std::string& device = std::get<std::string>(value);
  return device == "none"  ? OffloadDevice::none
         : device == "cpu" ? OffloadDevice::cpu
                           : OffloadDevice::nvme;
}

void set_optimizer_device(TrainingConfig& config, const KnobValue& value) {
  config.offload_optimizer = device_of(value);
}

void set_param_device(TrainingConfig& config, const KnobValue& value) {
  config.offload_param = device_of(value);
}

/// The rows of the devices come before these. A rule refuses two folders.
void set_optimizer_folder(TrainingConfig& config, const KnobValue& value) {
  if (config.offload_optimizer == OffloadDevice::nvme)
    config.disk.folder = std::get<std::string>(value);
}

void set_param_folder(TrainingConfig& config, const KnobValue& value) {
  if (config.offload_param == OffloadDevice::nvme)
    config.disk.folder = std::get<std::string>(value);
}

void set_cpu_offload(TrainingConfig& config, const KnobValue& value) {
  if (std::get<bool>(value)) config.offload_optimizer = OffloadDevice::cpu;
}

void set_ratio(TrainingConfig& config, const KnobValue& value) {
  config.offload_ratio = std::get<double>(value);
}

void set_cpu_offload_param(TrainingConfig& config, const KnobValue& value) {
  if (std::get<bool>(value)) config.offload_param = OffloadDevice::cpu;
}

constexpr std::array table = {
    at(stage_3, nested(optional(section("/zero_optimization/offload_param", measured,
                                        "where partitioned parameters live")))),
    at(stage_3, acting(text("/zero_optimization/offload_param/device", "\"none\"", "none|cpu|nvme",
                            measured, "none, cpu or nvme"),
                       set_param_device)),
    at(stage_3, acting(text("/zero_optimization/offload_param/nvme_path", "null", "", measured,
                            "folder on the disk"),
                       set_param_folder)),
    at(stage_3, acting(integer("/zero_optimization/offload_param/buffer_count", "5", 0, measured,
                               "buffers for reading from the disk"),
                       set_disk<&DiskUse::parameter_buffers>)),
    at(stage_3, acting(integer("/zero_optimization/offload_param/buffer_size", "100000000", 0,
                               measured, "elements of a buffer"),
                       set_disk<&DiskUse::parameter_buffer_size>)),
    at(stage_3, acting(integer("/zero_optimization/offload_param/max_in_cpu", "1000000000", 0,
                               measured, "elements kept in host memory beside a disk"),
                       set_disk<&DiskUse::parameters_in_memory>)),
    at(stage_3, flag("/zero_optimization/offload_param/pin_memory", "true", not_built,
                     "page-locked host memory")),

    at(stages_1_2_3, nested(optional(section("/zero_optimization/offload_optimizer", measured,
                                             "where optimizer states live and are updated")))),
    at(stages_1_2_3, acting(text("/zero_optimization/offload_optimizer/device", "\"none\"",
                                 "none|cpu|nvme", measured, "none, cpu or nvme"),
                            set_optimizer_device)),
    at(stage_3, acting(text("/zero_optimization/offload_optimizer/nvme_path", "null", "", measured,
                            "folder on the disk"),
                       set_optimizer_folder)),
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
