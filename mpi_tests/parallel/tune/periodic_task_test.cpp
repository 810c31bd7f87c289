// A rank whose thread CUDA holds up, on groups of devices with stand-ins for queues and NCCL.
#include <atomic>

#include <gtest/gtest.h>

#include "dstune/comm/nodes.hpp"
#include "fake_nccl_in_queues.hpp"
#include "thrown.hpp"
#include "watch/waiting.hpp"

namespace dstune {
namespace {

using namespace std::chrono_literals;
using Clock = Waiter::Clock;

/// This rank's group of itself alone, which goes by NCCL.
class ListeningTest : public testing::Test {
 protected:
  ListeningTest() {
    GroupTable::Options options;
    options.device = DeviceGroupOptions{.queues = &queues_,
                                        .staging = staging_,
                                        .device_id = "GPU-" + std::to_string(world_.rank()),
                                        .nccl = {nccl_, ""},
                                        .nccl_alone = true};
    const Communicator node = world_.split_shared();
    groups_.emplace(world_, node, find_topology(world_, node), std::vector<std::vector<int>>{},
                    options);
  }
  ~ListeningTest() override { EXPECT_EQ(nccl_->violations(), std::vector<std::string>{}); }

  /// Why a collective behind one that holds this thread up ended.
  CollectiveError::Cause why_ended(Clock::time_point deadline) {
    const Waiter waiter(Clock::time_point::max(), nullptr, true);
    const auto group = groups_->join(std::array{world_.rank()}, ++attempt_, waiter);
    const PeriodicTask listener(
        1ms, [&] { interrupt_where_over(*groups_, attempt_, is_aborted_, deadline); });
    return test::why_ended([&] {
      nccl_->wait_until_aborted();
      float sum = 0;
      group->all_reduce_sum(&sum, 1, DType::f32);
    });
  }

  Communicator world_ = Communicator::world().duplicate();
  test::DeferredQueues queues_;
  std::shared_ptr<test::FakeNccl> nccl_ = test::fake_nccl_in(queues_);
  alignas(64) std::array<std::byte, 4096> staging_{};
  std::optional<GroupTable> groups_;
  std::uint64_t attempt_ = 0;
  std::atomic<bool> is_aborted_ = false;
};

TEST_F(ListeningTest, AStuckRankGoesOnAtTheDeadline) {
  EXPECT_EQ(why_ended(Clock::now() + 20ms), CollectiveError::Cause::deadline);
}

TEST_F(ListeningTest, AndWhereItsAttemptIsAborted) {
  is_aborted_ = true;
  EXPECT_EQ(why_ended(Clock::time_point::max()), CollectiveError::Cause::aborted);
}

}  // namespace
}  // namespace dstune
