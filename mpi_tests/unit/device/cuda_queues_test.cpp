/// Streams, events and graphs over a stand-in for CUDA's runtime.

#include <algorithm>
#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/queues.hpp"
#include "dstune/base/error.hpp"
#include "fake_runtime.hpp"

namespace dstune {
namespace {

using test::FakeRuntime;
using test::thrown;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class CudaQueuesTest : public testing::Test {
 protected:
  /// Streams 1 and 2, events 3 and 4, stamps 5 and 6, the streams' ends 7 and 8.
  void prepare(const Waiter& waiter = Waiter()) {
    queues_.prepare({.queues = 2, .events = 2, .stamps = 2}, waiter);
    runtime_.calls.clear();
  }

  FakeRuntime runtime_;
  cuda::StreamQueues queues_{runtime_};
};

TEST_F(CudaQueuesTest, KeepStreamsAndTimesAndMakeEventsAnew) {
  queues_.prepare({.queues = 1, .events = 1, .stamps = 1}, Waiter());
  EXPECT_THAT(runtime_.calls,
              ElementsAre("create 1", "create 2", "create 3 with time", "create 4"));
  runtime_.calls.clear();
  queues_.prepare({.queues = 2, .events = 1, .stamps = 0}, Waiter());
  // First what is still under way. The event may have been captured with a graph.
  EXPECT_THAT(runtime_.calls, ElementsAre("record 4 on 1", "query 4", "create 5", "destroy 2",
                                          "create 6", "create 7"));
}

TEST_F(CudaQueuesTest, AreStreamsWithEventsBetweenThem) {
  prepare();
  char bytes[8] = {};
  queues_.copy(bytes, bytes, 8);
  queues_.record(0);
  queues_.use(1);
  queues_.wait(0);
  queues_.copy(bytes, bytes, 0);
  queues_.stamp(1);
  queues_.finish(0);
  queues_.finish_used();
  queues_.finish_all();
  EXPECT_THAT(runtime_.calls, ElementsAre("copy 8 on 1", "record 3 on 1", "2 waits for 3",
                                          "record 6 on 2", "query 3", "record 8 on 2", "query 8",
                                          "record 7 on 1", "record 8 on 2", "query 7", "query 8"));
  EXPECT_EQ(queues_.native(), reinterpret_cast<void*>(std::uintptr_t{2}));
  EXPECT_DOUBLE_EQ(queues_.seconds_between(0, 1), 2.5);
}

TEST_F(CudaQueuesTest, EndWhatTheyMade) {
  {
    cuda::StreamQueues queues(runtime_);
    queues.prepare({.queues = 1, .events = 1, .stamps = 0}, Waiter());
    runtime_.calls.clear();
  }
  EXPECT_THAT(runtime_.calls, testing::UnorderedElementsAre("destroy 1", "destroy 2", "destroy 3"));
}

TEST_F(CudaQueuesTest, AnEventThatIsNeverReachedEndsAtTheDeadline) {
  prepare(Waiter(Waiter::Clock::now() + std::chrono::milliseconds(5), nullptr, true));
  runtime_.events_are_reached = false;
  EXPECT_THAT(thrown<CollectiveError>([&] { queues_.finish(0); }), HasSubstr("the GPU"));
  EXPECT_THROW(queues_.finish_all(), CollectiveError);
  // Another experiment does not begin on a GPU that is still at it.
  EXPECT_THROW(queues_.prepare({.queues = 1, .events = 1, .stamps = 0},
                               Waiter(Waiter::Clock::now(), nullptr, true)),
               CollectiveError);
}

TEST_F(CudaQueuesTest, AnAbortEndsAWait) {
  prepare(Waiter(
      Waiter::Clock::time_point::max(), [] { return true; }, true));
  runtime_.events_are_reached = false;
  EXPECT_THROW(queues_.finish(1), CollectiveError);
}

TEST_F(CudaQueuesTest, FailuresHaveCudasWords) {
  prepare();
  runtime_.failures["query"] = FakeRuntime::illegal_address;
  const std::string passing = thrown<DeviceError>([&] { queues_.finish(0); });
  EXPECT_EQ(passing, "CUDA: cudaError700: words, waiting for the GPU");
  EXPECT_THAT(runtime_.calls, Contains("forget_error"));
  // Where the context is lost every call says so.
  runtime_.failures["get_memory"] = FakeRuntime::illegal_address;
  EXPECT_THAT(thrown<DeviceError>([&] { queues_.finish(0); }),
              HasSubstr("this process can not use the GPU any more"));
}

TEST_F(CudaQueuesTest, AContextIsLostWhereEveryCallFails) {
  EXPECT_FALSE(cuda::has_lost_context(runtime_));
  runtime_.failures["get_memory"] = FakeRuntime::illegal_address;
  EXPECT_TRUE(cuda::has_lost_context(runtime_));
  // What is told once and then no more was of an earlier call.
  runtime_.num_failures["get_memory"] = 1;
  EXPECT_FALSE(cuda::has_lost_context(runtime_));
}

TEST_F(CudaQueuesTest, CanBePreparedAgainAfterAFailure) {
  runtime_.failures["create_event"] = FakeRuntime::no_memory;
  EXPECT_THROW(prepare(), OutOfMemory);
  runtime_.failures.clear();
  EXPECT_NO_THROW(prepare());
}

// Streams, events and graphs take memory of the GPU, too, and nobody says how much.
TEST_F(CudaQueuesTest, WhatLacksMemoryIsOutOfMemory) {
  prepare();
  runtime_.failures["record"] = FakeRuntime::no_memory;
  EXPECT_EQ(thrown<OutOfMemory>([&] { queues_.record(0); }),
            "CUDA: cudaError2: words, recording an event: 1000 B available");
  EXPECT_THAT(runtime_.calls, Contains("forget_error"));
}

TEST_F(CudaQueuesTest, RecordAGraphOfAllStreams) {
  prepare();
  Recorder& recorder = *queues_.recorder();
  char bytes[8] = {};
  recorder.begin(1);
  queues_.record(0);
  queues_.use(1);
  queues_.wait(0);
  queues_.copy(bytes, bytes, 8);
  queues_.stamp(1);
  auto recording = recorder.end();
  // The other stream begins where the first does, and ends before the first.
  EXPECT_THAT(runtime_.calls,
              ElementsAre("capture 1", "record 7 on 1", "2 waits for 7", "record 3 on 1",
                          "2 waits for 3", "copy 8 on 2", "record 6 in graph on 2", "record 8 on 2",
                          "1 waits for 8", "end capture of 1", "instantiate 10", "upload 11 on 1"));
  EXPECT_EQ(queues_.native(), reinterpret_cast<void*>(std::uintptr_t{1}));

  // Launched with another stamp, after what the other stream was asked for and before what it will.
  runtime_.calls.clear();
  queues_.use(1);
  recorder.replay(*recording, 0);
  EXPECT_THAT(runtime_.calls,
              ElementsAre("node 9 of 11 records 5", "record 8 on 2", "1 waits for 8",
                          "launch 11 on 1", "record 7 on 1", "2 waits for 7"));
  EXPECT_EQ(queues_.native(), reinterpret_cast<void*>(std::uintptr_t{1}));
  runtime_.calls.clear();
  queues_.stamp(1);
  EXPECT_THAT(runtime_.calls, ElementsAre("record 6 on 1"));

  queues_.finish_all();
  runtime_.calls.clear();
  recording.reset();
  EXPECT_THAT(runtime_.calls, ElementsAre("destroy executable 11", "destroy graph 10"));
}

// Nobody says that CUDA would not wait for it.
TEST_F(CudaQueuesTest, AGraphThatMayBeUnderWayIsKeptUntilTheNextUse) {
  prepare();
  Recorder& recorder = *queues_.recorder();
  recorder.begin(0);
  auto recording = recorder.end();
  recorder.replay(*recording, 0);
  runtime_.calls.clear();
  recording.reset();
  EXPECT_THAT(runtime_.calls, ElementsAre("destroy graph 9"));
  queues_.prepare({.queues = 2, .events = 2, .stamps = 2}, Waiter());
  EXPECT_EQ(std::ranges::count(runtime_.calls, "destroy executable 10"), 1);
}

// As NCCL does, so that other graphs and streams wait for a graph's collectives.
TEST_F(CudaQueuesTest, EventsThatALibraryRecordsInAGraphStayAsTheyAre) {
  int node = 0, event = 0;
  runtime_.further_nodes = {
      {reinterpret_cast<cuda::Node>(&node), reinterpret_cast<cuda::Event>(&event)}};
  prepare();
  Recorder& recorder = *queues_.recorder();
  recorder.begin(0);
  queues_.stamp(0);
  const auto recording = recorder.end();
  runtime_.calls.clear();
  recorder.replay(*recording, 1);
  EXPECT_THAT(runtime_.calls,
              ElementsAre("node 9 of 11 records 6", "record 8 on 2", "1 waits for 8",
                          "launch 11 on 1", "record 7 on 1", "2 waits for 7"));
}

TEST_F(CudaQueuesTest, EndACaptureThatFails) {
  const std::string calls[] = {"begin_capture",   "record",      "wait",  "end_capture",
                               "get_event_nodes", "instantiate", "upload"};
  for (const std::string& call : calls) {
    prepare();
    Recorder& recorder = *queues_.recorder();
    runtime_.failures[call] = FakeRuntime::no_memory;
    const std::string words = thrown<OutOfMemory>([&] {
      recorder.begin(0);
      static_cast<void>(recorder.end());
    });
    EXPECT_THAT(words, HasSubstr("cudaError2: words")) << call;
    recorder.drop();
    runtime_.failures.clear();
    const bool began = call != "begin_capture";
    EXPECT_EQ(std::ranges::count(runtime_.calls, "end capture of 1"), began ? 1 : 0) << call;
    // What a capture left is destroyed.
    EXPECT_EQ(runtime_.num_calls("destroy graph"), began && call != "end_capture" ? 1 : 0) << call;
    EXPECT_EQ(runtime_.num_calls("destroy executable"), call == "upload" ? 1 : 0) << call;
    // Streams are no longer captured.
    runtime_.calls.clear();
    queues_.stamp(0);
    EXPECT_THAT(runtime_.calls, ElementsAre("record 5 on 1"));
  }
}

TEST_F(CudaQueuesTest, RecordNothingWhereTheyShallNot) {
  EXPECT_EQ(cuda::StreamQueues(runtime_, false).recorder(), nullptr);
}

}  // namespace
}  // namespace dstune
