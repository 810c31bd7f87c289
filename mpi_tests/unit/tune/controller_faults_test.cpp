#include "controller_fixture.hpp"

namespace dstune {
namespace {

TEST_F(ControllerTest, OutOfMemoryIsAResultAndTheRestRuns) {
  const PlannedSpace members = space(3, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg4_ng2", Behaviour::out_of_memory}});

  const Run result = run(members, workers, 2);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_EQ(result.scoreboard.row(2).record->measurement.status, Status::out_of_memory);
  EXPECT_EQ(result.scoreboard.row(1).record->measurement.status, Status::ok);
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
  EXPECT_EQ(result.scoreboard.row(0).record->measurement.status, Status::failed);
  EXPECT_EQ(result.scoreboard.row(0).record->measurement.reason, "rank 0: a bug");
  EXPECT_EQ(result.scoreboard.row(1).record->measurement.status, Status::ok);
}

TEST_F(ControllerTest, WhoFailedIsBelievedAndNotWhoSawItLeave) {
  const PlannedSpace members = space(1, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg1_ng2", Behaviour::member_throws}});

  const Run result = run(members, workers, 2);

  EXPECT_TRUE(result.lost.empty());
  EXPECT_EQ(result.scoreboard.row(0).record->measurement.reason, "rank 1: a bug");
}

TEST_F(ControllerTest, ALostRankCostsOneExperimentAndIsNotUsedAgain) {
  const PlannedSpace members = space(3, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg1_ng2", Behaviour::silent_member}});

  // Two groups of two are lost a member each (the experiment is tried twice): ranks 0 and 2 remain.
  const Run result = run(members, workers, 4, {.inactivity_timeout_s = 0.2});

  EXPECT_EQ(result.lost.size(), 2U);
  EXPECT_EQ(result.scoreboard.row(0).record->measurement.status, Status::timed_out);
  EXPECT_EQ(result.scoreboard.row(0).record->attempt, 2);
  EXPECT_EQ(result.scoreboard.row(2).record->measurement.status, Status::ok);
  EXPECT_EQ(result.code, ExitCode::ok);
}

TEST_F(ControllerTest, ARankThatIsLostWhileItIsIdleCostsNoExperiment) {
  const PlannedSpace members = space(3, {2});
  FakeWorkers workers({});
  Settings settings;
  settings.lost_ranks = [] { return std::map<int, std::string>{{1, "died"}}; };

  const Run result = run(members, workers, 4, settings);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_EQ(result.lost, std::set<int>{1}) << "MPI can not be ended with it";
  for (const Row& row : result.scoreboard.rows()) {
    ASSERT_TRUE(row.record);
    EXPECT_EQ(row.record->measurement.status, Status::ok);
    EXPECT_EQ(row.record->attempt, 1);
    EXPECT_EQ(std::ranges::count(row.record->measurement.world_ranks, 1), 0);
  }
}

TEST_F(ControllerTest, LossesThatMakeASizeImpossibleEndWithSeventyFive) {
  PlannedSpace members = space(2, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg1_ng2", Behaviour::silent_member}});

  const Run result = run(members, workers, 2, {.inactivity_timeout_s = 0.2});

  ASSERT_EQ(result.lost.size(), 1U);
  EXPECT_EQ(result.code, ExitCode::stopped_early);
  EXPECT_EQ(result.reason, "lost rank " + std::to_string(*result.lost.begin()) +
                               ": too few ranks are left for some group sizes; the same command "
                               "resumes");
}

TEST_F(ControllerTest, ARankThatHasLostSomethingIsNotUsedAgain) {
  struct Case {
    Behaviour behaviour;
    int tries;  ///< a script that keeps Python would take the next ranks, too
    const char* reason;
  };
  const PlannedSpace members = space(4, {1});
  const std::string unlucky = "z0_gas1_tmbspg2_ng1";
  for (const auto& [behaviour, tries, reason] :
       {Case{Behaviour::loses_device, 2, "an illegal address; device lost by rank"},
        Case{Behaviour::silent_device, 2, "late; no answer from the device of rank"},
        Case{Behaviour::stuck_python, 1, "late; no answer from Python on rank"}}) {
    SCOPED_TRACE(reason);
    std::filesystem::remove_all(folder_);
    FakeWorkers workers({{unlucky, behaviour}});

    const Run result = run(members, workers, 3);

    EXPECT_EQ(workers.times_ran(unlucky), tries);
    EXPECT_EQ(workers.risky(),
              (tries > 1 ? std::set<std::string>{unlucky} : std::set<std::string>{}))
        << "once more elsewhere";
    EXPECT_TRUE(result.lost.empty()) << "their processes are there";
    const Record& failed = *result.scoreboard.row(1).record;
    EXPECT_EQ(failed.measurement.status, Status::failed);
    EXPECT_EQ(failed.attempt, tries);
    EXPECT_NE(failed.measurement.reason.find(reason), std::string::npos)
        << failed.measurement.reason;
    EXPECT_EQ(result.scoreboard.row(3).record->measurement.status, Status::ok);
    EXPECT_EQ(result.code, ExitCode::ok);
  }
}

TEST_F(ControllerTest, WhatMayHaveKilledTheJobRunsAloneFirst) {
  const PlannedSpace members = space(6, {1});
  const auto name = [&](std::size_t member) { return members.experiment(member).name; };
  std::filesystem::create_directories(folder_ + "/results");
  {
    Journal journal(folder_ + "/results/journal.jsonl", 0);
    const auto begin = [&](const std::vector<std::size_t>& running) {
      journal.add(event::job_started(json::Value::object()));
      for (const std::size_t member : running)
        journal.add(
            event::started("key-" + name(member), name(member), 1, {static_cast<int>(member)}));
    };
    // 1, 2, 3 and 4 ran at two deaths; then 2 was alone at one, 3 at two. 5 ran at one.
    begin({1, 2, 3, 4});
    begin({1, 2, 3, 4, 5});
    begin({3});
    begin({3});
    begin({2});
    journal.commit();
  }
  FakeWorkers workers({});
  const Run result = run(members, workers, 4);

  EXPECT_EQ(result.code, ExitCode::ok);
  ASSERT_GE(workers.ran().size(), 5U);
  EXPECT_EQ(workers.ran()[0], name(1));
  EXPECT_EQ(workers.ran()[1], name(2)) << "somebody may have killed three jobs";
  EXPECT_EQ(workers.ran()[2], name(4));
  EXPECT_EQ(workers.times_ran(name(3)), 0);
  for (const std::size_t member : {0, 1, 2, 4, 5})
    EXPECT_EQ(result.scoreboard.row(member).record->measurement.status, Status::ok) << member;
  EXPECT_TRUE(result.scoreboard.row(1).record->is_alone);
  EXPECT_TRUE(result.scoreboard.row(4).record->is_alone);
  EXPECT_EQ(result.scoreboard.row(1).record->attempt, 3);
  const Measurement& blamed = result.scoreboard.row(3).record->measurement;
  EXPECT_EQ(blamed.status, Status::failed);
  EXPECT_EQ(blamed.reason,
            "was running when the job died, 4 times, and at the last nothing else was; "
            "--retry-failed runs it again");
}

TEST_F(ControllerTest, WhatARankWasSeenToDieInIsBlamedSooner) {
  const PlannedSpace members = space(2, {1});
  const std::string name = members.experiment(1).name;
  std::filesystem::create_directories(folder_ + "/results");
  {
    Journal journal(folder_ + "/results/journal.jsonl", 0);
    for (int job = 0; job < 2; ++job) {
      journal.add(event::job_started(json::Value::object()));
      journal.add(event::started("key-" + name, name, 1, {0}));
      journal.add(event::lost("key-" + name, name, {0}));
    }
    journal.commit();
  }
  FakeWorkers workers({});
  const Run result = run(members, workers, 2);

  EXPECT_EQ(workers.times_ran(name), 0);
  EXPECT_EQ(result.scoreboard.row(1).record->measurement.status, Status::failed);
}

TEST(JobEndTest, ALossForWhichTheLauncherStopsTheJobIsNamed) {
  JobEnd end{.signals = [] { return 1; }};
  EXPECT_EQ(end.reason({}), "a signal to stop");
  end.who_died = [] { return std::string(); };
  EXPECT_EQ(end.reason({}), "a signal to stop");
  end.who_died = [] { return std::string("rank 1 died"); };
  EXPECT_EQ(end.reason({}), "rank 1 died, and the launcher stops the job");
}

TEST_F(ControllerTest, WithoutAnyDeviceTheJobEndsAndKeepsItsResults) {
  const PlannedSpace members = space(5, {1});
  FakeWorkers workers({{"z0_gas1_tmbspg4_ng1", Behaviour::loses_device}});

  const Run result = run(members, workers, 2);

  EXPECT_EQ(result.code, ExitCode::stopped_early);
  EXPECT_EQ(result.scoreboard.row(0).record->measurement.status, Status::ok);
  EXPECT_EQ(result.scoreboard.row(1).record->measurement.status, Status::ok);
  EXPECT_FALSE(result.scoreboard.row(4).record) << "the fourth may have run beside the third";
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/results/ds_config_optimal.json"));
}

}  // namespace
}  // namespace dstune
