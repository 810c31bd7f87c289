#include "dstune/device/energy.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"
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

/// One counter of the kernel, in microjoules.
struct Zone {
  std::string name;
  std::string energy_path;
  std::int64_t range_uj = 0;  ///< after which it begins at 0 again
  std::int64_t last_uj = 0;
};

/// Throws IoError.
std::int64_t read_number(const std::string& path) {
  const std::string text = read_file(path);
  std::int64_t number = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc{})
    throw IoError(path + ": no number");
  return number;
}

std::string read_word(const std::string& path) {
  const std::string text = read_file(path);
  return text.substr(0, text.find('\n'));
}

class PowercapMeter : public EnergyMeter {
 public:
  explicit PowercapMeter(std::vector<Zone> zones) : zones_(std::move(zones)) {}

  std::optional<double> joules() override {
    try {
      for (Zone& zone : zones_) {
        const std::int64_t now_uj = read_number(zone.energy_path);
        total_uj_ += now_uj - zone.last_uj + (now_uj < zone.last_uj ? zone.range_uj : 0);
        zone.last_uj = now_uj;
      }
    } catch (const IoError&) {
      is_lost_ = true;
    }
    if (is_lost_) return std::nullopt;
    return static_cast<double>(total_uj_) * 1e-6;
  }

  [[nodiscard]] std::string description() const override {
    std::string text;
    for (const Zone& zone : zones_) text += (text.empty() ? "" : ", ") + zone.name;
    return text;
  }

 private:
  std::vector<Zone> zones_;
  std::int64_t total_uj_ = 0;
  bool is_lost_ = false;
};

/// Not "psys", which holds the packages, nor "core" and "uncore", which they hold.
bool is_counted(const std::string& name) {
  return name.starts_with("package") || name == "dram";
}

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

FoundEnergyMeter find_powercap_meter(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> paths;
  // Zones in zones are listed, too; those of intel-rapl-mmio are the same again.
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with("intel-rapl:"))
      paths.push_back(entry.path().string());
  if (paths.empty()) return {nullptr, "this host has no counters of energy (" + folder + ")"};
  std::sort(paths.begin(), paths.end());
  std::vector<Zone> zones;
  try {
    for (const std::string& path : paths) {
      const std::string name = read_word(path + "/name");
      if (!is_counted(name)) continue;
      const std::string energy_path = path + "/energy_uj";
      zones.push_back({name, energy_path, read_number(path + "/max_energy_range_uj"),
                       read_number(energy_path)});
    }
  } catch (const IoError& failed) {
    return {nullptr, failed.what()};
  }
  if (zones.empty()) return {nullptr, "no counter of a processor in " + folder};
  return {std::make_unique<PowercapMeter>(std::move(zones)), ""};
}

}  // namespace dstune
