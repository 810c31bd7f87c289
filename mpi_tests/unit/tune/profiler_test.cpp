#include "profile/profiler.hpp"

#include <queue>
#include <utility>

#include <gtest/gtest.h>

namespace dstune {
namespace {

/// Members that answer at once: each has measured as many seconds as its rank.
class FakeMembers : public Mailbox {
 public:
  explicit FakeMembers(std::set<int> silent = {}, std::set<int> failing = {})
      : silent_(std::move(silent)), failing_(std::move(failing)) {}

  void send(int world_rank, Bytes data) override {
    const dstune::Message message = decode(data);
    if (const auto* order = std::get_if<message::Profile>(&message)) {
      groups_.emplace(order->attempt, order->world_ranks);
      budgets_.push_back(order->task.budget_s);
      if (!order->task.disk.bytes.empty()) disks_.insert(order->world_ranks);
      if (failing_.contains(world_rank)) {
        answer(world_rank, message::Gone{order->attempt, Status::failed, "a bug"});
      } else if (!silent_.contains(world_rank)) {
        DeviceProfile profile;
        Work work{.kind = WorkKind::add};
        profile.kernels = {{work, {{1, static_cast<double>(world_rank)}}}};
        profile.groups = {{order->task.shape, 1, {}}};
        answer(world_rank, message::Profiled{order->attempt, profile});
      }
    } else if (const auto* abort = std::get_if<message::Abort>(&message)) {
      aborted_.insert(world_rank);
      if (world_rank != 3)
        answer(world_rank, message::Gone{abort->attempt, Status::failed, "left"});
    }
  }
  std::optional<Mailbox::Message> try_receive() override {
    if (answers_.empty()) return std::nullopt;
    Mailbox::Message message = std::move(answers_.front());
    answers_.pop();
    return message;
  }
  bool flush(double) override { return true; }

  [[nodiscard]] std::vector<std::vector<int>> groups() const {
    std::vector<std::vector<int>> all;
    for (const auto& [attempt, ranks] : groups_) all.push_back(ranks);
    return all;
  }
  [[nodiscard]] const std::set<int>& aborted() const { return aborted_; }
  /// Groups that were to time a disk.
  [[nodiscard]] const std::set<std::vector<int>>& disks() const { return disks_; }

 private:
  void answer(int world_rank, const dstune::Message& message) {
    answers_.push({world_rank, encode(message)});
  }

  std::set<int> silent_, failing_, aborted_;
  std::map<std::uint64_t, std::vector<int>> groups_;
  std::vector<double> budgets_;
  std::set<std::vector<int>> disks_;
  std::queue<Mailbox::Message> answers_;
};

std::vector<ProfilingTask> tasks_of(const std::vector<GroupShape>& shapes) {
  std::vector<ProfilingTask> tasks;
  for (const GroupShape& shape : shapes) {
    ProfilingTask& task = tasks.emplace_back();
    task.shape = shape;
    task.budget_s = 0.001;
  }
  return tasks;
}

Profiler::Options impatient() {
  return {.timeout_budgets = 1, .min_inactivity_timeout_s = 0.01, .abort_grace_s = 0.01};
}

using Groups = std::vector<std::vector<int>>;

/// A profiler of fake members, with a driver of its own.
struct Profiling {
  Profiling(FakeMembers& members, const Groups& nodes, Profiler::Options options = {},
            AttemptDriver::LostRanks lost_ranks = {})
      : driver(members, {}, std::move(lost_ranks)), profiler(driver, nodes, std::move(options)) {}

  [[nodiscard]] bool have_all_answered() { return driver.attempts().lost_ranks().empty(); }

  AttemptDriver driver;
  Profiler profiler;
};

TEST(ProfilerTest, AsksEveryGroupOfEachShapeAndTakesTheMean) {
  FakeMembers members;
  Profiling profiling(members, {{0, 1, 2, 3}});
  const DeviceProfile profile = profiling.profiler.run(tasks_of({{1, 1}, {2, 1}}));
  EXPECT_EQ(members.groups(), (Groups{{0}, {1}, {2}, {3}, {0, 1}, {2, 3}}));
  ASSERT_EQ(profile.kernels.size(), 1U);
  EXPECT_EQ(profile.kernels[0].points, (std::vector<TimePoint>{{1, 1.5}}));
  EXPECT_EQ(profile.groups.size(), 2U);
  EXPECT_TRUE(profiling.have_all_answered());
}

TEST(ProfilerTest, OneGroupANodeTimesItsDisk) {
  FakeMembers members;
  Profiling profiling(members, {{0, 1, 2, 3}, {4, 5}, {6, 7}});
  std::vector<ProfilingTask> tasks = tasks_of({{2, 1}});
  tasks.front().disk.bytes = {4096};
  (void)profiling.profiler.run(tasks);
  EXPECT_EQ(members.groups().size(), 4U);
  EXPECT_EQ(members.disks(), (std::set<std::vector<int>>{{0, 1}, {4, 5}, {6, 7}}));
}

TEST(ProfilerTest, GoesOnWithoutAGroupThatFails) {
  FakeMembers members({}, {0});
  Profiling profiling(members, {{0, 1}});
  const DeviceProfile profile = profiling.profiler.run(tasks_of({{1, 1}}));
  EXPECT_EQ(profile.kernels.at(0).points, (std::vector<TimePoint>{{1, 1}}));
  EXPECT_TRUE(profiling.have_all_answered());
}

TEST(ProfilerTest, AbortsWhoeverIsLate) {
  FakeMembers members({1});
  Profiling profiling(members, {{0, 1}}, impatient());
  const DeviceProfile profile = profiling.profiler.run(tasks_of({{2, 1}, {1, 1}}));
  EXPECT_EQ(members.groups(), (Groups{{0, 1}})) << "nothing more is measured";
  EXPECT_EQ(members.aborted(), (std::set<int>{1}));
  EXPECT_FALSE(profile.empty()) << "what was measured counts";
  EXPECT_TRUE(profiling.have_all_answered()) << "it answered the abort";
}

// It may be in a collective, which nobody else takes part in any more.
TEST(ProfilerTest, WhereAMemberFailsTheOthersHearOfItAtOnce) {
  FakeMembers members({1}, {0});
  Profiling profiling(members, {{0, 1}});
  (void)profiling.profiler.run(tasks_of({{2, 1}}));
  EXPECT_EQ(members.aborted(), (std::set<int>{1}));
  EXPECT_TRUE(profiling.have_all_answered());
}

TEST(ProfilerTest, LeavesWhoeverNeverAnswers) {
  FakeMembers members({3});
  Profiling profiling(members, {{2, 3}}, impatient());
  (void)profiling.profiler.run(tasks_of({{2, 1}}));
  EXPECT_FALSE(profiling.have_all_answered());
}

TEST(ProfilerTest, EndsWithTheJobAndWithTheDead) {
  FakeMembers members({0, 1});
  Profiling ended(members, {{0, 1}}, {.is_to_be_ended = [] { return true; }});
  EXPECT_TRUE(ended.profiler.run(tasks_of({{1, 1}})).empty());
  Profiling bereft(members, {{0, 1}}, {}, [] { return std::map<int, std::string>{{1, "died"}}; });
  EXPECT_TRUE(bereft.profiler.run(tasks_of({{1, 1}})).empty());
}

}  // namespace
}  // namespace dstune
