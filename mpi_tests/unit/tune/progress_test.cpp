// The lines of a job, by a clock of the test's own.
#include "control/progress.hpp"

#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/columns.hpp"
#include "dstune/base/error.hpp"
#include "progress_fixture.hpp"

namespace dstune {
namespace {

using test::FakeSink;
using test::ProgressRun;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;
using Style = Progress::Style;

constexpr const char* built_in = "with the built-in step";

int count_of(const std::vector<std::string>& lines, const std::string& part) {
  int count = 0;
  for (const std::string& line : lines) count += line.find(part) != line.npos ? 1 : 0;
  return count;
}

TEST(ProgressTest, PhasesAreToldWithTheirTimes) {
  ProgressRun job(Style::lines);
  job.pass(0.25);
  job.progress.begin(TuningPhase::profiling);
  job.pass(5);
  job.progress.begin(TuningPhase::planning);
  job.progress.begin_search(24, built_in);
  job.progress.tell_known();
  job.pass(1);
  job.run(0, 20, 1, true);
  job.run(1, 52.1, 1.5, true);
  job.progress.begin(TuningPhase::finals);
  job.progress.begin(TuningPhase::finals);
  job.pass(90);
  job.progress.begin(TuningPhase::writing);
  job.pass(0.5);
  job.progress.begin(TuningPhase::done);
  EXPECT_THAT(
      job.lines(),
      ElementsAre("Start: reads the input and plans the memory of every member.",
                  "Start took 0.2 s. Profiling: times the operations of a step on this machine.",
                  "Profiling took 5.0 s. Planning: predicts the speed of every member.",
                  "Planning took 0.0 s. Search with the built-in step: up to 24 experiments.",
                  "[1 done, 0 running] m0 on 2 ranks: 20 samples/s ±0.0 %. Best so far, the "
                  "baseline",
                  "[2 done, 0 running] m1 on 2 ranks: 52.1 samples/s ±0.0 %. Best so far, 2.6 "
                  "times the baseline",
                  "Search: 2 done, 0 running, 8.8 s so far; best so far is m1 on 2 ranks: 52.1 "
                  "samples/s, 2.6 times the baseline.",
                  "Search with the built-in step took 3.5 s. Finals: the best few run again, alone "
                  "and in turns.",
                  "Finals: 2 done, 0 running, 1 m 39 s so far; best so far is m1 on 2 ranks: 52.1 "
                  "samples/s, 2.6 times the baseline.",
                  "Finals took 1 m 30 s. Writing: the answer and its reports.",
                  "Writing took 0.5 s. Done after 1 m 39 s."));
  EXPECT_FALSE(job.progress.state().is_running);
  EXPECT_EQ(job.progress.state().phase, TuningPhase::done);
  EXPECT_DOUBLE_EQ(job.progress.state().elapsed_s, 99.25);
  EXPECT_EQ(job.progress.state().began_at, *parse_time("2026-01-02T03:04:05Z"));
}

TEST(ProgressTest, EveryLineHasItsTime) {
  setenv("TZ", "XYZ-01:30", 1);
  tzset();
  ProgressRun job(Style::lines);
  job.pass(3600);
  job.progress.begin(TuningPhase::profiling);
  unsetenv("TZ");
  tzset();
  EXPECT_THAT(job.sink->lines,
              ElementsAre(StartsWith("2026-01-02T04:34:05+01:30 Start: "),
                          StartsWith("2026-01-02T05:34:05+01:30 Start took 1 h 00 m. ")));
}

TEST(ProgressTest, AnEstimateIsToldWithWhatItAssumes) {
  ProgressRun job(Style::lines);
  job.progress.set_time_limit(600);
  job.progress.begin_search(24, built_in);
  job.run(0, 20, 1, true);
  int num_asked = 0;
  job.progress.set_estimate([&] {
    ++num_asked;
    return TimeLeft{153, 120, 200, "12 more experiments of 2 s, 2 at once"};
  });
  for (int i = 0; i < 100; ++i) job.pass(0.1);
  const std::vector<std::string> lines = job.lines();
  EXPECT_EQ(lines[lines.size() - 2],
            "Search: 1 done, 0 running, 10 s of 10 m used, about 2 m 30 s left (12 more "
            "experiments of 2 s, 2 at once).");
  EXPECT_EQ(lines.back(), "Best so far is m0 on 2 ranks: 20 samples/s, the baseline.");
  EXPECT_LE(num_asked, 11);
  EXPECT_EQ(job.progress.state().left->seconds, 153);
  // Nobody knows better than that.
  EXPECT_EQ(progress_text::left({100, 50, 300, ""}), "50 s to 5 m left");
  job.progress.set_estimate([] { return std::nullopt; });
  for (int i = 0; i < 200; ++i) job.pass(0.1);
  EXPECT_THAT(job.lines().back(), Not(HasSubstr("left")));
  job.progress.set_estimate([]() -> std::optional<TimeLeft> { throw LogicError("it is gone"); });
  job.progress.begin(TuningPhase::writing);
  job.pass(10);
  EXPECT_FALSE(job.progress.state().left);
}

TEST(ProgressTest, AResumeTellsOnceWhatIsKnown) {
  ProgressRun job(Style::lines);
  job.progress.begin_search(24, built_in);
  job.progress.set_best(BestSoFar{.name = "m3", .num_ranks = 2, .value = 52.1, .gain = 1.31});
  for (std::size_t member = 0; member < 12; ++member) job.progress.take_known(member);
  job.progress.tell_known();
  job.pass(1);
  job.run(12, 40);
  EXPECT_THAT(job.lines(),
              ElementsAre(StartsWith("Start: "), StartsWith("Start took "),
                          "12 results are known from earlier jobs and not repeated; the best is m3 "
                          "on 2 ranks: 52.1 samples/s, 1.31 times the baseline.",
                          StartsWith("[13 done, 0 running] m12 on 2 ranks: 40 samples/s")));
  EXPECT_EQ(job.progress.state().known, 12U);
  EXPECT_EQ(job.progress.state().done, 13U);
  EXPECT_EQ(job.progress.state().planned, 24U);
}

// A job with --verify searches once, in the engine; forecasts are made of the built-in step.
TEST(ProgressTest, ASearchInTheEngineHasItsNameAndOneNumbering) {
  ProgressRun job(Style::lines);
  job.progress.begin(TuningPhase::profiling);
  job.progress.begin_search(24, "in DeepSpeed's engine");
  for (std::size_t member = 0; member < 3; ++member) job.run(member, 20, 1, member == 0);
  job.progress.begin(TuningPhase::finals);
  const std::vector<std::string> lines = job.lines();
  EXPECT_THAT(lines[2], HasSubstr("Search in DeepSpeed's engine: up to 24 experiments"));
  EXPECT_THAT(lines[3], StartsWith("[1 done, "));
  EXPECT_THAT(lines[5], StartsWith("[3 done, "));
  EXPECT_THAT(lines[7], StartsWith("Search in DeepSpeed's engine took 3.0 s. Finals: "));
}

TEST(ProgressTest, RepeatsHaveCountersOfTheirOwn) {
  ProgressRun job(Style::lines);
  job.progress.begin_search(24, built_in);
  job.run(0, 20, 1, true);
  const Record record = test::sample_record("m0", 0.5);
  Repeat repeat;
  repeat.kind = RepeatKind::spread;
  repeat.measurement = record.measurement;
  job.progress.repeated(record.experiment, repeat, Metric::throughput);
  job.progress.begin(TuningPhase::finals);
  repeat.kind = RepeatKind::final_round;
  job.progress.repeated(record.experiment, repeat, Metric::throughput);
  job.progress.repeated(record.experiment, repeat, Metric::throughput);
  const std::vector<std::string> lines = job.lines();
  EXPECT_THAT(lines, testing::Contains("[repeat 1 of the best so far] m0 on 2 ranks: 32 samples/s "
                                       "±0.0 %"));
  EXPECT_EQ(lines.back(), "[finals, run 2] m0 on 2 ranks: 32 samples/s ±0.0 %");
  EXPECT_EQ(job.progress.state().done, 1U);
}

TEST(ProgressTest, AMemberThatRunsTwiceCountsOnce) {
  ProgressRun job(Style::lines);
  job.progress.begin_search(24, built_in);
  job.fail(7, Status::raced_out, "stopped after 10 steps: clearly slower than the best so far");
  EXPECT_EQ(job.lines().back(),
            "[1 done, 0 running] m7 on 2 ranks: stopped after 10 steps: clearly slower than the "
            "best so far");
  job.run(7, 20);
  EXPECT_EQ(job.progress.state().done, 1U);
  // One that was lost is left without a result.
  job.progress.started(100, test::sample_experiment("m8"));
  EXPECT_EQ(job.progress.state().running, 1U);
  job.progress.left(100);
  job.pass(1);
  EXPECT_EQ(job.progress.state().running, 0U);
}

TEST(ProgressTest, AThousandEqualFailuresAreFewLines) {
  ProgressRun job(Style::lines);
  job.progress.begin_search(1000, built_in);
  for (std::size_t member = 0; member < 1000; ++member)
    job.fail(member, member % 10 == 0 ? Status::out_of_memory : Status::failed,
             fmt::format("rank {}: step {} gave no loss", member % 4, member), 0.03);
  job.progress.begin(TuningPhase::writing);
  const std::vector<std::string> lines = job.lines();
  EXPECT_EQ(count_of(lines, "[2 done, 0 running] m1 on 2 ranks: failed: rank 1: step 1 gave"), 1);
  EXPECT_EQ(count_of(lines, "[1 done, 0 running] m0 on 2 ranks: ran out of memory: rank 0"), 1);
  EXPECT_LE(count_of(lines, " more "), 2 * 4) << "thirty seconds, and the end";
  EXPECT_LE(lines.size(), 18U);
  int counted = 2;
  for (const std::string& line : lines)
    if (line.find(" more ") != line.npos) counted += std::stoi(line);
  EXPECT_EQ(counted, 1000) << "each is told";
  EXPECT_THAT(lines, testing::Contains(MatchesRegex(
                         "[0-9]+ more failed for the same reason: rank 1: step 1 gave no loss")));
  EXPECT_THAT(lines, testing::Contains(MatchesRegex("[0-9]+ more ran out of memory for the same "
                                                    "reason: rank 0: step 0 gave no loss")));
}

TEST(ProgressTest, AThousandReasonsAreFewLinesToo) {
  ProgressRun job(Style::lines);
  job.progress.begin_search(1000, built_in);
  for (std::size_t member = 0; member < 1000; ++member)
    job.fail(member, Status::failed,
             std::string(member / 26 + 1, static_cast<char>('a' + member % 26)), 0.001);
  job.progress.begin(TuningPhase::writing);
  EXPECT_LE(job.lines().size(), 2U + 11 + 5 + 1 + 2);
  EXPECT_EQ(count_of(job.lines(), "for other reasons: results.csv has each"), 1);
}

TEST(ProgressTest, NoLineIsLongerThanTwoHundredColumns) {
  ProgressRun job(Style::lines);
  job.progress.begin_search(1000, built_in);
  std::string reason;
  for (int i = 0; i < 100; ++i) reason += "Grüße \n";
  job.fail(0, Status::failed, reason);
  EXPECT_EQ(num_columns("dstune: info: " + job.sink->lines.back()), 200U);
  EXPECT_THAT(job.sink->lines.back(), EndsWith("…"));
  // Two lines where one is too long.
  job.progress.set_estimate([] { return TimeLeft{60, 50, 70, std::string(60, 'x')}; });
  job.run(1, 20, 12, true);
  job.pass(10);
  const std::vector<std::string> lines = job.lines();
  EXPECT_THAT(lines[lines.size() - 2], StartsWith("Search: 2 done, "));
  EXPECT_EQ(lines.back(), "Best so far is m1 on 2 ranks: 20 samples/s, 1 times the baseline.");
}

TEST(ProgressTest, FastResultsAreRareLines) {
  ProgressRun job(Style::lines);
  job.progress.begin_search(5000, built_in);
  for (std::size_t member = 0; member < 5000; ++member)
    job.run(member, 20 + static_cast<double>(member), 0.001, true);
  EXPECT_LE(job.lines().size(), 2U + 10 + 5 + 1);
  job.pass(1);
  EXPECT_THAT(job.lines().back(),
              "Best so far is m4999 on 2 ranks: 5019 samples/s, 251 times the baseline.");
  EXPECT_EQ(job.progress.state().done, 5000U);
}

TEST(ProgressTest, ALongRunIsTellingNowAndThen) {
  ProgressRun job(Style::lines);
  job.progress.begin_search(24, built_in);
  job.begin(0, test::sample_experiment("m0"));
  const std::size_t before = job.lines().size();
  for (int i = 0; i < 36000; ++i) job.pass(0.1);
  EXPECT_THAT(job.lines().size() - before, AllOf(testing::Gt(55U), testing::Lt(110U)));
  EXPECT_EQ(job.lines().back().substr(0, 28), "Search: 0 done, 1 running, 5");
}

TEST(ProgressTest, AnIntervalWiderThanItsValueHasNoDigits) {
  Record record = test::sample_record("m0");
  record.measurement.step_times_s = {1, 1, 3, 1, 3, 1, 3};
  record.measurement.warmup_steps = 1;
  EXPECT_THAT(progress_text::result(record.experiment, record.measurement, Metric::throughput, {}),
              EndsWith(" samples/s ±100 % or more"));
  EXPECT_THAT(progress_text::result(record.experiment, record.measurement, Metric::throughput, 4),
              EndsWith("±100 % or more here, 4 expected in your training"));
}

TEST(ProgressTest, AnEarlyEndIsToldWithItsReason) {
  ProgressRun job(Style::lines);
  job.progress.begin_search(24, built_in);
  job.pass(1);
  job.progress.stop("the time limit; the same command resumes");
  job.progress.begin(TuningPhase::writing);
  job.progress.begin(TuningPhase::done);
  EXPECT_EQ(job.lines().back(),
            "Writing took 0.0 s. Stopped early after 1.0 s: the time limit; the "
            "same command resumes.");
  EXPECT_EQ(job.progress.state().reason, "the time limit; the same command resumes");
}

TEST(ProgressTest, NoneSaysNothingAndKnowsAll) {
  ProgressRun job(Style::silent);
  job.progress.begin_search(24, built_in);
  for (std::size_t member = 0; member < 24; ++member) job.run(member, 20, 20, member == 0);
  job.fail(24, Status::failed, "no");
  job.progress.begin(TuningPhase::done);
  EXPECT_THAT(job.sink->lines, IsEmpty());
  EXPECT_EQ(job.sink->num_writes, 0);
  EXPECT_EQ(job.progress.state().done, 25U);
}

TEST(ProgressTest, TheOptionAndTheTerminalDecideOnTheStyle) {
  JobOptions options;
  EXPECT_EQ(Progress::style_of(options), Style::lines) << "a file, a pipe, or under mpirun";
  options.has_own_terminal = true;
  EXPECT_EQ(Progress::style_of(options), Style::live);
  options.progress = ProgressMode::lines;
  EXPECT_EQ(Progress::style_of(options), Style::lines);
  options.progress = ProgressMode::none;
  EXPECT_EQ(Progress::style_of(options), Style::silent);
  options.has_own_terminal = false;
  options.progress = ProgressMode::live;
  EXPECT_EQ(Progress::style_of(options), Style::live);
  options.quiet = true;
  EXPECT_EQ(Progress::style_of(options), Style::silent);
}

TEST(ProgressTest, DurationsAreInWords) {
  EXPECT_EQ(progress_text::duration(0.04), "0.0 s");
  EXPECT_EQ(progress_text::duration(9.94), "9.9 s");
  EXPECT_EQ(progress_text::duration(9.96), "10 s");
  EXPECT_EQ(progress_text::duration(59.6), "1 m");
  EXPECT_EQ(progress_text::duration(150), "2 m 30 s");
  EXPECT_EQ(progress_text::duration(3599.7), "1 h 00 m");
  EXPECT_EQ(progress_text::duration(7500), "2 h 05 m");
}

}  // namespace
}  // namespace dstune
