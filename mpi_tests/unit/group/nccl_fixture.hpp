#pragma once
// One rank of a group whose others say what it says, and an NCCL that lets them do their part.

#include <array>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "communicator_set.hpp"
#include "dstune/base/error.hpp"
#include "fake_nccl_in_queues.hpp"
#include "nccl_group.hpp"
#include "thrown.hpp"

namespace dstune::test {

using namespace std::chrono_literals;

/// A group of the host with this rank alone in this process.
class LoneHost : public ProcessGroup {
 public:
  /// What another rank says, of what this one said.
  using Others = std::function<std::vector<double>(int rank, std::vector<double> mine)>;

  LoneHost(int group_rank, std::vector<int> world_ranks, Others others = nullptr)
      : ProcessGroup(group_rank, std::move(world_ranks)), others_(std::move(others)) {}

  void all_reduce(void*, std::int64_t, DType, Reduction, const RankRange&) override { refuse(); }
  void reduce_average(void*, std::int64_t, DType, int) override { refuse(); }
  void reduce_scatter_average(void*, const void*, std::int64_t, DType, const RankRange&) override {
    refuse();
  }
  void all_gather(void*, const void*, std::int64_t, DType, const RankRange&) override { refuse(); }
  void all_to_all(void*, const void*, std::int64_t, DType, const RankRange&) override { refuse(); }
  void exchange_into(std::span<const double> mine, std::span<double> all) override {
    for (int rank = 0; rank < size(); ++rank) {
      std::vector<double> said(mine.begin(), mine.end());
      if (others_ && rank != group_rank()) said = others_(rank, said);
      std::copy(said.begin(), said.end(),
                all.begin() + static_cast<std::ptrdiff_t>(rank * static_cast<int>(mine.size())));
    }
  }

 private:
  static void refuse() { throw LogicError("collectives of devices are not the host's"); }

  Others others_;
};

/// A set of communicators over the stand-in, of group rank 0.
class NcclTest : public testing::Test {
 protected:
  NcclTest() { fake_->set_polls(2); }
  ~NcclTest() override {
    set_.reset();
    // Aborts are other threads' work.
    for (int i = 0; i < 2000 && fake_->num_alive() > 0; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(fake_->num_alive(), 0);
    EXPECT_EQ(fake_->violations(), std::vector<std::string>{});
  }

  NcclCommunicatorSet& set() {
    if (!set_) set_ = std::make_unique<NcclCommunicatorSet>(options_);
    return *set_;
  }
  static Waiter soon(double seconds = 0.05) {
    return {Waiter::Clock::now() + std::chrono::duration_cast<Waiter::Clock::duration>(
                                       std::chrono::duration<double>(seconds)),
            nullptr, true};
  }
  static std::vector<int> ranks(int size) {
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 10);
    return all;
  }
  /// Another thread that ends this one's collectives of an attempt in a moment.
  [[nodiscard]] std::jthread interrupted_soon(std::uint64_t attempt, CollectiveError::Cause why) {
    return std::jthread([this, attempt, why] {
      std::this_thread::sleep_for(20ms);
      set().interrupt(attempt, why);
    });
  }
  /// The next group of these ranks, for the next attempt.
  std::unique_ptr<NcclGroup> join(const std::vector<int>& world_ranks, int group_rank = 0,
                                  LoneHost::Others others = nullptr, Waiter waiter = soon(20),
                                  bool is_risky = false) {
    auto host = std::make_unique<LoneHost>(group_rank, world_ranks, std::move(others));
    auto communicator = set().obtain(*host, ++attempt_, waiter, is_risky);
    const NcclGroup::Recording recording{
        .renewed = [this, world_ranks, waiter](ProcessGroup& same_host, const std::string&) {
          set().abandon(world_ranks);
          return set().obtain(same_host, attempt_, waiter);
        }};
    return std::make_unique<NcclGroup>(std::move(host), std::move(communicator), queues_, waiter,
                                       recording);
  }
  void wait_for_aborts() {
    for (int i = 0; i < 2000 && set().is_aborting(); ++i) std::this_thread::sleep_for(1ms);
  }

  DeferredQueues queues_{3, 1};
  std::shared_ptr<FakeNccl> fake_ = fake_nccl_in(queues_);
  NcclCommunicatorSet::Options options_{.library = fake_};
  std::unique_ptr<NcclCommunicatorSet> set_;
  std::uint64_t attempt_ = 0;
};

}  // namespace dstune::test
