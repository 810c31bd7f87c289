#include "dstune/tune/controller.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <queue>
#include <set>

#include <gtest/gtest.h>

#include "dstune/base/file.hpp"
#include "dstune/search/tuner.hpp"

namespace dstune {
namespace {

enum class Behaviour {
  ok,
  slow,
  raced_out,  ///< in its first run, once it hears of a better one
  fails_again,
  out_of_memory,
  throws,
  member_throws,
  silent_member,
  loses_device  ///< that of its highest rank, each time
};

/// Workers in memory: they answer as real ones would, at once.
class FakeWorkers : public Mailbox {
 public:
  explicit FakeWorkers(std::map<std::string, Behaviour> behaviours)
      : behaviours_(std::move(behaviours)) {}

  void send(int world_rank, Bytes data) override {
    const dstune::Message message = decode(data);
    if (dead_.contains(world_rank)) return;
    if (const auto* assign = std::get_if<message::Assign>(&message)) {
      assigned(world_rank, *assign);
    } else if (const auto* bar = std::get_if<message::Bar>(&message)) {
      bar_of_attempt_[bar->attempt] = bar->bar;
      if (waiting_for_bar_.erase(bar->attempt) > 0) ended(world_rank, bar->attempt);
    } else if (const auto* go = std::get_if<message::Go>(&message)) {
      went(world_rank, go->attempt);
    } else if (const auto* abort = std::get_if<message::Abort>(&message)) {
      busy_.erase(world_rank);
      answer(world_rank, message::Gone{abort->attempt, Status::failed, "aborted"});
    }
  }
  std::optional<Mailbox::Message> try_receive() override {
    if (answers_.empty()) return std::nullopt;
    Mailbox::Message message = std::move(answers_.front());
    answers_.pop();
    return message;
  }
  bool flush(double) override { return true; }

  /// What a GPU holds beside its arena of 700 bytes; 0: there is none.
  std::int64_t gpu_outside_bytes = 0;

  [[nodiscard]] bool was_slot_taken_twice() const { return was_slot_taken_twice_; }
  [[nodiscard]] const std::vector<std::string>& ran() const { return ran_; }
  [[nodiscard]] int times_ran(const std::string& experiment) const {
    return static_cast<int>(std::count(ran_.begin(), ran_.end(), experiment));
  }
  /// Those of which an attempt was said to be risky.
  [[nodiscard]] const std::set<std::string>& risky() const { return risky_; }
  /// What each run of it was raced against in the end.
  [[nodiscard]] const std::vector<RaceBar>& bars(const std::string& experiment) {
    return bars_[experiment];
  }

 private:
  void answer(int world_rank, const dstune::Message& message) {
    answers_.push({world_rank, encode(message)});
  }

  void assigned(int world_rank, const message::Assign& assign) {
    was_slot_taken_twice_ = was_slot_taken_twice_ || !busy_.insert(world_rank).second;
    assigns_[assign.attempt] = assign;
    if (assign.is_risky) risky_.insert(assign.experiment);
    EXPECT_FALSE(without_device_.contains(world_rank)) << "it has no device any more";
    const Behaviour behaviour = behaviours_[assign.experiment];
    const bool is_leader = assign.world_ranks.front() == world_rank;
    if (is_leader) ran_.push_back(assign.experiment);
    if (behaviour == Behaviour::out_of_memory) {
      busy_.erase(world_rank);
      if (is_leader) {
        Measurement measurement;
        measurement.status = Status::out_of_memory;
        measurement.reason = "rank 1: 10 bytes of 5";
        answer(world_rank, message::Outcome{assign.attempt, measurement});
      }
    } else if (behaviour == Behaviour::throws && is_leader) {
      busy_.erase(world_rank);
      answer(world_rank, message::Gone{assign.attempt, Status::failed, "rank 0: a bug"});
    } else if (behaviour == Behaviour::member_throws) {
      busy_.erase(world_rank);
      const std::string seen = "a member has left the group";
      answer(world_rank, message::Gone{assign.attempt, Status::failed,
                                       is_leader ? seen : "rank 1: a bug", !is_leader});
    } else if (behaviour == Behaviour::loses_device && assign.world_ranks.back() == world_rank) {
      busy_.erase(world_rank);
      without_device_.insert(world_rank);
      answer(world_rank,
             message::Gone{assign.attempt, Status::failed, "an illegal address", true, true});
    } else if (behaviour == Behaviour::silent_member && !is_leader) {
      dead_.insert(world_rank);
    } else {
      answer(world_rank, message::Ready{assign.attempt});
    }
  }

  void went(int world_rank, std::uint64_t attempt) {
    busy_.erase(world_rank);
    const message::Assign& assign = assigns_[attempt];
    if (assign.world_ranks.front() != world_rank) return;
    if (behaviours_[assign.experiment] == Behaviour::raced_out &&
        times_ran(assign.experiment) == 1) {
      waiting_for_bar_.insert(attempt);
    } else {
      ended(world_rank, attempt);
    }
  }

  void ended(int world_rank, std::uint64_t attempt) {
    const message::Assign& assign = assigns_[attempt];
    const RaceBar bar = bar_of_attempt_[attempt];
    Measurement measurement;
    measurement.status = Status::ok;
    // The larger the micro-batch the slower the step, but less than in proportion.
    double step_s = 0.1 + 0.01 * static_cast<double>(assign.config.micro_batch);
    const Behaviour behaviour = behaviours_[assign.experiment];
    if (behaviour == Behaviour::slow) step_s *= 2;
    if (behaviour == Behaviour::raced_out && bar.step_s > 0) measurement.status = Status::raced_out;
    if (behaviour == Behaviour::fails_again && times_ran(assign.experiment) > 1)
      measurement.status = Status::failed;
    bars_[assign.experiment].push_back(bar);
    measurement.step_times_s.assign(8, step_s);
    measurement.warmup_steps = 3;
    measurement.world_ranks = assign.world_ranks;
    measurement.energy_j = 10;
    measurement.peak_memory.total_bytes = 1000;
    measurement.peak_memory.host_bytes = 300;
    if (gpu_outside_bytes > 0) measurement.peak_memory.gpu_bytes = 700 + gpu_outside_bytes;
    answer(world_rank, message::Outcome{attempt, measurement});
  }

  std::map<std::string, Behaviour> behaviours_;
  std::queue<Mailbox::Message> answers_;
  std::map<std::uint64_t, message::Assign> assigns_;
  std::map<std::uint64_t, RaceBar> bar_of_attempt_;
  std::set<std::uint64_t> waiting_for_bar_;
  std::set<int> busy_;
  std::set<int> dead_;
  std::set<int> without_device_;
  std::set<std::string> risky_;
  std::vector<std::string> ran_;
  std::map<std::string, std::vector<RaceBar>> bars_;
  bool was_slot_taken_twice_ = false;
};

class ControllerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "dstune_controller_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// A space of micro-batches 1, 2, 4, … on groups of these sizes.
  static PlannedSpace space(int num_micro_batches, const std::vector<int>& sizes) {
    PlannedSpace space;
    for (const int size : sizes) {
      for (int i = 0; i < num_micro_batches; ++i) {
        PlannedMember member;
        Experiment& experiment = member.planned.experiment;
        experiment.shape = {size, 1};
        experiment.config.micro_batch = std::int64_t{1} << i;
        experiment.name = "z0_gas1_tmbspg" + std::to_string(1 << i) + "_ng" + std::to_string(size);
        experiment.ds_config = {{"train_micro_batch_size_per_gpu", 1 << i}};
        space.members.push_back(member);
      }
    }
    space.total = space.planned = space.members.size();
    return space;
  }

  struct Run {
    ExitCode code;
    Report report;
    std::set<int> lost;
  };

  Run run(const PlannedSpace& space, FakeWorkers& workers, int ranks,
          ControllerOptions options = {}, Tuner* given = nullptr) {
    std::vector<std::string> keys;
    for (const PlannedMember& member : space.members) {
      keys.push_back("key-" + member.planned.experiment.name);
    }
    ResultsFolder results(folder_ + "/results", folder_ + "/exps");
    const JournalContent content = read_journal(results.journal_path());
    const History history = understand(content, results.journal_path());
    Journal journal(results.journal_path(), content.valid_bytes);
    journal.add(event::job_started(json::Value::object()));
    std::vector<int> slots_of_node(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) slots_of_node[static_cast<std::size_t>(rank)] = rank;
    SlotPool slots({slots_of_node});
    TuningOptions tuning;
    tuning.metric = options.metric;
    const auto made = make_tuner(options.races ? "race" : "gridsearch", space, tuning);
    Tuner& tuner = given != nullptr ? *given : *made;
    Progress progress(Progress::Style::silent);
    options.patience_s = [](const Experiment&) { return 0.2; };
    options.abort_grace_s = 0.1;
    Controller controller(space, keys, history, tuner, slots, workers, journal, results, progress,
                          options);
    const ExitCode code = controller.run();
    return {code, controller.report(), controller.lost_ranks()};
  }

  std::string folder_;
};

TEST_F(ControllerTest, RunsEveryMemberOnceAndNamesTheBest) {
  const PlannedSpace members = space(4, {1, 2});
  FakeWorkers workers({});

  const Run result = run(members, workers, 4);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_EQ(std::set<std::string>(workers.ran().begin(), workers.ran().end()).size(), 8U);
  EXPECT_FALSE(workers.was_slot_taken_twice());
  const auto best = best_row(result.report);
  ASSERT_TRUE(best);
  EXPECT_EQ(result.report.rows[*best].planned.experiment.name, "z0_gas1_tmbspg8_ng2");
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/results/ds_config_optimal.json"));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/results/z0_gas1_tmbspg1_ng1/metrics.json"));
}

/// Takes members in order, and wants to know how all but the last `num_running` ended.
class CautiousTuner : public Tuner {
 public:
  CautiousTuner(std::size_t count, std::size_t num_running)
      : count_(count), num_running_(num_running) {}
  std::optional<std::size_t> next() override {
    if (asked_ == count_) return std::nullopt;
    EXPECT_LT(asked_ - observed_, num_running_) << "chosen while no rank was idle";
    return asked_++;
  }
  void observe(std::size_t, const Observation&) override { ++observed_; }
  [[nodiscard]] bool is_done() const override { return asked_ == count_; }
  [[nodiscard]] std::size_t most_waiting() const override { return 0; }
  [[nodiscard]] std::vector<Skipped> skipped() const override { return {}; }
  [[nodiscard]] std::optional<double> chance_of_better() const override { return 0.25; }

 private:
  std::size_t count_, num_running_, asked_ = 0, observed_ = 0;
};

TEST_F(ControllerTest, ATunerThatLearnsIsAskedWhenItsAnswerCanRun) {
  const PlannedSpace members = space(7, {2});
  for (const int ranks : {2, 3, 4}) {
    std::filesystem::remove_all(folder_);
    FakeWorkers workers({});
    // The third rank is idle all the time, and of no use.
    CautiousTuner tuner(members.members.size(), static_cast<std::size_t>(ranks / 2));

    EXPECT_EQ(run(members, workers, ranks, {}, &tuner).code, ExitCode::ok);

    EXPECT_EQ(std::set<std::string>(workers.ran().begin(), workers.ran().end()).size(), 7U);
  }
}

TEST_F(ControllerTest, SecondRunRunsNothing) {
  const PlannedSpace members = space(3, {1});
  FakeWorkers first({});
  run(members, first, 2);
  FakeWorkers second({});

  const Run result = run(members, second, 2);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_TRUE(second.ran().empty());
  EXPECT_TRUE(best_row(result.report));
}

TEST_F(ControllerTest, OutOfMemoryIsAResultAndTheRestRuns) {
  const PlannedSpace members = space(3, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg4_ng2", Behaviour::out_of_memory}});

  const Run result = run(members, workers, 2);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_EQ(result.report.rows[2].record->measurement.status, Status::out_of_memory);
  EXPECT_EQ(result.report.rows[1].record->measurement.status, Status::ok);
}

TEST_F(ControllerTest, EverythingFailingIsExitFour) {
  const PlannedSpace members = space(1, {1});
  FakeWorkers workers({{"z0_gas1_tmbspg1_ng1", Behaviour::out_of_memory}});

  EXPECT_EQ(run(members, workers, 1).code, ExitCode::nothing_feasible);
}

TEST_F(ControllerTest, AnExceptionOnOneRankEndsTheGroupAndKeepsTheRanks) {
  const PlannedSpace members = space(2, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg1_ng2", Behaviour::throws}});

  const Run result = run(members, workers, 2);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_TRUE(result.lost.empty());
  EXPECT_EQ(result.report.rows[0].record->measurement.status, Status::failed);
  EXPECT_EQ(result.report.rows[0].record->measurement.reason, "rank 0: a bug");
  EXPECT_EQ(result.report.rows[1].record->measurement.status, Status::ok);
}

TEST_F(ControllerTest, WhoFailedIsBelievedAndNotWhoSawItLeave) {
  const PlannedSpace members = space(1, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg1_ng2", Behaviour::member_throws}});

  const Run result = run(members, workers, 2);

  EXPECT_TRUE(result.lost.empty());
  EXPECT_EQ(result.report.rows[0].record->measurement.reason, "rank 1: a bug");
}

TEST_F(ControllerTest, ALostRankCostsOneExperimentAndIsNotUsedAgain) {
  const PlannedSpace members = space(3, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg1_ng2", Behaviour::silent_member}});

  // Two groups of two are lost a member each (the experiment is tried twice): ranks 0 and 2 remain.
  const Run result = run(members, workers, 4);

  EXPECT_EQ(result.lost.size(), 2U);
  EXPECT_EQ(result.report.rows[0].record->measurement.status, Status::timed_out);
  EXPECT_EQ(result.report.rows[0].record->attempt, 2);
  EXPECT_EQ(result.report.rows[2].record->measurement.status, Status::ok);
  EXPECT_EQ(result.code, ExitCode::ok);
}

TEST_F(ControllerTest, LossesThatMakeASizeImpossibleEndWithSeventyFive) {
  PlannedSpace members = space(2, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg1_ng2", Behaviour::silent_member}});

  const Run result = run(members, workers, 2);

  EXPECT_EQ(result.lost.size(), 1U);
  EXPECT_EQ(result.code, ExitCode::stopped_early);
}

TEST_F(ControllerTest, PredictsWhatAGpuHoldsBesideItsArena) {
  PlannedSpace members = space(2, {1, 2});
  for (PlannedMember& member : members.members) {
    member.planned.predicted.peak_memory_bytes = 1000;
    member.planned.predicted.host_memory_bytes = 300;
  }
  FakeWorkers workers({});
  workers.gpu_outside_bytes = 520;
  OutsideMemory outside({500, 510}, true);
  ControllerOptions options;
  options.outside_gpu_memory = &outside;

  const Run result = run(members, workers, 2, options);

  std::map<std::size_t, std::vector<std::int64_t>> predicted;
  for (const Row& row : result.report.rows) {
    EXPECT_EQ(row.record->measurement.peak_memory.gpu_bytes, 1220);
    predicted[row.record->measurement.world_ranks.size()].push_back(
        row.record->predicted.gpu_memory_bytes);
    EXPECT_EQ(row.record->predicted.process_memory_bytes, 0) << "nobody knows";
  }
  // What the first of a size was measured to hold is what the next is predicted to.
  EXPECT_EQ(predicted[2], (std::vector<std::int64_t>{1210, 1220}));
  EXPECT_EQ(predicted[1].size(), 2U);
}

TEST_F(ControllerTest, ARankWithoutItsDeviceIsNotUsedAgain) {
  const PlannedSpace members = space(4, {1});
  const std::string unlucky = "z0_gas1_tmbspg2_ng1";
  FakeWorkers workers({{unlucky, Behaviour::loses_device}});

  const Run result = run(members, workers, 3);

  EXPECT_EQ(workers.times_ran(unlucky), 2) << "once more elsewhere";
  EXPECT_EQ(workers.risky(), std::set<std::string>{unlucky});
  EXPECT_TRUE(result.lost.empty()) << "their processes are there";
  const Record& failed = *result.report.rows[1].record;
  EXPECT_EQ(failed.measurement.status, Status::failed);
  EXPECT_EQ(failed.attempt, 2);
  EXPECT_NE(failed.measurement.reason.find("an illegal address; device lost by rank"),
            std::string::npos)
      << failed.measurement.reason;
  EXPECT_EQ(result.report.rows[3].record->measurement.status, Status::ok);
  EXPECT_EQ(result.code, ExitCode::ok);
}

TEST_F(ControllerTest, WithoutAnyDeviceTheJobEndsAndKeepsItsResults) {
  const PlannedSpace members = space(5, {1});
  FakeWorkers workers({{"z0_gas1_tmbspg4_ng1", Behaviour::loses_device}});

  const Run result = run(members, workers, 2);

  EXPECT_EQ(result.code, ExitCode::stopped_early);
  EXPECT_EQ(result.report.rows[0].record->measurement.status, Status::ok);
  EXPECT_EQ(result.report.rows[1].record->measurement.status, Status::ok);
  EXPECT_FALSE(result.report.rows[4].record) << "the fourth may have run beside the third";
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/results/ds_config_optimal.json"));
}

TEST_F(ControllerTest, ASignalStopsAndTheNextRunFinishes) {
  const PlannedSpace members = space(6, {1});
  FakeWorkers workers({});
  ControllerOptions options;
  options.signals = [&] { return workers.ran().size() >= 2 ? 1 : 0; };
  const Run stopped = run(members, workers, 1, options);
  EXPECT_EQ(stopped.code, ExitCode::stopped_early);
  EXPECT_LT(workers.ran().size(), 6U);
  const PlannedExperiment& last = stopped.report.rows.back().planned;
  EXPECT_EQ(last.status, PlanStatus::planned) << "nobody decided against it";
  EXPECT_EQ(last.reason, "the job was stopped before it had run");
  FakeWorkers again({});

  const Run result = run(members, again, 1);

  EXPECT_EQ(result.code, ExitCode::ok);
  for (const Row& row : result.report.rows) EXPECT_TRUE(row.record);
  EXPECT_LT(again.ran().size(), 6U);
}

/// Two groups of two that do the same, and one that is slow.
PlannedSpace twins_and_a_slow_one() {
  PlannedSpace space;
  for (const char* name : {"one", "other", "slow"}) {
    PlannedMember member;
    Experiment& experiment = member.planned.experiment;
    experiment.name = name;
    experiment.shape = {2, 1};
    experiment.config.micro_batch = 4;
    experiment.ds_config = {{"train_micro_batch_size_per_gpu", 4}};
    space.members.push_back(member);
  }
  space.total = space.planned = 3;
  return space;
}

TEST_F(ControllerTest, FinalistsAreMeasuredAgainAloneAndInTurns) {
  const PlannedSpace members = twins_and_a_slow_one();
  FakeWorkers workers({{"slow", Behaviour::slow}});

  const Run result = run(members, workers, 4);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_TRUE(result.report.validation.is_done);
  ASSERT_EQ(workers.ran().size(), 10U);
  const std::vector<std::string> finals(workers.ran().begin() + 3, workers.ran().end());
  // The last one tells that neither is likely to be more than 1 % better.
  EXPECT_EQ(finals,
            (std::vector<std::string>{"one", "other", "one", "other", "one", "other", "one"}));
  for (const Row& row : result.report.rows)
    for (const Repeat& repeat : row.repeats) EXPECT_TRUE(repeat.is_alone);
  const auto validation = json::Value::parse(read_file(folder_ + "/results/validation.json"));
  EXPECT_EQ(validation["done"], true);
  ASSERT_EQ(validation["finalists"].size(), 2U);
  EXPECT_EQ(validation["finalists"][1]["runs"].size(), 3U);
  EXPECT_EQ(validation["finalists"][1]["runs"][2]["step_times_s"].size(), 8U);
  const auto optimal = json::Value::parse(read_file(folder_ + "/results/optimal.json"));
  EXPECT_EQ(optimal["name"], "one");
  EXPECT_NEAR(optimal["value"].get<double>(), 8 / 0.14, 1e-9);

  FakeWorkers second({});
  const Run again = run(members, second, 4);
  EXPECT_TRUE(second.ran().empty()) << "finished rounds are not run again";
  EXPECT_TRUE(again.report.validation.is_done);
}

TEST_F(ControllerTest, EnergyBesideANeighbourIsNobodys) {
  const PlannedSpace members = twins_and_a_slow_one();
  FakeWorkers workers({{"slow", Behaviour::slow}});

  const Run result = run(members, workers, 4);

  // The first two run at the same time; what is measured again is alone.
  const std::vector<Row>& rows = result.report.rows;
  EXPECT_FALSE(rows[0].record->measurement.energy_j);
  EXPECT_FALSE(rows[1].record->measurement.energy_j);
  EXPECT_TRUE(rows[2].record->measurement.energy_j);
  EXPECT_EQ(rows[0].repeats.at(0).measurement.energy_j, 10.0);
}

TEST_F(ControllerTest, AFinalistThatFailsAgainIsPassedOver) {
  const PlannedSpace members = twins_and_a_slow_one();
  FakeWorkers workers({{"slow", Behaviour::slow}, {"one", Behaviour::fails_again}});

  const Run result = run(members, workers, 4);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_EQ(json::Value::parse(read_file(folder_ + "/results/optimal.json"))["name"], "other");
}

TEST_F(ControllerTest, WithoutTimeFinalistsAreNotMeasuredAgainAndItSaysSo) {
  const PlannedSpace members = twins_and_a_slow_one();
  {
    ResultsFolder results(folder_ + "/results", folder_ + "/exps");
    Journal journal(results.journal_path(), 0);
    journal.add(event::job_started(json::Value::object()));
    for (const PlannedMember& member : members.members) {
      Record record;
      record.experiment = member.planned.experiment;
      record.measurement.status = Status::ok;
      record.measurement.step_times_s.assign(8, 0.1);
      record.finished_at = std::chrono::system_clock::now();
      record.started_at = record.finished_at - std::chrono::hours(1);
      journal.add(event::finished("key-" + record.experiment.name, record));
    }
    journal.commit();
  }
  FakeWorkers workers({});
  ControllerOptions options;
  options.end_at = ControllerOptions::Clock::now() + std::chrono::minutes(1);

  const Run result = run(members, workers, 4, options);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_TRUE(workers.ran().empty());
  EXPECT_FALSE(result.report.validation.is_done);
  EXPECT_NE(read_file(folder_ + "/results/summary.txt").find("not measured again: the time limit"),
            std::string::npos);
}

TEST_F(ControllerTest, AWinnerThatWasAloneAndIsClearIsNotMeasuredAgain) {
  const PlannedSpace members = space(3, {2});
  FakeWorkers workers({});

  const Run result = run(members, workers, 2);

  EXPECT_EQ(workers.ran().size(), 3U);
  EXPECT_FALSE(result.report.validation.is_done);
  EXPECT_NE(result.report.validation.reason, "");
}

int num_spread_runs(const Report& report) {
  int runs = 0;
  for (const Row& row : report.rows)
    runs += static_cast<int>(
        std::count_if(row.repeats.begin(), row.repeats.end(),
                      [](const Repeat& repeat) { return repeat.kind == RepeatKind::spread; }));
  return runs;
}

TEST_F(ControllerTest, AGridRepeatsTheBestForItsIntervals) {
  const PlannedSpace members = space(8, {1});
  for (const bool repeats : {true, false}) {
    FakeWorkers workers({});
    ControllerOptions options;
    options.repeats_best = repeats;
    const Run result = run(members, workers, 1, options);
    EXPECT_EQ(result.code, ExitCode::ok);
    EXPECT_EQ(num_spread_runs(result.report), repeats ? 2 : 0);
    // The fakes' runs do not differ.
    EXPECT_EQ(result.report.half_width_of_run < Report{}.half_width_of_run, repeats);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
}

TEST_F(ControllerTest, RaceComparesWithTheBestAndRepeatsIt) {
  const PlannedSpace members = space(8, {1});
  FakeWorkers workers({});
  // The real one is done with these after five, which are the fewest before the best is repeated.
  CautiousTuner tuner(members.members.size(), 1);
  ControllerOptions options;
  options.races = true;
  options.repeats_best = true;

  const Run result = run(members, workers, 1, options, &tuner);

  EXPECT_EQ(result.code, ExitCode::ok);
  const std::string first = workers.ran().front();
  EXPECT_EQ(workers.bars(first).front().step_s, 0) << "nothing to be compared with yet";
  // The second is as good as the first where a step of it takes so long.
  const std::string second = workers.ran()[1];
  const auto micro_batch = [](const std::string& name) {
    return std::stod(name.substr(name.find("tmbspg") + 6));
  };
  EXPECT_NEAR(workers.bars(second).front().step_s,
              (0.1 + 0.01 * micro_batch(first)) * micro_batch(second) / micro_batch(first), 1e-9);
  EXPECT_GT(workers.bars(second).front().standard_error, 0);
  const auto best = best_row(result.report);
  ASSERT_TRUE(best);
  EXPECT_GE(num_spread_runs(result.report), 1);
  EXPECT_EQ(result.report.validation.is_done, true) << "race always measures again";
  EXPECT_EQ(result.report.chance_of_better, 0.25);
}

TEST_F(ControllerTest, AChallengerHearsOfABetterOneWhileItRuns) {
  PlannedSpace members = twins_and_a_slow_one();
  members.members.erase(members.members.begin() + 1);
  members.total = members.planned = 2;
  members.members.back().planned.experiment.config.micro_batch = 1;
  FakeWorkers workers({{"slow", Behaviour::raced_out}});
  ControllerOptions options;
  options.races = true;

  const Run result = run(members, workers, 4, options);

  EXPECT_EQ(result.code, ExitCode::ok);
  const auto& slow = result.report.rows[1].record;
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->measurement.status, Status::raced_out) << slow->measurement.reason;
  EXPECT_NEAR(workers.bars("slow").at(0).step_s, 0.14 / 4, 1e-9);
  EXPECT_EQ(workers.bars("one").at(0).step_s, 0) << "nothing was better when it ended";
}

TEST_F(ControllerTest, WhatWasRacedOutCloseByBesideANeighbourRunsAgainAlone) {
  PlannedSpace members = twins_and_a_slow_one();
  members.members.pop_back();
  members.total = members.planned = 2;
  FakeWorkers workers({{"other", Behaviour::raced_out}});
  ControllerOptions options;
  options.races = true;

  const Run result = run(members, workers, 4, options);

  EXPECT_EQ(result.code, ExitCode::ok);
  const auto& other = result.report.rows[1].record;
  ASSERT_TRUE(other);
  EXPECT_EQ(other->measurement.status, Status::ok);
  EXPECT_EQ(other->attempt, 2);
  EXPECT_TRUE(other->is_alone);
  EXPECT_GT(workers.bars("other").at(0).step_s, 0);
  EXPECT_EQ(workers.bars("other").at(1).step_s, 0) << "measured fully";
  EXPECT_TRUE(workers.risky().empty()) << "nothing was lost";
  const auto metrics = json::Value::parse(read_file(folder_ + "/results/other/metrics.json"));
  EXPECT_EQ(metrics["attempt"], 2);
  EXPECT_EQ(metrics["status"], "ok");
}

}  // namespace
}  // namespace dstune
