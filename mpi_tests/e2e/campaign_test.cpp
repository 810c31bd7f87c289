// Faults by the hundred, drawn from seeds 1, 2, …: ranks that are lost in any state, whole jobs
// that are killed, stops by signals, two jobs in one folder. docs/reliability.md has the promises.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <set>
#include <sstream>
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

const std::string journal_name = results + "journal.jsonl";

/// Seeds of a suite: DSTUNE_CAMPAIGN=long in the environment asks for all.
std::vector<int> seeds(int few, int all) {
  const char* const wanted = std::getenv("DSTUNE_CAMPAIGN");
  std::vector<int> numbers;
  for (int seed = 1; seed <= (wanted == nullptr ? few : all); ++seed) numbers.push_back(seed);
  return numbers;
}

/// Not std's distributions, which differ between libraries.
class Dice {
 public:
  explicit Dice(int seed) : random_(static_cast<std::uint32_t>(seed)) {}
  int below(int limit) { return static_cast<int>(random_() % static_cast<std::uint32_t>(limit)); }
  std::chrono::milliseconds up_to(std::chrono::milliseconds limit) {
    return std::chrono::milliseconds(below(static_cast<int>(limit.count())));
  }
  template <class Value>
  Value one_of(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(below(static_cast<int>(values.size())))];
  }

 private:
  std::mt19937 random_;
};

/// A job of six recorded experiments on groups of two, whose times are waited for. The best one is
/// more than 5 % faster than the next.
class CampaignTest : public testing::TestWithParam<int> {
 protected:
  void write_space() {
    Json table;
    for (int size = 1; size <= num_experiments; ++size) {
      const double samples_per_s = size == best_ ? 200 : 190 - size;
      table[short_name(0, size)] = {{"step_time_s", 2 * size / samples_per_s}};
    }
    Json space = replay_space({2}, sizes_up_to(num_experiments));
    space["dstune"]["workload"]["time_scale"] = 1;
    space["dstune"]["trial_budget_s"] = 0.2;
    job_.write("table.json", table);
    job_.write("space.json", space);
  }
  /// The first event of this kind, or nothing where the job ends before.
  std::optional<Json> wait_for(Process& process, const std::string& kind) {
    std::optional<Json> found;
    wait_until(process, [&] {
      for (const Json& event : events_so_far(job_))
        if (event["kind"] == kind) found = event;
      return found.has_value();
    });
    return found;
  }
  void expect_best_found() { EXPECT_EQ(optimal_of(job_)["name"], short_name(0, best_)); }

  const int seed_ = GetParam();
  Dice dice_{seed_};
  const int best_ = 1 + seed_ % num_experiments;
  Job job_;
};

// ---- Ranks that are lost, in every state and role -----------------------------------------------

enum class State {
  starting,
  assigned,
  building,
  warm_up,
  timing,
  reporting,
  idle,
  final_rounds,
  ending
};
constexpr int num_states = 9;
enum class Role { rank_0, leader, member };
constexpr int num_roles = 3;

struct Loss {
  State state{};
  Role role{};
  std::string kind;  ///< as DSTUNE_INJECT has it
  int ranks = 2;
  int world_rank = 0;
  bool recovers = true;  ///< with recovery_words()

  [[nodiscard]] bool is_inside() const {
    return state >= State::assigned && state <= State::reporting;
  }
  [[nodiscard]] bool ends_rank() const { return kind != "throw" && kind != "hang"; }
  [[nodiscard]] int signal() const {
    return kind == "stop"       ? SIGSTOP
           : kind == "segfault" ? SIGSEGV
           : kind == "abort"    ? SIGABRT
                                : SIGKILL;
  }
};

std::ostream& operator<<(std::ostream& out, const Loss& loss) {
  const char* const states[] = {"starting",  "assigned", "building",     "warm_up", "timing",
                                "reporting", "idle",     "final_rounds", "ending"};
  return out << loss.kind << " in " << states[static_cast<int>(loss.state)] << " of rank "
             << loss.world_rank << " of " << loss.ranks << (loss.recovers ? ", recovery" : "");
}

class RandomFaultTest : public CampaignTest {
 protected:
  /// States and roles in turns, so that each comes up often enough; the rest by chance.
  Loss draw() {
    Loss loss;
    loss.state = static_cast<State>(seed_ % num_states);
    loss.role = static_cast<Role>(seed_ / num_states % num_roles);
    std::vector<std::string> kinds = {"die", "die", "stop", "segfault", "abort"};
    // An exception where an experiment is taken would be the program's own.
    if (loss.is_inside() && loss.state != State::assigned) {
      kinds.emplace_back("throw");
      kinds.emplace_back("hang");
    }
    loss.kind = dice_.one_of(kinds);
    // A pair has to be left.
    loss.ranks = loss.role == Role::rank_0 ? 2 + dice_.below(7) : 4 + dice_.below(5);
    const int pair = dice_.below(loss.ranks / 2);
    if (loss.role == Role::leader) loss.world_rank = 2 * std::max(1, pair);
    if (loss.role == Role::member) loss.world_rank = 2 * pair + 1;
    loss.recovers = dice_.below(10) != 0 && !recovery_words().empty();
    return loss;
  }

  Command command(const Loss& loss) const {
    Command command{.ranks = loss.ranks, .args = {"--trial-timeout", "4s", "space.json"}};
    command.limit_s = 150;
    if (loss.recovers) command.launcher = recovery_words();
    // Rank 0 is idle where it only coordinates.
    if (loss.state == State::idle && loss.role == Role::rank_0 && loss.ranks > 2)
      command.args.insert(command.args.begin(), {"--coordinator", "dedicated"});
    return command;
  }

  /// The experiment that a fault other than a rank's end is in, on whichever pair.
  [[nodiscard]] std::string unlucky() const { return short_name(0, best_ % num_experiments + 1); }
  [[nodiscard]] std::string injection(const Loss& loss) const {
    const char* const moments[] = {"", "assigned", "building", "warm_up", "timing", "reporting"};
    const std::string fault = loss.kind + "." + moments[static_cast<int>(loss.state)];
    if (loss.ends_rank()) return fault + "@" + std::to_string(loss.world_rank) + ":*";
    std::string all;
    for (int rank = loss.role == Role::member ? 1 : 0; rank < loss.ranks; rank += 2)
      all += (all.empty() ? "" : ",") + fault + "@" + std::to_string(rank) + ":" + unlucky();
    return all;
  }

  /// Loses the rank where the fault is not inside an experiment. The instant, or nothing where the
  /// job had ended before.
  std::optional<Clock::time_point> lose(const Loss& loss, Process& process,
                                        const std::map<int, pid_t>& ranks) {
    int world_rank = loss.world_rank;
    if (loss.state == State::starting) {
      std::this_thread::sleep_for(dice_.up_to(300ms));
    } else if (loss.state == State::ending) {
      if (!wait_for(process, "job_finished")) return std::nullopt;
      std::this_thread::sleep_for(dice_.up_to(20ms));
    } else if (loss.state == State::idle && loss.role == Role::rank_0) {
      if (!wait_for(process, "finished")) return std::nullopt;
      std::this_thread::sleep_for(dice_.up_to(300ms));
    } else {
      // While the finalists run all others are idle.
      const auto repeat = wait_for(process, "repeat_started");
      if (!repeat) return std::nullopt;
      const auto group = (*repeat)["world_ranks"].get<std::vector<int>>();
      if (loss.state == State::final_rounds && loss.role == Role::leader) world_rank = group[0];
      if (loss.state == State::final_rounds && loss.role == Role::member) world_rank = group[1];
      if (loss.state == State::idle && std::ranges::count(group, world_rank) > 0)
        world_rank = (world_rank + 2) % (loss.ranks / 2 * 2);
      lost_rank_ = world_rank;
    }
    if (!process.is_running()) return std::nullopt;
    const auto lost_at = Clock::now();
    kill(ranks.at(world_rank), loss.signal());
    return lost_at;
  }

  void check(const Loss& loss) {
    write_space();
    lost_rank_ = loss.world_rank;
    Command disturbed = command(loss);
    if (loss.is_inside()) disturbed.environment = {{"DSTUNE_INJECT", injection(loss)}};
    Process process = job_.start(disturbed);
    const std::map<int, pid_t> ranks = wait_for_ranks(process, loss.ranks);
    std::optional<Clock::time_point> lost_at;
    if (loss.is_inside())
      lost_at = Clock::now();  // some seconds later, in truth
    else
      lost_at = lose(loss, process, ranks);
    const Ended ended = expect_end_in_time(process, ranks, lost_at.value_or(Clock::now()));
    if (lost_at && (loss.recovers || !loss.ends_rank())) expect_end(loss, ended);
    expect_resumed(job_, command(loss), events_so_far(job_));
    expect_statuses(loss);
    expect_best_found();
    for (const auto& file : fs::directory_iterator("/dev/shm"))
      EXPECT_FALSE(file.path().filename().string().starts_with("dstune-")) << file;
  }

  /// mpirun with recovery says nothing of how the job ended, the file does.
  void expect_end(const Loss& loss, const Ended& ended) {
    if (loss.state == State::starting && !job_.exists(results + "exit_status.json")) {
      // It was lost before there was a place to say so.
      EXPECT_TRUE(names_of(events_so_far(job_), "started").empty()) << ended;
      return;
    }
    const int code = exit_status_of(job_).value("exit_code", -1);
    const std::size_t num_finished = names_of(events_so_far(job_), "finished").size();
    if (loss.state == State::starting || loss.state == State::ending) {
      // It may have been lost after the search had begun, or before it was over.
      EXPECT_TRUE(code == 0 || code == stopped_early) << code << ended;
    } else {
      const bool is_stopped = loss.ends_rank() && lost_rank_ == 0;
      EXPECT_EQ(code, is_stopped ? stopped_early : 0) << ended;
    }
    if (code != 0) return;
    EXPECT_EQ(num_finished, num_experiments) << ended;
    expect_best_found();
  }

  void expect_statuses(const Loss& loss) {
    for (const auto& [name, measured] : all_metrics(job_)) {
      const bool is_hit = !loss.ends_rank() && name == unlucky();
      const std::string status = !is_hit ? "ok" : loss.kind == "hang" ? "timed_out" : "failed";
      EXPECT_EQ(measured["status"], status) << name << ": " << measured["reason"];
    }
  }

  int lost_rank_ = 0;
};

TEST_P(RandomFaultTest, EndsInTimeAndResumes) {
  const Loss loss = draw();
  std::ostringstream text;
  text << "seed " << seed_ << ": " << loss;
  SCOPED_TRACE(text.str());
  check(loss);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomFaultTest, testing::ValuesIn(seeds(4, 200)));

// ---- Whole jobs that are killed -----------------------------------------------------------------

class RandomKillTest : public CampaignTest {};

TEST_P(RandomKillTest, NothingIsLostAndNobodyIsBlamed) {
  write_space();
  const Command command{.ranks = 2 + dice_.below(4), .args = {"space.json"}};
  const auto delay = dice_.up_to(3000ms);
  SCOPED_TRACE("seed " + std::to_string(seed_) + ": after " + std::to_string(delay.count()) +
               " ms");
  Process process = job_.start(command);
  const auto kill_at = Clock::now() + delay;
  wait_until(process, [&] { return Clock::now() >= kill_at; });
  process.kill_all();
  const Ended killed = process.wait();
  ASSERT_FALSE(killed.is_late) << killed;
  expect_resumed(job_, command, events_so_far(job_));
  for (const auto& [name, measured] : all_metrics(job_))
    EXPECT_EQ(measured["status"], "ok") << name << ": " << measured["reason"];
  expect_best_found();
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomKillTest, testing::ValuesIn(seeds(2, 300)));

// ---- Stops by signals, in real training ---------------------------------------------------------

class RandomStopTest : public CampaignTest {
 protected:
  void write_training() {
    Json config = tiny_gpt2_config();
    config["n_embd"] = 128;
    Json space = transformer_space({2});
    space["zero_optimization"]["stage"] = seed_ % 4;
    space["train_micro_batch_size_per_gpu"] = {1, 2, 3, 4, 5, 6};
    space["dstune"]["trial_budget_s"] = 0.3;
    job_.write("config.json", config);
    job_.write("space.json", space);
  }
};

TEST_P(RandomStopTest, EndsInOrderAndResumes) {
  write_training();
  const int signal = dice_.one_of<int>({SIGUSR1, SIGTERM});
  const auto delay = dice_.up_to(1500ms);
  SCOPED_TRACE("seed " + std::to_string(seed_) + ": signal " + std::to_string(signal) + " after " +
               std::to_string(delay.count()) + " ms");
  const Command command{.ranks = 2 + 2 * dice_.below(2), .args = {"space.json"}};
  Process process = job_.start(command);
  ASSERT_TRUE(wait_for(process, "started"));
  std::this_thread::sleep_for(delay);
  const bool is_in_time = process.is_running();
  process.signal(signal);
  const Ended ended = process.wait();
  EXPECT_FALSE(ended.is_late) << ended;
  const int code = exit_status_of(job_).value("exit_code", -1);
  EXPECT_TRUE(code == stopped_early || (!is_in_time && code == 0) ||
              (code == 0 && names_of(journal(job_), "finished").size() == num_experiments))
      << code << ended;
  // mpirun has a code of its own after SIGTERM, and says so where a rank has crashed.
  for (const char* const crash : {"egmentation", "corrupted", "SIGABRT", "Aborted", "signal 11"})
    EXPECT_EQ(count_of(ended.err + ended.out, crash), 0) << ended;
  if (signal == SIGUSR1) {
    EXPECT_EQ(ended.exit_code, code) << ended;
  }
  expect_resumed(job_, command, events_so_far(job_));
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomStopTest, testing::ValuesIn(seeds(2, 300)));

// ---- Two jobs in one folder ---------------------------------------------------------------------

class SecondJobTest : public CampaignTest {};

TEST_P(SecondJobTest, EndsWithSevenAndTakesNothing) {
  write_space();
  // One at a time, so that the first one outlasts the second one's start.
  const Command command{.ranks = 2, .args = {"space.json"}};
  Command second_command = command;
  if (dice_.below(2) == 0) second_command.args.insert(second_command.args.begin(), "--overwrite");
  const auto offset = dice_.up_to(1200ms);
  SCOPED_TRACE("seed " + std::to_string(seed_) + ": after " + std::to_string(offset.count()) +
               " ms");
  Process first = job_.start(command);
  std::this_thread::sleep_for(offset);
  ASSERT_TRUE(first.is_running());
  Process second = job_.start(second_command);
  const Ended first_ended = first.wait();
  const Ended second_ended = second.wait();
  // Whichever took the folder first has it.
  std::multiset<int> codes{first_ended.exit_code, second_ended.exit_code};
  EXPECT_EQ(codes, (std::multiset<int>{0, not_writable})) << first_ended << second_ended;
  const Ended& refused = first_ended.exit_code == not_writable ? first_ended : second_ended;
  EXPECT_EQ(count_of(refused.err, "another job holds autotuning_results"), 1) << refused;
  EXPECT_EQ(names_of(journal(job_), "finished").size(), num_experiments);
  expect_best_found();
  EXPECT_FALSE(job_.exists(results + "lock"));
}

INSTANTIATE_TEST_SUITE_P(Seeds, SecondJobTest, testing::ValuesIn(seeds(1, 50)));

// ---- A disk that is full, at every write --------------------------------------------------------

class FullDiskTest : public testing::Test {
 protected:
  Job job_;
};

// In the long form at each write of rank 0, else at some; the job that sees no full disk is the
// last.
TEST_F(FullDiskTest, EndsTheJobAndLosesNothing) {
  const bool is_long = std::getenv("DSTUNE_CAMPAIGN") != nullptr;
  bool is_full = true;
  for (int from = 1; is_full; from = is_long ? from + 1 : 2 * from + 1) {
    SCOPED_TRACE("from write " + std::to_string(from));
    fs::remove_all(job_.folder());
    fs::create_directories(job_.folder());
    Json space = synthetic_space({1}, {1, 2, 3, 4, 5, 6});
    job_.write("space.json", space);
    const Command command{.ranks = 1, .args = {"space.json"}};
    Command disturbed = command;
    disturbed.launcher = {"env", std::string("LD_PRELOAD=") + DSTUNE_E2E_FULL_DISK};
    disturbed.environment = {{"DSTUNE_FULL_DISK_FROM", std::to_string(from)},
                             {"DSTUNE_FULL_DISK_IN", fs::canonical(job_.folder()).string()}};
    const Ended ended = job_.run(disturbed);
    is_full = count_of(ended.err, "the disk is full now") > 0;
    EXPECT_FALSE(ended.is_late) << ended;
    if (is_full) {
      EXPECT_TRUE(ended.exit_code == not_writable || ended.exit_code == 0) << ended;
      EXPECT_GE(count_of(ended.err, "No space left on device"), 1) << ended;
    } else {
      expect_exit(job_, ended, 0);
    }
    expect_resumed(job_, command, events_so_far(job_));
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace dstune::e2e
