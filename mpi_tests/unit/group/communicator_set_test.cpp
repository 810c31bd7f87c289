#include <atomic>

#include "nccl_fixture.hpp"

namespace dstune {
namespace {

using nccl::Result;
using test::NcclTest;
using Calls = std::vector<std::string>;

class NcclCommunicatorSetTest : public NcclTest {
 protected:
  /// The others have the communicator of an attempt (0: none) and want to close another.
  static test::LoneHost::Others others(double has, double closes = 0) {
    return [=](int, std::vector<double> mine) {
      return mine.size() == 2 ? std::vector{has, closes} : mine;
    };
  }
  CollectiveError::Cause why_not(const std::vector<int>& world_ranks, const Waiter& waiter) {
    return test::why_ended([&] { join(world_ranks, 0, nullptr, waiter); });
  }
};

TEST_F(NcclCommunicatorSetTest, KeepsOneForTheNextGroupOfTheSameRanks) {
  join(ranks(3));
  join(ranks(3));
  EXPECT_EQ(fake_->calls(), (Calls{"get_unique_id", "init 0 of 3"}));
  join(ranks(2), 1);
  EXPECT_EQ(fake_->calls().back(), "init 1 of 2") << "the id comes from the first rank";
  EXPECT_EQ(set().size(), 2U);
  fake_->forget_calls();
  set_.reset();
  EXPECT_EQ(fake_->calls(), (Calls{"finalize 1", "destroy 1", "finalize 2", "destroy 2"}));
}

TEST_F(NcclCommunicatorSetTest, ARiskyOneSharesNothingBetweenItsParts) {
  const auto group = join(ranks(4), 0, nullptr, soon(20), true);
  float data = 0;
  group->all_reduce_average(&data, 1, DType::f32, {0, 1, 2});
  EXPECT_EQ(fake_->calls("init"), Calls{"init 0 of 4 sharing nothing"});
  EXPECT_EQ(fake_->calls("split"), Calls{"split 1 color 0 key 0 sharing nothing"});
}

TEST_F(NcclCommunicatorSetTest, WhatGoesWrongInARiskyOneLeavesTheOtherAlone) {
  join(ranks(2));
  const auto risky = [&] { return join(ranks(2), 0, nullptr, soon(20), true); };
  risky();
  EXPECT_EQ(fake_->calls("init"), (Calls{"init 0 of 2", "init 0 of 2 sharing nothing"}));
  EXPECT_EQ(set().size(), 2U);
  set().abandon(ranks(2));
  wait_for_aborts();
  EXPECT_EQ(fake_->calls("abort"), Calls{"abort 2"}) << "that of the last attempt";
  join(ranks(2));
  EXPECT_EQ(fake_->calls("init").size(), 2U) << "it was kept";
  risky();
  EXPECT_EQ(fake_->calls("init").size(), 3U);
  // And the other way round.
  join(ranks(2));
  set().abandon(ranks(2));
  wait_for_aborts();
  EXPECT_EQ(fake_->calls("abort"), (Calls{"abort 2", "abort 1"}));
  EXPECT_EQ(set().size(), 1U);
}

TEST_F(NcclCommunicatorSetTest, ConnectingForEverIsAbortedAtTheDeadline) {
  fake_->never_end("init");
  EXPECT_EQ(why_not(ranks(2), soon(0.1)), CollectiveError::Cause::deadline);
  wait_for_aborts();
  EXPECT_EQ(fake_->calls("abort"), Calls{"abort 1"});
  EXPECT_EQ(fake_->calls("finalize"), Calls{});
  EXPECT_EQ(set().size(), 0U);
  join(ranks(2));
  EXPECT_EQ(fake_->calls("init").size(), 2U);
}

TEST_F(NcclCommunicatorSetTest, ConnectingHasALimitOfItsOwn) {
  options_.connect_limit_s = 0.1;
  fake_->never_end("init");
  EXPECT_EQ(why_not(ranks(2), soon(60)), CollectiveError::Cause::deadline);
}

TEST_F(NcclCommunicatorSetTest, SplittingForEverIsAbortedWithTheParent) {
  const auto group = join(ranks(4), 0, nullptr, soon(1));
  fake_->never_end("split");
  float data = 0;
  EXPECT_THROW(group->all_reduce_average(&data, 1, DType::f32, {0, 1, 2}), CollectiveError);
  wait_for_aborts();
  // NCCL's source (init.cc, ncclCommInitRankFunc): the handle of what was not finished is written.
  EXPECT_EQ(fake_->calls("abort"), (Calls{"abort 1", "abort 2"}));
}

TEST_F(NcclCommunicatorSetTest, AnErrorWhileConnectingIsThatOfTheRankThatHasIt) {
  fake_->fail_behind("init", Result::unhandled_cuda_error);
  EXPECT_THROW(join(ranks(2)), DeviceError);
  fake_->fail_behind("init", Result::remote_error);
  EXPECT_THROW(join(ranks(2)), CollectiveError);
  fake_->fail("init", Result::system_error);
  EXPECT_THROW(join(ranks(2)), DeviceError);
  wait_for_aborts();
  EXPECT_EQ(fake_->calls("abort"), (Calls{"abort 1", "abort 2", "abort 3"}));
  EXPECT_EQ(set().size(), 0U);
}

TEST_F(NcclCommunicatorSetTest, NoIdIsEverybodysError) {
  fake_->fail("get_unique_id", Result::system_error);
  EXPECT_EQ(why_not(ranks(2), soon(20)), CollectiveError::Cause::aborted);
  EXPECT_EQ(fake_->calls("init"), Calls{});
}

TEST_F(NcclCommunicatorSetTest, OneThatAPeerHasNotIsAbortedAndMadeAnew) {
  join(ranks(2));
  join(ranks(2), 0, others(0));
  wait_for_aborts();
  EXPECT_EQ(fake_->calls("abort"), Calls{"abort 1"});
  EXPECT_EQ(fake_->calls("init").size(), 2U);
  // The same ranks had another since.
  join(ranks(2), 0, others(1));
  EXPECT_EQ(fake_->calls("init").size(), 3U);
}

TEST_F(NcclCommunicatorSetTest, TheLeastRecentlyUsedGoesFirst) {
  options_.max_communicators = 2;
  join({0, 1});
  join({0, 2});
  join({0, 1});
  fake_->forget_calls();
  join({0, 2, 3});
  EXPECT_EQ(fake_->calls(), (Calls{"finalize 2", "destroy 2", "get_unique_id", "init 0 of 3"}));
  EXPECT_EQ(set().size(), 2U);
  fake_->forget_calls();
  join({0, 1});
  EXPECT_EQ(fake_->calls(), Calls{});
}

// NCCL's ncclCommDestroy waits for all ranks of the node (init.cc, commFree; proxy.cc).
TEST_F(NcclCommunicatorSetTest, WhatNotAllOfItsRanksCloseIsAbortedAndNobodyNeedsItsEnd) {
  options_.max_communicators = 1;
  options_.abort_limit_s = options_.close_limit_s = 0.05;
  join({0, 1});
  fake_->let_aborts_hang(true);
  fake_->let_destroys_hang(true);
  join({0, 2});
  EXPECT_FALSE(set().is_aborting());
  EXPECT_NO_THROW(join({0, 2}));
  EXPECT_EQ(fake_->calls("finalize"), Calls{});
  fake_->let_aborts_hang(false);
  fake_->let_destroys_hang(false);
}

TEST_F(NcclCommunicatorSetTest, APeerThatDoesNotCloseItsOwnHoldsUpNobodyForEver) {
  options_.close_limit_s = 0.5;
  join(ranks(2));
  join(ranks(3));
  fake_->let_destroys_hang(true);
  set_.reset();
  EXPECT_EQ(fake_->calls("destroy"), (Calls{"destroy 1", "destroy 2"}));
  fake_->let_destroys_hang(false);
}

TEST_F(NcclCommunicatorSetTest, WhatPeersCloseIsClosedTheOldestFirst) {
  options_.max_communicators = 3;
  join({0, 1});
  join({0, 2});
  join({0, 3});
  fake_->forget_calls();
  // This rank would close that of attempt 1, a peer that of attempt 2, and 17 is none of here.
  join({0, 1, 2, 3}, 0, [](int rank, std::vector<double> mine) {
    if (mine.size() == 2) mine = {0, rank == 1 ? 2.0 : rank == 2 ? 17.0 : 0.0};
    return mine;
  });
  EXPECT_EQ(fake_->calls(), (Calls{"finalize 1", "destroy 1", "finalize 2", "destroy 2",
                                   "get_unique_id", "init 0 of 4"}));
}

TEST_F(NcclCommunicatorSetTest, WhatCanNotBeFinalizedIsAborted) {
  options_.close_limit_s = 0.05;
  join(ranks(2));
  fake_->never_end("finalize");
  set_.reset();
  EXPECT_EQ(fake_->calls("finalize"), Calls{"finalize 1"});
  EXPECT_EQ(fake_->calls("abort"), Calls{"abort 1"});
  EXPECT_EQ(fake_->calls("destroy"), Calls{});
}

// Of a peer that does not end its own NCCL waits, in some versions.
TEST_F(NcclCommunicatorSetTest, AnAbortThatHangsHoldsUpTheNextGroupOnceAndNothingElse) {
  options_.abort_limit_s = 0.2;
  join(ranks(2));
  fake_->let_aborts_hang(true);
  set().abandon(ranks(2));
  EXPECT_TRUE(set().is_aborting());
  EXPECT_EQ(why_not(ranks(3), Waiter(
                                  Waiter::Clock::time_point::max(), [] { return true; }, true)),
            CollectiveError::Cause::aborted);
  EXPECT_EQ(why_not(ranks(3), soon(0.05)), CollectiveError::Cause::deadline);
  EXPECT_EQ(fake_->calls("init").size(), 1U);
  const auto began = Waiter::Clock::now();
  join(ranks(3));
  EXPECT_GT(Waiter::Clock::now() - began, std::chrono::milliseconds(150));
  EXPECT_FALSE(set().is_aborting());
  EXPECT_NO_THROW(join(ranks(2)));
  EXPECT_EQ(fake_->calls("init").size(), 3U);
  set().abandon(ranks(3));
  EXPECT_TRUE(set().is_aborting()) << "the next one counts";
  fake_->let_aborts_hang(false);
}

TEST_F(NcclCommunicatorSetTest, NothingIsCalledOnADeviceThatWasGivenUp) {
  join(ranks(2));
  set().give_up();
  const Calls before = fake_->calls();
  set().abandon(ranks(2));
  set_.reset();
  EXPECT_EQ(fake_->calls(), before);
  EXPECT_EQ(fake_->num_alive(), 1) << "as it was";
  fake_->forget_alive();
}

// One that shares nothing may be stuck behind another, which only that one's own abort ends.
TEST_F(NcclCommunicatorSetTest, ThreadsThatAbortBeginOnTheDevice) {
  std::atomic<int> threads = 0;
  options_.begin_thread = [&] {
    ++threads;
    if (threads == 3) throw DeviceError("lost");
  };
  float data = 0;
  for (const bool is_risky : {false, true}) {
    join(ranks(4), 0, nullptr, soon(20), is_risky)
        ->all_reduce_average(&data, 1, DType::f32, {0, 1, 2});
    set().abandon(ranks(4));
    wait_for_aborts();
    EXPECT_EQ(threads, is_risky ? 3 : 1);
  }
  EXPECT_EQ(fake_->calls("abort").size(), 4U);
}

TEST_F(NcclCommunicatorSetTest, TellsWhatTheDeviceHasLess) {
  std::int64_t free_bytes = 1000;
  options_.free_bytes = [&] { return free_bytes -= 100; };
  const auto group = join(ranks(4));
  EXPECT_EQ(set().device_bytes(), 100);
  float data = 0;
  group->all_reduce_average(&data, 1, DType::f32, {0, 1, 2});
  group->all_reduce_average(&data, 1, DType::f32, {0, 1, 2});
  EXPECT_EQ(set().device_bytes(), 200) << "once for the part";
  set().abandon(ranks(4));
  EXPECT_EQ(set().device_bytes(), 0);
}

}  // namespace
}  // namespace dstune
