#include "dstune/device/nvml.hpp"

#include <algorithm>
#include <utility>

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
