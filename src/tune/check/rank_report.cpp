#include "check/rank_report.hpp"

#include "dstune/base/archive.hpp"

namespace dstune {

template <class Archive>
void members(Archive& archive, json::Of<Archive, CollectiveRates>& rates) {
  archive("bytes", rates.bytes);
  archive("all_reduce_bytes_per_s", rates.all_reduce);
  archive("all_gather_bytes_per_s", rates.all_gather);
  archive("reduce_scatter_bytes_per_s", rates.reduce_scatter);
}

template <class Archive>
void members(Archive& archive, json::Of<Archive, GroupRates>& group) {
  archive("num_ranks", group.num_ranks);
  archive("num_nodes", group.num_nodes);
  archive("transport", group.transport);
  archive("bus_bandwidth", group.rates);
}

template <class Archive>
void members(Archive& archive, json::Of<Archive, GpuProcess>& process) {
  archive("process", process.number);
  archive("name", process.name);
  archive("bytes", process.bytes);
}

template <class Archive>
void members(Archive& archive, json::Of<Archive, GpuFacts>& gpu) {
  archive("uuid", gpu.uuid);
  archive("mig_instance", gpu.is_instance);
  archive("mig_mode", gpu.has_mig);
  archive("compute_mode", gpu.compute_mode);
  archive("mps_control_pipe", gpu.has_mps);
  archive("ecc", gpu.has_ecc);
  archive("uncorrected_errors", gpu.uncorrected_errors);
  archive("repair_pending", gpu.repair_pending);
  archive("repair_failed", gpu.repair_failed);
  archive("processes", gpu.processes);
  archive("sm_clock_mhz", gpu.sm_clock_mhz);
  archive("max_sm_clock_mhz", gpu.max_sm_clock_mhz);
  archive("memory_clock_mhz", gpu.memory_clock_mhz);
  archive("max_memory_clock_mhz", gpu.max_memory_clock_mhz);
  archive("throttle_reasons", gpu.throttle_reasons);
  archive("pcie_width", gpu.pcie_width);
  archive("max_pcie_width", gpu.max_pcie_width);
  archive("pcie_generation", gpu.pcie_generation);
  archive("max_pcie_generation", gpu.max_pcie_generation);
  archive("nvlinks", gpu.nvlinks);
  archive("peer_access", gpu.peers);
  archive("driver_cuda", gpu.driver_cuda);
  archive("runtime_cuda", gpu.runtime_cuda);
}

template <class Archive>
void members(Archive& archive, json::Of<Archive, RankReport>& report) {
  archive("rank", report.rank);
  archive("node", report.node);
  archive("process", report.process);
  archive("host", report.host);
  archive("device", report.device);
  archive("backend", report.backend);
  archive("threads", report.threads);
  archive("share_core", report.share_core);
  archive("processors", report.processors);
  archive("host_memory_bytes", report.host_memory_bytes);
  archive("available_memory_bytes", report.available_bytes);
  archive("shared_memory_bytes", report.shared_memory_bytes);
  archive("processor_mhz", report.processor_mhz);
  archive("libraries", report.libraries);
  archive("gpu", report.gpu);
  archive("fp32_flops_per_s", report.f32_flops);
  archive("bf16_flops_per_s", report.bf16_flops);
  archive("memory_bytes_per_s", report.memory_bytes);
  archive("processor_share", report.processor_share);
  archive("busy_processors_of_host", report.busy_processors);
  archive("stolen_processors_of_host", report.stolen_processors);
  archive("recording", report.recording);
  archive("groups", report.groups);
  archive("failures", report.failures);
}
template void members(json::Writer&, const RankReport&);
template void members(json::Reader&, RankReport&);

}  // namespace dstune
