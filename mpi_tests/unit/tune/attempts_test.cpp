#include "protocol/attempts.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

/// A machine and its driver's books: what it wants sent, and how attempts ended.
class AttemptsTest : public testing::Test {
 protected:
  static constexpr double grace_s = 10;

  /// So many seconds after the start, on both clocks.
  static Moment at(double s) {
    using Wall = std::chrono::system_clock;
    const std::chrono::duration<double> since(s);
    return {SteadyClock::time_point(std::chrono::hours(1)) + to_duration(s),
            Wall::time_point(std::chrono::hours(500'000)) +
                std::chrono::duration_cast<Wall::duration>(since)};
  }
  static Attempts::Limits limits() {
    Attempts::Limits limits{
        .inactivity_timeout_s = 60, .timeout_s = 300, .overdue = "took too long"};
    limits.abort_grace_s = grace_s;
    limits.drain_timeout_s = 5;
    return limits;
  }
  Attempts::Number begin(const std::vector<int>& world_ranks, double s = 0,
                         const Attempts::Limits& given = limits()) {
    message::Assign order;
    order.experiment = "it";
    order.world_ranks = world_ranks;
    return machine_.begin(order, given, at(s));
  }
  /// All members are ready, so that it runs.
  Attempts::Number run(const std::vector<int>& world_ranks, double s = 0,
                       const Attempts::Limits& given = limits()) {
    const Attempts::Number number = begin(world_ranks, s, given);
    for (const int rank : world_ranks) machine_.on(rank, message::Ready{number}, at(s));
    collect();
    sent_.clear();
    return number;
  }
  void gone(int rank, Attempts::Number number, double s, const std::string& reason = "told to",
            bool is_cause = false) {
    machine_.on(rank, message::Gone{number, Status::failed, reason, is_cause}, at(s));
  }
  static Measurement measured(Status status = Status::ok) {
    Measurement measurement;
    measurement.status = status;
    measurement.energy_j = 10;
    return measurement;
  }

  void collect() {
    for (Attempts::Outgoing& outgoing : machine_.take_outgoing())
      sent_.push_back(std::move(outgoing));
    for (Attempts::Event& event : machine_.take_events()) {
      if (auto* ended = std::get_if<Attempts::Ended>(&event)) ended_.push_back(std::move(*ended));
      if (auto* failed = std::get_if<Attempts::Failed>(&event)) failed_.push_back(failed->reason);
      if (auto* stepped = std::get_if<Attempts::Stepped>(&event)) steps_.push_back(stepped->steps);
    }
  }
  /// Who was sent such a message, since the last time.
  template <class M>
  std::vector<int> receivers() {
    collect();
    std::vector<int> ranks;
    for (const Attempts::Outgoing& outgoing : sent_)
      if (std::holds_alternative<M>(outgoing.message)) ranks.push_back(outgoing.world_rank);
    std::erase_if(sent_, [](const Attempts::Outgoing& outgoing) {
      return std::holds_alternative<M>(outgoing.message);
    });
    return ranks;
  }
  /// The only attempt that has ended since the last time.
  Attempts::Ended the_end() {
    collect();
    EXPECT_EQ(ended_.size(), 1U);
    Attempts::Ended ended = ended_.empty() ? Attempts::Ended{} : std::move(ended_.front());
    ended_.clear();
    return ended;
  }
  bool has_ended() {
    collect();
    return !ended_.empty();
  }

  Attempts machine_{
      {.stop_grace_s = 20,
       .share_a_node = [](const std::vector<int>& one, const std::vector<int>& other) {
         // Four ranks a node.
         return one.front() / 4 == other.front() / 4;
       }}};
  std::vector<Attempts::Outgoing> sent_;
  std::vector<Attempts::Ended> ended_;
  std::vector<std::string> failed_;
  std::vector<int> steps_;
};

// Or ranks that choose at once would go on with candidates of their own.
TEST_F(AttemptsTest, TheFirstToTellDecidesWhichCandidatesServeFromThenOn) {
  message::Profile order;
  order.world_ranks = {0, 1};
  const Attempts::Number profiling = machine_.begin(order, limits(), at(0));
  machine_.on(1, message::Profiled{profiling, {}, 0, 0, {{"one", "1 of 3"}}}, at(1));
  machine_.on(0, message::Profiled{profiling, {}, 0, 0, {{"one", "2 of 3"}, {"two", "0 of 3"}}},
              at(1));
  EXPECT_THAT(machine_.take_new_choices(),
              ElementsAre(Pair("one", "1 of 3"), Pair("two", "0 of 3")));
  const Attempts::Number first = run({2});
  machine_.on(2, message::Outcome{first, measured(), {}, {{"three", "1 of 2"}}}, at(2));
  EXPECT_THAT(machine_.take_new_choices(), ElementsAre(Pair("three", "1 of 2")));
  EXPECT_THAT(machine_.take_new_choices(), IsEmpty());
  collect();
  sent_.clear();
  begin({0, 3});
  collect();
  ASSERT_EQ(sent_.size(), 2U);
  for (const Attempts::Outgoing& outgoing : sent_)
    EXPECT_THAT(std::get<message::Assign>(outgoing.message).choices,
                ElementsAre(Pair("one", "1 of 3"), Pair("three", "1 of 2"), Pair("two", "0 of 3")));
}

TEST_F(AttemptsTest, GoesOnceEveryMemberIsReadyAndEndsWithTheLeadersOutcome) {
  const Attempts::Number number = begin({2, 3});
  EXPECT_THAT(receivers<message::Assign>(), ElementsAre(2, 3));
  machine_.on(3, message::Ready{number}, at(1));
  machine_.on(3, message::Ready{number}, at(1));
  EXPECT_THAT(receivers<message::Go>(), IsEmpty());
  machine_.on(2, message::Ready{number}, at(2));
  EXPECT_THAT(receivers<message::Go>(), ElementsAre(2, 3));

  machine_.on(2, message::Progress{number, 7, 0.1}, at(3));
  machine_.on(2, message::Outcome{number, measured()}, at(4));

  const Attempts::Ended ended = the_end();
  EXPECT_THAT(steps_, ElementsAre(7));
  EXPECT_EQ(ended.attempt, number);
  EXPECT_EQ(ended.measurement.status, Status::ok);
  EXPECT_EQ(ended.started_at, at(2).wall);
  EXPECT_EQ(ended.finished_at, at(4).wall);
  EXPECT_TRUE(ended.is_alone);
  EXPECT_FALSE(ended.is_aborted);
  EXPECT_TRUE(machine_.is_empty());
}

TEST_F(AttemptsTest, StepsAreTimedFromGoToTheEndOnTheMembersAlone) {
  const Attempts::Number number = begin({0, 1});
  EXPECT_FALSE(machine_.is_timing({0, 1})) << "it is being built";
  for (const int rank : {0, 1}) machine_.on(rank, message::Ready{number}, at(1));
  EXPECT_TRUE(machine_.is_timing({1, 2}));
  EXPECT_FALSE(machine_.is_timing({2, 3}));
  machine_.stop(at(2));
  EXPECT_TRUE(machine_.is_timing({0})) << "its last step goes on";
  machine_.on(0, message::Outcome{number, measured()}, at(3));
  EXPECT_FALSE(machine_.is_timing({0, 1}));
}

TEST_F(AttemptsTest, MembersGiveUpLongAfterAbortShouldHaveReachedThem) {
  const Attempts::Number number = begin({0});
  const std::vector<Attempts::Outgoing> sent = machine_.take_outgoing();
  const auto& order = std::get<message::Assign>(sent.at(0).message);
  EXPECT_EQ(order.attempt, number);
  EXPECT_GT(order.timeout_s, 300 + grace_s);
  EXPECT_EQ(order.drain_timeout_s, 5);
  Attempts::Limits none;
  begin({1}, 0, none);
  EXPECT_GT(std::get<message::Assign>(machine_.take_outgoing().at(0).message).timeout_s, 3600);
}

TEST_F(AttemptsTest, WhatDoesNotFitEndsBeforeGo) {
  const Attempts::Number number = begin({0, 1});
  machine_.on(0, message::Outcome{number, measured(Status::out_of_memory)}, at(3));
  const Attempts::Ended ended = the_end();
  EXPECT_EQ(ended.measurement.status, Status::out_of_memory);
  EXPECT_EQ(ended.started_at, ended.finished_at);
}

TEST_F(AttemptsTest, NumbersAreNotUsedAgain) {
  const Attempts::Number first = run({0});
  machine_.on(0, message::Outcome{first, measured()}, at(1));
  EXPECT_GT(begin({0}), first);
}

TEST_F(AttemptsTest, LateAnswersOfAnEarlierAttemptAreDropped) {
  const Attempts::Number first = run({0, 1});
  machine_.on(0, message::Outcome{first, measured()}, at(1));
  the_end();
  const Attempts::Number second = begin({0, 1}, 2);
  receivers<message::Assign>();

  machine_.on(0, message::Ready{first}, at(3));
  machine_.on(1, message::Ready{first}, at(3));
  gone(1, first, 3, "had ended");
  machine_.on(0, message::Outcome{first, measured()}, at(3));
  machine_.on(0, message::Quit{}, at(3));

  EXPECT_FALSE(has_ended());
  EXPECT_THAT(sent_, IsEmpty());
  // Nor are they signs of life.
  machine_.tick(at(2 + 61));
  EXPECT_THAT(receivers<message::Abort>(), ElementsAre(0, 1));
  gone(0, second, 64);
  gone(1, second, 64);
  EXPECT_THAT(the_end().measurement.reason, HasSubstr("no sign of life for"));
}

TEST_F(AttemptsTest, SilenceIsBrokenByAnySignOfLife) {
  const Attempts::Number number = run({0, 1});
  machine_.tick(at(59));
  machine_.on(0, message::Progress{number, 1, 0.1}, at(59));
  machine_.tick(at(118));
  EXPECT_THAT(receivers<message::Abort>(), IsEmpty());
  machine_.tick(at(120));
  EXPECT_THAT(receivers<message::Abort>(), ElementsAre(0, 1));
  machine_.tick(at(121));
  EXPECT_THAT(receivers<message::Abort>(), IsEmpty()) << "once is enough";
}

TEST_F(AttemptsTest, SlowStepsMayBeSilentForLonger) {
  const Attempts::Number number = run({0});
  machine_.on(0, message::Progress{number, 1, 6}, at(1));
  machine_.tick(at(1 + 119));
  EXPECT_THAT(receivers<message::Abort>(), IsEmpty());
  machine_.tick(at(1 + 121));
  EXPECT_THAT(receivers<message::Abort>(), ElementsAre(0));
}

TEST_F(AttemptsTest, WhatTakesTooLongIsAbortedWithTheReasonThatWasGiven) {
  const Attempts::Number number = run({0});
  for (int s = 0; s < 300; s += 10) {
    machine_.on(0, message::Progress{number, s, 0.1}, at(s));
    machine_.tick(at(s));
  }
  EXPECT_THAT(receivers<message::Abort>(), IsEmpty());
  machine_.tick(at(300.5));
  gone(0, number, 301);
  const Attempts::Ended ended = the_end();
  EXPECT_EQ(ended.measurement.status, Status::timed_out);
  EXPECT_EQ(ended.measurement.reason, "took too long");
  EXPECT_THAT(ended.measurement.world_ranks, ElementsAre(0));
  EXPECT_TRUE(ended.is_aborted);
  EXPECT_THAT(ended.unusable, IsEmpty());
}

TEST_F(AttemptsTest, WithoutLimitsNothingIsOverdue) {
  run({0}, 0, {});
  machine_.tick(at(1e6));
  EXPECT_THAT(receivers<message::Abort>(), IsEmpty());
}

TEST_F(AttemptsTest, AMemberThatDiesWhileItBuildsEndsTheAttempt) {
  const Attempts::Number number = begin({0, 1, 2});
  machine_.on(0, message::Ready{number}, at(1));
  EXPECT_EQ(machine_.awaited_ranks(), (std::set<int>{0, 1, 2}));
  machine_.died(1);
  machine_.tick(at(2));
  EXPECT_THAT(receivers<message::Abort>(), ElementsAre(0, 1, 2));
  gone(0, number, 3);
  EXPECT_FALSE(has_ended());
  gone(2, number, 4);
  // Nobody waits for an answer of the dead.
  const Attempts::Ended ended = the_end();
  EXPECT_EQ(ended.measurement.status, Status::failed);
  EXPECT_EQ(ended.measurement.reason, "rank 1 died; lost rank 1");
  EXPECT_EQ(ended.started_at, ended.finished_at);
  EXPECT_THAT(ended.lost, ElementsAre(1));
  EXPECT_THAT(ended.unusable, ElementsAre(1));
  EXPECT_EQ(machine_.lost_ranks(), std::set<int>{1});
  // … and whoever is given it all the same hears of it at once.
  begin({1, 2}, 5);
  machine_.tick(at(5));
  EXPECT_THAT(receivers<message::Abort>(), ElementsAre(1, 2));
}

TEST_F(AttemptsTest, HowAMemberWasLostIsTheReason) {
  run({0, 1});
  machine_.died(1, "does not answer");
  machine_.died(5);
  machine_.tick(at(2));
  gone(0, 1, 3);
  EXPECT_EQ(the_end().measurement.reason, "rank 1 does not answer; lost rank 1");
  EXPECT_EQ(machine_.lost_ranks(), (std::set<int>{1, 5})) << "the idle among them";
}

TEST_F(AttemptsTest, WhoDiedIsNamedBeforeWhatItsPeersSawOfIt) {
  const Attempts::Number number = run({0, 1, 2});
  gone(0, number, 1, "rank 0: Connection reset by peer", true);
  gone(2, number, 1.1, "rank 2: Connection reset by peer", true);
  EXPECT_FALSE(has_ended());
  machine_.died(1);
  machine_.tick(at(2));
  const Attempts::Ended ended = the_end();
  EXPECT_EQ(ended.measurement.reason, "rank 1 died; rank 0: Connection reset by peer; lost rank 1");
  EXPECT_THAT(ended.lost, ElementsAre(1));
}

TEST_F(AttemptsTest, WhoDiesAfterItsAnswerIsNotMissed) {
  const Attempts::Number number = run({0, 1});
  gone(1, number, 1, "rank 1: a bug", true);
  machine_.died(1);
  gone(0, number, 2);
  const Attempts::Ended ended = the_end();
  EXPECT_EQ(ended.measurement.reason, "rank 1: a bug");
  EXPECT_THAT(ended.unusable, IsEmpty());
}

TEST_F(AttemptsTest, WhoDoesNotAnswerAbortWithinTheGraceIsLost) {
  const Attempts::Number number = run({0, 1, 2});
  gone(0, number, 1, "rank 0: a bug", true);
  EXPECT_THAT(receivers<message::Abort>(), ElementsAre(1, 2)) << "the others may wait for it";
  machine_.tick(at(1 + grace_s + 4.9));
  EXPECT_FALSE(has_ended()) << "devices may still come to rest";
  machine_.tick(at(1 + grace_s + 5));
  const Attempts::Ended ended = the_end();
  EXPECT_EQ(ended.measurement.reason, "rank 0: a bug; lost ranks 1, 2");
  EXPECT_THAT(ended.lost, ElementsAre(1, 2));
  EXPECT_THAT(ended.unusable, ElementsAre(1, 2));
  EXPECT_EQ(machine_.lost_ranks(), (std::set<int>{1, 2}));
  EXPECT_FALSE(ended.is_cut_short);
}

TEST_F(AttemptsTest, AnOutcomeAfterAbortIsNoResult) {
  const Attempts::Number number = run({0, 1});
  gone(1, number, 1, "rank 1: a bug", true);
  machine_.on(0, message::Outcome{number, measured()}, at(2));
  EXPECT_FALSE(has_ended());
  gone(0, number, 3, "had ended");
  EXPECT_EQ(the_end().measurement.reason, "rank 1: a bug");
}

TEST_F(AttemptsTest, ACauseThatIsHeardLateIsBelieved) {
  const Attempts::Number number = run({0, 1, 2});
  machine_.on(0, message::Gone{number, Status::timed_out, "a member has left"}, at(1));
  gone(2, number, 2, "rank 2: a bug", true);
  gone(1, number, 3, "rank 1: another bug", true);
  const Attempts::Ended ended = the_end();
  EXPECT_EQ(ended.measurement.status, Status::failed);
  EXPECT_EQ(ended.measurement.reason, "rank 2: a bug") << "the first one";
  EXPECT_THAT(failed_, ElementsAre("a member has left", "rank 2: a bug", "rank 1: another bug"));
}

TEST_F(AttemptsTest, WhatEveryMemberTellsOfAFailureIsKept) {
  const Attempts::Number number = run({0, 1});
  machine_.on(0, message::Gone{.attempt = number, .reason = "a bug", .notes = {"a"}}, at(1));
  machine_.on(1, message::Gone{.attempt = number, .reason = "told to", .notes = {"b"}}, at(2));
  EXPECT_THAT(the_end().notes, ElementsAre("a", "b"));
}

TEST_F(AttemptsTest, WhatALimitSaysIsNotReplaced) {
  const Attempts::Number number = run({0, 1});
  machine_.tick(at(61));
  gone(0, number, 62, "rank 0: a bug", true);
  gone(1, number, 62);
  EXPECT_THAT(the_end().measurement.reason, HasSubstr("no sign of life"));
}

TEST_F(AttemptsTest, AMemberIsLostAndOneIsWithoutADevice) {
  const Attempts::Number number = run({0, 1, 2, 3});
  message::Gone without{number, Status::failed, "an illegal address", true, message::Loss::device};
  machine_.on(3, without, at(1));
  without = {number, Status::failed, "late", true, message::Loss::device_answer};
  machine_.on(2, without, at(2));
  gone(0, number, 3);
  machine_.tick(at(1 + grace_s + 5));
  const Attempts::Ended ended = the_end();
  EXPECT_EQ(ended.measurement.reason,
            "an illegal address; lost rank 1; device lost by rank 3; no answer from the device of "
            "rank 2");
  EXPECT_THAT(ended.lost, ElementsAre(1));
  EXPECT_THAT(ended.unusable, ElementsAre(1, 2, 3));
  EXPECT_EQ(machine_.lost_ranks(), std::set<int>{1}) << "the others' processes are there";
}

TEST_F(AttemptsTest, NeighboursKnowOfEachOther) {
  const Attempts::Number one = run({0, 1});
  const Attempts::Number far = run({4, 5});
  machine_.on(0, message::Outcome{one, measured()}, at(1));
  Attempts::Ended ended = the_end();
  EXPECT_FALSE(ended.is_alone);
  EXPECT_TRUE(ended.measurement.energy_j) << "it had its node to itself";
  const Attempts::Number near = run({6, 7});
  machine_.on(4, message::Outcome{far, measured()}, at(2));
  ended = the_end();
  EXPECT_FALSE(ended.is_alone);
  EXPECT_FALSE(ended.measurement.energy_j) << "whose it was can not be told";
  machine_.on(6, message::Outcome{near, measured()}, at(3));
  EXPECT_FALSE(the_end().measurement.energy_j);
}

TEST_F(AttemptsTest, TheLeaderHearsWhatItIsRacedAgainst) {
  const Attempts::Number number = begin({2, 3});
  machine_.race(number, {.step_s = 0.5});
  EXPECT_THAT(receivers<message::Incumbent>(), ElementsAre(2));
  machine_.race(number + 1, {.step_s = 0.5});
  EXPECT_THAT(receivers<message::Incumbent>(), IsEmpty());
}

TEST_F(AttemptsTest, StopEndsWhatIsMeasuredAfterItsStepAndAbortsTheRest) {
  const Attempts::Number building = begin({0, 1});
  const Attempts::Number measuring = run({2, 3});
  const Attempts::Number other = run({4, 5});
  machine_.stop(at(1));
  EXPECT_THAT(receivers<message::Stop>(), ElementsAre(2, 4));
  EXPECT_THAT(receivers<message::Abort>(), ElementsAre(0, 1));
  gone(0, building, 2);
  gone(1, building, 2);
  EXPECT_TRUE(the_end().is_cut_short);
  machine_.on(2, message::Outcome{measuring, measured()}, at(3));
  Attempts::Ended ended = the_end();
  EXPECT_FALSE(ended.is_cut_short) << "it had enough steps";
  EXPECT_EQ(ended.measurement.status, Status::ok);
  machine_.on(4, message::Outcome{other, measured(Status::raced_out)}, at(3));
  EXPECT_TRUE(the_end().is_cut_short) << "it had not";
}

TEST_F(AttemptsTest, NobodyWaitsLongAtTheEndOfTheJob) {
  run({0, 1});
  const Attempts::Number failing = run({2, 3});
  gone(2, failing, 1, "rank 2: a bug", true);
  machine_.stop(at(2));
  // The time for devices is no more.
  machine_.tick(at(2 + grace_s));
  Attempts::Ended ended = the_end();
  EXPECT_THAT(ended.lost, ElementsAre(3));
  EXPECT_TRUE(ended.is_cut_short);
  receivers<message::Abort>();
  machine_.tick(at(2 + 20));
  EXPECT_THAT(receivers<message::Abort>(), IsEmpty());
  machine_.tick(at(2 + 20.5));
  EXPECT_THAT(receivers<message::Abort>(), ElementsAre(0, 1)) << "it did not end after STOP";
  machine_.tick(at(2 + 20.5 + grace_s));
  ended = the_end();
  EXPECT_THAT(ended.lost, ElementsAre(0, 1));
  EXPECT_TRUE(machine_.is_empty());
}

TEST_F(AttemptsTest, AbortEndsAllThatIsUnderWay) {
  const Attempts::Number building = begin({0});
  const Attempts::Number running = run({1});
  receivers<message::Assign>();
  machine_.abort(at(1));
  machine_.abort(at(2));
  EXPECT_THAT(receivers<message::Abort>(), ElementsAre(0, 1));
  gone(0, building, 3);
  EXPECT_EQ(the_end().measurement.reason, "stopped");
  gone(1, running, 3);
  EXPECT_EQ(the_end().measurement.status, Status::timed_out);
}

// A group that profiles the machine needs no GO, and every member answers for itself.
TEST_F(AttemptsTest, ProfilingEndsWhenEveryMemberHasAnswered) {
  message::Profile order;
  order.world_ranks = {0, 1, 2};
  const Attempts::Number number = machine_.begin(order, limits(), at(0));
  EXPECT_THAT(receivers<message::Profile>(), ElementsAre(0, 1, 2));
  message::Profiled answer;
  answer.attempt = number;
  for (const int rank : {2, 0}) machine_.on(rank, answer, at(1));
  EXPECT_EQ(machine_.awaited_ranks(), std::set<int>{1});
  std::vector<int> answered;
  for (const Attempts::Event& event : machine_.take_events())
    answered.push_back(std::get<Attempts::Profiled>(event).world_rank);
  EXPECT_THAT(answered, ElementsAre(2, 0));
  machine_.on(1, answer, at(2));
  const Attempts::Ended ended = the_end();
  EXPECT_EQ(ended.measurement.status, Status::ok);
  EXPECT_FALSE(ended.is_aborted);
}

TEST_F(AttemptsTest, WhatWasProfiledBeforeAPeerFailedCounts) {
  message::Profile order;
  order.world_ranks = {0, 1, 2};
  const Attempts::Number number = machine_.begin(order, limits(), at(0));
  message::Profiled answer;
  answer.attempt = number;
  machine_.on(0, answer, at(1));
  gone(1, number, 2, "rank 1: a bug", true);
  EXPECT_THAT(receivers<message::Abort>(), ElementsAre(2)) << "the first one is through";
  machine_.on(2, answer, at(3));
  const Attempts::Ended ended = the_end();
  EXPECT_TRUE(ended.is_aborted);
  EXPECT_EQ(ended.measurement.reason, "rank 1: a bug");
  EXPECT_THAT(ended.lost, IsEmpty());
}

TEST_F(AttemptsTest, EachOfThoseThatTookTurnsHasItsTimes) {
  const Attempts::Number number = run({0, 1}, 100);
  EXPECT_TRUE(machine_.has_started(number));
  message::Outcome outcome{number, measured()};
  outcome.others = {measured(Status::failed)};
  outcome.spans = {{0.5, 3}, {1, 4}};
  machine_.on(0, outcome, at(105));
  const Attempts::Ended ended = the_end();
  EXPECT_FALSE(machine_.has_started(number));
  ASSERT_EQ(ended.others.size(), 1U);
  EXPECT_EQ(ended.others[0].status, Status::failed);
  EXPECT_THAT(ended.spans,
              ElementsAre(Pair(at(100.5).wall, at(103).wall), Pair(at(101).wall, at(104).wall)));
}

TEST_F(AttemptsTest, AnAbortedOneTellsWhoseTurnItWas) {
  const Attempts::Number number = run({0, 1});
  machine_.on(0, message::Progress{number, 7, 0.1, 2}, at(1));
  gone(1, number, 2, "rank 1: a bug", true);
  gone(0, number, 3);
  EXPECT_EQ(the_end().turn, 2);
}

TEST_F(AttemptsTest, AReleaseGoesToTheRanksThatHaveItBuilt) {
  machine_.release({1, 3}, "it");
  EXPECT_THAT(receivers<message::Release>(), ElementsAre(1, 3));
}

}  // namespace
}  // namespace dstune
