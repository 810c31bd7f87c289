// Only what is ours is written: whatever else lies in the folders, and every input, is there as it
// was after every kind of run. And exit_status.json is there after every ending that can write it.
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

namespace fs = std::filesystem;

const std::string exps = "autotuning_exps/";
const std::string name = short_name(0, 1);

/// DeepSpeed's own, as its autotuner leaves them.
constexpr const char* deepspeed_metrics =
    R"({"fwd": 1000.0, "bwd": 2000.0, "step": 100.0, "latency": 3100.0, "FLOPS_per_gpu": 1e9,
"throughput": 322.0, "rank": 0})";

class ForeignTest : public JobTest {
 protected:
  ForeignTest() {
    job_.write("space.json", synthetic_space({1}, {1, 2}));
    Json bad = synthetic_space({1}, {1, 2});
    bad["zero_optimization"]["stage"] = 4;
    job_.write("bad.json", bad);
  }
  Ended run(std::vector<std::string> args) {
    return job_.run({.ranks = 0, .args = std::move(args)});
  }
  /// Somebody else's files with the names of ours.
  void fill(const std::string& results_dir, const std::string& exps_dir) {
    for (const char* file : {"journal.jsonl", "environment.json", "ds_config_optimal.json",
                             "cmd_optimal.txt", "optimal.json", "verify.sbatch", "verify.pbs",
                             "validation.json", "results.csv", "report.html", "report.json",
                             "summary.txt", "exit_status.json", "lock", ".dstune-manifest.jsonl"})
      job_.write_text(results_dir + file, std::string("theirs: ") + file + "\n");
    for (const char* file : {"exp.json", "ds_config.json", "metrics.json", "verified.json",
                             "traceback.txt", "memory.svg", "memory.txt"})
      job_.write_text(results_dir + name + "/" + file, "theirs\n");
    job_.write_text(exps_dir + name + ".json", "theirs\n");
    job_.write_text(exps_dir + ".dstune-manifest.jsonl", "theirs\n");
  }
  /// Below these folders all is as it was.
  void expect_same(const std::map<std::string, std::string>& before, const std::string& what) {
    const auto after = job_.contents();
    for (const auto& [file, text] : before) {
      const auto found = after.find(file);
      ASSERT_NE(found, after.end()) << file << " is gone after " << what;
      EXPECT_EQ(found->second, text) << file << " after " << what;
    }
  }
  /// Every kind of run leaves it alone. `code`: of those that would run something.
  void expect_untouched(const std::vector<std::string>& folders, int code) {
    const auto before = job_.contents();
    const std::vector<std::pair<std::vector<std::string>, int>> runs{
        {{"space.json"}, code},
        {{"space.json"}, code},
        {{"--overwrite", "space.json"}, code},
        {{"--overwrite", "bad.json"}, bad_input},
        {{"--dry-run", "space.json"}, done},
        {{"--tuner", "rice", "space.json"}, usage}};
    for (const auto& [words, expected] : runs) {
      std::vector<std::string> args = folders;
      args.insert(args.end(), words.begin(), words.end());
      const std::string what = testing::PrintToString(args);
      const Ended ended = run(args);
      EXPECT_EQ(ended.exit_code, expected) << what << "\n" << ended;
      expect_same(before, what);
    }
  }
};

TEST_F(ForeignTest, FilesWithOurNamesStayAndTheDefaultFoldersGiveWay) {
  fill(results, exps);
  const Ended ended = run({"space.json"});
  EXPECT_EQ(ended.exit_code, done) << ended;
  EXPECT_EQ(count_of(ended.err, "dstune_results is taken instead"), 1) << ended;
  EXPECT_EQ(count_of(ended.err, "dstune_exps is taken instead"), 1) << ended;
  EXPECT_TRUE(job_.exists("dstune_results/" + name + "/metrics.json"));
  EXPECT_TRUE(job_.exists("dstune_exps/" + name + ".json"));
  const auto is_theirs = [](const std::string& file) {
    return !file.starts_with("dstune_") && !file.starts_with("out") && !file.starts_with("err");
  };
  auto before = job_.contents();
  std::erase_if(before, [&](const auto& entry) { return !is_theirs(entry.first); });
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"space.json"}, {"--overwrite", "space.json"}}) {
    EXPECT_EQ(run(args).exit_code, done);
    expect_same(before, args.front());
  }
  EXPECT_EQ(job_.read(results + "summary.txt"), "theirs: summary.txt\n");
  EXPECT_EQ(run({"bad.json"}).exit_code, bad_input);
  EXPECT_EQ(job_.read_json("dstune_results/exit_status.json")["exit_code"], bad_input);
  expect_same(before, "bad input");
}

TEST_F(ForeignTest, FilesWithOurNamesAreNamedWhereTheFolderIs) {
  fill("r/", "e/");
  const Ended ended = run({"--results-dir", "r", "--exps-dir", "e", "space.json"});
  EXPECT_EQ(ended.exit_code, bad_input) << ended;
  EXPECT_GE(count_of(ended.err, "r/summary.txt: "), 1) << ended;
  EXPECT_EQ(count_of(ended.err, "e/" + name + ".json: "), 1) << ended;
  EXPECT_GE(count_of(ended.err, "name another --results-dir"), 1) << ended;
  expect_untouched({"--results-dir", "r", "--exps-dir", "e"}, bad_input);
}

TEST_F(ForeignTest, EachFileWithAnyOfOurNamesIsInTheWay) {
  fill("all/", "e/");
  for (const auto& [file, text] : job_.contents()) {
    if (!file.starts_with("all/") || !text.starts_with("theirs")) continue;
    SCOPED_TRACE(file);
    fs::remove_all(job_.folder() / "r");
    const std::string alone = "r/" + file.substr(4);
    job_.write_text(alone, text);
    const Ended ended = run({"--results-dir", "r", "--exps-dir", "x", "space.json"});
    EXPECT_EQ(ended.exit_code, bad_input) << ended;
    EXPECT_EQ(count_of(ended.err, alone + ": "), 1) << ended;
    EXPECT_EQ(job_.read(alone), text);
    EXPECT_FALSE(job_.exists("x")) << "nothing was made";
  }
}

TEST_F(ForeignTest, WhatIsInNobodysWayStays) {
  ASSERT_EQ(run({"space.json"}).exit_code, done);
  for (const std::string& file :
       {results + "notes.txt", results + name + "/profile.txt", results + "z9/metrics.json",
        results + ".dstune-mine.tmp", exps + "mine.json"})
    job_.write_text(file, "theirs\n");
  // Changed since: it is not ours any more.
  job_.write_text(results + "verify.pbs", "#!/bin/bash\n# mine\n");
  auto before = job_.contents();
  std::erase_if(before, [](const auto& entry) {
    return entry.second != "theirs\n" && !entry.first.ends_with("verify.pbs");
  });
  EXPECT_EQ(run({"space.json"}).exit_code, bad_input);
  EXPECT_EQ(exit_status_of(job_)["exit_code"], bad_input);
  EXPECT_EQ(run({"--overwrite", "space.json"}).exit_code, bad_input);
  expect_same(before, "runs that it is in the way of");
  fs::rename(job_.folder() / results / "verify.pbs", job_.folder() / "mine.pbs");
  before.erase(results + "verify.pbs");
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"space.json"}, {"--overwrite", "space.json"}}) {
    expect_exit(job_, run(args), done);
    expect_same(before, args.front());
  }
}

TEST_F(ForeignTest, DeepSpeedsResultsCalibrateAndStay) {
  Json space = transformer_space({1});
  space["zero_optimization"]["stage"] = 1;
  write_transformer(job_, space);
  const std::string folder = results + short_name(1, 1) + "/";
  job_.write(folder + "ds_config.json", [&] {
    Json config = space;
    config.erase("autotuning");
    config.erase("dstune");
    config["train_batch_size"] = 1;
    config["gradient_accumulation_steps"] = 1;
    config["train_micro_batch_size_per_gpu"] = 1;
    return config;
  }());
  job_.write(
      folder + "exp.json",
      {{"name", short_name(1, 1)}, {"num_gpus", 1}, {"num_nodes", 1}, {"hostfile", nullptr}});
  job_.write_text(folder + "metrics.json", deepspeed_metrics);
  job_.write_text(results + "summary.txt", "DeepSpeed's\n");
  auto before = job_.contents();
  for (int time = 0; time < 2; ++time) {
    const Ended ended = run({"--calibrate", folder + "metrics.json", "space.json"});
    EXPECT_EQ(ended.exit_code, done) << ended;
    expect_same(before, "--calibrate");
  }
  EXPECT_EQ(job_.read_json("dstune_results/optimal.json")["label"], "calibrated");
}

TEST_F(ForeignTest, AnInputIsNeverWrittenOrDeleted) {
  ASSERT_EQ(run({"space.json"}).exit_code, done);
  Json experiment = job_.read_json(exps + name + ".json");
  experiment["name"] = "mine";
  for (const char* place : {"autotuning_exps/mine.json", "x/mine.json"})
    job_.write_text(place, experiment.dump(3) + "\n");
  const std::string text = job_.read("x/mine.json");
  // The default gives way, a folder that is named does not.
  EXPECT_EQ(run({"--experiments", exps + "mine.json", "space.json"}).exit_code, done);
  EXPECT_EQ(job_.read(exps + "mine.json"), text);
  EXPECT_TRUE(job_.exists("dstune_exps/mine.json"));
  for (const char* overwrite : {"--full", "--overwrite"}) {
    const Ended ended =
        run({overwrite, "--experiments", "x/mine.json", "--exps-dir", "x", "space.json"});
    EXPECT_EQ(ended.exit_code, bad_input) << ended;
    EXPECT_EQ(count_of(ended.err, "x/mine.json: it is an input"), 1) << ended;
    EXPECT_EQ(job_.read("x/mine.json"), text);
  }
  // Our own answer as the next space.
  const std::string answer = job_.read(results + "ds_config_optimal.json");
  const Ended again = run({"--overwrite", "--model", "gpt2", "--num-trials", "1", "--results-dir",
                           "autotuning_results", results + "ds_config_optimal.json"});
  EXPECT_EQ(again.exit_code, bad_input) << again;
  EXPECT_EQ(job_.read(results + "ds_config_optimal.json"), answer);
}

TEST_F(ForeignTest, CopiesByHardLinksStay) {
  ASSERT_EQ(run({"space.json"}).exit_code, done);
  const auto copy = [&](const std::string& from, const std::string& to) {
    for (const auto& entry : fs::recursive_directory_iterator(job_.folder() / from)) {
      const fs::path place = job_.folder() / to / fs::relative(entry.path(), job_.folder() / from);
      if (entry.is_directory()) {
        fs::create_directories(place);
      } else {
        fs::create_directories(place.parent_path());
        fs::create_hard_link(entry.path(), place);
      }
    }
  };
  copy("autotuning_results", "copies/r");
  copy("autotuning_exps", "copies/e");
  auto before = job_.contents();
  std::erase_if(before, [](const auto& entry) { return !entry.first.starts_with("copies"); });
  job_.write("space.json", synthetic_space({1}, {1, 2, 3}));
  expect_exit(job_, run({"space.json"}), done);
  expect_same(before, "a resume");
  EXPECT_EQ(names_of(journal(job_), "finished").size(), 3U);
  expect_exit(job_, run({"--overwrite", "space.json"}), done);
  expect_same(before, "--overwrite");
  // The copy is a results folder, too.
  const Ended ended = run({"--results-dir", "copies/r", "--exps-dir", "copies/e", "space.json"});
  EXPECT_EQ(ended.exit_code, done) << ended;
}

TEST_F(ForeignTest, SymbolicLinksStay) {
  job_.write_text("elsewhere/summary.txt", "theirs\n");
  fs::create_directory(job_.folder() / "r");
  for (const std::string& link : {std::string("summary.txt"), std::string("journal.jsonl"), name}) {
    const fs::path place = job_.folder() / "r" / link;
    fs::create_symlink(job_.folder() / (link == name ? "elsewhere" : "elsewhere/summary.txt"),
                       place);
    const Ended ended = run({"--results-dir", "r", "space.json"});
    EXPECT_EQ(ended.exit_code, bad_input) << ended;
    EXPECT_EQ(count_of(ended.err, "r/" + link + ": "), 1) << ended;
    EXPECT_TRUE(fs::is_symlink(place));
    EXPECT_EQ(job_.read("elsewhere/summary.txt"), "theirs\n");
    fs::remove(place);
  }
}

TEST_F(ForeignTest, AFolderOfAnEarlierReleaseResumes) {
  ASSERT_EQ(run({"space.json"}).exit_code, done);
  fs::remove(job_.folder() / results / ".dstune-manifest.jsonl");
  fs::remove(job_.folder() / exps / ".dstune-manifest.jsonl");
  job_.write("space.json", synthetic_space({1}, {1, 2, 3}));
  const Ended ended = run({"space.json"});
  expect_exit(job_, ended, done);
  EXPECT_EQ(count_of(ended.err, "is taken instead"), 0) << ended;
  EXPECT_EQ(names_of(journal(job_), "finished").size(), 3U) << "nothing ran again";
  fs::remove(job_.folder() / results / ".dstune-manifest.jsonl");
  fs::remove(job_.folder() / exps / ".dstune-manifest.jsonl");
  job_.write("space.json", synthetic_space({1}, {4}));
  expect_exit(job_, run({"--overwrite", "space.json"}), done);
  EXPECT_FALSE(job_.exists(results + name)) << "all of it was ours";
  EXPECT_FALSE(job_.exists(exps + name + ".json"));
}

/// exit_status.json after each kind of ending.
class EndingTest : public ForeignTest {
 protected:
  void expect_written(const Ended& ended, int code, const std::string& reason,
                      const std::string& folder = results) {
    EXPECT_EQ(ended.exit_code, code) << ended;
    ASSERT_TRUE(job_.exists(folder + "exit_status.json")) << ended;
    const Json status = job_.read_json(folder + "exit_status.json");
    EXPECT_EQ(status["exit_code"], code);
    EXPECT_THAT(status["reason"].get<std::string>(), HasSubstr(reason)) << status;
    EXPECT_EQ(status.size(), 3U);
    EXPECT_FALSE(job_.exists(folder + "lock"));
  }
};

TEST_F(EndingTest, BadInputAndBadCommandLines) {
  expect_written(run({"bad.json"}), bad_input, "/zero_optimization/stage");
  EXPECT_EQ(std::distance(fs::directory_iterator(job_.folder() / results), {}), 1)
      << "nothing else was made";
  EXPECT_FALSE(job_.exists("autotuning_exps"));
  expect_written(run({"--tuner", "rice", "space.json"}), usage, "rice");
  expect_written(run({"--results-dir", "r", "--typo", "space.json"}), usage, "typo", "r/");
  expect_written(run({"--results-dir", "s", "missing.json"}), bad_input, "missing.json", "s/");
  expect_written(run({"--coordinator", "dedicated", "space.json"}), usage,
                 "no other rank to train");
  expect_written(run({"space.json"}), done, "");
  expect_written(run({"bad.json"}), bad_input, "/zero_optimization/stage");
  const auto before = job_.contents();
  EXPECT_EQ(run({"plan", "bad.json"}).exit_code, bad_input);
  EXPECT_EQ(run({"plan", "--typo", "space.json"}).exit_code, usage);
  EXPECT_EQ(job_.contents(), before) << "a plan writes nothing";
  expect_written(run({"space.json"}), done, "");
  // A damaged journal.
  job_.write_text(results + "journal.jsonl", job_.read(results + "journal.jsonl") + "damage\n");
  expect_written(run({"space.json"}), bad_input, "journal is damaged");
  expect_written(run({"--overwrite", "space.json"}), done, "");
}

TEST_F(EndingTest, BadInputBesideARunningJobLeavesItsFileAlone) {
  job_.write("slow.json", synthetic_space({1}, sizes_up_to(60), 0.1));
  Process first = job_.start({.ranks = 1, .args = {"slow.json"}});
  wait_for_finished(first, 1);
  EXPECT_EQ(run({"bad.json"}).exit_code, bad_input);
  EXPECT_FALSE(job_.exists(results + "exit_status.json"));
  first.signal(SIGUSR1);
  expect_written(first.wait(), stopped_early, "a signal to stop");
}

TEST_F(EndingTest, NoDeviceAndNothingFeasible) {
  const Ended ended = run({"--backend", "cuda", "space.json"});
  if (ended.exit_code != done) expect_written(ended, 6, "--backend cuda: ");
  Json space = transformer_space({1});
  space["dstune"]["device_memory"] = "64KiB";
  write_transformer(job_, space);
  expect_written(run({"--tuner", "gridsearch", "space.json"}), 4, "");
}

TEST_F(EndingTest, ASignalBeforeTheSearch) {
  // The input does not come before the signal does.
  job_.write("large.json", synthetic_space({1}, sizes_up_to(4000)));
  Process process = job_.start({.ranks = 0, .args = {"large.json"}});
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  for (int times = 0; times < 200 && process.is_running(); ++times) {
    process.signal(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (job_.exists(results + "exit_status.json")) break;
  }
  const Ended ended = process.wait();
  if (ended.exit_code == 128 + SIGTERM) GTEST_SKIP() << "before main()";
  expect_written(ended, stopped_early, "signal");
}

TEST_F(EndingTest, AReaderThatLeaves) {
  const Ended ended = job_.run({.ranks = 1,
                                .args = {"space.json"},
                                .launcher = {"sh", "-c", "\"$@\" 2>&1 | head -n 1", "sh"}});
  (void)ended;
  ASSERT_TRUE(job_.exists(results + "exit_status.json")) << ended;
  EXPECT_EQ(exit_status_of(job_)["exit_code"], done);
  EXPECT_FALSE(job_.exists(results + "lock"));
}

}  // namespace
}  // namespace dstune::e2e
