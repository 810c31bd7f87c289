#include "dstune/device/nvml.hpp"

#include <algorithm>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune::nvml {
namespace {

struct CountedGpu {
  Device device;
  Library::Count began_mj;
};

class GpuMeter : public EnergyMeter {
 public:
  GpuMeter(std::shared_ptr<Library> library, std::vector<CountedGpu> gpus)
      : library_(std::move(library)), gpus_(std::move(gpus)) {}

  std::optional<double> joules() override {
    Library::Count total_mj = 0;
    for (const CountedGpu& gpu : gpus_) {
      Library::Count now_mj = 0;
      // A counter that begins again, as after a reset of the GPU, has lost what was used.
      if (library_->energy_mj(gpu.device, now_mj) != 0 || now_mj < gpu.began_mj) is_lost_ = true;
      if (is_lost_) return std::nullopt;
      total_mj += now_mj - gpu.began_mj;
    }
    return static_cast<double>(total_mj) * 1e-3;
  }

  [[nodiscard]] std::string description() const override {
    return std::to_string(gpus_.size()) + (gpus_.size() == 1 ? " GPU" : " GPUs");
  }

 private:
  std::shared_ptr<Library> library_;
  std::vector<CountedGpu> gpus_;
  bool is_lost_ = false;
};

}  // namespace

std::string throttle_text(std::uint64_t reasons) {
  // Idle (1), set clocks (2), boost in step with others (16) and display clocks (256) are no fault.
  constexpr std::pair<std::uint64_t, const char*> names[] = {
      {4, "power cap"},     {8, "hardware slowdown"}, {32, "heat"}, {64, "heat, by the hardware"},
      {128, "power brake"},
  };
  std::string text;
  for (const auto& [bit, name] : names) {
    if ((reasons & bit) == 0) continue;
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

GpuState sample_gpu(Library& library, const std::string& uuid) {
  Device device = nullptr;
  if (const int result = library.find_device(uuid, device); result != 0)
    throw DeviceError("NVML: " + uuid + ": " + library.error_text(result));
  using Clock = Library::Clock;
  const auto ask = [&](double unit, auto function, auto... of) -> std::optional<double> {
    std::uint32_t number = 0;
    if ((library.*function)(device, of..., number) != 0) return std::nullopt;
    return unit * number;
  };
  GpuState state;
  state.sm_clock_mhz = ask(1, &Library::clock_mhz, Clock::sm);
  state.max_sm_clock_mhz = ask(1, &Library::max_clock_mhz, Clock::sm);
  state.memory_clock_mhz = ask(1, &Library::clock_mhz, Clock::memory);
  state.power_w = ask(1e-3, &Library::power_mw);
  state.temperature_c = ask(1, &Library::temperature_c);
  Library::Count reasons = 0;
  if (library.throttle_reasons(device, reasons) == 0) {
    state.throttle_reasons = reasons;
    state.throttled_by = throttle_text(reasons);
  }
  return state;
}

std::optional<GpuState> try_sample(const std::shared_ptr<Library>& library,
                                   const std::string& uuid) {
  if (!library) return std::nullopt;
  try {
    return sample_gpu(*library, uuid);
  } catch (const DeviceError&) {
    return std::nullopt;
  }
}

std::optional<std::int64_t> free_bytes(const std::shared_ptr<Library>& library,
                                       const std::string& uuid) {
  Device device = nullptr;
  Library::Count bytes = 0;
  if (!library || library->find_device(uuid, device) != 0 ||
      library->free_bytes(device, bytes) != 0)
    return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

FoundEnergyMeter find_meter(const FoundLibrary& found, std::vector<std::string> uuids) {
  if (!found.library) return {nullptr, found.reason};
  if (uuids.empty()) return {nullptr, "no GPU"};
  // Ranks may share one.
  std::sort(uuids.begin(), uuids.end());
  uuids.erase(std::unique(uuids.begin(), uuids.end()), uuids.end());
  std::vector<CountedGpu> gpus;
  for (const std::string& uuid : uuids) {
    CountedGpu gpu{};
    int result = found.library->find_device(uuid, gpu.device);
    if (result == 0) result = found.library->energy_mj(gpu.device, gpu.began_mj);
    if (result != 0)
      return {nullptr, "the energy of " + uuid + ": " + found.library->error_text(result)};
    gpus.push_back(gpu);
  }
  return {std::make_unique<GpuMeter>(found.library, std::move(gpus)), ""};
}

}  // namespace dstune::nvml
