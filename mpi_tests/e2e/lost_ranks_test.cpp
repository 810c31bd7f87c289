// Ranks that die or are stopped, at any moment: the job ends in time, says how, and the same
// command goes on. Beside mpirun's own way, which ends the job with its first dead rank, with
// --enable-recovery, where the others live on.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "losses.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

/// When a rank is lost.
enum class When { starting, searching, ending };

struct Loss {
  When when = When::searching;
  int world_rank = 0;
  int signal = SIGKILL;
  bool recovers = !recovery_words().empty();
  int ranks = 5;  ///< two groups of two, and one that is idle
  std::chrono::milliseconds delay{0};
};

std::string text_of(const Loss& loss) {
  const char* const when[] = {"starting", "searching", "ending"};
  return std::string(when[static_cast<int>(loss.when)]) + " rank " +
         std::to_string(loss.world_rank) + " of " + std::to_string(loss.ranks) + " signal " +
         std::to_string(loss.signal) + (loss.recovers ? " with recovery" : "") + " after " +
         std::to_string(loss.delay.count()) + " ms";
}

/// The program's files in shared memory.
std::set<std::string> boards() {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator("/dev/shm", ignored)) {
    const std::string name = file.path().filename().string();
    if (name.starts_with("dstune-")) names.insert(name);
  }
  return names;
}

class LostRanksTest : public JobTest {
 protected:
  /// Runs the job with the loss, and then the same command without.
  void check(const Loss& loss) {
    SCOPED_TRACE(text_of(loss));
    Json space = synthetic_space({loss.ranks > 2 ? 2 : 1}, sizes_up_to(num_experiments), 0.02);
    space["dstune"]["trial_budget_s"] = 0.2;
    job_.write("space.json", space);
    const std::set<std::string> of_others = boards();
    run_with_loss(loss);
    expect_resumed(job_, {.ranks = loss.ranks, .args = {"space.json"}}, events_so_far(job_));
    for (const auto& [name, measured] : all_metrics(job_))
      EXPECT_EQ(measured["status"], "ok") << name << ": " << measured["reason"];
    EXPECT_EQ(optimal_of(job_)["name"], short_name(0, num_experiments));
    EXPECT_EQ(boards(), of_others);
  }

 private:
  void run_with_loss(const Loss& loss) {
    Command command{.ranks = loss.ranks, .args = {"space.json"}, .limit_s = 150};
    if (loss.recovers) command.launcher = recovery_words();
    Process process = job_.start(command);
    const std::map<int, pid_t> ranks = wait_for_ranks(process, loss.ranks);
    const int awaited = loss.when == When::starting    ? 0
                        : loss.when == When::searching ? 1
                                                       : num_experiments;
    wait_until(process, [&] { return awaited == 0 || num_finished_so_far(job_) >= awaited; });
    std::this_thread::sleep_for(loss.delay);
    const bool is_in_time = process.is_running();
    const auto lost_at = Clock::now();
    if (is_in_time) kill(ranks.at(loss.world_rank), loss.signal);
    const Ended ended = expect_end_in_time(process, ranks, lost_at);
    if (loss.recovers && is_in_time) expect_status(loss, ended);
  }

  /// mpirun with recovery says nothing of how the job ended, the file does.
  void expect_status(const Loss& loss, const Ended& ended) {
    if (loss.when == When::starting && !job_.exists(results + "exit_status.json")) {
      // It was lost before there was a place to say so.
      EXPECT_TRUE(names_of(events_so_far(job_), "started").empty()) << ended;
      return;
    }
    const int code = exit_status_of(job_).value("exit_code", -1);
    const std::size_t num_finished = names_of(events_so_far(job_), "finished").size();
    if (loss.world_rank == 0) {
      // It may have said how the job ended before it was lost.
      EXPECT_TRUE(code == stopped_early || (code == 0 && num_finished == num_experiments)) << ended;
    } else if (loss.when == When::starting) {
      EXPECT_TRUE(code == stopped_early || code == 0) << code << ended;
    } else {
      EXPECT_EQ(code, 0) << ended;
      EXPECT_EQ(num_finished, num_experiments) << ended;
    }
  }
};

class EachLossTest : public LostRanksTest, public testing::WithParamInterface<Loss> {};

TEST_P(EachLossTest, EndsTheJobInTimeAndIsResumed) {
  check(GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Losses, EachLossTest,
    testing::Values(Loss{.when = When::starting, .world_rank = 3, .delay = 150ms},
                    Loss{.when = When::starting, .world_rank = 0, .delay = 150ms},
                    Loss{.world_rank = 3, .delay = 100ms}, Loss{.world_rank = 2, .delay = 100ms},
                    // An idle one.
                    Loss{.world_rank = 4}, Loss{.world_rank = 0, .delay = 100ms},
                    Loss{.when = When::ending, .world_rank = 3, .delay = 5ms},
                    Loss{.when = When::ending, .world_rank = 0, .delay = 5ms},
                    Loss{.world_rank = 4, .recovers = false},
                    // The signals of a crash, sent by somebody, are no crash.
                    Loss{.world_rank = 0, .signal = SIGSEGV, .ranks = 2, .delay = 50ms}),
    [](const auto& loss) {
      std::string name = text_of(loss.param);
      std::ranges::replace(name, ' ', '_');
      return name;
    });

TEST_F(LostRanksTest, WithoutRecoveryTheLossIsTheReason) {
  job_.write("space.json", synthetic_space({1}, {1, 2}, 1));
  Process process = job_.start(command());
  wait_until(process, [&] { return names_of(events_so_far(job_), "started").size() == 2; });
  kill(process.ranks().at(1), SIGKILL);
  const Ended ended = process.wait();
  const Json status = exit_status_of(job_);
  EXPECT_EQ(status["exit_code"], stopped_early) << ended;
  EXPECT_EQ(count_of(status["reason"], "rank 1 died"), 1) << status;
}

TEST_F(LostRanksTest, ASignalToStopReachesARankOtherThanZeroAndEndsNothing) {
  job_.write("space.json", synthetic_space({2}, {1, 2, 3}, 0.05));
  Process process = start_and_wait(1);
  const auto ranks = process.ranks();
  for (const int number : {SIGTERM, SIGUSR1, SIGUSR2, SIGINT, SIGXCPU, SIGHUP})
    kill(ranks.at(1), number);
  expect_exit(job_, process.wait(), 0);
}

TEST_F(LostRanksTest, ASignalToStopBeforeTheSearchEndsWithSeventyFive) {
  job_.write("space.json", synthetic_space({2}, {1, 2, 3}, 1));
  Process process = job_.start(command());
  std::map<int, pid_t> ranks;
  wait_until(process, [&] {
    ranks = process.ranks();
    return ranks.size() == 2 && blocks_signal(ranks.at(0), SIGUSR1) &&
           blocks_signal(ranks.at(1), SIGUSR1);
  });
  process.signal(SIGUSR1);
  // mpirun 4.1 may wait for ever where a rank leaves while it connects to it; the ranks do not.
  const auto limit = Clock::now() + end_limit;
  const auto are_left = [&] {
    return std::ranges::any_of(ranks, [](const auto& rank) { return is_alive(rank.second); });
  };
  while (are_left() && Clock::now() < limit) std::this_thread::sleep_for(5ms);
  EXPECT_FALSE(are_left());
  for (int i = 0; process.is_running() && i < 1000; ++i) std::this_thread::sleep_for(5ms);
  process.kill_all();
  const Ended ended = process.wait();
  EXPECT_GE(count_of(ended.err, "dstune: error: stopped by a signal before the search began"), 1)
      << ended;
  constexpr int killed = 128 + SIGKILL;
  EXPECT_TRUE(ended.exit_code == stopped_early || ended.exit_code == killed) << ended;
}

// The crash would come again: no script may take the job for one that was interrupted.
TEST_F(LostRanksTest, ACrashOfRankZerosOwnCodeIsAnInternalError) {
  job_.write("space.json", synthetic_space({1}, {1, 2, 3}));
  struct Crash {
    std::string kind, signal;
    int ranks;
    bool recovers;
  };
  for (const Crash& crash :
       {Crash{"fault", "SIGSEGV", 1, false}, Crash{"abort", "SIGABRT", 2, false},
        Crash{"fault", "SIGSEGV", 2, true}}) {
    if (crash.recovers && recovery_words().empty()) continue;
    SCOPED_TRACE(crash.kind + " " + std::to_string(crash.ranks));
    Command command{.ranks = crash.ranks, .args = {"space.json", "--overwrite"}};
    if (crash.recovers) command.launcher = recovery_words();
    command.environment["DSTUNE_INJECT"] = crash.kind + "_in_controller@0:" + short_name(0, 2);
    const Ended ended = job_.run(command);
    if (!crash.recovers) {
      EXPECT_EQ(ended.exit_code, internal_error) << ended;
    }
    const Json status = exit_status_of(job_);
    EXPECT_EQ(status["exit_code"], internal_error) << status;
    const std::string reason = status["reason"];
    const std::string words = "internal error: " + crash.signal + " in the controller, ";
    EXPECT_THAT(reason, HasSubstr(words));
    EXPECT_THAT(reason, HasSubstr("+0x")) << "the place: " << reason;
    EXPECT_EQ(count_of(ended.err, reason), 1) << ended;
    const Ended resumed = job_.run({.ranks = crash.ranks, .args = {"space.json"}});
    expect_exit(job_, resumed, 0);
  }
}

TEST_F(LostRanksTest, AnExperimentThatCrashesRankZeroIsResumable) {
  if (recovery_words().empty()) GTEST_SKIP() << "a rank that is lost ends the job";
  job_.write("space.json", synthetic_space({1}, {1, 2, 3}));
  const Ended ended = job_.run({.ranks = 2,
                                .args = {"space.json"},
                                .environment = {{"DSTUNE_INJECT", "segfault@0:*"}},
                                .launcher = recovery_words()});
  const Json status = exit_status_of(job_);
  EXPECT_EQ(status["exit_code"], stopped_early) << status << ended;
}

}  // namespace
}  // namespace dstune::e2e
