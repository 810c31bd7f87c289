// Plug-ins on groups of every size, through shared memory and through MPI.
#include <cmath>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include "../group/group_fixture.hpp"
#include "dstune/base/error.hpp"
#include "dstune/instrument/workloads.hpp"
#include "plugin/plugin_group.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

using test::Transport;

class PluginTest : public testing::TestWithParam<Transport> {
 protected:
  PluginTest() {
    spec_.kind = WorkloadKind::plugin;
    config_.micro_batch = 2;
    config_.accumulation_steps = 2;
    config_.sequence_length = 8;
    join(40);
  }

  void join(double seconds) {
    waiter_ = job_.waiter(seconds);
    group_ = job_.table().join(job_.everyone(), job_.next_attempt(), waiter_);
  }
  /// On the group there is, which failures leave usable.
  Measurement run(const std::string& library, const json::Value& options) {
    spec_.library_path = library;
    spec_.options = options;
    const auto workload = make_plugin_workload(
        spec_, {&model_, &config_, &name_, 0, &device_, group_.get(), &waiter_, &ds_config_, true});
    return measure(*workload, *group_, options_, {});
  }
  Measurement run_subject(const std::string& action) {
    return run(std::string(DSTUNE_TEST_PLUGINS) + "/libtest_plugin_good.so", {{"do", action}});
  }
  [[nodiscard]] std::string last_rank() const {
    return "rank " + std::to_string(job_.size() - 1) + ": ";
  }

  test::Job job_{GetParam()};
  Waiter waiter_;
  std::unique_ptr<ProcessGroup> group_;
  WorkloadSpec spec_;
  ModelSpec model_;
  TrainingConfig config_;
  std::string name_ = "z0_gas2_tmbspg2";
  std::string ds_config_ = "{}";
  MeasureOptions options_{3, 5, 0.05};
  CpuDevice device_{std::int64_t{1} << 30, 1};
};

TEST_P(PluginTest, CollectivesFromC) {
  const Measurement result = run_subject("check collectives");
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  EXPECT_EQ(result.losses.at(0), 1 + (job_.size() - 1) / 2.0);
}

TEST_P(PluginTest, FiguresThatAreNoneFail) {
  EXPECT_THAT(run_subject("not a time").reason, HasSubstr("the plug-in says step_s nan"));
  EXPECT_THAT(run_subject("for ever").reason, HasSubstr("the plug-in says step_s 1e+308"));
  for (const char* const action : {"negative bytes", "endless bytes", "endless work"})
    EXPECT_THAT(run_subject(action).reason, HasSubstr("beyond what any machine has")) << action;
  EXPECT_EQ(run_subject("nothing").status, Status::ok);
}

TEST_P(PluginTest, ClosedDescriptorsCostTheExperimentAlone) {
  const Measurement result = run_subject("close descriptors");
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_EQ(result.reason,
            last_rank() + "step 2: the plug-in closed descriptors that it had not opened");
  EXPECT_EQ(run_subject("nothing").status, Status::ok);
}

TEST_P(PluginTest, HandsOutTheCommunicatorWhereThereIsOne) {
  const train::PluginGroup group(*group_, waiter_, nullptr);
  const int handle = group.functions()->mpi_communicator;
  if (GetParam() == Transport::shared_memory || job_.size() == 1) {
    EXPECT_EQ(handle, -1);
    return;
  }
  ASSERT_NE(handle, -1);
  int rank = -1, size = -1;
  MPI_Comm_rank(MPI_Comm_f2c(handle), &rank);
  MPI_Comm_size(MPI_Comm_f2c(handle), &size);
  EXPECT_EQ(rank, job_.rank());
  EXPECT_EQ(size, job_.size());
}

TEST_P(PluginTest, OneRanksFailureIsTheGroups) {
  const Measurement in_build = run_subject("fail in build");
  EXPECT_EQ(in_build.status, Status::failed);
  EXPECT_EQ(in_build.reason, last_rank() + "build: planted in build");
  const Measurement in_step = run_subject("fail in step");
  EXPECT_EQ(in_step.status, Status::failed);
  EXPECT_EQ(in_step.reason, last_rank() + "step 2: planted in step 2");
  EXPECT_EQ(in_step.step_times_s.size(), 2U);
  const Measurement oom = run_subject("out of memory in step");
  EXPECT_EQ(oom.status, Status::out_of_memory);
  EXPECT_EQ(oom.reason, last_rank() + "step 2: planted: no room for the step");
  const Measurement good = run_subject("collective in build");
  EXPECT_EQ(good.status, Status::ok) << "the group is as good as before: " << good.reason;
}

TEST_P(PluginTest, RanksThatDisagreeAreToldSo) {
  const Measurement result = run_subject("another collective");
  if (job_.size() == 1) {
    EXPECT_EQ(result.status, Status::ok) << result.reason;
    return;
  }
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_THAT(result.reason,
              HasSubstr("the ranks disagree: group rank 0 calls all_reduce_mean of 1 elements of "
                        "type 0, group rank " +
                        std::to_string(job_.size() - 1) + " calls barrier"));
  EXPECT_EQ(run_subject("nothing").status, Status::ok);
}

TEST_P(PluginTest, AWaitEndsAtTheDeadline) {
  EXPECT_EQ(test::why_ended([&] {
              join(0.3);
              run_subject("wait for the end");
            }),
            CollectiveError::Cause::deadline);
  // Until nobody is inside any more.
  group_.reset();
  job_.world().barrier();
}

TEST_P(PluginTest, TheExamplesLossesDoNotDependOnTheStage) {
  std::vector<double> reference;
  for (int stage = 0; stage <= 3; ++stage) {
    config_.zero_stage = stage;
    const Measurement result = run(DSTUNE_EXAMPLE_PLUGIN, {{"parameters", 1001}});
    ASSERT_EQ(result.status, Status::ok) << result.reason;
    if (stage == 0) reference = result.losses;
    // On a busy machine it ends after the fewest steps.
    constexpr std::size_t fewest = 7;
    ASSERT_GE(result.losses.size(), fewest);
    EXPECT_LT(result.losses[fewest - 1], result.losses[0]);
    for (std::size_t step = 0; step < fewest; ++step)
      EXPECT_NEAR(result.losses[step], reference[step], 1e-5 * reference[step]) << stage;
    EXPECT_GT(result.peak_memory.total_bytes, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, PluginTest,
                         testing::Values(Transport::shared_memory, Transport::mpi), test::way_name);

}  // namespace
}  // namespace dstune
