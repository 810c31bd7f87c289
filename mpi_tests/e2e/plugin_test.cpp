// A workload of the user's own: measured as ours is, and what goes wrong in it costs an experiment.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

const std::string victim = short_name(0, 2);
const std::string other = short_name(0, 1);

std::string subject(const std::string& name) {
  return std::string(DSTUNE_TEST_PLUGINS) + "/libtest_plugin_" + name + ".so";
}

/// Micro-batches of 2 are the action's victims, those of 1 are not; groups of 2.
class PluginTest : public JobTest {
 protected:
  void write_space(const std::string& action, const std::string& library = "libmine.so") {
    Json space = synthetic_space({2}, {2, 1});
    space["dstune"]["workload"] = {{"type", "plugin"}, {"library", library}, {"do", action}};
    job_.write("space.json", space);
  }
  /// The library lies beside the space.
  void bring(const std::string& name) {
    std::filesystem::copy_file(subject(name), job_.folder() / "libmine.so",
                               std::filesystem::copy_options::overwrite_existing);
  }
  Ended run(const std::string& action, int ranks = 2,
            const std::vector<std::string>& mpirun_flags = {},
            std::vector<std::string> args = {"--trial-timeout", "2s"}) {
    bring("good");
    write_space(action);
    args.emplace_back("space.json");
    return job_.run(
        {.ranks = ranks, .args = std::move(args), .launcher = mpirun_flags, .limit_s = 120});
  }
  /// The victim has ended like this, and the job went on.
  void expect_victim(const std::string& status, const std::string& words) {
    auto metrics = all_metrics(job_);
    ASSERT_EQ(metrics.size(), 2);
    EXPECT_EQ(metrics[victim]["status"], status);
    EXPECT_THAT(metrics[victim]["reason"].get<std::string>(), HasSubstr(words))
        << metrics[victim]["reason"];
    EXPECT_EQ(metrics[other]["status"], "ok") << metrics[other]["reason"];
    EXPECT_EQ(optimal_of(job_)["name"], other);
    EXPECT_EQ(exit_status_of(job_)["exit_code"], 0);
  }
  /// Nothing of the library ran, nothing was written, one message names the place.
  void expect_refused(const std::string& words) {
    write_space("nothing");
    const std::string mark = (job_.folder() / "mark").string();
    e2e::expect_refused(
        job_,
        {.ranks = 3, .args = {"space.json"}, .environment = {{"DSTUNE_TEST_PLUGIN_MARK", mark}}},
        bad_input, {"/dstune/workload/library", words});
  }
};

TEST_F(PluginTest, EndsWithMetricsAndAWinner) {
  auto metrics = expect_all_ok(job_, run("check collectives"), 2);
  EXPECT_EQ(optimal_of(job_)["name"], victim);
  EXPECT_THAT(job_.read(results + "summary.txt"),
              HasSubstr(" measured with your plug-in (95 % interval "));
  const Json& measured = metrics[victim];
  EXPECT_DOUBLE_EQ(measured["throughput"], 4000) << "4 samples in the millisecond it says";
  EXPECT_DOUBLE_EQ(measured["latency"], 1000);
  EXPECT_DOUBLE_EQ(measured["fwd"], 400);
  EXPECT_DOUBLE_EQ(measured["bwd"], 500);
  EXPECT_EQ(measured["losses"][1], 1.0);
  EXPECT_EQ(measured["peak_memory_bytes"]["total"], 2024);
  EXPECT_EQ(measured["peak_memory_bytes"]["device"], 2000);
  EXPECT_EQ(measured["peak_memory_bytes"]["host"], 24);
}

TEST_F(PluginTest, TheSampleSpaceRuns) {
  std::ifstream file(std::string(DSTUNE_E2E_SPACES) + "/plugin.json");
  Json space = Json::parse(file, nullptr, true, true);
  space["dstune"]["workload"]["library"] = DSTUNE_EXAMPLE_PLUGIN;
  job_.write("space.json", space);
  const Ended ended = job_.run({.ranks = 4, .args = {"space.json"}, .limit_s = 180});
  const auto metrics = expect_all_ok(job_, ended, 16);
  // ZeRO's own bargain, on two ranks and four.
  const auto bytes = [&](const char* name) {
    return metrics.at(name)["peak_memory_bytes"]["total"].get<std::int64_t>();
  };
  EXPECT_LT(bytes("z1_gas2_tmbspg1_ng4"), bytes("z1_gas2_tmbspg1_ng2"));
  EXPECT_LT(bytes("z1_gas2_tmbspg1_ng2"), bytes("z0_gas2_tmbspg1_ng2"));
}

TEST_F(PluginTest, RecordsHowItsExperimentsEnd) {
  struct Action {
    const char* action;
    const char* status;
    const char* words;
  };
  for (const auto& [action, status, words] :
       {Action{"out of memory in build", "out_of_memory", "planted: 31 GiB are too many"},
        Action{"out of memory in step", "out_of_memory",
               "rank 1: step 2: planted: no room for the step"},
        Action{"fail in step", "failed", "rank 1: step 2: planted in step 2"},
        Action{"say no text", "failed", "rank 1: step 2: \\xFF\\xC3\\x1B[31m red"},
        Action{"endless bytes", "failed", "beyond what any machine has"},
        Action{"close descriptors", "failed", "closed descriptors that it had not opened"},
        Action{"wait for the end", "timed_out", "--trial-timeout"}}) {
    SCOPED_TRACE(action);
    expect_exit(job_, run(action), done);
    expect_victim(status, words);
  }
}

TEST_F(PluginTest, AHangOrACrashCostsItsRanks) {
  if (recovery_words().empty()) GTEST_SKIP() << "with this launcher no rank outlives another";
  const auto ended_by = [&](const std::string& action, std::vector<std::string> args = {}) {
    args.insert(args.end(), {"--trial-timeout", "2s"});
    const Ended ended = run(action, 4, recovery_words(), std::move(args));
    EXPECT_EQ(ended.exit_code, done) << ended;
  };
  ended_by("hang");
  expect_victim("timed_out", "lost rank");
  ended_by("crash");
  expect_victim("failed", "died");
  ended_by("hang in destroy", {"--reserve", "6s"});
  expect_victim("timed_out", "lost rank");
}

TEST_F(PluginTest, AConstructorThatHangsEndsTheJob) {
  bring("good");
  write_space("nothing");
  Command hanging = command({"--trial-timeout", "2s"});
  hanging.environment = {{"DSTUNE_TEST_PLUGIN_HANG", "1"}};
  const Ended ended = e2e::expect_refused(
      job_, hanging, bad_input,
      {"its constructor has not returned after 2.00 s", "/dstune/workload/library"});
  EXPECT_LT(ended.wall_s, 15);
}

TEST_F(PluginTest, AnotherLibraryOrOptionIsMeasuredAnew) {
  expect_exit(job_, run("fail in step"), 0);
  const std::size_t first = journal(job_).size();
  expect_exit(job_, run("fail in step"), 0);
  EXPECT_TRUE(names_of(journal(job_), "started", first).empty());
  const std::size_t second = journal(job_).size();
  expect_exit(job_, run("nothing"), 0);
  EXPECT_EQ(names_of(journal(job_), "started", second).size(), 2U);
  const std::size_t third = journal(job_).size();
  std::ofstream(job_.folder() / "libmine.so", std::ios::app) << "the same functions, another file";
  expect_exit(job_, JobTest::run(), done);
  EXPECT_EQ(names_of(journal(job_), "started", third).size(), 2U);
}

/// 1,000 bytes a sample of 30,100, and steps of a millisecond whatever their size.
class PluginSizesTest : public PluginTest {
 protected:
  std::vector<std::string> run_sizes(const std::string& tuner, std::vector<std::string> args = {}) {
    bring("good");
    Json space = synthetic_space({2}, {1});
    space["dstune"]["workload"] = {
        {"type", "plugin"}, {"library", "libmine.so"}, {"do", "nothing"}};
    space["dstune"]["device_memory"] = 30100;
    space["autotuning"]["max_train_micro_batch_size_per_gpu"] = 64;
    space["train_micro_batch_size_per_gpu"] = "auto";
    space["zero_optimization"]["stage"] = {0, 1};
    job_.write("space.json", space);
    const bool resumes = args != std::vector<std::string>{"--overwrite"};
    const std::size_t before =
        resumes && job_.exists(results + "journal.jsonl") ? journal(job_).size() : 0;
    for (const char* const each : {"--trial-timeout", "5s", "--tuner", tuner.c_str(), "space.json"})
      args.emplace_back(each);
    expect_exit(job_, job_.run({.ranks = 2, .args = args, .limit_s = 120}), 0);
    return names_of(journal(job_), "started", before);
  }
  Json answer() { return optimal_of(job_); }
};

TEST_F(PluginSizesTest, SizesGrowUntilMemoryIsUsedUp) {
  for (const std::string tuner : {"race", "gridsearch", "random", "model_based"}) {
    const auto started = run_sizes(tuner, {"--overwrite"});
    const std::set<std::string> ran(started.begin(), started.end());
    ASSERT_GE(started.size(), 5U) << tuner;
    for (std::size_t place = 0; place < 5; ++place)
      EXPECT_EQ(started[place], short_name(0, 1 << place)) << tuner;
    // 32 is known not to fit the user's own stage, and what is larger nobody tries.
    EXPECT_FALSE(ran.contains(short_name(0, 32))) << tuner;
    for (const int size : {36, 40, 48, 56, 64}) {
      EXPECT_FALSE(ran.contains(short_name(0, size))) << tuner << ' ' << size;
      EXPECT_FALSE(ran.contains(short_name(1, size))) << tuner << ' ' << size;
    }
    EXPECT_EQ(answer()["name"].get<std::string>().substr(2), short_name(0, 30).substr(2)) << tuner;
    // The baseline is the largest size of the user's own stage that ran.
    EXPECT_EQ(answer()["baseline"]["name"], short_name(0, 30)) << tuner;
    EXPECT_GE(count_of(job_.read(results + "results.csv"), "needs about"), 1) << tuner;
  }
}

TEST_F(PluginSizesTest, TheSameCommandGoesOnWithoutRepeating) {
  const auto first = run_sizes("race", {"--num-trials", "7"});
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 7U);
  const auto second = run_sizes("race");
  for (const std::string& name : second)
    EXPECT_EQ(std::ranges::count(first, name), 0) << name << " ran again";
  EXPECT_EQ(answer()["name"].get<std::string>().substr(2), short_name(0, 30).substr(2));
}

TEST_F(PluginTest, ADryRunRunsNothingOfIt) {
  bring("good");
  write_space("nothing");
  const std::string mark = (job_.folder() / "mark").string();
  const Ended ended = run_with({{"DSTUNE_TEST_PLUGIN_MARK", mark}}, {"--dry-run", "--all"});
  EXPECT_EQ(ended.exit_code, done) << ended;
  EXPECT_EQ(count_of(ended.out, "not predicted"), 2) << ended;
  EXPECT_FALSE(job_.exists("mark"));
}

// unit/train/plugin_functions_test.cpp has each thing that a library may lack.
TEST_F(PluginTest, RefusesWhatIsNoPlugin) {
  expect_refused("can not read");
  job_.write_text("libmine.so", "#!/bin/sh\n# nothing that could be loaded\n");
  expect_refused("not an ELF file");
  bring("good");
  std::filesystem::resize_file(job_.folder() / "libmine.so", 4096);
  expect_refused("is cut short");
  for (const auto& [library, words] :
       {std::pair("without_report", "does not export dstune_workload_report"),
        std::pair("other_version", "version 9"),
        std::pair("missing_library", "libtest_plugin_absent.so"),
        std::pair("missing_function", "test_plugin_no_such_function")}) {
    bring(library);
    expect_refused(words);
  }
}

}  // namespace
}  // namespace dstune::e2e
