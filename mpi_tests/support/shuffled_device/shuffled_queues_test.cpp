#include "shuffled_queues.hpp"

#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "shuffled_device.hpp"

namespace dstune::test {
namespace {

using testing::ElementsAre;

/// Queues that write down the numbers that they are asked for.
class ShuffledQueuesTest : public testing::Test {
 protected:
  void ask(ShuffledQueues& queues, int number) {
    queues.ask([this, number] { done_.push_back(number); });
  }
  /// What a program does, in the orders of many seeds.
  template <class Program>
  std::set<std::vector<int>> orders(Program&& program) {
    std::set<std::vector<int>> found;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      ShuffledQueues queues(memory_, seed);
      queues.prepare({.queues = 2, .events = 1, .stamps = 0}, Waiter());
      done_.clear();
      program(queues);
      queues.finish_all();
      found.insert(done_);
    }
    return found;
  }

  ProtectedMemory memory_;
  std::vector<int> done_;
};

TEST_F(ShuffledQueuesTest, KeepTheOrderOfAQueueAndNoOther) {
  const auto found = orders([this](ShuffledQueues& queues) {
    ask(queues, 1);
    ask(queues, 2);
    queues.use(1);
    ask(queues, 3);
  });
  EXPECT_THAT(found, ElementsAre(std::vector{1, 2, 3}, std::vector{1, 3, 2}, std::vector{3, 1, 2}));
}

TEST_F(ShuffledQueuesTest, WaitForEventsAsTheyWereRecordedLast) {
  const auto found = orders([this](ShuffledQueues& queues) {
    ask(queues, 1);
    queues.record(0);
    queues.use(1);
    queues.wait(0);
    ask(queues, 2);
    queues.use(0);
    ask(queues, 3);
    queues.record(0);
    queues.use(1);
    ask(queues, 4);
    queues.wait(0);
    ask(queues, 5);
  });
  for (const std::vector<int>& order : found) {
    const auto place = [&](int number) { return std::ranges::find(order, number); };
    EXPECT_LT(place(1), place(2));
    EXPECT_LT(place(3), place(5));
  }
  EXPECT_TRUE(found.contains({1, 2, 4, 3, 5}));
  EXPECT_TRUE(found.contains({1, 3, 2, 4, 5}));
}

TEST_F(ShuffledQueuesTest, FinishNoMoreThanNeeded) {
  const auto found = orders([this](ShuffledQueues& queues) {
    ask(queues, 1);
    queues.record(0);
    ask(queues, 2);
    queues.finish(0);
    done_.push_back(0);
  });
  EXPECT_TRUE(found.contains({1, 0, 2}));
  for (const std::vector<int>& order : found) EXPECT_EQ(order.front(), 1);
}

TEST_F(ShuffledQueuesTest, KeepTheOrderOfCollectives) {
  const auto found = orders([this](ShuffledQueues& queues) {
    queues.ask_for_collective([this] { done_.push_back(1); });
    queues.use(1);
    queues.ask_for_collective([this] { done_.push_back(2); });
  });
  EXPECT_THAT(found, ElementsAre(std::vector{1, 2}));
}

TEST_F(ShuffledQueuesTest, AskAgainForWhatWasRecorded) {
  const auto found = orders([this](ShuffledQueues& queues) {
    Recorder& recorder = *queues.recorder();
    recorder.begin(0);
    ask(queues, 1);
    queues.record(0);
    queues.use(1);
    ask(queues, 2);
    queues.wait(0);
    ask(queues, 3);
    const auto recording = recorder.end();
    EXPECT_TRUE(done_.empty());
    ask(queues, 0);
    for (int i = 0; i < 2; ++i) recorder.replay(*recording, 0);
  });
  for (const std::vector<int>& order : found) {
    ASSERT_EQ(order.size(), 7U);
    EXPECT_EQ(order.back(), 3);
    EXPECT_LT(std::ranges::find(order, 1), std::ranges::find(order, 3));
  }
  // Each time in another order.
  EXPECT_TRUE(found.contains({0, 1, 2, 3, 2, 1, 3}));
  EXPECT_TRUE(found.contains({2, 0, 1, 3, 1, 2, 3}));
}

TEST_F(ShuffledQueuesTest, NumberStampsAnewInEachReplay) {
  ShuffledQueues queues(memory_, 1);
  queues.prepare({.queues = 1, .events = 0, .stamps = 5}, Waiter());
  Recorder& recorder = *queues.recorder();
  queues.stamp(0);
  recorder.begin(1);
  queues.stamp(1);
  queues.stamp(2);
  const auto recording = recorder.end();
  recorder.replay(*recording, 1);
  recorder.replay(*recording, 3);
  queues.finish_all();
  for (int stamp = 0; stamp < 4; ++stamp) EXPECT_GE(queues.seconds_between(stamp, stamp + 1), 0);
}

TEST_F(ShuffledQueuesTest, RefuseWhatNoGraphAllows) {
  ShuffledQueues queues(memory_, 1);
  queues.prepare({.queues = 1, .events = 2, .stamps = 0}, Waiter());
  Recorder& recorder = *queues.recorder();
  queues.record(0);
  recorder.begin(0);
  EXPECT_THROW(queues.wait(0), LogicError);
  EXPECT_THROW(queues.finish(0), LogicError);
  EXPECT_THROW(queues.finish_all(), LogicError);
  queues.record(1);
  EXPECT_NO_THROW(queues.wait(1));
  const auto recording = recorder.end();
  EXPECT_THROW(queues.wait(1), LogicError);
  EXPECT_THROW(queues.finish(1), LogicError);
  recorder.replay(*recording, 0);
  EXPECT_THROW(queues.finish(1), LogicError);
  queues.record(1);
  EXPECT_NO_THROW(queues.finish(1));

  recorder.begin(0);
  ask(queues, 1);
  recorder.drop();
  queues.finish_all();
  EXPECT_TRUE(done_.empty());
}

TEST(ShuffledDeviceTest, ItsKernelsAreLateAndItsMemoryIsClosed) {
  ShuffledDevice device(1 << 20, 0);
  device.arena().prepare(64);
  device.host_arena().prepare(64);
  auto* const there = reinterpret_cast<float*>(device.arena().base());
  auto* const here = reinterpret_cast<float*>(device.host_arena().base());
  *here = 1;
  Queues& queues = device.queues();
  queues.prepare({.queues = 1, .events = 0, .stamps = 0}, Waiter());
  device.kernels().fill(kernels::DType::f32, there, 7, 1);
  queues.copy(here, there, sizeof(float));
  queues.finish_all();
  EXPECT_EQ(*here, 7);
  EXPECT_DEATH(*const_cast<volatile float*>(there) = 1, "");
}

}  // namespace
}  // namespace dstune::test
