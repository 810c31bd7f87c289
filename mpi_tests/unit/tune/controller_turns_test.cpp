// Finalists that stay built and take turns.
#include <algorithm>
#include <limits>

#include <gmock/gmock.h>

#include "control/built_finalists.hpp"
#include "controller_fixture.hpp"
#include "dstune/base/file.hpp"

namespace dstune {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr RankBytes much{std::numeric_limits<std::int64_t>::max() / 4,
                         std::numeric_limits<std::int64_t>::max() / 4};

class TurnsTest : public ControllerTest {
 protected:
  /// Two groups of two that do the same, and one that is slow; each takes so much of a rank.
  static PlannedSpace twins_and_a_slow_one(std::int64_t bytes = 60) {
    PlannedSpace space;
    for (const char* name : {"one", "other", "slow"}) {
      add_member(space, name, 2, 4);
      space.members.back().planned.predicted.peak_memory_bytes = bytes;
    }
    return space;
  }
  static std::vector<Status> statuses(const Row& row) {
    std::vector<Status> all;
    for (const Repeat& repeat : row.repeats) all.push_back(repeat.measurement.status);
    return all;
  }
};

TEST_F(TurnsTest, FinalistsAreBuiltOnceAndTakeTurnsInOneRun) {
  FakeWorkers workers({{"slow", Behaviour::slow}});

  const Run result = run(twins_and_a_slow_one(), workers, 4, {.built_bytes = much});

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_TRUE(result.scoreboard.finals().is_done);
  EXPECT_FALSE(workers.was_slot_taken_twice());
  ASSERT_GE(workers.turns().size(), 2U);
  EXPECT_THAT(workers.turns(), Each(UnorderedElementsAre("one", "other")));
  EXPECT_THAT(workers.turns()[0], Not(testing::Eq(workers.turns()[1]))) << "A B, then B A";
  EXPECT_EQ(workers.times_built("one"), 1);
  EXPECT_EQ(workers.times_built("other"), 1);
  EXPECT_THAT(workers.built(), IsEmpty()) << "given back at the end of the finals";
  const PackedList<Row>& rows = result.scoreboard.rows();
  EXPECT_EQ(rows[0].repeats.size(), rows[1].repeats.size());
  for (const std::size_t member : {0, 1}) {
    for (std::size_t round = 0; round < rows[member].repeats.size(); ++round) {
      const Repeat& repeat = rows[member].repeats[round];
      EXPECT_EQ(repeat.kind, RepeatKind::final_round);
      EXPECT_EQ(repeat.round, static_cast<int>(round) + 1);
      EXPECT_TRUE(repeat.is_alone);
      EXPECT_LT(repeat.started_at, repeat.finished_at) << "as the ranks say it";
    }
  }
  EXPECT_NE(rows[0].repeats[0].started_at, rows[1].repeats[0].started_at);

  FakeWorkers second({});
  (void)run(twins_and_a_slow_one(), second, 4, {.built_bytes = much});
  EXPECT_THAT(second.ran(), IsEmpty()) << "finished rounds are not run again";
}

TEST_F(TurnsTest, WithMemoryForOneEachIsBuiltForItsRun) {
  FakeWorkers workers({{"slow", Behaviour::slow}});

  const Run result = run(twins_and_a_slow_one(), workers, 4, {.built_bytes = RankBytes{100, 100}});

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_TRUE(result.scoreboard.finals().is_done);
  EXPECT_THAT(workers.turns(), IsEmpty());
  EXPECT_GE(workers.times_ran("one"), 2);
  EXPECT_GE(workers.times_ran("other"), 2);
}

TEST_F(TurnsTest, OneThatLacksMemoryBesideAnotherIsRunWithoutIt) {
  FakeWorkers workers({{"slow", Behaviour::slow}, {"other", Behaviour::fits_alone}});

  const Run result = run(twins_and_a_slow_one(), workers, 4, {.built_bytes = much});

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_TRUE(result.scoreboard.finals().is_done);
  EXPECT_THAT(workers.turns(), SizeIs(1)) << "nothing stays built after that";
  EXPECT_THAT(workers.built(), IsEmpty());
  const PackedList<Row>& rows = result.scoreboard.rows();
  for (const std::size_t member : {0, 1})
    EXPECT_THAT(statuses(rows[member]), Each(Status::ok)) << "it fits alone";
  EXPECT_GE(rows[1].repeats.size(), 1U);
}

TEST_F(TurnsTest, ADeathInTurnsIsThatOfTheOneWhoseTurnItWas) {
  FakeWorkers workers({{"slow", Behaviour::slow}, {"one", Behaviour::dies_in_turns}});

  const Run result =
      run(twins_and_a_slow_one(), workers, 4, {.inactivity_timeout_s = 0.05, .built_bytes = much});

  EXPECT_EQ(result.code, ExitCode::ok) << result.reason;
  EXPECT_THAT(result.lost, ElementsAre(1));
  const PackedList<Row>& rows = result.scoreboard.rows();
  EXPECT_THAT(statuses(rows[0]), Contains(Status::timed_out).Times(1));
  EXPECT_THAT(statuses(rows[1]), Each(Status::ok)) << "it only took part";
  EXPECT_EQ(workers.times_built("one"), 2) << "anew, on the ranks that are left";
  EXPECT_THAT(workers.built(), IsEmpty());
  EXPECT_TRUE(result.scoreboard.finals().is_done);
}

TEST_F(TurnsTest, WhatRanWhenAJobDiedTakesNoTurnsWithOthers) {
  const PlannedSpace members = twins_and_a_slow_one();
  {
    ResultsFolder results(folder_ + "/results", folder_ + "/exps");
    Journal journal(results.journal_path(), 0);
    journal.add(event::job_started(json::Value::object()));
    for (const PlannedMember& member : members.members) {
      Record record;
      record.experiment = member.planned.experiment;
      record.measurement.status = Status::ok;
      record.measurement.step_times_s.assign(8, record.experiment.name == "slow" ? 0.3 : 0.1);
      record.finished_at = std::chrono::system_clock::now();
      record.started_at = record.finished_at - std::chrono::seconds(1);
      journal.add(event::finished("key-" + record.experiment.name, record));
    }
    for (const char* name : {"one", "other"})
      journal.add(event::repeat_started(std::string("key-") + name, name, RepeatKind::final_round,
                                        1, {0, 1}));
    journal.commit();
  }
  FakeWorkers workers({});

  const Run result = run(members, workers, 4, {.built_bytes = much});

  EXPECT_EQ(result.code, ExitCode::ok);
  ASSERT_GE(workers.turns().size(), 2U);
  EXPECT_THAT(workers.turns(), Each(SizeIs(1))) << "else nobody could tell which one it is";
  EXPECT_EQ(workers.times_built("one"), 1);
  EXPECT_EQ(workers.times_built("other"), 1);
}

TEST_F(TurnsTest, AStopInTurnsIsResumed) {
  FakeWorkers workers({{"slow", Behaviour::slow}});
  int asked = 0;
  const Run stopped =
      run(twins_and_a_slow_one(), workers, 4,
          {.signals = [&] { return workers.turns().empty() ? 0 : ++asked; }, .built_bytes = much});
  EXPECT_EQ(stopped.code, ExitCode::stopped_early);

  FakeWorkers second({});
  const Run result = run(twins_and_a_slow_one(), second, 4, {.built_bytes = much});

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_TRUE(result.scoreboard.finals().is_done);
  EXPECT_EQ(second.times_ran("slow"), 0) << "first runs are known";
}

Scoreboard scoreboard_of(const std::vector<Prediction>& planned) {
  std::vector<Row> rows;
  for (const Prediction& predicted : planned) {
    Row& row = rows.emplace_back();
    row.planned.experiment.shape = {1, 1};
    row.planned.predicted = predicted;
  }
  return Scoreboard({}, std::move(rows));
}
Prediction bytes(std::int64_t device, std::int64_t host = 0, std::int64_t disk = 0) {
  Prediction predicted;
  predicted.peak_memory_bytes = device + host;
  predicted.host_memory_bytes = host;
  predicted.disk_bytes = disk;
  return predicted;
}
const std::vector<std::vector<int>> one_rank{{0}};

TEST(BuiltFinalistsTest, StayWhereThereIsRoomForTheRest) {
  const Scoreboard scoreboard = scoreboard_of({bytes(30), bytes(30), bytes(30), bytes(30)});
  SlotPool slots(one_rank);
  const auto num_staying = [&](std::int64_t device_bytes) {
    BuiltFinalists built(scoreboard, slots, RankBytes{device_bytes, 1000});
    built.choose({0, 1, 2, 3});
    int count = 0;
    for (const std::size_t member : {0, 1, 2, 3}) count += built.stays(member) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(num_staying(120), 4);
  EXPECT_EQ(num_staying(119), 2) << "and room to build one of the others";
  EXPECT_EQ(num_staying(90), 2);
  EXPECT_EQ(num_staying(89), 1);
  EXPECT_EQ(num_staying(59), 0);
}

TEST(BuiltFinalistsTest, HostsAndDisksCount) {
  const Scoreboard scoreboard = scoreboard_of({bytes(1, 50, 8), bytes(1, 50, 8)});
  for (const auto& [rank_host, node_host, disk, fits] :
       std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, bool>>{
           {100, 100, 16, true},
           {99, 100, 16, false},
           {100, 99, 16, false},
           {100, 100, 15, false}}) {
    SlotPool slots(one_rank, {{node_host, disk}});
    BuiltFinalists built(scoreboard, slots, RankBytes{1000, rank_host});
    built.choose({0, 1});
    EXPECT_EQ(built.stays(0) && built.stays(1), fits)
        << rank_host << " " << node_host << " " << disk;
  }
}

TEST(BuiltFinalistsTest, OnesThatLeaveARoundStayWhileThereIsRoom) {
  const Scoreboard scoreboard = scoreboard_of({bytes(40), bytes(40), bytes(40)});
  SlotPool slots(one_rank);
  for (const bool has_room : {true, false}) {
    BuiltFinalists built(scoreboard, slots, RankBytes{has_room ? 120 : 119, 1000});
    built.choose({0, 1});
    built.choose({1, 2});
    EXPECT_TRUE(built.stays(1) && built.stays(2));
    EXPECT_EQ(built.stays(0), has_room) << "it may come back";
  }
}

TEST(BuiltFinalistsTest, WhatIsBuiltStaysBeforeOthers) {
  const Scoreboard scoreboard = scoreboard_of({bytes(40), bytes(40), bytes(40)});
  SlotPool slots(one_rank);
  BuiltFinalists built(scoreboard, slots, RankBytes{100, 1000});
  built.choose({1, 2});
  ASSERT_TRUE(built.stays(1) && built.stays(2));
  built.choose({0, 1, 2});
  EXPECT_FALSE(built.stays(0));
  EXPECT_TRUE(built.stays(1));
  EXPECT_EQ(built.needs_beside(0).host_bytes, 0);
  built.give_up();
  built.choose({0, 1});
  EXPECT_FALSE(built.stays(0) || built.stays(1));
}

}  // namespace
}  // namespace dstune
