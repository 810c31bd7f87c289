/// A training step takes no memory from the heap: what it needs is planned.

#include <cstdlib>
#include <new>
#include <string>

#include <dlfcn.h>

#include "dstune/instrument/workloads.hpp"
#include "golden.hpp"
#include "training.hpp"

namespace {

/// Of the thread that is inside a step.
struct Count {
  bool is_counting = false;
  int ours = 0;
  int of_libraries = 0;
};
thread_local Count count;

/// Whether code of a library of its own called, oneDNN's or MPI's. The standard library allocates
/// for its caller.
bool is_library(void* caller) {
  Dl_info here, there;
  if (dladdr(reinterpret_cast<void*>(&is_library), &here) == 0 || dladdr(caller, &there) == 0)
    return false;
  const std::string name = there.dli_fname;
  return there.dli_fbase != here.dli_fbase && name.find("libstdc++") == name.npos;
}

void* take(std::size_t bytes, std::size_t alignment, void* caller) {
  if (count.is_counting) {
    count.is_counting = false;  // looking the caller up may allocate
    ++(is_library(caller) ? count.of_libraries : count.ours);
    count.is_counting = true;
  }
  // aligned_alloc wants whole multiples.
  void* const memory =
      alignment == 0 ? std::malloc(bytes == 0 ? 1 : bytes)
                     : std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// All others call these.
void* operator new(std::size_t bytes) {
  return take(bytes, 0, __builtin_return_address(0));
}
void* operator new[](std::size_t bytes) {
  return take(bytes, 0, __builtin_return_address(0));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
// Sanitizers have ones of their own for these.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return take(bytes, 0, __builtin_return_address(0));
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return take(bytes, 0, __builtin_return_address(0));
}
// The news above take from malloc.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace dstune {
namespace {

using test::Golden;

class AllocationTest : public test::TrainingTest {
 protected:
  /// Expects that steps after the first few allocate nothing. Collective over the job.
  static void expect_none(const ModelSpec& model, const TrainingConfig& config) {
    SCOPED_TRACE("stage " + std::to_string(config.zero_stage) + ", " +
                 std::string(to_text(config.precision)) + ", offload " +
                 std::string(to_text(config.offload_optimizer)) + ", overlap " +
                 std::to_string(static_cast<int>(config.overlap_comm)));
    const std::unique_ptr<ProcessGroup> group = job().join();
    CpuDevice device(256 << 20, 1);
    const std::string name = "allocations";
    const Waiter waiter;
    const auto workload = make_own_step({&model, &config, &name, 0, &device, group.get(), &waiter});
    workload->build();
    workload->initialize();
    for (int step = 0; step < 3; ++step) workload->step(step);
    count = {.is_counting = true};
    workload->step(3);
    workload->step(4);
    count.is_counting = false;
    EXPECT_EQ(count.ours, 0);
    // oneDNN takes some for every product.
    RecordProperty("of_libraries", count.of_libraries);
  }
};

TEST_F(AllocationTest, TheCountSeesWhatIsAllocated) {
  count = {.is_counting = true};
  // A call of its own: compilers leave allocations of `new` out.
  void* const some = ::operator new(100);
  count.is_counting = false;
  ::operator delete(some);
  EXPECT_EQ(count.ours, 1);
}

TEST_F(AllocationTest, AStepTakesNothingFromTheHeap) {
  const Golden golden("gpt2");
  for (const int stage : {0, 1, 2, 3}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      for (const OffloadDevice device : {OffloadDevice::none, OffloadDevice::cpu}) {
        TrainingConfig config = golden.on(job().size(), stage, 3);
        config.precision = precision;
        config.loss_scale.initial_power = 12;
        config.offload_optimizer = device;
        config.overlap_comm = precision != Precision::fp32;
        config.reduce_bucket_size = 20'000;
        expect_none(golden.model, config);
      }
    }
  }
}

}  // namespace
}  // namespace dstune
