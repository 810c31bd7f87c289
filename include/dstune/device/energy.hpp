#pragma once
/// How much energy experiments take. Local.

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dstune {

/// Counts the joules of the devices of a node: of all that runs on them, so that what it says is an
/// experiment's only where nothing else does.
class EnergyMeter {
 public:
  EnergyMeter() = default;
  virtual ~EnergyMeter() = default;
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;
  /// Joules since it was made; nothing once it could not be read. Counters begin again after a few
  /// minutes, which is noticed only where this is asked more often.
  virtual std::optional<double> joules() = 0;
  /// Names the counters: "package-0, dram".
  [[nodiscard]] virtual std::string description() const = 0;
};

/// A meter, or the reason why there is none.
struct FoundEnergyMeter {
  std::unique_ptr<EnergyMeter> meter;
  std::string reason;
};

/// The processors of this host and their memory, as Linux counts them below `folder`
/// (Documentation/power/powercap: energy_uj of the zones intel-rapl:<n>). Most systems let only
/// root read them, and virtual machines have none.
FoundEnergyMeter find_powercap_meter(const std::string& folder = "/sys/class/powercap");

/// Returns a meter of both together, or the only one that there is. The reason names what
/// is missing.
FoundEnergyMeter sum_of(FoundEnergyMeter first, FoundEnergyMeter second);

/// The processors of this host, as find_powercap_meter() finds them, and these of its GPUs.
FoundEnergyMeter find_energy_meter(const std::string& powercap_folder,
                                   const std::vector<std::string>& gpu_uuids);

}  // namespace dstune
