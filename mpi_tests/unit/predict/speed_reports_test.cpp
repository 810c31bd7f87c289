#include "speed_reports.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "plan_fixtures.hpp"

namespace dstune::speed {
namespace {

Reports read_reports() {
  return json::read<Reports>(json::Document::read(DSTUNE_SPEED_REPORTS).node());
}

TEST(SpeedReports, AreSplitByTheHashesOfTheirSources) {
  const Reports reports = read_reports();
  EXPECT_TRUE(std::ranges::is_sorted(reports.sources, {}, &Source::sha256));
  std::set<std::string> named, used;
  for (std::size_t place = 0; place < reports.sources.size(); ++place) {
    const Source& source = reports.sources[place];
    EXPECT_EQ(source.fitted, place < reports.sources.size() / 2) << source.name;
    named.insert(source.name);
  }
  for (const Report& report : reports.rows) {
    used.insert(report.source);
    EXPECT_TRUE(report.url.starts_with("https://")) << report.id;
    EXPECT_TRUE(report.described == "yes" || report.described == "partly") << report.id;
  }
  EXPECT_EQ(named, used);
}

/// The goals: docs/figures/speed.md has the figures of sources that nothing is fitted to.
TEST(SpeedReports, TheBandHoldsFourOfFiveThatJudge) {
  const Reports reports = read_reports();
  const test::SomeWorkspaces workspaces;
  std::vector<double> errors;
  std::size_t num_held = 0;
  for (const Report& report : reports.rows) {
    const auto source = std::ranges::find(reports.sources, report.source, &Source::name);
    ASSERT_NE(source, reports.sources.end()) << report.id;
    if (source->fitted || report.described != "yes") continue;
    const auto time = time_of(report, reports.models.at(report.model), workspaces);
    ASSERT_TRUE(time) << report.id;
    EXPECT_LE(time->high_s, 2 * time->low_s) << report.id;
    errors.push_back(std::abs(time->seconds / report.seconds_per_step - 1));
    if (time->low_s <= report.seconds_per_step && report.seconds_per_step <= time->high_s)
      ++num_held;
  }
  ASSERT_FALSE(errors.empty());
  EXPECT_GE(5 * num_held, 4 * errors.size());
  std::ranges::sort(errors);
  EXPECT_LE(errors[errors.size() / 2], 0.25);
}

}  // namespace
}  // namespace dstune::speed
