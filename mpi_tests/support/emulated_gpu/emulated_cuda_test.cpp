// The stand-in for CUDA's runtime does what it says, and finds what it is there to find.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "calls.hpp"
#include "machine.hpp"

namespace dstune::emulated {
namespace {

class EmulatedCudaTest : public testing::Test {
 protected:
  void SetUp() override {
    cudaGetLastError();
    ASSERT_EQ(cudaStreamCreateWithFlags(&first_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&memory_, bytes), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(&host_, bytes), cudaSuccess);
  }
  void TearDown() override {
    may_go_on_ = true;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(host_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(first_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(second_), cudaSuccess);
  }

  /// The stream does nothing more until go_on().
  void hold_up(cudaStream_t stream) {
    may_go_on_ = false;
    const auto hold = [this]() -> Turn { return [this] { return may_go_on_.load(); }; };
    ASSERT_EQ(ask_stream(stream, hold), cudaSuccess);
  }
  void go_on() { may_go_on_ = true; }
  [[nodiscard]] int number() const { return *static_cast<int*>(host_); }
  void add_one(cudaStream_t stream) {
    ASSERT_EQ(ask_stream_to(stream, [this] { ++*static_cast<int*>(host_); }), cudaSuccess);
  }

  static constexpr std::size_t bytes = 4096;
  cudaStream_t first_ = nullptr, second_ = nullptr;
  cudaEvent_t event_ = nullptr;
  void* memory_ = nullptr;
  void* host_ = nullptr;
  std::atomic<bool> may_go_on_ = true;
};

TEST_F(EmulatedCudaTest, StreamsWorkBesideTheHostAndWaitForEvents) {
  std::memset(host_, 0, bytes);
  hold_up(first_);
  ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second_, event_, 0), cudaSuccess);
  add_one(second_);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  EXPECT_EQ(number(), 0);
  go_on();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  EXPECT_EQ(number(), 1);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady) << "it is kept until it is asked for";
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(EmulatedCudaTest, ALaunchWaitsBehindAThousandOthers) {
  std::memset(host_, 0, bytes);
  hold_up(first_);
  constexpr int all = 2000;
  std::atomic<int> asked = 0;
  std::thread host([&] {
    while (asked < all) {
      add_one(first_);
      ++asked;
    }
  });
  while (asked < 1000) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(asked, 1100);
  EXPECT_EQ(cudaEventRecord(event_, second_), cudaSuccess) << "the other stream has room";
  go_on();
  host.join();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(number(), all);
}

/// In a process of its own, whose GPU hangs with the second thing that it does.
[[noreturn]] void use_a_gpu_that_hangs() {
  std::atomic<int> done = 0;
  cudaEvent_t event = nullptr;
  void* memory = nullptr;
  bool is_right = cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess &&
                  cudaMalloc(&memory, 1) == cudaSuccess;
  for (int i = 0; i < 3; ++i)
    is_right = is_right && ask_stream_to(nullptr, [&] { ++done; }) == cudaSuccess;
  is_right = is_right && cudaEventRecord(event, nullptr) == cudaSuccess;
  while (done < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::atomic<bool> is_back = false;
  std::thread([&] {
    cudaFree(memory);
    is_back = true;
  }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::size_t free_bytes = 0, all_bytes = 0;
  is_right = is_right && done == 2 && !is_back && cudaEventQuery(event) == cudaErrorNotReady &&
             cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess;
  _exit(is_right ? 0 : 1);
}

TEST(EmulatedHangDeathTest, WhatWaitsForItNeverComesBack) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  setenv("DSTUNE_EMULATED_HANG", "0:2", 1);
  EXPECT_EXIT(use_a_gpu_that_hangs(), testing::ExitedWithCode(0), "");
  unsetenv("DSTUNE_EMULATED_HANG");
}

TEST_F(EmulatedCudaTest, CopiesReachItsMemory) {
  std::memset(host_, 7, bytes);
  void* back = nullptr;
  ASSERT_EQ(cudaMallocHost(&back, bytes), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(memory_, host_, bytes, cudaMemcpyDefault, first_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(back, memory_, bytes, cudaMemcpyDefault, first_), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(std::memcmp(host_, back, bytes), 0);
  EXPECT_EQ(cudaFreeHost(back), cudaSuccess);
}

TEST_F(EmulatedCudaTest, NoCopyGoesBeyondAPiece) {
  setenv("DSTUNE_EMULATED_STRICT", "1", 1);
  EXPECT_EQ(cudaMemcpyAsync(memory_, host_, bytes + 1, cudaMemcpyDefault, first_),
            cudaErrorInvalidValue);
  int unpinned = 0;
  EXPECT_EQ(cudaMemcpyAsync(&unpinned, memory_, sizeof unpinned, cudaMemcpyDefault, first_),
            cudaErrorInvalidValue);
  unsetenv("DSTUNE_EMULATED_STRICT");
  // What CUDA does without being told: it waits.
  EXPECT_EQ(cudaMemcpyAsync(&unpinned, memory_, sizeof unpinned, cudaMemcpyDefault, first_),
            cudaSuccess);
}

TEST_F(EmulatedCudaTest, TheHostMayNotTouchItsMemory) {
  EXPECT_DEATH(*static_cast<volatile char*>(memory_) = 1, "");
}

TEST_F(EmulatedCudaTest, MemoryIsCountedAndLimited) {
  std::size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  void* more = nullptr;
  ASSERT_EQ(cudaMalloc(&more, std::size_t{8} << 20), cudaSuccess);
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_EQ(before - after, std::size_t{8} << 20);
  void* too_much = nullptr;
  EXPECT_EQ(cudaMalloc(&too_much, total), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(more), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaErrorInvalidValue);
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_EQ(before, after);
}

class CaptureTest : public EmulatedCudaTest {
 protected:
  void begin() {
    std::memset(host_, 0, bytes);
    ASSERT_EQ(cudaStreamBeginCapture(first_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  }
  /// The second stream is captured, too.
  void fork() {
    ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(second_, event_, 0), cudaSuccess);
  }
  void join() {
    ASSERT_EQ(cudaEventRecord(event_, second_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(first_, event_, 0), cudaSuccess);
  }
  cudaError_t end() { return cudaStreamEndCapture(first_, &graph_); }

  cudaGraph_t graph_ = nullptr;
};

TEST_F(CaptureTest, IsDoneAtEachLaunchAndNotBefore) {
  begin();
  add_one(first_);
  fork();
  add_one(second_);
  join();
  ASSERT_EQ(end(), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph_, 0), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(number(), 0);
  for (int launch = 0; launch < 3; ++launch)
    ASSERT_EQ(cudaGraphLaunch(executable, first_), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(number(), 6);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
}

TEST_F(CaptureTest, LaunchesTellTimesByEventsOfTheirOwn) {
  cudaEvent_t captured = nullptr, own = nullptr;
  ASSERT_EQ(cudaEventCreate(&captured), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&own), cudaSuccess);
  begin();
  ASSERT_EQ(cudaEventRecordWithFlags(captured, first_, cudaEventRecordExternal), cudaSuccess);
  ASSERT_EQ(end(), cudaSuccess);
  std::size_t count = 1;
  cudaGraphNode_t node = nullptr;
  ASSERT_EQ(cudaGraphGetNodes(graph_, &node, &count), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph_, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphExecEventRecordNodeSetEvent(executable, node, own), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, first_), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, own, own), cudaSuccess);
  EXPECT_EQ(milliseconds, 0);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, captured, own), cudaErrorInvalidResourceHandle);
  for (const cudaEvent_t event : {captured, own}) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
}

TEST_F(CaptureTest, AnEventThatWasCapturedCanNotBeWaitedFor) {
  begin();
  fork();
  join();
  ASSERT_EQ(end(), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
  EXPECT_NE(cudaStreamWaitEvent(second_, event_, 0), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
}

TEST_F(CaptureTest, CallsThatWaitOrAllocateEndIt) {
  void* more = nullptr;
  begin();
  EXPECT_EQ(cudaMalloc(&more, bytes), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  cudaEvent_t outside = nullptr;
  ASSERT_EQ(cudaEventCreate(&outside), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(outside, second_), cudaSuccess);
  begin();
  EXPECT_EQ(cudaEventQuery(outside), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(first_, outside, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaEventDestroy(outside), cudaSuccess);
}

TEST_F(CaptureTest, AnotherThreadMayAllocateMeanwhile) {
  begin();
  std::thread([this] {
    void* more = nullptr;
    EXPECT_EQ(cudaMalloc(&more, bytes), cudaSuccess);
    EXPECT_EQ(cudaFree(more), cudaSuccess);
    add_one(first_);
  }).join();
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(graph_->nodes.size(), 1U);
  EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
}

TEST_F(CaptureTest, AStreamThatIsNotJoinedIsFound) {
  begin();
  fork();
  add_one(second_);
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
}

}  // namespace
}  // namespace dstune::emulated
