// States on a disk: the same training, and nothing left behind, however it ends.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

/// A model of a few large matrices, and states on the host and on a disk in the job's folder.
class DiskTest : public JobTest {
 protected:
  DiskTest() {
    Json model = tiny_gpt2_config();
    model["n_embd"] = 64;
    model["n_layer"] = 1;
    model["n_inner"] = 16'384;
    model["vocab_size"] = 16'384;
    job_.write("config.json", model);
    std::filesystem::create_directory(job_.folder() / "disk");
    space_ = transformer_space({2});
    space_["dstune"]["sequence_length"] = 16;
    space_["zero_optimization"] = {{"stage", 3},
                                   {"sub_group_size", 500'000},
                                   {"offload_optimizer",
                                    {{{"device", "cpu"}},
                                     {{"device", "nvme"},
                                      {"nvme_path", "disk"},
                                      {"buffer_count", 8},
                                      {"pipeline_read", true}}}}};
  }
  Ended run(const std::map<std::string, std::string>& environment = {}) {
    job_.write("space.json", space_);
    return run_with(environment);
  }
  /// Two experiments of the same training, which leave nothing.
  std::map<std::string, Json> train() {
    auto metrics = expect_all_ok(job_, run(), 2);
    for (const auto& [name, measured] : metrics) {
      EXPECT_EQ(measured["peak_memory_bytes"]["host"], measured["predicted"]["host_memory_bytes"]);
      expect_same_losses(measured, metrics.begin()->second);
    }
    EXPECT_TRUE(is_disk_empty());
    return metrics;
  }
  [[nodiscard]] bool is_disk_empty() const {
    return std::filesystem::is_empty(job_.folder() / "disk");
  }
  /// The member with its states on the disk.
  [[nodiscard]] std::string name_on_disk() {
    job_.write("space.json", space_);
    const Json planned = plan();
    for (const Json& one : planned["experiments"])
      if (one["predicted"]["disk_bytes"] != 0) return one["name"];
    ADD_FAILURE() << "no member has its states there";
    return "";
  }

  Json space_;
};

TEST_F(DiskTest, IsTheSameTrainingAndLeavesNothing) {
  const std::string on_disk = name_on_disk();
  for (const auto& [name, measured] : train()) {
    EXPECT_EQ(measured["predicted"]["disk_bytes"] != 0, name == on_disk);
    EXPECT_TRUE(measured["predicted"]["throughput"].is_number()) << name;
  }
}

TEST_F(DiskTest, ParametersThereAreTheSameTrainingAndLeaveNothing) {
  space_["zero_optimization"] = {
      {"stage", 3},
      {"sub_group_size", 500'000},
      {"stage3_prefetch_bucket_size", 0},
      {"stage3_max_reuse_distance", 0},
      {"offload_optimizer", {{"device", "nvme"}, {"nvme_path", "disk"}, {"buffer_count", 4}}},
      {"offload_param",
       {{{"device", "cpu"}},
        {{"device", "nvme"},
         {"nvme_path", "disk"},
         {"buffer_count", 2},
         {"buffer_size", 1'100'000},
         {"max_in_cpu", 0}}}}};
  std::set<std::int64_t> disk_bytes;
  for (const auto& [name, measured] : train())
    disk_bytes.insert(measured["predicted"]["disk_bytes"].get<std::int64_t>());
  // One has its shards there, too.
  EXPECT_EQ(disk_bytes.size(), 2U);
}

TEST_F(DiskTest, AFullDiskIsRecorded) {
  const std::string on_disk = name_on_disk();
  expect_exit(job_, run({{"DSTUNE_INJECT", "disk@1:" + on_disk}}), 0);
  auto metrics = all_metrics(job_);
  ASSERT_EQ(metrics.size(), 2);
  EXPECT_EQ(metrics[on_disk]["status"], "out_of_memory");
  EXPECT_THAT(metrics[on_disk]["reason"].get<std::string>(), HasSubstr("disk"))
      << metrics[on_disk]["reason"];
  EXPECT_TRUE(is_disk_empty());
}

TEST_F(DiskTest, AKilledRankLeavesNothing) {
  const std::string on_disk = name_on_disk();
  const Ended ended = run({{"DSTUNE_INJECT", "die@1:" + on_disk}});
  EXPECT_NE(ended.exit_code, 0) << ended;
  EXPECT_TRUE(is_disk_empty());
}

TEST_F(DiskTest, WithoutEnoughBuffersItIsInfeasible) {
  Json& members = space_["zero_optimization"]["offload_optimizer"];
  members = {{{"device", "nvme"}, {"nvme_path", "disk"}, {"pipeline_read", true}}};
  const Ended ended = run();
  expect_exit(job_, ended, nothing_feasible);
  EXPECT_THAT((ended.out + ended.err), HasSubstr("runs out of swap buffers")) << ended;
  EXPECT_TRUE(is_disk_empty());
}

}  // namespace
}  // namespace dstune::e2e
