#include "check/gpu_findings.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dstune {
namespace {

constexpr int cuda_major = 1000, cuda_minor = 10;
/// GPUs that work hard are at their power cap: that is how they are built.
constexpr std::int64_t power_cap = 4;
/// The name that the kernel has of nvidia-cuda-mps-server: 15 letters.
constexpr std::string_view mps_server = "nvidia-cuda-mps";

/// The ranks that compute on the same GPU.
std::vector<int> sharers_of(const RankReport& report, const std::vector<RankReport>& all) {
  std::vector<int> ranks;
  if (report.gpu->uuid.empty()) return ranks;
  for (const RankReport& each : all)
    if (each.gpu && each.gpu->uuid == report.gpu->uuid) ranks.push_back(each.rank);
  return ranks;
}

std::string reset_text(const GpuFacts& gpu) {
  return fmt::format("end all that runs there, then: nvidia-smi --gpu-reset -i {}, or reboot",
                     gpu.uuid);
}

/// "process 4711 (python3) computes on its GPU, too, with 3000 MiB: …"
std::vector<std::string> strangers_of(const RankReport& report,
                                      const std::vector<RankReport>& all) {
  std::vector<std::string> texts;
  if (!report.gpu->processes) return texts;
  for (const GpuProcess& process : *report.gpu->processes) {
    const bool is_rank = std::ranges::any_of(all, [&](const RankReport& each) {
      return each.node == report.node && each.process == process.number;
    });
    // It computes for those that MPS serves.
    if (is_rank || process.name.starts_with(mps_server)) continue;
    texts.push_back(fmt::format(
        "process {}{} computes on its GPU, too{}: end it, or name other GPUs in "
        "CUDA_VISIBLE_DEVICES",
        process.number, process.name.empty() ? "" : fmt::format(" ({})", process.name),
        process.bytes ? fmt::format(", and has {} MiB there", *process.bytes >> 20) : ""));
  }
  return texts;
}

std::string pcie_text(const GpuFacts& gpu) {
  const auto is_less = [](const std::optional<int>& now, const std::optional<int>& highest) {
    return now && highest && *now < *highest;
  };
  std::vector<std::string> ways;
  if (is_less(gpu.pcie_width, gpu.max_pcie_width))
    ways.push_back(fmt::format("{} of {} lanes", *gpu.pcie_width, *gpu.max_pcie_width));
  if (is_less(gpu.pcie_generation, gpu.max_pcie_generation))
    ways.push_back(
        fmt::format("generation {} of {}", *gpu.pcie_generation, *gpu.max_pcie_generation));
  return ways.empty() ? ""
                      : fmt::format(
                            "its GPU's PCIe link has {}: copies to and from the host are slower; "
                            "look at the slot, the riser and the BIOS",
                            fmt::join(ways, " and "));
}

std::string nvlinks_text(const RankReport& report, const std::vector<RankReport>& all) {
  if (!report.gpu->nvlinks || report.device.empty()) return "";
  int most = 0;
  for (const RankReport& each : all)
    if (each.gpu && each.device == report.device)
      most = std::max(most, each.gpu->nvlinks.value_or(0));
  if (*report.gpu->nvlinks >= most) return "";
  return fmt::format(
      "its GPU has {} active NVLinks, others like it have {}: nvidia-smi nvlink --status names the "
      "missing ones",
      *report.gpu->nvlinks, most);
}

/// Among the GPUs of the job alone.
std::string peers_text(const RankReport& report, const std::vector<RankReport>& all) {
  std::vector<int> ranks;
  for (const RankReport& each : all) {
    if (each.node != report.node || !each.gpu) continue;
    const auto peer = report.gpu->peers.find(each.gpu->uuid);
    if (peer != report.gpu->peers.end() && !peer->second) ranks.push_back(each.rank);
  }
  if (ranks.empty()) return "";
  return fmt::format(
      "its GPU has no peer access to the GPU of rank {}: collectives go through the host's memory; "
      "nvidia-smi topo -p2p r says why",
      fmt::join(ranks, ", "));
}

}  // namespace

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / cuda_major, version % cuda_major / cuda_minor);
}

std::string throttled_by(const RankReport& report) {
  if (!report.gpu || !report.gpu->throttle_reasons) return "";
  return throttle_text(static_cast<std::uint64_t>(*report.gpu->throttle_reasons));
}

std::vector<std::string> failures_of_gpu(const RankReport& report,
                                         const std::vector<RankReport>& all) {
  std::vector<std::string> failures;
  if (!report.gpu) return failures;
  const GpuFacts& gpu = *report.gpu;
  // Releases of one major number understand each other (CUDA's minor version compatibility).
  if (gpu.driver_cuda && gpu.runtime_cuda &&
      *gpu.driver_cuda / cuda_major < *gpu.runtime_cuda / cuda_major)
    failures.push_back(
        fmt::format("this program's CUDA {} is newer than what the driver supports, {}: install a "
                    "newer driver, or build with CUDA {}",
                    cuda_version_text(*gpu.runtime_cuda), cuda_version_text(*gpu.driver_cuda),
                    cuda_version_text(*gpu.driver_cuda)));
  if (gpu.compute_mode == "prohibited")
    failures.push_back(
        "its GPU is in compute mode \"prohibited\", so nobody may compute there: nvidia-smi -c "
        "DEFAULT");
  if (const auto ranks = sharers_of(report, all);
      gpu.compute_mode == "exclusive process" && ranks.size() > 1 && !gpu.has_mps)
    failures.push_back(
        fmt::format("ranks {} share a GPU whose compute mode is \"exclusive process\", so only one "
                    "may compute there: start a rank for each GPU, start MPS, or nvidia-smi -c "
                    "DEFAULT",
                    fmt::join(ranks, ", ")));
  if (gpu.uncorrected_errors.value_or(0) > 0)
    failures.push_back(
        fmt::format("its GPU's memory had {} uncorrected errors since the driver was loaded: {}",
                    *gpu.uncorrected_errors, reset_text(gpu)));
  if (gpu.repair_failed.value_or(false))
    failures.push_back(
        "its GPU could not remap a faulty row of its memory: leave this GPU out, and have it "
        "examined");
  return failures;
}

std::vector<std::string> notes_of_gpu(const RankReport& report,
                                      const std::vector<RankReport>& all) {
  std::vector<std::string> notes;
  if (!report.gpu) return notes;
  const GpuFacts& gpu = *report.gpu;
  const auto add = [&](std::string text) {
    if (!text.empty()) notes.push_back(std::move(text));
  };
  if (gpu.driver_cuda && gpu.runtime_cuda && *gpu.driver_cuda < *gpu.runtime_cuda &&
      *gpu.driver_cuda / cuda_major == *gpu.runtime_cuda / cuda_major)
    add(
        fmt::format("the driver is of CUDA {}, this program of {}: that works by CUDA's minor "
                    "version compatibility; a newer driver is safer",
                    cuda_version_text(*gpu.driver_cuda), cuda_version_text(*gpu.runtime_cuda)));
  if (gpu.is_instance.value_or(false) || gpu.has_mig.value_or(false))
    add("it computes on a part of a GPU (MIG), and parts have no peer access: nvidia-smi -mig 0 "
        "makes the GPU whole");
  if (const auto ranks = sharers_of(report, all);
      ranks.size() > 1 && gpu.compute_mode != "exclusive process")
    add(fmt::format("ranks {} share a GPU: start as many ranks on a host as it has GPUs",
                    fmt::join(ranks, ", ")));
  if (gpu.has_ecc && !*gpu.has_ecc)
    add("its GPU's ECC is off, so errors of its memory are not noticed: nvidia-smi -e 1, and a "
        "reset");
  if (gpu.repair_pending.value_or(false))
    add("its GPU has faulty memory to set aside at its next reset: " + reset_text(gpu));
  std::ranges::for_each(strangers_of(report, all), add);
  if (gpu.throttle_reasons)
    if (const std::string reasons =
            throttle_text(static_cast<std::uint64_t>(*gpu.throttle_reasons & ~power_cap));
        !reasons.empty())
      add(fmt::format("its GPU lowers its clock ({}): look at its cooling and its power supply",
                      reasons));
  add(pcie_text(gpu));
  add(nvlinks_text(report, all));
  add(peers_text(report, all));
  return notes;
}

}  // namespace dstune
