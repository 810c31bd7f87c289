// Joules a sample, from counters that the test turns itself.
#include <chrono>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

class EnergyTest : public JobTest {
 protected:
  EnergyTest() { job_.write("space.json", synthetic_space({1}, {1, 2}, 0.05)); }

  void write_counter(std::int64_t energy_uj) {
    // A reader must not see half of it.
    job_.write_text("powercap/new", std::to_string(energy_uj) + "\n");
    std::filesystem::rename(job_.folder() / "powercap/new",
                            job_.folder() / "powercap/intel-rapl:0/energy_uj");
  }
  /// The counter goes on while the job runs.
  Ended run_with_counter(int ranks) {
    std::filesystem::create_directories(job_.folder() / "powercap/intel-rapl:0");
    job_.write_text("powercap/intel-rapl:0/name", "package-0\n");
    job_.write_text("powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n");
    write_counter(0);
    Process process =
        job_.start({.ranks = ranks,
                    .args = {"space.json"},
                    .environment = {{"DSTUNE_POWERCAP", (job_.folder() / "powercap").string()}}});
    for (std::int64_t energy_uj = 1'000'000; process.is_running(); energy_uj += 1'000'000) {
      write_counter(energy_uj);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return process.wait();
  }
};

TEST_F(EnergyTest, IsThatOfTheStepsAfterWarmUp) {
  const Ended ended = run_with_counter(1);
  expect_exit(job_, ended, 0);
  for (const auto& [name, metrics] : all_metrics(job_)) {
    ASSERT_TRUE(metrics["energy_j"].is_number()) << name;
    const double steps =
        static_cast<double>(metrics["step_times_s"].size()) - metrics["warmup_steps"].get<double>();
    const double samples = steps * (name == short_name(0, 1) ? 1 : 2);
    EXPECT_GT(metrics["energy_j"], 0) << name;
    EXPECT_NEAR(metrics["joules_per_sample"].get<double>() * samples, metrics["energy_j"], 1e-6);
    EXPECT_NE(results_table(job_)[name]["joules_per_sample"], "");
  }
  EXPECT_THAT(ended.out, HasSubstr("J a sample")) << ended;
  EXPECT_EQ(job_.read_json(results + "environment.json")["energy"], "package-0");
}

TEST_F(EnergyTest, IsNotSaidOfNeighboursOnANode) {
  const Ended ended = run_with_counter(2);
  expect_exit(job_, ended, 0);
  const auto metrics = all_metrics(job_);
  ASSERT_EQ(metrics.size(), 2);
  ASSERT_TRUE(is_overlapping(metrics.at(short_name(0, 1)), metrics.at(short_name(0, 2))));
  for (const auto& [name, one] : metrics) EXPECT_TRUE(one["energy_j"].is_null()) << name;
}

TEST_F(EnergyTest, WhereNothingIsCountedTheReasonIsSaidOnce) {
  const std::string nowhere = (job_.folder() / "nowhere").string();
  const Ended ended = run_with({{"DSTUNE_POWERCAP", nowhere}});
  expect_exit(job_, ended, 0);
  EXPECT_EQ(count_of(ended.err, nowhere), 1) << ended;
  for (const auto& [name, metrics] : all_metrics(job_)) {
    EXPECT_TRUE(metrics["energy_j"].is_null()) << name;
    EXPECT_TRUE(metrics["joules_per_sample"].is_null()) << name;
    EXPECT_EQ(results_table(job_)[name]["joules_per_sample"], "");
  }
}

}  // namespace
}  // namespace dstune::e2e
