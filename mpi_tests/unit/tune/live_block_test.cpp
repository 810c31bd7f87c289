// The block of rows on a terminal, as a small terminal shows it.
#include "control/live_block.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/columns.hpp"
#include "dstune/base/log.hpp"
#include "progress_fixture.hpp"

namespace dstune {
namespace {

using test::FakeSink;
using test::ProgressRun;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using Style = Progress::Style;

TEST(ColumnsTest, CharactersAreNeverCut) {
  EXPECT_EQ(num_columns("Grüße ±1 µs"), 11U);
  EXPECT_EQ(num_columns("模型"), 4U);
  EXPECT_EQ(num_columns("e\xCC\x81"), 1U) << "a combining accent";
  EXPECT_EQ(num_columns("\xF0\x9F\x9A\x80"), 2U) << "a rocket";
  EXPECT_EQ(num_columns("\xFF"), 1U) << "no UTF-8";
  EXPECT_EQ(cut_to_columns("模型模型", 8), "模型模型");
  EXPECT_EQ(cut_to_columns("模型模型", 7), "模型模…");
  EXPECT_EQ(cut_to_columns("模型模型", 6), "模型…");
  EXPECT_EQ(cut_to_columns("Grüße", 4), "Grü…");
  EXPECT_EQ(cut_to_columns("abc", 1), "…");
  EXPECT_EQ(cut_to_columns("abc", 0), "");
}

TEST(LiveBlockTest, RewritesExactlyItsRows) {
  FakeSink sink(40);
  sink.say("before");
  LiveBlock block(sink);
  block.draw({"one", "two", "three"});
  block.draw({"1", "2"});
  EXPECT_THAT(sink.terminal.lines(), ElementsAre("before", "1", "2"));
  block.around([&] { sink.say("a message"); });
  EXPECT_FALSE(block.is_drawn());
  block.draw({"1", "2", "3"});
  EXPECT_THAT(sink.terminal.lines(), ElementsAre("before", "a message", "1", "2", "3"));
  block.clear();
  EXPECT_THAT(sink.terminal.lines(), ElementsAre("before", "a message"));
  EXPECT_EQ(sink.terminal.unknown(), "");
}

TEST(LiveBlockTest, NoRowIsAsWideAsTheTerminal) {
  FakeSink sink(10);
  LiveBlock block(sink);
  block.draw({"0123456789", "012345678", "模型模型模型"});
  EXPECT_EQ(sink.terminal.num_wraps(), 0);
  EXPECT_THAT(sink.terminal.lines(), ElementsAre("01234567…", "012345678", "模型模型…"));
  block.draw({"a\tb\033[2J", "c"});
  EXPECT_THAT(sink.terminal.lines(), ElementsAre("a\\x09b\\x…", "c")) << "names move no cursor";
}

TEST(LiveBlockTest, AResizeLeavesNoRowBehindAndErasesNoMessage) {
  const std::vector<std::string> rows{std::string(70, 'a'), std::string(30, 'b'), "c"};
  for (const bool breaks_rows : {false, true}) {
    FakeSink sink(80, 24, breaks_rows);
    LiveBlock block(sink);
    for (int i = 0; i < 4; ++i) sink.say("message " + std::to_string(i));
    block.draw(rows);
    for (const std::size_t columns : {40U, 25U, 120U, 33U}) {
      sink.resize(columns);
      block.draw(rows);
    }
    EXPECT_THAT(sink.terminal.lines(),
                ElementsAre("message 0", "message 1", "message 2", "message 3",
                            std::string(31, 'a') + "…", std::string(30, 'b'), "c"))
        << breaks_rows;
    EXPECT_EQ(sink.terminal.num_wraps(), 0);
  }
}

TEST(LiveBlockTest, ALowWindowHasRoomForSomeRowsOnly) {
  FakeSink sink(40, 3);
  LiveBlock block(sink);
  sink.say("message");
  for (int i = 0; i < 3; ++i) block.draw({"one", "two", "three"});
  EXPECT_THAT(sink.terminal.lines(), ElementsAre("message", "one", "two"));
}

TEST(LiveProgressTest, TheBlockHasPhaseCountsBestAndWhatRuns) {
  ProgressRun job(Style::live);
  job.progress.set_time_limit(600);
  job.progress.begin_search(24, "with the built-in step");
  job.run(0, 20, 1, true);
  job.progress.set_estimate([] { return TimeLeft{153, 120, 200, "12 more experiments of 2 s"}; });
  for (std::size_t member = 1; member < 6; ++member)
    job.begin(member, test::sample_experiment("m" + std::to_string(member)));
  job.progress.stepped(1, 12);
  job.pass(1);
  EXPECT_THAT(job.sink->terminal.lines(),
              ElementsAre(StartsWith("Start: "),
                          "Start took 0.0 s. Search with the built-in step: up to 24 experiments.",
                          "Search with the built-in step for 2.0 s, 2.0 s of 10 m used",
                          "1 done, 5 running, about 2 m 30 s left (12 more experiments of 2 s)",
                          "Best so far: 20 samples/s, the baseline (m0 on 2 ranks)",
                          "Running: m1 on 2 ranks, step 12", "Running: m2 on 2 ranks",
                          "Running: m3 on 2 ranks"));
  job.progress.begin(TuningPhase::writing);
  job.progress.begin(TuningPhase::done);
  job.pass(5);
  EXPECT_THAT(job.sink->terminal.lines().back(), "Writing took 0.0 s. Done after 2.0 s.");
}

TEST(LiveProgressTest, ItIsDrawnAtMostTenTimesASecond) {
  ProgressRun job(Style::live);
  job.progress.begin_search(5000, "with the built-in step");
  const int before = job.sink->num_writes;
  for (std::size_t member = 0; member < 5000; ++member) job.run(member, 20, 0.001);
  EXPECT_LE(job.sink->num_writes - before, 51);
  EXPECT_GE(job.sink->num_writes - before, 5);
}

TEST(LiveProgressTest, AFailureStandsAboveTheBlock) {
  ProgressRun job(Style::live);
  job.progress.begin_search(5000, "with the built-in step");
  for (std::size_t member = 0; member < 50; ++member)
    job.fail(member, Status::failed, "rank 0: no", 0.05);
  job.pass(1);
  const std::vector<std::string> shown = job.sink->terminal.lines();
  EXPECT_THAT(shown[shown.size() - 3], "[1 done, 0 running] m0 on 2 ranks: failed: rank 0: no");
  EXPECT_THAT(shown.back(), "50 done, 0 running");
}

TEST(LiveProgressTest, MessagesOfOthersClearTheBlockFirst) {
  testing::internal::CaptureStderr();
  const auto sink = std::make_shared<FakeSink>();
  {
    ProgressRun job(Style::live, sink);
    job.progress.begin_search(24, "with the built-in step");
    job.pass(2);
    EXPECT_THAT(sink->terminal.lines().back(), HasSubstr("0 done"));
    log::warning("lost rank 3");
    EXPECT_THAT(sink->terminal.lines().back(), HasSubstr("up to 24 experiments."));
    job.pass(0.2);
    EXPECT_THAT(sink->terminal.lines().back(), HasSubstr("0 done")) << "it comes back";
  }
  EXPECT_THAT(sink->terminal.lines().back(), HasSubstr("up to 24 experiments."));
  log::warning("after it");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(HasSubstr("lost rank 3\n"), HasSubstr("after it\n")));
}

}  // namespace
}  // namespace dstune
