#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/report/dry_run.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t mib = 1 << 20;

/// 60 MiB of parameters throughout; activations grow to 40 MiB at instant 10 and shrink.
MemoryTimeline rising_and_falling() {
  MemoryTimeline timeline{
      .categories = {"parameters", "gradients", "activations", "gathered", "workspace"},
      .memories = {{"device", {}}},
      .parts = {
          {"micro-step 1", "forward", 0}, {"micro-step 1", "backward", 10}, {"update", "", 20}}};
  for (int instant = 0; instant < 25; ++instant) {
    const int activations = std::max(0, 40 - 4 * std::abs(instant - 10));
    timeline.memories[0].instants.push_back({60 * mib, 0, activations * mib, 0, 0});
  }
  return timeline;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = text.find('\n', from);
    lines.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return lines;
}

TEST(MemoryTextTest, BarsAreAsLongAsTheirBytes) {
  const std::vector<std::string> lines = lines_of(memory_text(rising_and_falling(), 122));
  EXPECT_EQ(lines[0], "P parameters, A activations");
  EXPECT_EQ(lines[1], "device, at most 100 MiB at once");
  EXPECT_EQ(lines[2], "micro-step 1");
  // 100 characters of bar for 100 MiB.
  const auto full = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("backward") && line.find("100 MiB") != line.npos;
  });
  ASSERT_NE(full, lines.end());
  EXPECT_EQ(std::count(full->begin(), full->end(), 'P'), 60);
  EXPECT_EQ(std::count(full->begin(), full->end(), 'A'), 40);
  EXPECT_EQ(full->size(), 122U);
  EXPECT_THAT(lines.back(), HasSubstr("60.0 MiB"));
}

TEST(MemoryTextTest, KeepsToTheWidth) {
  for (const std::size_t width : {40, 60, 80, 200}) {
    for (const std::string& line : lines_of(memory_text(rising_and_falling(), width, 4))) {
      EXPECT_LE(line.size(), width);
      EXPECT_TRUE(line.starts_with("    "));
    }
  }
}

TEST(MemoryTextTest, CategoriesHaveLettersOfTheirOwn) {
  MemoryTimeline timeline = rising_and_falling();
  for (auto& instant : timeline.memories[0].instants) instant = {mib, mib, mib, mib, mib};
  EXPECT_EQ(lines_of(memory_text(timeline, 0))[0],
            "P parameters, G gradients, A activations, g gathered, W workspace");
}

TEST(DryRunPictureTest, FollowsPlannedMembersWhereAllIsTold) {
  DryRun plan;
  plan.experiments = {test::planned_row("one", PlanStatus::planned, "").planned,
                      test::planned_row("two", PlanStatus::pruned, "a twin").planned,
                      test::planned_row("three", PlanStatus::planned, "").planned};
  plan.timeline = [](const Experiment& experiment) {
    return experiment.name == "one" ? std::optional(rising_and_falling()) : std::nullopt;
  };
  const std::string text = dry_run_text(plan, {.width = 80, .verbose = true});
  const std::size_t picture = text.find("device, at most 100 MiB at once");
  EXPECT_LT(text.find("one"), picture);
  EXPECT_LT(picture, text.find("two"));
  EXPECT_EQ(text.find("device, at most", picture + 1), text.npos);
  EXPECT_THAT(dry_run_text(plan, {.width = 80}), Not(HasSubstr("at most")));
}

}  // namespace
}  // namespace dstune
