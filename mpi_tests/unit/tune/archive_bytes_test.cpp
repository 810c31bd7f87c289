#include <fstream>
#include <functional>

#include <gtest/gtest.h>

#include "dstune/base/archive.hpp"
#include "dstune/base/json.hpp"
#include "dstune/model/model_spec.hpp"
#include "full_values.hpp"

namespace dstune {
namespace {

using json::Value;

std::string text(const Value& value) {
  return value.dump();
}

/// As profiling_key() sees an order.
Value order(const ProfilingTask& task, double drain_timeout_s = 0) {
  return written(message::Profile{0, task, {}, 0, drain_timeout_s});
}

/// name → the text that is written for a value.
std::map<std::string, std::string> all_written() {
  const auto time = test::some_time(0);
  std::map<std::string, std::string> lines = {
      {"measurement", text(json::write(test::full_measurement()))},
      {"measurement of nothing", text(json::write(Measurement{}))},
      {"gpu", text(to_json(*test::full_measurement().gpu))},
      {"job_started", text(event::job_started({{"version", "1"}, {"search_key", "s"}}, time))},
      {"started", text(event::started("k", "z1", 2, {0, 3}, time))},
      {"finished", text(event::finished("k", test::full_record()))},
      {"finished of nothing", text(event::finished("", {}))},
      {"verified", text(event::verified("k", "z1", "/there", test::full_measurement(), time))},
      {"lost", text(event::lost("k", "z1", {4, 5}, time))},
      {"repeat_started",
       text(event::repeat_started("k", "z1", RepeatKind::final_round, 2, {1}, time))},
      {"repeated", text(event::repeated("k", "z1", test::full_repeat()))},
      {"repeated of nothing", text(event::repeated("k", "z1", {}))},
      {"profile", text(event::profile("k", to_json(test::full_profile())))},
      {"profile of nothing", text(to_json(DeviceProfile{}))},
      {"job_finished", text(event::job_finished(75, "time limit", time))},
      // Journals know a profile by a hash of these.
      {"key of an order", record_key(order(test::full_task()))},
      {"key of an order that rests", record_key(order(test::full_task(), 1.5))},
      {"key of an order of nothing", record_key(order({}))},
  };
  for (const std::string_view name : preset_names())
    lines["model " + std::string(name)] = text(to_json(preset(name)));
  lines["model of all"] = text(to_json(test::full_model()));
  return lines;
}

/// The lines "name: text" that the program wrote before values described their members once.
std::map<std::string, std::string> expected() {
  std::ifstream file(DSTUNE_TUNE_DATA "/written_values.txt");
  std::map<std::string, std::string> lines;
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    lines[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return lines;
}

TEST(ArchiveBytesTest, AreThoseOfEarlierReleases) {
  const auto before = expected();
  const auto now = all_written();
  ASSERT_EQ(before.size(), now.size());
  for (const auto& [name, line] : now) EXPECT_EQ(line, before.at(name)) << name;
}

/// The event as it is written again after it was understood; nothing where it leaves no trace.
std::optional<Value> written_again(const Value& before, const History& history) {
  const std::string kind = before.at("kind");
  const std::string key = before.value("key", "");
  if (kind == "profile") {
    const json::Document document = json::Document::of(history.profile, "");
    return event::profile(key, to_json(device_profile_from_json(document.node())));
  }
  if (kind == "finished") return event::finished(key, history.finished.at(key));
  if (kind == "repeated")
    return event::repeated(key, before.at("name"), history.repeats.at(key).at(0));
  return std::nullopt;
}

TEST(ArchiveBytesTest, AJournalOfAnEarlierReleaseIsWrittenAgainAsItWas) {
  const std::string path = DSTUNE_TUNE_DATA "/journal.jsonl";
  const JournalContent content = read_journal(path);
  ASSERT_EQ(content.events.size(), 7U);
  const History history = understand(content, path);
  EXPECT_EQ(history.num_jobs, 1);
  EXPECT_EQ(history.complete_searches.size(), 1U);
  EXPECT_EQ(history.profile_key, content.events.at(1).value.at("key").get<std::string>());
  int again = 0;
  for (const JournalContent::Event& event : content.events) {
    std::optional<Value> now = written_again(event.value, history);
    if (!now) continue;
    ++again;
    if (now->contains("measurement")) {
      // Microseconds that became seconds and microseconds again may differ in the last bit.
      for (const char* time : {"fwd", "bwd", "step"}) {
        Value& value = now->at("measurement").at(time);
        const Value& before = event.value.at("measurement").at(time);
        EXPECT_DOUBLE_EQ(value.get<double>(), before.get<double>());
        value = before;
      }
    }
    EXPECT_EQ(now->dump(), event.value.dump());
  }
  EXPECT_EQ(again, 3);
}

}  // namespace
}  // namespace dstune
