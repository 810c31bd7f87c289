#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/report/results.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;
using testing::Not;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::string page_of(const test::Draft& draft) {
  return report_html(test::Concluded(draft), {});
}

test::Draft mixed_report() {
  test::Draft report;
  report.rows = {test::row_of(test::sample_record("slow", 2, 0)),
                 test::row_of(test::sample_record("fast", 1, 3)),
                 test::row_of(test::failed_record("broken", Status::out_of_memory, "too much", 2)),
                 test::planned_row("large", PlanStatus::infeasible, "needs 5 GiB"),
                 test::planned_row("larger", PlanStatus::infeasible, "needs 50 GiB")};
  return report;
}

TEST(ReportHtml, ShowsTheAnswerWithItsLabel) {
  test::Draft report = mixed_report();
  const std::string page = report_html(test::Concluded(report), {{"hosts", {"one"}}});
  EXPECT_THAT(page, HasSubstr("<div class=\"name\">fast</div>\n<div class=\"value\">16 samples/s"));
  EXPECT_THAT(page, HasSubstr("<span class=\"label\">proxy</span>"));
  EXPECT_THAT(page, HasSubstr("&quot;hosts&quot;"));
  report.rows[0].verified = test::sample_record("", 1).measurement;
  report.rows[1].verified = test::sample_record("", 3).measurement;
  const std::string verified = page_of(report);
  EXPECT_THAT(verified, HasSubstr("<div class=\"name\">slow</div>"));
  EXPECT_THAT(verified, HasSubstr("<span class=\"label\">verified</span>"));
  EXPECT_THAT(verified, HasSubstr("<dt>chosen because</dt>"));
}

TEST(ReportHtml, HasARowForEachMemberAndEachReason) {
  const std::string page = page_of(mixed_report());
  EXPECT_EQ(count_of(page, "<th scope=\"row\">"), 5U);
  EXPECT_EQ(count_of(page, "<tr class=\"best\"><th scope=\"row\">fast</th>"), 1U);
  EXPECT_THAT(page, HasSubstr("<tr><td>out_of_memory</td><td class=\"number\">1</td>"
                              "<td>broken</td><td class=\"text\">too much</td></tr>"));
  EXPECT_THAT(page, HasSubstr("<tr><td>infeasible</td><td class=\"number\">2</td>"));
}

TEST(ReportHtml, TheBestComesFirstAndWhatDidNotRunLast) {
  test::Draft report = mixed_report();
  std::swap(report.rows[0], report.rows[3]);
  const std::string page = page_of(report);
  std::size_t last = 0;
  for (const char* name : {"fast", "slow", "broken", "large", "larger"}) {
    const std::size_t at = page.find(std::string("<th scope=\"row\">") + name + "</th>");
    ASSERT_NE(at, page.npos) << name;
    EXPECT_GT(at, last) << name;
    last = at;
  }
}

TEST(ReportHtml, DrawsWhatThereIs) {
  test::Draft report = mixed_report();
  EXPECT_EQ(count_of(page_of(report), "<svg"), 3U) << "no speed was predicted";
  report.rows[0].record->predicted.throughput = 9;
  EXPECT_EQ(count_of(page_of(report), "<svg"), 4U);
  // Three experiments on two ranks each.
  EXPECT_EQ(count_of(page_of(report), ", 9.32 s</title>"), 6U);
  const Record& again = *report.rows[0].record;
  report.rows[0].repeats.push_back(
      {RepeatKind::final_round, 1, again.measurement, again.started_at, again.finished_at, true});
  EXPECT_EQ(count_of(page_of(report), ", 9.32 s</title>"), 8U);
  const std::string empty = report_html({}, {});
  EXPECT_EQ(count_of(empty, "<svg"), 0U);
  EXPECT_THAT(empty, HasSubstr("There is no answer"));
}

TEST(ReportHtml, ShowsWhatIsToBeHadForLess) {
  test::Draft report = mixed_report();
  const std::string one = page_of(report);
  EXPECT_THAT(one, HasSubstr("Nothing is to be had for less"));
  EXPECT_EQ(count_of(one, "class=\"front\""), 0U);
  // Slower on as many GPUs, with less memory; slower still, on fewer.
  report.rows[0].record->predicted.target_memory_bytes = 10;
  report.rows.push_back(test::row_of(test::sample_record("small", 4, 0)));
  report.rows.back().record->experiment.shape = {1, 1};
  const std::string page = page_of(report);
  EXPECT_EQ(count_of(page, "class=\"front\""), 2U) << "a line for each number of GPUs";
  EXPECT_THAT(
      page,
      HasSubstr("<td class=\"number\">1</td><td class=\"number\">2</td>"
                "<td class=\"number\">2</td><td class=\"number\">1.95 KiB</td><td>small</td>"));
  EXPECT_THAT(page, HasSubstr(">1 GPU</text>"));
  EXPECT_THAT(page, HasSubstr(">2 GPUs</text>"));
  EXPECT_EQ(count_of(page, "class=\"beaten\""), 0U);
  report.rows.push_back(test::row_of(test::sample_record("beaten", 8, 0)));
  EXPECT_EQ(count_of(page_of(report), "class=\"beaten\""), 1U);
}

TEST(ReportHtml, NeedsNothingElse) {
  const std::string page = page_of(mixed_report());
  for (const char* outside : {"http:", "https:", " src=", " href=", "@import", "url("})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  EXPECT_EQ(page.substr(page.size() - 8), "</html>\n");
}

TEST(ReportHtml, EscapesWhatOthersWrote) {
  test::Draft report;
  const std::string name = "<script>alert('x')</script>&\"";
  report.rows = {test::row_of(test::sample_record(name)),
                 test::planned_row(name, PlanStatus::pruned, name)};
  const std::string page = report_html(test::Concluded(report), {{name, name}});
  EXPECT_EQ(count_of(page, "<script>"), 1U) << "the page's own";
  EXPECT_THAT(page, Not(HasSubstr("alert('x')")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;"));
}

TEST(ReportHtml, LargeSpacesShowWhatRan) {
  test::Draft report;
  for (int i = 0; i < 3000; ++i)
    report.rows.push_back(test::planned_row(std::to_string(i), PlanStatus::pruned, "twin"));
  report.rows.push_back(test::row_of(test::sample_record("ran")));
  const std::string page = page_of(report);
  EXPECT_EQ(count_of(page, "<th scope=\"row\">"), 1U);
  EXPECT_THAT(page, HasSubstr("3000 more are in results.csv"));
}

}  // namespace
}  // namespace dstune
