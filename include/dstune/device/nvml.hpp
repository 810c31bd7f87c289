#pragma once
/// Facts on GPUs from NVIDIA's management library: the library of the driver, loaded when asked
/// for, or a stand-in. Numbers are as its manual has them (NVML API reference). All functions:
/// Local.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dstune/device/energy.hpp"

namespace dstune::nvml {

struct Opaque;
using Device = Opaque*;  ///< nvmlDevice_t

/// A fact that a GPU tells by one number. The value of now counts, where it also tells that from
/// the next reset on.
enum class Fact {
  is_instance,  ///< 1: it is a part of a GPU (MIG)
  mig_mode,     ///< 1: it is cut into parts
  compute_mode,
  ecc_mode,            ///< 1: its memory corrects errors
  uncorrected_errors,  ///< since the driver was loaded
  pages_pending,       ///< 1: pages of memory are to be retired
  rows_pending,        ///< 1: rows of memory are to be remapped
  remapping_failed,    ///< 1: a row could not be remapped
  pcie_width,
  max_pcie_width,
  pcie_generation,
  max_pcie_generation,  ///< with this host
  nvlinks,              ///< that are active
};

/// A process with a context on a GPU.
struct Process {
  std::uint32_t number = 0;
  std::optional<std::int64_t> bytes{};
};

/// Functions return nvmlReturn_t; 0 is success.
class Library {
 public:
  enum class Clock : int { sm = 1, memory = 2 };
  using Count = unsigned long long;

  Library() = default;
  virtual ~Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  [[nodiscard]] virtual std::string error_text(int result) = 0;
  /// "GPU-8932f937-…"
  virtual int find_device(const std::string& uuid, Device& device) = 0;
  /// Since the driver was loaded, in millijoules.
  virtual int energy_mj(Device device, Count& energy) = 0;
  virtual int power_mw(Device device, std::uint32_t& power) = 0;
  virtual int temperature_c(Device device, std::uint32_t& temperature) = 0;
  virtual int clock_mhz(Device device, Clock clock, std::uint32_t& frequency) = 0;
  virtual int max_clock_mhz(Device device, Clock clock, std::uint32_t& frequency) = 0;
  /// Bits, as throttle_text() names them.
  virtual int throttle_reasons(Device device, Count& reasons) = 0;
  /// Free bytes of its memory, for any user.
  virtual int free_bytes(Device device, Count& bytes) = 0;
  /// A library that is older than the question does not support it.
  virtual int ask(Device device, Fact fact, Count& number) = 0;
  virtual int find_processes(Device device, std::vector<Process>& processes) = 0;
  /// The GPU that an instance is a part of.
  virtual int find_whole(Device instance, Device& whole) = 0;
  /// The newest that the driver supports: 12040 is CUDA 12.4.
  virtual int cuda_version(int& version) = 0;
};

/// A library, or the reason why there is none.
struct FoundLibrary {
  std::shared_ptr<Library> library;
  std::string reason;
};
FoundLibrary find_library(const std::string& file = "libnvidia-ml.so.1");

/// Bytes of a GPU's memory that nobody uses; nothing where there is no library or no such GPU.
[[nodiscard]] std::optional<std::int64_t> free_bytes(const std::shared_ptr<Library>& library,
                                                     const std::string& uuid);

/// Counts these GPUs, all of one node, each once. Only those from Volta on count, and no instances
/// of MIG.
FoundEnergyMeter find_meter(const FoundLibrary& found, std::vector<std::string> uuids);

}  // namespace dstune::nvml
