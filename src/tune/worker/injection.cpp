#include "worker/injection.hpp"

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

constexpr std::array<std::pair<std::string_view, Fault>, 9> kinds{
    {{"oom", Fault::oom},
     {"disk", Fault::disk},
     {"hang", Fault::hang},
     {"die", Fault::die},
     {"throw", Fault::throws},
     {"throw_in_step", Fault::throws_in_step},
     {"lose_device", Fault::loses_device},
     {"throw_in_worker", Fault::throws_in_worker},
     {"throw_in_controller", Fault::throws_in_controller}}};

/// A workload whose third step fails on this rank.
class FailingInStep : public Workload {
 public:
  FailingInStep(std::unique_ptr<Workload> workload, const char* reason)
      : workload_(std::move(workload)), reason_(reason) {}

  [[nodiscard]] WorkloadTraits traits() const override { return workload_->traits(); }
  void build() override { workload_->build(); }
  void initialize() override { workload_->initialize(); }
  StepSample step(std::int64_t step) override {
    if (step == 2) throw Error(reason_);
    return workload_->step(step);
  }
  [[nodiscard]] PeakMemory peak_memory() const override { return workload_->peak_memory(); }
  [[nodiscard]] double flops_per_step() const override { return workload_->flops_per_step(); }

 private:
  std::unique_ptr<Workload> workload_;
  const char* reason_;
};

}  // namespace

Fault injected_fault(int world_rank, const std::string& experiment) {
  const char* text = std::getenv("DSTUNE_INJECT");
  if (text == nullptr) return Fault::none;
  const std::string here = "@" + std::to_string(world_rank) + ":" + experiment;
  for (const std::string_view one : split(text, ','))
    for (const auto& [word, fault] : kinds)
      if (one == std::string(word) + here) return fault;
  return Fault::none;
}

std::string powercap_folder() {
  const char* text = std::getenv("DSTUNE_POWERCAP");
  return text == nullptr || *text == '\0' ? "/sys/class/powercap" : text;
}

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
  if (fault == Fault::hang) waiter.until([] { return false; }, "an injected hang");
  if (fault == Fault::die) std::raise(SIGKILL);
  if (fault == Fault::throws) throw Error("injected failure");
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
