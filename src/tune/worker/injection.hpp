#pragma once
/// Faults on request, for tests of what must survive them: DSTUNE_INJECT in the environment, one or
/// more of `kind@world_rank:experiment` separated by commas. kind: `oom` (the rank's memory budget
/// is nothing for that experiment), `disk` (likewise that of its disk), `hang` (the rank stops
/// answering before the first step), `die` (the rank kills itself there), `throw` (an exception
/// there), `throw_in_step` (one in the third step, which its peers take part in), `lose_device`
/// (likewise, and the rank's device is lost with it), `throw_in_worker` (one where the rank takes
/// the experiment, which is no failure of the experiment but the program's), `throw_in_controller`
/// (likewise on rank 0, which hears of its outcome). And hosts on request, for tests of several on
/// one: DSTUNE_PRETEND_HOSTS, a list of `name:ranks` separated by commas, in the order of the
/// ranks. And counters of energy: DSTUNE_POWERCAP, a folder like /sys/class/powercap. Local.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/device/device.hpp"
#include "dstune/train/workload.hpp"

namespace dstune {

enum class Fault {
  none,
  oom,
  disk,
  hang,
  die,
  throws,
  throws_in_step,
  loses_device,
  throws_in_worker,
  throws_in_controller
};

/// The fault that is asked for at this rank in this experiment.
Fault injected_fault(int world_rank, const std::string& experiment);

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

/// A host that is pretended, by its name and the world ranks on it.
struct PretendedHost {
  std::string name;
  int index = 0;
  std::vector<int> world_ranks;
};

/// The one of this rank, where some are asked for. Throws Error where the list is malformed or does
/// not have as many ranks as the job.
std::optional<PretendedHost> pretended_host(int world_rank, int world_size);

/// The folder that is asked for, else the system's.
std::string powercap_folder();

}  // namespace dstune
