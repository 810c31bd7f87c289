#pragma once
/// What an experiment runs on: memory, kernels and threads of one rank.

#include <cstdint>
#include <string>

#include "dstune/device/memory.hpp"
#include "dstune/kernels/kernels.hpp"

namespace dstune {

/// The CPU cores of one rank as a device. Its memory and the host's are the same here, but have a
/// budget and an arena each, so that what would not fit a device with memory of its own does not
/// fit here. Local.
class CpuDevice {
 public:
  /// The budgets of both memories get the limit.
  CpuDevice(std::int64_t memory_limit_bytes, int threads);

  [[nodiscard]] const kernels::Table& kernels() const { return *kernels_; }
  [[nodiscard]] MemoryBudget& budget() { return budget_; }
  [[nodiscard]] Arena& arena() { return arena_; }
  [[nodiscard]] MemoryBudget& host_budget() { return host_budget_; }
  [[nodiscard]] Arena& host_arena() { return host_arena_; }
  /// Of what is offloaded to a disk; without a limit of its own.
  [[nodiscard]] MemoryBudget& disk_budget() { return disk_budget_; }
  [[nodiscard]] int threads() const { return threads_; }
  /// "cpu (AMD EPYC, avx512_bf16, 2 threads)"
  [[nodiscard]] const std::string& description() const { return description_; }

 private:
  const kernels::Table* kernels_;
  int threads_;
  MemoryBudget budget_;
  Arena arena_;
  MemoryBudget host_budget_;
  Arena host_arena_;
  MemoryBudget disk_budget_;
  std::string description_;
};

/// Memory of this host that a process may use: the smaller of RAM and the cgroup's limit (v1, v2).
std::int64_t host_memory_bytes();
/// Resident bytes of this process, now and at most so far.
std::int64_t process_resident_bytes();
std::int64_t process_peak_resident_bytes();
/// The processor's clock now, as the system tells it; 0 where it does not.
double processor_clock_mhz();
/// The processor's name as the system tells it.
std::string processor_name();

}  // namespace dstune
