#include <filesystem>
#include <fstream>

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/space/hosts.hpp"
#include "golden.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<HostEntry> hosts(const std::string& text) {
  return parse_hostfile(text, "hosts").hosts;
}

/// "line: message" of each problem.
std::vector<std::string> problems(const std::string& text) {
  try {
    (void)parse_hostfile(text, "hosts");
  } catch (const InputError& error) {
    std::vector<std::string> found;
    for (const Problem& problem : error.problems()) {
      EXPECT_EQ(problem.file, "hosts");
      found.push_back(std::to_string(problem.line) + ": " + problem.message);
    }
    return found;
  }
  return {};
}

TEST(HostfileTest, LinesAreHostsOrProblems) {
  test::expect_golden(DSTUNE_SPACE_DATA "/hostfiles.txt", [](const std::string& text) {
    std::vector<std::string> lines = problems(text + "\n");
    if (!lines.empty()) return fmt::format("{}", fmt::join(lines, "\n"));
    for (const HostEntry& host : hosts(text + "\n"))
      lines.push_back(fmt::format("{} has {}, line {}", host.name, host.num_slots, host.line));
    return fmt::format("{}", fmt::join(lines, "\n"));
  });
}

TEST(HostfileTest, WhatIsNoTextIsShownAsSuch) {
  EXPECT_THAT(problems("\x7f"
                       "ELF\x01\xff slots=4\n"),
              ElementsAre(HasSubstr("\"?ELF??\" is no")));
}

TEST(HostfileTest, AByteOrderMarkIsNoPartOfAName) {
  EXPECT_THAT(hosts("\xEF\xBB\xBFworker-1 slots=4\n"), ElementsAre(HostEntry{"worker-1", 4, 1}));
  EXPECT_THAT(hosts("\xEF\xBB\xBF# first\nworker-1 slots=4\n"),
              ElementsAre(HostEntry{"worker-1", 4, 2}));
}

TEST(HostfileTest, StopsListingWhereNobodyReadsOn) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "!\n";
  const auto found = problems(text);
  ASSERT_THAT(found, SizeIs(51));
  EXPECT_THAT(found.back(), HasSubstr("and 950 lines more"));
}

TEST(HostfileTest, NamesTheFileThatCanNotBeRead) {
  EXPECT_THAT([] { (void)read_hostfile("/nowhere/hosts"); },
              testing::ThrowsMessage<InputError>(HasSubstr("/nowhere/hosts")));
}

TEST(HostfileTest, ReadsEverySample) {
  const std::map<std::string, std::vector<int>> slots{
      {"deepspeed", {8, 8, 8, 8}}, {"openmpi", {8, 8}}, {"mpich", {8, 8}}, {"pbs", {4, 4}},
      {"uneven", {8, 8, 4, 2}},    {"single-node", {4}}};
  std::size_t num_samples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DSTUNE_HOSTFILES)) {
    if (entry.path().extension() == ".md") continue;
    ++num_samples;
    const auto expected = slots.find(entry.path().filename());
    ASSERT_NE(expected, slots.end()) << entry.path();
    std::vector<int> found;
    for (const HostEntry& host : read_hostfile(entry.path()).hosts) found.push_back(host.num_slots);
    EXPECT_EQ(found, expected->second) << entry.path();
  }
  EXPECT_EQ(num_samples, slots.size());
}

TEST(HostNamesTest, PrefersTheWholeName) {
  const HostNames names({"a.x.org", "a", "b.x.org", "10.0.0.1"});
  EXPECT_THAT(names.find("a"), ElementsAre(1));
  EXPECT_THAT(names.find("a.x.org"), ElementsAre(0));
  EXPECT_THAT(names.find("a.y.org"), ElementsAre(0, 1)) << "equal up to the dot";
  EXPECT_THAT(names.find("b"), ElementsAre(2));
  EXPECT_THAT(names.find("c"), IsEmpty());
  EXPECT_THAT(names.find("10.0.0.1"), ElementsAre(3));
  EXPECT_THAT(names.find("10.0.0.2"), IsEmpty()) << "an address has no short form";
  EXPECT_THAT(names.find("10"), IsEmpty());
}

}  // namespace
}  // namespace dstune
