#include "dstune/device/energy.hpp"

#include <utility>

#include "dstune/device/nvml.hpp"

namespace dstune {
namespace {

class SumOfMeters : public EnergyMeter {
 public:
  SumOfMeters(std::unique_ptr<EnergyMeter> first, std::unique_ptr<EnergyMeter> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  std::optional<double> joules() override {
    const std::optional<double> first = first_->joules();
    const std::optional<double> second = second_->joules();
    if (!first || !second) return std::nullopt;
    return *first + *second;
  }
  [[nodiscard]] std::string description() const override {
    return first_->description() + ", " + second_->description();
  }

 private:
  std::unique_ptr<EnergyMeter> first_, second_;
};

}  // namespace

FoundEnergyMeter sum_of(FoundEnergyMeter first, FoundEnergyMeter second) {
  std::string reason = first.reason;
  if (!reason.empty() && !second.reason.empty()) reason += "; ";
  reason += second.reason;
  if (!first.meter) return {std::move(second.meter), std::move(reason)};
  if (!second.meter) return {std::move(first.meter), std::move(reason)};
  return {std::make_unique<SumOfMeters>(std::move(first.meter), std::move(second.meter)), ""};
}

FoundEnergyMeter find_energy_meter(const std::string& powercap_folder,
                                   const std::vector<std::string>& gpu_uuids) {
  FoundEnergyMeter processors = find_powercap_meter(powercap_folder);
  if (gpu_uuids.empty()) return processors;
  return sum_of(std::move(processors), nvml::find_meter(nvml::find_library(), gpu_uuids));
}

}  // namespace dstune
