#pragma once
/// The stand-in for NCCL in queues that wait for the host.

#include "deferred_queues.hpp"
#include "fake_nccl.hpp"

namespace dstune::test {

class DeferredStreams : public NcclStreams {
 public:
  /// The waiter ends a queue's wait for peers.
  explicit DeferredStreams(DeferredQueues& queues, Waiter waiter = {})
      : queues_(queues), waiter_(std::move(waiter)) {}

  End add(nccl::Comm /*comm*/, void* stream, Task task) override {
    queues_.add_to(stream, [this, task = std::move(task)] { waiter_.until(task(), "a peer"); });
    return nullptr;
  }
  [[nodiscard]] bool is_idle(const ncclComm& /*comm*/) const override {
    return queues_.num_waiting() == 0;
  }
  [[nodiscard]] std::string name(void* stream) const override {
    return " in queue " + std::to_string(queues_.number_of(stream));
  }

 private:
  DeferredQueues& queues_;
  Waiter waiter_;
};

/// Both outlive it.
inline std::shared_ptr<FakeNccl> fake_nccl_in(
    DeferredQueues& queues, const std::optional<std::filesystem::path>& folder = std::nullopt,
    const Waiter& waiter = {}) {
  return std::make_shared<FakeNccl>(std::make_unique<DeferredStreams>(queues, waiter), folder);
}

}  // namespace dstune::test
