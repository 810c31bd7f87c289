// The results folder: one job at a time writes there, and nobody changes the journal under it.
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

namespace fs = std::filesystem;

const std::string journal_name = results + "journal.jsonl";
const std::string lock_name = results + "lock";

class FolderTest : public JobTest {
 protected:
  /// Six experiments of about half a second, one after the other.
  FolderTest() {
    ranks_ = 1;
    job_.write("space.json", synthetic_space({1}, sizes_up_to(6), 0.05));
  }
  void expect_complete(const Ended& ended) {
    expect_exit(job_, ended, 0);
    EXPECT_EQ(names_of(journal(job_), "finished").size(), 6U) << "every experiment once";
    EXPECT_FALSE(job_.exists(lock_name));
  }
  /// A running job whose journal is changed ends, and leaves it as it is.
  void expect_noticed(const std::function<void()>& meddle, const std::string& part) {
    Process process = start_and_wait(1);
    meddle();
    const std::string left = job_.exists(journal_name) ? job_.read(journal_name) : "";
    const Ended ended = process.wait();
    EXPECT_FALSE(ended.is_late) << ended;
    expect_exit(job_, ended, not_writable);
    EXPECT_EQ(count_of(ended.err, part), 1) << ended;
    EXPECT_EQ(job_.exists(journal_name) ? job_.read(journal_name) : "", left);
    EXPECT_FALSE(job_.exists(lock_name));
  }
};

TEST_F(FolderTest, ASecondJobEndsWith7AndTouchesNothing) {
  // Its last experiment hangs, so that the job outlives the others.
  Process first = job_.start({.ranks = ranks_,
                              .args = {"space.json"},
                              .environment = {{"DSTUNE_INJECT", "hang@0:" + short_name(0, 6)}}});
  wait_until(first, [&] { return num_finished_so_far(job_) >= 1; });
  for (const char* option : {"--quiet", "--overwrite"}) {
    const Ended second = run({option});
    ASSERT_TRUE(first.is_running());
    EXPECT_EQ(second.exit_code, not_writable) << second;
    EXPECT_EQ(count_of(second.err, "another job holds autotuning_results"), 1) << second;
    EXPECT_EQ(count_of(second.err, ", process "), 1) << second;
    EXPECT_FALSE(job_.exists(results + "exit_status.json")) << "it is the first one's";
  }
  wait_until(first, [&] { return num_finished_so_far(job_) >= 5; });
  first.kill_all();
  expect_complete(run());
}

TEST_F(FolderTest, OneFolderMayHaveResultsAndExperiments) {
  job_.write("small.json", synthetic_space({1}, {1, 2}, 0.001));
  for (const char* const option : {"--quiet", "--quiet", "--overwrite", "--overwrite"}) {
    const Ended ended =
        job_.run({.args = {option, "--results-dir", "both", "--exps-dir", "both", "small.json"}});
    ASSERT_EQ(ended.exit_code, 0) << ended;
    EXPECT_TRUE(job_.exists("both/" + short_name(0, 1) + ".json"));
    EXPECT_TRUE(job_.exists("both/optimal.json"));
  }
}

TEST_F(FolderTest, APlanNeedsNoLock) {
  Process first = start_and_wait(1);
  const Ended plan = job_.run({.ranks = 0, .args = {"plan", "space.json"}});
  EXPECT_EQ(plan.exit_code, done) << plan;
  first.kill_all();
}

TEST_F(FolderTest, WhatAKilledJobHeldIsFreeAtOnce) {
  start_and_wait(1).kill_all();
  EXPECT_TRUE(job_.exists(lock_name));
  expect_complete(run());
}

TEST_F(FolderTest, AJournalThatIsRemovedIsNoticed) {
  expect_noticed([&] { fs::remove(job_.folder() / journal_name); }, "was removed");
}

TEST_F(FolderTest, AJournalThatIsReplacedIsNoticed) {
  expect_noticed(
      [&] {
        job_.write_text("other", "another job's\n");
        fs::rename(job_.folder() / "other", job_.folder() / journal_name);
      },
      "was replaced");
}

TEST_F(FolderTest, AJournalThatIsShortenedIsNoticed) {
  expect_noticed([&] { fs::resize_file(job_.folder() / journal_name, 10); }, "has 10 bytes");
}

TEST_F(FolderTest, AJobWhoseLockIsTakenEndsAndLeavesItAlone) {
  Process process = start_and_wait(1);
  job_.write_text("other", R"({"host": "far", "process": 7, "since": "today"})");
  fs::rename(job_.folder() / "other", job_.folder() / lock_name);
  const Ended ended = process.wait();
  EXPECT_EQ(ended.exit_code, not_writable) << ended;
  EXPECT_GE(count_of(ended.err, "host far, process 7"), 1) << ended;
  EXPECT_TRUE(job_.exists(lock_name));
  EXPECT_FALSE(job_.exists(results + "exit_status.json")) << "it is the other one's";
}

TEST_F(FolderTest, NothingIsWrittenThroughALink) {
  job_.write_text("elsewhere/own", "mine");
  fs::create_directory(job_.folder() / results);
  fs::create_directory_symlink(job_.folder() / "elsewhere",
                               job_.folder() / results / short_name(0, 2));
  const auto expect_link_refused = [&] {
    const Ended ended = run({"--results-dir", "autotuning_results"});
    EXPECT_EQ(ended.exit_code, bad_input) << ended;
    EXPECT_EQ(count_of(ended.err, "it is a symbolic link"), 1) << ended;
  };
  expect_link_refused();
  EXPECT_EQ(std::distance(fs::directory_iterator(job_.folder() / "elsewhere"), {}), 1);

  fs::remove_all(job_.folder() / results);
  fs::create_directory(job_.folder() / results);
  fs::create_symlink(job_.folder() / "elsewhere" / "own", job_.folder() / journal_name);
  job_.write_text("elsewhere/own", "");
  expect_link_refused();
  EXPECT_EQ(job_.read("elsewhere/own"), "");
}

TEST_F(FolderTest, ALimitOnFilesIsADiskThatIsFull) {
  job_.write("space.json", synthetic_space({1}, sizes_up_to(60)));
  // In blocks of 512 or 1024 bytes. Open MPI's own files, and those of UCX, stay below.
  const Ended ended = job_.run({.ranks = 1,
                                .args = {"space.json"},
                                .environment = {{"OMPI_MCA_btl", "self"}, {"UCX_TLS", "self"}},
                                .launcher = {"sh", "-c", "ulimit -f 64; exec \"$@\"", "sh"}});
  EXPECT_EQ(ended.exit_code, not_writable) << ended;
  EXPECT_GE(count_of(ended.err, "File too large"), 1) << ended;
}

TEST_F(FolderTest, SecretsAreInNoFile) {
  job_.write("space.json", synthetic_space({1}, {1}));
  const Ended ended = run_with(
      {{"DSTUNE_ACCESS_TOKEN", "hunter2"}, {"OMP_NUM_THREADS", "1"}, {"NCCL_API_KEY", "hunter2"}});
  expect_exit(job_, ended, 0);
  const Json shown = job_.read_json(results + "environment.json")["variables"];
  EXPECT_EQ(shown["OMP_NUM_THREADS"], "1");
  for (const auto& [name, text] : job_.contents())
    EXPECT_THAT(text, Not(HasSubstr("hunter2"))) << name;
}

}  // namespace
}  // namespace dstune::e2e
