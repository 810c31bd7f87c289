// Jobs on emulated GPUs that fail as only GPUs do.
#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

class EmulatedGpusTest : public testing::Test {
 protected:
  EmulatedGpusTest() { job_.write("config.json", tiny_gpt2_config()); }

  /// On so many ranks with a GPU each.
  Ended run(int ranks, const Json& space, std::map<std::string, std::string> environment = {}) {
    job_.write("space.json", space);
    environment["DSTUNE_EMULATED_GPUS"] = std::to_string(ranks);
    return job_.run({.ranks = ranks,
                     .args = {"--backend", "cuda", "space.json"},
                     .environment = environment,
                     .limit_s = 120});
  }
  void expect_all_ok(const Ended& ended, std::size_t count) {
    expect_exit(job_, ended, 0);
    const auto metrics = all_metrics(job_);
    EXPECT_EQ(metrics.size(), count);
    for (const auto& [name, measured] : metrics)
      EXPECT_EQ(measured["status"], "ok") << name << ": " << measured["reason"];
  }

  Job job_;
};

TEST_F(EmulatedGpusTest, GroupsTrainByNccl) {
  Json space = transformer_space({1, 2});
  space["bf16"] = {{"enabled", true}};
  space["gradient_accumulation_steps"] = 2;
  expect_all_ok(run(2, space), 8);
}

// Communicators that are split from one another, captured side by side: where one of them could not
// be, the log would say so and the graphs would take nothing.
TEST_F(EmulatedGpusTest, PartsOfAGroupTrainInGraphs) {
  Json space = transformer_space({4});
  space["bf16"] = {{"enabled", true}};
  space["gradient_accumulation_steps"] = 2;
  space["zero_optimization"] = {{"stage", 3},
                                {"overlap_comm", true},
                                {"zero_hpz_partition_size", {1, 2}},
                                {"zero_quantized_gradients", true}};
  expect_all_ok(run(4, space), 2);
  for (const auto& [name, measured] : all_metrics(job_))
    EXPECT_GT(measured["peak_memory_bytes"].value("graphs", 0), 0) << name;
}

// For good.
TEST_F(EmulatedGpusTest, ALostContextCostsOneAttemptAndTheRank) {
  Json space = transformer_space({1});
  space["train_micro_batch_size_per_gpu"] = {1, 2};
  // While the machine is measured, where nobody counts it; then in its first experiment.
  const Ended ended = run(2, space, {{"DSTUNE_EMULATED_LOSE", "1:1000"}});
  expect_all_ok(ended, 8);
  EXPECT_NE(ended.err.find("device lost by rank 1, not used again"), std::string::npos) << ended;
}

}  // namespace
}  // namespace dstune::e2e
