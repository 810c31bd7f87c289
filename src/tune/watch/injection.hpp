#pragma once
/// Faults on request, for tests of what must survive them: DSTUNE_INJECT in the environment, one or
/// more of `kind@world_rank:experiment` or `kind.moment@world_rank:experiment`, separated by
/// commas; the experiment may be `*`, any.
///
/// Kinds: `oom` (the rank's memory budget is nothing for that experiment), `disk` (likewise that of
/// its disk), `hang` (the rank stops answering), `die`, `segfault`, `abort` (it ends by that
/// signal), `stop` (likewise, but it is only stopped), `throw` (an exception), `lose_device` (one
/// with which the rank's device is lost), `throw_in_controller` (one on rank 0, which hears of the
/// outcome), `fault_in_controller`, `abort_in_controller` (likewise a crash).
///
/// Moments: `assigned` (the rank takes the experiment; an exception there is no failure of the
/// experiment but the program's), `building`, `ready` (before the first step; the default),
/// `warm_up` (in the first step, which its peers take part in; the default of `lose_device`),
/// `timing` (in the sixth), `reporting` (after the last), `going_on` (in the first step of a run
/// that goes on with what has stayed built).
///
/// And hosts on request, for tests of several on one: DSTUNE_PRETEND_HOSTS, a list of `name:ranks`
/// separated by commas, in the order of the ranks. And counters of energy: DSTUNE_POWERCAP, a
/// folder like /sys/class/powercap. Local.

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
  segfault,
  abort,
  stop,
  throws,
  loses_device,
  throws_in_controller,
  faults_in_controller,
  aborts_in_controller
};
enum class FaultMoment { assigned, building, ready, warm_up, timing, reporting, going_on };

struct Injection {
  Fault fault = Fault::none;
  FaultMoment moment = FaultMoment::ready;

  /// Does what is asked for where this is its moment.
  void commit(FaultMoment now, const Waiter& waiter) const;
};

/// The fault that the controller is asked for, which has heard of the experiment's outcome.
void commit_in_controller(const std::string& experiment);

/// Returns what is asked for at this rank in this experiment. Throws Error where DSTUNE_INJECT is
/// malformed.
Injection find_injection(int world_rank, const std::string& experiment);

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

/// The same workload, in which what is asked for happens. `waiter` outlives it.
std::unique_ptr<Workload> with_fault(std::unique_ptr<Workload> workload, const Injection& injection,
                                     const Waiter& waiter);

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
