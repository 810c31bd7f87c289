#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/archive.hpp"
#include "dstune/base/hash.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/report/results.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

JournalContent journal_of(const std::vector<json::Value>& events) {
  JournalContent content;
  for (const json::Value& event : events)
    content.events.push_back({static_cast<int>(content.events.size()) + 1, event});
  return content;
}

History history_of(const std::vector<json::Value>& events) {
  return understand(journal_of(events), "journal.jsonl");
}

const json::Value start_job = event::job_started({{"version", "1"}});
const json::Value end_job = event::job_finished(0, "done");

json::Value start(const std::string& key) {
  return event::started(key, "name-" + key, 1, {0, 1});
}
json::Value finish(const std::string& key) {
  return event::finished(key, test::sample_record("name-" + key));
}

TEST(HistoryTest, RepeatsAreKeptInOrder) {
  Repeat repeat;
  repeat.kind = RepeatKind::final_round;
  repeat.round = 2;
  repeat.measurement = test::sample_record("any").measurement;
  repeat.is_alone = true;
  repeat.finished_at = *parse_time("2026-01-02T03:04:05.678901Z");
  Repeat other = repeat;
  other.kind = RepeatKind::spread;
  other.measurement.status = Status::failed;
  const History history = history_of(
      {start_job, start("a"), finish("a"),
       event::repeat_started("a", "name-a", RepeatKind::final_round, 2, {0}),
       event::repeated("a", "name-a", repeat), event::repeated("a", "name-a", other), end_job});
  const std::vector<Repeat>& repeats = history.repeats.at("a");
  ASSERT_EQ(repeats.size(), 2U);
  EXPECT_EQ(repeats[0].kind, RepeatKind::final_round);
  EXPECT_EQ(repeats[0].round, 2);
  EXPECT_TRUE(repeats[0].is_alone);
  EXPECT_EQ(repeats[0].finished_at, repeat.finished_at);
  EXPECT_EQ(repeats[0].measurement.step_times_s, repeat.measurement.step_times_s);
  EXPECT_EQ(repeats[1].kind, RepeatKind::spread);
  EXPECT_EQ(repeats[1].measurement.status, Status::failed);
  EXPECT_TRUE(history.repeat_deaths.empty());
  EXPECT_TRUE(history.deaths.empty());
}

TEST(HistoryTest, WhatJobsTookAddsUp) {
  const auto at = [](int second) {
    return *parse_time(fmt::format("2026-01-02T03:04:{:02}.000000Z", second));
  };
  const auto job = [&](int second, int num_ranks) {
    return event::job_started({{"elapsed_s", 1.5}, {"num_ranks", num_ranks}}, at(second));
  };
  Record record = test::sample_record("a");
  record.finished_at = at(39);
  // One that ended, one that was killed behind an experiment, one that had begun nothing.
  const History history = history_of({job(10, 4), event::job_finished(75, "time", at(20)),
                                      job(30, 2), event::started("a", "name-a", 1, {0}, at(31)),
                                      event::finished("a", record), job(50, 8)});
  EXPECT_EQ(history.num_jobs, 3);
  EXPECT_DOUBLE_EQ(history.spent_s, 11.5 + 10.5 + 1.5);
  EXPECT_DOUBLE_EQ(history.spent_rank_s, 4 * 11.5 + 2 * 10.5 + 8 * 1.5);
}

TEST(HistoryTest, WhatFailedIsForgottenWhereItIsToRunAgain) {
  const auto with = [](Status status, int attempt) {
    Record record = test::sample_record("any");
    record.measurement.status = status;
    record.attempt = attempt;
    return record;
  };
  History history =
      history_of({start_job, event::finished("failed", with(Status::failed, 2)),
                  event::finished("late", with(Status::timed_out, 1)),
                  event::finished("large", with(Status::out_of_memory, 1)),
                  event::finished("other", with(Status::failed, 1)), finish("good"), end_job});
  EXPECT_EQ(forget_failed(history, {"failed", "late", "large", "good", "absent"}), 2U);
  EXPECT_EQ(history.retried, (std::map<std::string, int>{{"failed", 2}, {"late", 1}}));
  EXPECT_EQ(history.finished.size(), 3U) << "what is of no member stays";
}

TEST(HistoryTest, ASearchIsCompleteWhereItsJobEndedWithZero) {
  const auto job = [](const char* key) { return event::job_started({{"search_key", key}}); };
  const History history = history_of(
      {job("a"), end_job, job("b"), event::job_finished(75, "time"), job("c"), start_job, end_job});
  EXPECT_EQ(history.complete_searches, std::set<std::string>{"a"});
}

TEST(HistoryTest, WhatLostARaceByAnotherMetricIsForgotten) {
  const auto job = [](const char* metric) {
    return event::job_started({{"search_key", std::string("by ") + metric}, {"metric", metric}});
  };
  const auto end_of = [](const char* key, Status status) {
    Record record = test::sample_record("any");
    record.measurement.status = status;
    return event::finished(key, record);
  };
  History history =
      history_of({start_job, end_of("old", Status::raced_out), job("throughput"), finish("good"),
                  end_of("slow", Status::raced_out), end_of("broken", Status::failed), end_job,
                  job("latency"), end_of("late", Status::raced_out), end_job});
  EXPECT_EQ(history.measured_for.at("slow").metric, "throughput");
  EXPECT_EQ(history.measured_for.at("late").search_key, "by latency");
  EXPECT_EQ(history.measured_for.at("old").metric, "") << "of an earlier release";
  const std::vector<std::string> keys{"old", "good", "slow", "broken", "late", "absent"};
  EXPECT_EQ(forget_other_races(history, keys, "latency"), 1U);
  EXPECT_FALSE(history.finished.contains("slow"));
  EXPECT_EQ(history.finished.size(), 4U);
}

TEST(HistoryTest, FinalsByAnotherMetricAreRepeats) {
  const auto job = [](const char* metric) {
    return event::job_started({{"search_key", metric}, {"metric", metric}});
  };
  const json::Value in_finals =
      event::repeated("a", "name-a", test::repeat_of(RepeatKind::final_round, 1, 1));
  History history = history_of({start_job, in_finals, job("throughput"), finish("a"), in_finals,
                                end_job, job("latency"), in_finals});
  forget_other_races(history, {"a"}, "latency");
  std::vector<RepeatKind> kinds;
  for (const Repeat& repeat : history.repeats.at("a")) kinds.push_back(repeat.kind);
  EXPECT_THAT(kinds, testing::ElementsAre(RepeatKind::final_round, RepeatKind::spread,
                                          RepeatKind::final_round))
      << "an earlier release did not name the metric";
}

TEST(HistoryTest, ASearchOfAnEarlierReleaseIsCompleteThatEndedBeforeItsJob) {
  const History history = history_of({event::job_started({{"search_key", "both"}}),
                                      json::Value{{"kind", "search_finished"},
                                                  {"time", "2026-11-01T00:00:00.000000Z"},
                                                  {"search_key", "screening"}},
                                      start("a"), start_job});
  EXPECT_EQ(history.complete_searches, std::set<std::string>{"screening"});
  EXPECT_EQ(history.deaths.at("a"), 1);
}

TEST(HistoryTest, AJobThatDiesWhileSomethingIsRepeatedIsRemembered) {
  const json::Value again = event::repeat_started("a", "name-a", RepeatKind::spread, 1, {0});
  const History history = history_of({start_job, start("a"), finish("a"), again, start_job, again});
  EXPECT_EQ(history.repeat_deaths.at("a"), 2);
  EXPECT_TRUE(history.deaths.empty());
  EXPECT_TRUE(history.finished.contains("a"));
}

TEST(HistoryTest, AJobThatDiesInAControlBlamesNobody) {
  const json::Value control = event::repeat_started("a", "name-a", RepeatKind::control, 1, {0});
  const History history =
      history_of({start_job, finish("a"), control, start_job, finish("b"), start("c"), control});
  EXPECT_TRUE(history.repeat_deaths.empty());
  EXPECT_TRUE(history.interrupted_repeats.empty());
  EXPECT_FALSE(history.died_alone.contains("c")) << "the control ran beside it";
}

TEST(Hash128Test, MatchesPublishedVectors) {
  EXPECT_EQ(hash128(""), "00000000000000000000000000000000");
  EXPECT_EQ(hash128("hello"), "cbd8a7b341bd9b025b1e906a48ae1d19");
  EXPECT_EQ(hash128("hello, world"), "342fac623a5ebc8e4cdcbc079642414d");
  EXPECT_EQ(hash128("19 Jan 2038 at 3:14:07 AM"), "b89e5988b737affc664fc2950231b2cb");
  EXPECT_EQ(hash128("The quick brown fox jumps over the lazy dog."),
            "cd99481f9ee902c9695da1a38987b6e7");
}

TEST(RecordKeyTest, EqualValuesHaveEqualKeys) {
  const auto key = [](const char* text) { return record_key(json::Value::parse(text)); };
  EXPECT_EQ(key(R"({"a": 1, "b": {"c": [1, 2], "d": null}})"),
            key(R"({"b": {"d": null, "c": [1, 2]}, "a": 1})"));
  EXPECT_EQ(key("5e8"), key("500000000"));
  EXPECT_EQ(key("-0.0"), key("0"));
  EXPECT_EQ(key("-3.0"), key("-3"));
  EXPECT_EQ(key("1e19"), key("10000000000000000000"));
  EXPECT_EQ(record_key(json::Value(std::uint64_t{7})), record_key(json::Value(std::int64_t{7})));
  EXPECT_EQ(key("1").size(), 32U);
}

TEST(RecordKeyTest, DifferentValuesHaveDifferentKeys) {
  const char* values[] = {"1",         "2",           "-1",          "1.5",        "\"1\"",
                          "true",      "false",       "null",        "[]",         "{}",
                          "[1, 2]",    "[2, 1]",      "[[1], 2]",    "[1, [2]]",   R"(["a", "b"])",
                          R"(["ab"])", R"({"a": 1})", R"({"b": 1})", R"(["a,b"])", R"({"a": {}})",
                          "0",         "\"\"",        "1e300",       "[null]",     "4.7"};
  std::map<std::string, std::string> seen;
  for (const char* text : values) {
    const auto [found, is_new] = seen.emplace(record_key(json::Value::parse(text)), text);
    EXPECT_TRUE(is_new) << text << " and " << found->second;
  }
}

TEST(HistoryTest, DeathsAreOfWhatRanWhenAJobDiedOrLostARank) {
  const json::Value lost = event::lost("k", "name-k", {1});
  const json::Value stop_job = event::job_finished(75, "time limit");
  struct Case {
    const char* what;
    std::vector<json::Value> events;
    int num_jobs, deaths;
  };
  for (const auto& [what, events, num_jobs, deaths] : std::vector<Case>{
           {"running at the end", {start_job, start("k"), start("l"), finish("l")}, 1, 1},
           {"they add up over jobs", {start_job, start("k"), start_job, start("k")}, 2, 2},
           {"tried twice in one job", {start_job, start("k"), start("k")}, 1, 1},
           {"finished", {start_job, start("k"), start_job, start("k"), finish("k")}, 2, 0},
           {"stopped on purpose", {start_job, start("k"), stop_job, start_job, end_job}, 2, 0},
           {"lost, in a job that ended in order", {start_job, start("k"), lost, end_job}, 1, 1},
           {"tried again at once, when the job died of that loss: still one job",
            {start_job, start("k"), lost, start("k")},
            1,
            1},
           {"lost twice",
            {start_job, start("k"), lost, end_job, start_job, start("k"), lost, end_job},
            2,
            2},
           {"lost, then finished", {start_job, start("k"), lost, start("k"), finish("k")}, 1, 0}}) {
    const History history = history_of(events);
    EXPECT_EQ(history.num_jobs, num_jobs) << what;
    EXPECT_EQ(history.deaths.size(), deaths > 0 ? 1U : 0U) << what;
    EXPECT_EQ(deaths, deaths > 0 ? history.deaths.at("k") : 0) << what;
    EXPECT_EQ(history.finished.contains("k"), events.back() == finish("k")) << what;
  }
}

TEST(HistoryTest, EmptyJournalHasNone) {
  const History history = history_of({});
  EXPECT_EQ(history.num_jobs, 0);
  EXPECT_TRUE(history.finished.empty());
  EXPECT_TRUE(history.deaths.empty());
  EXPECT_TRUE(history_of({start_job}).target_key.empty());
  EXPECT_TRUE(history_of({start_job}).profile_key.empty());
}

TEST(HistoryTest, RemembersTheLastConstantsOfTheTargetAndTheLastProfile) {
  const json::Value target = event::target("two", {{"error", 2}});
  const json::Value profile = event::profile("four", {{"version", 1}, {"groups", {1, 2}}});
  const History history =
      history_of({start_job, event::target("one", {{"error", 1}}), target,
                  event::profile("three", {{"version", 1}}), end_job, start_job, profile});
  EXPECT_EQ(history.target_key, "two");
  EXPECT_EQ(history.target, target["constants"]);
  EXPECT_EQ(history.profile_key, "four");
  EXPECT_EQ(history.profile, profile["profile"]);
}

TEST(HistoryTest, RecordComesBackWhole) {
  Record record = test::sample_record("z1_gas2_tmbspg4");
  record.attempt = 2;
  record.predicted.throughput = 33.25;
  const History history = history_of({start_job, event::finished("k", record)});
  ASSERT_TRUE(history.finished.contains("k"));
  const Record& back = history.finished.at("k");
  EXPECT_EQ(back.experiment.name, record.experiment.name);
  EXPECT_EQ(back.experiment.ds_config, record.experiment.ds_config);
  EXPECT_EQ(back.experiment.shape, record.experiment.shape);
  EXPECT_EQ(back.experiment.config, record.experiment.config);
  EXPECT_EQ(back.predicted.throughput, record.predicted.throughput);
  EXPECT_EQ(back.predicted.peak_memory_bytes, record.predicted.peak_memory_bytes);
  EXPECT_EQ(back.predicted.target_memory_bytes, record.predicted.target_memory_bytes);
  EXPECT_EQ(back.predicted.categories, record.predicted.categories);
  EXPECT_EQ(back.predicted.host_memory_bytes, record.predicted.host_memory_bytes);
  EXPECT_EQ(back.predicted.process_memory_bytes, record.predicted.process_memory_bytes);
  EXPECT_EQ(back.predicted.host_categories, record.predicted.host_categories);
  EXPECT_EQ(back.attempt, 2);
  EXPECT_EQ(back.started_at, record.started_at);
  EXPECT_EQ(back.finished_at, record.finished_at);
  EXPECT_EQ(metrics_json(back, Metric::throughput), metrics_json(record, Metric::throughput));
}

TEST(HistoryTest, WhatIsNoNumberDoesNotMakeTheJournalUnreadable) {
  Record record = test::sample_record("a");
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  record.measurement.status = Status::failed;
  record.measurement.losses = {10, nan, std::numeric_limits<double>::infinity()};
  record.measurement.step_times_s = {1, nan};
  record.measurement.warmup_steps = 3;
  record.measurement.overhead_s = {{"build", -1e-9}, {"wait", nan}};
  record.measurement.reason = "not UTF-8: \xff";
  record.predicted.throughput = nan;
  const std::string text =
      event::finished("k", record).dump(-1, ' ', false, json::Value::error_handler_t::replace);
  const History history = history_of({json::Value::parse(text)});
  const Record& back = history.finished.at("k");
  EXPECT_EQ(back.measurement.status, Status::failed);
  ASSERT_EQ(back.measurement.losses.size(), 3U);
  EXPECT_TRUE(std::isnan(back.measurement.losses[1]));
  EXPECT_FALSE(back.predicted.throughput.has_value());
}

TEST(HistoryTest, KeepsWhatDeepSpeedSaid) {
  Measurement verified;
  verified.status = Status::ok;
  verified.step_times_s = {0.5, 0.25};
  verified.peak_memory.total_bytes = 77;
  Measurement failed;
  failed.status = Status::out_of_memory;
  failed.reason = "too much";
  const History history = history_of({event::verified("k", "a", "/there/a", failed),
                                      event::verified("k", "a", "/there/a", verified),
                                      event::verified("l", "b", "/there/b", failed)});
  EXPECT_EQ(json::write(history.verified.at("k")), json::write(verified));
  EXPECT_EQ(history.verified.at("l").status, Status::out_of_memory);
  EXPECT_EQ(history.verified.at("l").reason, "too much");
  EXPECT_THROW(history_of({json::Value{{"kind", "verified"}, {"key", "k"}}}), InputError);
}

TEST(HistoryTest, LastFinishCounts) {
  Record slow = test::sample_record("a", 2.0);
  const History history =
      history_of({start_job, finish("k"), event::finished("k", slow), finish("l")});
  EXPECT_EQ(history.finished.size(), 2U);
  EXPECT_DOUBLE_EQ(history.finished.at("k").measurement.step_times_s.back(), 2.0);
}

TEST(HistoryTest, OnlyWhatWasAloneAtTheLastDeathMayBeBlamed) {
  const History together = history_of({start_job, start("k"), start("l"), start_job, start("k"),
                                       start("l"), start("m"), finish("m")});
  EXPECT_EQ(together.deaths.at("k"), 2);
  EXPECT_TRUE(together.died_alone.empty());
  const std::vector<json::Value> alone = {start_job, start("k"), start("l"), start_job, start("k")};
  EXPECT_EQ(history_of(alone).died_alone, std::set<std::string>{"k"});
  std::vector<json::Value> beside_another = alone;
  for (const json::Value& next : {start_job, start("k"), start("n")})
    beside_another.push_back(next);
  EXPECT_TRUE(history_of(beside_another).died_alone.empty());
  std::vector<json::Value> ended = alone;
  ended.push_back(finish("k"));
  EXPECT_TRUE(history_of(ended).died_alone.empty());
  EXPECT_TRUE(history_of(alone).seen_to_die.empty());
  // The rank was one of its own group.
  const History lost =
      history_of({start_job, start("k"), start("l"), event::lost("k", "name-k", {1})});
  EXPECT_TRUE(lost.died_alone.contains("k"));
  EXPECT_EQ(lost.seen_to_die, std::set<std::string>{"k"});
}

TEST(HistoryTest, ARepeatBesideOthersIsNotBlamed) {
  const json::Value again = event::repeat_started("a", "name-a", RepeatKind::spread, 1, {0});
  const History history =
      history_of({start_job, finish("a"), again, start("b"), start_job, again, start("b")});
  EXPECT_TRUE(history.repeat_deaths.empty());
  EXPECT_TRUE(history.interrupted_repeats.contains("a"));
  EXPECT_EQ(history.deaths.at("b"), 2);
  EXPECT_TRUE(history.died_alone.empty());
}

TEST(HistoryTest, PlannedMembersOfEarlierReleasesAreNoResults) {
  const json::Value planned = {{"kind", "planned"},
                               {"name", "a"},
                               {"status", "infeasible"},
                               {"reason", "too large"},
                               {"ds_config", {{"train_batch_size", 4}}}};
  EXPECT_TRUE(history_of({start_job, planned}).finished.empty());
}

TEST(HistoryTest, UnknownMembersOfAnEventAreIgnored) {
  json::Value later = finish("k");
  later["mood"] = "good";
  later["config"]["new_knob"] = 7;
  json::Value later_start = start("l");
  later_start["node"] = 3;
  EXPECT_TRUE(history_of({start_job, later, later_start}).finished.contains("k"));
}

TEST(HistoryTest, MembersThatEarlierReleasesLackKeepTheirDefault) {
  json::Value earlier = finish("k");
  earlier["config"].erase("gradient_clipping");
  earlier.erase("predicted");
  const History history = history_of({earlier});
  EXPECT_DOUBLE_EQ(history.finished.at("k").experiment.config.gradient_clipping,
                   TrainingConfig{}.gradient_clipping);
}

/// The problem that a bad second event is refused with.
Problem refusal(const json::Value& bad) {
  try {
    history_of({start_job, bad, end_job});
  } catch (const InputError& error) {
    return error.problems().front();
  }
  return {};
}

TEST(HistoryTest, WhatIsNoneOfOursIsRefusedWithItsLine) {
  json::Value wrong_type = finish("k");
  wrong_type["attempt"] = "two";
  json::Value wrong_measurement = finish("k");
  wrong_measurement["measurement"]["status"] = "splendid";
  json::Value wrong_word = finish("k");
  wrong_word["config"]["recompute"] = "sometimes";
  json::Value wrong_time = finish("k");
  wrong_time["started_at"] = "yesterday";
  json::Value no_measurement = finish("k");
  no_measurement.erase("measurement");
  const json::Value bad_events[] = {{{"kind", "raced"}}, json::Value::object(),
                                    {{"kind", 3}},       {{"kind", "started"}, {"name", "a"}},
                                    json::Value(7),      wrong_type,
                                    wrong_measurement,   wrong_word,
                                    wrong_time,          no_measurement};
  for (const json::Value& bad : bad_events) {
    const Problem problem = refusal(bad);
    EXPECT_EQ(problem.file, "journal.jsonl") << bad;
    EXPECT_EQ(problem.line, 2) << bad;
    EXPECT_FALSE(problem.message.empty()) << bad;
  }
  EXPECT_EQ(refusal(wrong_type).pointer, "/attempt");
  EXPECT_NE(refusal({{"kind", "raced"}}).message.find("\"raced\""), std::string::npos);
}

TEST(EventTest, JobsMembersStandBesideKindAndTime) {
  const json::Value value =
      event::job_started({{"version", "1.2"}}, *parse_time("2026-01-02T03:04:05.000006Z"));
  EXPECT_EQ(value.dump(),
            R"({"kind":"job_started","time":"2026-01-02T03:04:05.000006Z","version":"1.2"})");
}

}  // namespace
}  // namespace dstune
