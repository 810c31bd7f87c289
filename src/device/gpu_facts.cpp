#include "dstune/device/gpu_facts.hpp"

#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "dstune/base/text.hpp"
#include "dstune/device/nvml.hpp"

namespace dstune {
namespace {

using nvml::Fact;

constexpr std::string_view gpu_prefix = "GPU-", instance_prefix = "MIG-";
/// nvmlComputeMode_t
constexpr std::array<const char*, 4> compute_modes = {"default", "exclusive thread", "prohibited",
                                                      "exclusive process"};

/// A GPU, or a part of one and the GPU that it is a part of. CUDA does not tell which of them a
/// UUID is of.
struct Handles {
  nvml::Device own = nullptr, whole = nullptr;
};
std::optional<Handles> find_handles(nvml::Library& library, const std::string& uuid) {
  Handles found;
  if (library.find_device(uuid, found.own) != 0) {
    if (!uuid.starts_with(gpu_prefix)) return std::nullopt;
    const std::string part = std::string(instance_prefix) + uuid.substr(gpu_prefix.size());
    if (library.find_device(part, found.own) != 0) return std::nullopt;
  }
  nvml::Library::Count is_instance = 0;
  found.whole = found.own;
  if (library.ask(found.own, Fact::is_instance, is_instance) == 0 && is_instance != 0 &&
      library.find_whole(found.own, found.whole) != 0)
    found.whole = found.own;
  return found;
}

/// The number that a GPU tells, as whatever it is.
template <class Number>
std::optional<Number> told(nvml::Library& library, nvml::Device device, Fact fact) {
  nvml::Library::Count number = 0;
  if (library.ask(device, fact, number) != 0) return std::nullopt;
  return static_cast<Number>(number);
}

std::optional<int> clock_of(nvml::Library& library, nvml::Device device, nvml::Library::Clock clock,
                            bool highest) {
  std::uint32_t mhz = 0;
  const int result =
      highest ? library.max_clock_mhz(device, clock, mhz) : library.clock_mhz(device, clock, mhz);
  return result == 0 ? std::optional(static_cast<int>(mhz)) : std::nullopt;
}

std::string name_of_process(std::uint32_t number) {
  std::ifstream file("/proc/" + std::to_string(number) + "/comm");
  std::string name;
  std::getline(file, name);
  return printable(name);
}

}  // namespace

GpuFacts facts_of_gpu(const std::shared_ptr<GpuDriver>& library, const std::string& uuid) {
  GpuFacts facts{.uuid = uuid};
  if (!library) return facts;
  int version = 0;
  if (library->cuda_version(version) == 0) facts.driver_cuda = version;
  const auto handles = find_handles(*library, uuid);
  if (!handles) return facts;
  const auto [own, whole] = *handles;
  facts.is_instance = told<bool>(*library, own, Fact::is_instance);
  facts.has_mig = told<bool>(*library, whole, Fact::mig_mode);
  if (const auto mode = told<std::size_t>(*library, whole, Fact::compute_mode);
      mode && *mode < compute_modes.size())
    facts.compute_mode = compute_modes[*mode];
  facts.has_ecc = told<bool>(*library, whole, Fact::ecc_mode);
  facts.uncorrected_errors = told<std::int64_t>(*library, whole, Fact::uncorrected_errors);
  // GPUs retire pages, and from Ampere on they remap rows.
  const auto rows = told<bool>(*library, whole, Fact::rows_pending);
  const auto pages = told<bool>(*library, whole, Fact::pages_pending);
  if (rows || pages) facts.repair_pending = rows.value_or(false) || pages.value_or(false);
  facts.repair_failed = told<bool>(*library, whole, Fact::remapping_failed);
  facts.nvlinks = told<int>(*library, whole, Fact::nvlinks);
  std::vector<nvml::Process> processes;
  if (library->find_processes(own, processes) == 0) {
    facts.processes.emplace();
    for (const nvml::Process& process : processes)
      facts.processes->push_back({.number = static_cast<int>(process.number),
                                  .name = name_of_process(process.number),
                                  .bytes = process.bytes});
  }
  return facts;
}

void add_speeds(const std::shared_ptr<GpuDriver>& library, GpuFacts& facts) {
  const auto handles = library ? find_handles(*library, facts.uuid) : std::nullopt;
  if (!handles) return;
  const nvml::Device gpu = handles->whole;
  using Clock = nvml::Library::Clock;
  // The clocks first: they fall soon behind work.
  facts.sm_clock_mhz = clock_of(*library, gpu, Clock::sm, false);
  nvml::Library::Count reasons = 0;
  if (library->throttle_reasons(gpu, reasons) == 0)
    facts.throttle_reasons = static_cast<std::int64_t>(reasons);
  facts.memory_clock_mhz = clock_of(*library, gpu, Clock::memory, false);
  facts.pcie_width = told<int>(*library, gpu, Fact::pcie_width);
  facts.pcie_generation = told<int>(*library, gpu, Fact::pcie_generation);
  facts.max_sm_clock_mhz = clock_of(*library, gpu, Clock::sm, true);
  facts.max_memory_clock_mhz = clock_of(*library, gpu, Clock::memory, true);
  facts.max_pcie_width = told<int>(*library, gpu, Fact::max_pcie_width);
  facts.max_pcie_generation = told<int>(*library, gpu, Fact::max_pcie_generation);
}

bool has_mps_pipe(const char* folder) {
  std::error_code ignored;
  const std::filesystem::path place = folder == nullptr ? "/tmp/nvidia-mps" : folder;
  return std::filesystem::exists(place / "control", ignored);
}

}  // namespace dstune
