#include "dstune/schedule/scheduler.hpp"

#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<std::vector<int>> one_slot = {{0}};

/// Throws, and so fails the test, where nothing is dispatched.
Scheduler::Dispatch next_of(Scheduler& scheduler) {
  auto dispatch = scheduler.next();
  if (!dispatch) throw std::runtime_error("nothing is dispatched");
  return std::move(*dispatch);
}

TEST(SchedulerTest, NothingTakesTheDiskThatTheHeadWaitsFor) {
  SlotPool pool({{0, 1, 2, 3}});
  Scheduler scheduler(pool);
  const Needs on_disk{.shape = {1, 1}, .disk_bytes = 1};
  scheduler.submit(0, on_disk);
  scheduler.submit(1, {.shape = {2, 1}, .disk_bytes = 1});
  scheduler.submit(2, on_disk);
  scheduler.submit(3, {1, 1});
  auto first = next_of(scheduler);
  EXPECT_EQ(first.experiment, 0);
  // 1 waits for the disk, 2 behind it; 3 needs none.
  auto third = next_of(scheduler);
  EXPECT_EQ(third.experiment, 3);
  EXPECT_FALSE(scheduler.next());
  first.reservation.give_back();
  auto second = next_of(scheduler);
  EXPECT_EQ(second.experiment, 1);
  EXPECT_FALSE(scheduler.next());
}

TEST(SchedulerTest, AvoidsRanksWhereOthersAreIdle) {
  SlotPool pool({{0, 1, 2, 3}});
  Scheduler scheduler(pool);
  scheduler.submit(0, {2, 1}, {0, 1});
  scheduler.submit(1, {2, 1}, {2});
  const auto first = next_of(scheduler);
  EXPECT_THAT(first.reservation.world_ranks(), ElementsAre(2, 3));
  auto second = next_of(scheduler);
  EXPECT_THAT(second.reservation.world_ranks(), ElementsAre(0, 1));
  second.reservation.give_back();
  scheduler.submit(2, {2, 1}, {0, 1});
  EXPECT_TRUE(scheduler.next()) << "there is no other place";
}

/// The places of groups of one size after the other.
std::vector<std::vector<int>> places(SlotPool& pool, const std::vector<GroupShape>& shapes) {
  Scheduler scheduler(pool);
  for (std::size_t experiment = 0; experiment < shapes.size(); ++experiment)
    scheduler.submit(experiment, {shapes[experiment]});
  std::vector<Reservation> held;
  std::vector<std::vector<int>> found;
  while (auto dispatch = scheduler.next()) {
    found.push_back(dispatch->reservation.world_ranks());
    held.push_back(std::move(dispatch->reservation));
  }
  return found;
}

TEST(SchedulerTest, SparesARankWhereThatDelaysNothing) {
  using Places = std::vector<std::vector<int>>;
  SlotPool node({{0, 1, 2, 3}});
  node.spare(0);
  EXPECT_EQ(places(node, {{2, 1}, {2, 1}}), (Places{{2, 3}, {0, 1}}));
  EXPECT_EQ(places(node, {{1, 1}, {3, 1}}), (Places{{1}, {0, 2, 3}}));
  SlotPool nodes({{0, 1}, {2, 3}, {4, 5}});
  nodes.spare(0);
  EXPECT_EQ(places(nodes, {{2, 1}, {2, 2}}), (Places{{2, 3}, {0, 1, 4, 5}}));
  EXPECT_EQ(places(nodes, {{1, 1}, {1, 1}, {2, 2}}), (Places{{1}, {0}, {2, 3, 4, 5}}))
      << "a group of two would not find its place";
  EXPECT_EQ(places(nodes, {{2, 3}}), (Places{{0, 1, 2, 3, 4, 5}}));
  nodes.spare(std::nullopt);
  EXPECT_EQ(places(nodes, {{2, 1}}), (Places{{0, 1}}));
}

TEST(SchedulerTest, HasRoomForWhatWouldStartNow) {
  SlotPool pool({{0, 1}, {2, 3}});
  Scheduler scheduler(pool);
  EXPECT_TRUE(pool.has_room({{2, 2}}));
  scheduler.submit(0, {{1, 1}});
  const auto dispatch = next_of(scheduler);
  EXPECT_FALSE(pool.has_room({{2, 2}}));
  EXPECT_TRUE(pool.has_room({{2, 1}}));
  EXPECT_FALSE(pool.has_room({{4, 1}}));
}

TEST(SchedulerTest, RunsFirstInFirstOut) {
  SlotPool pool({{0, 1}});
  Scheduler scheduler(pool);
  for (std::size_t experiment = 10; experiment < 13; ++experiment)
    scheduler.submit(experiment, {1, 1});
  auto first = next_of(scheduler);
  auto second = next_of(scheduler);
  EXPECT_EQ(first.experiment, 10U);
  EXPECT_EQ(second.experiment, 11U);
  EXPECT_FALSE(scheduler.next());
  first.reservation.give_back();
  EXPECT_EQ(scheduler.next()->experiment, 12U);
  EXPECT_EQ(scheduler.num_waiting(), 0U);
}

TEST(SchedulerTest, KeepsABlockedHeadAtTheFront) {
  SlotPool pool({{0, 1, 2, 3}});
  Scheduler scheduler(pool);
  scheduler.submit(0, {1, 1});
  scheduler.submit(1, {4, 1});
  scheduler.submit(2, {1, 1});
  auto running = next_of(scheduler);
  ASSERT_EQ(running.experiment, 0U);
  EXPECT_FALSE(scheduler.next()) << "2 would delay 1, which waits for every slot";
  running.reservation.give_back();
  EXPECT_EQ(scheduler.next()->experiment, 1U);
}

TEST(SchedulerTest, BackfillsBesideTheSlotsThatTheHeadWaitsFor) {
  SlotPool pool({{0, 1, 2, 3}});
  Scheduler scheduler(pool);
  scheduler.submit(0, {1, 1});  // 0
  scheduler.submit(1, {2, 1});  // 2, 3
  scheduler.submit(2, {3, 1});  // waits for 0..2 or another three
  scheduler.submit(3, {2, 1});
  scheduler.submit(4, {1, 1});
  auto zero = next_of(scheduler);
  auto one = next_of(scheduler);
  EXPECT_FALSE(scheduler.next()) << "the one idle slot is among those the head waits for";
  one.reservation.give_back();
  auto two = next_of(scheduler);
  EXPECT_EQ(two.experiment, 2U);
  EXPECT_THAT(two.reservation.world_ranks(), ElementsAre(1, 2, 3));
}

TEST(SchedulerTest, StartsWhatTheHeadDoesNotWaitFor) {
  SlotPool pool({{0, 1, 2, 3}});
  Scheduler scheduler(pool);
  scheduler.submit(0, {3, 1});
  scheduler.submit(1, {3, 1});
  scheduler.submit(2, {1, 1});
  auto running = next_of(scheduler);
  ASSERT_THAT(running.reservation.world_ranks(), ElementsAre(0, 1, 2));
  const auto beside = next_of(scheduler);
  EXPECT_EQ(beside.experiment, 2U);
  EXPECT_FALSE(scheduler.next());
  running.reservation.give_back();
  const auto head = next_of(scheduler);
  EXPECT_EQ(head.experiment, 1U);
  EXPECT_THAT(head.reservation.world_ranks(), ElementsAre(0, 1, 2));
}

TEST(SchedulerTest, NothingTakesTheBytesThatTheHeadWaitsFor) {
  SlotPool pool({{0, 1, 2, 3}}, {{.host = 100, .disk = 0}});
  Scheduler scheduler(pool);
  scheduler.submit(0, {.shape = {1, 1}, .host_bytes = 60});
  scheduler.submit(1, {.shape = {1, 1}, .host_bytes = 80});
  scheduler.submit(2, {.shape = {1, 1}, .host_bytes = 30});
  scheduler.submit(3, {.shape = {1, 1}, .host_bytes = 20});
  const auto first = next_of(scheduler);
  const auto beside = next_of(scheduler);
  EXPECT_EQ(beside.experiment, 3U) << "2 would leave too little for 1";
}

/// Experiments of the same duration, in order, on a virtual clock; how busy the slots are.
double share_of_slots_busy(const std::vector<GroupShape>& shapes,
                           const std::vector<std::vector<int>>& ranks_of_node) {
  SlotPool pool(ranks_of_node);
  Scheduler scheduler(pool);
  double busy = 0;
  for (std::size_t experiment = 0; experiment < shapes.size(); ++experiment) {
    scheduler.submit(experiment, {shapes[experiment]});
    busy += shapes[experiment].size();
  }
  std::multimap<double, Reservation> running;  // by their ends
  double now = 0;
  for (;;) {
    while (auto dispatch = scheduler.next()) {
      // No two end at the very same time.
      const double end = now + 1 + 1e-6 * static_cast<double>(dispatch->experiment % 7);
      running.emplace(end, std::move(dispatch->reservation));
    }
    if (running.empty()) break;
    now = running.begin()->first;
    running.erase(running.begin());
  }
  EXPECT_EQ(scheduler.num_waiting(), 0U);
  return busy / (now * pool.num_slots());
}

TEST(SchedulerTest, SlotsAreBusyWhereSizesDoNotDivideThem) {
  std::vector<GroupShape> in_order(24, {3, 1});
  in_order.resize(48, {1, 1});
  EXPECT_GE(share_of_slots_busy(in_order, {{0, 1, 2, 3}}), 0.97);
  std::vector<GroupShape> by_turns;
  for (int pair = 0; pair < 48; ++pair) {
    by_turns.push_back({3, 1});
    by_turns.push_back({1, 1});
  }
  EXPECT_GE(share_of_slots_busy(by_turns, {{0, 1, 2, 3}}), 0.97);
  EXPECT_GE(share_of_slots_busy(by_turns, {{0, 1, 2, 3}, {4, 5, 6, 7}}), 0.97);
}

TEST(SchedulerTest, BackfillsOnAnotherNode) {
  SlotPool pool({{0, 1, 2, 3}, {4, 5}});
  Scheduler scheduler(pool);
  scheduler.submit(0, {2, 1});
  scheduler.submit(1, {4, 1});
  scheduler.submit(2, {4, 1});
  scheduler.submit(3, {2, 1});
  auto zero = next_of(scheduler);
  ASSERT_THAT(zero.reservation.world_ranks(), ElementsAre(0, 1));
  auto beside = next_of(scheduler);
  EXPECT_EQ(beside.experiment, 3U);
  EXPECT_THAT(beside.reservation.world_ranks(), ElementsAre(4, 5));
}

TEST(SchedulerTest, ResubmittedOnesGoFirst) {
  SlotPool pool(one_slot);
  Scheduler scheduler(pool);
  scheduler.submit(0, {1, 1});
  scheduler.submit(1, {1, 1});
  scheduler.resubmit(9, {1, 1});
  EXPECT_EQ(scheduler.next()->experiment, 9U);
  EXPECT_EQ(scheduler.next()->experiment, 0U);
}

TEST(SchedulerTest, ImpossibleOnesLeaveAndBlockNobody) {
  SlotPool pool({{0, 1}, {2}});
  Scheduler scheduler(pool);
  scheduler.submit(0, {2, 1});
  scheduler.submit(1, {1, 1});
  EXPECT_THAT(scheduler.take_impossible(), IsEmpty());
  pool.retire(1);
  auto running = next_of(scheduler);
  EXPECT_EQ(running.experiment, 1U);
  EXPECT_THAT(scheduler.take_impossible(), ElementsAre(0));
  EXPECT_EQ(scheduler.num_waiting(), 0U);
}

TEST(SchedulerTest, NothingIsDispatchedOnceItIsCleared) {
  SlotPool pool(one_slot);
  Scheduler scheduler(pool);
  scheduler.submit(4, {1, 1});
  scheduler.submit(5, {1, 1});
  scheduler.clear();
  EXPECT_EQ(scheduler.num_waiting(), 0U);
  EXPECT_FALSE(scheduler.next());
}

/// A job on a virtual clock: random shapes and durations, sometimes a lost rank.
class Simulation {
 public:
  explicit Simulation(unsigned seed) : random_(seed) {}

  void run(int num_experiments) {
    for (int number = 0; number < num_experiments; ++number) {
      const GroupShape shape{1 + static_cast<int>(random_() % 8),
                             1 + static_cast<int>(random_() % 2)};
      shapes_.push_back(shape);
      waiting_.push_back(number);
      scheduler_.submit(number, {shape});
    }
    while (true) {
      drop_impossible();
      dispatch_all();
      if (running_.empty()) break;
      finish_one();
    }
    EXPECT_EQ(scheduler_.num_waiting(), 0U);
    EXPECT_EQ(pool_.num_idle(), pool_.num_slots());
    EXPECT_EQ(done_.size(), shapes_.size());
  }

  int num_backfilled = 0;

 private:
  struct Running {
    std::size_t experiment;
    Reservation reservation;
  };

  void drop_impossible() {
    for (const auto experiment : scheduler_.take_impossible()) {
      EXPECT_FALSE(pool_.is_possible({shapes_[experiment]}));
      forget(experiment);
      done_.insert(experiment);
    }
  }

  void dispatch_all() {
    note_head();
    while (auto dispatch = scheduler_.next()) {
      if (dispatch->experiment != waiting_.front()) {
        ++num_backfilled;
        // Only behind a head that was found not to fit.
        EXPECT_TRUE(blockers_ && blocked_head_ == waiting_.front());
        backfilled_.insert(dispatch->experiment);
      }
      for (const int world_rank : dispatch->reservation.world_ranks())
        EXPECT_TRUE(taken_.insert(world_rank).second) << "slot " << world_rank << " twice";
      forget(dispatch->experiment);
      running_.push_back({dispatch->experiment, std::move(dispatch->reservation)});
      note_head();
    }
    note_head();
    // Everything is gone that ran when the head came to the front: only backfilled ones could
    // still keep it waiting.
    if (!waiting_.empty()) {
      EXPECT_TRUE(!blockers_->empty()) << "experiment " << waiting_.front() << " is delayed";
    }
  }

  /// Remembers what ran when the present head came to the front.
  void note_head() {
    if (waiting_.empty() || (blockers_ && blocked_head_ == waiting_.front() && !lost_)) return;
    lost_ = false;
    blocked_head_ = waiting_.front();
    blockers_.emplace();
    for (const auto& running : running_) blockers_->insert(running.experiment);
  }

  void finish_one() {
    const std::size_t index = random_() % running_.size();
    std::swap(running_[index], running_.back());
    auto& finished = running_.back();
    for (const int world_rank : finished.reservation.world_ranks()) taken_.erase(world_rank);
    if (random_() % 50 == 0 && pool_.num_slots() > 8) {
      finished.reservation.retire(finished.reservation.world_ranks().front());
      lost_ = true;
    }
    done_.insert(finished.experiment);
    if (blockers_) blockers_->erase(finished.experiment);
    running_.pop_back();
  }

  void forget(std::size_t experiment) { std::erase(waiting_, experiment); }

  std::mt19937 random_;
  SlotPool pool_{{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}, {16, 17, 18, 19}}};
  Scheduler scheduler_{pool_};
  std::vector<GroupShape> shapes_;
  std::vector<std::size_t> waiting_;
  std::vector<Running> running_;
  std::set<std::size_t> done_, backfilled_;
  std::set<int> taken_;
  std::optional<std::set<std::size_t>> blockers_;
  std::size_t blocked_head_ = 0;
  bool lost_ = false;
};

TEST(SchedulerTest, RandomJobsFinishWithoutDelayingTheHead) {
  int num_backfilled = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    Simulation simulation(seed);
    simulation.run(120);
    num_backfilled += simulation.num_backfilled;
  }
  EXPECT_GT(num_backfilled, 100) << "the property is tested only where something is backfilled";
}

}  // namespace
}  // namespace dstune
