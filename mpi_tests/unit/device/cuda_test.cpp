/// What is asked of CUDA's runtime, and what becomes of its failures, without a GPU.

#include "dstune/device/cuda.hpp"

#include <chrono>
#include <cstdlib>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/cuda_device.hpp"
#include "dstune/base/error.hpp"
#include "dstune/kernels/cuda.hpp"
#include "fake_runtime.hpp"

namespace dstune {
namespace {

using namespace std::chrono_literals;
using test::FakeRuntime;
using test::thrown;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class CudaDeviceTest : public testing::Test {
 protected:
  std::unique_ptr<Device> make(int rank_of_node) {
    request_.rank_of_node = rank_of_node;
    request_.host_limit_bytes = 5000;
    return std::make_unique<cuda::CudaDevice>(runtime_, kernels::cpu_table(), request_, &gpu_);
  }

  FakeRuntime runtime_;
  cuda::DeviceRequest request_;
  CudaGpu gpu_;
};

TEST_F(CudaDeviceTest, IsOneOfThoseThatAreVisible) {
  runtime_.devices = 4;
  for (const auto& [rank, device] : {std::pair(0, 0), {3, 3}, {4, 0}, {6, 2}}) {
    runtime_.calls.clear();
    make(rank);
    EXPECT_THAT(runtime_.calls, Contains("set_device " + std::to_string(device)));
    EXPECT_EQ(gpu_.uuid, "gpu-" + std::to_string(device));
    EXPECT_EQ(gpu_.number, device) << "what DeepSpeed's engine computes on, too";
  }
  runtime_.devices = 0;
  EXPECT_THROW(make(0), DeviceError);
}

TEST_F(CudaDeviceTest, IsThatOfOtherThreadsWhereTheySaySo) {
  runtime_.devices = 4;
  const auto device = make(2);
  runtime_.calls.clear();
  device->begin_thread();
  EXPECT_THAT(runtime_.calls, ElementsAre("set_device 2"));
}

TEST_F(CudaDeviceTest, HasWhatIsFreeAsItsLimit) {
  const auto device = make(0);
  EXPECT_EQ(device->budget().limit_bytes(), 970);
  EXPECT_EQ(device->host_budget().limit_bytes(), 5000);
  EXPECT_EQ(device->description(), "cuda (a GPU)");
  EXPECT_EQ(gpu_.free_bytes, 1000);
  EXPECT_TRUE(device->is_asynchronous());
}

TEST_F(CudaDeviceTest, CountsWhatContextAndLibrariesTake) {
  // Without a context 1200 bytes are free; with it 1000, and the libraries take 100 of them.
  const auto told_bytes = [&] {
    return 1200 - (runtime_.has_context ? 200 : 0) - (1000 - runtime_.free_bytes);
  };
  request_.free_bytes = [&](const std::string& uuid) {
    EXPECT_EQ(uuid, "gpu-0");
    return std::optional<std::int64_t>(told_bytes());
  };
  request_.use_libraries = [&] { runtime_.free_bytes -= 100; };
  const auto device = make(0);
  EXPECT_EQ(gpu_.context_bytes, 200);
  EXPECT_EQ(gpu_.library_bytes, 100);
  EXPECT_EQ(gpu_.free_bytes, 900);
  EXPECT_EQ(device->budget().limit_bytes(), 873);
  EXPECT_EQ(device->taken_bytes(), 300);
  runtime_.free_bytes -= 50;  // a communicator
  EXPECT_EQ(device->taken_bytes(), 350);
}

TEST_F(CudaDeviceTest, WhereNobodyTellsTheContextIsNotCounted) {
  request_.free_bytes = [](const std::string&) { return std::optional<std::int64_t>(); };
  request_.use_libraries = [&] { runtime_.free_bytes -= 100; };
  const auto device = make(0);
  EXPECT_FALSE(gpu_.context_bytes);
  EXPECT_EQ(gpu_.library_bytes, 100);
  EXPECT_EQ(device->taken_bytes(), 100);
  runtime_.failures["get_memory"] = FakeRuntime::illegal_address;
  EXPECT_FALSE(device->taken_bytes());
}

TEST_F(CudaDeviceTest, OfAGpuThatIsTooOldThereIsNoContext) {
  runtime_.capability = 75;
  EXPECT_EQ(thrown<DeviceError>([&] { make(0); }),
            "a GPU, compute capability 7.5: the kernels need 8.0 or newer");
  EXPECT_FALSE(runtime_.has_context);
}

// As where a build has code for others.
TEST_F(CudaDeviceTest, WhatKernelsSayAtTheirFirstUseIsAnErrorOfTheDevice) {
  request_.use_libraries = [] { throw std::runtime_error("CUDA: no kernel image"); };
  EXPECT_EQ(thrown<DeviceError>([&] { make(0); }),
            "CUDA: no kernel image, on a GPU, compute capability 8.0");
}

/// Memory of the host in the GPU's place: kernels of the processor can work on it.
class HostRuntime : public FakeRuntime {
 public:
  cuda::Code allocate(void*& memory, std::size_t bytes) override {
    memory = ::operator new(bytes, alignment);
    pieces_.insert(memory);
    held = static_cast<int>(pieces_.size());
    return 0;
  }
  cuda::Code free(void* memory) override {
    pieces_.erase(memory);
    ::operator delete(memory, alignment);
    held = static_cast<int>(pieces_.size());
    return 0;
  }
  void free_all() {
    while (!pieces_.empty()) free(*pieces_.begin());
  }
  int held = 0;

 private:
  std::set<void*> pieces_;
  static constexpr std::align_val_t alignment{4096};
};

TEST(FirstUseTest, MultipliesAndAttendsAndLeavesNothing) {
  HostRuntime runtime;
  static int products, attentions;
  products = attentions = 0;
  kernels::Table table = kernels::cpu_table();
  table.matmul = [](const kernels::MatmulShape& shape, const void* a, const void* b,
                    const void* bias, void* c, void* workspace) {
    ++products;
    kernels::cpu_table().matmul(shape, a, b, bias, c, workspace);
  };
  table.attention_forward = [](const kernels::AttentionShape& shape, void* out, float* sums,
                               const void* qkv, void* workspace) {
    ++attentions;
    kernels::cpu_table().attention_forward(shape, out, sums, qkv, workspace);
  };
  cuda::use_libraries(runtime, table, Waiter());
  EXPECT_EQ(products, 3);
  EXPECT_EQ(attentions, 1);
  EXPECT_EQ(runtime.held, 0);
  EXPECT_EQ(runtime.num_calls("query"), 4);

  table.matmul = [](const kernels::MatmulShape&, const void*, const void*, const void*, void*,
                    void*) { throw std::runtime_error("a launch is refused"); };
  EXPECT_EQ(thrown<std::runtime_error>([&] { cuda::use_libraries(runtime, table, Waiter()); }),
            "a launch is refused");
  EXPECT_EQ(runtime.held, 0);

  table.zero = [](void*, std::size_t) { throw std::runtime_error("another one is refused"); };
  EXPECT_THROW(cuda::use_libraries(runtime, table, Waiter()), std::runtime_error);
  EXPECT_EQ(runtime.held, 0);
}

// To give memory back would be to wait for ever.
TEST(FirstUseTest, LeavesEverythingWhereTheGpuHangs) {
  HostRuntime runtime;
  runtime.events_are_reached = false;
  const Waiter waiter(Waiter::Clock::now(), nullptr, true);
  EXPECT_THROW(cuda::use_libraries(runtime, kernels::cpu_table(), waiter), CollectiveError);
  EXPECT_TRUE(runtime.is_given_up());
  EXPECT_EQ(runtime.held, 4);
  EXPECT_THAT(runtime.calls, Not(Contains(HasSubstr("destroy"))));
  runtime.free_all();
}

TEST_F(CudaDeviceTest, IsLostWithItsContext) {
  const auto device = make(0);
  EXPECT_FALSE(device->is_lost());
  runtime_.failures["get_memory"] = FakeRuntime::illegal_address;
  EXPECT_TRUE(device->is_lost());
}

TEST_F(CudaDeviceTest, ComesToRestAfterAFailure) {
  runtime_.devices = 2;
  const auto device = make(1);
  runtime_.calls.clear();
  EXPECT_EQ(device->drain(20s), DeviceState::drained);
  // By a thread of its own, which has to choose the GPU.
  EXPECT_THAT(runtime_.calls, ElementsAre("set_device 1", "synchronize"));
  device->arena().prepare(600);
  device->queues().prepare({.queues = 1, .events = 0, .stamps = 0}, Waiter());
  Recorder& recorder = *device->queues().recorder();
  recorder.begin(0);
  auto recording = recorder.end();
  recorder.replay(*recording, 0);
  recording.reset();
  EXPECT_EQ(device->drain(20s), DeviceState::drained);
  EXPECT_THAT(runtime_.calls, Contains(HasSubstr("destroy executable"))) << "what was kept of it";
  runtime_.calls.clear();
  device->arena().free();
  EXPECT_THAT(runtime_.calls, ElementsAre("free"));
}

// Of all that was made of it.
TEST_F(CudaDeviceTest, NothingIsGivenBackOfOneThatIsGivenUp) {
  request_.host_limit_bytes = 5000;
  for (const std::string hangs_in : {"synchronize", "get_memory", "set_device", ""}) {
    SCOPED_TRACE(hangs_in);
    FakeRuntime runtime;
    {
      cuda::CudaDevice device(runtime, kernels::cpu_table(), request_, nullptr);
      device.arena().prepare(600);
      device.host_arena().prepare(700);
      device.queues().prepare({.queues = 2, .events = 1, .stamps = 1}, Waiter());
      Recorder& recorder = *device.queues().recorder();
      recorder.begin(0);
      auto under_way = recorder.end();
      recorder.replay(*under_way, 0);
      under_way.reset();
      recorder.begin(0);
      const auto recording = recorder.end();
      runtime.hangs_in = hangs_in;
      if (hangs_in.empty()) runtime.failures["get_memory"] = FakeRuntime::illegal_address;
      const auto state = hangs_in.empty() ? DeviceState::lost : DeviceState::silent;
      EXPECT_EQ(device.drain(hangs_in.empty() ? 20s : 50ms), state);
      // It may be late.
      while (!hangs_in.empty() && !runtime.is_stuck) std::this_thread::sleep_for(1ms);
      runtime.calls.clear();
      EXPECT_EQ(device.drain(20s), state) << "it is not asked again";
      EXPECT_TRUE(device.is_lost());
    }
    EXPECT_THAT(runtime.calls, testing::IsEmpty());
  }
}

TEST_F(CudaDeviceTest, ARankThatOnlyPlansTakesNothingOfAGpu) {
  runtime_.devices = 2;
  request_.rank_of_node = 1;
  request_.host_limit_bytes = 5000;
  const auto device = cuda::make_device_like(runtime_, kernels::cpu_table(), request_, &gpu_);
  device->staging_arena().prepare(100);
  EXPECT_EQ(device->drain(20s), DeviceState::drained);
  EXPECT_THAT(runtime_.calls, ElementsAre("count_devices", "get_properties"));
  EXPECT_FALSE(runtime_.has_context);
  EXPECT_EQ(device->description(), make(1)->description());
  EXPECT_EQ(gpu_.name, "a GPU");
  EXPECT_TRUE(device->is_asynchronous()) << "its plans are those of the others";
  EXPECT_EQ(device->host_budget().limit_bytes(), 5000);
}

TEST_F(CudaDeviceTest, RecordsGraphsUnlessTheEnvironmentForbidsIt) {
  EXPECT_NE(make(0)->queues().recorder(), nullptr);
  setenv("DSTUNE_CUDA_GRAPHS", "0", 1);
  EXPECT_EQ(make(0)->queues().recorder(), nullptr);
  setenv("DSTUNE_CUDA_GRAPHS", "1", 1);
  EXPECT_NE(make(0)->queues().recorder(), nullptr);
  setenv("DSTUNE_CUDA_GRAPHS", "perhaps", 1);
  EXPECT_THROW(make(0), DeviceError);
  unsetenv("DSTUNE_CUDA_GRAPHS");
}

TEST_F(CudaDeviceTest, TakesMemoryOfTheGpuAndPinsTheHosts) {
  {
    const auto device = make(0);
    runtime_.calls.clear();
    device->arena().prepare(600);
    device->arena().prepare(500);
    device->host_arena().prepare(700);
  }
  EXPECT_THAT(runtime_.calls,
              ElementsAre("allocate 600", "allocate_host 700", "free_host", "free"));
}

// As CUDA places small pieces: what is read from a disk past the cache wants whole pages.
TEST_F(CudaDeviceTest, MemoryBeginsAtAPage) {
  runtime_.misplaced_bytes = 512;
  {
    const auto device = make(0);
    runtime_.calls.clear();
    for (Arena* const arena : {&device->arena(), &device->host_arena()}) {
      arena->prepare(600);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena->base()) % 4096, 0U);
    }
  }
  EXPECT_THAT(runtime_.calls,
              ElementsAre("allocate 600", "free", "allocate 4695", "allocate_host 600", "free_host",
                          "allocate_host 4695", "free_host", "free"));
}

TEST_F(CudaDeviceTest, ARefusedAllocationIsOutOfMemory) {
  const auto device = make(0);
  runtime_.failures["allocate"] = runtime_.failures["allocate_host"] = FakeRuntime::no_memory;
  EXPECT_THAT(thrown<OutOfMemory>([&] { device->arena().prepare(600); }),
              HasSubstr("cudaError2: words"));
  EXPECT_THAT(thrown<OutOfMemory>([&] { device->host_arena().prepare(600); }),
              HasSubstr("600 B asked for, 0 B available"));
  EXPECT_EQ(device->budget().held_bytes(), 0);
  // Nothing that comes later reports it again.
  EXPECT_EQ(runtime_.num_calls("forget_error"), 2);
  runtime_.failures.clear();
  EXPECT_NO_THROW(device->arena().prepare(600));
}

TEST_F(CudaDeviceTest, AnotherFailureIsNot) {
  const auto device = make(0);
  runtime_.failures["allocate"] = FakeRuntime::illegal_address;
  EXPECT_THROW(device->arena().prepare(600), DeviceError);
  EXPECT_EQ(device->budget().held_bytes(), 0);
}

TEST(CudaTest, KernelsThatAreMissingAreNamed) {
  kernels::Table table = kernels::cpu_table();
  EXPECT_EQ(cuda::missing_kernels(table), "");
  table.matmul = nullptr;
  table.quantize = nullptr;
  EXPECT_EQ(cuda::missing_kernels(table), "matmul, quantize");
}

TEST(CudaTest, ThereIsAReasonWhereThereIsNoDevice) {
  const std::string violation = cuda_unavailable_reason();
  if (kernels::num_cuda_devices() == 0) {
    EXPECT_THAT(violation, Not(testing::IsEmpty()));
    EXPECT_EQ(thrown<DeviceError>([] { make_cuda_device(0, 1, 1); }), violation);
  }
}

}  // namespace
}  // namespace dstune
