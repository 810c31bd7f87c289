// Journals that an earlier release wrote (journals/): the same command goes on, and what they hold
// is not measured again.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "results.hpp"

namespace dstune::e2e {
namespace {

/// The rest that is to do: nothing where it ended with 0; some of it where `race` ended that took
/// predictions for granted, which now wants to see them hold.
enum class Rest { nothing, some, all };

struct OldJournal {
  const char* name;
  int ranks;
  Rest rest;
  /// Its members whose names are others now.
  std::map<std::string, std::string> renamed{};
};

void PrintTo(const OldJournal& old, std::ostream* out) {
  *out << old.name;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::uint32_t crc32_of(const std::string& text) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char letter : text) {
    crc ^= static_cast<unsigned char>(letter);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

/// The keys of a journal's records by their names, and those of its searches and profiles by kind.
std::map<std::string, std::string> keys_of(const std::vector<Json>& events) {
  std::map<std::string, std::string> keys;
  for (const Json& event : events) {
    if (event["kind"] == "started") keys[event["name"]] = event["key"];
    if (event["kind"] == "profile") keys["profile"] = event["key"];
    if (event["kind"] == "job_started")
      for (const char* member : {"search_key", "plan_key"})
        if (event.contains(member)) keys[member] = event[member];
  }
  return keys;
}

class OldJournalTest : public testing::TestWithParam<OldJournal> {
 protected:
  OldJournalTest() {
    const std::string folder = std::string(DSTUNE_E2E_JOURNALS) + "/" + GetParam().name;
    const bool has_own_space = std::filesystem::exists(folder + "/space.json");
    job_.write_text("space.json", text_of(folder + (has_own_space ? "" : "/..") + "/space.json"));
    if (std::filesystem::exists(folder + "/table.json"))
      job_.write_text("table.json", text_of(folder + "/table.json"));
    std::istringstream lines(text_of(folder + "/journal.jsonl"));
    for (std::string line; std::getline(lines, line);) old_.push_back(line);
  }
  Ended run(std::vector<std::string> args) {
    // The journals are that release's.
    args.insert(args.end(), {"--deepspeed-version", "0.19.6", "space.json"});
    return job_.run({.ranks = GetParam().ranks, .args = std::move(args)});
  }
  /// The name of a member of the old journal today.
  static std::string todays(const std::string& name) {
    const auto found = GetParam().renamed.find(name);
    return found == GetParam().renamed.end() ? name : found->second;
  }
  [[nodiscard]] std::vector<Json> old_events() const {
    std::vector<Json> events;
    for (const std::string& line : old_) events.push_back(Json::parse(line)["event"]);
    return events;
  }
  /// The old journal as this machine would have written it: records of another machine do not
  /// count, and which machine it was is in their keys. All else stays as it was.
  [[nodiscard]] std::string journal_of_this_machine(
      const std::map<std::string, std::string>& keys) const {
    std::string text;
    const std::map<std::string, std::string> old_keys = keys_of(old_events());
    for (const std::string& line : old_) {
      const std::string begin = "\"event\":";
      std::string event = line.substr(line.find(begin) + begin.size());
      event.pop_back();
      for (const auto& [name, old_key] : old_keys)
        if (const auto found = keys.find(todays(name)); found != keys.end())
          for (std::size_t at = 0; (at = event.find(old_key, at)) != std::string::npos;
               at += found->second.size())
            event.replace(at, old_key.size(), found->second);
      char head[64];
      std::snprintf(head, sizeof head, "{\"bytes\":%zu,\"crc32\":\"%08x\",", event.size(),
                    crc32_of(event));
      text += head + begin + event + "}\n";
    }
    return text;
  }

  std::vector<std::string> old_;
  Job job_;
};

TEST_P(OldJournalTest, GoesOnAndMeasuresNothingAgain) {
  ASSERT_EQ(run({"--tuner", "gridsearch"}).exit_code, 0);
  const std::map<std::string, std::string> keys = keys_of(journal(job_));
  const std::vector<std::string> all = names_of(journal(job_), "finished");
  std::filesystem::remove_all(job_.folder() / "autotuning_results");
  std::filesystem::create_directory(job_.folder() / "autotuning_results");
  const std::string before = journal_of_this_machine(keys);
  job_.write_text(results + "journal.jsonl", before);

  expect_exit(job_, run({}), 0);

  EXPECT_EQ(job_.read(results + "journal.jsonl").substr(0, before.size()), before);
  const std::vector<Json> events = journal(job_);
  std::vector<std::string> known = names_of(old_events(), "finished");
  for (std::string& name : known) name = todays(name);
  const std::vector<std::string> started = names_of(events, "started", old_.size());
  for (const std::string& name : started)
    EXPECT_EQ(std::count(known.begin(), known.end(), name), 0) << name << " is run again";
  const std::size_t unknown = all.size() - known.size();
  // What is known stands under today's names.
  for (const std::string& name : known)
    EXPECT_EQ(Json::parse(job_.read(results + name + "/exp.json"))["name"], name);
  if (GetParam().rest == Rest::nothing) {
    EXPECT_EQ(started, std::vector<std::string>{});
    // Programs before measured what was clear not again, nor the baseline; this one does so once.
    EXPECT_LE(names_of(events, "repeat_started", old_.size()).size(), 3U);
  } else if (GetParam().rest == Rest::some) {
    EXPECT_GT(started.size(), 0U);
    EXPECT_LE(started.size(), unknown);
  } else {
    EXPECT_EQ(started.size(), unknown);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Journals, OldJournalTest,
    testing::Values(OldJournal{"transformer", 2, Rest::nothing},
                    OldJournal{"replay", 2, Rest::some}, OldJournal{"lost-rank", 3, Rest::nothing},
                    OldJournal{"stopped", 2, Rest::all}, OldJournal{"killed", 2, Rest::all},
                    OldJournal{
                        "lying-names",
                        2,
                        Rest::nothing,
                        {{"z3_tmbspg1_gas1_oo_dnone_ng1_2", "z3_tmbspg1_gas1_oo_dcpu_ng1"},
                         {"z3_tmbspg1_gas1_oo_dnone_ng2_2", "z3_tmbspg1_gas1_oo_dcpu_ng2"}}}),
    [](const auto& test_case) {
      std::string name = test_case.param.name;
      for (char& letter : name)
        if (letter == '-') letter = '_';
      return name;
    });

}  // namespace
}  // namespace dstune::e2e
