#include "watch/injection.hpp"

#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"

namespace dstune {
namespace {

constexpr std::array<std::pair<std::string_view, Fault>, 12> faults{
    {{"oom", Fault::oom},
     {"disk", Fault::disk},
     {"hang", Fault::hang},
     {"die", Fault::die},
     {"segfault", Fault::segfault},
     {"abort", Fault::abort},
     {"stop", Fault::stop},
     {"throw", Fault::throws},
     {"lose_device", Fault::loses_device},
     {"throw_in_controller", Fault::throws_in_controller},
     {"fault_in_controller", Fault::faults_in_controller},
     {"abort_in_controller", Fault::aborts_in_controller}}};
constexpr std::array<std::pair<std::string_view, FaultMoment>, 7> moments{
    {{"assigned", FaultMoment::assigned},
     {"building", FaultMoment::building},
     {"ready", FaultMoment::ready},
     {"warm_up", FaultMoment::warm_up},
     {"timing", FaultMoment::timing},
     {"reporting", FaultMoment::reporting},
     {"going_on", FaultMoment::going_on}}};

/// Steps from 0: the first one is never timed.
constexpr std::int64_t warm_up_step = 0, timed_step = 5;

template <class Value, std::size_t size>
Value value_of(std::string_view word,
               const std::array<std::pair<std::string_view, Value>, size>& values) {
  for (const auto& [name, value] : values)
    if (name == word) return value;
  throw Error("DSTUNE_INJECT: unknown word \"" + std::string(word) + "\"");
}

/// `kind` or `kind.moment`
Injection injection_of(std::string_view what) {
  const std::size_t dot = what.find('.');
  Injection injection{.fault = value_of(what.substr(0, dot), faults)};
  if (dot != std::string_view::npos)
    injection.moment = value_of(what.substr(dot + 1), moments);
  else if (injection.fault == Fault::loses_device)
    injection.moment = FaultMoment::warm_up;
  return injection;
}

class FaultyWorkload : public Workload {
 public:
  FaultyWorkload(std::unique_ptr<Workload> workload, const Injection& injection,
                 const Waiter& waiter)
      : workload_(std::move(workload)), injection_(injection), waiter_(waiter) {}

  [[nodiscard]] WorkloadTraits traits() const override { return workload_->traits(); }
  void build() override {
    injection_.commit(FaultMoment::building, waiter_);
    workload_->build();
  }
  void initialize() override { workload_->initialize(); }
  StepSample step(std::int64_t step) override {
    if (is_first_ && step > 0) injection_.commit(FaultMoment::going_on, waiter_);
    is_first_ = false;
    if (step == warm_up_step) injection_.commit(FaultMoment::warm_up, waiter_);
    if (step == timed_step) injection_.commit(FaultMoment::timing, waiter_);
    return workload_->step(step);
  }
  [[nodiscard]] WarmupNeed warmup_need() const override { return workload_->warmup_need(); }
  void note_warm_after(int steps) override { workload_->note_warm_after(steps); }
  [[nodiscard]] PeakMemory peak_memory() const override {
    injection_.commit(FaultMoment::reporting, waiter_);
    return workload_->peak_memory();
  }
  [[nodiscard]] double flops_per_step() const override { return workload_->flops_per_step(); }

 private:
  std::unique_ptr<Workload> workload_;
  Injection injection_;
  const Waiter& waiter_;
  bool is_first_ = true;  ///< of the run's steps
};

}  // namespace

Injection find_injection(int world_rank, const std::string& experiment) {
  const char* text = std::getenv("DSTUNE_INJECT");
  if (text == nullptr || *text == '\0') return {};
  const std::string rank = std::to_string(world_rank);
  for (const std::string_view one : split(text, ',')) {
    const std::size_t at = one.find('@');
    const std::size_t colon = one.find(':', at);
    if (colon == std::string_view::npos)
      throw Error("DSTUNE_INJECT: expected kind@rank:experiment");
    const Injection injection = injection_of(one.substr(0, at));
    const std::string_view name = one.substr(colon + 1);
    if (one.substr(at + 1, colon - at - 1) == rank && (name == "*" || name == experiment))
      return injection;
  }
  return {};
}

void Injection::commit(FaultMoment now, const Waiter& waiter) const {
  if (moment != now) return;
  switch (fault) {
    case Fault::hang:
      waiter.until([] { return false; }, "an injected hang");
      break;
    case Fault::die:
      std::raise(SIGKILL);
      break;
    case Fault::segfault:
      std::raise(SIGSEGV);
      break;
    case Fault::abort:
      std::raise(SIGABRT);
      break;
    case Fault::stop:
      std::raise(SIGSTOP);
      break;
    case Fault::throws:
      throw Error("injected failure");
    case Fault::loses_device:
      throw Error("injected loss of the device");
    case Fault::none:
    case Fault::oom:
    case Fault::disk:
    case Fault::throws_in_controller:
    case Fault::faults_in_controller:
    case Fault::aborts_in_controller:
      break;
  }
}

void commit_in_controller(const std::string& experiment) {
  switch (find_injection(0, experiment).fault) {
    case Fault::throws_in_controller:
      throw Error("injected failure of the controller");
    case Fault::faults_in_controller: {
      volatile int* volatile nowhere = nullptr;
      *nowhere = 1;
      break;
    }
    case Fault::aborts_in_controller:
      std::abort();
    default:
      break;
  }
}

std::string powercap_folder() {
  const char* text = std::getenv("DSTUNE_POWERCAP");
  return text == nullptr || *text == '\0' ? "/sys/class/powercap" : text;
}

MemoryFault::MemoryFault(Device& device, Fault fault)
    : budget_(fault == Fault::disk ? device.disk_budget() : device.budget()),
      old_limit_bytes_(budget_.limit_bytes()) {
  if (fault != Fault::oom && fault != Fault::disk) return;
  // Memory that an earlier experiment left would be enough for this one.
  if (fault == Fault::oom) device.arena().free();
  budget_.set_limit_bytes(0);
}

MemoryFault::~MemoryFault() {
  budget_.set_limit_bytes(old_limit_bytes_);
}

std::unique_ptr<Workload> with_fault(std::unique_ptr<Workload> workload, const Injection& injection,
                                     const Waiter& waiter) {
  if (injection.fault == Fault::none) return workload;
  return std::make_unique<FaultyWorkload>(std::move(workload), injection, waiter);
}

std::optional<PretendedHost> pretended_host(int world_rank, int world_size) {
  const char* text = std::getenv("DSTUNE_PRETEND_HOSTS");
  if (text == nullptr || *text == '\0') return std::nullopt;
  std::optional<PretendedHost> own;
  int index = 0;
  int first_rank = 0;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const std::size_t colon = one.find(':');
    int ranks = 0;
    if (colon != std::string_view::npos) {
      std::from_chars(one.data() + colon + 1, one.data() + one.size(), ranks);
    }
    if (ranks < 1 || ranks > world_size - first_rank) break;
    PretendedHost host{std::string(one.substr(0, colon)), index++, {}};
    for (int i = 0; i < ranks; ++i) host.world_ranks.push_back(first_rank++);
    if (world_rank >= host.world_ranks.front() && world_rank < first_rank) own = std::move(host);
  }
  if (!rest.empty() || first_rank != world_size) {
    throw Error("DSTUNE_PRETEND_HOSTS: expected name:ranks,name:ranks with the ranks of the job");
  }
  return own;
}

}  // namespace dstune
