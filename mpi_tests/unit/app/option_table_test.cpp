// The command line is what the table says: each option goes to its commands, and to no other.
#include "option_table.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "exit_table.hpp"
#include "help_text.hpp"
#include "options.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Words = std::vector<std::string>;

CommandLine parsed(const Words& words) {
  std::vector<const char*> pointers{"dstune-mpi"};
  for (const std::string& word : words) pointers.push_back(word.c_str());
  return parse_command_line(static_cast<int>(pointers.size()), pointers.data());
}

/// The message of a refused command line; empty where it is taken.
std::string refusal(const Words& words) {
  try {
    (void)parsed(words);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

std::string any_value(const OptionRow& option) {
  static const std::map<std::string, std::string, std::less<>> texts{
      {"include", "host"},          {"exclude", "host"},   {"deepspeed-version", "0.19.8"},
      {"host-memory", "1TiB"},      {"time-limit", "10m"}, {"reserve", "10s"},
      {"trial-timeout", "1:00:00"}, {"tune-time", "10m"},  {"batch-option", "--exclusive"}};
  if (option.kind == ValueKind::word) return option.words.front();
  const auto text = texts.find(option.name);
  return text != texts.end() ? text->second : option.kind == ValueKind::number ? "1" : "value";
}

/// The words of a command with one option, and with a file where the command needs one.
Words with_option(Command command, const OptionRow& option) {
  Words words;
  for (const CommandRow& row : command_table())
    if (row.command == command && !row.name.empty() && words.empty()) words.push_back(row.name);
  if (command == Command::batch) {
    words.emplace_back("slurm");
    // It says how long before the training.
    if (option.name == "tune-time") words.emplace_back("--then-train");
  }
  words.push_back("--" + option.name);
  if (is_value_optional(option))
    words.back() += "=" + any_value(option);
  else if (!option.form.empty())
    words.push_back(any_value(option));
  words.emplace_back("space.json");
  return words;
}

TEST(OptionTableTest, EachOptionIsTakenByItsCommandsAlone) {
  for (const CommandRow& row : command_table()) {
    if (row.command == Command::help) continue;
    for (const OptionRow& option : option_table()) {
      const std::string refused = refusal(with_option(row.command, option));
      if (takes(row.command, option))
        EXPECT_EQ(refused, "") << row.name << " --" << option.name;
      else
        EXPECT_THAT(refused, HasSubstr("--" + option.name)) << row.name;
    }
  }
}

TEST(OptionTableTest, SaysWhoTakesAnOption) {
  EXPECT_THAT(refusal({"--strict", "space.json"}), HasSubstr("--strict is for dstune-mpi check"));
  EXPECT_THAT(refusal({"plan", "--command", "x", "space.json"}),
              HasSubstr("--command is for dstune-mpi check"));
  EXPECT_THAT(refusal({"--device", "h100", "space.json"}), HasSubstr("a job trains where it runs"));
  EXPECT_EQ(refusal({"--dry-run", "--device", "h100", "space.json"}), "");
  EXPECT_THAT(refusal({"--dry-run", "--profile-out", "x", "space.json"}), HasSubstr("no file"));
  EXPECT_THAT(refusal({"status", "--seed", "1"}), HasSubstr("status has no --seed"));
  // A machine is no file.
  EXPECT_EQ(refusal({"check", "--strict", "ds.json"}), "");
  EXPECT_EQ(refusal({"check", "--strict"}),
            "check of a machine has no --strict: it takes --backend, --format, --quiet, --verbose, "
            "--color");
}

TEST(OptionTableTest, HelpIsOfOneCommand) {
  const CommandLine line = parsed({"help", "batch"});
  EXPECT_TRUE(line.help);
  EXPECT_EQ(line.command, Command::batch);
  EXPECT_EQ(parsed({"help"}).command, Command::help);
  EXPECT_THAT(refusal({"help", "bach"}), HasSubstr("no command bach"));
  EXPECT_THAT(refusal({"help", "plan", "batch"}), HasSubstr("takes one command"));
  EXPECT_EQ(line.key_help, "");
  EXPECT_EQ(parsed({"help", "--help"}).command, Command::help);
  EXPECT_THAT(parsed({"help", "stage"}).key_help, StartsWith("zero_optimization.stage\n\n"));
  EXPECT_THAT(refusal({"help", "zero_optimization.stag"}), HasSubstr("zero_optimization.stage"));
  // Its own options come first.
  const std::string text = help_text(Command::batch);
  EXPECT_LT(text.find("--queue"), text.find("--model"));
}

TEST(OptionTableTest, EachWordOfAnOptionIsTaken) {
  for (const OptionRow& option : option_table()) {
    EXPECT_EQ(option.words.empty(), option.kind != ValueKind::word) << option.name;
    // GPUs and networks are looked up with the plan.
    if (option.words.empty() || option.name == "device" || option.name == "network") continue;
    const Words job = with_option(Command::job, option);
    for (const std::string& word : option.words) {
      Words words = job;
      words[1] = word;
      EXPECT_EQ(refusal(words), "") << option.name << " " << word;
    }
    const std::string refused = refusal({"--" + option.name, "no such word", "space.json"});
    for (const std::string& word : option.words) EXPECT_THAT(refused, HasSubstr(word));
  }
}

TEST(OptionTableTest, RepeatedOptionsAreKeptAndOthersStandOnce) {
  for (const OptionRow& option : option_table()) {
    if (option.form.empty()) continue;
    Words twice = with_option(option.commands.front(), option);
    const auto at = std::ranges::find_if(
        twice, [&](const std::string& word) { return word.starts_with("--" + option.name); });
    const Words given(at, twice.end() - 1);
    twice.insert(twice.end() - 1, given.begin(), given.end());
    EXPECT_EQ(refusal(twice).empty(), option.repeats) << option.name;
  }
}

TEST(OptionTableTest, HelpIsPartOfASentence) {
  std::set<std::string> names;
  for (const OptionRow& option : option_table()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_GE(option.help.size(), 10u) << option.name;
    EXPECT_NE(option.help.back(), '.') << option.name;
    EXPECT_EQ(option.help.find('\n'), std::string::npos) << option.name;
    EXPECT_FALSE(option.commands.empty()) << option.name;
    EXPECT_EQ(option.form.empty(), option.kind == ValueKind::none) << option.name;
  }
  for (const CommandRow& row : command_table()) {
    EXPECT_NE(row.help.back(), '.') << row.name;
    EXPECT_THAT(row.usage, HasSubstr(row.name.empty() ? "dstune-mpi" : "dstune-mpi " + row.name));
  }
}

/// The options that a text lists, each at the beginning of its line.
std::set<std::string> listed_options(const std::string& text) {
  std::set<std::string> names;
  for (std::size_t at = text.find("\n  --"); at != text.npos; at = text.find("\n  --", at + 1))
    names.insert(text.substr(at + 5, text.find_first_of(" \n", at + 5) - at - 5));
  return names;
}

TEST(HelpTextTest, ACommandsHelpHasWhatItTakes) {
  for (const CommandRow& row : command_table()) {
    std::set<std::string> taken;
    const bool is_whole = row.command == Command::job || row.command == Command::help;
    for (const OptionRow& option : option_table())
      if (is_whole || takes(row.command, option)) taken.insert(option.name);
    const std::string text = help_text(row.command);
    EXPECT_EQ(listed_options(text), taken) << row.name;
    for (const CommandRow& other : command_table()) {
      const bool is_shown = is_whole || other.command == row.command;
      EXPECT_EQ(text.find(other.usage) != text.npos, is_shown) << row.name << ": " << other.usage;
    }
  }
}

TEST(HelpTextTest, HasNoLongLines) {
  const std::string text = help_text(Command::help);
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n', begin)) {
    EXPECT_LE(end - begin, 100u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
  EXPECT_EQ(begin, text.size()) << "ends with a line's end";
}

TEST(HelpTextTest, IsAskedForBehindACommand) {
  for (const Words& words : {Words{"plan", "--help"}, Words{"plan", "-h"},
                             Words{"plan", "--seed", "1", "space.json", "--help"}}) {
    const CommandLine line = parsed(words);
    EXPECT_TRUE(line.help);
    EXPECT_EQ(line.command, Command::plan);
  }
  EXPECT_EQ(parsed({"--help"}).command, Command::job);
  EXPECT_TRUE(parsed({"help"}).help);
}

TEST(ExitTableTest, HasEachCodeOnce) {
  std::vector<int> codes;
  for (const ExitRow& row : exit_table()) codes.push_back(static_cast<int>(row.code));
  EXPECT_EQ(codes, (std::vector<int>{0, 1, 2, 3, 4, 6, 7, 75}));
  EXPECT_THAT(help_text(Command::help), HasSubstr("75 stopped early"));
}

}  // namespace
}  // namespace dstune
