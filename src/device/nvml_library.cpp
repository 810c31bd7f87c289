#include <dlfcn.h>

#include "dstune/device/nvml.hpp"

namespace dstune::nvml {
namespace {

/// nvmlMemory_t
struct Memory {
  unsigned long long total, free, used;
};

/// The functions as the driver's library exports them; enums are ints there.
struct Functions {
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int);
  int (*handle_by_uuid)(const char*, Device*);
  int (*total_energy)(Device, unsigned long long*);
  int (*power_usage)(Device, unsigned int*);
  int (*temperature)(Device, int, unsigned int*);
  int (*clock_info)(Device, int, unsigned int*);
  int (*max_clock_info)(Device, int, unsigned int*);
  int (*throttle_reasons)(Device, unsigned long long*);
  int (*memory_info)(Device, Memory*);
};

constexpr int core_sensor = 0;
constexpr int not_supported = 3;

class LoadedLibrary : public Library {
 public:
  explicit LoadedLibrary(const Functions& functions) : functions_(functions) {}
  ~LoadedLibrary() override { functions_.shutdown(); }

  std::string error_text(int result) override { return functions_.error_string(result); }
  int find_device(const std::string& uuid, Device& device) override {
    return functions_.handle_by_uuid(uuid.c_str(), &device);
  }
  int energy_mj(Device device, std::uint64_t& energy) override {
    return wide(functions_.total_energy, device, energy);
  }
  int power_mw(Device device, std::uint32_t& power) override {
    return functions_.power_usage(device, &power);
  }
  int temperature_c(Device device, std::uint32_t& temperature) override {
    if (functions_.temperature == nullptr) return not_supported;
    return functions_.temperature(device, core_sensor, &temperature);
  }
  int clock_mhz(Device device, Clock clock, std::uint32_t& frequency) override {
    return functions_.clock_info(device, static_cast<int>(clock), &frequency);
  }
  int max_clock_mhz(Device device, Clock clock, std::uint32_t& frequency) override {
    return functions_.max_clock_info(device, static_cast<int>(clock), &frequency);
  }
  int throttle_reasons(Device device, std::uint64_t& reasons) override {
    if (functions_.throttle_reasons == nullptr) return not_supported;
    return wide(functions_.throttle_reasons, device, reasons);
  }
  int free_bytes(Device device, std::uint64_t& bytes) override {
    if (functions_.memory_info == nullptr) return not_supported;
    Memory memory{};
    const int result = functions_.memory_info(device, &memory);
    bytes = memory.free;
    return result;
  }

 private:
  static int wide(int (*function)(Device, unsigned long long*), Device device,
                  std::uint64_t& number) {
    unsigned long long value = 0;
    const int result = function(device, &value);
    number = value;
    return result;
  }

  Functions functions_;
};

/// False, and what is missing in `missing`.
template <class Function>
bool find(void* library, Function& function, const char* name, std::string& missing) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) missing = name;
  return function != nullptr;
}

}  // namespace

FoundLibrary find_library(const std::string& file) {
  // Never unloaded: the driver's library keeps threads and handlers.
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return {nullptr, why == nullptr ? file + " can not be loaded" : why};
  }
  Functions functions{};
  std::string missing;
  const bool has_all =
      find(library, functions.init, "nvmlInit_v2", missing) &&
      find(library, functions.shutdown, "nvmlShutdown", missing) &&
      find(library, functions.error_string, "nvmlErrorString", missing) &&
      find(library, functions.handle_by_uuid, "nvmlDeviceGetHandleByUUID", missing) &&
      find(library, functions.total_energy, "nvmlDeviceGetTotalEnergyConsumption", missing) &&
      find(library, functions.power_usage, "nvmlDeviceGetPowerUsage", missing) &&
      find(library, functions.clock_info, "nvmlDeviceGetClockInfo", missing) &&
      find(library, functions.max_clock_info, "nvmlDeviceGetMaxClockInfo", missing);
  if (!has_all) return {nullptr, file + " lacks " + missing};
  // What drivers have under names that changed, or are about to drop.
  if (!find(library, functions.throttle_reasons, "nvmlDeviceGetCurrentClocksEventReasons", missing))
    find(library, functions.throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons", missing);
  find(library, functions.temperature, "nvmlDeviceGetTemperature", missing);
  find(library, functions.memory_info, "nvmlDeviceGetMemoryInfo", missing);
  const int result = functions.init();
  if (result != 0) return {nullptr, file + ": " + functions.error_string(result)};
  return {std::make_shared<LoadedLibrary>(functions), ""};
}

}  // namespace dstune::nvml
