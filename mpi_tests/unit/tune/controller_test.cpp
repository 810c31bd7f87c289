#include "controller_fixture.hpp"
#include "dstune/base/file.hpp"

namespace dstune {
namespace {

TEST_F(ControllerTest, RunsEveryMemberOnceAndNamesTheBest) {
  const PlannedSpace members = space(4, {1, 2});
  FakeWorkers workers({});

  const Run result = run(members, workers, 4);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_EQ(std::set<std::string>(workers.ran().begin(), workers.ran().end()).size(), 8U);
  EXPECT_FALSE(workers.was_slot_taken_twice());
  const auto best = result.scoreboard.best();
  ASSERT_TRUE(best);
  EXPECT_EQ(result.scoreboard.row(*best).planned.experiment.name, "z0_gas1_tmbspg8_ng2");
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/results/ds_config_optimal.json"));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/results/z0_gas1_tmbspg1_ng1/metrics.json"));
}

TEST_F(ControllerTest, SaysHowLongItStillTakesFromTheFirstResultOn) {
  const PlannedSpace members = space(6, {1});
  FakeWorkers workers({});
  bool was_unknown = false;
  std::set<std::string> assumed;

  const Run result = run(members, workers, 1, {.watch = [&](const Controller& controller) {
                           const auto left = controller.time_left();
                           was_unknown |= !left && assumed.empty();
                           if (!left) return;
                           EXPECT_GE(left->seconds, 0);
                           EXPECT_LE(left->low_s, left->seconds);
                           EXPECT_GE(left->high_s, left->seconds);
                           assumed.insert(left->assumes.substr(0, left->assumes.find(" of ")));
                         }});

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_TRUE(was_unknown);
  for (const char* expected : {"about 5 more experiments", "about 1 more experiment"})
    EXPECT_TRUE(assumed.contains(expected)) << expected;
}

TEST_F(ControllerTest, ARunningJobShowsItsStateAndItsPage) {
  const auto shown = [&](const char* name) {
    const std::string path = folder_ + "/results/" + name;
    return std::filesystem::exists(path) ? json::Value::parse(read_file(path)) : json::Value();
  };
  FakeWorkers workers({});
  json::Value state, page;
  const auto look = [&](const Controller&) {
    if (state.is_null()) state = shown("status.json");
    if (page.is_null()) page = shown("report.json");
  };

  (void)run(space(4, {1}), workers, 1,
            {.watch = look, .began = SteadyClock::now() - std::chrono::hours(1)});

  EXPECT_EQ(page["state"]["is_running"], true);
  EXPECT_EQ(page["state"]["planned"], 4);
  EXPECT_EQ(state["phase"], "search");
  EXPECT_EQ(shown("status.json")["is_running"], false);
  EXPECT_EQ(shown("report.json")["state"]["done"], 4);
}

TEST_F(ControllerTest, ThePageWaitsWhileStepsAreTimedOnItsNode) {
  for (const bool is_here : {true, false}) {
    std::filesystem::remove_all(folder_);
    // Nothing better comes, so that it goes on until it is aborted.
    FakeWorkers workers({{"z0_gas1_tmbspg1_ng1", Behaviour::raced_out}});
    bool has_page = false;
    Settings settings{
        .watch =
            [&](const Controller&) {
              const std::string path = folder_ + "/results/report.json";
              if (std::filesystem::exists(path))
                has_page |= json::Value::parse(read_file(path))["state"]["is_running"].get<bool>();
            },
        .began = SteadyClock::now() - std::chrono::milliseconds(9500),
        .ranks_here = {is_here ? 0 : 7}};
    const auto end = SteadyClock::now() + std::chrono::milliseconds(1000);
    settings.signals = [end] { return SteadyClock::now() > end ? 2 : 0; };

    (void)run(space(1, {1}), workers, 1, settings);

    EXPECT_EQ(has_page, !is_here);
  }
}

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
  EXPECT_TRUE(result.scoreboard.best());
}

/// Members of 1000 bytes, 300 of them on the host.
PlannedSpace with_memory(PlannedSpace space) {
  for (PlannedMember& member : space.members) {
    member.planned.predicted.peak_memory_bytes = 1000;
    member.planned.predicted.host_memory_bytes = 300;
  }
  return space;
}

TEST_F(ControllerTest, PredictsWhatAGpuHoldsBesideItsArena) {
  const PlannedSpace members = with_memory(space(2, {1, 2}));
  FakeWorkers workers({});
  workers.gpu_non_arena_bytes = 520;
  ProcessMemoryPredictor memory(NonArenaMemory({0, 0}), NonArenaMemory({500, 510}, true), true);

  const Run result = run(members, workers, 2, {.memory = &memory});

  std::map<std::size_t, std::vector<std::int64_t>> predicted;
  for (const Row& row : result.scoreboard.rows()) {
    EXPECT_EQ(row.record->measurement.peak_memory.gpu_bytes, 1220);
    predicted[row.record->measurement.world_ranks.size()].push_back(
        row.record->predicted.gpu_memory_bytes);
  }
  // What the first of a size was measured to hold is what the next is predicted to.
  EXPECT_EQ(predicted[2], (std::vector<std::int64_t>{1210, 1220}));
  EXPECT_EQ(predicted[1].size(), 2U);
}

TEST_F(ControllerTest, OfAGpusProcessOnlyTheHostsArenaIsPredicted) {
  const PlannedSpace members = with_memory(space(2, {1}));
  FakeWorkers workers({});
  workers.non_arena_bytes = 60;
  ProcessMemoryPredictor memory(NonArenaMemory({50}, true), std::nullopt, true);

  const Run result = run(members, workers, 1, {.memory = &memory});

  std::vector<std::int64_t> predicted;
  for (const Row& row : result.scoreboard.rows())
    predicted.push_back(row.record->predicted.process_memory_bytes);
  EXPECT_EQ(predicted, (std::vector<std::int64_t>{350, 360}));
}

TEST_F(ControllerTest, ASignalStopsAndTheNextRunFinishes) {
  const PlannedSpace members = space(6, {1});
  FakeWorkers workers({});
  Settings settings;
  settings.signals = [&] { return workers.ran().size() >= 2 ? 1 : 0; };
  const Run stopped = run(members, workers, 1, settings);
  EXPECT_EQ(stopped.code, ExitCode::stopped_early);
  EXPECT_LT(workers.ran().size(), 6U);
  const PlannedExperiment& last = stopped.scoreboard.rows().back().planned;
  EXPECT_EQ(last.status, PlanStatus::planned) << "nobody decided against it";
  EXPECT_EQ(last.reason, "the job was stopped before it had run");
  FakeWorkers again({});

  const Run result = run(members, again, 1);

  EXPECT_EQ(result.code, ExitCode::ok);
  std::size_t repeats = 0;
  for (const Row& row : result.scoreboard.rows()) {
    EXPECT_TRUE(row.record);
    repeats += row.repeats.size();
  }
  EXPECT_LT(again.ran().size() - repeats, 6U) << "what was finished is not run again";
}

}  // namespace
}  // namespace dstune
