// A check says what a machine has and how fast it is, without a space.
#include <csignal>
#include <string>

#include <gtest/gtest.h>

#include "job.hpp"

namespace dstune::e2e {
namespace {

constexpr int usage = 2, no_device = 6;

class CheckTest : public testing::Test {
 protected:
  Ended check(int ranks, std::vector<std::string> more_args = {},
              std::map<std::string, std::string> environment = {}) {
    std::vector<std::string> args{"check", "--backend", "cpu"};
    args.insert(args.end(), more_args.begin(), more_args.end());
    return job_.run(
        {.ranks = ranks, .args = args, .environment = std::move(environment), .limit_s = 90});
  }

  Job job_;
};

TEST_F(CheckTest, SaysWhatEachRankHasAndWritesNoFile) {
  const auto before = job_.contents();
  const Ended ended = check(2);
  EXPECT_EQ(ended.exit_code, 0) << ended;
  for (const char* part : {"Devices: cpu", "MPI: ", "CPU products: ", "fp32 FLOP/s",
                           "Collectives of the ranks of a host, by shared memory", "1.00 MiB"})
    EXPECT_EQ(count_of(ended.out, part), 1) << part << '\n' << ended;
  EXPECT_EQ(job_.contents(), before);
  EXPECT_LT(ended.wall_s, 60) << ended;
}

TEST_F(CheckTest, TellsItAsJson) {
  const Ended ended = check(3, {"--format", "json"}, {{"DSTUNE_PRETEND_HOSTS", "one:2,two:1"}});
  EXPECT_EQ(ended.exit_code, 0) << ended;
  const Json found = Json::parse(ended.out);
  EXPECT_EQ(found["exit_code"], 0);
  EXPECT_TRUE(found["failures"].empty()) << found;
  ASSERT_EQ(found["ranks"].size(), 3U);
  for (const Json& rank : found["ranks"]) {
    EXPECT_GT(rank["fp32_flops_per_s"], 1e8) << rank;
    EXPECT_GT(rank["bf16_flops_per_s"], 1e7) << rank;
    EXPECT_GT(rank["memory_bytes_per_s"], 1e7) << rank;
    EXPECT_GT(rank["processor_share"], 0) << rank;
    // The groups are its host's, where others are there, and all ranks'.
    EXPECT_EQ(rank["groups"].size(), rank["node"] == 0 ? 2U : 1U) << rank;
    const Json& all = rank["groups"].back();
    EXPECT_EQ(all["num_nodes"], 2);
    EXPECT_EQ(all["num_ranks"], 3);
    EXPECT_GT(all["bus_bandwidth"].at(0)["all_reduce_bytes_per_s"], 1e6) << rank;
  }
}

TEST_F(CheckTest, TakesNoFileAndFewOptions) {
  job_.write_text("space.json", "{}");
  Ended ended = check(0, {"space.json"});
  EXPECT_EQ(ended.exit_code, usage);
  EXPECT_EQ(count_of(ended.err, "takes no file"), 1) << ended;
  ended = check(0, {"--tuner", "race"});
  EXPECT_EQ(ended.exit_code, usage);
  EXPECT_EQ(count_of(ended.err, "check has no --tuner"), 1) << ended;
  EXPECT_FALSE(job_.exists("autotuning_results"));
}

TEST_F(CheckTest, ARankThatHangsIsNamed) {
  Process process = job_.start({.ranks = 2, .args = {"check", "--backend", "cpu"}, .limit_s = 90});
  std::map<int, pid_t> ranks;
  while (process.ranks().size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::seconds(3));
  kill(process.ranks().at(1), SIGSTOP);
  const Ended ended = process.wait();
  EXPECT_FALSE(ended.is_late) << ended;
  EXPECT_EQ(ended.exit_code, no_device) << ended;
  EXPECT_GE(count_of(ended.out + ended.err, "rank 1"), 1) << ended;
  EXPECT_EQ(count_of(ended.err, "resumes"), 0) << ended;
}

}  // namespace
}  // namespace dstune::e2e
