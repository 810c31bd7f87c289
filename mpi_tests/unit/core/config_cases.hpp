#pragma once
/// Reading a config from its text, for tests.

#include <string>

#include "dstune/core/settings.hpp"

namespace dstune {

struct ReadConfig {
  TrainingConfig config;
  std::vector<Problem> problems;
};

/// The release that cases are of where none is named.
inline const KnobTable& table_0_19_6() {
  return knob_table({0, 19, 6});
}

/// Those whose own words are in data/.
constexpr Version recorded_releases[] = {{0, 16, 9}, {0, 18, 9}, {0, 19, 6}, {0, 19, 8}};
/// "v0_19_8", for names of tests.
inline std::string name_of(Version version) {
  std::string name = "v" + to_text(version);
  for (char& letter : name)
    if (letter == '.') letter = '_';
  return name;
}

inline ReadConfig read_config(const std::string& text, const KnobTable& table = table_0_19_6()) {
  const json::Document document = json::Document::parse(text, "space.json");
  json::Problems problems;
  ReadConfig read;
  read.config = training_config(read_config(table, document.node(), problems));
  read.problems = problems.all();
  return read;
}

/// The config of a text without problems.
inline TrainingConfig accepted(const std::string& text) {
  const ReadConfig read = read_config(text);
  if (!read.problems.empty()) throw InputError(read.problems);
  return read.config;
}

/// "pointer: message" of the only problem.
inline std::string refusal(const std::string& text, const KnobTable& table = table_0_19_6()) {
  const ReadConfig read = read_config(text, table);
  if (read.problems.size() != 1)
    return std::to_string(read.problems.size()) + " problems" +
           (read.problems.empty() ? std::string()
                                  : ": " + std::string(InputError(read.problems).what()));
  return read.problems[0].pointer + ": " + read.problems[0].message;
}

inline std::string zero_with(const std::string& members) {
  return R"({"zero_optimization": {)" + members + "}}";
}

}  // namespace dstune
