#include "faults.hpp"

#include <csignal>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

/// A workload whose third step fails on this rank.
class FailingInStep : public ForwardingWorkload {
 public:
  FailingInStep(std::unique_ptr<Workload> workload, const char* reason)
      : ForwardingWorkload(std::move(workload)), reason_(reason) {}

  StepSample step(std::int64_t step) override {
    if (step == 2) throw Error(reason_);
    return ForwardingWorkload::step(step);
  }

 private:
  const char* reason_;
};

}  // namespace

MemoryFault::MemoryFault(Device& device, Fault fault)
    : budget_(fault == Fault::disk ? device.disk_budget() : device.budget()),
      old_limit_bytes_(budget_.limit_bytes()) {
  if (fault != Fault::oom && fault != Fault::disk) return;
  // What an earlier experiment left in memory would do for this one.
  if (fault == Fault::oom) device.arena().free();
  budget_.set_limit_bytes(0);
}

MemoryFault::~MemoryFault() {
  budget_.set_limit_bytes(old_limit_bytes_);
}

std::unique_ptr<Workload> with_fault(std::unique_ptr<Workload> workload, Fault fault) {
  if (fault != Fault::throws_in_step && fault != Fault::loses_device) return workload;
  return std::make_unique<FailingInStep>(std::move(workload), fault == Fault::throws_in_step
                                                                  ? "injected failure inside a step"
                                                                  : "injected loss of the device");
}

void commit_fault(Fault fault, const Waiter& waiter) {
  switch (fault) {
    case Fault::none:
    case Fault::oom:
    case Fault::disk:
    case Fault::throws_in_step:
    case Fault::loses_device:
    case Fault::throws_in_worker:
    case Fault::throws_in_controller:
      return;
    case Fault::hang:
      waiter.until([] { return false; }, "an injected hang");
      return;
    case Fault::die:
      std::raise(SIGKILL);
      return;
    case Fault::throws:
      throw Error("injected failure");
  }
}

}  // namespace dstune
