#include <algorithm>

#include "controller_fixture.hpp"
#include "dstune/base/file.hpp"

namespace dstune {
namespace {

class RepeatsTest : public ControllerTest {
 protected:
  /// Two groups of two that do the same, and one that is slow.
  static PlannedSpace twins_and_a_slow_one() {
    PlannedSpace space;
    for (const char* name : {"one", "other", "slow"}) add_member(space, name, 2, 4);
    return space;
  }
};

TEST_F(RepeatsTest, FinalistsAreMeasuredAgainAloneAndInTurns) {
  const PlannedSpace members = twins_and_a_slow_one();
  FakeWorkers workers({{"slow", Behaviour::slow}});

  const Run result = run(members, workers, 4);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_TRUE(result.scoreboard.finals().is_done);
  ASSERT_GE(workers.ran().size(), 5U);
  const std::vector<std::string> finals(workers.ran().begin() + 3, workers.ran().end());
  EXPECT_EQ(std::ranges::count(finals, "slow"), 0);
  EXPECT_NE(finals[0], finals[1]);
  for (const Row& row : result.scoreboard.rows())
    for (const Repeat& repeat : row.repeats) EXPECT_TRUE(repeat.is_alone);
  const auto validation = json::Value::parse(read_file(folder_ + "/results/validation.json"));
  EXPECT_EQ(validation["done"], true);
  ASSERT_EQ(validation["finalists"].size(), 2U);
  ASSERT_GE(validation["finalists"][1]["runs"].size(), 1U);
  EXPECT_EQ(validation["finalists"][1]["runs"][0]["step_times_s"].size(), 8U);
  const auto optimal = json::Value::parse(read_file(folder_ + "/results/optimal.json"));
  EXPECT_NE(optimal["name"], "slow") << "the two others are equal";
  EXPECT_NEAR(optimal["value"].get<double>(), 8 / 0.14, 1);

  FakeWorkers second({});
  const Run again = run(members, second, 4);
  EXPECT_TRUE(second.ran().empty()) << "finished rounds are not run again";
  EXPECT_TRUE(again.scoreboard.finals().is_done);
}

TEST_F(RepeatsTest, EnergyBesideANeighbourIsNobodys) {
  const PlannedSpace members = twins_and_a_slow_one();
  FakeWorkers workers({{"slow", Behaviour::slow}});

  const Run result = run(members, workers, 4);

  // The first two run at the same time; what is measured again is alone.
  const PackedList<Row>& rows = result.scoreboard.rows();
  EXPECT_FALSE(rows[0].record->measurement.energy_j);
  EXPECT_FALSE(rows[1].record->measurement.energy_j);
  EXPECT_TRUE(rows[2].record->measurement.energy_j);
  EXPECT_EQ(rows[0].repeats.at(0).measurement.energy_j, 10.0);
}

TEST_F(RepeatsTest, AFinalistThatFailsAgainIsPassedOver) {
  const PlannedSpace members = twins_and_a_slow_one();
  FakeWorkers workers({{"slow", Behaviour::slow}, {"one", Behaviour::fails_again}});

  const Run result = run(members, workers, 4);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_EQ(json::Value::parse(read_file(folder_ + "/results/optimal.json"))["name"], "other");
}

TEST_F(RepeatsTest, WithoutTimeFinalistsAreNotMeasuredAgainAndItSaysSo) {
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

  const Run result =
      run(members, workers, 4, {.end_at = SteadyClock::now() + std::chrono::minutes(1)});

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_TRUE(workers.ran().empty());
  EXPECT_FALSE(result.scoreboard.finals().is_done);
  EXPECT_NE(read_file(folder_ + "/results/summary.txt").find("not measured again: the time limit"),
            std::string::npos);
}

TEST_F(RepeatsTest, WhatIsClearIsMeasuredAgainOnce) {
  const PlannedSpace members = space(3, {2});
  FakeWorkers workers({});

  const Run result = run(members, workers, 2);

  EXPECT_GE(workers.ran().size(), 5U) << "two finalists in any case";
  EXPECT_TRUE(result.scoreboard.finals().is_done);
}

int num_spread_runs(const Scoreboard& scoreboard) {
  int runs = 0;
  for (const Row& row : scoreboard.rows())
    runs += static_cast<int>(
        std::count_if(row.repeats.begin(), row.repeats.end(),
                      [](const Repeat& repeat) { return repeat.kind == RepeatKind::spread; }));
  return runs;
}

TEST_F(RepeatsTest, AGridRepeatsTheBestForItsIntervals) {
  const PlannedSpace members = space(8, {1});
  for (const bool repeats : {true, false}) {
    FakeWorkers workers({});
    Settings settings;
    settings.repeats_best = repeats;
    const Run result = run(members, workers, 1, settings);
    EXPECT_EQ(result.code, ExitCode::ok);
    EXPECT_EQ(num_spread_runs(result.scoreboard), repeats ? 2 : 0);
    // The fakes' runs do not differ.
    EXPECT_EQ(result.scoreboard.half_width_of_run() < Scoreboard().half_width_of_run(), repeats);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
}

TEST_F(RepeatsTest, RaceComparesWithTheBestAndRepeatsIt) {
  const PlannedSpace members = space(8, {1});
  FakeWorkers workers({});
  // The real one is done with these after five, which are the fewest before the best is repeated.
  CautiousTuner tuner(members.members.size(), 1);

  const Run result = run(members, workers, 1, {.races = true, .repeats_best = true}, &tuner);

  EXPECT_EQ(result.code, ExitCode::ok);
  const std::string first = workers.ran().front();
  EXPECT_EQ(workers.incumbents(first).front().step_s, 0) << "nothing to be compared with yet";
  // The second is as good as the first where a step of it takes so long.
  const std::string second = workers.ran()[1];
  const auto micro_batch = [](const std::string& name) {
    return std::stod(name.substr(name.find("tmbspg") + 6));
  };
  EXPECT_NEAR(workers.incumbents(second).front().step_s,
              (0.1 + 0.01 * micro_batch(first)) * micro_batch(second) / micro_batch(first), 1e-9);
  EXPECT_GT(workers.incumbents(second).front().standard_error, 0);
  ASSERT_TRUE(result.scoreboard.best());
  EXPECT_GE(num_spread_runs(result.scoreboard), 1);
  EXPECT_EQ(result.scoreboard.finals().is_done, true) << "race always measures again";
  EXPECT_EQ(result.scoreboard.chance_of_better(), 0.25);
}

TEST_F(RepeatsTest, AChallengerHearsOfABetterOneWhileItRuns) {
  PlannedSpace members = twins_and_a_slow_one();
  members.members = {members.members[0], members.members[2]};
  members.total = members.planned = 2;
  members.members.back().planned.experiment.config.micro_batch = 1;
  FakeWorkers workers({{"slow", Behaviour::raced_out}});

  const Run result = run(members, workers, 4, {.races = true});

  EXPECT_EQ(result.code, ExitCode::ok);
  const auto& slow = result.scoreboard.row(1).record;
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->measurement.status, Status::raced_out) << slow->measurement.reason;
  EXPECT_NEAR(workers.incumbents("slow").at(0).step_s, 0.14 / 4, 1e-9);
  EXPECT_EQ(workers.incumbents("one").at(0).step_s, 0) << "nothing was better when it ended";
}

TEST_F(RepeatsTest, WhatWasRacedOutCloseByBesideANeighbourRunsAgainAlone) {
  PlannedSpace members = twins_and_a_slow_one();
  members.members = {members.members[0], members.members[1]};
  members.total = members.planned = 2;
  FakeWorkers workers({{"other", Behaviour::raced_out}});

  const Run result = run(members, workers, 4, {.races = true});

  EXPECT_EQ(result.code, ExitCode::ok);
  const auto& other = result.scoreboard.row(1).record;
  ASSERT_TRUE(other);
  EXPECT_EQ(other->measurement.status, Status::ok);
  EXPECT_EQ(other->attempt, 2);
  EXPECT_TRUE(other->is_alone);
  EXPECT_GT(workers.incumbents("other").at(0).step_s, 0);
  EXPECT_EQ(workers.incumbents("other").at(1).step_s, 0) << "measured fully";
  EXPECT_TRUE(workers.risky().empty()) << "nothing was lost";
  const auto metrics = json::Value::parse(read_file(folder_ + "/results/other/metrics.json"));
  EXPECT_EQ(metrics["attempt"], 2);
  EXPECT_EQ(metrics["status"], "ok");
}

}  // namespace
}  // namespace dstune
