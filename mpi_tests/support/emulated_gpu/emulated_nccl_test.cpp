// The stand-in for NCCL does what NCCL's source says: two ranks of one process, a GPU each.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

namespace {

using namespace std::chrono_literals;

constexpr int num_ranks = 2;

class EmulatedNcclTest : public testing::Test {
 protected:
  void SetUp() override {
    ncclUniqueId id{};
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    for (int rank = 0; rank < num_ranks; ++rank) {
      ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
      ASSERT_EQ(cudaStreamCreateWithFlags(&streams_[rank], cudaStreamNonBlocking), cudaSuccess);
      ASSERT_EQ(cudaMalloc(&memory_[rank], bytes), cudaSuccess);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ASSERT_EQ(ncclCommInitRankConfig(&comms_[rank], num_ranks, id, rank, &config),
                ncclInProgress);
    }
    for (int rank = 0; rank < num_ranks; ++rank) ASSERT_EQ(result_of(rank), ncclSuccess);
  }
  void TearDown() override {
    for (int rank = 0; rank < num_ranks; ++rank) {
      ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      EXPECT_EQ(cudaFree(memory_[rank]), cudaSuccess);
      EXPECT_EQ(cudaStreamDestroy(streams_[rank]), cudaSuccess);
    }
  }

  /// Of what a rank asked for last, once it is known.
  ncclResult_t result_of(int rank) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      EXPECT_EQ(ncclCommGetAsyncError(comms_[rank], &state), ncclSuccess);
      std::this_thread::yield();
    }
    return state;
  }
  void finalize(int rank) {
    EXPECT_EQ(ncclCommFinalize(comms_[rank]), ncclInProgress);
    EXPECT_EQ(result_of(rank), ncclSuccess);
  }
  /// On a thread of that rank's device.
  std::jthread beside(int rank, std::function<void()> work) {
    return std::jthread([this, rank, work = std::move(work)] {
      cudaSetDevice(rank);
      work();
      is_done_ = true;
    });
  }

  static constexpr std::size_t bytes = 4096;
  cudaStream_t streams_[num_ranks] = {};
  void* memory_[num_ranks] = {};
  ncclComm_t comms_[num_ranks] = {};
  std::atomic<bool> is_done_ = false;
};

TEST_F(EmulatedNcclTest, ASplitSaysSuccessBeforeItsHandleIsThere) {
  ncclComm_t parts[num_ranks] = {};
  ASSERT_EQ(ncclCommSplit(comms_[0], 0, 0, &parts[0], nullptr), ncclSuccess);
  EXPECT_EQ(parts[0], nullptr);
  ncclResult_t state = ncclSuccess;
  ASSERT_EQ(ncclCommGetAsyncError(comms_[0], &state), ncclSuccess);
  EXPECT_EQ(state, ncclInProgress) << "the other rank has not said where it goes";
  EXPECT_NE(ncclCommGetAsyncError(parts[0], &state), ncclSuccess);
  ASSERT_EQ(ncclCommSplit(comms_[1], 0, 1, &parts[1], nullptr), ncclSuccess);
  for (int rank = 0; rank < num_ranks; ++rank) {
    EXPECT_EQ(result_of(rank), ncclSuccess);
    std::swap(comms_[rank], parts[rank]);
    EXPECT_EQ(result_of(rank), ncclSuccess);
  }
  for (int round = 0; round < 2; ++round) {
    for (int rank = 0; rank < num_ranks; ++rank) finalize(rank);
    auto other = beside(1, [&] { ncclCommDestroy(comms_[1]); });
    EXPECT_EQ(ncclCommDestroy(comms_[0]), ncclSuccess);
    other.join();
    std::swap(comms_, parts);
  }
}

TEST_F(EmulatedNcclTest, AnAbortedSplitLeavesItsHandleToTheCaller) {
  ncclComm_t part = nullptr;
  ASSERT_EQ(ncclCommSplit(comms_[0], 0, 0, &part, nullptr), ncclSuccess);
  auto other = beside(1, [&] { ncclCommAbort(comms_[1]); });
  EXPECT_EQ(ncclCommAbort(comms_[0]), ncclSuccess);
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(ncclCommAbort(part), ncclSuccess);
}

TEST_F(EmulatedNcclTest, DestroyingWaitsForTheOtherRank) {
  for (int rank = 0; rank < num_ranks; ++rank) finalize(rank);
  auto first = beside(0, [&] { EXPECT_EQ(ncclCommDestroy(comms_[0]), ncclSuccess); });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(is_done_);
  EXPECT_EQ(ncclCommDestroy(comms_[1]), ncclSuccess);
  first.join();
  EXPECT_TRUE(is_done_);
}

// What is refused here NCCL does, wrongly.
TEST_F(EmulatedNcclTest, RefusesWhatOverlapsAndIsNotInPlace) {
  cudaSetDevice(0);
  auto* const data = static_cast<float*>(memory_[0]);
  constexpr std::size_t floats = bytes / sizeof(float);
  const auto gather = [&](const float* in, float* out, std::size_t count) {
    return ncclAllGather(in, out, count, ncclFloat32, comms_[0], streams_[0]);
  };
  const auto scatter = [&](const float* in, float* out, std::size_t count) {
    return ncclReduceScatter(in, out, count, ncclFloat32, ncclSum, comms_[0], streams_[0]);
  };
  EXPECT_EQ(gather(data + 8, data, 8), ncclInvalidUsage) << "the other rank's place";
  EXPECT_EQ(gather(data + 4, data, 8), ncclInvalidUsage);
  EXPECT_EQ(gather(data, data + 16, floats), ncclInvalidUsage) << "beyond the end";
  EXPECT_EQ(scatter(data, data + 8, 8), ncclInvalidUsage);
  EXPECT_EQ(ncclAllReduce(data, data + 4, 8, ncclFloat32, ncclSum, comms_[0], streams_[0]),
            ncclInvalidUsage);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclSend(data, 8, ncclFloat32, 1, comms_[0], streams_[0]), ncclSuccess);
  EXPECT_EQ(ncclSend(data, 8, ncclFloat32, 1, comms_[0], streams_[0]), ncclSuccess);
  EXPECT_EQ(ncclRecv(data + 7, 8, ncclFloat32, 1, comms_[0], streams_[0]), ncclInvalidUsage);
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  for (const auto& call : {gather(data, data, 8), scatter(data, data, 8)}) {
    EXPECT_EQ(call, ncclInvalidUsage) << "while the group of calls is in progress";
  }
  EXPECT_EQ(result_of(0), ncclSuccess);
  EXPECT_EQ(gather(data, data, 8), ncclInProgress);
  EXPECT_EQ(result_of(0), ncclSuccess);
  EXPECT_EQ(scatter(data, data, 8), ncclInProgress);
  EXPECT_EQ(result_of(0), ncclSuccess);
  auto peer = std::jthread([&] { ncclCommAbort(comms_[1]); });
  EXPECT_EQ(ncclCommAbort(comms_[0]), ncclSuccess);
}

TEST_F(EmulatedNcclTest, AGraphWithACollectiveHoldsUpItsEnd) {
  cudaSetDevice(0);
  ASSERT_EQ(cudaStreamBeginCapture(streams_[0], cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(ncclAllReduce(memory_[0], memory_[0], 1, ncclFloat32, ncclSum, comms_[0], streams_[0]),
            ncclInProgress);
  EXPECT_EQ(result_of(0), ncclSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(streams_[0], &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  auto peer = std::jthread([&] { ncclCommAbort(comms_[1]); });
  auto first = beside(0, [&] { ncclCommAbort(comms_[0]); });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(is_done_);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(is_done_);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  first.join();
  EXPECT_TRUE(is_done_);
}

}  // namespace
