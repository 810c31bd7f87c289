// A check says what a machine has and how fast it is, without a space.
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "results.hpp"

namespace dstune::e2e {
namespace {

class CheckTest : public JobTest {
 protected:
  Ended check(int ranks, std::vector<std::string> more_args = {},
              std::map<std::string, std::string> environment = {}) {
    std::vector<std::string> args{"check", "--backend", "cpu"};
    args.insert(args.end(), more_args.begin(), more_args.end());
    return job_.run(
        {.ranks = ranks, .args = args, .environment = std::move(environment), .limit_s = 90});
  }

  /// On two ranks, which measure when it returns.
  Process start_json() {
    Process process = job_.start(
        {.ranks = 2, .args = {"check", "--backend", "cpu", "--format", "json"}, .limit_s = 90});
    wait_until(process, [&] { return process.ranks().size() == 2; });
    std::this_thread::sleep_for(std::chrono::seconds(3));
    return process;
  }

  /// Expects what is known of both ranks, and why there is no more.
  static void expect_unfinished(const Ended& ended, int code, const std::string& reason) {
    const Json found = printed(ended);
    EXPECT_EQ(found["exit_code"], code) << ended;
    ASSERT_EQ(found["ranks"].size(), 2U) << ended;
    EXPECT_EQ(found["ranks"].at(1)["rank"], 1) << ended;
    EXPECT_GT(found["ranks"].at(1)["host_memory_bytes"], 0) << ended;
    ASSERT_FALSE(found["failures"].empty()) << ended;
    EXPECT_EQ(count_of(found["failures"].at(0), reason), 1) << ended;
  }
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
  const Json found = printed(ended);
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

TEST_F(CheckTest, FilesAreReadWithoutMpiAndFewOptionsAreTaken) {
  job_.write_text("ds.json", R"({"train_batch_size": 8, "steps_per_prints": 7,
    "zero_optimization": {"stage": 1, "sub_group_size": 7}})");
  Ended ended = check(0, {"ds.json"});
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_EQ(count_of(ended.out, "ds.json:1: error: /steps_per_prints"), 1) << ended;
  EXPECT_EQ(count_of(ended.out, "ds.json:2: warning: /zero_optimization/sub_group_size"), 1)
      << ended;
  job_.write_text("ds.json", R"({"train_batch_size": 8, "run": 7})");
  EXPECT_EQ(check(0, {"ds.json"}).exit_code, 0);
  EXPECT_EQ(check(0, {"ds.json", "--strict"}).exit_code, 3);
  job_.write_text("accelerate.yaml",
                  "distributed_type: DEEPSPEED\n"
                  "deepspeed_config:\n"
                  "  zero_stage: 3\n"
                  "  offload_optimizer_device: nvme\n"
                  "  gradient_clipping: -1\n");
  ended = check(0, {"accelerate.yaml", "--gpus-per-node", "2"});
  EXPECT_EQ(ended.exit_code, 0);
  // The file's own keys and lines, and accelerate's ways.
  EXPECT_EQ(count_of(ended.out, "accelerate.yaml:5: warning: /deepspeed_config/gradient_clipping"),
            1)
      << ended;
  EXPECT_EQ(count_of(ended.out, "accelerate.yaml:1: warning: accelerate launch"), 1) << ended;
  // Ranks by a hostfile, and fewer of them.
  job_.write_text("ds.json", R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1})");
  job_.write_text("hosts", "one slots=4\ntwo slots=3\n");
  ended = check(0, {"ds.json", "--hostfile", "hosts"});
  EXPECT_EQ(ended.exit_code, 3) << ended;
  EXPECT_EQ(count_of(ended.out, " x 7 ranks"), 1) << ended;
  EXPECT_EQ(check(0, {"ds.json", "--hostfile", "hosts", "--exclude", "two"}).exit_code, 0);
  EXPECT_EQ(check(0, {"ds.json", "--hostfile", "hosts", "--nodes", "2"}).exit_code, usage);
  ended = check(0, {"ds.json", "--hostfile", "nowhere"});
  EXPECT_EQ(ended.exit_code, 3) << ended;
  EXPECT_EQ(count_of(ended.err, "internal"), 0) << ended;
  ended = check(0, {"--tuner", "race"});
  EXPECT_EQ(ended.exit_code, usage);
  EXPECT_EQ(count_of(ended.err, "check of a machine has no --tuner"), 1) << ended;
  EXPECT_FALSE(job_.exists("autotuning_results"));
}

TEST_F(CheckTest, ARankThatHangsIsNamed) {
  Process process = start_json();
  kill(process.ranks().at(1), SIGSTOP);
  const Ended ended = process.wait();
  EXPECT_FALSE(ended.is_late) << ended;
  EXPECT_EQ(ended.exit_code, no_device) << ended;
  EXPECT_GE(count_of(ended.err, "rank 1 does not answer"), 1) << ended;
  EXPECT_EQ(count_of(ended.err, "resumes"), 0) << ended;
  expect_unfinished(ended, no_device, "rank 1 does not answer (in ");
}

TEST_F(CheckTest, ARankThatDiesIsNamed) {
  Process process = start_json();
  kill(process.ranks().at(1), SIGKILL);
  const Ended ended = process.wait();
  EXPECT_NE(ended.exit_code, 0) << ended;
  EXPECT_GE(count_of(ended.err, "rank 1 died"), 1) << ended;
  expect_unfinished(ended, no_device, "rank 1 died (in ");
}

TEST_F(CheckTest, ASignalStopsTheCheckAndNoSearch) {
  Process process = start_json();
  // mpirun hands it on, and what ranks print then arrives. After a SIGTERM it may not.
  process.signal(SIGUSR1);
  const Ended ended = process.wait();
  EXPECT_EQ(ended.exit_code, stopped_early) << ended;
  EXPECT_GE(count_of(ended.err, "the check was stopped by a signal"), 1) << ended;
  EXPECT_EQ(count_of(ended.err, "search"), 0) << ended;
  EXPECT_EQ(count_of(ended.err, "resumes"), 0) << ended;
  expect_unfinished(ended, stopped_early, "where another host's rank is lost (in ");
}

}  // namespace
}  // namespace dstune::e2e
