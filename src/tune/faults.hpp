#pragma once
/// What the faults of DSTUNE_INJECT do (injection.hpp). Local.

#include <memory>

#include "dstune/base/wait.hpp"
#include "dstune/device/device.hpp"
#include "dstune/train/workload.hpp"
#include "dstune/tune/injection.hpp"

namespace dstune {

/// Takes the memory, or the disk, away for one experiment where that is asked for, and gives it
/// back.
class MemoryFault {
 public:
  MemoryFault(Device& device, Fault fault);
  ~MemoryFault();
  MemoryFault(const MemoryFault&) = delete;
  MemoryFault& operator=(const MemoryFault&) = delete;

 private:
  MemoryBudget& budget_;
  std::int64_t old_limit_bytes_;
};

/// The same workload, whose third step fails where that is asked for.
std::unique_ptr<Workload> with_fault(std::unique_ptr<Workload> workload, Fault fault);

/// What happens before the first step.
void commit_fault(Fault fault, const Waiter& waiter);

}  // namespace dstune
