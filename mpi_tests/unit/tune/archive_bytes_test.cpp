#include <fstream>
#include <functional>

#include <gtest/gtest.h>

#include "dstune/base/json.hpp"
#include "dstune/model/model_spec.hpp"
#include "full_values.hpp"

namespace dstune {
namespace {

using json::Value;

std::string text(const Value& value) {
  return value.dump();
}

/// As calibration_key() sees an order.
Value order(const CalibrationTask& task, double rest_s = 0) {
  const Bytes bytes = encode(message::Calibrate{0, task, {}, 0, rest_s});
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return Value::from_cbor(begin, begin + bytes.size());
}

/// name → the text that is written for a value.
std::map<std::string, std::string> written() {
  const auto time = test::some_time(0);
  PlannedExperiment pruned{.experiment = test::full_experiment(),
                           .status = PlanStatus::pruned,
                           .reason = "a twin of \"z2\"",
                           .predicted = test::full_prediction()};
  std::map<std::string, std::string> lines = {
      {"measurement", text(to_json(test::full_measurement()))},
      {"measurement of nothing", text(to_json(Measurement{}))},
      {"gpu", text(to_json(*test::full_measurement().gpu))},
      {"job_started", text(event::job_started({{"version", "1"}, {"search_key", "s"}}, time))},
      {"planned", text(event::planned(pruned))},
      {"planned of nothing", text(event::planned({}))},
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
  ModelSpec model = preset("llama-3-8b");
  model.full_layers = {1, 4};
  model.attention_window = 128;
  model.architecture.norm = NormKind::layer;
  model.architecture.token_types = 2;
  model.rope = {.kind = RopeKind::longrope, .factor = 4, .short_factor = {1, 1.5}};
  lines["model of all"] = text(to_json(model));
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
  const auto now = written();
  ASSERT_EQ(before.size(), now.size());
  for (const auto& [name, line] : now) EXPECT_EQ(line, before.at(name)) << name;
}

}  // namespace
}  // namespace dstune
