#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dstune/space/hosts.hpp"
#include "golden.hpp"

namespace dstune {
namespace {

using Vectors = nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// scripts/tools/host_vectors.py made it by running DeepSpeed.
Vectors vectors() {
  std::ifstream file(DSTUNE_HOST_VECTORS);
  return Vectors::parse(file);
}

using NamedSlots = std::vector<std::pair<std::string, std::vector<int>>>;

/// The filter's result as DeepSpeed gives it; nothing where it is refused.
std::optional<NamedSlots> filtered(const NamedSlots& pool, const std::string& text,
                                   bool is_exclude) {
  std::vector<HostSlots> hosts;
  for (const auto& [name, slots] : pool) hosts.push_back({name, slots, 0});
  try {
    NamedSlots left;
    for (const HostSlots& host : filter_hosts(hosts, parse_host_filter(text, is_exclude), "it")) {
      if (!host.slots.empty()) left.emplace_back(host.name, host.slots);
    }
    return left;
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

std::string refusal(const std::string& text, bool is_exclude = false) {
  try {
    (void)filter_hosts({{"a.x", {0, 1, 2}, 1}, {"a.y", {0, 2}, 2}, {"b", {0}, 3}},
                       parse_host_filter(text, is_exclude), "hosts.txt");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(HostFilterTest, DoesAsDeepSpeedDoes) {
  const Vectors made = vectors();
  int num_compared = 0;
  for (const Vectors& vector : made.at("filters")) {
    const std::string include = vector["include"];
    const std::string exclude = vector["exclude"];
    if (!include.empty() && !exclude.empty()) continue;  // the command line refuses both
    const auto left = filtered(vector["pool"], include + exclude, include.empty());
    // DeepSpeed ends later where nothing is left.
    const bool is_refused = vector["left"].is_null() || vector["left"].empty();
    EXPECT_EQ(left.has_value(), !is_refused) << vector;
    if (left && !is_refused) {
      EXPECT_EQ(*left, vector["left"].get<NamedSlots>()) << vector;
      ++num_compared;
    }
  }
  EXPECT_GT(num_compared, 40);
}

TEST(HostFilterTest, ReadsHostfilesAsDeepSpeedDoes) {
  // DeepSpeed reads past these, and we refuse them.
  const std::set<std::string> stricter{"worker-0 slots=0\n", "worker-0 slots=4x\n",
                                       "worker-0 slots=2.5\n", "worker-0 slots=99999999999\n",
                                       "worker-0 slots=4 gpus=4\n"};
  // Other launchers write these.
  const std::set<std::string> wider{"worker-0\n", "worker-0:4\n", "worker-0 slots = 4\n"};
  const Vectors made = vectors();
  EXPECT_GT(made.at("hostfiles").size(), 20U);
  for (const Vectors& vector : made.at("hostfiles")) {
    const std::string text = vector["text"];
    Vectors found;
    try {
      for (const HostEntry& host : parse_hostfile(text, "hosts").hosts) {
        found.push_back({host.name, host.num_slots});
      }
    } catch (const InputError&) {
    }
    if (stricter.contains(text)) {
      EXPECT_TRUE(found.is_null() && !vector["hosts"].is_null()) << vector;
    } else if (wider.contains(text)) {
      EXPECT_TRUE(!found.is_null() && vector["hosts"].is_null()) << vector;
    } else {
      EXPECT_EQ(found, vector["hosts"]);
    }
  }
}

TEST(HostFilterTest, KeepsWhatIsWritten) {
  const HostFilter filter = parse_host_filter("b:2,0,2@a@b:1", true);
  EXPECT_TRUE(filter.is_exclude);
  EXPECT_THAT(filter.items,
              ElementsAre(HostFilter::Item{"b", {0, 1, 2}}, HostFilter::Item{"a", {}}));
}

TEST(HostFilterTest, SaysWhatIsWrong) {
  test::expect_golden(DSTUNE_SPACE_DATA "/host_filters.txt", [](const std::string& input) {
    const std::size_t space = input.find(' ');
    return refusal(input.substr(space + 1), input.starts_with("--exclude"));
  });
}

/// Two hosts whose ranks are dealt around, and one of one rank.
const JobHosts three_hosts{{"n0.x", "n1.x", "n2.x"}, {{0, 2, 4}, {1, 3}, {5}}};

std::vector<std::vector<int>> selected(const std::string& hostfile, const std::string& filter = "",
                                       bool is_exclude = false) {
  std::optional<Hostfile> file;
  if (!hostfile.empty()) file = parse_hostfile(hostfile, "hosts");
  std::optional<HostFilter> parsed;
  if (!filter.empty()) parsed = parse_host_filter(filter, is_exclude);
  return select_ranks(three_hosts, file, parsed);
}

std::vector<std::string> problems_of_filter(const std::string& hostfile,
                                            const std::string& filter = "") {
  std::vector<std::string> found;
  try {
    (void)selected(hostfile, filter);
  } catch (const InputError& error) {
    for (const Problem& problem : error.problems()) found.push_back(problem.text());
  }
  return found;
}

TEST(SelectRanksTest, TakesEveryRankWhereNothingIsSaid) {
  EXPECT_EQ(selected(""), three_hosts.ranks_of_node);
}

TEST(SelectRanksTest, TakesTheFirstRanksOfTheHostsOfTheFile) {
  EXPECT_THAT(selected("n2 slots=1\nn0 slots=2\n"), ElementsAre(ElementsAre(0, 2), ElementsAre(5)));
  EXPECT_THAT(selected("n1.x\nn1.x\n"), ElementsAre(ElementsAre(1, 3)));
  EXPECT_THAT(selected("n1.other slots=1"), ElementsAre(ElementsAre(1))) << "equal up to the dot";
}

TEST(SelectRanksTest, CountsSlotsByTheRanksOfTheirHost) {
  EXPECT_THAT(selected("", "n0:1,2@n2"), ElementsAre(ElementsAre(2, 4), ElementsAre(5)));
  EXPECT_THAT(selected("", "n0:0@n1", true), ElementsAre(ElementsAre(2, 4), ElementsAre(5)));
  EXPECT_THAT(selected("n0 slots=2\nn1 slots=2", "n0:0", true),
              ElementsAre(ElementsAre(2), ElementsAre(1, 3)));
}

TEST(SelectRanksTest, TakesLocalhostForTheHostOfRankZero) {
  EXPECT_THAT(selected("localhost slots=2"), ElementsAre(ElementsAre(0, 2)));
  EXPECT_THAT(selected("", "localhost:2"), ElementsAre(ElementsAre(4)));
}

TEST(SelectRanksTest, ForgivesWhatTheFilterLeavesOut) {
  EXPECT_THAT(selected("n0 slots=8\nn9 slots=4", "n0:0,1"), ElementsAre(ElementsAre(0, 2)));
}

TEST(SelectRanksTest, NamesWhatTheJobDoesNotHave) {
  EXPECT_THAT(problems_of_filter("n0 slots=3\nn9 slots=1\n10.0.0.1 slots=1\nn1 slots=3\n"),
              ElementsAre(AllOf(HasSubstr("hosts:2: no rank of the job runs on n9"),
                                HasSubstr("n0.x, n1.x, n2.x")),
                          HasSubstr("hosts:3: 10.0.0.1 is an address"),
                          AllOf(HasSubstr("hosts:4: n1 has slots up to number 2"),
                                HasSubstr("2 rank(s) of the job"), HasSubstr("slots=2"))));
  EXPECT_THAT(problems_of_filter("n0 slots=1\nn0.x slots=1\n"),
              ElementsAre(AllOf(HasSubstr("hosts:2: n0.x and n0 (line 1) are the same host"))));
  EXPECT_THAT(problems_of_filter("localhost slots=1\nn0 slots=1\n"),
              ElementsAre(HasSubstr("hosts:2: n0")));
}

TEST(SelectRanksTest, RefusesNamesThatSeveralHostsHave) {
  const JobHosts twins{{"vm", "vm"}, {{0}, {1}}};
  EXPECT_THROW((void)select_ranks(twins, parse_hostfile("vm slots=1", "hosts"), {}), InputError);
  EXPECT_THROW((void)select_ranks(twins, {}, parse_host_filter("vm", false)), UsageError);
}

TEST(SelectRanksTest, NumbersTheRanksOfAPlannedCluster) {
  const JobHosts cluster = job_of(parse_hostfile("a slots=2\nb slots=3\n", "hosts"));
  EXPECT_THAT(cluster.names, ElementsAre("a", "b"));
  EXPECT_THAT(cluster.ranks_of_node, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3, 4)));
}

}  // namespace
}  // namespace dstune
