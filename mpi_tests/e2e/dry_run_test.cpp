// The plan: nothing is run, nothing is written.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "json_schema.hpp"
#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

class DryRunTest : public JobTest {
 protected:
  /// Stages 0 and 3, micro-batches 1, 1 and 2, groups of 2 and 8: twelve members, four of them
  /// written twice.
  void SetUp() override {
    Json space = transformer_space({2, 8});
    space["zero_optimization"]["stage"] = {0, 3};
    space["train_micro_batch_size_per_gpu"] = {1, 1, 2};
    write_transformer(job_, space);
  }
  Ended plan(std::vector<std::string> options = {}) {
    options.insert(options.begin(), "--dry-run");
    const auto before = job_.contents();
    Ended ended = run(std::move(options));
    EXPECT_EQ(job_.contents(), before) << "a dry run writes nothing";
    return ended;
  }
  Json plan_json(std::vector<std::string> options = {}, int exit_code = done) {
    options.insert(options.end(), {"--format", "json"});
    const Ended ended = plan(std::move(options));
    EXPECT_EQ(ended.exit_code, exit_code) << ended;
    const Json shown = printed(ended);
    static const test::SchemaCheck<Json> schema(DSTUNE_PLAN_SCHEMA);
    for (const std::string& problem : schema.problems_of(shown)) ADD_FAILURE() << problem;
    return shown;
  }
  /// So many micro-batches, and as many numbers of micro-steps.
  void write_huge_space(int sizes) {
    Json space = synthetic_space({1}, sizes_up_to(sizes));
    space["gradient_accumulation_steps"] = sizes_up_to(sizes);
    job_.write("space.json", space);
  }
};

TEST_F(DryRunTest, SaysWhatIsAssumed) {
  Json space = job_.read_json("space.json");
  space["bf16"] = {{"enabled", "auto"}};
  job_.write("space.json", space);
  const Ended refused = plan({});
  EXPECT_EQ(refused.exit_code, bad_input) << refused;
  EXPECT_EQ(count_of(refused.err, "/bf16/enabled"), 1) << refused;
  EXPECT_EQ(count_of(refused.err, "add \"precision\": \"bf16\""), 1) << refused;

  const Ended shown = plan({"--precision", "bf16"});
  EXPECT_EQ(shown.exit_code, 0) << shown;
  EXPECT_THAT(
      shown.out,
      HasSubstr("Planned for DeepSpeed 0.19.8 (the newest that dstune-mpi knows, since none is "
                "installed; --deepspeed-version names another).\n"
                "Assumed: \"auto\" precision is bf16, by --precision.\n"));
  const Json listed = plan_json({"--precision", "bf16"});
  EXPECT_EQ(listed["assumptions"][0], "\"auto\" precision is bf16, by --precision");
  EXPECT_EQ(listed["experiments"][0]["ds_config"]["bf16"]["enabled"], "auto");
}

TEST_F(DryRunTest, SaysWhereOneSizeOpensASearch) {
  Json space = job_.read_json("space.json");
  space["train_micro_batch_size_per_gpu"] = 1;
  space["gradient_accumulation_steps"] = 1;
  space.erase("train_batch_size");
  job_.write("space.json", space);
  const Ended shown = plan({});
  EXPECT_EQ(shown.exit_code, 0) << shown;
  EXPECT_THAT(shown.out, HasSubstr("train_micro_batch_size_per_gpu is one number, 1, from which on "
                                   "larger sizes are searched"));
  space["train_micro_batch_size_per_gpu"] = {1};
  job_.write("space.json", space);
  EXPECT_THAT(plan({}).out, Not(HasSubstr("is one number")));
}

TEST_F(DryRunTest, IsForTheDeepSpeedThatIsNamedOrInstalled) {
  EXPECT_EQ(plan_json()["deepspeed_version"], "0.19.8");
  EXPECT_EQ(plan_json()["experiments"][0]["ds_config"]["gradient_clipping"], 1.0);
  const Json old = plan_json({"--deepspeed-version", "0.18.9"});
  EXPECT_EQ(old["deepspeed_version"], "0.18.9");
  EXPECT_EQ(old["experiments"][0]["ds_config"]["gradient_clipping"], 0.0);

  const std::string venv = (job_.folder() / "venv").string();
  job_.write_text("venv/pyvenv.cfg", "version = 3.11.2\n");
  job_.write_text("venv/lib/python3.11/site-packages/deepspeed-0.16.9.dist-info/METADATA", "");
  const auto line_with = [&](std::vector<std::string> args) {
    const Ended ended = run_with({{"VIRTUAL_ENV", venv}}, std::move(args));
    const std::size_t from = ended.out.find("Planned for DeepSpeed ");
    return ended.out.substr(from, ended.out.find('\n', from) - from);
  };
  EXPECT_EQ(line_with({"plan"}), "Planned for DeepSpeed 0.16.9 (installed in " + venv +
                                     "/lib/python3.11/site-packages).");
  job_.write_text("hosts", "one slots=8\n");
  EXPECT_EQ(line_with({"plan", "--hostfile", "hosts", "--device", "h100"}),
            "Planned for DeepSpeed 0.19.8 (the newest that dstune-mpi knows, since none is named; "
            "--deepspeed-version names another). Optimizer: DeepSpeed's, as the config names it.");
}

TEST_F(DryRunTest, ListsMembersInTheirOrder) {
  const Json shown = plan_json();
  EXPECT_EQ(shown["counts"], Json({{"planned", 8}, {"infeasible", 0}, {"pruned", 4}}));
  EXPECT_EQ(shown["pruned"]["twin"], 4);

  std::vector<std::string> names;
  for (const Json& one : shown["experiments"]) {
    EXPECT_TRUE(one["ds_config"].is_object());
    if (one["status"] != "planned") {
      EXPECT_EQ(one["status"], "pruned");
      EXPECT_FALSE(one["reason"].get<std::string>().empty());
      continue;
    }
    names.push_back(one["name"]);
    const Json& config = one["ds_config"];
    const int size = one["num_gpus"];
    EXPECT_EQ(config["train_batch_size"].get<int>(),
              config["train_micro_batch_size_per_gpu"].get<int>() *
                  config["gradient_accumulation_steps"].get<int>() * size);
    EXPECT_GT(one["predicted"]["peak_memory_bytes"].get<std::int64_t>(), 0);
    EXPECT_GT(one["predicted"]["target_memory_bytes"].get<std::int64_t>(), 0);
    EXPECT_TRUE(one["predicted"].contains("throughput"));
  }
  // Document order, the last key fastest; group size, which DeepSpeed lacks, slowest.
  std::vector<std::string> expected;
  for (const char* group : {"_ng2", "_ng8"}) {
    for (const int micro_batch : {1, 2})
      for (const int stage : {0, 3}) expected.push_back(short_name(stage, micro_batch) + group);
  }
  EXPECT_EQ(names, expected);
}

TEST_F(DryRunTest, AllowsGroupsLargerThanTheJob) {
  ranks_ = 1;
  const Ended ended = plan({"--all"});
  EXPECT_EQ(ended.exit_code, done) << ended;
  for (const char* part : {"z0_gas1_tmbspg1_ng8", "z3_gas1_tmbspg2_ng2", "8 planned", "4 pruned"})
    EXPECT_THAT(ended.out, HasSubstr(part));
}

TEST_F(DryRunTest, IsAnAnswerOfFifteenLinesAndATableWhereAsked) {
  Json space = transformer_space({2});
  space["zero_optimization"]["stage"] = {0, 1, 2, 3};
  space["train_micro_batch_size_per_gpu"] = sizes_up_to(20);
  job_.write("space.json", space);
  const Ended ended = plan();
  EXPECT_LE(std::ranges::count(ended.out, '\n'), 15) << ended;
  EXPECT_THAT(ended.out, HasSubstr("varied: stage 0, 1, 2, 3; micro-batch 1 to 20 (20 values)"));
  EXPECT_THAT(ended.out, HasSubstr("80 members: 80 planned"));
  EXPECT_THAT(ended.out, Not(HasSubstr("  built-in")));
  const Ended whole = plan({"--all"});
  EXPECT_GT(std::ranges::count(whole.out, '\n'), 80) << whole;
  EXPECT_THAT(whole.out, HasSubstr("  built-in"));
}

TEST_F(DryRunTest, TheTableEndsBehindTheSecondSizeThatDoesNotFit) {
  Json space = transformer_space({2});
  space["zero_optimization"]["stage"] = 3;
  space["train_micro_batch_size_per_gpu"] = {1, 1 << 20, 2 << 20, 3 << 20, 4 << 20};
  space["dstune"]["device_memory"] = "4GiB";
  job_.write("space.json", space);
  const std::string text = plan({"--all"}).out;
  EXPECT_THAT(text, HasSubstr("… 2 larger sizes than " + short_name(3, 2 << 20) + " do not fit"));
  EXPECT_THAT(text, Not(HasSubstr(short_name(3, 3 << 20) + " ")));
  const Json shown = plan_json();
  EXPECT_EQ(shown["answer"]["does_not_fit"][0]["count"], 4);
  EXPECT_EQ(shown["experiments"].size(), 5) << "programs get all of them";
}

TEST_F(DryRunTest, PredictsEveryRankAndCategory) {
  const Json shown = plan_json();
  const auto sum_of = [](const Json& categories) {
    std::int64_t sum = 0;
    for (const auto& [name, bytes] : categories.items()) sum += bytes.get<std::int64_t>();
    return sum;
  };
  for (const Json& one : shown["experiments"]) {
    const Json& predicted = one["predicted"];
    if (one["status"] == "pruned") {
      EXPECT_TRUE(predicted["categories"].is_null());
      EXPECT_TRUE(predicted["ranks"].is_null());
      continue;
    }
    const std::int64_t peak = predicted["peak_memory_bytes"];
    EXPECT_EQ(sum_of(predicted["categories"]), peak) << one["name"];
    int next = 0;
    std::int64_t fullest = 0;
    for (const Json& alike : predicted["ranks"]) {
      EXPECT_EQ(alike["ranks"][0], next) << "every rank once";
      next = alike["ranks"][1].get<int>() + 1;
      EXPECT_EQ(sum_of(alike["categories"]), alike["peak_memory_bytes"]);
      fullest = std::max(fullest, alike["peak_memory_bytes"].get<std::int64_t>());
    }
    EXPECT_EQ(next, one["num_gpus"]);
    EXPECT_EQ(fullest, peak);
  }
}

/// The same configurations, run: three ranks, so that nothing divides.
TEST_F(DryRunTest, PredictsWhatARunThenNeeds) {
  Json space = transformer_space({3});
  space["train_micro_batch_size_per_gpu"] = {1, 3};
  space["zero_optimization"]["reduce_bucket_size"] = 3000;
  job_.write("space.json", space);
  ranks_ = 3;
  const Json shown = plan_json();
  const auto metrics = expect_all_ok(job_, run({"--quiet"}), 8);
  for (const Json& one : shown["experiments"]) {
    const std::string name = one["name"];
    ASSERT_TRUE(metrics.contains(name)) << name;
    const Json& measured = metrics.at(name)["peak_memory_bytes"];
    const Json& predicted = one["predicted"];
    EXPECT_EQ(measured["total"], predicted["peak_memory_bytes"]) << name;
    for (const auto& [category, bytes] : predicted["categories"].items()) {
      if (category == "gaps") continue;
      EXPECT_EQ(measured[category], bytes) << name << ' ' << category;
    }
  }
  EXPECT_EQ(shown["experiments"].size(), 8U);
}

TEST_F(DryRunTest, ShowsTheMemoryOverAStepWhereAsked) {
  EXPECT_THAT(plan({}).out, Not(HasSubstr("every rank: ")));
  EXPECT_THAT(plan({}).out, Not(HasSubstr("at once")));
  const Ended ended = plan({"--verbose"});
  EXPECT_THAT(ended.out, HasSubstr("every rank: ")) << ended;
  EXPECT_THAT(ended.out, HasSubstr("activations")) << ended;
  EXPECT_THAT(ended.out, HasSubstr("device, at most ")) << ended;
}

TEST_F(DryRunTest, SaysWhatWasUnderstoodWhereAsked) {
  EXPECT_THAT(plan({"--time-limit", "10m"}).err, Not(HasSubstr("debug")));
  const Ended ended = plan({"--verbose", "--time-limit", "10m"});
  EXPECT_THAT(ended.err, HasSubstr("debug: option --time-limit 10m (600 s)")) << ended;
  EXPECT_THAT(ended.err, HasSubstr("debug: MPI: ")) << ended;
  EXPECT_THAT(ended.err, HasSubstr("debug: rank 0: host ")) << ended;
}

TEST_F(DryRunTest, CountsTheTrialsPastTheCapAsPruned) {
  EXPECT_EQ(plan_json({"--num-trials", "3"})["counts"],
            Json({{"planned", 3}, {"infeasible", 0}, {"pruned", 9}}));
}

TEST_F(DryRunTest, AFullDiskUnderItsOutputIsSaid) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"plan", "--format", "json", "space.json"}, {"--help"}}) {
    const Ended ended = job_.run(
        {.ranks = 0, .args = words, .launcher = {"sh", "-c", "exec \"$0\" \"$@\" > /dev/full"}});
    EXPECT_EQ(ended.exit_code, not_writable) << ended;
    EXPECT_EQ(count_of(ended.err, "stdout can not be written"), 1) << ended;
  }
}

TEST_F(DryRunTest, NeedsNoMpi) {
  // Open MPI finds none of its parts there: whoever starts it fails.
  const std::map<std::string, std::string> no_mpi{{"OPAL_PREFIX", "/nowhere"},
                                                  {"OMPI_MCA_mca_base_component_path", "/nowhere"}};
  ranks_ = 0;
  EXPECT_NE(run_with(no_mpi).exit_code, done) << "MPI starts here all the same";
  for (const auto& [word, said] :
       {std::pair("plan", "8 planned"), std::pair("--dry-run", "8 planned"),
        std::pair("--help", "dstune-mpi"), std::pair("--version", "dstune-mpi")}) {
    Command command{.ranks = 0, .args = {word}, .environment = no_mpi};
    if (said == std::string("8 planned")) command.args.emplace_back("space.json");
    const Ended ended = job_.run(command);
    EXPECT_EQ(ended.exit_code, done) << ended;
    EXPECT_THAT(ended.out, HasSubstr(said)) << ended;
  }
}

TEST_F(DryRunTest, IsOneUnderMpirunAndKnowsItsRanks) {
  Json space = transformer_space({});
  space["dstune"].erase("resources");
  job_.write("space.json", space);
  ranks_ = 3;
  EXPECT_EQ(plan_json()["experiments"].at(0)["num_gpus"], 3) << "one process speaks";
  job_.write_text("space.json", "{");
  EXPECT_EQ(plan().exit_code, bad_input) << "mpirun returns its code";
}

TEST_F(DryRunTest, EndsWithItsTimeAndShowsWhatItHas) {
  write_huge_space(3000);
  ranks_ = 1;
  const Ended ended = plan({"--format", "json", "--time-limit", "3s", "--reserve", "1s"});
  EXPECT_EQ(ended.exit_code, stopped_early) << ended.err;
  EXPECT_LT(ended.wall_s, 20);
  EXPECT_GT(printed(ended)["experiments"].size(), 0U);
  EXPECT_EQ(count_of(ended.err, "of 9000000 members were looked at"), 1) << ended.err;
}

TEST_F(DryRunTest, ListsShorterListsOfAHugeSpace) {
  write_huge_space(400);
  ranks_ = 1;
  const Json shown = plan_json();
  EXPECT_EQ(shown["experiments"].size(), 2000) << "400 micro-batches and 5 accumulations";
  std::set<int> sizes, steps;
  for (const Json& one : shown["experiments"]) {
    sizes.insert(one["ds_config"]["train_micro_batch_size_per_gpu"].get<int>());
    steps.insert(one["ds_config"]["gradient_accumulation_steps"].get<int>());
  }
  EXPECT_EQ(sizes.size(), 400);
  EXPECT_EQ(steps.size(), 5);
  EXPECT_EQ(std::pair(*steps.begin(), *steps.rbegin()), std::pair(1, 400)) << "both ends";
  int total = 0;
  for (const auto& [status, count] : shown["counts"].items()) total += count.get<int>();
  EXPECT_EQ(total, 160000);
}

}  // namespace
}  // namespace dstune::e2e
