// How the journal keeps what records and members have alike.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/report/journal.hpp"
#include "results_folder.hpp"

namespace dstune {
namespace {

History understood(const std::vector<json::Value>& events) {
  JournalContent content;
  for (const json::Value& event : events)
    content.events.push_back({static_cast<int>(content.events.size()) + 1, event});
  return understand(content, "journal.jsonl");
}

PlannedExperiment first_member() {
  PlannedExperiment planned;
  planned.experiment = test::sample_experiment("first", 0);
  planned.predicted = test::sample_record("first").predicted;
  return planned;
}

TEST(RecordsTest, ADifferenceComesBackAsTheWholeRecord) {
  const json::Value base = event::base(first_member());
  Record record = test::sample_record("a", 0.5, 3);
  record.experiment.ds_config["zero_optimization"]["offload_optimizer"] = nullptr;
  record.experiment.ds_config["zero_optimization"].erase("reduce_bucket_size");
  record.experiment.ds_config["bf16"] = {{"enabled", true}};
  record.predicted.throughput = 12.5;
  record.predicted.categories.erase("activations");
  const json::Value whole = event::finished("k", record);
  const json::Value less = event::finished("k", record, base);

  EXPECT_FALSE(less.contains("ds_config"));
  EXPECT_FALSE(less.contains("config"));
  EXPECT_LT(less.dump().size(), whole.dump().size() / 2);
  // As lines are read.
  const History history =
      understood({json::Value::parse(base.dump()), json::Value::parse(less.dump())});
  EXPECT_EQ(event::finished("k", history.finished.at("k")).dump(), whole.dump());
}

TEST(RecordsTest, EachRecordIsOfTheBaseBeforeIt) {
  PlannedExperiment other = first_member();
  other.experiment.ds_config = {{"train_batch_size", 1}};
  const json::Value base = event::base(first_member()), later = event::base(other);
  const Record record = test::sample_record("a", 0.5, 2);
  const std::string whole = event::finished("k", record).dump();
  const History history =
      understood({event::finished("early", record), base, event::finished("k", record, base), later,
                  event::finished("l", record, later)});
  for (const char* key : {"k", "l"})
    EXPECT_EQ(event::finished("k", history.finished.at(key)).dump(), whole) << key;
  EXPECT_EQ(event::finished("k", history.finished.at("early")).dump(), whole);
  EXPECT_EQ(history.base, later);
}

TEST(RecordsTest, ADifferenceThatFitsNoBaseIsRefusedWithItsLine) {
  const json::Value base = event::base(first_member());
  const json::Value good = event::finished("k", test::sample_record("a", 0.5, 2), base);
  std::vector<std::vector<json::Value>> journals = {{{{"kind", "x"}}, good}};
  journals.front().front() = event::job_started(json::Value::object());
  for (const auto& [key, value] : std::vector<std::pair<const char*, json::Value>>{
           {"changes", 7},
           {"changes", {{"/ds_config/nothing/there", 1}}},
           {"changes", {{"", 7}}},
           {"without", "/config"},
           {"without", {7}},
           {"without", {"/config/absent"}}}) {
    json::Value bad = good;
    bad[key] = value;
    journals.push_back({base, bad});
  }
  for (const auto& events : journals) {
    try {
      understood(events);
      ADD_FAILURE() << events.back();
    } catch (const InputError& error) {
      EXPECT_EQ(error.problems().front().line, 2) << events.back();
    }
  }
  EXPECT_NO_THROW(understood({base, good}));
}

TEST(RecordsTest, AJournalSaysItsBaseOnce) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "journal.jsonl";
  const Record record = test::sample_record("a", 0.5, 2);
  for (int job = 0; job < 3; ++job) {
    const JournalContent content = read_journal(path);
    Journal journal(path, content.valid_bytes);
    PlannedExperiment first = first_member();
    // The third job's space begins with another member.
    if (job == 2) first.experiment.ds_config["zero_optimization"]["reduce_bucket_size"] = 50000000;
    journal.begin_records(first, understand(content, path).base);
    journal.add_finished(fmt::format("k{}", job), record);
    journal.commit();
  }
  std::string kinds;
  const JournalContent content = read_journal(path);
  for (const JournalContent::Event& event : content.events)
    kinds += event.value["kind"].get<std::string>() + " ";
  EXPECT_EQ(kinds, "base finished finished base finished ");
  const History history = understand(content, path);
  for (const char* key : {"k0", "k1", "k2"})
    EXPECT_EQ(event::finished(key, history.finished.at(key)).dump(),
              event::finished(key, record).dump());
}

TEST(MembersLeftOutTest, AreOneEventHoweverMany) {
  MembersLeftOut few, many;
  EXPECT_TRUE(few.empty());
  PlannedExperiment member = first_member();
  for (int i = 0; i < 100'000; ++i) {
    member.experiment.name = fmt::format("m{}", i);
    member.status = i % 3 == 0 ? PlanStatus::infeasible : PlanStatus::pruned;
    member.prune_kind = PruneKind::twin;
    member.reason = member.status == PlanStatus::infeasible ? fmt::format("needs {} GiB of 16", i)
                                                            : fmt::format("runs as m{}", i - 1);
    if (i < 2000) few.add(member);
    many.add(member);
  }
  const json::Value event = many.event();
  EXPECT_EQ(event["kind"], "not_planned");
  EXPECT_EQ(event["counts"].dump(), R"({"infeasible":33334,"pruned":66666})");
  ASSERT_EQ(event["reasons"].size(), 2U);
  EXPECT_EQ(event["reasons"][0]["reason"], "needs 0 GiB of 16");
  EXPECT_EQ(event["reasons"][0]["count"], 33334);
  EXPECT_EQ(event["reasons"][1]["pruned_because"], "twin");
  std::size_t names = 0;
  for (const json::Value& reason : event["reasons"]) names += reason["names"].size();
  EXPECT_EQ(names, MembersLeftOut::max_named);
  EXPECT_LT(event.dump().size(), few.event().dump().size() + 100);
  EXPECT_TRUE(understood({event}).finished.empty());
}

}  // namespace
}  // namespace dstune
