#include "nvml_functions.hpp"

#include <dlfcn.h>

namespace dstune::nvml {
namespace {

constexpr int core_sensor = 0;
constexpr int not_supported = 3;
constexpr int too_few_places = 7;
constexpr int uncorrected = 1;
constexpr int since_driver_load = 0;
constexpr unsigned max_nvlinks = 36;
/// The memory of a process that the driver does not tell.
constexpr unsigned long long no_amount = ~0ULL;

class LoadedLibrary : public Library {
 public:
  explicit LoadedLibrary(const Functions& functions) : functions_(functions) {}
  ~LoadedLibrary() override { functions_.shutdown(); }

  std::string error_text(int result) override { return functions_.error_string(result); }
  int find_device(const std::string& uuid, Device& device) override {
    return functions_.handle_by_uuid(uuid.c_str(), &device);
  }
  int energy_mj(Device device, Count& energy) override {
    return functions_.total_energy(device, &energy);
  }
  int power_mw(Device device, std::uint32_t& power) override {
    return functions_.power_usage(device, &power);
  }
  int temperature_c(Device device, std::uint32_t& temperature) override {
    return call(functions_.temperature, device, core_sensor, &temperature);
  }
  int clock_mhz(Device device, Clock clock, std::uint32_t& frequency) override {
    return functions_.clock_info(device, static_cast<int>(clock), &frequency);
  }
  int max_clock_mhz(Device device, Clock clock, std::uint32_t& frequency) override {
    return functions_.max_clock_info(device, static_cast<int>(clock), &frequency);
  }
  int throttle_reasons(Device device, Count& reasons) override {
    return call(functions_.throttle_reasons, device, &reasons);
  }
  int free_bytes(Device device, Count& bytes) override {
    Memory memory{};
    const int result = call(functions_.memory_info, device, &memory);
    bytes = memory.free;
    return result;
  }

  int ask(Device device, Fact fact, Count& number) override {
    unsigned int first = 0, pending = 0, failed = 0, other = 0;
    int mode = 0, mode_pending = 0;
    // The reference is needed: the call that fills it may come behind a copy.
    const auto tell = [&number](int result, const auto& found) {
      number = static_cast<Count>(found);
      return result;
    };
    switch (fact) {
      case Fact::is_instance:
        return tell(call(functions_.is_instance, device, &first), first);
      case Fact::mig_mode:
        return tell(call(functions_.mig_mode, device, &first, &pending), first);
      case Fact::compute_mode:
        return tell(call(functions_.compute_mode, device, &mode), mode);
      case Fact::ecc_mode:
        return tell(call(functions_.ecc_mode, device, &mode, &mode_pending), mode);
      case Fact::uncorrected_errors:
        return call(functions_.ecc_errors, device, uncorrected, since_driver_load, &number);
      case Fact::pages_pending:
        return tell(call(functions_.pages_pending, device, &mode), mode);
      case Fact::rows_pending:
        return tell(call(functions_.remapped_rows, device, &first, &other, &pending, &failed),
                    pending);
      case Fact::remapping_failed:
        return tell(call(functions_.remapped_rows, device, &first, &other, &pending, &failed),
                    failed);
      case Fact::pcie_width:
        return tell(call(functions_.pcie_width, device, &first), first);
      case Fact::max_pcie_width:
        return tell(call(functions_.max_pcie_width, device, &first), first);
      case Fact::pcie_generation:
        return tell(call(functions_.pcie_generation, device, &first), first);
      case Fact::max_pcie_generation:
        return tell(call(functions_.max_pcie_generation, device, &first), first);
      case Fact::nvlinks:
        return count_nvlinks(device, number);
    }
    return not_supported;
  }

  int find_processes(Device device, std::vector<Process>& processes) override {
    std::vector<ProcessInfo> infos;
    int result = too_few_places;
    // More may come between two calls.
    constexpr int times = 5;
    for (int i = 0; i < times && result == too_few_places; ++i) {
      auto count = static_cast<unsigned int>(infos.size());
      result = call(functions_.processes, device, &count, infos.data());
      infos.resize(count);
    }
    if (result != 0) return result;
    processes.clear();
    for (const ProcessInfo& info : infos) {
      Process& process = processes.emplace_back(Process{.number = info.number});
      if (info.bytes != no_amount) process.bytes = static_cast<std::int64_t>(info.bytes);
    }
    return 0;
  }
  int find_whole(Device instance, Device& whole) override {
    return call(functions_.whole_of_instance, instance, &whole);
  }
  int cuda_version(int& version) override { return call(functions_.cuda_version, &version); }

 private:
  template <class... Parameters, class... Arguments>
  static int call(int (*function)(Parameters...), Arguments... arguments) {
    return function == nullptr ? not_supported : function(arguments...);
  }

  /// A GPU has links from 0 on, and refuses the first number beyond them.
  int count_nvlinks(Device device, Count& number) {
    number = 0;
    for (unsigned link = 0; link < max_nvlinks; ++link) {
      int is_active = 0;
      const int result = call(functions_.nvlink_state, device, link, &is_active);
      if (result != 0) return link == 0 ? result : 0;
      if (is_active != 0) ++number;
    }
    return 0;
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

/// Functions that came later, whose names changed, or that drivers are about to drop.
void find_optional(void* library, Functions& functions) {
  std::string ignored;
  const auto get = [&](auto& function, const char* name) {
    return find(library, function, name, ignored);
  };
  if (!get(functions.throttle_reasons, "nvmlDeviceGetCurrentClocksEventReasons"))
    get(functions.throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  get(functions.temperature, "nvmlDeviceGetTemperature");
  get(functions.memory_info, "nvmlDeviceGetMemoryInfo");
  get(functions.is_instance, "nvmlDeviceIsMigDeviceHandle");
  get(functions.whole_of_instance, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
  get(functions.mig_mode, "nvmlDeviceGetMigMode");
  get(functions.compute_mode, "nvmlDeviceGetComputeMode");
  get(functions.ecc_mode, "nvmlDeviceGetEccMode");
  get(functions.ecc_errors, "nvmlDeviceGetTotalEccErrors");
  get(functions.pages_pending, "nvmlDeviceGetRetiredPagesPendingStatus");
  get(functions.remapped_rows, "nvmlDeviceGetRemappedRows");
  get(functions.pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
  get(functions.max_pcie_width, "nvmlDeviceGetMaxPcieLinkWidth");
  get(functions.pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration");
  get(functions.max_pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
  get(functions.nvlink_state, "nvmlDeviceGetNvLinkState");
  get(functions.processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  // The first one asks the libcuda that a process would load: a newer one may stand beside the
  // driver's own.
  if (!get(functions.cuda_version, "nvmlSystemGetCudaDriverVersion_v2"))
    get(functions.cuda_version, "nvmlSystemGetCudaDriverVersion");
}

}  // namespace

std::shared_ptr<Library> library_of(const Functions& functions) {
  return std::make_shared<LoadedLibrary>(functions);
}

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
  find_optional(library, functions);
  const int result = functions.init();
  if (result != 0) return {nullptr, file + ": " + functions.error_string(result)};
  return {library_of(functions), ""};
}

}  // namespace dstune::nvml
