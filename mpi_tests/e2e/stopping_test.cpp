// Stopped early: the best so far is on disk, the same command goes on.
#include <csignal>
#include <filesystem>
#include <iterator>
#include <thread>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

constexpr int stopped_early = 75;
constexpr int experiments = 10;

class StoppingTest : public testing::Test {
 protected:
  /// Ten experiments of a second or more, two at once.
  StoppingTest() {
    Json space = synthetic_space({1}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.15);
    job_.write("space.json", space);
  }
  /// The run's best so far is complete on disk.
  void expect_best_so_far() {
    const Json optimal = job_.read_json(results + "optimal.json");
    const auto metrics = all_metrics(job_);
    ASSERT_TRUE(metrics.contains(optimal["name"]));
    for (const auto& [name, measured] : metrics) {
      if (!measured["throughput"].is_number()) continue;
      EXPECT_LE(measured["throughput"].get<double>(), optimal["value"].get<double>()) << name;
    }
    EXPECT_TRUE(job_.read_json(results + "ds_config_optimal.json").is_object());
    EXPECT_TRUE(job_.exists(results + "summary.txt"));
    EXPECT_TRUE(job_.exists(results + "results.csv"));
  }
  void expect_complete(const Ended& ended) {
    expect_exit(job_, ended, 0);
    EXPECT_EQ(names_of(journal(job_), "finished").size(), experiments)
        << "every experiment is measured once";
    EXPECT_EQ(job_.read_json(results + "optimal.json")["name"], short_name(0, experiments));
  }
  /// Starts the job and waits until it has something to lose.
  Process start_and_wait() {
    Process process = job_.start({.ranks = 2, .args = {"space.json"}});
    while (process.is_running() && num_finished_so_far(job_) < 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return process;
  }

  Job job_;
};

TEST_F(StoppingTest, EndsAtTheTimeLimitAndGoesOnWithTheSameCommand) {
  const Command command{.ranks = 2,
                        .args = {"--time-limit", "4s", "--reserve", "1s", "space.json"}};
  Ended ended = job_.run(command);
  expect_exit(job_, ended, stopped_early);
  expect_best_so_far();
  EXPECT_NE(ended.err.find("time limit"), std::string::npos) << ended;
  int finished = num_finished_so_far(job_);
  EXPECT_GE(finished, 2);
  for (int i = 0; ended.exit_code == stopped_early && i < experiments; ++i) {
    ended = job_.run(command);
    EXPECT_GT(num_finished_so_far(job_), finished) << "no progress in " << i << '\n' << ended;
    finished = num_finished_so_far(job_);
  }
  expect_complete(ended);
}

TEST_F(StoppingTest, TakesTheTimeLimitFromTheBatchSystem) {
  const auto end = std::chrono::system_clock::now() + std::chrono::seconds(6);
  const Ended ended =
      job_.run({.ranks = 2,
                .args = {"--reserve", "2s", "space.json"},
                .environment = {{"SLURM_JOB_END_TIME",
                                 std::to_string(std::chrono::system_clock::to_time_t(end))}}});
  expect_exit(job_, ended, stopped_early);
  EXPECT_NE(ended.err.find("SLURM_JOB_END_TIME"), std::string::npos) << "the source is printed\n"
                                                                     << ended;
}

TEST_F(StoppingTest, EndsCleanlyAtASignal) {
  Process process = start_and_wait();
  process.signal(SIGUSR1);
  const Ended ended = process.wait();
  EXPECT_FALSE(ended.is_late) << ended;
  expect_exit(job_, ended, stopped_early);
  expect_best_so_far();
  expect_complete(job_.run({.ranks = 2, .args = {"space.json"}}));
}

TEST_F(StoppingTest, SavesEverythingWhenMpirunIsTerminated) {
  Process process = start_and_wait();
  process.signal(SIGTERM);
  const Ended ended = process.wait();
  EXPECT_FALSE(ended.is_late) << ended;
  // mpirun has a code of its own after a signal, and kills the ranks a second later.
  EXPECT_NE(ended.exit_code, 0) << ended;
  EXPECT_EQ(job_.read_json(results + "exit_status.json")["exit_code"], stopped_early);
  expect_best_so_far();
  expect_complete(job_.run({.ranks = 2, .args = {"space.json"}}));
}

TEST(TimeLimitTest, EndsWhilePlanningAndSaysSo) {
  Job job;
  Json space = synthetic_space({1}, {1});
  Json sizes = Json::array();
  for (int i = 1; i <= 3000; ++i) sizes.push_back(i);
  space["train_micro_batch_size_per_gpu"] = sizes;
  space["gradient_accumulation_steps"] = sizes;
  job.write("space.json", space);
  const Ended ended =
      job.run({.ranks = 2, .args = {"--time-limit", "3s", "--reserve", "1s", "space.json"}});
  expect_exit(job, ended, stopped_early);
  EXPECT_LT(ended.wall_s, 20);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(job.folder() / results), {}), 1)
      << "exit_status.json alone";
}

TEST(TimeLimitTest, BeyondNumbersIsFarAway) {
  Job job;
  job.write("space.json", synthetic_space({1}, {1, 2}));
  const std::string far = std::string(400, '9') + "h";
  const Ended ended =
      job.run({.ranks = 1, .args = {"--time-limit", far, "--trial-timeout", far, "space.json"}});
  expect_exit(job, ended, 0);
}

TEST(SecondSignalTest, LeavesWithoutWaitingForTheStep) {
  Job job;
  job.write("space.json", synthetic_space({2}, {1, 2}, 60));
  Process process = job.start({.ranks = 2, .args = {"--reserve", "6s", "space.json"}});
  const auto count_started = [&] {
    return job.exists(results + "journal.jsonl")
               ? count_of(job.read(results + "journal.jsonl"), "\"kind\":\"started\"")
               : 0;
  };
  while (process.is_running() && count_started() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto signalled_at = std::chrono::steady_clock::now();
  process.signal(SIGUSR1);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  process.signal(SIGUSR1);
  const Ended ended = process.wait();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - signalled_at;
  EXPECT_FALSE(ended.is_late) << ended;
  EXPECT_LT(took.count(), 20) << "a step takes a minute\n" << ended;
  expect_exit(job, ended, stopped_early);
}

}  // namespace
}  // namespace dstune::e2e
