// What is used of NVIDIA's management library, with the types that its functions take.
#include "fake_nvml.hpp"

#include <cstddef>

#include "nvml_functions.hpp"

using namespace dstune::nvml;

namespace dstune::nvml {

FakeNvml& fake_nvml() {
  static FakeNvml fake;
  return fake;
}

}  // namespace dstune::nvml

namespace {

constexpr int success = 0, invalid_argument = 2, not_supported = 3, not_found = 6,
              too_few_places = 7;
/// What is asked for beside the answer.
constexpr int anything = 99;

Opaque& now(Device device) {
  if (device->refresh) device->refresh(*device);
  return *device;
}

template <class Number, class To>
int tell(const std::optional<Number>& number, To* to) {
  if (!number) return not_supported;
  *to = static_cast<To>(*number);
  return success;
}

template <class To>
int tell(Device device, Fact fact, To* to) {
  const auto found = device->facts.find(fact);
  if (found == device->facts.end()) return not_supported;
  *to = static_cast<To>(found->second);
  return success;
}

bool is_of(int clock, Library::Clock wanted) {
  return clock == static_cast<int>(wanted);
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return success;
}

int nvmlShutdown() {
  return success;
}

const char* nvmlErrorString(int result) {
  return result == not_found ? "Not Found" : "Not Supported";
}

int nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  const auto found = fake_nvml().gpus.find(uuid);
  if (found == fake_nvml().gpus.end()) return not_found;
  *device = &found->second;
  return success;
}

int nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long* energy_mj) {
  return tell(now(device).energy_mj, energy_mj);
}

int nvmlDeviceGetPowerUsage(Device device, unsigned* power_mw) {
  return tell(device->power_mw, power_mw);
}

int nvmlDeviceGetTemperature(Device device, int /*sensor*/, unsigned* temperature_c) {
  return tell(device->temperature_c, temperature_c);
}

int nvmlDeviceGetClockInfo(Device device, int clock, unsigned* mhz) {
  return tell(is_of(clock, Library::Clock::sm) ? device->sm_mhz : device->memory_mhz, mhz);
}

int nvmlDeviceGetMaxClockInfo(Device device, int clock, unsigned* mhz) {
  return is_of(clock, Library::Clock::sm) ? tell(device->max_sm_mhz, mhz) : not_supported;
}

int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long* reasons) {
  return tell(device->throttle_reasons, reasons);
}

int nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  return tell(now(device).free_bytes, &memory->free);
}

int nvmlDeviceIsMigDeviceHandle(Device device, unsigned* is_instance) {
  return tell(device, Fact::is_instance, is_instance);
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device instance, Device* whole) {
  *whole = instance->whole;
  return *whole == nullptr ? not_found : success;
}

int nvmlDeviceGetMigMode(Device device, unsigned* mode, unsigned* pending) {
  *pending = anything;
  return tell(device, Fact::mig_mode, mode);
}

int nvmlDeviceGetComputeMode(Device device, int* mode) {
  return tell(device, Fact::compute_mode, mode);
}

int nvmlDeviceGetEccMode(Device device, int* mode, int* pending) {
  *pending = anything;
  return tell(device, Fact::ecc_mode, mode);
}

int nvmlDeviceGetTotalEccErrors(Device device, int kind, int counter, unsigned long long* errors) {
  constexpr int uncorrected = 1, since_driver_load = 0;
  if (kind != uncorrected || counter != since_driver_load) return invalid_argument;
  return tell(device, Fact::uncorrected_errors, errors);
}

int nvmlDeviceGetRetiredPagesPendingStatus(Device device, int* pending) {
  return tell(device, Fact::pages_pending, pending);
}

int nvmlDeviceGetRemappedRows(Device device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
  *corrected = *uncorrected = anything;
  const int result = tell(device, Fact::rows_pending, pending);
  return result != success ? result : tell(device, Fact::remapping_failed, failed);
}

int nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned* width) {
  return tell(device, Fact::pcie_width, width);
}

int nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned* width) {
  return tell(device, Fact::max_pcie_width, width);
}

int nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned* generation) {
  return tell(device, Fact::pcie_generation, generation);
}

int nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned* generation) {
  return tell(device, Fact::max_pcie_generation, generation);
}

/// The third of them is not active.
int nvmlDeviceGetNvLinkState(Device device, unsigned link, int* is_active) {
  std::uint64_t active = 0;
  if (const int result = tell(device, Fact::nvlinks, &active); result != success) return result;
  *is_active = link == 2 ? 0 : 1;
  return link < active + (active > 2 ? 1 : 0) ? success : invalid_argument;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, ProcessInfo* infos) {
  const auto& processes = now(device).processes;
  if (!processes) return not_supported;
  const std::size_t places = *count;
  *count = static_cast<unsigned>(processes->size());
  // One comes while they are asked for.
  if (places == 0 && *count > 1) --*count;
  if (places < processes->size()) return too_few_places;
  for (const Process& process : *processes) {
    const unsigned long long bytes =
        process.bytes ? static_cast<unsigned long long>(*process.bytes) : ~0ULL;
    *infos++ = {process.number, bytes, 0, 0};
  }
  return success;
}

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return tell(fake_nvml().supported_cuda, version);
}

}  // extern "C"
