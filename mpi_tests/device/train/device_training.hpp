#pragma once
/// Trainings on GPUs, a rank each or shared: as near to the processor's losses as any two ways to
/// train are on the processor, and the same bits in every run. By NCCL where every rank has a GPU
/// of its own, also on one rank; else staged through the host.

#include <cstdlib>
#include <optional>

#include "gpu_of_rank.hpp"
#include "training.hpp"

namespace dstune::test {

class DeviceTraining : public TrainingTest {
 protected:
  static constexpr int steps = 8;
  static constexpr bool takes_all_cases = true;
  static constexpr bool runs_twice = true;

  static void SetUpTestSuite() {
    TrainingTest::SetUpTestSuite();
    setenv("DSTUNE_CUDA_ALGORITHMS", "reproducible", 1);
    gpu_ = std::make_unique<GpuOfRank>(find_gpu_of_rank(host_bytes));
    if (!gpu_->violation.empty()) return;
    gpu_job_ = std::make_unique<Job>(GroupTable::Options{.device = groups_on(*gpu_)});
    if (job().rank() == 0) std::printf("collectives: %s\n", gpu_job_->way().c_str());
  }
  static void TearDownTestSuite() {
    gpu_job_.reset();
    gpu_.reset();
    TrainingTest::TearDownTestSuite();
  }
  void SetUp() override {
    if (!gpu_->violation.empty()) GTEST_SKIP() << gpu_->violation;
  }

  static const kernels::Table& device_kernels() { return gpu_->device->kernels(); }
  static Course device_course(const StepPlan& plan, std::int64_t seed, std::uint64_t /*order*/,
                              Guard guard) {
    const std::unique_ptr<ProcessGroup> group = gpu_job_->join();
    MatchedGroup matched(*group);
    return course(plan, *gpu_->device, matched, steps, seed, guard);
  }
  static void expect_alike(const Course& found, const Course& expected, Precision precision) {
    EXPECT_TRUE(are_near(found, expected, tolerance_of(precision)))
        << found << "\nand on the processor\n"
        << expected;
  }

 private:
  static constexpr std::int64_t host_bytes = std::int64_t{1} << 30;

  static inline std::unique_ptr<GpuOfRank> gpu_;
  static inline std::unique_ptr<Job> gpu_job_;
};

}  // namespace dstune::test
