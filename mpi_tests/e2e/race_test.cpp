// The tuner that runs where nobody says which: losers are stopped early, the finalists are measured
// again. Times come from a table of noisy series, so that every run gives the same.
#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

constexpr int num_sizes = 24;

class RaceTest : public JobTest {
 protected:
  RaceTest() {
    ranks_ = 1;
    Json table;
    std::mt19937_64 generator(1);
    std::normal_distribution<double> noise(0, 0.01);
    for (int size = 1; size <= num_sizes; ++size) {
      // 17 and 18 are as good.
      const double throughput = 100 * std::exp(-std::pow((size - 17.5) / 8, 2));
      std::vector<double> steps_s;
      for (int step = 0; step < 100; ++step)
        steps_s.push_back(size / throughput * (1 + noise(generator)));
      table[short_name(0, size)] = {{"step_times_s", steps_s}, {"peak_memory_bytes", 1000 * size}};
    }
    Json space = replay_space({1}, sizes_up_to(num_sizes));
    space["dstune"]["trial_budget_s"] = 100;
    space["autotuning"] = {{"enabled", true}};
    job_.write("space.json", space);
    job_.write("table.json", table);
  }
};

TEST_F(RaceTest, StopsLosersEarlyAndMeasuresFinalistsAgain) {
  const Ended ended = run();
  expect_exit(job_, ended, 0);
  const auto metrics = all_metrics(job_);
  int raced_out = 0;
  for (const auto& [name, one] : metrics) {
    if (one["status"] == "ok") continue;
    EXPECT_EQ(one["status"], "raced_out") << name << ' ' << one["reason"];
    ++raced_out;
    EXPECT_THAT(one["reason"].get<std::string>(),
                HasSubstr(": clearly slower than the best so far ("));
    EXPECT_GT(one["throughput"].get<double>(), 0);
    EXPECT_LE(one["ci_low"].get<double>(), one["throughput"].get<double>());
    EXPECT_LE(one["step_times_s"].size(), 3 + 160U);
  }
  EXPECT_GE(raced_out, 1);

  const Json optimal = optimal_of(job_);
  const Json validation = job_.read_json(results + "validation.json");
  EXPECT_EQ(validation["done"], true) << validation["reason"];
  EXPECT_EQ(validation["winner"], optimal["name"]);
  EXPECT_TRUE(optimal["name"] == short_name(0, 17) || optimal["name"] == short_name(0, 18));
  EXPECT_NEAR(optimal["value"].get<double>(), 99.6, 1);
  EXPECT_GT(optimal["probability_best"].get<double>(), 0);
  EXPECT_LE(optimal["probability_best"].get<double>(), 1);
  // 5 % by beliefs, and what they do not foresee after eight errors. Where they do not hold, the
  // search ends by its cap with any chance.
  const bool is_by_cap =
      job_.read(results + "summary.txt").find("past the limit of ") != std::string::npos;
  EXPECT_LT(optimal["chance_of_better"].get<double>(), is_by_cap ? 1 : 1 - 0.95 * (1 - 0.025));
  const auto events = journal(job_);
  EXPECT_EQ(names_of(events, "started").size(), metrics.size());
  EXPECT_GE(names_of(events, "repeated").size(), 3U);
  EXPECT_EQ(names_of(events, "repeated").size(), names_of(events, "repeat_started").size());
  std::size_t rounds = 0;
  for (const Json& finalist : validation["finalists"])
    if (finalist["name"] == optimal["name"]) rounds = finalist["runs"].size();
  // One round is enough where runs differ so little that the winner is surely close to the best.
  EXPECT_GE(rounds, 1U);
  EXPECT_LE(rounds, 6U);
  const std::string times = rounds == 1 ? "1 time" : std::to_string(rounds) + " times";
  EXPECT_THAT(ended.out, HasSubstr("measured again: " + times + ", alone")) << ended;

  // The same command repeats nothing and answers the same.
  const Ended again = run();
  expect_exit(job_, again, 0);
  const auto later = journal(job_);
  EXPECT_TRUE(names_of(later, "started", events.size()).empty());
  EXPECT_TRUE(names_of(later, "repeat_started", events.size()).empty());
  EXPECT_EQ(optimal_of(job_)["name"], optimal["name"]);
  EXPECT_EQ(optimal_of(job_)["value"], optimal["value"]);
}

TEST_F(RaceTest, AnotherMetricSearchesOnWithWhatIsKnown) {
  expect_exit(job_, run(), 0);
  const std::size_t before = journal(job_).size();
  const Ended ended = run({"--metric", "latency"});
  expect_exit(job_, ended, 0);
  EXPECT_THAT(ended.err, HasSubstr("runs that lost a race by another metric do not count"));
  const auto events = journal(job_);
  EXPECT_EQ(events[before]["metric"], "latency");
  EXPECT_FALSE(names_of(events, "started", before).empty());
  // A step of 15 samples takes least, and one of 14 or 16 hardly longer.
  const std::string name = optimal_of(job_)["name"];
  EXPECT_TRUE(name == short_name(0, 14) || name == short_name(0, 15) || name == short_name(0, 16))
      << name;
  // What ran to its end counts for both.
  const auto again = names_of(events, "started", before);
  EXPECT_EQ(std::ranges::count(again, short_name(0, 17)), 0);
}

// Both start at once, when there is nothing to be compared with.
TEST(LateRaceTest, AChallengerIsStoppedWhenABetterOneEnds) {
  Job job;
  Json table;
  // Its own interval is too wide to end it before every look of the race is over.
  const std::vector<double> slow_s = {0.06, 0.09, 0.12, 0.09};
  table[short_name(0, 1)] = {{"step_times_s", slow_s}, {"peak_memory_bytes", 1000}};
  table[short_name(0, 2)] = {{"step_time_s", 0.002}, {"peak_memory_bytes", 1000}};
  Json space = replay_space({1}, {1, 2});
  space["dstune"]["workload"]["time_scale"] = 1.0;
  space["dstune"]["trial_budget_s"] = 100;
  space["autotuning"] = {{"enabled", true}};
  job.write("space.json", space);
  job.write("table.json", table);
  const Ended ended = job.run({.ranks = 2, .args = {"space.json"}});
  expect_exit(job, ended, 0);
  auto metrics = all_metrics(job);
  const Json& slow = metrics[short_name(0, 1)];
  EXPECT_EQ(slow["status"], "raced_out");
  EXPECT_LT(slow["step_times_s"].size(), 3 + 160U);
  EXPECT_EQ(metrics[short_name(0, 2)]["status"], "ok");
  EXPECT_TRUE(is_overlapping(slow, metrics[short_name(0, 2)]));
}

TEST_F(RaceTest, GridsearchMeasuresEveryMemberFully) {
  expect_all_ok(job_, run({"--tuner", "gridsearch"}), num_sizes);
}

}  // namespace
}  // namespace dstune::e2e
