// --hostfile, --include and --exclude: who trains, who does not, and what is refused. Hosts are
// pretended on this one, uneven, the first with rank 0 alone.
#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

constexpr int num_ranks = 6;
const std::map<std::string, std::string> three_hosts{
    {"DSTUNE_PRETEND_HOSTS", "node-a.lan:1,node-b.lan:3,node-c.lan:2"}};
/// The world ranks of the hosts above.
const std::set<int> ranks_of_b{1, 2, 3};

class HostsTest : public JobTest {
 protected:
  HostsTest() { ranks_ = num_ranks; }
  Ended run(std::vector<std::string> args) { return run_with(three_hosts, std::move(args)); }
  /// Runs, and returns all the ranks that trained; every experiment must have ended well.
  std::set<int> ranks_used(const std::vector<std::string>& args) {
    last_ = run(args);
    expect_exit(job_, last_, 0);
    std::set<int> used;
    const auto metrics = all_metrics(job_);
    EXPECT_FALSE(metrics.empty());
    for (const auto& [name, measured] : metrics) {
      EXPECT_EQ(measured["status"], "ok") << name << ' ' << measured["reason"];
      used.merge(ranks_of(measured));
    }
    expect_no_rank_used_twice(metrics);
    return used;
  }
  /// Groups of one and two, enough of them that every rank that may train does.
  void write_small_groups() {
    job_.write("space.json", synthetic_space({1, 2}, {1, 2, 3, 4, 5, 6}, 0.01));
  }
  void write_hosts(const std::string& text) { job_.write_text("hosts", text); }
  void expect_said(const std::string& part) const {
    EXPECT_EQ(count_of(last_.err, part), 1) << "\"" << part << "\" once in\n" << last_;
  }

  Ended last_;
};

TEST_F(HostsTest, TrainOnTheHostsAndSlotsOfTheFileOnly) {
  write_small_groups();
  write_hosts("# rank 0 coordinates from elsewhere\nnode-c slots=1\nnode-b slots=2 max_slots=3\n");
  EXPECT_EQ(ranks_used({"--hostfile", "hosts"}), (std::set{1, 2, 4}));
  expect_said("3 of 6 ranks train, on 2 of 3 host(s)");
  for (const auto& [name, measured] : all_metrics(job_)) {
    const std::set<std::string> hosts = measured["group"]["hosts"];
    EXPECT_EQ(hosts.size(), 1) << name << ": groups stay on a host";
    EXPECT_FALSE(hosts.contains("node-a.lan")) << name;
  }
  const Json environment = job_.read_json(results + "environment.json");
  EXPECT_EQ(environment["training_ranks"], Json({{1, 2}, {4}}));
  EXPECT_EQ(environment["machine_fingerprint"]["devices_a_node"], Json({2, 1}));
}

TEST_F(HostsTest, TrainOnWhatIsIncluded) {
  write_small_groups();
  EXPECT_EQ(ranks_used({"--include", "node-b:0,2@node-c"}), (std::set{1, 3, 4, 5}));
}

TEST_F(HostsTest, TrainOnWhatIsNotExcluded) {
  write_small_groups();
  EXPECT_EQ(ranks_used({"--exclude", "node-a@node-c:0"}), (std::set{1, 2, 3, 5}));
}

TEST_F(HostsTest, FilterTheFile) {
  write_small_groups();
  write_hosts("node-b:3\nnode-c:2\nnode-z:8\n");
  EXPECT_EQ(ranks_used({"--hostfile", "hosts", "--include", "node-b"}), ranks_of_b);
}

TEST_F(HostsTest, TrainAcrossUnevenHosts) {
  Json space = transformer_space({});
  space["dstune"].erase("resources");
  space["zero_optimization"]["stage"] = {1, 3};
  write_transformer(job_, space);
  EXPECT_EQ(ranks_used({"--exclude", "node-a"}), (std::set{1, 2, 4, 5}))
      << "two on each of the hosts that are left";
  expect_said("groups take 2 on each, 4 of 5 ranks");
}

TEST_F(HostsTest, LeaveTheHostOfTheCoordinatorOutWhereItHasNoOtherRank) {
  Json space = synthetic_space({}, {1, 2});
  space["dstune"].erase("resources");
  job_.write("space.json", space);
  EXPECT_EQ(ranks_used({"--coordinator", "dedicated"}), (std::set{1, 2, 4, 5}));
}

TEST_F(HostsTest, ResumeWithinTheSameHosts) {
  write_small_groups();
  EXPECT_EQ(ranks_used({"--include", "node-b"}), ranks_of_b);
  const auto before = names_of(journal(job_), "finished").size();
  EXPECT_EQ(ranks_used({"--include", "node-b"}), ranks_of_b);
  EXPECT_EQ(names_of(journal(job_), "finished").size(), before) << "nothing runs again";
}

TEST_F(HostsTest, TakeLocalhostForThisHost) {
  write_small_groups();
  write_hosts("localhost slots=2\n");
  ranks_ = 3;
  expect_exit(job_, JobTest::run({"--hostfile", "hosts"}), done);
  for (const auto& [name, measured] : all_metrics(job_))
    EXPECT_FALSE(ranks_of(measured).contains(2)) << name;
}

TEST_F(HostsTest, PlanForTheClusterOfTheFile) {
  Json space = synthetic_space({}, {1});
  space["dstune"].erase("resources");
  job_.write("space.json", space);
  write_hosts("worker-0 slots=8\nworker-1 slots=8\nworker-2 slots=8\nworker-3 slots=8\n");
  ranks_ = 0;
  const auto group_size = [&](std::vector<std::string> args) {
    return plan(std::move(args))["experiments"].at(0)["num_gpus"].get<int>();
  };
  EXPECT_EQ(group_size({"--hostfile", "hosts"}), 32);
  EXPECT_EQ(group_size({"--hostfile", "hosts", "--exclude", "worker-2"}), 24);
  EXPECT_EQ(group_size({"--hostfile", "hosts", "--include", "worker-0:0,1@worker-3"}), 4);
  EXPECT_EQ(group_size({"--hostfile", "hosts", "--coordinator", "dedicated"}), 28);

  job_.write("space.json", synthetic_space({9}, {1}));
  expect_refused(job_, command({"--dry-run", "--hostfile", "hosts"}), bad_input,
                 {"leave 8 + 8 + 8 + 8 ranks on 4 nodes"});
}

struct Refusal {
  std::string name;
  std::string hosts;  ///< of the hostfile
  std::vector<std::string> args;
  int exit_code;
  std::vector<std::string> parts;  ///< each is said once
};

void PrintTo(const Refusal& one, std::ostream* out) {
  *out << one.name;
}

class HostsRefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(HostsRefusalTest, SaysWhatAndWritesNothing) {
  const Refusal& one = GetParam();
  Job job;
  job.write("space.json", synthetic_space({1, 2}, {1}));
  job.write_text("hosts", one.hosts);
  Command command{.ranks = num_ranks, .args = one.args, .environment = three_hosts};
  command.args.emplace_back("space.json");
  expect_refused(job, command, one.exit_code, one.parts);
}

const std::vector<std::string> with_file{"--hostfile", "hosts"};

INSTANTIATE_TEST_SUITE_P(
    Hosts, HostsRefusalTest,
    testing::Values(
        Refusal{"MissingFile", "", {"--hostfile", "absent"}, 3, {"can not read absent"}},
        Refusal{"EmptyFile", "# nobody\n", with_file, 3, {"hosts: the file names no host"}},
        Refusal{"EveryBadLine",
                "node-b slots=0\nnode-b gpus=1\nnode-c slots=1\nnode-c slots=1\n",
                with_file,
                3,
                {"hosts:1: slots is 0", "hosts:2: \"gpus\"", "hosts:4: node-c is named on line 3"}},
        Refusal{
            "UnknownHost", "node-b slots=1\nnode-z slots=1\n", with_file, 3, {"hosts:2: no rank"}},
        Refusal{"Address", "10.0.0.1 slots=1\n", with_file, 3, {"hosts:1: 10.0.0.1 is an address"}},
        Refusal{"TooManySlots", "node-b slots=4\n", with_file, 3, {"hosts:1: node-b", "slots=3"}},
        Refusal{
            "GroupsThatDoNotFit", "node-b slots=1\n", with_file, 3, {"leave 1 rank on one node"}},
        Refusal{"BothFilters",
                "",
                {"--include", "node-a", "--exclude", "node-b"},
                2,
                {"--include and --exclude do not go together"}},
        Refusal{"FilterSyntax", "", {"--include", "node-b:0-2"}, 2, {"\"0-2\" is a range"}},
        Refusal{"FilteredHost", "", {"--include", "node-z"}, 2, {"no such host in the job"}},
        Refusal{"FilteredSlot", "", {"--exclude", "node-b:3"}, 2, {"has no slot 3"}},
        Refusal{"FilteredHostOfTheFile",
                "node-b slots=2\n",
                {"--hostfile", "hosts", "--include", "node-c"},
                2,
                {"no such host in hosts"}},
        Refusal{"EverythingExcluded",
                "",
                {"--exclude", "node-a@node-b@node-c"},
                2,
                {"--exclude leaves no slot"}},
        Refusal{"OnlyTheCoordinator",
                "",
                {"--include", "node-a", "--coordinator", "dedicated"},
                2,
                {"leaves no rank to train"}}),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace dstune::e2e
