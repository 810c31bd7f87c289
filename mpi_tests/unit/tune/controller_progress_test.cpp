// The lines of whole searches, resumed ones among them.
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "controller_fixture.hpp"
#include "progress_fixture.hpp"

namespace dstune {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

class ControllerProgressTest : public ControllerTest {
 protected:
  std::vector<std::string> lines_of(const PlannedSpace& members, FakeWorkers& workers,
                                    Settings settings = {}) {
    const auto sink = std::make_shared<test::FakeSink>();
    settings.progress = sink;
    run(members, workers, 4, settings);
    return sink->lines;
  }
};

TEST_F(ControllerProgressTest, ASearchHasOneNumberingAndItsFinalsAnother) {
  PlannedSpace members;
  for (const char* name : {"one", "other", "slow"}) add_member(members, name, 2, 4);
  FakeWorkers workers({{"slow", Behaviour::slow}});
  Settings settings;
  settings.scoreboard.baseline = 2;
  const std::vector<std::string> lines = lines_of(members, workers, settings);
  EXPECT_THAT(lines, Contains(HasSubstr(" Search with the built-in step: up to 3 experiments.")));
  EXPECT_THAT(lines, Contains(MatchesRegex(".* \\[1 done, [01] running\\] one on 2 ranks: .*")));
  EXPECT_THAT(lines, Contains(HasSubstr(" [3 done, 0 running] slow on 2 ranks: ")));
  EXPECT_THAT(lines,
              Contains(MatchesRegex(".* Search: 3 done, 0 running, [0-9.]+ s so far; best so far "
                                    "is one on 2 ranks: .* samples/s, .* times the baseline\\.")));
  EXPECT_THAT(lines,
              Contains(MatchesRegex(".* took [0-9.]+ s\\. Finals: the best few run again.*")));
  EXPECT_THAT(lines, Contains(HasSubstr(" [finals, run 1] ")));
  EXPECT_THAT(lines, Contains(MatchesRegex(".* Finals took [0-9.]+ s\\. Writing: .*")));
  EXPECT_THAT(lines.back(), HasSubstr(" s. Done after "));

  // The same job once more.
  FakeWorkers second({});
  const std::vector<std::string> again = lines_of(members, second, settings);
  EXPECT_TRUE(second.ran().empty());
  EXPECT_THAT(again, Contains(AllOf(HasSubstr(" 3 results are known from earlier jobs and not "
                                              "repeated; the best is one on 2 ranks: "),
                                    HasSubstr("times the baseline."))));
  EXPECT_THAT(again, Not(Contains(HasSubstr(" done, "))));
  EXPECT_THAT(again, Not(Contains(HasSubstr("Finals"))));
}

TEST_F(ControllerProgressTest, FailuresAreCounted) {
  const PlannedSpace members = space(7, {1, 2});
  std::map<std::string, Behaviour> behaviours;
  for (const PlannedMember& member : members.members)
    behaviours[member.planned.experiment.name] = Behaviour::out_of_memory;
  FakeWorkers workers(std::move(behaviours));
  const std::vector<std::string> lines = lines_of(members, workers);
  EXPECT_THAT(lines, Contains(HasSubstr(" ran out of memory: ")).Times(1));
  EXPECT_THAT(lines, Contains(HasSubstr(" 13 more ran out of memory for the same reason: ")));
}

TEST_F(ControllerProgressTest, AnEarlyEndIsTheLastLine) {
  const PlannedSpace members = space(4, {1});
  FakeWorkers workers({});
  Settings settings;
  settings.end_at = SteadyClock::now();
  EXPECT_THAT(lines_of(members, workers, settings).back(),
              MatchesRegex(
                  ".* Stopped early after [0-9.]+ s: the time limit; the same command resumes\\."));
}

}  // namespace
}  // namespace dstune
