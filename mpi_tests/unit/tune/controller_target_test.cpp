#include <map>

#include "controller_fixture.hpp"

namespace dstune {
namespace {

/// Takes members in order and keeps what it hears of them.
class ListeningTuner : public CautiousTuner {
 public:
  explicit ListeningTuner(std::size_t count) : CautiousTuner(count, 1) {}
  void observe(std::size_t member, const Observation& observation) override {
    CautiousTuner::observe(member, observation);
    observed[member] = observation.value->value;
    order.push_back("observe " + std::to_string(member));
  }
  void revise(std::size_t member, const Observation& observation) override {
    EXPECT_EQ(observation.status, Status::ok);
    revised[member] = observation.value->value;
    order.push_back("revise " + std::to_string(member));
  }

  std::map<std::size_t, double> observed, revised;
  std::vector<std::string> order;
};

/// Of micro-batches 1, 2, 4, …, one sample each, on one rank.
double micro_batch(std::size_t member) {
  return static_cast<double>(1 << member);
}
double step_s(std::size_t member) {
  return 0.1 + 0.01 * micro_batch(member);
}

/// Steps take twice as long there, and each 0.3 s more for every sample.
SearchSettings in_target() {
  SearchSettings settings;
  settings.scoreboard.target =
      TargetConstants{{{2, 2, 2}, {0, 0.3}}, 0.03, "recorded runs", "a machine"};
  settings.overheads = [](const Experiment& experiment) {
    Overheads counts{};
    of(counts, Overhead::module_call) = static_cast<double>(experiment.config.micro_batch);
    return counts;
  };
  return settings;
}
double target_s(std::size_t member) {
  return 2 * step_s(member) + 0.3 * micro_batch(member);
}

TEST_F(ControllerTest, TunersHearTheTargetsTime) {
  const PlannedSpace members = space(3, {1});
  FakeWorkers workers({});
  ListeningTuner tuner(3);

  const Run result = run(members, workers, 1, in_target(), &tuner);

  EXPECT_EQ(result.code, ExitCode::ok);
  for (std::size_t member = 0; member < 3; ++member)
    EXPECT_NEAR(tuner.observed.at(member), micro_batch(member) / target_s(member), 1e-9);
  EXPECT_TRUE(tuner.revised.empty()) << "constants never change";
}

TEST_F(ControllerTest, WithoutATargetTunersHearWhatWasMeasured) {
  const PlannedSpace members = space(2, {1});
  FakeWorkers workers({});
  ListeningTuner tuner(2);
  SearchSettings settings = in_target();
  settings.scoreboard.target.reset();

  run(members, workers, 1, settings, &tuner);

  for (std::size_t member = 0; member < 2; ++member)
    EXPECT_NEAR(tuner.observed.at(member), micro_batch(member) / step_s(member), 1e-9);
}

TEST_F(ControllerTest, TunersHearOfEarlierOnesAnewWhenTheUsersRunWasMeasured) {
  const PlannedSpace members = space(4, {1});
  FakeWorkers workers({});
  ListeningTuner tuner(4);
  SearchSettings settings = in_target();
  // Three times as long as the constants say.
  settings.scoreboard.user_runs = {{2, "/own/log", 3 * target_s(2), 0}};

  const Run result = run(members, workers, 1, settings, &tuner);

  EXPECT_TRUE(result.scoreboard.is_calibrated());
  EXPECT_EQ(tuner.order, (std::vector<std::string>{"observe 0", "observe 1", "revise 0", "revise 1",
                                                   "observe 2", "observe 3"}));
  for (const std::size_t member : {0, 1})
    EXPECT_NEAR(tuner.revised.at(member), micro_batch(member) / target_s(member) / 3, 1e-9);
  for (const std::size_t member : {2, 3})
    EXPECT_NEAR(tuner.observed.at(member), micro_batch(member) / target_s(member) / 3, 1e-9);
}

TEST_F(ControllerTest, ChallengersAreRacedInTheTargetsTime) {
  const PlannedSpace members = space(2, {1});
  FakeWorkers workers({});
  CautiousTuner tuner(2, 1);
  SearchSettings settings = in_target();
  settings.races = true;

  run(members, workers, 1, settings, &tuner);

  // Twice the first one's target time for twice its samples, less its own overheads, over 2.
  const std::string second = members.experiment(1).name;
  EXPECT_NEAR(workers.incumbents(second).front().step_s, (2 * target_s(0) - 0.6) / 2, 1e-9);
}

TEST_F(ControllerTest, RacesGoOnBesideTheUsersRunWhichIsMeasuredFully) {
  const PlannedSpace members = space(3, {1});
  FakeWorkers workers({});
  CautiousTuner tuner(3, 1);
  SearchSettings settings = in_target();
  settings.races = true;
  settings.scoreboard.user_runs = {{1, "/own/log", target_s(1), 0}};

  run(members, workers, 1, settings, &tuner);

  const auto first_bar_s = [&](std::size_t member) {
    return workers.incumbents(members.experiment(member).name).front().step_s;
  };
  EXPECT_EQ(first_bar_s(1), 0);
  EXPECT_GT(first_bar_s(2), 0);
}

}  // namespace
}  // namespace dstune
