#include "nccl_fixture.hpp"

namespace dstune {
namespace {

using nccl::Result;
using test::NcclTest;
using test::thrown;
using test::why_ended;
using Calls = std::vector<std::string>;

class NcclGroupTest : public NcclTest {
 protected:
  std::array<float, 16> out_{}, in_{};
};

TEST_F(NcclGroupTest, AsksForTheCallOfEachVerbInTheUsedQueue) {
  const auto group = join(ranks(4));
  fake_->forget_calls();
  group->all_reduce_average(out_.data(), 5, DType::f32, {});
  queues_.use(1);
  group->all_reduce_sum(out_.data(), 6, DType::bf16);
  group->reduce_average(out_.data(), 7, DType::f16, 2);
  queues_.use(2);
  group->reduce_scatter_average(out_.data(), in_.data(), 4, DType::f32, {});
  group->all_gather(out_.data(), in_.data(), 3, DType::i8, {});
  queues_.use(0);
  group->all_to_all(out_.data(), in_.data(), 2, DType::i8, {});
  EXPECT_EQ(
      fake_->calls(),
      (Calls{"all_reduce average f32 5 of 1 in queue 0", "all_reduce sum bf16 6 of 1 in queue 1",
             "reduce average f16 7 to 2 of 1 in queue 1",
             "reduce_scatter average f32 4 of 1 in queue 2", "all_gather i8 3 of 1 in queue 2",
             "transfers 8 of 1 in queue 0"}));
  EXPECT_EQ(queues_.num_waiting(), 6U) << "enqueued, and nothing is waited for";
}

TEST_F(NcclGroupTest, AsksForNothingWhereThereIsNothing) {
  const auto group = join(ranks(2));
  fake_->forget_calls();
  group->all_reduce_average(nullptr, 0, DType::f32, {});
  group->all_reduce_sum(nullptr, 0, DType::f32);
  group->reduce_average(nullptr, 0, DType::f32, 1);
  group->reduce_scatter_average(nullptr, nullptr, 0, DType::f32, {});
  group->all_gather(nullptr, nullptr, 0, DType::f32, {});
  group->all_to_all(nullptr, nullptr, 0, DType::f32, {});
  EXPECT_EQ(fake_->calls(), Calls{});
  EXPECT_THROW(group->all_reduce_sum(out_.data(), 1, DType::i8), LogicError);
  EXPECT_THROW(group->all_gather(out_.data(), in_.data(), 1, DType::i8, {1, 1, 1}), LogicError);
}

TEST_F(NcclGroupTest, ExchangesByTheHosts) {
  const auto group = join(ranks(2), 0, [](int, std::vector<double> mine) {
    if (mine.size() == 1 && mine[0] == 7.0) mine[0] = 8.0;
    return mine;
  });
  EXPECT_EQ(group->exchange(std::array{7.0}), (std::vector<double>{7, 8}));
}

TEST_F(NcclGroupTest, SplitsARangeOnceAndKeepsIt) {
  const auto group = join(ranks(4), 3);
  fake_->forget_calls();
  const RankRange block = range_of(3, 1, 2), across = range_of(3, 2, 2);
  for (int round = 0; round < 2; ++round) {
    group->all_reduce_average(out_.data(), 1, DType::f32, block);
    group->all_gather(out_.data(), in_.data(), 1, DType::f32, across);
    group->all_gather(out_.data(), in_.data(), 1, DType::f32, {0, 1, 4});
  }
  const Calls round{"all_reduce average f32 1 of 2 in queue 0", "all_gather f32 1 of 3 in queue 0",
                    "all_gather f32 1 of 1 in queue 0"};
  EXPECT_EQ(fake_->calls(), (Calls{"split 1 color 2 key 1", round[0], "split 1 color 1 key 1",
                                   round[1], round[2], round[0], round[1], round[2]}));
  fake_->forget_calls();
  set_.reset();
  const Calls closed = fake_->calls();
  ASSERT_EQ(closed.size(), 6U);
  EXPECT_EQ(closed[2], "finalize 1") << "after its parts";
  EXPECT_EQ(closed[5], "destroy 1");
}

TEST_F(NcclGroupTest, APartOfOneRankCopies) {
  const auto group = join(ranks(2), 1);
  fake_->forget_calls();
  in_[0] = 3;
  const RankRange alone{1, 1, 1};
  queues_.use(1);
  group->all_reduce_average(in_.data(), 1, DType::f32, alone);
  group->all_gather(&out_[0], &in_[0], 1, DType::f32, alone);
  group->reduce_scatter_average(&out_[1], &in_[0], 1, DType::f32, alone);
  group->all_to_all(&out_[2], &in_[0], 1, DType::f32, alone);
  EXPECT_EQ(fake_->calls(), Calls{});
  EXPECT_EQ(out_[0], 0.0F);
  queues_.finish_used();
  EXPECT_EQ(out_[0] + out_[1] + out_[2], 9.0F);
}

TEST_F(NcclGroupTest, AGroupOfOneRankGoesByNccl) {
  const auto group = join(ranks(1));
  fake_->forget_calls();
  group->all_reduce_average(out_.data(), 1, DType::f32, {});
  group->all_gather(out_.data(), in_.data(), 1, DType::f32, {0, 1, 1});
  EXPECT_EQ(fake_->calls(), (Calls{"all_reduce average f32 1 of 1 in queue 0",
                                   "all_gather f32 1 of 1 in queue 0"}));
}

// NCCL's manual: what is split must have no outstanding operations.
TEST_F(NcclGroupTest, SplitsWhatHasNothingLeftToDo) {
  const auto group = join(ranks(4));
  const RankRange block = range_of(0, 1, 2);
  group->all_reduce_sum(out_.data(), 1, DType::f32);
  queues_.use(1);
  group->all_reduce_average(out_.data(), 1, DType::f32, block);
  EXPECT_EQ(queues_.num_waiting(), 1U) << "what was asked for before is done";
  group->all_reduce_average(out_.data(), 1, DType::f32, block);
  EXPECT_EQ(queues_.num_waiting(), 2U) << "nothing is waited for any more";
}

TEST_F(NcclGroupTest, ACallThatFailsAbortsAndIsThisRanksFault) {
  const auto group = join(ranks(2));
  fake_->fail("all_reduce", Result::unhandled_cuda_error);
  const auto call = [&] { group->all_reduce_sum(out_.data(), 1, DType::f32); };
  EXPECT_EQ(thrown<DeviceError>(call), "an all-reduce: NCCL: error 1");
  EXPECT_THROW(call(), LogicError);
  wait_for_aborts();
  EXPECT_EQ(fake_->calls("abort"), Calls{"abort 1"});
  EXPECT_EQ(fake_->calls("destroy"), Calls{});
}

TEST_F(NcclGroupTest, APeersErrorIsAnAbortedCollective) {
  const auto group = join(ranks(2));
  fake_->fail_behind("all_gather", Result::remote_error);
  const auto call = [&] { group->all_gather(out_.data(), in_.data(), 1, DType::f32, {}); };
  EXPECT_EQ(why_ended(call), CollectiveError::Cause::aborted);
}

TEST_F(NcclGroupTest, ACallThatIsNeverEnqueuedEndsAtTheDeadline) {
  const auto group = join(ranks(2), 0, nullptr, soon(1));
  fake_->never_end("transfers");
  const auto call = [&] { group->all_to_all(out_.data(), in_.data(), 1, DType::f32, {}); };
  EXPECT_EQ(why_ended(call), CollectiveError::Cause::deadline);
  wait_for_aborts();
  EXPECT_EQ(fake_->calls("abort"), Calls{"abort 1"});
}

TEST_F(NcclGroupTest, AFailedTransferEndsItsGroupOfCalls) {
  const auto group = join(ranks(2));
  fake_->fail("send", Result::invalid_argument);
  EXPECT_THROW(group->all_to_all(out_.data(), in_.data(), 1, DType::f32, {}), DeviceError);
  wait_for_aborts();
  EXPECT_EQ(fake_->calls("abort"), Calls{"abort 1"}) << "and that is no call inside the group";
}

TEST_F(NcclGroupTest, AnErrorBesideTheCallsEndsAWatchedWait) {
  const auto group = join(ranks(4));
  group->all_reduce_average(out_.data(), 1, DType::f32, range_of(0, 1, 2));
  queues_.prepare({1, 0, 0}, group->watched(soon(20)));
  group->all_reduce_sum(out_.data(), 1, DType::f32);
  queues_.get_stuck();
  fake_->break_latest(Result::remote_error);
  EXPECT_THROW(queues_.finish_all(), CollectiveError);
  wait_for_aborts();
  EXPECT_EQ(fake_->calls("abort"), (Calls{"abort 2", "abort 1"})) << "the part's, and all";
}

// A call that fails while it is recorded, and a training that goes on without recordings.
TEST_F(NcclGroupTest, ACommunicatorThatBrokeInARecordingIsMadeAnew) {
  const auto group = join(ranks(2));
  const Waiter watched = group->watched(soon(20));
  EXPECT_TRUE(group->is_recordable());
  fake_->fail("all_reduce", Result::invalid_usage);
  EXPECT_THROW(group->all_reduce_sum(out_.data(), 1, DType::f32), DeviceError);
  group->renew("a test");
  EXPECT_EQ(group->why_not_recordable(), "a test");
  EXPECT_FALSE(group->is_recordable()) << "and nothing of these ranks is recorded again";
  fake_->forget_calls();
  group->all_reduce_sum(out_.data(), 1, DType::f32);
  EXPECT_EQ(fake_->calls(), Calls{"all_reduce sum f32 1 of 2 in queue 0"});
  queues_.finish_all();
  watched.until([] { return true; }, "a test");
}

// A launch behind so many that CUDA takes no more: the poll that would find the end never comes.
TEST_F(NcclGroupTest, WhoIsStuckInCudaIsLetGoOnByAnotherThread) {
  const auto group = join(ranks(2));
  const Waiter watched = group->watched(soon(20));
  group->all_reduce_sum(out_.data(), 1, DType::f32);
  queues_.get_stuck();
  const auto other = interrupted_soon(attempt_, CollectiveError::Cause::deadline);
  fake_->wait_until_aborted();
  // What it calls next tells, whichever it is, and nothing is asked of what was aborted.
  const auto call = [&] { group->all_gather(out_.data(), in_.data(), 1, DType::f32, {}); };
  const auto wait = [&] { watched.until([] { return false; }, "a test"); };
  EXPECT_EQ(why_ended(call), CollectiveError::Cause::deadline);
  EXPECT_EQ(why_ended(wait), CollectiveError::Cause::deadline);
  EXPECT_FALSE(group->is_recordable());
  EXPECT_EQ(fake_->calls("abort"), Calls{"abort 1"});
}

// NCCL itself launches, in some versions on the calling thread.
TEST_F(NcclGroupTest, SoIsWhoIsStuckInNccl) {
  options_.longest_call = std::chrono::milliseconds(10);
  const auto group = join(ranks(2));
  fake_->hold_up("all_reduce");
  const auto other = interrupted_soon(attempt_, CollectiveError::Cause::aborted);
  const auto calls = [&] {
    for (int i = 0; i < 2; ++i) group->all_reduce_sum(out_.data(), 1, DType::f32);
  };
  EXPECT_EQ(why_ended(calls), CollectiveError::Cause::aborted);
}

TEST_F(NcclGroupTest, WhoWaitsForACallIsLetGoOnToo) {
  const auto group = join(ranks(2));
  fake_->never_end("all_reduce");
  const auto other = interrupted_soon(attempt_, CollectiveError::Cause::aborted);
  EXPECT_EQ(why_ended([&] { group->all_reduce_sum(out_.data(), 1, DType::f32); }),
            CollectiveError::Cause::aborted);
}

TEST_F(NcclGroupTest, AnotherAttemptIsLeftAlone) {
  const auto group = join(ranks(2));
  set().interrupt(attempt_ - 1, CollectiveError::Cause::aborted);
  set().interrupt(attempt_ + 1, CollectiveError::Cause::aborted);
  EXPECT_NO_THROW(group->all_reduce_sum(out_.data(), 1, DType::f32));
  set().interrupt(attempt_, CollectiveError::Cause::aborted);
  EXPECT_THROW(group->all_reduce_sum(out_.data(), 1, DType::f32), CollectiveError);
  // The next group of the same ranks has one of its own.
  EXPECT_NO_THROW(join(ranks(2))->all_reduce_sum(out_.data(), 1, DType::f32));
}

TEST_F(NcclGroupTest, MemoryThatNcclLacksIsOutOfMemory) {
  // The second is the last that NCCL says of a refused cudaMalloc (alloc.h).
  for (const char* words :
       {"Cuda failure 2 'out of memory'", "Failed to CUDA calloc 4194304 bytes"}) {
    const auto group = join(ranks(2));
    fake_->set_words(words);
    fake_->fail("all_reduce", Result::unhandled_cuda_error);
    EXPECT_THROW(group->all_reduce_sum(out_.data(), 1, DType::f32), OutOfMemory) << words;
  }
  const auto group = join(ranks(2));
  fake_->set_words("Failed to CUDA host alloc 64 bytes");
  fake_->fail("all_reduce", Result::unhandled_cuda_error);
  EXPECT_THROW(group->all_reduce_sum(out_.data(), 1, DType::f32), DeviceError);
}

TEST_F(NcclGroupTest, AWatchedWaitStillEndsAtItsDeadlineAndWhereItIsAborted) {
  const auto group = join(ranks(2));
  queues_.get_stuck();
  group->all_reduce_sum(out_.data(), 1, DType::f32);
  const Waiter deadline = group->watched(soon(0.02));
  EXPECT_THROW(deadline.until([] { return false; }, "a test"), CollectiveError);
  const Waiter told = group->watched(Waiter(
      Waiter::Clock::time_point::max(), [] { return true; }, true));
  EXPECT_THROW(told.until([] { return false; }, "a test"), CollectiveError);
  EXPECT_EQ(fake_->calls("abort"), Calls{}) << "whose wait ended says so with abandon()";
}

}  // namespace
}  // namespace dstune
