#pragma once
/// A GPU's setup and health, as its driver and CUDA tell: a job on it should know them before it
/// begins. Local.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dstune/device/gpu_state.hpp"

namespace dstune {

/// A process that computes on a GPU.
struct GpuProcess {
  int number = 0;
  std::string name{};  ///< "" where this process does not see it
  std::optional<std::int64_t> bytes{};
};

/// Nothing stands for what is not known: nobody tells, or the driver is older than the question.
/// The processes on a part of a GPU (MIG) are the part's, and all else is the whole GPU's.
struct GpuFacts {
  std::string uuid{};  ///< "": the rank has no GPU
  std::optional<bool> is_instance{}, has_mig{};
  std::optional<std::string> compute_mode{};  ///< "default", "exclusive process", "prohibited"
  bool has_mps = false;                       ///< the control pipe of MPS is there
  std::optional<bool> has_ecc{};
  std::optional<std::int64_t> uncorrected_errors{};  ///< of its memory, since the driver was loaded
  std::optional<bool> repair_pending{};  ///< a reset retires pages, or remaps rows, of its memory
  std::optional<bool> repair_failed{};   ///< a row could not be remapped
  std::optional<std::vector<GpuProcess>> processes{};
  std::optional<int> sm_clock_mhz{}, max_sm_clock_mhz{}, memory_clock_mhz{}, max_memory_clock_mhz{};
  std::optional<std::int64_t> throttle_reasons{};  ///< as throttle_text() reads them
  std::optional<int> pcie_width{}, max_pcie_width{}, pcie_generation{}, max_pcie_generation{};
  std::optional<int> nvlinks{};         ///< that are active
  std::map<std::string, bool> peers{};  ///< UUID of each other GPU it sees → peer access
  std::optional<int> driver_cuda{};     ///< the newest that the driver supports: 12040 is 12.4
  std::optional<int> runtime_cuda{};    ///< what this program was built with
};

/// Facts that do not change while it works, and who computes there. `uuid` is as CUDA has it, of a
/// whole GPU or of a part. Nothing is known without a driver.
[[nodiscard]] GpuFacts facts_of_gpu(const std::shared_ptr<GpuDriver>& driver,
                                    const std::string& uuid);
/// Clocks, what lowers them, and the PCIe link: a GPU that is idle lowers all three, so it has to
/// be asked right behind work.
void add_speeds(const std::shared_ptr<GpuDriver>& driver, GpuFacts& facts);

/// Tells whether MPS has its control pipe there; null stands for its usual folder.
[[nodiscard]] bool has_mps_pipe(const char* folder);

}  // namespace dstune
