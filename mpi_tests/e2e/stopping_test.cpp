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

constexpr int experiments = 45;

class StoppingTest : public JobTest {
 protected:
  /// Experiments of a quarter of a second, two at once, which take longer than any limit here.
  StoppingTest() { job_.write("space.json", synthetic_space({1}, sizes_up_to(experiments), 0.03)); }
  /// The run's best so far is complete on disk.
  void expect_best_so_far() {
    const Json optimal = optimal_of(job_);
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
    EXPECT_EQ(optimal_of(job_)["name"], short_name(0, experiments));
  }
};

TEST_F(StoppingTest, EndsAtTheTimeLimitAndGoesOnWithTheSameCommand) {
  const std::vector<std::string> limit{"--time-limit", "4s", "--reserve", "1s"};
  Ended ended = run(limit);
  expect_exit(job_, ended, stopped_early);
  expect_best_so_far();
  EXPECT_THAT(ended.err, HasSubstr("time limit")) << ended;
  int finished = num_finished_so_far(job_);
  EXPECT_GE(finished, 2);
  for (int i = 0; ended.exit_code == stopped_early && i < experiments; ++i) {
    ended = run(limit);
    // Where the limit came in the finals, all had been measured.
    if (finished < experiments) {
      EXPECT_GT(num_finished_so_far(job_), finished) << "no progress in " << i << '\n' << ended;
    }
    finished = num_finished_so_far(job_);
  }
  expect_complete(ended);
}

TEST_F(StoppingTest, TakesTheTimeLimitFromTheBatchSystem) {
  const auto end = std::chrono::system_clock::now() + std::chrono::seconds(6);
  const Ended ended =
      run_with({{"SLURM_JOB_END_TIME", std::to_string(std::chrono::system_clock::to_time_t(end))}},
               {"--reserve", "2s"});
  expect_exit(job_, ended, stopped_early);
  EXPECT_THAT(ended.err, HasSubstr("SLURM_JOB_END_TIME")) << "the source is printed\n" << ended;
}

TEST_F(StoppingTest, EndsCleanlyAtASignal) {
  Process process = start_and_wait(2);
  process.signal(SIGUSR1);
  const Ended ended = process.wait();
  EXPECT_FALSE(ended.is_late) << ended;
  expect_exit(job_, ended, stopped_early);
  expect_best_so_far();
  expect_complete(run());
}

TEST_F(StoppingTest, SavesEverythingWhenMpirunIsTerminated) {
  Process process = start_and_wait(2);
  process.signal(SIGTERM);
  const Ended ended = process.wait();
  EXPECT_FALSE(ended.is_late) << ended;
  // mpirun has a code of its own after a signal, and kills the ranks a second later.
  EXPECT_NE(ended.exit_code, 0) << ended;
  EXPECT_EQ(exit_status_of(job_)["exit_code"], stopped_early);
  expect_best_so_far();
  expect_complete(run());
}

TEST(TimeLimitTest, EndsWhilePlanningAndSaysSo) {
  Job job;
  Json space = synthetic_space({1}, sizes_up_to(3000));
  space["gradient_accumulation_steps"] = sizes_up_to(3000);
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
  wait_until(process, [&] { return count_started() > 0; });
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
