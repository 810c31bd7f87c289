#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/space/hosts.hpp"

namespace dstune {
namespace {

using testing::AllOf;
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

TEST(HostfileTest, AByteOrderMarkIsNoPartOfAName) {
  EXPECT_THAT(hosts("\xEF\xBB\xBFworker-1 slots=4\n"), ElementsAre(HostEntry{"worker-1", 4, 1}));
  EXPECT_THAT(hosts("\xEF\xBB\xBF# first\nworker-1 slots=4\n"),
              ElementsAre(HostEntry{"worker-1", 4, 2}));
}

TEST(HostfileTest, ReadsDeepSpeed) {
  EXPECT_THAT(hosts("worker-1 slots=4\nworker-0\tslots=8"),
              ElementsAre(HostEntry{"worker-1", 4, 1}, HostEntry{"worker-0", 8, 2}));
}

TEST(HostfileTest, ReadsOpenMpi) {
  EXPECT_THAT(hosts("a slots=4 max_slots=8\nb max-slots=3\nc slots = 2\nme@d count=1\n"
                    "e cpu=2 username=me\nf slots=2, max_slots=2\ng.x.org\n"),
              ElementsAre(HostEntry{"a", 4, 1}, HostEntry{"b", 3, 2}, HostEntry{"c", 2, 3},
                          HostEntry{"d", 1, 4}, HostEntry{"e", 2, 5}, HostEntry{"f", 2, 6},
                          HostEntry{"g.x.org", 1, 7}));
}

TEST(HostfileTest, ReadsHydra) {
  EXPECT_THAT(hosts("a:4\nb\nc:2 user=me\n10.0.0.1:3\nfe80::1\n"),
              ElementsAre(HostEntry{"a", 4, 1}, HostEntry{"b", 1, 2}, HostEntry{"c", 2, 3},
                          HostEntry{"10.0.0.1", 3, 4}, HostEntry{"fe80::1", 1, 5}));
}

TEST(HostfileTest, CountsBareLinesOfAHost) {
  EXPECT_THAT(hosts("a\na\nb\na\n"), ElementsAre(HostEntry{"a", 3, 1}, HostEntry{"b", 1, 3}));
}

TEST(HostfileTest, SkipsCommentsAndBlankLines) {
  EXPECT_THAT(hosts("# a slots=9\n\n  \t\r\n// b\n  c slots=1 # d\r\ne:2// f\n"),
              ElementsAre(HostEntry{"c", 1, 5}, HostEntry{"e", 2, 6}));
}

TEST(HostfileTest, RefusesAHostWithSlotsTwice) {
  EXPECT_THAT(problems("a slots=4\nb slots=4\na slots=4\n"),
              ElementsAre(AllOf(HasSubstr("3: a "), HasSubstr("line 1"))));
  EXPECT_THAT(problems("a slots=4\na\n"), ElementsAre(HasSubstr("2: a is named on line 1")));
  EXPECT_THAT(problems("a\na:4\n"), ElementsAre(HasSubstr("2: a is named on line 1")));
  EXPECT_THAT(problems("a max_slots=2\na\n"), ElementsAre(HasSubstr("2: a is named on line 1")));
}

TEST(HostfileTest, RefusesSlotsThatAreNone) {
  const auto of = [](const std::string& value) { return problems("a slots=" + value + "\n"); };
  EXPECT_THAT(of("0"), ElementsAre(HasSubstr("at least one slot")));
  EXPECT_THAT(of("-3"), ElementsAre(HasSubstr("at least one slot")));
  EXPECT_THAT(of(""), ElementsAre(HasSubstr("give a whole number")));
  for (const char* value : {"four", "4x", "2.5", "+4", "0x4", "4=4"}) {
    EXPECT_THAT(of(value), ElementsAre(AllOf(HasSubstr("1: slots is"), HasSubstr(value),
                                             HasSubstr("give a whole number"))));
  }
  for (const char* value : {"1048577", "2147483648", "99999999999999999999999"}) {
    EXPECT_THAT(of(value), ElementsAre(AllOf(HasSubstr(value), HasSubstr("at most 1048576"))));
  }
  EXPECT_THAT(of("1048576"), IsEmpty());
  EXPECT_THAT(problems("a:0\n"), ElementsAre(HasSubstr("at least one slot")));
  EXPECT_THAT(problems("a:\n"), ElementsAre(HasSubstr("give a whole number")));
  EXPECT_THAT(problems("a slots\n"), ElementsAre(HasSubstr("give a whole number")));
}

TEST(HostfileTest, RefusesSlotsThatContradictEachOther) {
  EXPECT_THAT(problems("a slots=4 max_slots=2\n"), ElementsAre(HasSubstr("max_slots=2 is less")));
  EXPECT_THAT(problems("a:4 slots=4\n"), ElementsAre(HasSubstr("a second time")));
  EXPECT_THAT(problems("a slots=4 cpu=4\n"), ElementsAre(HasSubstr("a second time")));
}

TEST(HostfileTest, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(problems("a gpus=4\n"), ElementsAre(HasSubstr("\"gpus\" is not known")));
  EXPECT_THAT(problems("a b c\n"), ElementsAre(HasSubstr("\"b\" is not known")));
  EXPECT_THAT(problems("slots=4\n"), ElementsAre(HasSubstr("\"slots=4\" is no host name")));
  EXPECT_THAT(problems("-a slots=4\n"), ElementsAre(HasSubstr("is no host name")));
  EXPECT_THAT(problems("a:4:4x\n"), ElementsAre(HasSubstr("is no host name")));
  EXPECT_THAT(problems("nid[001-004] slots=4\n"),
              ElementsAre(HasSubstr("scontrol show hostnames")));
  EXPECT_THAT(problems("\x7f"
                       "ELF\x01\xff slots=4\n"),
              ElementsAre(HasSubstr("\"?ELF??\" is no")));
  EXPECT_THAT(problems(std::string(300, 'a')), ElementsAre(HasSubstr("is no host name")));
}

TEST(HostfileTest, NamesEveryProblemAtOnce) {
  EXPECT_THAT(problems("a slots=0\nb slots=2\nc slot=2\nb slots=2\n"),
              ElementsAre(HasSubstr("1: slots"), HasSubstr("3: \"slot\""), HasSubstr("4: b is")));
}

TEST(HostfileTest, StopsListingWhereNobodyReadsOn) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "!\n";
  const auto found = problems(text);
  ASSERT_THAT(found, SizeIs(51));
  EXPECT_THAT(found.back(), HasSubstr("and 950 lines more"));
}

TEST(HostfileTest, RefusesAFileWithoutHosts) {
  for (const char* text : {"", "\n\n", "# worker-0 slots=4\n"}) {
    EXPECT_THAT(problems(text), ElementsAre(HasSubstr("names no host")));
  }
}

TEST(HostfileTest, RefusesMoreSlotsThanAnyJobHas) {
  EXPECT_THAT(problems("a slots=1000000\nb slots=48576\n"), IsEmpty());
  EXPECT_THAT(problems("a slots=1000000\nb slots=48577\n"),
              ElementsAre(HasSubstr("the file has 1048577 slots")));
}

TEST(HostfileTest, NamesTheFileThatCanNotBeRead) {
  EXPECT_THROW(
      {
        try {
          (void)read_hostfile("/nowhere/hosts");
        } catch (const InputError& error) {
          EXPECT_THAT(error.what(), HasSubstr("/nowhere/hosts"));
          throw;
        }
      },
      InputError);
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
