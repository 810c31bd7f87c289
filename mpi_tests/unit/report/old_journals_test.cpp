// Journals that an earlier release wrote (mpi_tests/e2e/journals): they load, and what is written
// again are the same bytes.
#include <gtest/gtest.h>

#include "dstune/report/journal.hpp"

namespace dstune {
namespace {

struct OldJournal {
  const char* name;
  std::size_t finished;
  std::size_t repeats;
  std::size_t deaths;
  bool has_profile;
};

void PrintTo(const OldJournal& old, std::ostream* out) {
  *out << old.name;
}

class OldJournalTest : public testing::TestWithParam<OldJournal> {
 protected:
  const std::string path_ =
      std::string(DSTUNE_OLD_JOURNALS) + "/" + GetParam().name + "/journal.jsonl";
  const JournalContent content_ = read_journal(path_);
  const History history_ = understand(content_, path_);
};

TEST_P(OldJournalTest, IsUnderstood) {
  EXPECT_EQ(history_.num_jobs, 1);
  EXPECT_EQ(history_.finished.size(), GetParam().finished);
  std::size_t repeats = 0;
  for (const auto& [key, of_key] : history_.repeats) repeats += of_key.size();
  EXPECT_EQ(repeats, GetParam().repeats);
  EXPECT_EQ(history_.deaths.size(), GetParam().deaths);
  EXPECT_EQ(!history_.profile_key.empty(), GetParam().has_profile);
}

TEST_P(OldJournalTest, RecordsAreWrittenAsTheyWere) {
  std::map<std::string, std::size_t> num_repeats;
  for (const JournalContent::Event& event : content_.events) {
    const std::string kind = event.value["kind"];
    const std::string key = event.value.value("key", "");
    if (kind == "finished") {
      EXPECT_EQ(event::finished(key, history_.finished.at(key)).dump(), event.value.dump());
    } else if (kind == "repeated") {
      const Repeat& repeat = history_.repeats.at(key).at(num_repeats[key]++);
      EXPECT_EQ(event::repeated(key, event.value["name"], repeat).dump(), event.value.dump());
    } else if (kind == "profile") {
      EXPECT_EQ(history_.profile.dump(), event.value["profile"].dump());
    }
  }
}

TEST_P(OldJournalTest, RecordsComeBackFromDifferences) {
  PlannedExperiment first;
  first.experiment = history_.finished.begin()->second.experiment;
  const json::Value base = event::base(first);
  JournalContent content{.events = {{1, base}}};
  for (const auto& [key, record] : history_.finished)
    content.events.push_back({2, event::finished(key, record, base)});
  const History again = understand(content, path_);
  ASSERT_EQ(again.finished.size(), history_.finished.size());
  for (const auto& [key, record] : history_.finished)
    EXPECT_EQ(event::finished(key, again.finished.at(key)).dump(),
              event::finished(key, record).dump());
}

INSTANTIATE_TEST_SUITE_P(Journals, OldJournalTest,
                         testing::Values(OldJournal{"transformer", 2, 12, 0, true},
                                         OldJournal{"replay", 6, 3, 0, false},
                                         OldJournal{"lost-rank", 6, 0, 0, false},
                                         OldJournal{"stopped", 4, 0, 0, false},
                                         OldJournal{"killed", 3, 0, 1, false},
                                         OldJournal{"lying-names", 4, 2, 0, false}));

}  // namespace
}  // namespace dstune
