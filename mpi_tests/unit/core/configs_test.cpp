/// Configs, their problems, and what they change of the defaults: data/configs.txt.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "choices.hpp"
#include "config_cases.hpp"
#include "golden.hpp"

namespace dstune {
namespace {

template <class Value>
std::string text_of(const Value& value) {
  if constexpr (std::is_enum_v<Value>)
    return std::string(to_text(value));
  else
    return json::Value(value).dump();
}

/// "member value, ..." where they are not the defaults, or a line for each problem.
std::string answer_to(const std::string& text) {
  const ReadConfig read = read_config(text);
  std::vector<std::string> found;
  for (const Problem& problem : read.problems)
    found.push_back(fmt::format("{} {}: {}", problem.line, problem.pointer, problem.message));
  if (!found.empty()) return fmt::format("{}", fmt::join(found, "\n"));
  std::map<std::string, std::string> defaults;
  const TrainingConfig usual;
  for_each_member(usual,
                  [&](const char* name, const auto& value) { defaults[name] = text_of(value); });
  for_each_member(read.config, [&](const char* name, const auto& value) {
    if (text_of(value) != defaults.at(name)) found.push_back(name + (" " + text_of(value)));
  });
  return found.empty() ? "the defaults" : fmt::format("{}", fmt::join(found, ", "));
}

TEST(ConfigsTest, AreReadOrRefused) {
  test::expect_golden(DSTUNE_CORE_DATA "/configs.txt",
                      [](const std::string& input) { return test::answers_to(input, answer_to); });
}

TEST(ConfigsTest, SamplesOfAllRanksCount) {
  TrainingConfig config;
  config.micro_batch = 3;
  config.accumulation_steps = 4;
  EXPECT_EQ(global_batch(config, 5), 60);
}

}  // namespace
}  // namespace dstune
