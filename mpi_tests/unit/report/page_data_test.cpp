#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/text.hpp"
#include "dstune/report/page.hpp"
#include "json_schema.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Two that ran, one that failed, two that do not fit.
test::Draft five_members() {
  test::Draft draft;
  draft.rows = {test::row_of(test::sample_record("slow", 2, 0)),
                test::row_of(test::sample_record("fast", 1, 3)),
                test::row_of(test::failed_record("broken", Status::out_of_memory, "too much", 2)),
                test::planned_row("large", PlanStatus::infeasible, "needs 5 GiB"),
                test::planned_row("larger", PlanStatus::infeasible, "needs 50 GiB")};
  return draft;
}

json::Value data_of(const test::Draft& draft, const json::Value& environment = {},
                    const JobState& state = {}, const AnswerOnPage& on_page = {}) {
  const test::Concluded concluded(draft);
  json::Value data = report_json(concluded, environment, state, on_page);
  // Piece by piece it is the same.
  std::string text, page;
  write_report(
      concluded, environment, state, on_page, [&](std::string_view piece) { text += piece; },
      [&](std::string_view piece) { page += piece; });
  EXPECT_EQ(text, data.dump() + "\n");
  EXPECT_EQ(page, report_html(data.dump()));
  static const test::SchemaCheck<json::Value> schema(DSTUNE_REPORT_SCHEMA);
  EXPECT_THAT(schema.problems_of(data), testing::IsEmpty());
  return data;
}

/// A cell of a member's row.
json::Value cell_of(const json::Value& data, std::size_t member, const std::string& column) {
  const json::Value& columns = data["columns"];
  const auto found = std::ranges::find(columns, json::Value(column));
  EXPECT_NE(found, columns.end()) << column;
  return data["members"][member][static_cast<std::size_t>(found - columns.begin())];
}

json::Value detail_of(const json::Value& data, const std::string& term) {
  for (const json::Value& detail : data["answer"]["details"])
    if (detail[0] == term) return detail[1];
  return nullptr;
}

TEST(PageData, HasTheAnswerWithItsLabel) {
  test::Draft draft = five_members();
  const json::Value answer = data_of(draft, {}, {}, {.command = "train it"})["answer"];
  EXPECT_EQ(answer["member"], 1);
  EXPECT_EQ(answer["name"], "fast");
  EXPECT_EQ(answer["value"], 16.0);
  EXPECT_LT(answer["ci_low"], 16.0);
  EXPECT_EQ(answer["label"], "proxy");
  EXPECT_EQ(answer["num_gpus"], 2);
  EXPECT_EQ(answer["ds_config"], draft.rows[1].planned.experiment.ds_config);
  EXPECT_EQ(answer["command"], "train it");
  EXPECT_TRUE(answer["gain"].is_null()) << "there is no baseline";
  EXPECT_TRUE(answer["memory"].is_null());
  draft.rows[0].verified = test::sample_record("", 1).measurement;
  draft.rows[1].verified = test::sample_record("", 3).measurement;
  const json::Value verified = data_of(draft);
  EXPECT_EQ(verified["answer"]["name"], "slow");
  EXPECT_EQ(verified["answer"]["label"], "verified");
  EXPECT_TRUE(detail_of(verified, "chosen because").is_string());
  EXPECT_EQ(cell_of(verified, 0, "verified"), 16.0);
}

TEST(PageData, HasTheGainOverTheBaselineAndTheCost) {
  test::Draft draft = five_members();
  draft.baseline = 0;
  draft.num_ranks = 2;
  draft.elapsed_s = 36;
  const json::Value answer = data_of(draft)["answer"];
  EXPECT_EQ(answer["gain"]["baseline"], "slow");
  EXPECT_EQ(answer["gain"]["baseline_member"], 0);
  EXPECT_EQ(answer["gain"]["baseline_value"], 8.0);
  EXPECT_EQ(answer["gain"]["share"], 1.0);
  EXPECT_EQ(answer["cost"]["elapsed_s"], 36.0);
  EXPECT_DOUBLE_EQ(answer["cost"]["gpu_hours"], 0.02);
}

TEST(PageData, HasARowForEachMemberInTheOrderOfTheSpace) {
  const json::Value data = data_of(five_members());
  ASSERT_EQ(data["members"].size(), 5U);
  EXPECT_EQ(cell_of(data, 1, "name"), "fast");
  EXPECT_EQ(cell_of(data, 1, "value"), 16.0);
  EXPECT_EQ(cell_of(data, 1, "measured"), 16.0) << "nothing else is expected";
  EXPECT_EQ(cell_of(data, 1, "memory_bytes"), 1000);
  EXPECT_TRUE(cell_of(data, 1, "reason").is_null());
  const auto status = [&](std::size_t member) {
    return data["statuses"][cell_of(data, member, "status").get<std::size_t>()];
  };
  EXPECT_EQ(status(1), "ok");
  EXPECT_EQ(status(2), "out_of_memory");
  EXPECT_EQ(status(3), "infeasible");
  EXPECT_EQ(data["texts"][cell_of(data, 3, "reason").get<std::size_t>()], "needs 5 GiB");
  EXPECT_TRUE(cell_of(data, 3, "value").is_null());
  EXPECT_TRUE(cell_of(data, 3, "finished_at_s").is_null());
}

TEST(PageData, GroupsTheReasons) {
  const json::Value data = data_of(five_members());
  ASSERT_EQ(data["reasons"].size(), 2U);
  EXPECT_EQ(data["reasons"][0], (json::Value{{"status", "out_of_memory"},
                                             {"reason", "too much"},
                                             {"count", 1},
                                             {"names", {"broken"}}}));
  EXPECT_EQ(data["reasons"][1]["count"], 2);
  EXPECT_EQ(data["counts"][0], (json::Value{{"status", "ok"}, {"count", 2}}));
}

TEST(PageData, ValuesArePredictedInTheirOwnUnit) {
  test::Draft draft = five_members();
  EXPECT_TRUE(cell_of(data_of(draft), 0, "predicted").is_null());
  draft.rows[0].record->predicted.throughput = 9;
  EXPECT_EQ(cell_of(data_of(draft), 0, "predicted"), 9.0);
  draft.metric = Metric::throughput_per_gpu;
  EXPECT_EQ(cell_of(data_of(draft), 0, "predicted"), 4.5);
  draft.metric = Metric::latency;
  EXPECT_DOUBLE_EQ(cell_of(data_of(draft), 0, "predicted"), 16e6 / 9);
  draft.metric = Metric::flops;
  EXPECT_DOUBLE_EQ(cell_of(data_of(draft), 0, "predicted"), 1e12 / 16 * 9 / 2);
}

TEST(PageData, TimesCountFromTheFirstRunThatIsKnown) {
  test::Draft draft = five_members();
  const auto began = draft.rows[0].record->started_at - std::chrono::seconds(5);
  draft.rows[1].record->started_at += std::chrono::seconds(10);
  draft.rows[1].record->finished_at += std::chrono::seconds(10);
  json::Value data = data_of(draft, {}, {.began_at = began});
  EXPECT_EQ(data["state"]["began_at"], format_time(began));
  EXPECT_EQ(cell_of(data, 0, "finished_at_s"), 14.321101);
  ASSERT_EQ(data["runs"].size(), 3U);
  EXPECT_EQ(data["runs"][0], (json::Value{0, 0, 5.0, 14.321101, {2, 3}, true}));
  EXPECT_EQ(data["runs"][1][5], false) << "one that failed";
  const Record& again = *draft.rows[0].record;
  draft.rows[0].repeats.push_back(
      {RepeatKind::final_round, 1, again.measurement, again.finished_at, again.finished_at, true});
  // A job that resumes it.
  data = data_of(draft, {}, {.began_at = began + std::chrono::hours(1)});
  EXPECT_EQ(data["state"]["began_at"], format_time(again.started_at));
  EXPECT_EQ(data["runs"][2], (json::Value{0, 2, 9.321101, 9.321101, {2, 3}, true}));
}

TEST(PageData, TellsTheStateOfAJobThatRuns) {
  const json::Value before = data_of(test::Draft{}, {}, {.is_running = true});
  EXPECT_TRUE(before["answer"].is_null());
  EXPECT_TRUE(before["state"]["left"].is_null());
  EXPECT_TRUE(before["state"]["began_at"].is_null());
  const JobState state{.is_running = true,
                       .phase = TuningPhase::search,
                       .elapsed_s = 12.5,
                       .done = 3,
                       .running = 2,
                       .left = TimeLeft{60, 30, 100, "12 more experiments"},
                       .time_limit_s = 300};
  const json::Value shown = data_of(five_members(), {}, state)["state"];
  EXPECT_EQ(shown["is_running"], true);
  EXPECT_EQ(shown["phase"], "search");
  EXPECT_EQ(shown["done"], 3);
  EXPECT_EQ(shown["left"]["high_s"], 100.0);
  EXPECT_EQ(shown["time_limit_s"], 300.0);
}

TEST(PageData, HasWhatTheEnvironmentTells) {
  const json::Value environment = {
      {"version", "0.5"},
      {"hosts", {"one"}},
      {"ranks", {{{"rank", 0}, {"device", "a CPU"}}, {{"rank", 1}, {"device", "a CPU"}}}},
      {"device_memory_bytes", 5000},
      {"deepspeed", {{"version", "0.19.8"}, {"source", "as named"}}}};
  const json::Value data = data_of(five_members(), environment);
  EXPECT_EQ(data["written_by"], "dstune-mpi 0.5");
  EXPECT_EQ(data["machine"]["text"], "2 ranks on 1 host (one): a CPU");
  EXPECT_EQ(data["memory_limit_bytes"], 5000);
  EXPECT_EQ(data["deepspeed"]["version"], "0.19.8");
  EXPECT_EQ(data["environment"], environment);
}

TEST(PageData, HasTheMeasuredMemoryOfTheBest) {
  const json::Value data = data_of(five_members());
  EXPECT_EQ(data["memory_categories"], json::Value({"parameters", "activations"}));
  EXPECT_EQ(data["memory_of"], json::Value({{1, 600, 400}, {0, 600, 400}})) << "the best first";
}

TEST(PageData, HasTheFront) {
  test::Draft draft = five_members();
  draft.rows[0].record->predicted.target_memory_bytes = 10;
  const json::Value front = data_of(draft)["front"];
  ASSERT_EQ(front.size(), 2U);
  EXPECT_EQ(front[0], (json::Value{1, 16.0, 2, 2000, true, 8.0}));
  EXPECT_EQ(front[1], (json::Value{0, 8.0, 2, 10, true, 4.0})) << "less memory";
}

TEST(PageData, HasTheAnswersMemoryOverAStep) {
  MemoryTimeline timeline{.categories = {"parameters", "gradients", "activations"},
                          .memories = {{"device", {}}},
                          .parts = {{"micro-step 1", "forward", 0}, {"update", "", 900}}};
  for (std::int64_t instant = 0; instant < 1000; ++instant)
    timeline.memories[0].instants.push_back({60, 0, instant == 501 ? 40 : 1});
  const json::Value memory = data_of(five_members(), {{"device_memory_bytes", 500}}, {},
                                     {.memory = timeline})["answer"]["memory"];
  EXPECT_EQ(memory["limit_bytes"], 500);
  EXPECT_EQ(memory["categories"], json::Value({"parameters", "activations"})) << "others are empty";
  EXPECT_LT(memory["points"].size(), 500U);
  EXPECT_EQ(memory["points"][0], json::Value({0, 60, 1}));
  EXPECT_TRUE(std::ranges::any_of(memory["points"], [](const json::Value& point) {
    return point[2] == 40;
  })) << "a peak is not lost";
  EXPECT_EQ(memory["parts"][1], (json::Value{900, "update", ""}));
  EXPECT_TRUE(memory["host_points"].empty());
}

TEST(PageData, WhatIsNoNumberIsNull) {
  test::Draft draft = five_members();
  draft.rows[0].record->predicted.throughput = std::numeric_limits<double>::infinity();
  const json::Value data = data_of(draft, {}, {.time_limit_s = std::nan("")});
  EXPECT_TRUE(cell_of(data, 0, "predicted").is_null());
  EXPECT_TRUE(data["state"]["time_limit_s"].is_null());
}

TEST(ReportHtml, HoldsItsDataAndNeedsNothingElse) {
  std::string page = report_html(R"({"name":"a"})");
  EXPECT_THAT(page, HasSubstr(R"(<script type="application/json" id="report-data">{"name":"a"})"));
  // SVG's namespace is a name, the icon is empty, and patterns are the page's own.
  for (const std::string_view inside : {"http://www.w3.org/2000/svg", " href=\"data:,\"", "url(#"})
    while (page.find(inside) != page.npos) page.erase(page.find(inside), inside.size());
  for (const char* outside : {"http:", "https:", " src=", " href=", "@import", "url(", "@DATA@"})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  EXPECT_EQ(page.substr(page.size() - 8), "</html>\n");
}

TEST(ReportHtml, NothingInTheDataEndsItsElement) {
  const std::string name = "</script><!--<script>@STYLE@ & \"'";
  test::Draft draft;
  draft.rows = {test::row_of(test::sample_record(name)),
                test::planned_row("other", PlanStatus::pruned, name)};
  const std::string data = data_of(draft, {{name, name}}).dump();
  const std::string page = report_html(data);
  const std::string begin = R"(id="report-data">)";
  const std::size_t first = page.find(begin) + begin.size();
  const std::string held = page.substr(first, page.find('<', first) - first);
  EXPECT_EQ(json::Value::parse(held), json::Value::parse(data));
}

}  // namespace
}  // namespace dstune
