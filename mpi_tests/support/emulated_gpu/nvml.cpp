// NVIDIA's management library, as libnvidia-ml.so.1: what is used of it, with the types that its
// functions take.
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "machine.hpp"

using namespace dstune::emulated;

namespace {

constexpr int success = 0;
constexpr int not_supported = 3;
constexpr int invalid_argument = 2;
constexpr int not_found = 6;
constexpr int too_few_places = 7;
constexpr unsigned no_instance = 0xFFFFFFFF;
constexpr unsigned nvlinks = 18;
constexpr unsigned power_mw = 250000;
constexpr unsigned sm_clock = 1;
constexpr unsigned memory_clock = 2;

/// A handle is an address in here.
char gpus[64];

int gpu_of_handle(const char* handle) {
  return static_cast<int>(handle - gpus);
}

struct Memory {
  unsigned long long total, free, used;
};

struct Process {
  unsigned number;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

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

int nvmlDeviceGetHandleByUUID(const char* uuid, char** device) {
  const int gpu = gpu_of(uuid);
  if (gpu < 0) return not_found;
  *device = gpus + gpu;
  return success;
}

int nvmlDeviceGetTotalEnergyConsumption(char* /*device*/, unsigned long long* energy_mj) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto now_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  *energy_mj = static_cast<unsigned long long>(now_us) * power_mw / 1000000;
  return success;
}

int nvmlDeviceGetPowerUsage(char* /*device*/, unsigned* power) {
  *power = power_mw;
  return success;
}

int nvmlDeviceGetTemperature(char* /*device*/, int /*sensor*/, unsigned* temperature_c) {
  *temperature_c = 50;
  return success;
}

int nvmlDeviceGetClockInfo(char* /*device*/, unsigned clock, unsigned* mhz) {
  *mhz = clock == sm_clock ? 1980 : 3201;
  return clock == sm_clock || clock == memory_clock ? success : not_supported;
}

int nvmlDeviceGetMaxClockInfo(char* device, unsigned clock, unsigned* mhz) {
  return nvmlDeviceGetClockInfo(device, clock, mhz);
}

int nvmlDeviceGetCurrentClocksEventReasons(char* /*device*/, unsigned long long* reasons) {
  *reasons = 0;
  return success;
}

int nvmlDeviceGetMemoryInfo(char* device, Memory* memory) {
  const std::size_t free = free_bytes(gpu_of_handle(device));
  *memory = {machine().bytes, free, machine().bytes - free};
  return success;
}

int nvmlDeviceIsMigDeviceHandle(char* /*device*/, unsigned* is_instance) {
  *is_instance = 0;
  return success;
}

int nvmlDeviceGetMigMode(char* /*device*/, unsigned* now, unsigned* pending) {
  *now = *pending = 0;
  return success;
}

int nvmlDeviceGetComputeMode(char* /*device*/, unsigned* mode) {
  *mode = 0;
  return success;
}

int nvmlDeviceGetEccMode(char* /*device*/, unsigned* now, unsigned* pending) {
  *now = *pending = 1;
  return success;
}

int nvmlDeviceGetTotalEccErrors(char* /*device*/, unsigned /*kind*/, unsigned /*counter*/,
                                unsigned long long* errors) {
  *errors = 0;
  return success;
}

int nvmlDeviceGetRemappedRows(char* /*device*/, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
  *corrected = *uncorrected = *pending = *failed = 0;
  return success;
}

int nvmlDeviceGetCurrPcieLinkWidth(char* /*device*/, unsigned* width) {
  *width = 16;
  return success;
}

int nvmlDeviceGetMaxPcieLinkWidth(char* device, unsigned* width) {
  return nvmlDeviceGetCurrPcieLinkWidth(device, width);
}

int nvmlDeviceGetCurrPcieLinkGeneration(char* /*device*/, unsigned* generation) {
  *generation = 5;
  return success;
}

int nvmlDeviceGetMaxPcieLinkGeneration(char* device, unsigned* generation) {
  return nvmlDeviceGetCurrPcieLinkGeneration(device, generation);
}

int nvmlDeviceGetNvLinkState(char* /*device*/, unsigned link, unsigned* is_active) {
  *is_active = 1;
  return link < nvlinks ? success : invalid_argument;
}

int nvmlDeviceGetComputeRunningProcesses_v3(char* device, unsigned* count, Process* processes) {
  const auto found = holders(gpu_of_handle(device));
  const unsigned places = *count;
  *count = static_cast<unsigned>(found.size());
  if (places < found.size()) return too_few_places;
  for (const auto& [process, bytes] : found)
    *processes++ = {static_cast<unsigned>(process), bytes, no_instance, no_instance};
  return success;
}

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = machine().cuda_version;
  return success;
}

}  // extern "C"
