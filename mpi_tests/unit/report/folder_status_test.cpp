#include "dstune/report/folder_status.hpp"

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"
#include "dstune/report/folder_lock.hpp"
#include "dstune/report/results.hpp"
#include "folder_test.hpp"
#include "lock_holder.hpp"

namespace dstune {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

JobState a_search() {
  JobState state;
  state.is_running = true;
  state.phase = TuningPhase::search;
  state.as_of = *parse_time("2026-01-02T03:04:05.000000Z");
  state.began_at = *parse_time("2026-01-02T03:01:05.000000Z");
  state.elapsed_s = 180;
  state.phase_elapsed_s = 170;
  state.planned = 40;
  state.done = 12;
  state.known = 3;
  state.running = 2;
  state.left = TimeLeft{150, 60, 400, "25 more experiments of 12 s, 2 at once"};
  state.time_limit_s = 3600;
  return state;
}

class FolderStatusTest : public testing::Test {
 protected:
  FolderStatusTest() : results_(folder_.path() + "/results", folder_.path() + "/exps") {
    ::unsetenv("SLURM_JOB_ID");
    results_.begin();
  }
  ~FolderStatusTest() override { ::unsetenv("SLURM_JOB_ID"); }

  [[nodiscard]] FolderStatus status() const { return folder_status(results_.path()); }
  [[nodiscard]] std::string text() const { return status_text(status()); }
  void write(const std::string& name, const std::string& content) const {
    write_file_atomically(results_.path() + "/" + name, content);
  }
  void write_lock(const LockHolder& holder, int age_s) const {
    write("lock", holder.text());
    const std::string path = results_.path() + "/lock";
    fs::last_write_time(path, fs::last_write_time(path) - std::chrono::seconds(age_s));
  }
  [[nodiscard]] static LockHolder elsewhere() {
    return {.host = "far",
            .process_id = 7,
            .boot = "b",
            .pid_namespace = "n",
            .started = "1",
            .batch_job = "",
            .since = "2026-01-02T03:01:05.000000Z"};
  }

  test::TemporaryFolder folder_;
  ResultsFolder results_;
};

TEST_F(FolderStatusTest, AStateIsReadBackAsItWasWritten) {
  const JobState state = a_search();
  const auto again = state_of(state_json(state));
  ASSERT_TRUE(again);
  EXPECT_EQ(state_json(*again), state_json(state));
  EXPECT_EQ(again->phase, TuningPhase::search);
  EXPECT_EQ(again->left->assumes, state.left->assumes);
  EXPECT_FALSE(state_of({{"phase", "tea"}}));
  EXPECT_FALSE(state_of(json::Value()));
}

TEST_F(FolderStatusTest, ARunningJobSaysWhereItIs) {
  const FolderLock lock(results_.path());
  results_.write_state(a_search());
  write("optimal.json",
        R"({"name": "z1", "metric": "throughput", "value": 52.5, "baseline": {"gain": 0.8}})");
  EXPECT_EQ(status().life, FolderStatus::Life::running);
  const std::string said = text();
  EXPECT_THAT(said, HasSubstr(": a job is running.\n"));
  EXPECT_THAT(said, HasSubstr("search, for 0:02:50; 0:03:00 since the start of at most 1:00:00\n"));
  EXPECT_THAT(said, HasSubstr("12 of 40 ended, 3 of them in earlier jobs; 2 running\n"));
  EXPECT_THAT(said, HasSubstr("about 0:02:30 (25 more experiments of 12 s, 2 at once)\n"));
  EXPECT_THAT(said, HasSubstr("z1: 52.5 samples/s, 1.8 times as fast as your configuration\n"));
  EXPECT_THAT(said, HasSubstr(std::string("kill -TERM ") + std::to_string(::getpid()) + "; the"));
  const json::Value value = status_json(status());
  EXPECT_EQ(value["life"], "running");
  EXPECT_EQ(value["state"]["done"], 12);
  EXPECT_EQ(value["best"]["name"], "z1");
}

TEST_F(FolderStatusTest, ABatchSystemIsAskedToStopItsJob) {
  LockHolder holder = elsewhere();
  holder.batch_job = "SLURM_JOB_ID=41";
  write_lock(holder, 5);
  EXPECT_THAT(text(), HasSubstr("scancel 41; the same command resumes\n"));
  holder.batch_job = "SLURM_JOB_ID=41; ls";
  write_lock(holder, 5);
  EXPECT_THAT(text(), Not(HasSubstr("to stop it"))) << "it is to be pasted into a shell";
  holder.batch_job = "";
  write_lock(holder, 5);
  EXPECT_THAT(text(), HasSubstr("kill -TERM 7 on host far; the"));
}

TEST_F(FolderStatusTest, AJobThatShowsNoSignOfLifeIsGone) {
  results_.write_state(a_search());
  write_lock(elsewhere(), 59);
  EXPECT_EQ(status().life, FolderStatus::Life::running);
  write_lock(elsewhere(), 75);
  EXPECT_EQ(status().life, FolderStatus::Life::gone);
  EXPECT_THAT(text(), HasSubstr("the job is gone without a word; the same command resumes it"));
  EXPECT_THAT(text(), Not(HasSubstr("to stop it")));
  // A process of this system that has ended needs no waiting.
  LockHolder dead = this_process();
  dead.started = "1";
  write_lock(dead, 0);
  EXPECT_EQ(status().life, FolderStatus::Life::gone);
  EXPECT_THAT(text(), HasSubstr("  last seen    "));
  EXPECT_THAT(text(), Not(HasSubstr("sign of life")));
  EXPECT_EQ(status_json(status())["lock"]["how_to_stop"], "") << "another process may have its id";
  // It was killed behind its last word.
  results_.write_exit_status(ExitCode::stopped_early, "a signal to stop");
  EXPECT_EQ(status().life, FolderStatus::Life::ended);
  for (const char* no : {"sign of life", "last seen", "to stop it"})
    EXPECT_THAT(text(), Not(HasSubstr(no)));
}

TEST_F(FolderStatusTest, AJobThatHasEndedSaysHow) {
  results_.forget_exit_status();
  results_.write_state(a_search());
  EXPECT_EQ(status().life, FolderStatus::Life::unknown);
  EXPECT_THAT(text(), HasSubstr("no job is running"));
  results_.write_exit_status(ExitCode::stopped_early, "the time limit; the same command resumes");
  EXPECT_EQ(status().life, FolderStatus::Life::ended);
  EXPECT_THAT(text(), HasSubstr("has ended with exit code 75 (the time limit; the same command"));
  EXPECT_THAT(text(), Not(HasSubstr("left"))) << "the state is an older one";
}

TEST_F(FolderStatusTest, DamagedFilesAreAsGoodAsNone) {
  write("optimal.json", "[1");
  write("status.json", R"({"phase": 7, "planned": "many"})");
  write("exit_status.json", "{}");
  write("lock", "who?");
  EXPECT_EQ(status().life, FolderStatus::Life::unknown);
  EXPECT_TRUE(status().best.is_null());
  EXPECT_FALSE(status().state);
}

TEST_F(FolderStatusTest, AFolderOfOthersIsRefused) {
  const std::string other = folder_.path() + "/other";
  EXPECT_THROW((void)folder_status(other), InputError);
  fs::create_directory(other);
  EXPECT_THROW((void)folder_status(other), InputError);
  write_file_atomically(other + "/.dstune-manifest.jsonl", "{}");
  EXPECT_THROW((void)folder_status(other), InputError);
}

TEST_F(FolderStatusTest, TheFolderBesideForeignResultsIsNamed) {
  const std::string foreign = folder_.path() + "/autotuning_results";
  fs::create_directory(foreign);
  const auto refusal = [&]() -> std::string {
    try {
      return status_text(folder_status(foreign));
    } catch (const InputError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal(), Not(HasSubstr("dstune_results")));
  fs::create_directory(folder_.path() + "/dstune_results");
  EXPECT_THAT(refusal(), HasSubstr("dstune_results is there"));
}

TEST_F(FolderStatusTest, TheStateIsOursWithoutALineOfTheManifest) {
  const std::string manifest = results_.path() + "/.dstune-manifest.jsonl";
  const std::string before = read_file(manifest);
  JobState state = a_search();
  for (int written = 0; written < 3; ++written) {
    ++state.done;
    results_.write_state(state);
  }
  EXPECT_EQ(read_file(manifest), before);
  results_.delete_previous();
  EXPECT_FALSE(fs::exists(results_.path() + "/status.json"));
}

}  // namespace
}  // namespace dstune
